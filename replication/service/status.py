"""How a subscription stands, as a value: read from its row and the files of its mirror, for people and scripts."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from matrixone.errors import CcprError, Terminal
from matrixone.schema import Kind
from replication.errors import StateUnreadable
from replication.iteration.due import due_at
from replication.iteration.lag import LagMeter
from replication.iteration.steps import Step, step_under_way
from replication.mirror.layout import object_path
from replication.mirror.mirror import Mirror
from replication.mirror.object_rows import LISTED_SCHEMA
from replication.service.workspace import Workspace
from replication.state.context import Context
from replication.state.history import GlobalPoint, PointHistory
from replication.state.log_rows import Failures, LogRow
from replication.state.quarantine import Quarantine, QuarantineEntry
from replication.state.states import IterationState, State
from replication.state.subscription import Subscription
from replication.state.targets import LaggingTargetTable, Target, TargetRecords
from replication.targets.address import parse_target_uri

UNREADABLE = "unreadable"  # the state of one whose row cannot be read
_LOOKED_AT_ONE_BY_ONE = 500  # objects; beyond that the store's folder is listed
_ERROR = re.compile(r"(?P<code>[A-Z][A-Z0-9_]*): (?P<message>.*?) \[(?P<subject>.*)\] (?P<remedy>.*)", re.S)
_BEFORE = {  # what is done when a step is under way
    Step.CATALOG: (),
    Step.OBJECT_LIST: ("snapshot",),
    Step.COPY: ("snapshot", "catalog", "object list"),
    Step.APPLY: ("snapshot", "catalog", "object list", "copy"),
}


@dataclass(frozen=True, slots=True)
class StepUnderWay:
    """Where the open iteration stands.

    Attributes
    ----------
    number, name, title : of the step (requirement N2).
    done : what is behind it.
    snapshot : the iteration's, upstream.
    """

    number: int
    name: str
    title: str
    done: tuple[str, ...]
    snapshot: str


@dataclass(frozen=True, slots=True)
class LastError:
    """How the last attempt failed. Times are seconds since 1970.

    Attributes
    ----------
    again : it is tried again by itself.
    attempts : failures in a row; 1 where it is not tried again.
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
    def of(cls, message: str | None) -> "LastError | None":
        """Read from `error_message`; None if the last iteration did not fail."""
        if not message:
            return None
        if failures := Failures.of(message):
            return cls(*_parts(failures.text), True, failures.count, failures.first, failures.last)
        kind, _, rest = message.partition(":")
        first, _, text = rest.partition(":")
        if kind != "N" or not first.isdecimal():
            return cls(*_parts(message), False, 1, 0.0, 0.0)
        return cls(*_parts(text), False, 1, float(first), float(first))

    @classmethod
    def of_row(cls, error: CcprError) -> "LastError":
        """Of a row that cannot be read, and so tells no times."""
        return cls(error.code, error.message, error.subject, error.remedy, False, 1, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class QuarantinedTable:
    """A table that stays behind while the others go on. `since` and `last` in seconds since 1970."""

    table: str
    since: float
    last: float
    attempts: int
    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """How a target stands, by what the catalog database knows; the target itself is not asked.

    Attributes
    ----------
    lsn : the point to which it was carried last; None before the first.
    lag_seconds : age of that point, by the last iteration's snapshot and our clock; None before the first.
    behind : tables that did not come along, with what would change their definition where that waits for a person.
    last_error : how the last attempt failed as a whole.
    """

    name: str
    to: str
    ddl_policy: str
    state: str
    lsn: int | None
    lag_seconds: float | None
    behind: tuple[LaggingTargetTable, ...]
    last_error: LastError | None

    @property
    def ok(self) -> bool:
        return self.last_error is None and not self.behind


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """
    Attributes
    ----------
    state, iteration_state : names in lower case; `unreadable` and nothing where the row cannot be read, and then the
        rest is empty.
    lag_seconds, clock_skew_seconds : see `replication.iteration.lag`; None before the first point.
    watermark : the upstream's clock, nanoseconds; 0 before the first point.
    newest_point : lsn of the newest point that can be read.
    step : None if no iteration is open.
    objects_pending, bytes_pending : what step 3 has still to bring; None in other steps. Objects of hidden index
        tables that no point knows yet are counted, though they are not copied.
    snapshots : recorded names upstream and what they are for: open, current, previous, orphan (to be dropped).
    owner, lease_expires : who runs it and until when that is so unless renewed (seconds since 1970); None if nobody.
    next_attempt : when the sensor will run it, seconds since 1970; None while it runs or waits for a person.
    warnings : what a person has to know to read the rest.
    """

    name: str
    task_id: str
    upstream: str
    scope: str
    state: str
    iteration_state: str
    iteration_lsn: int
    watermark: int
    newest_point: int | None
    lag_seconds: float | None
    clock_skew_seconds: float | None
    step: StepUnderWay | None
    objects_pending: int | None
    bytes_pending: int | None
    snapshots: dict[str, str]
    quarantined: tuple[QuarantinedTable, ...]
    targets: tuple[TargetStatus, ...]
    owner: str | None
    lease_expires: float | None
    last_error: LastError | None
    next_attempt: float | None
    updated_at: str
    warnings: tuple[str, ...] = field(default=())

    @classmethod
    def unreadable(cls, name: str, task_id: str, error: CcprError) -> "SubscriptionStatus":
        """Of one of which nothing can be told but why."""
        nowhere = (None, None, None, None, None, None)
        return cls(
            name,
            task_id,
            "",
            "",
            UNREADABLE,
            "",
            0,
            0,
            *nowhere,
            {},
            (),
            (),
            None,
            None,
            LastError.of_row(error),
            None,
            "",
        )

    @property
    def ok(self) -> bool:
        """Did the last attempt succeed, for all tables, here and in the targets?"""
        stands = self.last_error is None and self.state != State.ERROR.name.lower() and not self.quarantined
        return stands and all(target.ok for target in self.targets)


def read_status(workspace: Workspace, row: LogRow, meter: LagMeter) -> SubscriptionStatus:
    """Read only: no lease, no session, nothing is mended. What cannot be read of the mirror becomes a warning."""
    subscription, context = Subscription.from_row(row), Context.from_text(row.context)
    lag = meter.read(row.task_id, context)
    warnings, step, pending = lag.warnings(), None, (None, None)
    try:
        mirror = workspace.mirror(row.subscription_name, published=False)
        found = step_under_way(context.open, mirror.store)
        if found is not None and context.open is not None:
            step = StepUnderWay(found.value, found.label, found.title, _BEFORE.get(found, ()), context.open.name)
        if found is Step.COPY and context.open is not None:
            pending = _pending(mirror, context.open.work, _not_copied(workspace, row, subscription))
    except CcprError as error:
        warnings.append(f"the mirror cannot be looked at: {error.code}: {error.message}")
    held = workspace.log.is_held(row)
    newest = PointHistory(workspace.log.engine, row.task_id).newest()
    return SubscriptionStatus(
        name=row.subscription_name,
        task_id=row.task_id,
        upstream=subscription.endpoint.masked(),
        scope=subscription.scope,
        state=State(row.state).name.lower(),
        iteration_state=IterationState(row.iteration_state).name.lower(),
        iteration_lsn=row.iteration_lsn,
        watermark=row.watermark,
        newest_point=None if newest is None else newest.lsn,
        lag_seconds=lag.seconds,
        clock_skew_seconds=lag.skew_seconds,
        step=step,
        objects_pending=pending[0],
        bytes_pending=pending[1],
        snapshots=context.recorded(),
        quarantined=tuple(map(_quarantined, Quarantine(workspace.log.engine, row.task_id).entries())),
        targets=tuple(
            _target(one, newest, row, lag.seconds) for one in TargetRecords(workspace.log.engine, row.task_id).all()
        ),
        owner=row.cn_uuid if held else None,
        lease_expires=row.lease_expires_at / 1000 if held else None,
        last_error=LastError.of(row.error_message),
        next_attempt=next_attempt(row, workspace.clock(), held=held),
        updated_at=f"{row.updated_at.isoformat()}Z",
        warnings=tuple(warnings),
    )


def read_all(workspace: Workspace, meter: LagMeter) -> list[SubscriptionStatus]:
    """All subscriptions by name. One whose state cannot be read is told so, and hides none of the others."""
    rows, bad = workspace.log.all_rows()
    found = [SubscriptionStatus.unreadable(row.subscription_name, row.task_id, row.error) for row in bad]
    for row in rows:
        try:
            found.append(read_status(workspace, row, meter))
        except Terminal as error:
            found.append(SubscriptionStatus.unreadable(row.subscription_name, row.task_id, error))
    return sorted(found, key=lambda standing: standing.name)


def _quarantined(table: QuarantineEntry) -> QuarantinedTable:
    failure, times = table.failure, (table.first_failed_at.timestamp(), table.last_failed_at.timestamp())
    return QuarantinedTable(table.qualified_name, *times, table.attempts, failure.code, failure.message, failure.remedy)


def _target(found: Target, newest: GlobalPoint | None, row: LogRow, lag: float | None) -> TargetStatus:
    """At the newest point a target is as old as the replica; else older by what the upstream's clock has gone on since
    its point."""
    behind = None if found.snapshot_ts is None or lag is None else lag
    if behind is not None and found.snapshot_ts is not None and newest is not None and found.lsn != newest.lsn:
        behind += max(0.0, (row.watermark - found.snapshot_ts) / 1e9)
    error = None
    if found.failing is not None:
        failure, times = found.failing.failure, (found.failing.first.timestamp(), found.failing.last.timestamp())
        error = LastError(
            failure.code, failure.message, failure.subject, failure.remedy, True, found.failing.attempts, *times
        )
    to = parse_target_uri(found.uri)[0].masked()
    return TargetStatus(found.name, to, found.policy.value, found.state.value, found.lsn, behind, found.behind, error)


def next_attempt(row: LogRow, now: float, *, held: bool) -> float | None:
    """When the sensor will run it, not before now; None while it runs or waits for a person."""
    if held or row.state != State.RUNNING:
        return None
    try:
        return max(now, due_at(row))
    except StateUnreadable:
        return None


def _not_copied(workspace: Workspace, row: LogRow, subscription: Subscription) -> pa.Array:
    """Ids of the tables whose objects stay upstream: hidden index tables, as far as a point knows them."""
    tables = PointHistory(workspace.log.engine, row.task_id).tables(row.iteration_lsn).values()
    ids = [
        point.table.id for point in tables if point.table.kind is Kind.INDEX and not subscription.copies(point.table)
    ]
    return pa.array(ids, pa.int64())


def _pending(mirror: Mirror, work: str, not_copied: pa.Array) -> tuple[int, int]:
    """Objects and bytes of the open iteration that are not in the store yet."""
    files = (f"{work}/added.arrow", f"{work}/refetched.arrow")
    listed = pa.concat_tables(
        [mirror.read_arrow(file, LISTED_SCHEMA) for file in files if mirror.store.size(file) is not None]
    )
    wanted = (
        listed.filter(pc.invert(pc.is_in(listed.column("table_id"), not_copied)))
        .group_by("name")
        .aggregate([("size", "max")])
    )
    if wanted.num_rows > _LOOKED_AT_ONE_BY_ONE:
        present = pa.array([name.rpartition("/")[2] for name in mirror.store.names("objects")], pa.string())
    else:
        names = wanted.column("name").to_pylist()
        present = pa.array([name for name in names if mirror.store.size(object_path(name)) is not None], pa.string())
    missing = wanted.filter(pc.invert(pc.is_in(wanted.column("name"), present)))
    return missing.num_rows, pc.sum(missing.column("size_max")).as_py() or 0


def _parts(text: str) -> tuple[str, str, str, str]:
    """Code, message, subject and remedy of an error's text; a text that was cut, or is none of ours, is all message."""
    found = _ERROR.fullmatch(text)
    if found is not None:
        return found["code"], found["message"], found["subject"], found["remedy"]
    code, colon, rest = text.partition(": ")
    known = bool(colon) and re.fullmatch("[A-Z][A-Z0-9_]*", code) is not None
    return (code, rest, "", "") if known else ("CCPR", text, "", "")


def seconds_text(seconds: float) -> str:
    """A span for people, e.g. `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def time_text(seconds: float) -> str:
    """A time on our clock for people, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + "Z"
