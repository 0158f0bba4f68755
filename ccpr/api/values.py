"""What the functions of this package take and give, as plain values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from numbers import Integral
from os import PathLike
from typing import TypeAlias, Union

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror import points
from ccpr.mirror.errors import BadOption
from ccpr.mirror.points import FIRST_INSTANT, LaggingTable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Location: TypeAlias = str | PathLike[str]  # of a mirror: a path, file:///path or s3://bucket/prefix
At: TypeAlias = Union[int, str, datetime, "Point", None]


@dataclass(frozen=True, slots=True)
class Point:
    """A state of the upstream that can be read.

    Attributes
    ----------
    lsn : number of the iteration that made the point; rises from point to point, with gaps.
    time : the upstream's clock at the snapshot, UTC, to the microsecond.
    tables : the tables that it shows, `database.table`, in order.
    lagging : the tables that it does not show because their iteration failed; see `LaggingTable`.
    """

    lsn: int
    time: datetime
    tables: tuple[str, ...]
    lagging: tuple[LaggingTable, ...] = ()

    @property
    def consistent(self) -> bool:
        """Whether all tables together are a state that the upstream had: no table lags."""
        return not self.lagging


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table at a point.

    Attributes
    ----------
    name : `database.table`.
    id : the upstream's number of the table. RENAME keeps it; TRUNCATE and an ALTER that copies the table change it.
    kind : ``table``, or ``index`` for a hidden index table, which a mirror has if it was asked for.
    columns : names in declared order, without the server's own.
    rows : rows in the table's files, deleted ones included, which have not been merged away: an upper bound.
    bytes : of the table's files as they are stored, compressed.
    objects : how many files these are.
    lsn : the point at which its rows or definition changed last.
    unreadable : columns that this release cannot read, with the reason: they are of a type, or stored in a form, that
        it does not know. The others can be read, and a release that knows it reads all of them from the same mirror.
    zero_dates : how many values of a column are the zero date `0000-00-00`, for columns that have some: stored ones, as
        `rows`. What was copied by release 0.1.0 is not counted.
    """

    name: str
    id: int
    kind: str
    columns: tuple[str, ...]
    rows: int
    bytes: int
    objects: int
    lsn: int
    unreadable: Mapping[str, str] = field(default_factory=dict)
    zero_dates: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """Something that a database has besides tables, at a point.

    Attributes
    ----------
    database, name : where it is, and what it is called; the name of a grant is empty.
    kind : ``view``, ``sequence``, ``function``, ``grant`` or ``row rule``.
    statements : what makes it again, for MatrixOne. They are the upstream's text: look at them before you run them.
    """

    database: str
    name: str
    kind: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PointChanges:
    """What a point brought.

    Attributes
    ----------
    lsn, time : of the point, see `Point`.
    committed : when it was made, by the clock of the machine that made it, UTC.
    changed : tables whose rows or definition changed, or that are new, `database.table` in order.
    gone : tables that the point before had, and this one has not; a renamed one is in `changed` only.
    """

    lsn: int
    time: datetime
    committed: datetime
    changed: tuple[str, ...]
    gone: tuple[str, ...]


def point_of(point: points.Point) -> Point:
    """A point as this package gives it."""
    tables = tuple(sorted(ref.qualified_name for ref in point.tables.values()))
    lagging = tuple(sorted(point.behind.values(), key=lambda table: table.qualified_name))
    return Point(point.lsn, time_of(point.at), tables, lagging)


def changes_by_point(found: Sequence[points.Point]) -> Iterator[PointChanges]:
    """Of points, oldest first."""
    before: Mapping[int, points.TableRef] = {}
    for point in found:
        changed = {
            ref.qualified_name
            for key, ref in point.tables.items()
            if key not in before or ref.changed_lsn != before[key].changed_lsn
        }
        lost = before.keys() - point.tables.keys() - point.behind.keys()
        gone = {before[key].qualified_name for key in lost} - changed
        names = (tuple(sorted(changed)), tuple(sorted(gone)))
        yield PointChanges(point.lsn, time_of(point.at), point.committed_at, *names)
        before = point.tables


def time_of(at: Timestamp) -> datetime:
    """UTC, rounded down to the microsecond."""
    return _EPOCH + timedelta(microseconds=at.physical // 1000)


def plain_at(at: At) -> int | str | datetime | None:
    """What `ccpr.mirror.table_read.point_at` takes. A whole number is an lsn and never a time. Raises BadOption."""
    if isinstance(at, Point):
        return at.lsn
    if not isinstance(at, Integral) or isinstance(at, bool):
        return at
    number = int(at)  # numpy's, too
    if number >= FIRST_INSTANT:
        remedy = "Give a time as a datetime, or as an ISO text such as 2026-11-20T12:30:00."
        raise BadOption("a number is a point, and this one is too large", subject=f"at = {number}", remedy=remedy)
    return number
