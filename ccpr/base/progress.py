"""What an iteration, its copying and its targets report while they work. A value of callbacks, handed in once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class StartedStep(Protocol):
    """A step of an iteration (`ccpr.pipeline.step_names.Step`), as far as progress needs it."""

    @property
    def label(self) -> str: ...

    @property
    def title(self) -> str: ...


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Progress:
    """Callbacks; each does nothing unless it is given. An error raised in one of them ends the work that called it.

    Attributes
    ----------
    on_step : called with each step of the iteration when it begins.
    on_target : called with a target's name before the target is synced.
    on_rows : called with the rows and bytes that were read for a target since the last call; from several threads.
    on_copy : called with the bytes of all objects that are to be copied, before the first.
    on_bytes : called with the bytes of objects that were copied since the last call.
    """

    on_step: Callable[[StartedStep], None] = _ignore
    on_target: Callable[[str], None] = _ignore
    on_rows: Callable[[int, int], None] = _ignore
    on_copy: Callable[[int], None] = _ignore
    on_bytes: Callable[[int], None] = _ignore


SILENT = Progress()
