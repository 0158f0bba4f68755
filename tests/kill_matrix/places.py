"""Where in an iteration a fault strikes: at the beginning of each step, inside the steps that take long, and in the
sync of the target that follows."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ccpr.base.progress import Progress
from ccpr.pipeline.step_names import Step
from tests.support.patching import replaced


class Reach:
    """Called when an iteration reaches a place, from any thread; the first time it calls `action`. It is true from
    then on."""

    def __init__(self, action: Callable[[], object] = lambda: None) -> None:
        self._action, self._reached, self._lock = action, False, threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            first, self._reached = not self._reached, True
        if first:
            self._action()

    def __bool__(self) -> bool:
        return self._reached


@dataclass(frozen=True)
class Place:
    """`watched(reach)` is a context manager. An iteration in it that reports to its Progress calls `reach` here."""

    label: str
    watched: Callable[[Reach], AbstractContextManager[Progress]]

    @property
    def key(self) -> str:
        return self.label.replace(" ", "_")


@contextmanager
def _step(reach: Reach, step: Step) -> Iterator[Progress]:
    yield Progress(on_step=lambda begun: reach() if begun == step else None)


@contextmanager
def _inside(reach: Reach, module: str, path: str, wrap: Callable[..., Callable[..., Any]]) -> Iterator[Progress]:
    with replaced(module, path, partial(wrap, reach=reach)):
        yield Progress()


def _between_chunks(original: Callable, *, reach: Reach) -> Callable:
    """The first chunk of an object is with the store's threads, and more are to come."""

    def get_object(*args: Any) -> Iterator[Any]:
        for number, chunk in enumerate(original(*args)):
            if number == 1:
                reach()
            yield chunk

    return get_object


def _between_objects(original: Callable, *, reach: Reach) -> Callable:
    """One object has its place, others do not. One after the other: else all might have it at once."""
    lock = threading.Lock()

    def place(store: Any, temporary: Any, name: str, *args: Any) -> None:
        with lock:
            original(store, temporary, name, *args)
        if name.startswith("objects/"):
            reach()

    return place


def _after(original: Callable, *, reach: Reach) -> Callable:
    """After the first call; the second is to come."""

    def function(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        reach()
        return result

    return function


@contextmanager
def _target(reach: Reach) -> Iterator[Progress]:
    yield Progress(on_target=lambda name: reach())


@contextmanager
def _target_rows(reach: Reach) -> Iterator[Progress]:
    yield Progress(on_rows=lambda rows, size: reach())


def _place_inside(label: str, module: str, path: str, wrap: Callable[..., Callable[..., Any]]) -> Place:
    return Place(label, partial(_inside, module=module, path=path, wrap=wrap))


AT = {step: Place(f"{step.value} {step.label}", partial(_step, step=step)) for step in Step}
BETWEEN_CHUNKS = _place_inside("3 between chunks", "ccpr.pipeline.copying", "get_object", _between_chunks)
BETWEEN_OBJECTS = _place_inside("3 between objects", "ccpr.mirror.local_store", "LocalStore._place", _between_objects)
BETWEEN_MANIFESTS = _place_inside("5 between manifests", "ccpr.pipeline.building", "write_table", _after)
COMMITTED = _place_inside("7 committed", "ccpr.pipeline.committing", "PointCommitter.commit", _after)
TARGET = Place("8 target", _target)
TARGET_ROWS = Place("8 target rows", _target_rows)
STEPS = tuple(AT.values())
INSIDE = (BETWEEN_CHUNKS, BETWEEN_OBJECTS, BETWEEN_MANIFESTS, COMMITTED, TARGET, TARGET_ROWS)
PLACES = STEPS + INSIDE
BY_KEY = {place.key: place for place in PLACES}
