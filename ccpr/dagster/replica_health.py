"""Is a replica current? The check `replica_current` of `replication_health/<name>`, and that of `replication_health`,
which is red or yellow while one of all is."""

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from ccpr.base.errors import Failure, UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.base.wording import first_names
from ccpr.dagster import metadata
from ccpr.dagster.health import (
    FAILING,
    HEALTH,
    PRESSING,
    REPLICA_CURRENT,
    STOPPED,
    UNATTENDED,
    Health,
    error_shown,
    evaluation,
    objective_of,
    replica_verdict,
    says_of,
    severity,
    short,
    utc,
    with_names,
)
from ccpr.dagster.present import changed_last
from ccpr.dagster.target_health import TargetHealth, target_states, targets_health
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.lag import LagMeter
from ccpr.service.running import CATALOGS, SQL_PORTS, counted_by_ports
from ccpr.service.status import ReadRow, Waiting, next_attempt
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LastError, LogRow
from ccpr.state.records import tasks_in
from ccpr.state.states import State
from ccpr.state.tables import quarantine, targets

_SHOWN_NAMES, _SHOWN_FAILING = 5, 20
_LONGEST_TEXT = 1_000  # of each: an event has room for 64 kB in MySQL
DESCRIPTION = (
    "The replica is as new as it should be: its state is not older than two intervals and a minute, the last attempt "
    "did not fail, no table is in quarantine, no target fails or waits. Every tick, run and iteration of the service "
    f"evaluates it, failing ones too; what it says is what to do. Executing it starts no iteration. {PRESSING}"
)


def health_of(workspace: Workspace, row: LogRow, *, plain: bool = False) -> Health:
    """`plain`: it is known to have neither targets nor tables in quarantine. Raises StateUnreadable,
    StateUnavailable."""
    read, name, now = ReadRow.of(row), row.subscription_name, workspace.clock()
    lag = LagMeter(workspace.clock).read(row.task_id, read.context)
    held = workspace.log.is_held(row)
    objective = objective_of(read.subscription.settings)
    current = read.context.current
    as_of = None if current is None or current.taken_at is None else utc(current.taken_at)
    upcoming = next_attempt(row, now, held=held)
    error = None if read.last_error is None else with_names(read.last_error, {"NAME": name})
    shown = error_shown(error, upcoming)
    grave, notes = _failure(row, error, upcoming), list[str]()
    late = lag.seconds is not None and lag.seconds > objective
    if row.state == State.PAUSED:
        grave = ""
        notes.append(f"paused: nothing is copied until `ccpr resume {name}`")
    elif not grave and late:
        why = "an iteration is under way" if held else "see whether ccpr_log_sensor or `ccpr serve` runs"
        grave = f"the state is {lag.seconds:.0f} s old, the objective is {objective:.0f} s: {why}"
    elif lag.seconds is None:
        notes.append("there is no point yet" + ("; the first copy is under way" if held else f": `ccpr run {name}`"))
    if not plain and (tables := workspace.of(row).quarantine.entries()):
        shown[metadata.TABLES_QUARANTINED] = len(tables)
        failing = first_names(table.qualified_name for table in tables)
        notes.append(f"tables that fail while the others go on: {failing}")
    targets = [] if plain else targets_health(workspace, read, lag)
    behind = [one for one in targets if one.trouble]
    late_targets = [target for target in behind if _is_late(target, now)]
    if behind:
        shown[metadata.TARGETS_BEHIND] = len(behind)
        notes += [target.trouble for target in behind]
    working = held and (late or lag.seconds is None)
    says = "; ".join(([grave] if grave else []) + notes) or "the last iteration succeeded, and nothing is behind"
    waiting = Waiting.of(read, now, held=held)
    says = "; ".join([says, *([] if waiting is None else [waiting.text]), *lag.warnings()])
    is_current = not grave and not notes
    if not (is_current or plain or lag.seconds is None):  # then somebody asks what there is all the same
        shown |= changed_last(workspace, row)
        if targets:
            shown[metadata.TARGET_STATES] = target_states(targets)
    state = _state(read, working=working, late=late)
    return Health(
        name,
        state,
        is_current,
        bool(grave or late_targets),
        short(says),
        as_of,
        lag.seconds,
        objective,
        shown,
        has_target_trouble=bool(behind),
        grave_by_targets=bool(late_targets and not grave),
        block=next((target.block for target in behind if target.block), ""),
    )


def unreadable_health(subscription: str, error: CcprError) -> Health:
    """Of a subscription whose row cannot be read."""
    failure = with_names(LastError.of(Failure.of(error), again=False), {"NAME": subscription})
    shown = error_shown(failure, None)
    return Health(subscription, "unreadable", False, True, short(says_of(failure)), shown=shown)


def quick_verdict(workspace: Workspace, row: LogRow, *, has_target_trouble: bool) -> str:
    """`Health.verdict` without a query: quarantine changes in iterations only, and these are reported. Raises
    StateUnreadable."""
    read = ReadRow.of(row)
    lag, objective = LagMeter(workspace.clock).read(row.task_id, read.context), objective_of(read.subscription.settings)
    late = lag.seconds is not None and lag.seconds > objective
    grave = row.state != State.PAUSED and (bool(_failure(row, read.last_error, None)) or late)
    return replica_verdict(_state(read, working=False, late=late), grave=grave, has_target_trouble=has_target_trouble)


UNREADABLE = replica_verdict("unreadable", grave=True)


def _state(read: ReadRow, *, working: bool, late: bool) -> str:
    if read.row.state == State.PAUSED:
        return "paused"
    if read.row.state == State.ERROR:
        return STOPPED
    if read.last_error is not None:
        return FAILING
    return "copying" if working else UNATTENDED if late else "idle"


def _failure(row: LogRow, error: LastError | None, upcoming: float | None) -> str:
    """What has failed and what to do; empty if nothing has."""
    if error is None:
        return "stopped" if row.state == State.ERROR else ""
    return says_of(error, upcoming)


def _is_late(target: TargetHealth, now: float) -> bool:
    """Whether it fails, and its data is older than the objective."""
    if not target.is_failing or target.objective_seconds is None:
        return False
    since = target.shown.get(metadata.FAILING_SINCE)
    age = target.lag_seconds
    if age is None and isinstance(since, dg.TimestampMetadataValue):
        age = now - since.value
    return age is not None and age > target.objective_seconds


# ---- all subscriptions together: where an operator starts


@dataclass(frozen=True, slots=True)
class AllHealth:
    """How all subscriptions are together: those that are not current first. `ports`: see `ports_text`."""

    found: tuple[Health, ...]
    ports: str = ""

    @property
    def failing(self) -> list[Health]:
        return [one for one in self.found if not one.current]

    @property
    def says(self) -> str:
        failing = self.failing
        current = f"{len(self.found) - len(failing)} of {len(self.found)} subscriptions are current"
        return "; ".join([current, *(f"{one.subscription}: {one.says}" for one in failing[:_SHOWN_NAMES])])

    def result(self) -> dg.AssetCheckResult:
        """For a run of the check."""
        level = severity(any(one.grave for one in self.found))
        return dg.AssetCheckResult(
            passed=not self.failing, severity=level, description=self.says, metadata=self._metadata()
        )

    def events(self) -> Iterator[dg.AssetCheckEvaluation | dg.AssetMaterialization]:
        """For `DagsterInstance.report_runless_asset_event`."""
        yield evaluation(dg.AssetKey(HEALTH), REPLICA_CURRENT, self.result())
        shown = {metadata.IS_CURRENT: 0 if self.failing else 1, **self._metadata(), metadata.SUBSCRIPTIONS: self._all()}
        yield dg.AssetMaterialization(dg.AssetKey(HEALTH), self.says, metadata=shown)

    def _metadata(self) -> dict[str, int | str | dg.TableMetadataValue]:
        failing = self.failing
        rows = (
            {"subscription": one.subscription, "state": one.state, "says": one.says[:_LONGEST_TEXT]}
            for one in failing[:_SHOWN_FAILING]
        )
        table = metadata.table(rows, dict.fromkeys(("subscription", "state", "says"), "string"))
        return {
            metadata.SUBSCRIPTIONS_TOTAL: len(self.found),
            metadata.SUBSCRIPTIONS_FAILING: len(failing),
            **({metadata.FAILING: table} if failing else {}),
            **({metadata.PORTS: self.ports} if self.ports else {}),
        }

    def _all(self) -> dg.TableMetadataValue:
        rows = (
            {
                "subscription": one.subscription,
                "current": one.current,
                "state": one.state,
                "current_as_of": "" if one.as_of is None else one.as_of.isoformat(sep=" ", timespec="seconds"),
            }
            for one in self.found
        )
        kinds = {"subscription": "string", "current": "bool", "state": "string", "current_as_of": "string"}
        return metadata.table(rows, kinds)


def read_all_health(workspace: Workspace) -> AllHealth:
    """Raises StateUnavailable, StateUnreadable."""
    rows, bad = workspace.log.all_rows()
    found = [unreadable_health(row.subscription_name, row.error) for row in bad]
    engine = workspace.log.engine
    looked_at = tasks_in(engine, quarantine) | tasks_in(engine, targets)
    for row in rows:
        try:
            with unexpected():
                found.append(health_of(workspace, row, plain=row.task_id not in looked_at))
        except (StateUnreadable, UnexpectedError) as error:
            found.append(unreadable_health(row.subscription_name, error))
    ordered = sorted(found, key=lambda one: (one.current, one.subscription))
    return AllHealth(tuple(ordered), ports_text(workspace))


def ports_text(workspace: Workspace) -> str:
    """Where `ccpr serve` answers clients of MySQL and of Iceberg on this state folder, and what these ports have
    counted; empty if there are none."""
    sql, catalogs = (counted_by_ports(workspace.home, kind) for kind in (SQL_PORTS, CATALOGS))
    return printable("; ".join([*(f"SQL on {one}" for one in sql), *(f"catalog on {one}" for one in catalogs)]))
