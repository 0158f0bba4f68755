"""The status of a subscription as a value, read from its row, the catalog database and the files of its mirror."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from matrixone.errors import CcprError, Terminal
from matrixone.objects.types import unreadable_columns
from matrixone.schema import Kind
from matrixone.upstream.capabilities import Capabilities
from replication.errors import StateUnreadable
from replication.failure import Failure
from replication.iteration.due import due_at
from replication.iteration.lag import Lag, LagMeter
from replication.iteration.steps import Step, step_under_way
from replication.mirror.layout import object_path
from replication.mirror.mirror import Mirror
from replication.mirror.object_rows import LISTED_SCHEMA
from replication.service.last_error import LastError
from replication.service.workspace import Workspace
from replication.snapshot_ref import SnapshotRef
from replication.state.context import Context
from replication.state.history import GlobalPoint, PointHistory, TablePoint
from replication.state.log_rows import LogRow
from replication.state.quarantine import Quarantine, QuarantineEntry
from replication.state.states import IterationState, State
from replication.state.subscription import Subscription
from replication.state.targets import LaggingTargetTable, Target, TargetRecords
from replication.targets.address import parse_target_uri

UNREADABLE = "unreadable"  # the state of a subscription whose row cannot be read
_MOST_SINGLE_LOOKUPS = 500  # objects; for more the store's folder is listed
_DONE_BEFORE = {  # what is done when a step is under way
    Step.CATALOG: (),
    Step.OBJECT_LIST: ("snapshot",),
    Step.COPY: ("snapshot", "catalog", "object list"),
    Step.APPLY: ("snapshot", "catalog", "object list", "copy"),
}


@dataclass(frozen=True, slots=True)
class StepUnderWay:
    """The step of the open iteration.

    Attributes
    ----------
    number, name, title : of the step (docs/requirements.md N2).
    done : what was done before it.
    snapshot : the iteration's snapshot upstream.
    """

    number: int
    name: str
    title: str
    done: tuple[str, ...]
    snapshot: str


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A row of `mo_ccpr_log` with what its texts mean, each parsed once."""

    row: LogRow
    subscription: Subscription
    context: Context
    last_error: LastError | None

    @classmethod
    def of(cls, row: LogRow) -> "ReadRow":
        """Raises StateUnreadable."""
        error = LastError.parse(row.error_message)
        return cls(row, Subscription.from_row(row), Context.from_text(row.context), error)


@dataclass(frozen=True, slots=True)
class QuarantinedTable:
    """A table that lags while the others go on. `since` and `last` are in seconds since 1970."""

    table: str
    since: float
    last: float
    attempts: int
    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """The status of a target by the catalog database; the target itself is not asked.

    Attributes
    ----------
    lsn : the point to which it was synced last; None before the first.
    lag_seconds : age of that point, by the last iteration's snapshot and our clock; None before the first.
    behind : tables that were not synced, with the statements that would change their definition if those wait for a
        person.
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
    state, iteration_state : names in lower case. If the row cannot be read, `unreadable` and nothing, and the rest is
        empty.
    lag_seconds, clock_skew_seconds : see `replication.iteration.lag`; None before the first point.
    watermark : the upstream's clock, nanoseconds; 0 before the first point.
    newest_point : lsn of the newest point that can be read.
    step : None if no iteration is open.
    objects_pending, bytes_pending : what step 3 still has to copy; None in other steps. Objects of hidden index tables
        that no point has yet are counted, though they are not copied.
    snapshots : recorded names upstream and what they are for: open, current, previous, orphan (to be dropped).
    owner, lease_expires : who runs it, and until when unless renewed (seconds since 1970); None if nobody runs it.
    next_attempt : when the sensor will run it, seconds since 1970; None while it runs or waits for a person.
    capabilities : what was found out about the upstream; None if nothing was.
    warnings : what a person has to know to understand the rest.
    unreadable_columns : of the newest point, table -> column -> why this release cannot read it. It is copied all the
        same.
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
    capabilities: Capabilities | None = None
    warnings: tuple[str, ...] = field(default=())
    unreadable_columns: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def unreadable(cls, name: str, task_id: str, error: CcprError) -> "SubscriptionStatus":
        """Of a subscription of which nothing is known but the error."""
        return cls(
            name=name,
            task_id=task_id,
            upstream="",
            scope="",
            state=UNREADABLE,
            iteration_state="",
            iteration_lsn=0,
            watermark=0,
            newest_point=None,
            lag_seconds=None,
            clock_skew_seconds=None,
            step=None,
            objects_pending=None,
            bytes_pending=None,
            snapshots={},
            quarantined=(),
            targets=(),
            owner=None,
            lease_expires=None,
            last_error=LastError.of(Failure.of(error), again=False),
            next_attempt=None,
            updated_at="",
        )

    @property
    def ok(self) -> bool:
        """Whether the last attempt succeeded, for all tables, here and in the targets."""
        if self.last_error is not None or self.state == State.ERROR.name.lower() or self.quarantined:
            return False
        return all(target.ok for target in self.targets)


@dataclass(frozen=True, slots=True)
class _OpenWork:
    """The open iteration by what it has left in the mirror's work folder."""

    step: StepUnderWay | None = None
    objects_pending: int | None = None
    bytes_pending: int | None = None
    warnings: tuple[str, ...] = ()


def read_status(workspace: Workspace, row: LogRow, meter: LagMeter) -> SubscriptionStatus:
    """Read only: no lease is taken, no session opened, nothing repaired. If the mirror cannot be read, a warning says
    so. Raises StateUnreadable."""
    read = ReadRow.of(row)
    engine, lag, work = workspace.log.engine, meter.read(row.task_id, read.context), _open_work(workspace, read)
    history, held = PointHistory(engine, row.task_id), workspace.log.is_held(row)
    newest = history.newest()
    return SubscriptionStatus(
        name=row.subscription_name,
        task_id=row.task_id,
        upstream=read.subscription.endpoint.masked(),
        scope=read.subscription.scope,
        state=State(row.state).name.lower(),
        iteration_state=IterationState(row.iteration_state).name.lower(),
        iteration_lsn=row.iteration_lsn,
        watermark=row.watermark,
        newest_point=None if newest is None else newest.lsn,
        lag_seconds=lag.seconds,
        clock_skew_seconds=lag.skew_seconds,
        step=work.step,
        objects_pending=work.objects_pending,
        bytes_pending=work.bytes_pending,
        snapshots=read.context.recorded(),
        quarantined=tuple(map(_quarantined, Quarantine(engine, row.task_id).entries())),
        targets=tuple(_target(one, newest, row, lag) for one in TargetRecords(engine, row.task_id).all()),
        owner=row.cn_uuid if held else None,
        lease_expires=row.lease_expires_at / 1000 if held else None,
        last_error=read.last_error,
        next_attempt=next_attempt(row, workspace.clock(), held=held),
        updated_at=f"{row.updated_at.isoformat()}Z",
        capabilities=read.context.capabilities,
        warnings=(*lag.warnings(), *work.warnings),
        unreadable_columns={} if newest is None else unreadable_tables(history.tables(newest.lsn).values()),
    )


def unreadable_tables(points: Iterable[TablePoint]) -> dict[str, dict[str, str]]:
    """Names of the tables that have columns which this release cannot read; which ones, and why."""
    found = {point.table.qualified_name: unreadable_columns(point.table.user_columns) for point in points}
    return {name: columns for name, columns in sorted(found.items()) if columns}


def read_all(workspace: Workspace, meter: LagMeter) -> list[SubscriptionStatus]:
    """All subscriptions by name. One whose state cannot be read is reported as such, and hides none of the others."""
    rows, bad = workspace.log.all_rows()
    found = [SubscriptionStatus.unreadable(row.subscription_name, row.task_id, row.error) for row in bad]
    for row in rows:
        try:
            found.append(read_status(workspace, row, meter))
        except Terminal as error:
            found.append(SubscriptionStatus.unreadable(row.subscription_name, row.task_id, error))
    return sorted(found, key=lambda status: status.name)


def _quarantined(table: QuarantineEntry) -> QuarantinedTable:
    failure, times = table.failure, (table.first_failed_at.timestamp(), table.last_failed_at.timestamp())
    return QuarantinedTable(table.qualified_name, *times, table.attempts, failure.code, failure.message, failure.remedy)


def _target(found: Target, newest: GlobalPoint | None, row: LogRow, lag: Lag) -> TargetStatus:
    """At the newest point a target is as old as the replica. Otherwise it is older by the time that has passed upstream
    since its point."""
    age = None if found.snapshot_ts is None else lag.seconds
    if age is not None and found.snapshot_ts is not None and newest is not None and found.lsn != newest.lsn:
        age += max(0.0, (row.watermark - found.snapshot_ts) / 1e9)
    error = None
    if (failing := found.failing) is not None:
        first, last = failing.first.timestamp(), failing.last.timestamp()
        error = LastError.of(failing.failure, again=True, attempts=failing.attempts, first=first, last=last)
    to = parse_target_uri(found.uri)[0].masked()
    return TargetStatus(found.name, to, found.policy.value, found.state.value, found.lsn, age, found.behind, error)


def next_attempt(row: LogRow, now: float, *, held: bool) -> float | None:
    """When the sensor will run it, not before now; None while it runs or waits for a person."""
    if held or row.state != State.RUNNING:
        return None
    try:
        return max(now, due_at(row))
    except StateUnreadable:
        return None


def _open_work(workspace: Workspace, read: ReadRow) -> _OpenWork:
    ref, shown = read.context.open, None
    try:
        mirror = workspace.mirror_of(read.subscription)
        step = step_under_way(ref, mirror.store)
        if ref is None or step is None:
            return _OpenWork()
        shown = StepUnderWay(step.value, step.label, step.title, _DONE_BEFORE.get(step, ()), ref.name)
        listed = _listed(mirror, ref) if step is Step.COPY else None
        if listed is None:
            return _OpenWork(shown)
        return _OpenWork(shown, *_pending(mirror, listed, _tables_not_copied(workspace, read)))
    except CcprError as error:
        return _OpenWork(shown, warnings=(f"the mirror cannot be read: {error.code}: {error.message}",))


def _listed(mirror: Mirror, ref: SnapshotRef) -> pa.Table | None:
    """The objects that the open iteration has found to be copied (LISTED_SCHEMA). None if it has ended meanwhile."""
    files = [f"{ref.work}/{name}" for name in ("added.arrow", "refetched.arrow")]
    if any(mirror.store.size(file) is None for file in files):
        return None
    return pa.concat_tables([mirror.files.read_arrow(file, LISTED_SCHEMA) for file in files])


def _tables_not_copied(workspace: Workspace, read: ReadRow) -> pa.Array:
    """Ids of the tables whose objects are not copied: hidden index tables, if a point has them."""
    tables = PointHistory(workspace.log.engine, read.row.task_id).tables(read.row.iteration_lsn).values()
    hidden = [point.table for point in tables if point.table.kind is Kind.INDEX]
    return pa.array([table.id for table in hidden if not read.subscription.copies(table)], pa.int64())


def _pending(mirror: Mirror, listed: pa.Table, not_copied: pa.Array) -> tuple[int, int]:
    """Number and bytes of the listed objects that are not in the store yet."""
    wanted = (
        listed.filter(pc.invert(pc.is_in(listed.column("table_id"), not_copied)))
        .group_by("name")
        .aggregate([("size", "max")])
    )
    if wanted.num_rows > _MOST_SINGLE_LOOKUPS:
        present = pa.array([name.rpartition("/")[2] for name in mirror.store.names("objects")], pa.string())
    else:
        names = wanted.column("name").to_pylist()
        present = pa.array([name for name in names if mirror.store.size(object_path(name)) is not None], pa.string())
    missing = wanted.filter(pc.invert(pc.is_in(wanted.column("name"), present)))
    return missing.num_rows, pc.sum(missing.column("size_max")).as_py() or 0
