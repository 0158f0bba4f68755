"""Second copies of a mirror, as rows of the catalog database: where they are, and how far they have come."""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from ccpr.base.failure import Failure
from ccpr.state.database import reading, repeatable
from ccpr.state.records import FAILURE, Records, RowForm
from ccpr.state.tables import copies, copy_scrubs

_ALL = sa.select(copies).where(copies.c.task_id == sa.bindparam("task")).order_by(copies.c.copy_id)


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


_FORM = RowForm(copies, CopyRecord, "a second copy cannot be read", {"at": "snapshot_ts", "failure": FAILURE})


class CopyRecords(Records):
    """The second copies of one subscription's mirror."""

    def all(self) -> list[CopyRecord]:
        """Raises StateUnreadable."""
        return _FORM.values(self._rows(_ALL))

    def of(self, place: str) -> CopyRecord | None:
        return next((copy for copy in self.all() if copy.place == place), None)

    def put(self, copy: CopyRecord) -> None:
        number = copy_id(copy.place)
        values = {"task_id": self.task_id, "copy_id": number, **_FORM.cells(copy)}
        self._write(copies.delete().where(self._mine(copies, copy_id=number)), copies.insert().values(values))

    def forget(self, place: str) -> bool:
        """Whether it was known."""
        tables = (copy_scrubs, copies)
        return self._write(*(one.delete().where(self._mine(one, copy_id=copy_id(place))) for one in tables)) > 0


@repeatable
def copied_tasks(engine: sa.Engine) -> set[str]:
    """Task ids of the subscriptions that have a second copy."""
    with reading(engine) as connection:
        return set(connection.scalars(sa.select(copies.c.task_id).distinct()))


def copy_id(place: str) -> str:
    """Of a place: a key of a table cannot be as long as a URL."""
    return hashlib.sha256(place.encode()).hexdigest()[:16]
