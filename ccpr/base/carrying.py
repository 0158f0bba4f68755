"""Work that can be shared out, and who carries it: this process, or Spark, which an upper room hands down. Targets and
lakes describe their work, and do not import Spark."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias


class WorkKind(StrEnum):
    """The values begin the kinds of stored rates."""

    COPY = "copy"
    READ = "read"
    LOAD = "load"
    CHANGE = "change"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Work:
    """Pieces of one kind that other processes could do, at the same time and in any order.

    Attributes
    ----------
    place : where the results go, for comparing rates.
    stores : URLs of the stores that a task opens.
    function : makes the results of some pieces; it runs in a task, or more than once if a task is repeated, so that
        twice must be once. Like the pieces and the results it can be pickled.
    sizes : stored bytes of each piece.
    """

    kind: WorkKind
    place: str
    stores: tuple[str, ...]
    function: Callable[[Sequence[Any]], Iterable[Any]]
    pieces: Sequence[Any]
    sizes: Sequence[int]


# Is given the work, a function by which this process does it, and one to call now and then while others do it: its
# error ends the work. Returns the results, whoever made them, in any order.
Carry: TypeAlias = Callable[[Work, Callable[[], Iterable[Any]], Callable[[], None]], Iterable[Any]]


def carry_here(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
    """This process does it."""
    return here()


def share_out(
    carry: Carry, work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None] = lambda: None
) -> Iterable[Any]:
    """A single piece is done here: there is nothing to share."""
    return carry(work, here, beat) if len(work.pieces) > 1 else here()
