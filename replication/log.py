"""`mo_ccpr_log`: one row a subscription, its lease, and the guarded commit (requirements N1, O3, O4, O5, B10).

Names and numeric codes are MatrixOne's (spec/native-behaviour.md, sections 1 and 2); what stands behind `drop_at` is ours. The view
`mo_sync_configs` shows what is not dropped. Which state may follow which is data in `replication.states`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from matrixone.errors import CcprError, Terminal
from matrixone.schema import integer_of
from replication.context import Context
from replication.database import LONG_TEXT, METADATA, TABLE_OPTIONS, UTC_TIME, alone, fetch, repeatable, transaction
from replication.errors import (
    CommitOutcomeUnknown,
    LeaseLost,
    StateUnavailable,
    StateUnreadable,
    SubscriptionBusy,
    SubscriptionExists,
    SubscriptionMissing,
)
from replication.states import Event, IterationState, Pair, State, after

__all__ = ["CcprLog", "Claim", "Failures", "IterationState", "LogRow", "State", "mo_ccpr_log"]

mo_ccpr_log = sa.Table(
    "mo_ccpr_log",
    METADATA,
    sa.Column("task_id", sa.String(36), primary_key=True),
    sa.Column("subscription_name", sa.String(60), nullable=False),
    sa.Column("subscription_account_name", sa.String(300), nullable=False),  # the publisher
    sa.Column("sync_level", sa.String(16), nullable=False),
    sa.Column("account_id", sa.BigInteger, nullable=False),  # the publisher's, as looked up
    sa.Column("db_name", LONG_TEXT, nullable=False),
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("upstream_conn", LONG_TEXT, nullable=False),
    sa.Column("sync_config", LONG_TEXT, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("iteration_state", sa.SmallInteger, nullable=False),
    sa.Column("iteration_lsn", sa.BigInteger, nullable=False),
    sa.Column("watermark", sa.BigInteger, nullable=False),
    sa.Column("context", LONG_TEXT),
    sa.Column("cn_uuid", sa.String(64)),
    sa.Column("error_message", LONG_TEXT),
    sa.Column("created_at", UTC_TIME, nullable=False),
    sa.Column("drop_at", UTC_TIME),
    sa.Column("updated_at", UTC_TIME, nullable=False),
    sa.Column("publication_name", sa.String(64), nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("lease_expires_at", sa.BigInteger, nullable=False),  # milliseconds since 1970; 0 = free
    sa.Column("live_name", sa.String(60)),  # the name, null once it was dropped: so it is free again
    sa.UniqueConstraint("live_name", name="ccpr_live_name"),
    **TABLE_OPTIONS,
)
_READ = tuple(column for column in mo_ccpr_log.columns if column.name != "live_name")
_NUMBERS = ("account_id", "state", "iteration_state", "iteration_lsn", "watermark", "fence", "lease_expires_at")
_MOST_MESSAGE = 5000


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row as read; see MatrixOne's table for the columns. Times are UTC; `watermark` is the upstream's clock in nanoseconds, 0 = none."""

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
class Claim:
    """The right to run one subscription's iteration `lsn`, as long as nobody has raised the fence."""

    task_id: str
    name: str
    owner: str
    fence: int
    lsn: int


class CcprLog:
    """The table and its rules.

    Parameters
    ----------
    clock : seconds since 1970; a parameter so that tests can move it.
    """

    def __init__(self, engine: sa.Engine, clock: Callable[[], float] = time.time) -> None:
        self.engine = engine
        self._clock = clock

    def insert(self, row: LogRow, check: Callable[[list[LogRow]], None] | None = None) -> None:
        """A new subscription. `check` sees the others, of which none can be added meanwhile, and may raise. Raises SubscriptionExists."""
        values = {column.name: getattr(row, column.name) for column in _READ}
        try:
            with alone(self.engine, "subscriptions") as connection:
                if check is not None:
                    check(_rows(connection))
                live_name = None if row.state == State.DROPPED else row.subscription_name
                connection.execute(mo_ccpr_log.insert().values(live_name=live_name, **values))
        except IntegrityError as error:
            raise SubscriptionExists("there is a subscription of that name", subject=f"subscription {row.subscription_name}") from error

    @repeatable
    def rows(self) -> list[LogRow]:
        """Those that are not dropped, by name."""
        with transaction(self.engine) as connection:
            return _rows(connection)

    @repeatable
    def row(self, name: str) -> LogRow:
        """Raises SubscriptionMissing."""
        with transaction(self.engine) as connection:
            found = _one(connection, mo_ccpr_log.c.live_name == name)
        if found is None:
            raise SubscriptionMissing("there is no subscription of that name", subject=f"subscription {name}")
        return found

    @repeatable
    def dropped_row(self, name: str) -> LogRow | None:
        """The latest of those of this name that were dropped."""
        where = (mo_ccpr_log.c.subscription_name == name, mo_ccpr_log.c.state == State.DROPPED)
        with transaction(self.engine) as connection:
            found = fetch(connection, sa.select(*_READ).where(*where).order_by(mo_ccpr_log.c.drop_at.desc()).limit(1))
        return _row(found[0]) if found else None

    # ---- the lease

    @repeatable
    def claim(self, name: str, owner: str, ttl_seconds: float, is_dead: Callable[[str], bool]) -> Claim:
        """Become the owner. Raises SubscriptionBusy while another living executor is, SubscriptionPaused, SubscriptionMissing.

        An iteration that a dead executor left pending or running is set to complete (O4): it is run again from its recorded snapshot, which
        gives the same result. To claim what one holds already gives a new claim, so a repetition does no harm.
        """
        with transaction(self.engine) as connection:
            row = _one(connection, mo_ccpr_log.c.live_name == name, lock=True)
            if row is None:
                raise SubscriptionMissing("there is no subscription of that name", subject=f"subscription {name}")
            pair = after(Event.CLAIM, row.pair, name)
            now = self._now()
            if row.cn_uuid not in (None, owner) and row.lease_expires_at > now and not is_dead(row.cn_uuid):
                seconds = (row.lease_expires_at - now) / 1000
                raise SubscriptionBusy(
                    f"another executor ({row.cn_uuid}) is running it; its lease ends in {seconds:.0f} s unless it is renewed",
                    subject=f"subscription {name}",
                )
            values = {
                "cn_uuid": owner,
                "fence": row.fence + 1,
                "lease_expires_at": now + round(ttl_seconds * 1000),
                "state": pair.state,
                "iteration_state": pair.iteration,
            }
            same = (mo_ccpr_log.c.fence == row.fence, mo_ccpr_log.c.iteration_lsn == row.iteration_lsn)
            taken = connection.execute(mo_ccpr_log.update().where(mo_ccpr_log.c.task_id == row.task_id, *same).values(values))
            if taken.rowcount != 1:
                raise SubscriptionBusy("another executor was faster", subject=f"subscription {name}")
        return Claim(row.task_id, name, owner, row.fence + 1, row.iteration_lsn)

    def is_held(self, row: LogRow) -> bool:
        """Has the lease not run out? Its owner may be dead all the same."""
        return row.lease_expires_at > self._now()

    def renew(self, claim: Claim, ttl_seconds: float) -> bool:
        """False if the claim has been taken over, or ended by a pause or a drop."""
        with transaction(self.engine) as connection:
            query = mo_ccpr_log.update().where(*_held(claim)).values(lease_expires_at=self._now() + round(ttl_seconds * 1000))
            return connection.execute(query).rowcount == 1

    @repeatable
    def release(self, claim: Claim) -> None:
        """Free the lease; nothing happens if it is somebody else's by now."""
        with transaction(self.engine) as connection:
            connection.execute(mo_ccpr_log.update().where(*_held(claim)).values(lease_expires_at=0))

    # ---- the iteration

    def start(self, claim: Claim, context: Context) -> None:
        """The iteration runs; its snapshot's name is recorded. State error is over."""
        self._change(claim, {"context": context.to_text()}, Event.START)

    def remember(self, claim: Claim, context: Context) -> None:
        """A changed context within the iteration, or after it."""
        self._change(claim, {"context": context.to_text()})

    def commit_row(self, connection: sa.Connection, claim: Claim, context: Context, watermark: int) -> None:
        """The iteration's outcome, in the transaction that writes the points (O5): one UPDATE that names what the owner believes.

        Raises LeaseLost unless exactly our row is there, which must roll the whole transaction back. If the database is lost before the
        transaction's end is answered, `has_committed` tells (B10).
        """
        values = {
            "state": State.RUNNING,
            "iteration_state": after(Event.COMMIT, Pair(State.RUNNING, IterationState.RUNNING), claim.name).iteration,
            "iteration_lsn": claim.lsn + 1,
            "watermark": watermark,
            "context": context.to_text(),
            "error_message": None,
        }
        running = (
            mo_ccpr_log.c.iteration_lsn == claim.lsn,
            mo_ccpr_log.c.state == State.RUNNING,
            mo_ccpr_log.c.iteration_state == IterationState.RUNNING,
        )
        changed = connection.execute(mo_ccpr_log.update().where(*_held(claim), *running).values(self._stamped(values)))
        if changed.rowcount != 1:
            raise _lost(_one(connection, mo_ccpr_log.c.task_id == claim.task_id), claim)

    def has_committed(self, claim: Claim, lost: StateUnavailable) -> bool:
        """Whether a commit whose answer was lost has happened. The row is locked to read it, so a commit that is still under way has ended.

        Raises LeaseLost if another has taken over meanwhile, CommitOutcomeUnknown if the database does not come back.
        """
        try:
            row = self._settled(claim)
        except StateUnavailable as error:
            raise CommitOutcomeUnknown(
                f"the connection was lost during the commit ({lost.message})", subject=f"subscription {claim.name}, lsn {claim.lsn}"
            ) from error
        if row is None or row.fence != claim.fence:
            raise _lost(row, claim)
        return row.iteration_lsn == claim.lsn + 1

    @repeatable
    def _settled(self, claim: Claim) -> LogRow | None:
        with transaction(self.engine) as connection:
            return _one(connection, mo_ccpr_log.c.task_id == claim.task_id, lock=True)

    def fail(self, claim: Claim, context: Context, error: CcprError) -> None:
        """Write down a failure: `R:<count>:<first>:<last>:<text>` if trying again may help or finds out what happened, else
        `N:<first>:<text>` and state error.
        """
        now = round(self._clock())
        if isinstance(error, Terminal):
            message, event = f"N:{now}:{error}", Event.FAIL
        else:
            before = Failures.of(self._message(claim))
            count, first = (before.count, before.first) if before else (0, now)
            message, event = f"R:{count + 1}:{first}:{now}:{error}", Event.RETRY
        self._change(claim, {"error_message": message[:_MOST_MESSAGE], "context": context.to_text()}, event)

    @repeatable
    def _message(self, claim: Claim) -> str | None:
        with transaction(self.engine) as connection:
            row = _one(connection, mo_ccpr_log.c.task_id == claim.task_id)
        return None if row is None else row.error_message

    @repeatable
    def _change(self, claim: Claim, values: dict[str, Any], event: Event | None = None) -> None:
        """Write what the owner says; with an event, as a step of the open iteration. Twice is as once."""
        with transaction(self.engine) as connection:
            row = _one(connection, mo_ccpr_log.c.task_id == claim.task_id, lock=True)
            if row is None or (row.cn_uuid, row.fence) != (claim.owner, claim.fence):
                raise _lost(row, claim)
            if event is not None:
                if row.iteration_lsn != claim.lsn:
                    raise LeaseLost("the iteration has been committed", subject=f"subscription {claim.name}, lsn {claim.lsn}")
                pair = after(event, row.pair, claim.name)
                values = {**values, "state": pair.state, "iteration_state": pair.iteration}
            changed = connection.execute(mo_ccpr_log.update().where(*_held(claim)).values(self._stamped(values)))
            if changed.rowcount != 1:
                raise _lost(row, claim)

    # ---- what a person does

    def pause(self, name: str) -> LogRow:
        """No iteration begins, and the one that runs cannot commit: the fence is raised. What is paused stays so."""
        return self._administer(name, Event.PAUSE, lambda row: _ended(row))

    def resume(self, name: str) -> LogRow:
        """It may run again, from its checkpoint and recorded snapshot; an error is cleared."""
        return self._administer(name, Event.RESUME, lambda row: {"error_message": None})

    def alter(self, row: LogRow, values: dict[str, Any], *, reroute: bool) -> LogRow:
        """Change a row's configuration as `row` showed it. With `reroute`, what runs at the former upstream cannot commit any more.

        Raises SubscriptionBusy if somebody else has changed it since.
        """

        def change(now: LogRow) -> dict[str, Any]:
            if (now.task_id, now.sync_config, now.upstream_conn, now.publication_name) != (
                row.task_id,
                row.sync_config,
                row.upstream_conn,
                row.publication_name,
            ):
                raise SubscriptionBusy(
                    "it was altered by somebody else meanwhile", subject=f"subscription {row.subscription_name}", remedy="Alter it again."
                )
            return {**values, **_ended(now)} if reroute else values

        return self._administer(row.subscription_name, Event.REROUTE if reroute else None, change, repeat=False)

    def drop(self, name: str) -> LogRow:
        """It is no subscription any more, its name is free. What it has recorded upstream is to be dropped; lsn and watermark stay."""

        def change(row: LogRow) -> dict[str, Any]:
            context = Context.from_text(row.context).released().to_text()
            return {**_ended(row), "live_name": None, "drop_at": self._utc(), "context": context}

        return self._administer(name, Event.DROP, change, repeat=False)

    @repeatable
    def settle_dropped(self, task_id: str, values: dict[str, Any]) -> None:
        """What is left of a dropped subscription: `context`, `upstream_conn`."""
        with transaction(self.engine) as connection:
            where = (mo_ccpr_log.c.task_id == task_id, mo_ccpr_log.c.state == State.DROPPED)
            connection.execute(mo_ccpr_log.update().where(*where).values(self._stamped(values)))

    def _administer(self, name: str, event: Event | None, change: Callable[[LogRow], dict[str, Any]], *, repeat: bool = True) -> LogRow:
        """`repeat`: the same again does no harm."""
        write = repeatable(self._write) if repeat else self._write
        return write(name, event, change)

    def _write(self, name: str, event: Event | None, change: Callable[[LogRow], dict[str, Any]]) -> LogRow:
        with transaction(self.engine) as connection:
            row = _one(connection, mo_ccpr_log.c.live_name == name, lock=True)
            if row is None:
                raise SubscriptionMissing("there is no subscription of that name", subject=f"subscription {name}")
            pair = row.pair if event is None else after(event, row.pair, name)
            values = {**change(row), "state": pair.state, "iteration_state": pair.iteration}
            connection.execute(mo_ccpr_log.update().where(mo_ccpr_log.c.task_id == row.task_id).values(self._stamped(values)))
            written = _one(connection, mo_ccpr_log.c.task_id == row.task_id)
        assert written is not None
        return written

    def _stamped(self, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "updated_at": self._utc()}

    def _utc(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC).replace(tzinfo=None)

    def _now(self) -> int:
        return round(self._clock() * 1000)


def _held(claim: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    return (mo_ccpr_log.c.task_id == claim.task_id, mo_ccpr_log.c.cn_uuid == claim.owner, mo_ccpr_log.c.fence == claim.fence)


def _ended(row: LogRow) -> dict[str, Any]:
    """Whoever owns the row owns it no more."""
    return {"fence": row.fence + 1, "lease_expires_at": 0, "cn_uuid": None}


def _lost(row: LogRow | None, claim: Claim) -> LeaseLost:
    subject = f"subscription {claim.name}, lsn {claim.lsn}"
    state = State.DROPPED if row is None else State(row.state)
    if state is State.DROPPED:
        return LeaseLost("the subscription was dropped meanwhile", subject=subject, remedy="Nothing is left to do.")
    if state is State.PAUSED:
        remedy = f"`ccpr resume {claim.name}`: the iteration goes on where it stopped."
        return LeaseLost("the subscription was paused meanwhile", subject=subject, remedy=remedy)
    if row is not None and row.cn_uuid is None:
        return LeaseLost("the subscription's upstream was altered meanwhile", subject=subject)
    return LeaseLost("the row is no longer ours: another executor has taken over", subject=subject)


def _rows(connection: sa.Connection) -> list[LogRow]:
    query = sa.select(*_READ).where(mo_ccpr_log.c.live_name.is_not(None)).order_by(mo_ccpr_log.c.live_name)
    return [_row(row) for row in fetch(connection, query)]


def _one(connection: sa.Connection, where: sa.ColumnElement[bool], *, lock: bool = False) -> LogRow | None:
    """With `lock`, nobody else writes the row until the transaction ends (SQLite's whole transactions are so)."""
    query = sa.select(*_READ).where(where)
    found = fetch(connection, query.with_for_update() if lock else query)
    return _row(found[0]) if found else None


def _row(row: sa.Row) -> LogRow:
    """Raises StateUnreadable for what was not written here."""
    values = row._mapping
    try:
        for name in _NUMBERS:
            integer_of(values[name])
        Pair(State(values["state"]), IterationState(values["iteration_state"]))
    except (TypeError, ValueError) as error:
        subject = f"mo_ccpr_log, task {values['task_id']}"
        raise StateUnreadable(f"a row cannot be read: {error}", subject=subject, remedy="Restore the catalog database.") from error
    return LogRow(**values)
