"""May what depends on a table be run? The blocking check `table_current` of each table's asset: it fails while the
replica fails or is too old, or the table is in quarantine. The table itself is materialized only when its rows or
definition change, so `deps=[table]` and `AutomationCondition.eager()` mean one run a change, and
`AutomationCondition.all_deps_blocking_checks_passed()` holds back what other assets would start meanwhile.

What it says has no number in it: a table has an event when that changes, and no others. `replica_health_sensor` reports
them, of the tables that the code location defines.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from ccpr.dagster import metadata
from ccpr.dagster.health import HEALTH
from ccpr.dagster.inventory import KnownSubscription
from ccpr.dagster.keys import ProjectKeys, own_keys
from ccpr.dagster.replica_health import quick_verdict
from ccpr.dagster.replication import Replication, as_failure
from ccpr.dagster.tables import table_key
from ccpr.dagster.verdicts import known_verdicts, news_of, remember, verdict_key
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.database import batches
from ccpr.state.log_rows import LogRow
from ccpr.state.records import tasks_in
from ccpr.state.tables import quarantine

TABLE_CURRENT = "table_current"
_DESCRIPTION = (
    "The replica is as new as it should be, and the table is not in quarantine: what is built from it may run. It "
    "blocks: `AutomationCondition.all_deps_blocking_checks_passed()` waits for it. Executing it starts no iteration."
)
_READ = 500  # checks whose last evaluation is read together
_GRAVE = "grave"  # see `ccpr.dagster.health.replica_verdict`


@dataclass(frozen=True, slots=True)
class TableVerdicts:
    """What `table_current` says of the tables of a subscription. `is_red`: of all of them. `quarantined`: keys of those
    that are in quarantine. `defined`: keys of those that have the check: by the project's ours."""

    subscription: str
    is_red: bool
    quarantined: frozenset[dg.AssetKey]
    defined: Mapping[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        apart = sorted(key.to_user_string() for key in self.quarantined)
        return f"{self.is_red}, {apart}, {verdict_key('', str(sorted(self.defined)))}"

    def says(self, key: dg.AssetKey) -> str:
        """Empty if nothing is wrong with the table of this key, which is ours."""
        if key in self.quarantined:
            return "the table is in quarantine: each iteration tries it again, and `ccpr status` has the reason"
        page = f"{HEALTH}/{printable(self.subscription)}"
        return f"the replica is not current: `{page}` says why, and what to do" if self.is_red else ""


def table_checks(known: KnownSubscription, project: ProjectKeys) -> dg.AssetChecksDefinition:
    """The checks of all tables, of which there are some, in one operation; each can be executed alone."""
    own = (table_key(known.name, one.database, one.name) for one in known.tables)
    keys = {project.of(key): key for key in own}

    @dg.multi_asset_check(
        name=f"{TABLE_CURRENT}_{verdict_key('tables', '/'.join([*project.prefix, known.name])).rpartition('/')[2]}",
        specs=[dg.AssetCheckSpec(TABLE_CURRENT, asset=key, description=_DESCRIPTION, blocking=True) for key in keys],
        can_subset=True,
    )
    def check(context: dg.AssetCheckExecutionContext, replication: Replication) -> Iterator[dg.AssetCheckResult]:
        try:
            found = _verdicts(replication.workspace, replication.workspace.log.row(known.name))
        except CcprError as error:
            raise as_failure(error) from error
        for chosen in context.selected_asset_check_keys:
            says = found.says(keys[chosen.asset_key])
            yield dg.AssetCheckResult(
                passed=not says, asset_key=chosen.asset_key, check_name=TABLE_CURRENT, description=says or None
            )

    return check


def report_table_checks(
    context: dg.SensorEvaluationContext,
    workspace: Workspace,
    rows: Sequence[LogRow],
    verdicts: Mapping[str, str],
    prefix: Sequence[str],
    end: float,
) -> None:
    """Report what has changed of the tables that are defined here; those first on which others depend. What there is no
    time for before `end` is left to the next tick. `verdicts`: of the replicas, by name. Raises StateUnavailable."""
    if context.repository_def is None:
        return
    graph, instance = context.repository_def.asset_graph, context.instance
    own, defined = own_keys(graph, prefix), dict[str, dict[dg.AssetKey, dg.AssetKey]]()
    checked = [key.asset_key for key in graph.asset_check_keys if key.name == TABLE_CURRENT and key.asset_key in own]
    for key in sorted(checked, key=lambda key: (not graph.get(key).child_keys, key)):
        defined.setdefault(own[key].path[0], {})[key] = own[key]
    troubled, found = tasks_in(workspace.log.engine, quarantine), dict[str, TableVerdicts]()
    for row in rows:
        name = row.subscription_name
        if keys := defined.get(metadata.asset_key(name).path[0]):
            apart = _quarantined(workspace, row) if row.task_id in troubled else frozenset[dg.AssetKey]()
            found[verdict_key("tables", row.task_id)] = TableVerdicts(
                name, _GRAVE in verdicts.get(name, _GRAVE), apart, keys
            )
    for key, one in news_of(known_verdicts(instance, found), found).items() if found else ():
        if not _report(instance, one, end):
            return
        remember(instance, {key: one})


def _report(instance: dg.DagsterInstance, found: TableVerdicts, end: float) -> bool:
    """Returns whether there was time for all."""
    last = dict[dg.AssetCheckKey, AssetCheckExecutionRecord]()
    for part in batches(list(found.defined), _READ):
        checks = [dg.AssetCheckKey(key, TABLE_CURRENT) for key in part]
        last.update(instance.event_log_storage.get_latest_asset_check_execution_by_key(checks))
    for key, own in found.defined.items():
        says, record = found.says(own), last.get(dg.AssetCheckKey(key, TABLE_CURRENT))
        if record is not None and record.evaluation is not None and (record.evaluation.description or "") == says:
            continue
        if time.monotonic() >= end:
            return False
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=key, check_name=TABLE_CURRENT, passed=not says, description=says or None)
        )
    return True


def _verdicts(workspace: Workspace, row: LogRow) -> TableVerdicts:
    verdict = quick_verdict(workspace, row, has_target_trouble=False)
    return TableVerdicts(row.subscription_name, _GRAVE in verdict, _quarantined(workspace, row))


def _quarantined(workspace: Workspace, row: LogRow) -> frozenset[dg.AssetKey]:
    entries = workspace.of(row).quarantine.entries()
    return frozenset(metadata.asset_key(row.subscription_name, one.database, one.name) for one in entries)
