"""The rows of the table `mo_ccpr_log` as values; those of all subscriptions are read every second: whole where they
have changed, else their marks only. Source: docs/requirements.md N1.

Names and numeric codes are those of MatrixOne's table of the same name; the columns after `drop_at` are ours, and two
others have another meaning here. `subscription_name` is the subscription's own name (MatrixOne: the publication's,
which is in `publication_name` here). `account_id` is the publisher's (MatrixOne: the receiving account's; a replica
outside MatrixOne has none).

A row that cannot be read concerns one subscription only: the others are read without it (decision
state-folder).
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.base.wording import meant
from ccpr.matrixone.schema import integer_of
from ccpr.state.database import batches, fetch, reading, repeatable
from ccpr.state.errors import BAD_ROW_REMEDY, LeaseLost, StateUnreadable, SubscriptionMissing
from ccpr.state.states import IterationState, Pair, State
from ccpr.state.tables import mo_ccpr_log

# Ten times the lease of an executor. A lease that ends later was written by a clock that was ahead.
LONGEST_LEASE_SECONDS = 300.0
_READ = tuple(column for column in mo_ccpr_log.columns if column.name != "live_name")
_BY_NAME = sa.select(*_READ).where(mo_ccpr_log.c.live_name == sa.bindparam("key"))
_BY_TASK = sa.select(*_READ).where(mo_ccpr_log.c.task_id == sa.bindparam("key"))
_LIVE = sa.select(*_READ).where(mo_ccpr_log.c.live_name.is_not(None)).order_by(mo_ccpr_log.c.live_name)
_SOME = sa.select(*_READ).where(mo_ccpr_log.c.task_id.in_(sa.bindparam("keys", expanding=True)))
# Each write of a row by this program changes one of these (`CcprLog`); values as the driver gives them, not converted.
_MARKS = sa.select(
    *(
        sa.type_coerce(mo_ccpr_log.c[name], sa.String)
        for name in ("task_id", "fence", "lease_expires_at", "updated_at", "state")
    )
).where(mo_ccpr_log.c.live_name.is_not(None))
_LOCKING = {query: query.with_for_update() for query in (_BY_NAME, _BY_TASK)}
_ROWS_A_STATEMENT = 500
_TEXT = re.compile(r"(?P<code>[A-Z][A-Z0-9_]*): (?P<message>.*?) \[(?P<subject>.*)\] (?P<remedy>.*)", re.S)
_CODE = re.compile("[A-Z][A-Z0-9_]*")
_NUMBERS = ("account_id", "state", "iteration_state", "iteration_lsn", "watermark", "fence", "lease_expires_at")


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row as read. Times are UTC.

    Attributes
    ----------
    state, iteration_state : codes of `State` and `IterationState`.
    iteration_lsn : number of the next iteration.
    watermark : up to which time of the upstream the replica is complete; its clock in nanoseconds, 0 = none.
    context : `Context` as JSON.
    cn_uuid : id of the executor that owns the row, None = no executor.
    error_message : see `CcprLog.fail`; None if the last iteration did not fail.
    fence : raised by each claim, pause, drop and change of the upstream.
    lease_expires_at : milliseconds since 1970, 0 = free.
    epoch : that of the mirror's identity, see `ccpr.mirror.layout.Identity`; None until there is one.
    mirror_url : where the mirror was last written; with the name of the machine where it is a folder.
    """

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
    epoch: str | None = None
    mirror_url: str | None = None

    @property
    def pair(self) -> Pair:
        return Pair(State(self.state), IterationState(self.iteration_state))

    def is_held(self, now: float) -> bool:
        """Whether the lease has not expired by our clock (`now` is in seconds since 1970). Its owner may be dead.

        A lease that ends implausibly late does not count. It was written before the clock was set back, and would keep
        every executor out until then. If its owner is alive after all, the fence costs it no more than its work.
        """
        return 0 < self.lease_expires_at / 1000 - now <= LONGEST_LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run iteration `lsn` of one subscription, until the fence is raised. `row`: the subscription's row as
    the claim left it."""

    task_id: str
    name: str
    owner: str
    fence: int
    lsn: int
    row: LogRow


@dataclass(frozen=True, slots=True)
class Failures:
    """Consecutive failures after which trying again may help. `count`: how many. `first`, `last`: times of the first
    and the last, in seconds since 1970 on our clock. `text`: the last error."""

    count: int
    first: int
    last: int
    text: str

    @classmethod
    def of(cls, message: str | None) -> "Failures | None":
        """Parse `error_message`. None if the last iteration did not fail in this way."""
        parts = (message or "").split(":", 4)
        if len(parts) != 5 or parts[0] != "R" or not all(part.isdecimal() for part in parts[1:4]):
            return None
        return cls(int(parts[1]), int(parts[2]), int(parts[3]), parts[4])


@dataclass(frozen=True, slots=True)
class LastError:
    """How the last attempt failed, with its times in seconds since 1970. `error_message` has these and then the text
    of a `Failure`, which people also read by SQL (`CcprLog.fail` writes it):

        R:<failures in a row>:<first>:<last>:<text>     it is tried again
        N:<when>:<text>                                 it is not

    The text is cut after 5000 characters, so it is parsed leniently: what cannot be recognized belongs to the message.

    Attributes
    ----------
    again : whether it is tried again by itself.
    attempts : failures in a row; 1 if it is not tried again.
    """

    code: str
    message: str
    subject: str
    remedy: str
    again: bool
    attempts: int
    first: float
    last: float

    @classmethod
    def of(
        cls, failure: Failure, *, again: bool, attempts: int = 1, first: float = 0.0, last: float = 0.0
    ) -> "LastError":
        parts = (failure.code, failure.message, failure.subject, failure.remedy)
        return cls(*parts, again, attempts, first, last)

    @classmethod
    def parse(cls, error_message: str | None) -> "LastError | None":
        """None if the last iteration did not fail."""
        if not error_message:
            return None
        if repeated := Failures.of(error_message):
            failure, count = parse_failure(repeated.text), repeated.count
            return cls.of(failure, again=True, attempts=count, first=repeated.first, last=repeated.last)
        kind, _, rest = error_message.partition(":")
        when, _, text = rest.partition(":")
        if kind != "N" or not when.isdecimal():
            return cls.of(parse_failure(error_message), again=False)
        return cls.of(parse_failure(text), again=False, first=float(when), last=float(when))


def parse_failure(text: str) -> Failure:
    """The failure whose text (`str`) this is. Of a text that was cut, or that is not ours, all is the message."""
    if found := _TEXT.fullmatch(text):
        return Failure(found["code"], found["message"], found["subject"], found["remedy"])
    code, colon, rest = text.partition(": ")
    if colon and _CODE.fullmatch(code):
        return Failure(code, rest, "", "")
    return Failure("CCPR", text, "", "")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read: its key, its name, and what is wrong with it."""

    task_id: str
    subscription_name: str
    error: StateUnreadable


Mark = tuple[object, ...]


def read_rows(connection: sa.Connection) -> tuple[list[LogRow], list[BadRow]]:
    """The subscriptions that are not dropped, by name: those that can be read, and those that cannot."""
    return _read(connection, _LIVE)


def read_some(connection: sa.Connection, task_ids: Sequence[str]) -> tuple[list[LogRow], list[BadRow]]:
    """`read_rows`, of these task ids."""
    rows, bad = list[LogRow](), list[BadRow]()
    for keys in batches(task_ids, _ROWS_A_STATEMENT):
        read, unreadable = _read(connection, _SOME, keys=list(keys))
        rows, bad = rows + read, bad + unreadable
    return rows, bad


def _read(connection: sa.Connection, query: sa.Select, **parameters: object) -> tuple[list[LogRow], list[BadRow]]:
    """One bad row fails the whole query: then each is read by itself."""
    try:
        return [_row(row) for row in fetch(connection, query, **parameters)], []
    except StateUnreadable:
        keys = query.with_only_columns(mo_ccpr_log.c.task_id, mo_ccpr_log.c.live_name)
    rows, bad = list[LogRow](), list[BadRow]()
    for task_id, name in connection.execute(keys, parameters).all():
        try:
            found = read_row(connection, task_id=task_id)
            if found is not None:
                rows.append(found)
        except StateUnreadable as error:
            bad.append(BadRow(str(task_id), str(name), error))
    return rows, bad


def read_marks(connection: sa.Connection) -> dict[str, Mark]:
    """By task id, of the subscriptions that are not dropped: what is another one after each write of the row."""
    return {str(row[0]): tuple(row) for row in connection.execute(_MARKS)}


def read_row(
    connection: sa.Connection, *, name: str | None = None, task_id: str | None = None, lock: bool = False
) -> LogRow | None:
    """The row of a subscription that is not dropped, by its name, or any row by its task id. With `lock`, no other
    transaction can write the row until this one ends (in SQLite this is always so).

    Raises StateUnreadable.
    """
    query, key = (_BY_NAME, name) if task_id is None else (_BY_TASK, task_id)
    try:
        found = fetch(connection, _LOCKING[query] if lock else query, key=key)
    except StateUnreadable as error:
        of_it = (mo_ccpr_log.c.live_name if task_id is None else mo_ccpr_log.c.task_id) == key
        names = connection.execute(sa.select(mo_ccpr_log.c.subscription_name).where(of_it)).scalars().all()
        raise _unreadable(error.message, *names[:1]) from error
    return _row(found[0]) if found else None


def read_latest_dropped(connection: sa.Connection, name: str) -> LogRow | None:
    """The subscription of this name that was dropped last."""
    where = (mo_ccpr_log.c.subscription_name == name, mo_ccpr_log.c.state == State.DROPPED)
    found = fetch(connection, sa.select(*_READ).where(*where).order_by(mo_ccpr_log.c.drop_at.desc()).limit(1))
    return _row(found[0]) if found else None


def values_of(row: LogRow) -> dict[str, object]:
    """By column name, for an INSERT."""
    return {column.name: getattr(row, column.name) for column in _READ}


def write_held(
    connection: sa.Connection, claim: Claim, values: Mapping[str, Any], also: Mapping[str, Any] | None = None
) -> bool:
    """One UPDATE of the claim's row. False, and nothing is changed, if the claim is no longer valid, or `also` is not
    so: columns with their values."""
    where = {"task_id": claim.task_id, "cn_uuid": claim.owner, "fence": claim.fence, **(also or {})}
    parameters = {f"old_{name}": value for name, value in where.items()}
    parameters |= {f"new_{name}": value for name, value in values.items()}
    return connection.execute(_update(tuple(where), tuple(values)), parameters).rowcount == 1


@cache
def _update(where: tuple[str, ...], values: tuple[str, ...]) -> sa.Update:
    """Built once, see `ccpr.state.database.fetch`."""
    same = (mo_ccpr_log.c[name] == sa.bindparam(f"old_{name}") for name in where)
    return mo_ccpr_log.update().where(*same).values({name: sa.bindparam(f"new_{name}") for name in values})


def missing(connection: sa.Connection, name: str) -> SubscriptionMissing:
    """With the names that are like it."""
    live = connection.execute(sa.select(mo_ccpr_log.c.live_name).where(mo_ccpr_log.c.live_name.is_not(None))).scalars()
    known = [str(one) for one in live]
    advice = f"{meant(name, known, 'subscriptions', of='This state folder')} " if known else ""
    return SubscriptionMissing(
        "there is no subscription of that name",
        subject=f"subscription {name}",
        remedy=advice + SubscriptionMissing.default_remedy,
    )


def lost(row: LogRow | None, claim: Claim) -> LeaseLost:
    subject = f"subscription {claim.name}, iteration {claim.lsn}"
    state = State.DROPPED if row is None else State(row.state)
    if state is State.DROPPED:
        return LeaseLost("the subscription was dropped meanwhile", subject=subject, remedy="Nothing is left to do.")
    if state is State.PAUSED:
        remedy = f"`ccpr resume {claim.name}`: the iteration goes on where it stopped."
        return LeaseLost("the subscription was paused meanwhile", subject=subject, remedy=remedy)
    if row is not None and row.cn_uuid is None:
        return LeaseLost("the subscription's upstream was altered meanwhile", subject=subject)
    return LeaseLost("the row is no longer ours: another executor has taken over", subject=subject)


def _row(row: sa.Row) -> LogRow:
    """Raises StateUnreadable for values that this program would not have written."""
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


WHOLE_SECONDS = 60.0  # between two times that all are read whole: who writes them by hand may leave their marks


@dataclass(frozen=True, slots=True)
class ChangedLogRows:
    """Since the read before. `rows`: those that are new or have changed. `gone`: task ids of those that were dropped,
    or cannot be read any more. `bad`: all that cannot be read."""

    rows: list[LogRow] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.gone)


class WatchedRows:
    """One thread uses it. `rows`: by task id, as they were read last."""

    def __init__(self, engine: sa.Engine, steady: Callable[[], float] = time.monotonic) -> None:
        self.rows: dict[str, LogRow] = {}
        self._engine, self._steady = engine, steady
        self._marks: dict[str, Mark] = {}
        self._whole_at = float("-inf")

    def read(self) -> ChangedLogRows:
        """What has changed. Raises StateUnavailable, StateUnreadable; then nothing is forgotten."""
        whole = self._steady() - self._whole_at >= WHOLE_SECONDS
        marks, found, bad = self._read(whole)
        if whole:
            self._whole_at = self._steady()
        changed = [row for row in found if self.rows.get(row.task_id) != row]
        unreadable = {row.task_id for row in bad}
        gone = [task_id for task_id in self.rows if task_id not in marks or task_id in unreadable]
        for task_id in gone:
            del self.rows[task_id]
        self.rows.update((row.task_id, row) for row in changed)
        # What was written, or could not be read, since its mark was read is read again next time.
        self._marks = {task_id: mark for task_id, mark in marks.items() if task_id in self.rows}
        return ChangedLogRows(changed, gone, bad)

    @repeatable
    def _read(self, whole: bool) -> tuple[dict[str, Mark], list[LogRow], list[BadRow]]:
        with reading(self._engine) as connection:
            marks = read_marks(connection)
            if whole:
                return marks, *read_rows(connection)
            known = self._marks
            return marks, *read_some(connection, [key for key, mark in marks.items() if known.get(key) != mark])
