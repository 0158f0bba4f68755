"""Opening an iteration for a command, with what only such commands need: Arrow without pandas."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccpr.pipeline.iteration import Iteration
    from ccpr.pipeline.options import IterationOptions
    from ccpr.service.workspace import Workspace


@contextmanager
def open_iteration(
    workspace: "Workspace", name: str, options: "IterationOptions | None" = None
) -> "Iterator[Iteration]":
    """As `Workspace.iteration`."""
    start_arrow()
    with workspace.iteration(name, options) as iteration:
        yield iteration


class _NoPandas:
    """For the import system: there is no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def start_arrow() -> None:
    """Import Arrow and have it do without pandas. The first array of a list makes it import pandas (0.4 s), only to
    know one of its values when it sees it.

    It is asked once. Later it imports pandas where it makes or reads a data frame, and `import pandas` works as ever.
    But it would not know pandas' NA among Python values, so this is for a program of ours and not for a library.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    absent = _NoPandas()
    sys.meta_path.insert(0, absent)  # type: ignore[arg-type]
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(absent)  # type: ignore[arg-type]
