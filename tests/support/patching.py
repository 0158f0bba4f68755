"""Replacing a function of the program for the time of a test. A replacement of what is not there any more is an error,
so that a test never says that it struck what it did not."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch


class NothingToReplace(AssertionError):
    """The module or class does not define this name itself, or what it names cannot be called."""


@contextmanager
def replaced(module: str, path: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """During the block, `wrap(original)` takes the place of a function.

    Parameters
    ----------
    path : `function`, or `Class.method`; of the class itself, not of one that it inherits from.
    """
    owner, name, original = find(module, path)
    with patch.object(owner, name, wrap(original)):
        yield


def find(module: str, path: str) -> tuple[Any, str, Callable[..., Any]]:
    """The owner, the name in it, and the function. Raises NothingToReplace."""
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = _defined(owner, parent, f"{module}.{path}")
    original = _defined(owner, name, f"{module}.{path}")
    if not callable(original):
        raise NothingToReplace(f"{module}.{path} cannot be called")
    return owner, name, original


def _defined(owner: Any, name: str, shown: str) -> Any:
    if not isinstance(owner, ModuleType | type) or name not in vars(owner):
        raise NothingToReplace(f"{shown} does not exist: {owner!r} does not define {name!r}")
    return vars(owner)[name]
