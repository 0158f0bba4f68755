"""Is the replica current? One verdict for each subscription, from `mo_ccpr_log` alone: neither the upstream nor the
mirror is asked, so it is there while both are away.

It is the asset check `replica_current` of the asset `replication_health/<name>`, whose figures plot over time; the
check of that name of `applied_tables` is over all subscriptions. Every tick, run and iteration of the service evaluates
them, failing ones too. They are not partitioned: Dagster stores one evaluation of a partition without a run, and no
second one (decision health-is-not-partitioned).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.failure import Failure
from ccpr.base.loops import unexpected
from ccpr.base.wording import first_names
from ccpr.dagster import metadata
from ccpr.dagster.events import APPLIED_TABLES
from ccpr.matrixone.client.retry import BACK_OFF
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.lag import Lag, LagMeter
from ccpr.service.last_error import LastError
from ccpr.service.status import ReadRow, TargetStatus, Waiting, next_attempt, target_statuses
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.history import PointHistory
from ccpr.state.log_rows import LogRow
from ccpr.state.quarantine import Quarantine, tasks_in_quarantine
from ccpr.state.states import State
from ccpr.state.targets import TargetState, tasks_with_targets

HEALTH = "replication_health"
REPLICA_CURRENT = "replica_current"
DESCRIPTION = (
    "The replica is as new as it should be: its state is not older than two intervals and a minute, the last attempt "
    "did not fail, no table is in quarantine, no target is behind. Every tick, run and iteration of the service "
    "evaluates it, failing ones too; what it says is what to do. Executing it starts no iteration."
)
_SLACK_SECONDS = 60.0
_SHOWN_NAMES = 5
# Characters of a text: an error may have 5000, and an event has room for 64 kB in MySQL.
_SHOWN, _SHOWN_OF_MANY = 2_000, 300


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a subscription's replica is current.

    Attributes
    ----------
    state : in a word, as `ccpr status` says it.
    current : whether the replica is as it should be: as new as its objective asks, with all tables, in all targets.
    grave : it is not, and gets older until something is done or passes.
    says : one sentence: how things are and what to do.
    as_of : when the state that the replica shows was the upstream's, by our clock; None before the first point.
    shown : further metadata.
    has_target_trouble : a target fails, or has tables that are behind.
    grave_by_targets : it is grave for this alone: the data of a target that fails is older than the objective.
    """

    subscription: str
    state: str
    current: bool
    grave: bool
    says: str
    as_of: datetime | None = None
    lag_seconds: float | None = None
    objective_seconds: float | None = None
    shown: dict[str, Any] = field(default_factory=dict)
    has_target_trouble: bool = field(default=False, kw_only=True)
    grave_by_targets: bool = field(default=False, kw_only=True)

    @property
    def key(self) -> dg.AssetKey:
        return health_key(self.subscription)

    @property
    def verdict(self) -> str:
        """What it takes an event to change."""
        grave = self.grave and not self.grave_by_targets
        return _verdict(self.state, grave=grave, has_target_trouble=self.has_target_trouble)

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {metadata.STATE: self.state}
        if self.as_of is not None:
            found[metadata.CURRENT_AS_OF] = dg.MetadataValue.timestamp(self.as_of)
        if self.lag_seconds is not None:
            found[metadata.LAG_SECONDS] = round(self.lag_seconds, 3)
        if self.objective_seconds is not None:
            found[metadata.OBJECTIVE_SECONDS] = self.objective_seconds
        return {**found, **self.shown}

    def result(self) -> dg.AssetCheckResult:
        """For a run of the check."""
        return dg.AssetCheckResult(
            passed=self.current, severity=self._severity(), description=self.says, metadata=self.metadata()
        )

    def events(self) -> Iterator[dg.AssetCheckEvaluation | dg.AssetMaterialization]:
        """For `DagsterInstance.report_runless_asset_event`: the check, and a point of the time series."""
        yield dg.AssetCheckEvaluation(
            asset_key=self.key,
            check_name=REPLICA_CURRENT,
            passed=self.current,
            severity=self._severity(),
            description=self.says,
            metadata=self.metadata(),
        )
        shown = {metadata.IS_CURRENT: 1 if self.current else 0, **self.metadata(), metadata.SAYS: self.says}
        tags = {metadata.SUBSCRIPTION_TAG: self.subscription}
        yield dg.AssetMaterialization(self.key, self.says, metadata=shown, tags=tags)

    def _severity(self) -> dg.AssetCheckSeverity:
        return dg.AssetCheckSeverity.ERROR if self.grave else dg.AssetCheckSeverity.WARN


@dataclass(frozen=True, slots=True)
class AllHealth:
    """How all subscriptions are together.

    Attributes
    ----------
    failing : those that are not current.
    """

    total: int
    failing: tuple[Health, ...]

    @property
    def says(self) -> str:
        current = f"{self.total - len(self.failing)} of {self.total} subscriptions are current"
        return "; ".join(
            [
                current,
                *(f"{health.subscription}: {health.says[:_SHOWN_OF_MANY]}" for health in self.failing[:_SHOWN_NAMES]),
            ]
        )

    def result(self) -> dg.AssetCheckResult:
        """For a run."""
        return dg.AssetCheckResult(
            passed=not self.failing, severity=self._severity(), description=self.says, metadata=self._metadata()
        )

    def evaluation(self) -> dg.AssetCheckEvaluation:
        """For `DagsterInstance.report_runless_asset_event`."""
        return dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(APPLIED_TABLES),
            check_name=REPLICA_CURRENT,
            passed=not self.failing,
            severity=self._severity(),
            description=self.says,
            metadata=self._metadata(),
        )

    def _metadata(self) -> dict[str, Any]:
        rows = (
            {"subscription": one.subscription, "state": one.state, "says": one.says[:_SHOWN_OF_MANY]}
            for one in self.failing
        )
        table = metadata.table(rows, dict.fromkeys(("subscription", "state", "says"), "string"))
        return {
            metadata.SUBSCRIPTIONS_TOTAL: self.total,
            metadata.SUBSCRIPTIONS_FAILING: len(self.failing),
            **({metadata.FAILING: table} if self.failing else {}),
        }

    def _severity(self) -> dg.AssetCheckSeverity:
        grave = any(health.grave for health in self.failing)
        return dg.AssetCheckSeverity.ERROR if grave else dg.AssetCheckSeverity.WARN


def health_key(subscription: str) -> dg.AssetKey:
    return metadata.asset_key(HEALTH, subscription)


def read_health(workspace: Workspace, subscription: str, meter: LagMeter | None = None) -> Health:
    """Raises SubscriptionMissing, and errors of the catalog database."""
    return health_of(workspace, workspace.log.row(subscription), meter)


def read_all_health(workspace: Workspace) -> AllHealth:
    """Raises StateUnavailable, StateUnreadable."""
    rows, bad = workspace.log.all_rows()
    failing = [unreadable_health(row.subscription_name, row.error) for row in bad]
    engine = workspace.log.engine
    looked_at = tasks_in_quarantine(engine) | tasks_with_targets(engine)
    for row in rows:
        try:
            with unexpected():
                health = health_of(workspace, row, plain=row.task_id not in looked_at)
        except (StateUnreadable, UnexpectedError) as error:
            health = unreadable_health(row.subscription_name, error)
        if not health.current:
            failing.append(health)
    return AllHealth(len(rows) + len(bad), tuple(failing))


def health_of(workspace: Workspace, row: LogRow, meter: LagMeter | None = None, *, plain: bool = False) -> Health:
    """`plain`: it is known to have neither targets nor tables in quarantine. Raises StateUnreadable,
    StateUnavailable."""
    read, name, now = ReadRow.of(row), row.subscription_name, workspace.clock()
    lag = (meter or LagMeter(workspace.clock)).read(row.task_id, read.context)
    held = workspace.log.is_held(row)
    objective = objective_of(read)
    current = read.context.current
    as_of = None if current is None or current.taken_at is None else _utc(current.taken_at)
    upcoming = next_attempt(row, now, held=held)
    shown = error_shown(read.last_error, upcoming)
    grave, notes = _failure(read, upcoming), list[str]()
    late = lag.seconds is not None and lag.seconds > objective
    if row.state == State.PAUSED:
        grave = ""
        notes.append(f"paused: nothing is copied until `ccpr resume {name}`")
    elif not grave and late:
        why = "an iteration is under way" if held else "see whether ccpr_log_sensor or `ccpr serve` runs"
        grave = f"the state is {lag.seconds:.0f} s old, the objective is {objective:.0f} s: {why}"
    elif lag.seconds is None:
        notes.append("there is no point yet" + ("; the first copy is under way" if held else f": `ccpr run {name}`"))
    if not plain and (tables := Quarantine(workspace.log.engine, row.task_id).entries()):
        shown[metadata.TABLES_QUARANTINED] = len(tables)
        failing = first_names(table.qualified_name for table in tables)
        notes.append(f"tables that fail while the others go on: {failing}")
    behind = [] if plain else _targets_in_trouble(workspace, read, lag)
    late_targets = [target for target in behind if _is_late(target, objective, now)]
    if behind:
        shown[metadata.TARGETS_BEHIND] = len(behind)
        told = (f"{target.name} ({_trouble(target)})" for target in behind)
        notes.append(f"targets that are behind: {first_names(told)}; `ccpr status {name}`")
    working = held and (late or lag.seconds is None)
    says = "; ".join(([grave] if grave else []) + notes) or "the last iteration succeeded, and nothing is behind"
    waiting = Waiting.of(read, now, held=held)
    says = "; ".join([says, *([] if waiting is None else [waiting.text]), *lag.warnings()])
    is_current = not grave and not notes
    return Health(
        name,
        _state(read, working=working),
        is_current,
        bool(grave or late_targets),
        short(says),
        as_of,
        lag.seconds,
        objective,
        shown,
        has_target_trouble=bool(behind),
        grave_by_targets=bool(late_targets and not grave),
    )


def unreadable_health(subscription: str, error: CcprError) -> Health:
    """Of a subscription whose row cannot be read."""
    failure = LastError.of(Failure.of(error), again=False)
    return Health(subscription, "unreadable", False, True, short(says_of(failure)), shown=error_shown(failure, None))


def quick_verdict(workspace: Workspace, row: LogRow, *, has_target_trouble: bool) -> str:
    """`Health.verdict` without a query: quarantine changes in iterations only, and these are reported. Raises
    StateUnreadable."""
    read = ReadRow.of(row)
    lag, objective = LagMeter(workspace.clock).read(row.task_id, read.context), objective_of(read)
    late = lag.seconds is not None and lag.seconds > objective
    grave = row.state != State.PAUSED and (bool(_failure(read, None)) or late)
    return _verdict(_state(read, working=False), grave=grave, has_target_trouble=has_target_trouble)


def objective_seconds(interval: float) -> float:
    """How old a replica may be without `max_lag`: two intervals, and a minute for an iteration to end."""
    return 2 * interval + _SLACK_SECONDS


def longest_silence(interval: float) -> timedelta:
    """For so long nobody may look at a subscription: an executor waits after failures."""
    return timedelta(seconds=round(objective_seconds(interval) + 1.1 * BACK_OFF.longest))


def _verdict(state: str, *, grave: bool, has_target_trouble: bool = False) -> str:
    """Whether an iteration is under way does not matter."""
    targets = ", targets behind" if has_target_trouble else ""
    return f"{'idle' if state == 'copying' else state}, {'grave' if grave else 'well'}{targets}"


UNREADABLE = _verdict("unreadable", grave=True)


def objective_of(read: ReadRow) -> float:
    settings = read.subscription.settings
    return settings.max_lag or objective_seconds(settings.sync_interval)


def _state(read: ReadRow, *, working: bool) -> str:
    if read.row.state == State.PAUSED:
        return "paused"
    if read.row.state == State.ERROR:
        return "stopped"
    if read.last_error is not None:
        return "failing"
    return "copying" if working else "idle"


def _failure(read: ReadRow, upcoming: float | None) -> str:
    """What has failed and what to do; empty if nothing has."""
    error = read.last_error
    if error is None:
        return "stopped" if read.row.state == State.ERROR else ""
    if upcoming is None or not error.again:
        return says_of(error)
    return f"{says_of(error)} Tried again at {_clock(upcoming)}."


def says_of(error: LastError) -> str:
    times = f", {error.attempts} times in a row since {_clock(error.first)}" if error.attempts > 1 else ""
    return f"{error.code}{times}: {error.message}. {error.remedy}"


def error_shown(error: LastError | None, upcoming: float | None) -> dict[str, Any]:
    if error is None:
        return {}
    texts = {
        metadata.ERROR_CODE: error.code,
        metadata.ERROR_MESSAGE: error.message,
        metadata.ERROR_SUBJECT: error.subject,
        metadata.REMEDY: error.remedy,
    }
    found: dict[str, Any] = {name: short(text) for name, text in texts.items()}
    found[metadata.FAILED_ATTEMPTS] = error.attempts
    if error.first:
        found[metadata.FAILING_SINCE] = dg.MetadataValue.timestamp(_utc(error.first))
    if upcoming is not None:
        found[metadata.NEXT_ATTEMPT] = dg.MetadataValue.timestamp(_utc(upcoming))
    return found


def short(text: str) -> str:
    """Without control characters, and not too long."""
    text = printable(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _targets_in_trouble(workspace: Workspace, read: ReadRow, lag: Lag) -> list[TargetStatus]:
    newest = PointHistory(workspace.log.engine, read.row.task_id).newest()
    found = target_statuses(workspace, read, newest, lag)
    return [target for target in found if target.state == TargetState.ACTIVE and target.trouble]


def _is_late(target: TargetStatus, objective: float, now: float) -> bool:
    """Whether it fails, and its data is older than the objective."""
    if target.last_error is None:
        return False
    age = now - target.last_error.first if target.lag_seconds is None else target.lag_seconds
    return age > objective


def _trouble(target: TargetStatus) -> str:
    return target.last_error.code if target.last_error is not None else f"{len(target.behind)} of its tables"


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _clock(seconds: float) -> str:
    return _utc(seconds).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"
