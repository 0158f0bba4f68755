"""A mirror from which many tables are read, one after another.

To make out a point takes as long as it has tables, and who reads all of them asks for it once for each. Decision
points-are-kept-while-reading.
"""

from dataclasses import dataclass
from datetime import datetime

from ccpr.mirror.head import Head
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFiles
from ccpr.mirror.points import Point
from ccpr.mirror.store import Store


@dataclass(frozen=True, slots=True)
class _Answer:
    """What `Mirror.point` said: for which head, what was asked for, which file it came from."""

    head: Head
    at: int | datetime | str | None
    path: str
    point: Point


class ReadMirror(Mirror):
    """Keeps the points that were asked for last, two of them, as changes are between two. The head is read each time,
    so what it says is always the newest state; and a point's file is named after what it says, so a point that was made
    out once need not be again."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._answers: tuple[_Answer, ...] = ()

    def point(self, at: int | datetime | str | None = None) -> Point:
        head, answers = self.head_with_point(), self._answers
        for answer in answers:
            if (answer.head, answer.at) == (head, at):
                return answer.point
        files = PointFiles(self.files, head)
        file = self.point_file(files, at)
        known = (one.point for one in answers if one.path == file.path)
        point = next(known, None) or files.load(file)
        self._answers = (_Answer(head, at, file.path, point), *answers[:1])
        return point
