"""A store that does not have what was copied into it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ccpr.mirror.layout import object_path
from ccpr.pipeline.copying import CopyReport
from tests.support.patching import replaced


@contextmanager
def losing_objects() -> Iterator[list[str]]:
    """During the block, the first object of each copy is gone when the copy ends. Gives the names of those lost."""
    lost: list[str] = []

    def losing(original: Callable[..., CopyReport]) -> Callable[..., CopyReport]:
        def copy_known(job: Any, objects: Any, engine: Any, known: Any, store: Any) -> CopyReport:
            report = original(job, objects, engine, known, store)
            lost.append(report.rows.column("name")[0].as_py())
            store.delete(object_path(lost[-1]))
            return report

        return copy_known

    with replaced("ccpr.pipeline.steps.copy", "copy_known", losing):
        yield lost
