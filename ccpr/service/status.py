"""The status of a subscription as a value, read from its row, the catalog database and the files of its mirror."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ccpr.base.errors import Failure, UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.matrixone.client.capabilities import Capabilities
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.matrixone.schema import zero_dates_of
from ccpr.pipeline.due import due_at
from ccpr.pipeline.lag import Lag, LagMeter
from ccpr.service.care_status import Care, care_of
from ccpr.service.follower_status import FollowerStatus, ForgottenPin, follower_status, unwatched
from ccpr.service.free_space import warnings
from ccpr.service.running import CATALOGS, RELAYS, SQL_PORTS, addresses, left_out_by_relays
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.errors import StateUnreadable
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.log_rows import LastError, LogRow
from ccpr.state.point_rows import TablePoint
from ccpr.state.quarantine import QuarantineEntry
from ccpr.state.states import IterationState, Shown, State, shown
from ccpr.state.subscription import Subscription
from ccpr.state.targets import LaggingTargetTable, Target, TargetState
from ccpr.targets.address import parse_target_uri

if TYPE_CHECKING:
    from ccpr.service.open_work import OpenWork, StepUnderWay

WAITING_SECONDS = 10.0  # for a snapshot that is made at once takes less
UNREADABLE = "unreadable"  # the state of a subscription whose row cannot be read


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
class Waiting:
    """What the iteration under way waits for. `since` is in seconds since 1970."""

    since: float
    text: str

    @classmethod
    def of(cls, read: ReadRow, now: float, *, held: bool) -> "Waiting | None":
        """CREATE SNAPSHOT waits until every open transaction with an ALTER of the database has ended, which may be an
        hour (docs/how-to/monitor.md). The row was written when the snapshot's name was recorded, and is again when its
        time is known."""
        opened, since = read.context.open, read.row.updated_at
        runs = held and read.row.iteration_state == IterationState.RUNNING
        if not runs or opened is None or opened.physical is not None or now - since.timestamp() < WAITING_SECONDS:
            return None
        why = "an open transaction with an ALTER there keeps it waiting"
        return cls(since.timestamp(), f"waits for CREATE SNAPSHOT upstream since {since:%H:%M:%S} UTC ({why})")


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
    """The status of a target by the catalog database, as it was when it was synced or asked last.

    Attributes
    ----------
    source_database : of a subscription to several databases the one whose tables it gets; else empty.
    lsn : the point to which it was synced last; None before the first.
    lag_seconds : how long ago the upstream was what it shows, by the last iteration's snapshot and our clock; None
        before the first point.
    behind : tables that were not synced, with the statements that would change their definition if those wait for a
        person.
    last_error : how the last attempt failed as a whole.
    attempts : in a row that failed, as a whole or in tables that are tried again.
    next_attempt : when it is tried again after these, seconds since 1970; None if nothing is.
    verified_at : when the target last said itself where it is, seconds since 1970; None if it was never asked.
    """

    name: str
    to: str
    ddl_policy: str
    state: str
    lsn: int | None
    lag_seconds: float | None
    behind: tuple[LaggingTargetTable, ...]
    last_error: LastError | None
    source_database: str
    attempts: int = 0
    next_attempt: float | None = None
    verified_at: float | None = None

    @property
    def ok(self) -> bool:
        return not self.trouble

    @property
    def trouble(self) -> str:
        """`failing` as a whole, or `behind` with tables; empty if neither."""
        return "failing" if self.last_error is not None else "behind" if self.behind else ""


_KINDS = {
    "v": ("view", "it has no rows; points of whole databases have its definition (`ccpr tables --ddl`)"),
    "S": ("sequence", "no table; points of whole databases have its definition and value (`ccpr tables --ddl`)"),
    "e": ("external table", "its rows are in files outside of MatrixOne"),
    "cluster": ("cluster table", "the upstream never gives its definition"),
    "temporary": ("temporary table", "it is of one session"),
    "unpublished": ("table", "the publication does not list it"),
    "partitioned": ("partitioned table", "its partitions are not known"),
    "excluded": ("table", "the patterns of the subscription exclude it"),
    "capitals": ("database", "the upstream makes a snapshot of a database by its name in lower case only"),
    "unlisted": (
        "table",
        "beside a partitioned table none is listed with capital letters or one of ' \\ . in its name",
    ),
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something in the database that is not replicated."""

    name: str
    kind: str
    reason: str

    @classmethod
    def of(cls, name: str, kind: str) -> "LeftOut":
        """`kind` as in `ccpr.pipeline.catalog_diff.CatalogDiff.unreplicated`."""
        return cls(name, *_KINDS.get(kind, (f"relation of kind {kind}", "this release does not know the kind")))


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """Times are in seconds since 1970 by our clock, spans in seconds; `watermark` is the upstream's clock.

    Attributes
    ----------
    state : a word of `ccpr.state.states.Shown`. If the row cannot be read, `unreadable`, and the rest is empty.
    iteration_state : the name of the stored code in lower case.
    lag_seconds, clock_skew_seconds : see `ccpr.pipeline.lag`; None before the first point.
    watermark : the upstream's clock, nanoseconds; 0 before the first point.
    newest_point : lsn of the newest point that can be read.
    step : None if no iteration is open.
    objects_pending, bytes_pending : what step 3 still has to copy; None in other steps. Objects of hidden index tables
        that no point has yet are counted, though they are not copied.
    bytes_to_copy : of all objects of step 3, there or not; None in other steps.
    copier : who copies in step 3 and why, as last chosen; None in other steps, or if that was not noted.
    snapshots : recorded names upstream and what they are for: open, current, previous, orphan (to be dropped).
    owner, lease_expires : who runs it, and until when unless renewed (seconds since 1970); None if nothing runs it.
    next_attempt : when the sensor will run it, seconds since 1970; None while it runs or requires operator action.
    updated_at : when its row was written last; None if it cannot be read.
    capabilities : what was found out about the upstream; None if nothing was.
    warnings : what readers must know to understand the rest.
    waiting : None unless the iteration under way waits for something upstream for longer than usual.
    unreadable_columns : of the newest point, table -> column -> why this release cannot read it. It is copied all the
        same.
    zero_dates : of the newest point, table -> column -> how many values are the zero date 0000-00-00, those of deleted
        rows included that are still stored. Readers get null for them, unless they ask for something else.
    not_replicated : what the database had at the last iteration and is not replicated, with the reason. Of very many
        the first ones.
    forgotten_pins : snapshots of the relay that are unused for long.
    relays : where relays of this state folder listen now that serve it, HOST:PORT.
    sql_ports, catalogs : where MySQL clients are answered from it, and Iceberg's of its lakes; HOST:PORT.
    mode : how the upstream is read, why, and what it costs.
    objects_from : the storage that objects are read from; empty if the upstream is asked for them.
    objects_copied, objects_direct : by the last iteration that copied objects, and how many of them straight from
        storage.
    row_rules : tables of the newest point with row rules of roles upstream: whoever reads the replica sees every row.
    publication, publisher, databases, tables, sync_interval, created_at : as it was created, and altered since; None
        or empty if its row cannot be read.
    care : whether second copies are up to date, restores are tried and files read again.
    """

    name: str
    task_id: str
    upstream: str = ""
    scope: str = ""
    state: str = UNREADABLE
    iteration_state: str = ""
    iteration_lsn: int = 0
    watermark: int = 0
    newest_point: int | None = None
    lag_seconds: float | None = None
    clock_skew_seconds: float | None = None
    step: "StepUnderWay | None" = None
    objects_pending: int | None = None
    bytes_pending: int | None = None
    snapshots: dict[str, str] = field(default_factory=dict)
    quarantined: tuple[QuarantinedTable, ...] = ()
    targets: tuple[TargetStatus, ...] = ()
    owner: str | None = None
    lease_expires: float | None = None
    last_error: LastError | None = None
    next_attempt: float | None = None
    updated_at: float | None = None
    capabilities: Capabilities | None = None
    bytes_to_copy: int | None = None
    copier: str | None = None
    warnings: tuple[str, ...] = ()
    unreadable_columns: dict[str, dict[str, str]] = field(default_factory=dict)
    zero_dates: dict[str, dict[str, int]] = field(default_factory=dict)
    not_replicated: tuple[LeftOut, ...] = ()
    followers: tuple[FollowerStatus, ...] = ()
    forgotten_pins: tuple[ForgottenPin, ...] = ()
    relays: tuple[str, ...] = ()
    sql_ports: tuple[str, ...] = ()
    catalogs: tuple[str, ...] = ()
    mode: str = ""
    objects_from: str = ""
    objects_copied: int = 0
    objects_direct: int = 0
    waiting: Waiting | None = None
    care: Care = field(default_factory=Care)
    row_rules: tuple[str, ...] = ()
    publication: str | None = None
    publisher: str | None = None
    databases: str = ""
    tables: str = ""
    sync_interval: int | None = None
    created_at: float | None = None

    @classmethod
    def unreadable(cls, name: str, task_id: str, error: CcprError) -> "SubscriptionStatus":
        """Of a subscription that is known by its error only."""
        return cls(name, task_id, last_error=LastError.of(Failure.of(error), again=False))

    def to_json(self) -> dict[str, Any]:
        """As a document, with whether all is as it should be."""
        known = asdict(replace(self, care=Care()))
        del known["care"]
        return {**known, **self.care.to_json(), "ok": self.ok}

    @property
    def ok(self) -> bool:
        """Whether the last attempt succeeded, for all tables, here and in the targets and followers."""
        if self.last_error is not None or self.state == Shown.STOPPED or self.quarantined:
            return False
        return all(one.ok for one in (*self.targets, *self.followers))


def read_status(workspace: Workspace, row: LogRow, meter: LagMeter) -> SubscriptionStatus:
    """Read only: no lease is taken, no session opened, nothing repaired. If the mirror cannot be read, a warning says
    so. Raises StateUnreadable."""
    read = ReadRow.of(row)
    records, lag, work = workspace.of(row), meter.read(row.task_id, read.context), open_work(workspace, read)
    copied, direct = read.context.copied_last
    newest, held = records.history.newest(), workspace.log.is_held(row)
    tables = [] if newest is None else list(records.history.tables(newest.lsn).values())
    followers, now = records.followers.all(), workspace.clock()
    unlooked = filter(None, (unwatched(one, now) for one in followers))
    unserved = left_out_by_relays(workspace.home, row.subscription_name)
    full = warnings(workspace, read.subscription, has_points=newest is not None)
    return SubscriptionStatus(
        name=row.subscription_name,
        task_id=row.task_id,
        upstream=read.subscription.endpoint.masked(),
        scope=read.subscription.scope,
        state=state_word(read, work, held=held),
        iteration_state=IterationState(row.iteration_state).name.lower(),
        iteration_lsn=row.iteration_lsn,
        watermark=row.watermark,
        newest_point=None if newest is None else newest.lsn,
        lag_seconds=lag.seconds,
        clock_skew_seconds=lag.skew_seconds,
        step=None if work is None else work.step,
        objects_pending=None if work is None else work.objects_pending,
        bytes_pending=None if work is None else work.bytes_pending,
        snapshots=read.context.recorded(),
        quarantined=tuple(map(_quarantined, records.quarantine.entries())),
        targets=target_statuses(workspace, read, newest, lag, records.targets.all()),
        owner=row.cn_uuid if held else None,
        lease_expires=row.lease_expires_at / 1000 if held else None,
        last_error=read.last_error,
        next_attempt=next_attempt(row, workspace.clock(), held=held),
        updated_at=row.updated_at.timestamp(),
        capabilities=read.context.capabilities,
        bytes_to_copy=None if work is None else work.bytes_to_copy,
        copier=None if work is None else work.copier,
        warnings=(*lag.warnings(), *(() if work is None else work.warnings), *unlooked, *unserved, *full),
        unreadable_columns=unreadable_tables(tables),
        zero_dates=zero_dates_of(point.table for point in tables),
        not_replicated=tuple(LeftOut.of(name, kind) for name, kind in read.context.unreplicated),
        followers=tuple(follower_status(one, records.history, newest, row, lag) for one in followers),
        forgotten_pins=ForgottenPin.among(records.pins.all(), now),
        relays=() if read.subscription.of_account else addresses(workspace.home, RELAYS),
        sql_ports=addresses(workspace.home, SQL_PORTS),
        catalogs=addresses(workspace.home, CATALOGS),
        mode=read.subscription.way,
        objects_from=read.subscription.settings.objects_from,
        objects_copied=copied,
        objects_direct=direct,
        waiting=Waiting.of(read, now, held=held),
        care=care_of(workspace, row),
        row_rules=read.context.row_rules,
        publication=read.subscription.publication.name,
        publisher=read.subscription.publication.publisher,
        databases=read.subscription.databases,
        tables=read.subscription.tables,
        sync_interval=read.subscription.settings.sync_interval,
        created_at=row.created_at.timestamp(),
    )


def state_word(read: ReadRow, work: "OpenWork | None", *, held: bool) -> Shown:
    """After the commit no snapshot is open, and the holder of the lease syncs targets."""
    from_copied = work is not None and work.step is not None and work.step.name == "apply"
    ends = work is None and read.row.iteration_lsn > 0
    return shown(read.row.state, held=held, failing=read.last_error is not None, applying=from_copied or ends)


def unreadable_tables(points: Iterable[TablePoint]) -> dict[str, dict[str, str]]:
    """Names of the tables that have columns which this release cannot read; which ones, and why."""
    from ccpr.matrixone.objects.types import unreadable_columns

    found = {point.table.qualified_name: unreadable_columns(point.table.user_columns) for point in points}
    return {name: columns for name, columns in sorted(found.items()) if columns}


def read_all(workspace: Workspace, meter: LagMeter) -> list[SubscriptionStatus]:
    """All subscriptions by name. One whose state cannot be read is reported as such, and hides none of the others."""
    rows, bad = workspace.log.all_rows()
    found = [SubscriptionStatus.unreadable(row.subscription_name, row.task_id, row.error) for row in bad]
    for row in rows:
        try:
            with unexpected():
                found.append(read_status(workspace, row, meter))
        except (Terminal, UnexpectedError) as error:
            found.append(SubscriptionStatus.unreadable(row.subscription_name, row.task_id, error))
    return sorted(found, key=lambda status: status.name)


def _quarantined(table: QuarantineEntry) -> QuarantinedTable:
    failure, times = table.failure, (table.first_failed_at.timestamp(), table.last_failed_at.timestamp())
    return QuarantinedTable(table.qualified_name, *times, table.attempts, failure.code, failure.message, failure.remedy)


def target_statuses(
    workspace: Workspace, read: ReadRow, newest: GlobalPoint | None, lag: Lag, targets: Iterable[Target]
) -> tuple[TargetStatus, ...]:
    """Of targets of a subscription, in their order. Raises StateUnreadable."""
    history, now = workspace.of(read.row).history, workspace.clock()
    return tuple(_target(one, _missing(one, newest, history), read, lag, now) for one in targets)


def _missing(found: Target, newest: GlobalPoint | None, history: PointHistory) -> GlobalPoint | None:
    """The oldest point that a target lacks, or one of its tables; None if it has the newest."""
    if found.lsn is None or newest is None:
        return None
    reached = found.lsn if not found.behind or found.needed_lsn is None else min(found.lsn, found.needed_lsn)
    return None if reached == newest.lsn else history.next_after(reached)


def _target(found: Target, missing: GlobalPoint | None, read: ReadRow, lag: Lag, now: float) -> TargetStatus:
    """`missing`: the oldest point that it lacks. Without one a target is as old as the replica: it shows what the
    upstream had until then, however long ago its own point was made. Else it is older by what has passed upstream since
    that point."""
    age = lag.seconds if missing is None else lag.of_older(missing.at.physical, read.row.watermark)
    to = parse_target_uri(found.uri)[0].masked() if found.lake is None else found.uri
    retrying, again_at = found.retrying, None
    if retrying is not None and found.state is TargetState.ACTIVE and read.row.state == State.RUNNING:
        again_at = max(now, retrying.next_attempt(read.subscription.settings.sync_interval).timestamp())
    return TargetStatus(
        found.name,
        to,
        found.settings.ddl_policy.value,
        found.state.value,
        found.lsn,
        None if found.snapshot_ts is None else age,
        found.behind,
        None if found.failing is None else found.failing.last_error,
        found.source_database,
        0 if retrying is None else retrying.attempts,
        again_at,
        None if found.verified_at is None else found.verified_at.timestamp(),
    )


def next_attempt(row: LogRow, now: float, *, held: bool) -> float | None:
    """When the sensor will run it, not before now; None while it runs or requires operator action."""
    if held or row.state != State.RUNNING:
        return None
    try:
        return max(now, due_at(row, now))
    except StateUnreadable:
        return None


def open_work(workspace: Workspace, read: ReadRow) -> "OpenWork | None":
    """None if no iteration is open: then the mirror is not read, and Arrow not imported."""
    if read.context.open is None:
        return None
    from ccpr.service.open_work import read_open_work

    return read_open_work(workspace, read.row.task_id, read.subscription, read.context.open, read.row.iteration_lsn)
