"""Drills, as rows of the catalog database: what was restored, and what it was found to be."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from ccpr.base.failure import Failure
from ccpr.state.database import reading, repeatable, transaction
from ccpr.state.records import FAILURE, Records, RowForm, texts_field
from ccpr.state.tables import drills

MOST_DRILLS = 200  # of a subscription; older ones are forgotten, but for the last good one
_ALL = sa.select(drills).where(drills.c.task_id == sa.bindparam("task")).order_by(drills.c.started_at.desc())


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


_FORM = RowForm(
    drills,
    Drill,
    "a drill cannot be read",
    {"at": "snapshot_ts", "rows": "row_count", "differences": texts_field("differences"), "failure": FAILURE},
)


class DrillRecords(Records):
    """The drills of one subscription."""

    def all(self) -> list[Drill]:
        """The newest first. Raises StateUnreadable."""
        return _FORM.values(self._rows(_ALL))

    def last(self) -> tuple[Drill | None, Drill | None]:
        """The last one, and the last good one."""
        drills = self.all()
        return next(iter(drills), None), next((drill for drill in drills if drill.good), None)

    @repeatable
    def add(self, drill: Drill) -> None:
        mine = self._mine(drills)
        with transaction(self.engine) as connection:
            connection.execute(drills.delete().where(self._mine(drills, started_at=drill.started_at)))
            connection.execute(drills.insert().values(task_id=self.task_id, **_FORM.cells(drill)))
            good = sa.select(sa.func.max(drills.c.started_at)).where(
                mine, drills.c.failure.is_(None), drills.c.differences == "{}"
            )
            times = sa.select(drills.c.started_at).where(mine).order_by(drills.c.started_at.desc())
            old = list(connection.scalars(times.offset(MOST_DRILLS).limit(1)))
            if old:
                kept = connection.scalar(good)
                stale = (mine, drills.c.started_at <= old[0], drills.c.started_at != kept)
                connection.execute(drills.delete().where(*(stale if kept is not None else stale[:2])))


@repeatable
def drilled_tasks(engine: sa.Engine) -> set[str]:
    """Task ids of the subscriptions that had a drill."""
    with reading(engine) as connection:
        return set(connection.scalars(sa.select(drills.c.task_id).distinct()))
