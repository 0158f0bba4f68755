"""Second copies of a mirror, as rows of the catalog database: where they are, and how far they have come."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import sqlalchemy as sa

from ccpr.base.failure import Failure
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.database import fetch, reading, repeatable, stored_time, transaction, understood
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


class CopyRecords:
    """Those of one subscription."""

    def __init__(self, engine: sa.Engine, task_id: str) -> None:
        self.engine, self.task_id = engine, task_id

    @repeatable
    def all(self) -> list[CopyRecord]:
        """Raises StateUnreadable."""
        with reading(self.engine) as connection:
            return [_record(row._mapping) for row in fetch(connection, _ALL, task=self.task_id)]

    def of(self, place: str) -> CopyRecord | None:
        return next((one for one in self.all() if one.place == place), None)

    @repeatable
    def put(self, one: CopyRecord) -> None:
        copied = one.copied_at
        values = {
            "task_id": self.task_id,
            "copy_id": copy_id(one.place),
            "place": one.place,
            "encrypt": one.encrypt,
            "started_at": stored_time(one.started_at),
            "copied_at": None if copied is None else stored_time(copied),
            "lsn": one.lsn,
            "snapshot_ts": one.at,
            "attempts": one.attempts,
            "failure": None if one.failure is None else one.failure.to_text(),
        }
        with transaction(self.engine) as connection:
            connection.execute(copies.delete().where(*self._mine(one.place)))
            connection.execute(copies.insert().values(values))

    @repeatable
    def forget(self, place: str) -> bool:
        """Whether it was known."""
        with transaction(self.engine) as connection:
            mine = copy_scrubs.c.task_id == self.task_id, copy_scrubs.c.copy_id == copy_id(place)
            connection.execute(copy_scrubs.delete().where(*mine))
            return connection.execute(copies.delete().where(*self._mine(place))).rowcount > 0

    def _mine(self, place: str) -> tuple[sa.ColumnElement[bool], ...]:
        return copies.c.task_id == self.task_id, copies.c.copy_id == copy_id(place)


@repeatable
def copied_tasks(engine: sa.Engine) -> set[str]:
    """Task ids of the subscriptions that have a second copy."""
    with reading(engine) as connection:
        return set(connection.scalars(sa.select(copies.c.task_id).distinct()))


def copy_id(place: str) -> str:
    """Of a place: a key of a table cannot be as long as a URL."""
    return hashlib.sha256(place.encode()).hexdigest()[:16]


def _record(row: Mapping) -> CopyRecord:
    with understood("a second copy cannot be read", f"task {row['task_id']}"):
        copied, lsn, at = row["copied_at"], row["lsn"], row["snapshot_ts"]
        return CopyRecord(
            text_of(row["place"]),
            text_of(row["encrypt"]),
            row["started_at"].replace(tzinfo=UTC),
            None if copied is None else copied.replace(tzinfo=UTC),
            None if lsn is None else integer_of(lsn),
            None if at is None else integer_of(at),
            integer_of(row["attempts"]),
            None if row["failure"] is None else Failure.from_text(row["failure"]),
        )
