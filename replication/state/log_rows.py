"""The table `mo_ccpr_log`, and its rows as values (requirement N1).

Names and numeric codes are MatrixOne's (spec/native-behaviour.md, sections 1 and 2); what stands behind `drop_at` is
ours. Two columns say what MatrixOne has no place for: `subscription_name` is the subscription's own name (there: the
publication's, here `publication_name`), and `account_id` is the publisher's (there: the receiving account's, which a
replica outside MatrixOne has not).

A row that cannot be read is one subscription's trouble: the others are read without it.
"""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from matrixone.schema import integer_of
from replication.errors import BAD_ROW_REMEDY, StateUnreadable
from replication.state.database import fetch
from replication.state.states import IterationState, Pair, State
from replication.state.tables import mo_ccpr_log

LONGEST_LEASE_SECONDS = (
    300.0  # ten times what an executor takes; one that ends later was written by a clock that was ahead
)
_READ = tuple(column for column in mo_ccpr_log.columns if column.name != "live_name")
_NUMBERS = ("account_id", "state", "iteration_state", "iteration_lsn", "watermark", "fence", "lease_expires_at")


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row as read; see MatrixOne's table for the columns. Times are UTC; `watermark` is the upstream's clock in
    nanoseconds, 0 = none."""

    task_id: str
    subscription_name: str
    subscription_account_name: str
    sync_level: str
    account_id: int
    db_name: str
    table_name: str
    upstream_conn: str
    sync_config: str
    state: int
    iteration_state: int
    iteration_lsn: int
    watermark: int
    context: str | None
    cn_uuid: str | None
    error_message: str | None
    created_at: datetime
    drop_at: datetime | None
    updated_at: datetime
    publication_name: str
    fence: int
    lease_expires_at: int

    @property
    def pair(self) -> Pair:
        return Pair(State(self.state), IterationState(self.iteration_state))

    def is_held(self, now: float) -> bool:
        """Has the lease not run out, by our clock? Its owner may be dead all the same. One that ends too late to be
        one is not believed: a clock that was set back since would keep everybody out for as long, and a living owner
        loses nothing but its work to the fence.
        """
        return 0 < self.lease_expires_at / 1000 - now <= LONGEST_LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Failures:
    """An unbroken row of failures after which trying again may help.

    Attributes
    ----------
    first, last : when, in seconds since 1970 on our clock.
    """

    count: int
    first: int
    last: int
    text: str

    @classmethod
    def of(cls, message: str | None) -> "Failures | None":
        """Read from `error_message`; None if the last iteration did not fail so."""
        parts = (message or "").split(":", 4)
        if len(parts) != 5 or parts[0] != "R" or not all(part.isdecimal() for part in parts[1:4]):
            return None
        return cls(int(parts[1]), int(parts[2]), int(parts[3]), parts[4])


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read, by what can be told of it.

    Attributes
    ----------
    error : what is wrong with it, and the way out.
    """

    task_id: str
    subscription_name: str
    error: StateUnreadable


def read_rows(connection: sa.Connection) -> tuple[list[LogRow], list[BadRow]]:
    """Those that are not dropped, by name; and those that cannot be read."""
    live = mo_ccpr_log.c.live_name.is_not(None)
    try:
        return [
            _row(row) for row in fetch(connection, sa.select(*_READ).where(live).order_by(mo_ccpr_log.c.live_name))
        ], []
    except StateUnreadable:
        pass  # one is bad, which spoils the answer to all: each by itself
    rows, bad = [], []
    keys = sa.select(mo_ccpr_log.c.task_id, mo_ccpr_log.c.live_name).where(live).order_by(mo_ccpr_log.c.live_name)
    for task_id, name in connection.execute(keys).all():
        try:
            found = read_row(connection, mo_ccpr_log.c.task_id == task_id)
            if found is not None:
                rows.append(found)
        except StateUnreadable as error:
            bad.append(BadRow(str(task_id), str(name), error))
    return rows, bad


def read_row(connection: sa.Connection, where: sa.ColumnElement[bool], *, lock: bool = False) -> LogRow | None:
    """With `lock`, nobody else writes the row until the transaction ends (SQLite's whole transactions are so). Raises
    StateUnreadable."""
    query = sa.select(*_READ).where(where)
    try:
        found = fetch(connection, query.with_for_update() if lock else query)
    except StateUnreadable as error:
        names = connection.execute(sa.select(mo_ccpr_log.c.subscription_name).where(where)).scalars().all()
        raise _unreadable(error.message, *names[:1]) from error
    return _row(found[0]) if found else None


def read_latest_dropped(connection: sa.Connection, name: str) -> LogRow | None:
    """The latest of those of this name that were dropped."""
    where = (mo_ccpr_log.c.subscription_name == name, mo_ccpr_log.c.state == State.DROPPED)
    found = fetch(connection, sa.select(*_READ).where(*where).order_by(mo_ccpr_log.c.drop_at.desc()).limit(1))
    return _row(found[0]) if found else None


def values_of(row: LogRow) -> dict[str, object]:
    return {column.name: getattr(row, column.name) for column in _READ}


def _row(row: sa.Row) -> LogRow:
    """Raises StateUnreadable for what was not written here."""
    values = row._mapping
    try:
        for name in _NUMBERS:
            integer_of(values[name])
        Pair(State(values["state"]), IterationState(values["iteration_state"]))
    except (TypeError, ValueError) as error:
        raise _unreadable(f"its row of mo_ccpr_log cannot be read: {error}", values["subscription_name"]) from error
    return LogRow(**values)


def _unreadable(message: str, name: str = "?") -> StateUnreadable:
    return StateUnreadable(message, subject=f"subscription {name}", remedy=BAD_ROW_REMEDY.replace("NAME", name))
