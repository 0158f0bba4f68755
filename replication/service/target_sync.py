"""Syncing the targets of a subscription from its mirror: all of them after an iteration, one table again, or as a plan.

The mirror comes first (decision mirror-is-the-first-destination). A target that fails stops neither the mirror nor
another target.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from matrixone.errors import CcprError
from replication.errors import LeaseLost
from replication.failure import Failure
from replication.iteration.iteration import Iteration
from replication.progress import SILENT, Progress
from replication.service.targets import address_of, open_target
from replication.service.workspace import Workspace
from replication.state.history import GlobalPoint, PointHistory
from replication.state.targets import Target, TargetRecords, TargetState
from replication.targets.errors import TargetTableUnknown
from replication.targets.plan import TargetPlan, TargetRules, plan_target, stuck_failure
from replication.targets.sync import SyncResult, TargetSync


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """How the sync of one target ended.

    Attributes
    ----------
    result : None if the target was at the newest point already, or failed.
    failure : of the target as a whole; failures of its tables are in `result.behind`.
    """

    target: str
    result: SyncResult | None
    failure: Failure | None
    seconds: float


def sync_targets(workspace: Workspace, iteration: Iteration, *, progress: Progress = SILENT) -> list[TargetOutcome]:
    """Sync each target to the newest point. The caller has just committed an iteration and holds its lease.

    A target that fails is recorded, and the others are synced. Raises LeaseLost, and errors of the catalog database.
    """
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    history = PointHistory(records.engine, records.task_id)
    newest = history.newest()
    outcomes: list[TargetOutcome] = []
    for target in records.all():
        if newest is None or target.state is TargetState.RELEASED:
            continue
        if target.lsn == newest.lsn and not target.behind and target.failing is None:
            outcomes.append(TargetOutcome(target.name, None, None, 0.0))
            continue
        progress.on_target(target.name)
        started = time.monotonic()
        result, failure = None, None
        if target.needed_lsn is None:  # an initial load that is interrupted is continued at this point
            records.change(target.name, needed_lsn=newest.lsn)
        try:
            with _opened_sync(workspace, iteration, target, history, newest, progress) as sync:
                result = sync.run()
        except LeaseLost:
            raise
        except CcprError as error:
            failure = Failure.of(error)
        if result is not None:
            _record_result(records, target, result)
        elif failure is not None:
            records.record_failure(target, failure, datetime.fromtimestamp(workspace.clock(), UTC))
        outcomes.append(TargetOutcome(target.name, result, failure, time.monotonic() - started))
    return outcomes


def rebuild_table(
    workspace: Workspace, iteration: Iteration, target_name: str, table: str, *, progress: Progress = SILENT
) -> SyncResult:
    """Rebuild a table of a target from the newest point of the mirror; the target's other tables are synced as well.
    `table` is its name upstream, `t` or `db.t`.

    The caller holds the subscription's lease. Raises TargetMissing, TargetTableUnknown, and what `TargetSync.rebuild`
    raises.
    """
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    target = records.get(target_name)
    history = PointHistory(records.engine, records.task_id)
    newest = history.newest()
    if newest is None or target.state is TargetState.RELEASED:
        what = "the mirror has no point yet" if newest is None else "the target was released as a whole"
        raise TargetTableUnknown(
            what, subject=f"target {target_name}", remedy="Run `ccpr run`. A released target has to be added again."
        )
    with _opened_sync(workspace, iteration, target, history, newest, progress) as sync:
        result = sync.rebuild(table)
    _record_result(records, target, result)
    return result


def plan_targets(workspace: Workspace, iteration: Iteration) -> dict[str, TargetPlan | Failure]:
    """What the open iteration's catalog means for each target, by its name. Only definitions are compared, no rows."""
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    catalog = iteration.diff_catalog()
    found: dict[str, TargetPlan | Failure] = {}
    for target in records.all():
        if target.state is TargetState.RELEASED:
            continue
        try:
            with open_target(workspace, target) as destination:
                registered = destination.tables()
                stuck = {
                    table_id: stuck_failure(registered[table_id].table, reason)
                    for table_id, reason in destination.stuck().items()
                }
                kept = {**stuck, **catalog.failures}
                tables = [table for table_id, table in catalog.tables.items() if table_id not in kept]
                found[target.name] = plan_target(_rules(target), registered, tables, kept=kept)
        except CcprError as error:
            found[target.name] = Failure.of(error)
    return found


def _rules(target: Target) -> TargetRules:
    return TargetRules(
        target.dialect,
        address_of(target).database,
        target.policy,
        target.as_text,
        target.task_id,
        target.duplicate_keys,
    )


@contextmanager
def _opened_sync(
    workspace: Workspace,
    iteration: Iteration,
    target: Target,
    history: PointHistory,
    newest: GlobalPoint,
    progress: Progress,
) -> Iterator[TargetSync]:
    with open_target(workspace, target) as destination:
        yield TargetSync(
            destination,
            iteration.mirror,
            history,
            newest,
            _rules(target),
            confirm=iteration.confirm,
            progress=progress,
            reading=iteration.subscription.settings.reading,
        )


def _record_result(records: TargetRecords, target: Target, result: SyncResult) -> None:
    records.record_sync(target.name, result.lsn, result.snapshot_ts, result.needed_lsn, result.behind)
