"""`mo_ccpr_log`: one row a subscription, its lease, and the guarded commit (requirements N1, O3, O4, O5).

Names and numeric codes are MatrixOne's (spec/native-behaviour.md, sections 1 and 2); `publication_name`, `fence`, `lease_expires_at` and
`updated_at` are ours.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from matrixone.errors import CcprError, Terminal
from replication.context import Context
from replication.database import LONG_TEXT, METADATA, transaction
from replication.errors import LeaseLost, SubscriptionBusy, SubscriptionExists, SubscriptionMissing

mo_ccpr_log = sa.Table(
    "mo_ccpr_log",
    METADATA,
    sa.Column("task_id", sa.String(36), primary_key=True),
    sa.Column("subscription_name", sa.String(60), nullable=False, unique=True),
    sa.Column("subscription_account_name", sa.String(300), nullable=False),  # the publisher
    sa.Column("sync_level", sa.String(16), nullable=False),
    sa.Column("account_id", sa.BigInteger, nullable=False),  # the publisher's, as looked up
    sa.Column("db_name", sa.String(5000), nullable=False),
    sa.Column("table_name", sa.String(5000), nullable=False),
    sa.Column("upstream_conn", sa.String(5000), nullable=False),
    sa.Column("sync_config", LONG_TEXT, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("iteration_state", sa.SmallInteger, nullable=False),
    sa.Column("iteration_lsn", sa.BigInteger, nullable=False),
    sa.Column("watermark", sa.BigInteger, nullable=False),
    sa.Column("context", LONG_TEXT),
    sa.Column("cn_uuid", sa.String(64)),
    sa.Column("error_message", sa.String(5000)),
    sa.Column("created_at", sa.DateTime, nullable=False),
    sa.Column("drop_at", sa.DateTime),
    sa.Column("updated_at", sa.DateTime, nullable=False),
    sa.Column("publication_name", sa.String(64), nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("lease_expires_at", sa.BigInteger, nullable=False),  # milliseconds since 1970; 0 = free
)


class State(IntEnum):
    RUNNING = 0
    ERROR = 1
    PAUSED = 2
    DROPPED = 3


class IterationState(IntEnum):
    PENDING = 0
    RUNNING = 1
    COMPLETE = 2
    ERROR = 3
    CANCEL = 4


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

    def insert(self, row: LogRow) -> None:
        """A new subscription. Raises SubscriptionExists."""
        try:
            with transaction(self.engine) as connection:
                connection.execute(mo_ccpr_log.insert().values({column.name: getattr(row, column.name) for column in mo_ccpr_log.columns}))
        except IntegrityError as error:
            raise SubscriptionExists("there is a subscription of that name", subject=f"subscription {row.subscription_name}") from error

    def rows(self) -> list[LogRow]:
        with transaction(self.engine) as connection:
            query = sa.select(mo_ccpr_log).where(mo_ccpr_log.c.state != State.DROPPED).order_by(mo_ccpr_log.c.subscription_name)
            return [LogRow(**row._mapping) for row in connection.execute(query)]

    def row(self, name: str) -> LogRow:
        """Raises SubscriptionMissing."""
        with transaction(self.engine) as connection:
            query = sa.select(mo_ccpr_log).where(mo_ccpr_log.c.subscription_name == name, mo_ccpr_log.c.state != State.DROPPED)
            found = connection.execute(query).one_or_none()
        if found is None:
            raise SubscriptionMissing("there is no subscription of that name", subject=f"subscription {name}")
        return LogRow(**found._mapping)

    # ---- the lease

    def claim(self, name: str, owner: str, ttl_seconds: float, is_dead: Callable[[str], bool]) -> Claim:
        """Become the owner. Raises SubscriptionBusy while another living executor is.

        An iteration that a dead executor left pending or running is set to complete (O4): it is run again from its recorded snapshot, which
        gives the same result.
        """
        row = self.row(name)
        now = self._now()
        if row.cn_uuid not in (None, owner) and row.lease_expires_at > now and not is_dead(row.cn_uuid):
            seconds = (row.lease_expires_at - now) / 1000
            raise SubscriptionBusy(
                f"another executor ({row.cn_uuid}) is running it; its lease ends in {seconds:.0f} s unless it is renewed",
                subject=f"subscription {name}",
            )
        left = row.iteration_state in (IterationState.PENDING, IterationState.RUNNING)
        values = {
            "cn_uuid": owner,
            "fence": row.fence + 1,
            "lease_expires_at": now + round(ttl_seconds * 1000),
            "iteration_state": IterationState.COMPLETE if left else row.iteration_state,
        }
        with transaction(self.engine) as connection:
            taken = connection.execute(
                mo_ccpr_log.update()
                .where(
                    mo_ccpr_log.c.task_id == row.task_id,
                    mo_ccpr_log.c.fence == row.fence,
                    mo_ccpr_log.c.iteration_lsn == row.iteration_lsn,
                    mo_ccpr_log.c.state != State.DROPPED,
                )
                .values(values)
            )
        if taken.rowcount != 1:
            raise SubscriptionBusy("another executor was faster", subject=f"subscription {name}")
        return Claim(row.task_id, name, owner, row.fence + 1, row.iteration_lsn)

    def is_held(self, row: LogRow) -> bool:
        """Has the lease not run out? Its owner may be dead all the same."""
        return row.lease_expires_at > self._now()

    def renew(self, claim: Claim, ttl_seconds: float) -> bool:
        """False if the claim has been taken over."""
        with transaction(self.engine) as connection:
            query = mo_ccpr_log.update().where(*_held(claim)).values(lease_expires_at=self._now() + round(ttl_seconds * 1000))
            return connection.execute(query).rowcount == 1

    def release(self, claim: Claim) -> None:
        """Free the lease; nothing happens if it is somebody else's by now."""
        with transaction(self.engine) as connection:
            connection.execute(mo_ccpr_log.update().where(*_held(claim)).values(lease_expires_at=0))

    # ---- the iteration

    def start(self, claim: Claim, context: Context) -> None:
        """The iteration runs; its snapshot's name is recorded. State error is over; a paused subscription stays paused, whoever runs it."""
        state = sa.case((mo_ccpr_log.c.state == State.ERROR, State.RUNNING), else_=mo_ccpr_log.c.state)
        self._guarded(claim, {"state": state, "iteration_state": IterationState.RUNNING, "context": context.to_text()})

    def remember(self, claim: Claim, context: Context) -> None:
        """A changed context within the iteration, or after it."""
        self._guarded(claim, {"context": context.to_text()})

    def commit(self, claim: Claim, context: Context, watermark: int, write: Callable[[sa.Connection], None]) -> None:
        """The iteration's outcome, and what `write` adds, in one transaction (O5). Raises LeaseLost, and nothing is written, unless exactly
        our row is there.
        """
        values = {
            "iteration_state": IterationState.COMPLETE,
            "iteration_lsn": claim.lsn + 1,
            "watermark": watermark,
            "context": context.to_text(),
            "error_message": None,
        }
        running = (mo_ccpr_log.c.iteration_lsn == claim.lsn, mo_ccpr_log.c.iteration_state == IterationState.RUNNING)
        with transaction(self.engine) as connection:
            changed = connection.execute(mo_ccpr_log.update().where(*_held(claim), *running).values(self._stamped(values)))
            if changed.rowcount != 1:
                raise LeaseLost("the row is no longer ours to commit", subject=f"subscription {claim.name}, lsn {claim.lsn}")
            write(connection)

    def fail(self, claim: Claim, context: Context, error: CcprError) -> None:
        """Write down a failure: `N:<first>:<text>` and state error if a person has to act (a paused subscription stays paused), else
        `R:<count>:<first>:<last>:<text>`. An unknown outcome is of the second kind: the next attempt looks at the recorded snapshot.
        """
        row = self.row(claim.name)
        now = round(self._clock())
        if not isinstance(error, Terminal):
            before = Failures.of(row.error_message)
            count, first = (before.count, before.first) if before else (0, now)
            message = f"R:{count + 1}:{first}:{now}:{error}"
            values = {"iteration_state": IterationState.COMPLETE, "error_message": message[:5000]}
        else:
            state = sa.case((mo_ccpr_log.c.state == State.PAUSED, State.PAUSED), else_=State.ERROR)
            values = {"state": state, "iteration_state": IterationState.ERROR, "error_message": f"N:{now}:{error}"[:5000]}
        self._guarded(claim, {**values, "context": context.to_text()})

    def _guarded(self, claim: Claim, values: dict) -> None:
        with transaction(self.engine) as connection:
            changed = connection.execute(mo_ccpr_log.update().where(*_held(claim)).values(self._stamped(values)))
        if changed.rowcount != 1:
            raise LeaseLost("another executor has taken over", subject=f"subscription {claim.name}")

    def _stamped(self, values: dict) -> dict:
        return {**values, "updated_at": datetime.fromtimestamp(self._clock(), UTC).replace(tzinfo=None)}

    def _now(self) -> int:
        return round(self._clock() * 1000)


def _held(claim: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    return (mo_ccpr_log.c.task_id == claim.task_id, mo_ccpr_log.c.cn_uuid == claim.owner, mo_ccpr_log.c.fence == claim.fence)
