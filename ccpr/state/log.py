"""`mo_ccpr_log`: one row for each subscription, its lease, the guarded commit, and what else is recorded of it.

The rows as values are in `ccpr.state.log_rows`. Which state may follow which is data in
`ccpr.state.states`. Source: docs/requirements.md N1, O3, O4, O5, B10; decision guarded-commit.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ccpr.base.clock import Clock, utc_now, wall_clock
from ccpr.matrixone.errors import CcprError
from ccpr.state.care_records import CopyRecords, DrillRecords, RowSumRecords, ScrubRecords
from ccpr.state.context import Context
from ccpr.state.database import exclusive, reading, repeatable, transaction, unless_taken
from ccpr.state.errors import (
    CommitOutcomeUnknown,
    LeaseLost,
    StateUnavailable,
    StateUnreadable,
    SubscriptionBusy,
    SubscriptionExists,
)
from ccpr.state.followers import FollowerRecords
from ccpr.state.history import PointHistory
from ccpr.state.kept_records import KeptRecords
from ccpr.state.log_rows import (
    BadRow,
    Claim,
    Failures,
    LogRow,
    lost,
    missing,
    read_latest_dropped,
    read_row,
    read_rows,
    values_of,
    write_held,
)
from ccpr.state.pins import Pins
from ccpr.state.quarantine import Quarantine
from ccpr.state.states import Event, IterationState, Pair, State, after
from ccpr.state.tables import mo_ccpr_log
from ccpr.state.targets import TargetRecords

if TYPE_CHECKING:  # it imports Arrow
    from ccpr.state.ledger import Ledger

_LONGEST_MESSAGE = 5000  # characters of `error_message`


class SubscriptionRecords:
    """All that the catalog database has of one subscription, by kind. Threads may share it."""

    def __init__(self, engine: sa.Engine, task_id: str) -> None:
        self.engine, self.task_id = engine, task_id
        self.history = PointHistory(engine, task_id)
        self.quarantine = Quarantine(engine, task_id)
        self.row_sums = RowSumRecords(engine, task_id)
        self.targets = TargetRecords(engine, task_id)
        self.followers = FollowerRecords(engine, task_id)
        self.pins = Pins(engine, task_id)
        self.kept = KeptRecords(engine, task_id)
        self.copies = CopyRecords(engine, task_id)
        self.scrubs = ScrubRecords(engine, task_id)
        self.drills = DrillRecords(engine, task_id)

    @cached_property
    def ledger(self) -> "Ledger":
        from ccpr.state.ledger import Ledger

        return Ledger(self.engine, self.task_id)


class CcprLog:
    """Reads and writes `mo_ccpr_log`. `clock`: seconds since 1970; a parameter so that tests can set it."""

    def __init__(self, engine: sa.Engine, clock: Clock = wall_clock) -> None:
        self.engine = engine
        self._clock = clock

    def of(self, task_id: str) -> SubscriptionRecords:
        """What else is recorded of a subscription."""
        return SubscriptionRecords(self.engine, task_id)

    def insert(self, row: LogRow, check: Callable[[list[LogRow]], None] | None = None) -> None:
        """Add a subscription. `check` is called with the rows of the others and may raise; none can be added meanwhile.

        Raises SubscriptionExists.
        """
        subject = f"subscription {row.subscription_name}"
        taken = SubscriptionExists("there is a subscription of that name", subject=subject)
        with unless_taken(taken), exclusive(self.engine, "subscriptions") as connection:
            if check is not None:
                check(read_rows(connection)[0])
            live_name = None if row.state == State.DROPPED else row.subscription_name
            connection.execute(mo_ccpr_log.insert().values(live_name=live_name, **values_of(row)))

    def rows(self) -> list[LogRow]:
        """The subscriptions that are not dropped and can be read, by name."""
        return self.all_rows()[0]

    @repeatable
    def all_rows(self) -> tuple[list[LogRow], list[BadRow]]:
        """The subscriptions that are not dropped, by name: those that can be read, and those that cannot."""
        with reading(self.engine) as connection:
            return read_rows(connection)

    @repeatable
    def row(self, name: str) -> LogRow:
        """Raises SubscriptionMissing."""
        with reading(self.engine) as connection:
            found = read_row(connection, name=name)
            if found is None:
                raise missing(connection, name)
        return found

    @repeatable
    def dropped_row(self, name: str) -> LogRow | None:
        """The subscription of this name that was dropped last."""
        with reading(self.engine) as connection:
            return read_latest_dropped(connection, name)

    # ---- the lease

    @repeatable
    def claim(
        self,
        name: str,
        owner: str,
        ttl_seconds: float,
        is_dead: Callable[[str], bool],
        *,
        task_id: str | None = None,
        known: LogRow | None = None,
    ) -> Claim:
        """Become the owner. With `task_id`, only of that subscription and of no later one of its name. With `known`,
        the row by which an iteration is due, only if no iteration has ended since: another executor did it then, and
        the row says when the next one is due (decision service-keeps-nothing).

        An iteration that a dead executor left pending or running is set to complete (O4): it is run again from its
        recorded snapshot, which gives the same result. The owner may claim again and gets a new claim, so repeating
        this is safe.

        Raises SubscriptionBusy while a living executor other than this one is the owner, SubscriptionPaused,
        SubscriptionMissing.
        """
        with transaction(self.engine) as connection:
            row = read_row(connection, name=name, lock=True)
            if row is None or task_id not in (None, row.task_id):
                raise missing(connection, name)
            if known is not None and (row.iteration_lsn, row.error_message) != (
                known.iteration_lsn,
                known.error_message,
            ):
                raise SubscriptionBusy("an iteration of it has ended meanwhile", subject=f"subscription {name}")
            pair = after(Event.CLAIM, row.pair, name)
            now = self._now()
            if row.cn_uuid not in (None, owner) and row.is_held(self._clock()) and not is_dead(row.cn_uuid):
                seconds = (row.lease_expires_at - now) / 1000
                raise SubscriptionBusy(
                    f"another executor ({row.cn_uuid}) is running it; its lease ends in {seconds:.0f} s if not renewed",
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
            taken = connection.execute(
                mo_ccpr_log.update().where(mo_ccpr_log.c.task_id == row.task_id, *same).values(values)
            )
            if taken.rowcount != 1:
                raise SubscriptionBusy("another executor was faster", subject=f"subscription {name}")
        return Claim(row.task_id, name, owner, row.fence + 1, row.iteration_lsn, replace(row, **values))

    def is_held(self, row: LogRow) -> bool:
        """See `LogRow.is_held`."""
        return row.is_held(self._clock())

    def renew(self, claim: Claim, ttl_seconds: float) -> bool:
        """False if the claim has been taken over, or ended by a pause or a drop."""
        with transaction(self.engine) as connection:
            return write_held(connection, claim, {"lease_expires_at": self._now() + round(ttl_seconds * 1000)})

    @repeatable
    def release(self, claim: Claim) -> LogRow | None:
        """Free the lease. Nothing happens if another executor has it by now. Returns the row as it is afterwards, None
        if it cannot be read."""
        with transaction(self.engine) as connection:
            write_held(connection, claim, {"lease_expires_at": 0})
            with suppress(StateUnreadable):
                return read_row(connection, task_id=claim.task_id)
        return None

    # ---- the iteration

    def start(self, claim: Claim, context: Context) -> None:
        """The iteration begins to run. Records the name of its snapshot and ends state error."""
        self._change(claim, {"context": context.to_text()}, Event.START)

    def remember(self, claim: Claim, context: Context, ttl_seconds: float | None = None) -> None:
        """Store a changed context, during the iteration or after it. With `ttl_seconds` the lease is renewed, too."""
        renewed = {} if ttl_seconds is None else {"lease_expires_at": self._now() + round(ttl_seconds * 1000)}
        self._change(claim, {"context": context.to_text(), **renewed})

    def commit_row(self, connection: sa.Connection, claim: Claim, context: Context, watermark: int) -> None:
        """Write the iteration's outcome, in the transaction that writes the points (O5). One UPDATE whose WHERE names
        everything that the owner believes.

        Raises LeaseLost unless that changes exactly one row; the caller must then roll back the whole transaction. If
        the connection is lost before COMMIT is answered, `has_committed` finds out what happened (B10).
        """
        values = {
            "state": State.RUNNING,
            "iteration_state": after(Event.COMMIT, Pair(State.RUNNING, IterationState.RUNNING), claim.name).iteration,
            "iteration_lsn": claim.lsn + 1,
            "watermark": watermark,
            "context": context.to_text(),
            "error_message": None,
        }
        running = {"iteration_lsn": claim.lsn, "state": State.RUNNING, "iteration_state": IterationState.RUNNING}
        if not write_held(connection, claim, self._stamped(values), also=running):
            raise lost(read_row(connection, task_id=claim.task_id), claim)

    def has_committed(self, claim: Claim, cause: StateUnavailable) -> bool:
        """Whether a commit whose answer was lost has happened. Reads the row under a lock, which waits until a commit
        that is still under way has ended.

        Raises LeaseLost if another executor has taken over meanwhile, CommitOutcomeUnknown if the database does not
        come back.
        """
        try:
            row = self._locked_row(claim)
        except StateUnavailable as error:
            raise CommitOutcomeUnknown(
                f"the connection was lost during the commit ({cause.message})",
                subject=f"subscription {claim.name}, iteration {claim.lsn}",
            ) from error
        if row is None or row.fence != claim.fence:
            raise lost(row, claim)
        return row.iteration_lsn == claim.lsn + 1

    @repeatable
    def _locked_row(self, claim: Claim) -> LogRow | None:
        with transaction(self.engine) as connection:
            return read_row(connection, task_id=claim.task_id, lock=True)

    def fail(self, claim: Claim, context: Context, error: CcprError, *, ends: bool, is_extra: bool = False) -> None:
        """Store a failure in `error_message`.

        `R:<count>:<first>:<last>:<text>` if it is tried again; else, if it `ends` the subscription,
        `N:<first>:<text>` and state error. An attempt that `is_extra` after another failure does not count: the wait
        stays as it was.
        """
        now = round(self._clock())
        if ends:
            message, event = f"N:{now}:{error}", Event.FAIL
        else:
            before = Failures.of(self._message(claim))
            count, first, last = (before.count, before.first, before.last) if before else (0, now, now)
            if not (before and is_extra):
                count, last = count + 1, now
            message, event = f"R:{count}:{first}:{last}:{error}", Event.RETRY
        self._change(claim, {"error_message": message[:_LONGEST_MESSAGE], "context": context.to_text()}, event)

    @repeatable
    def _message(self, claim: Claim) -> str | None:
        with reading(self.engine) as connection:
            row = read_row(connection, task_id=claim.task_id)
        return None if row is None else row.error_message

    @repeatable
    def _change(self, claim: Claim, values: dict[str, Any], event: Event | None = None) -> None:
        """Write values as the owner of the row; with an event, as a step of the open iteration. Safe to repeat."""
        with transaction(self.engine) as connection:
            row = read_row(connection, task_id=claim.task_id, lock=True)
            if row is None or (row.cn_uuid, row.fence) != (claim.owner, claim.fence):
                raise lost(row, claim)
            if event is not None:
                if row.iteration_lsn != claim.lsn:
                    raise LeaseLost(
                        "the iteration has been committed", subject=f"subscription {claim.name}, iteration {claim.lsn}"
                    )
                pair = after(event, row.pair, claim.name)
                values = {**values, "state": pair.state, "iteration_state": pair.iteration}
            if not write_held(connection, claim, self._stamped(values)):
                raise lost(row, claim)

    def overwrite(self, claim: Claim, values: dict[str, Any], also: Callable[[sa.Connection], None]) -> None:
        """Write values as the owner of the row, and what else belongs to them, in one transaction. Raises LeaseLost."""
        with transaction(self.engine) as connection:
            if not write_held(connection, claim, self._stamped(values)):
                raise lost(read_row(connection, task_id=claim.task_id), claim)
            also(connection)

    # ---- administration

    def pause(self, name: str) -> LogRow:
        """No iteration begins any more. The one that runs cannot commit, because the fence is raised."""
        return repeatable(self._write)(name, Event.PAUSE, _without_owner)

    def resume(self, name: str) -> LogRow:
        """The subscription may run again, from its checkpoint and recorded snapshot. Clears an error."""
        return repeatable(self._write)(name, Event.RESUME, lambda row: {"error_message": None})

    def alter(self, row: LogRow, values: dict[str, Any], *, reroute: bool) -> LogRow:
        """Change the configuration of a subscription. With `reroute`, an iteration that runs against the
        former upstream cannot commit any more.

        Raises SubscriptionBusy if the configuration is no longer the one that `row` shows.
        """

        def change(now: LogRow) -> dict[str, Any]:
            if (now.task_id, now.sync_config, now.upstream_conn, now.publication_name) != (
                row.task_id,
                row.sync_config,
                row.upstream_conn,
                row.publication_name,
            ):
                raise SubscriptionBusy(
                    "another process altered it meanwhile",
                    subject=f"subscription {row.subscription_name}",
                    remedy="Alter it again.",
                )
            return {**values, **_without_owner(now)} if reroute else values

        return self._write(row.subscription_name, Event.REROUTE if reroute else None, change)

    def drop(self, name: str, also: Callable[[sa.Connection, LogRow], None] = lambda *_: None) -> LogRow:
        """End a subscription and free its name. Its recorded snapshots are to be dropped upstream; lsn and watermark
        stay in the row. `also` is called in the same transaction, and may raise: then nothing is written."""

        def change(row: LogRow) -> dict[str, Any]:
            context = Context.from_text(row.context).released().to_text()
            return {**_without_owner(row), "live_name": None, "drop_at": self._utc(), "context": context}

        return self._write(name, Event.DROP, change, also)

    def forget(self, name: str) -> LogRow:
        """Drop a subscription whose row cannot be read: every value that could be wrong is overwritten.

        Raises SubscriptionMissing.
        """
        with transaction(self.engine) as connection:
            row = connection.execute(
                sa.select(mo_ccpr_log.c.task_id, mo_ccpr_log.c.context).where(mo_ccpr_log.c.live_name == name)
            ).first()
            if row is None:
                raise missing(connection, name)
            try:
                context = Context.from_text(row.context).released()
            except StateUnreadable:
                context = Context()
            values = {
                **dict.fromkeys(("account_id", "iteration_lsn", "watermark", "lease_expires_at"), 0),
                **dict.fromkeys(("live_name", "cn_uuid")),
                **dict.fromkeys(("created_at", "drop_at"), self._utc()),
                "state": State.DROPPED,
                "iteration_state": IterationState.CANCEL,
                "fence": sa.cast(mo_ccpr_log.c.fence, sa.BigInteger) + 1,
                "context": context.to_text(),
            }
            where = mo_ccpr_log.c.task_id == row.task_id
            connection.execute(mo_ccpr_log.update().where(where).values(self._stamped(values)))
            written = read_row(connection, task_id=row.task_id)
        assert written is not None
        return written

    @repeatable
    def clear_dropped(self, task_id: str, values: dict[str, Any]) -> None:
        """Write what is left of a dropped subscription: `context`, `upstream_conn`."""
        with transaction(self.engine) as connection:
            where = (mo_ccpr_log.c.task_id == task_id, mo_ccpr_log.c.state == State.DROPPED)
            connection.execute(mo_ccpr_log.update().where(*where).values(self._stamped(values)))

    def _write(
        self,
        name: str,
        event: Event | None,
        change: Callable[[LogRow], dict[str, Any]],
        also: Callable[[sa.Connection, LogRow], None] = lambda *_: None,
    ) -> LogRow:
        with transaction(self.engine) as connection:
            row = read_row(connection, name=name, lock=True)
            if row is None:
                raise missing(connection, name)
            also(connection, row)
            pair = row.pair if event is None else after(event, row.pair, name)
            values = {**change(row), "state": pair.state, "iteration_state": pair.iteration}
            connection.execute(
                mo_ccpr_log.update().where(mo_ccpr_log.c.task_id == row.task_id).values(self._stamped(values))
            )
            written = read_row(connection, task_id=row.task_id)
        assert written is not None
        return written

    def _stamped(self, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "updated_at": self._utc()}

    def _utc(self) -> datetime:
        return utc_now(self._clock)

    def _now(self) -> int:
        return round(self._clock() * 1000)


def _without_owner(row: LogRow) -> dict[str, Any]:
    """The raised fence ends the owner's claim."""
    return {"fence": row.fence + 1, "lease_expires_at": 0, "cn_uuid": None}
