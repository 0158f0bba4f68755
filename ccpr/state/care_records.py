"""The care for a mirror, as rows of the catalog database: second copies and how far they have come, how far files have
been read again, here and in each copy, drills with what they found, and the sums that they compare with."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.database import batches, repeatable, transaction, understood
from ccpr.state.records import FAILURE, Records, RowForm, texts_field
from ccpr.state.tables import copies, copy_scrubs, drills, figures, scrubs

if TYPE_CHECKING:  # it imports numpy
    from ccpr.mirror.row_sums import RowSum

_MOST_DAMAGED = 1_000  # that are remembered one by one
MOST_DRILLS = 200  # of a subscription; older ones are forgotten, but for the last good one
_COPIES = sa.select(copies).where(copies.c.task_id == sa.bindparam("task")).order_by(copies.c.copy_id)
_DRILLS = sa.select(drills).where(drills.c.task_id == sa.bindparam("task")).order_by(drills.c.started_at.desc())


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A second copy. That it is recorded says nothing of whether it is still there.

    Attributes
    ----------
    place : its URL, without a key.
    encrypt : where its key is; empty if it is not encrypted.
    started_at : of the last attempt to bring it to where the mirror is; by our clock, UTC.
    copied_at : when the last good one began; None before.
    lsn, at : of the newest point that it had then; the time in nanoseconds.
    attempts : how many failed since.
    failure : of the last attempt; None if it was good.
    """

    place: str
    encrypt: str
    started_at: datetime
    copied_at: datetime | None = None
    lsn: int | None = None
    at: int | None = None
    attempts: int = 0
    failure: Failure | None = None

    @property
    def good(self) -> bool:
        """Whether the last attempt was."""
        return self.failure is None

    def reached(self, lsn: int, at: int) -> "CopyRecord":
        """After an attempt that was good."""
        return replace(self, copied_at=self.started_at, lsn=lsn, at=at, attempts=0, failure=None)

    def failed(self, failure: Failure) -> "CopyRecord":
        return replace(self, attempts=self.attempts + 1, failure=failure)


_COPY = RowForm(copies, CopyRecord, "a second copy cannot be read", {"at": "snapshot_ts", "failure": FAILURE})


class CopyRecords(Records):
    """The second copies of one subscription's mirror."""

    def all(self) -> list[CopyRecord]:
        """Raises StateUnreadable."""
        return _COPY.values(self._rows(_COPIES))

    def of(self, place: str) -> CopyRecord | None:
        return next((copy for copy in self.all() if copy.place == place), None)

    def put(self, copy: CopyRecord) -> None:
        number = copy_id(copy.place)
        values = {"task_id": self.task_id, "copy_id": number, **_COPY.cells(copy)}
        self._write(copies.delete().where(self._mine(copies, copy_id=number)), copies.insert().values(values))

    def forget(self, place: str) -> bool:
        """Whether it was known."""
        tables = (copy_scrubs, copies)
        return self._write(*(one.delete().where(self._mine(one, copy_id=copy_id(place))) for one in tables)) > 0


def copy_id(place: str) -> str:
    """Of a place: a key of a table cannot be as long as a URL."""
    return hashlib.sha256(place.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Scrub:
    """
    Attributes
    ----------
    position : name of the last object of this round that was read; empty at its beginning.
    began_at : of this round, by our clock, UTC.
    last_began_at : of the last round that came to its end; None before.
    repaired : files of this round that were damaged and are what they were again.
    damaged : path and reason of those that are still damaged.
    """

    position: str
    began_at: datetime
    last_began_at: datetime | None = None
    repaired: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)


_MESSAGE, _STORED = "how far files were read again cannot be read", {"damaged": texts_field("damaged")}
_SCRUBS = {table: RowForm(table, Scrub, _MESSAGE, _STORED) for table in (scrubs, copy_scrubs)}


class ScrubRecords(Records):
    """Those of one subscription's mirror, and of its second copies by their places."""

    def get(self, place: str = "") -> Scrub | None:
        """Of the copy at a place; of the mirror if none is named. Raises StateUnreadable."""
        table, key = _row_of(place)
        return self._first(_SCRUBS[table], sa.select(table).where(self._mine(table, **key)))

    def put(self, scrub: Scrub, place: str = "") -> None:
        table, key = _row_of(place)
        cells = _SCRUBS[table].cells(replace(scrub, damaged=dict(islice(scrub.damaged.items(), _MOST_DAMAGED))))
        self._write(
            table.delete().where(self._mine(table, **key)), table.insert().values(task_id=self.task_id, **key, **cells)
        )


def _row_of(place: str) -> tuple[sa.Table, dict[str, str]]:
    return (copy_scrubs, {"copy_id": copy_id(place)}) if place else (scrubs, {})


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill.

    Attributes
    ----------
    started_at, ended_at : by our clock, UTC.
    lsn, at : the point; its time in nanoseconds.
    place : where it was restored, without a password.
    bytes : of the objects that were read.
    compared : how many tables had been recorded before, so that something could differ.
    differences : by table, for people.
    failure : why it came to no end; None if it did.
    """

    started_at: datetime
    ended_at: datetime
    lsn: int
    at: int
    place: str
    tables: int = 0
    rows: int = 0
    bytes: int = 0
    compared: int = 0
    differences: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def good(self) -> bool:
        """Whether everything was restored, and was what it should be."""
        return self.failure is None and not self.differences

    @property
    def problem(self) -> str:
        """Why it came to no end, or what differed; empty if it was good."""
        if self.failure is not None:
            return f"{self.failure.code}: {self.failure.message}"
        return "; ".join(f"{table}: {how}" for table, how in self.differences.items())

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    def to_json(self) -> dict[str, Any]:
        return {
            "started_at": self.started_at.isoformat(),
            "ended_at": self.ended_at.isoformat(),
            "seconds": self.seconds,
            "lsn": self.lsn,
            "snapshot_ts": self.at,
            "place": self.place,
            "tables": self.tables,
            "rows": self.rows,
            "bytes": self.bytes,
            "compared": self.compared,
            "differences": dict(self.differences),
            "failure": None if self.failure is None else asdict(self.failure),
            "good": self.good,
        }


_DRILL = RowForm(
    drills,
    Drill,
    "a drill cannot be read",
    {"at": "snapshot_ts", "rows": "row_count", "differences": texts_field("differences"), "failure": FAILURE},
)


class DrillRecords(Records):
    """The drills of one subscription."""

    def all(self) -> list[Drill]:
        """The newest first. Raises StateUnreadable."""
        return _DRILL.values(self._rows(_DRILLS))

    def last(self) -> tuple[Drill | None, Drill | None]:
        """The last one, and the last good one."""
        drills = self.all()
        return next(iter(drills), None), next((drill for drill in drills if drill.good), None)

    @repeatable
    def add(self, drill: Drill) -> None:
        mine = self._mine(drills)
        with transaction(self.engine) as connection:
            connection.execute(drills.delete().where(self._mine(drills, started_at=drill.started_at)))
            self._insert(connection, drills, [_DRILL.cells(drill)])
            good = sa.select(sa.func.max(drills.c.started_at)).where(
                mine, drills.c.failure.is_(None), drills.c.differences == "{}"
            )
            times = sa.select(drills.c.started_at).where(mine).order_by(drills.c.started_at.desc())
            old = list(connection.scalars(times.offset(MOST_DRILLS).limit(1)))
            if old:
                kept = connection.scalar(good)
                stale = (mine, drills.c.started_at <= old[0], drills.c.started_at != kept)
                connection.execute(drills.delete().where(*(stale if kept is not None else stale[:2])))


# ---- sums over the rows of tables
#
# What was read when a point was made, by a target, or by a drill. They are apart from the mirror that they vouch for
# (decision a-restore-is-tried).

_ROWS = 400  # of one statement
_AT = sa.select(figures).where(figures.c.task_id == sa.bindparam("task"), figures.c.lsn == sa.bindparam("of"))


class MadeBy(StrEnum):
    COMMIT = "commit"
    TARGET = "target"
    DRILL = "drill"
    VERIFY = "verify"


class RowSumRecords(Records):
    """The figures of one subscription's tables."""

    def at(self, lsn: int) -> "dict[int, RowSum]":
        """By table id, what was recorded of a point. Raises StateUnreadable."""
        from ccpr.mirror.row_sums import RowSum

        rows = self._rows(_AT, of=lsn)
        with understood("recorded figures cannot be read", f"task {self.task_id}, point {lsn}"):
            return {
                integer_of(row.table_id): RowSum(integer_of(row.row_count), text_of(row.row_sum), text_of(row.basis))
                for row in rows
            }

    def write(
        self, connection: sa.Connection, lsn: int, found: "Mapping[int, RowSum]", made_by: MadeBy, now: datetime
    ) -> None:
        """In the caller's transaction; what was recorded of these tables before is replaced."""
        mine = self._mine(figures, lsn=lsn)
        rows = [
            {
                "table_id": table_id,
                "lsn": lsn,
                "row_count": one.rows,
                "row_sum": one.total,
                "basis": one.basis,
                "made_by": made_by.value,
                "made_at": now,
            }
            for table_id, one in sorted(found.items())
        ]
        for batch in batches(rows, _ROWS):
            ids = [row["table_id"] for row in batch]
            connection.execute(figures.delete().where(mine, figures.c.table_id.in_(ids)))
        self._insert(connection, figures, rows)

    @repeatable
    def complete(self, lsn: int, found: "Mapping[int, RowSum]", made_by: MadeBy, now: datetime) -> None:
        """Record the sums of tables that have none yet; those that are there stay."""
        known = self.at(lsn)
        new = {
            table_id: one
            for table_id, one in found.items()
            if table_id not in known or (not known[table_id].total and known[table_id].rows == one.rows)
        }
        if new:
            with transaction(self.engine) as connection:
                self.write(connection, lsn, new, made_by, now)
