"""The files of the points that a head vouches for: the newest, and by way of it all others.

A point's file names the files of points before it: the one directly before, and those 2, 4, 8, … before. So any point
is found by reading few files, none is taken that another history left in the folder, and the folder is never listed.
Such a chain has no gap; points before it, which stay by themselves, are in a list that the head names. Source:
docs/format/mirror.md; decisions a-name-has-its-digest, kept-points-are-listed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.mirror.files import MirrorFiles
from ccpr.mirror.kept_points import KeptPoint, KeptPoints
from ccpr.mirror.layout import COMPLETE_EVERY, Head, lsn_of_point, point_path
from ccpr.mirror.points import LaggingTable, Point, TableRef


@dataclass(frozen=True, slots=True)
class PointFile:
    """A point's file: path, lsn, and the point's time on the upstream's clock in nanoseconds."""

    path: str
    lsn: int
    at: int


class PointFiles:
    """The points of one head. Each file is read once. All methods raise MirrorDamaged, StoreFailed."""

    def __init__(self, files: MirrorFiles, head: Head) -> None:
        self._files, self.head = files, head
        self._read: dict[str, dict[str, Any]] = {}

    @cached_property
    def kept(self) -> KeptPoints:
        """The points before the chain, and those that are held."""
        if not self.head.kept:
            return KeptPoints()
        value = self._files.read_json(self.head.kept)
        with self._files.understood(self.head.kept):
            return KeptPoints.from_json(value, self.head.oldest_point)

    def all(self) -> Iterator[PointFile]:
        """Those that can be read, newest first."""
        yield from self.chain()
        yield from reversed(self.listed())

    def listed(self) -> list[PointFile]:
        """Those before the chain, oldest first."""
        return [_file_of(one) for one in self.kept.points]

    def chain(self) -> Iterator[PointFile]:
        """Those up to the newest between which none was dropped, newest first."""
        file = self.newest()
        while file is not None and self.head.oldest_point is not None and file.lsn >= self.head.oldest_point:
            yield file
            file = next(iter(self._before(file)), None)

    def newest(self) -> PointFile | None:
        """None before the first."""
        if self.head.newest_point is None:
            return None
        return self._file(self.head.point)

    def find(self, late: Callable[[PointFile], bool]) -> PointFile | None:
        """The newest that is not too late, if the one directly after it is; None if there is no such point, or no more.
        None is too late before one that is not."""
        found = self._find_in_chain(late)
        if found is not None:
            return found
        kept = next((one for one in reversed(self.kept.points) if not late(_file_of(one))), None)
        return None if kept is None or not late(PointFile("", kept.next_lsn, kept.next_at)) else _file_of(kept)

    def around(self, late: Callable[[PointFile], bool]) -> tuple[PointFile | None, PointFile | None]:
        """The newest that can be read and is not too late, and the oldest that is too late."""
        before = after = None
        for file in self.all():
            if not late(file):
                return file, after
            after = file
        return before, after

    def _find_in_chain(self, late: Callable[[PointFile], bool]) -> PointFile | None:
        file, oldest = self.newest(), self.head.oldest_point or 0
        while file is not None and file.lsn >= oldest:
            if not late(file):
                return file
            before = self._before(file)
            file = next((one for one in reversed(before) if late(one)), before[0] if before else None)
        return None

    def load(self, file: PointFile) -> Point:
        layers = list(self._layers(file))
        value, merged = self._value(file.path), {}
        with self._files.understood(file.path):
            for _, layer in reversed(layers):
                merged.update(layer["tables"])
            tables = {
                int(table_id): TableRef.from_json(int(table_id), ref)
                for table_id, ref in merged.items()
                if ref is not None
            }
            snapshot, committed_at, ledger = (text_of(value[key]) for key in ("snapshot", "committed_at", "ledger"))
            behind = {int(table_id): LaggingTable.from_json(late) for table_id, late in value.get("behind", {}).items()}
            at = Timestamp(integer_of(value["snapshot_ts"]))
            definitions = text_of(value.get("definitions", ""))
            committed = datetime.fromisoformat(committed_at)
            return Point(file.lsn, at, snapshot, committed, ledger, tables, behind, definitions)

    def paths(self, file: PointFile) -> list[str]:
        """The files that a point is read from: its own, and those that it is a difference from."""
        return [layer.path for layer, _ in self._layers(file)]

    def read_from(self, lsn: int) -> list[str]:
        """The files that a point in the chain is read from; nothing else before it is read for a later one."""
        file = self._find_in_chain(lambda one: one.lsn > lsn)
        return [] if file is None else self.paths(file)

    def _layers(self, file: PointFile) -> Iterator[tuple[PointFile, Mapping[str, Any]]]:
        """A point's file and those that it is a difference from, down to a complete one."""
        while True:
            value = self._value(file.path)
            yield file, value
            if self._is_complete(file, value):
                return
            file = self._before(file)[0]

    def _is_complete(self, file: PointFile, value: Mapping[str, Any]) -> bool:
        with self._files.understood(file.path):
            if not isinstance(value["complete"], bool) or not (value["complete"] or value["earlier"]):
                raise ValueError("it is neither complete nor does it name a point before it")
            return value["complete"]

    def _before(self, file: PointFile) -> Sequence[PointFile]:
        """Points before one, nearest first."""
        value = self._value(file.path)
        with self._files.understood(file.path):
            found = [PointFile(text_of(path), lsn_of_point(path) or 0, integer_of(at)) for path, at in value["earlier"]]
            lsns = [file.lsn, *(one.lsn for one in found)]
            if any(lsn_of_point(one.path) is None for one in found) or lsns != sorted(set(lsns), reverse=True):
                raise ValueError("the points that it names are not before it")
            return found

    def _file(self, path: str) -> PointFile:
        value = self._value(path)
        with self._files.understood(path):
            return PointFile(path, integer_of(value["lsn"]), integer_of(value["snapshot_ts"]))

    def _value(self, path: str) -> dict[str, Any]:
        if path not in self._read:
            value = self._files.read_json(path)
            with self._files.understood(path):
                if integer_of(value["lsn"]) != lsn_of_point(path):
                    raise ValueError(f"it is of point {value['lsn']}")
            self._read[path] = value
        return self._read[path]


def _file_of(kept: KeptPoint) -> PointFile:
    return PointFile(kept.path, kept.lsn, kept.at)


def write_point(
    files: MirrorFiles, point: Point, changed: Mapping[int, TableRef | None], earlier: Sequence[PointFile]
) -> str:
    """Write a point's file, and return its path. No reader sees it until a head, or a later point, names it.

    Parameters
    ----------
    changed : what differs from the point before; None = the table is gone.
    earlier : all points of the chain that are before it, newest first; none for a point that stays by itself.
    """
    distances = [2**power - 1 for power in range(len(earlier).bit_length())]
    near = earlier[0] if earlier else None
    complete = near is None or point.lsn // COMPLETE_EVERY != near.lsn // COMPLETE_EVERY
    tables = dict(point.tables) if complete else changed
    value = {
        "lsn": point.lsn,
        "snapshot_ts": point.at.physical,
        "snapshot": point.snapshot,
        "committed_at": point.committed_at.isoformat(),
        "ledger": point.ledger,
        "complete": complete,
        "earlier": [[earlier[distance].path, earlier[distance].at] for distance in distances],
        "tables": {str(table_id): ref and ref.to_json() for table_id, ref in sorted(tables.items())},
        **(
            {"behind": {str(table_id): late.to_json() for table_id, late in sorted(point.behind.items())}}
            if point.behind
            else {}
        ),
        **({"definitions": point.definitions} if point.definitions else {}),
    }
    return files.write_json(lambda digest: point_path(point.lsn, digest), value)
