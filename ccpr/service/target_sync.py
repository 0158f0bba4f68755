"""Syncing the targets of a subscription from its mirror: all of them after an iteration, one table again, or as a plan.

The mirror comes first (decision mirror-is-the-first-destination). A target that fails stops neither the mirror nor
another target.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from ccpr.base.carrying import Carry, Work, WorkKind
from ccpr.base.errors import Failure
from ccpr.base.loops import unexpected
from ccpr.base.progress import SILENT, Progress
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.errors import PointNotReached
from ccpr.pipeline.errors import PlanOutdated
from ccpr.pipeline.iteration import Iteration
from ccpr.service.workspace import SyncedUnder, Workspace
from ccpr.state.care_records import MadeBy
from ccpr.state.errors import LeaseLost
from ccpr.state.history import GlobalPoint
from ccpr.state.point_rows import TablePoint
from ccpr.state.targets import Target, TargetRecords, TargetState, may_be_restored
from ccpr.targets.errors import DdlWaits, TargetDropsHeld, TargetMoved, TargetTableUnknown

if TYPE_CHECKING:  # imported where there is a target
    import pyarrow as pa

    from ccpr.lake.lake_plan import PlannedLakeTable
    from ccpr.lake.lake_sync import LakeResult
    from ccpr.mirror.row_sums import Summing
    from ccpr.pipeline.spark.choice import CopierChoice
    from ccpr.state.log import SubscriptionRecords
    from ccpr.targets.expected_tables import TargetRules
    from ccpr.targets.sync import SyncResult, TargetSync
    from ccpr.targets.target_plan import TargetPlan


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """How the sync of one target ended. `target`: its name; a lake is a target, too. `result`: None if the target was
    at the newest point already, or failed. `failure`: of the target as a whole; failures of its tables are in
    `result.behind`."""

    target: str
    result: "SyncResult | LakeResult | None"
    failure: Failure | None
    seconds: float


def sync_targets(
    workspace: Workspace,
    iteration: Iteration,
    *,
    ask: bool = False,
    progress: Progress = SILENT,
    carry: Carry | None = None,
) -> list[TargetOutcome]:
    """Sync each target to the newest point. The caller has just committed an iteration and holds its lease. A target
    that is recorded there is asked where it is once a minute (`VERIFY_SECONDS`). It is synced all the same if the last
    iteration was long ago, or all are to be asked (`ask`). `carry`: who does what can be shared out; without it Spark
    where it is named and through sooner.

    A target that fails is recorded, and the others are synced. Raises LeaseLost, and errors of the catalog database.
    """
    records = workspace.of(iteration.subscription).targets
    ask = ask or may_be_restored(iteration.pause_seconds, iteration.subscription.settings.sync_interval)
    how = {"ask": ask, "progress": progress, "carry": carry}
    outcomes = (sync_target(workspace, iteration, target, **how) for target in records.all())
    return [outcome for outcome in outcomes if outcome is not None]


def sync_target(
    workspace: Workspace,
    under: SyncedUnder,
    target: Target,
    *,
    ask: bool = False,
    progress: Progress = SILENT,
    carry: Carry | None = None,
) -> TargetOutcome | None:
    """Sync one target to the newest point; `ask`: even if it is recorded there. None if the target was released, or if
    there is no point yet. Raises LeaseLost, and errors of the catalog database."""
    records = workspace.of(under.subscription)
    newest = records.history.newest()
    if newest is None or target.state is TargetState.RELEASED:
        return None
    started = time.monotonic()
    if target.lsn == newest.lsn and target.is_quiet and not target.behind and not ask:
        failure = None
        if target.is_to_verify(workspace.now()):
            from ccpr.service.targets import verify_target  # which few iterations need

            failure = verify_target(workspace, under.subscription, target)
        if failure is None or failure.code != TargetMoved.code:
            return TargetOutcome(target.name, None, failure, time.monotonic() - started)
    progress.on_target(target.name)
    result: SyncResult | LakeResult | None = None
    failure = None
    if target.needed_lsn is None:  # an initial load that is interrupted is continued at this point
        records.targets.change(target.name, needed_lsn=newest.lsn)
    sums = LoadedSums(records, newest)
    try:
        with unexpected():
            result = _synced(workspace, under, target, newest, progress, sums, carry)
    except LeaseLost:
        raise
    except CcprError as error:
        failure = Failure.of(error)
    if result is not None:
        _record_result(workspace, records.targets, target, result)
        sums.record(workspace.now())
        got = {one.table for one in result.tables}

        def points() -> Iterator[TablePoint]:
            return (one for one in records.history.tables(newest.lsn).values() if one.table.qualified_name in got)

        workspace.lineage.synced(under.subscription.name, under.mirror, target, points)
    elif failure is not None:
        records.targets.record_failure(target, failure, workspace.now())
    return TargetOutcome(target.name, result, failure, time.monotonic() - started)


def _synced(
    workspace: Workspace,
    under: SyncedUnder,
    target: Target,
    newest: GlobalPoint,
    progress: Progress,
    sums: "LoadedSums",
    carry: Carry | None,
) -> "SyncResult | LakeResult":
    carry = _carrier(workspace, progress, carry)
    if target.lake is not None:
        from ccpr.service.lakes import opened_sync

        return opened_sync(workspace, under, target, newest, progress=progress, carry=carry).run()
    with _opened_sync(workspace, under, target, newest, progress, sums=sums, carry=carry) as sync:
        result = sync.run()
        sums.done = result
        return result


def sync_lake(
    workspace: Workspace, iteration: Iteration, lake: Target, table: str | None = None, *, progress: Progress = SILENT
) -> "LakeResult":
    """Publish what a lake lacks, and one table of it anew, if it is named.

    The caller holds the subscription's lease. Raises LakeTableUnknown; PointNotReached if the mirror has no point yet;
    and what `LakeSync.run` raises.
    """
    from ccpr.service.lakes import opened_sync

    records = workspace.of(iteration.subscription)
    newest = records.history.newest()
    if newest is None:
        remedy = f"Run the first iteration: `ccpr run {iteration.subscription.name}`."
        raise PointNotReached("the mirror has no point yet", subject=f"lake {lake.name}", remedy=remedy)
    carry = _carrier(workspace, progress)
    sync = opened_sync(workspace, iteration, lake, newest, progress=progress, carry=carry)
    result = sync.run() if table is None else sync.rebuild(table)
    _record_result(workspace, records.targets, lake, result)
    return result


def pin_points(records: TargetRecords, newest: int) -> None:
    """Let retention keep the newest point and all later ones for targets that have none yet. By the holder of the
    lease, before a sync begins that iterations do not wait for: no point of it can expire."""
    for target in records.all():
        if target.needed_lsn is None and target.state is TargetState.ACTIVE:
            records.change(target.name, needed_lsn=newest)


def rebuild_table(
    workspace: Workspace, iteration: Iteration, target_name: str, table: str, *, progress: Progress = SILENT
) -> "SyncResult | LakeResult":
    """Rebuild a table of a target from the newest point of the mirror; the target's other tables are synced as well.
    `table` is its name upstream, `t` or `db.t`.

    The caller holds the subscription's lease. Raises TargetMissing, TargetTableUnknown, and what `TargetSync.rebuild`
    raises; for a lake what `sync_lake` raises.
    """
    records = workspace.of(iteration.subscription)
    target, newest = records.targets.any(target_name), records.history.newest()
    if target.lake is not None:
        return sync_lake(workspace, iteration, target, table, progress=progress)
    if newest is None or target.state is TargetState.RELEASED:
        what = "the mirror has no point yet" if newest is None else "the target was released as a whole"
        raise TargetTableUnknown(
            what, subject=f"target {target_name}", remedy="Run `ccpr run`. A released target must be added again."
        )
    return _done(workspace, iteration, target, newest, progress, lambda sync: sync.rebuild(table))


def approve_drops(
    workspace: Workspace, iteration: Iteration, target_name: str, *, progress: Progress = SILENT
) -> "SyncResult":
    """Sync a target to the newest point, and let it drop the tables that it was recorded to hold back. Others that are
    gone since are held back again, if they are many.

    The caller holds the subscription's lease. Raises TargetMissing; TargetTableUnknown if it holds none back; and what
    `TargetSync.run` raises.
    """
    records = workspace.of(iteration.subscription)
    target, newest = records.targets.get(target_name), records.history.newest()
    held = _held(target)
    if newest is None or target.state is TargetState.RELEASED or not held:
        raise TargetTableUnknown(
            "it holds back no table that is to be dropped",
            subject=f"target {target_name}",
            remedy="`ccpr status NAME` says what its tables wait for. After the next run it may be another list.",
        )
    return _done(workspace, iteration, target, newest, progress, rules=_rules(target, held))


def approve_table(
    workspace: Workspace, iteration: Iteration, target_name: str, table: str, *, progress: Progress = SILENT
) -> "SyncResult":
    """Sync a target to the newest point, and let one table of it have the change that it was recorded to wait with:
    exactly the statements that `ccpr status` shows, or its drop. `table` is its name upstream, `t` or `db.t`.

    The caller holds the subscription's lease. Raises TargetMissing; TargetTableUnknown if no such table waits for an
    approval; PlanOutdated if other statements would be run by now; and what `TargetSync.run` raises.
    """
    records = workspace.of(iteration.subscription)
    target, newest = records.targets.get(target_name), records.history.newest()
    waiting = [one for one in target.behind if one.failure.code in (DdlWaits.code, TargetDropsHeld.code)]
    found = [one for one in waiting if table in (one.table, one.table.partition(".")[2])]
    if newest is None or target.state is TargetState.RELEASED or not found:
        names = ", ".join(one.table for one in waiting[:20])
        raise TargetTableUnknown(
            "it does not wait for an approval",
            subject=f"table {table} of target {target_name}",
            remedy=f"These do: {names}." if names else "No table of the target does; see `ccpr status NAME`.",
        )
    (one,) = found
    if one.failure.code == TargetDropsHeld.code:
        rules = _rules(target, frozenset({one.table}))
    else:
        rules = replace(_rules(target), altered=frozenset({one.table}))
        with _opened_sync(workspace, iteration, target, newest, progress, rules=_rules(target)) as sync:
            steps = [step for step in sync.plan().behind.values() if step.table.qualified_name == one.table]
        if [step.statements for step in steps] != [one.statements]:
            raise PlanOutdated(
                "what waits is no longer what was shown",
                subject=f"table {one.table} of target {target_name}",
                remedy="Nothing was done. The next iteration records what waits now; look at it in `ccpr status NAME`.",
            )
    return _done(workspace, iteration, target, newest, progress, rules=rules)


def _done(
    workspace: Workspace,
    iteration: Iteration,
    target: Target,
    newest: GlobalPoint,
    progress: Progress,
    work: "Callable[[TargetSync], SyncResult]" = lambda sync: sync.run(),
    *,
    rules: "TargetRules | None" = None,
) -> "SyncResult":
    with _opened_sync(workspace, iteration, target, newest, progress, rules=rules) as sync:
        result = work(sync)
    _record_result(workspace, workspace.of(target).targets, target, result)
    return result


def plan_targets(workspace: Workspace, iteration: Iteration) -> "dict[str, TargetPlan | Failure]":
    """What the open iteration's catalog means for each target, by its name. Only definitions are compared, no rows."""
    from ccpr.pipeline.driver import catalog_of
    from ccpr.service.targets import open_target
    from ccpr.targets.target_plan import plan_target, stuck_failure

    records = workspace.of(iteration.subscription).targets
    catalog = catalog_of(iteration)
    found: dict[str, TargetPlan | Failure] = {}
    for target in records.databases():
        if target.state is TargetState.RELEASED:
            continue
        try:
            with open_target(workspace, target) as destination:
                registered = destination.tables()
                stuck = {
                    table_id: stuck_failure(registered[table_id].table, reason)
                    for table_id, reason in destination.stuck().items()
                }
                rules = _rules(target)
                wanted = {number: table for number, table in catalog.tables.items() if rules.takes(table.database)}
                failed = {number: failure for number, failure in catalog.failures.items() if number in wanted}
                kept = {**stuck, **failed}
                tables = [table for table_id, table in wanted.items() if table_id not in kept]
                found[target.name] = plan_target(rules, registered, tables, kept=kept)
        except CcprError as error:
            found[target.name] = Failure.of(error)
    return found


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """Work that can be shared out, and who does it as things stand. `target`, `table`: empty for what is copied or
    read, of all of them."""

    target: str
    table: str
    choice: "CopierChoice"


def plan_work(
    workspace: Workspace,
    iteration: Iteration,
    size: int,
    targets: "Mapping[str, TargetPlan | Failure]",
    lakes: "Mapping[str, Sequence[PlannedLakeTable] | Failure]",
) -> list[PlannedWork]:
    """Who copies the `size` bytes of a plan, or reads tables as a whole, and loads, changes and publishes for the
    targets; by stored bytes."""
    from ccpr.pipeline.copying import CopyJob
    from ccpr.pipeline.driver import catalog_of, listed_of
    from ccpr.pipeline.plan import sums_by_table
    from ccpr.pipeline.spark.engine import Copier
    from ccpr.targets.address import address_of
    from ccpr.targets.target_plan import Build

    store_url, listed, catalog = iteration.mirror.store.url, listed_of(iteration), catalog_of(iteration)
    records, choice_of = workspace.of(iteration.subscription).targets, Copier(workspace.home).chooser()
    whole, added = sums_by_table(listed.wanted), sums_by_table(listed.diff.added)
    source = CopyJob.of(iteration.subscription, store_url).source
    read = sum(one.size for one in listed.reads.values() if one.is_large)
    found = [PlannedWork("", "", choice_of(WorkKind.READ if read else WorkKind.COPY, read or size, store_url, source))]
    for name, plan in targets.items():
        if isinstance(plan, Failure):
            continue
        target, built = records.get(name), {step.table.id for step in plan.of(Build)}
        waiting, place = plan.behind.keys() - built, address_of(target).endpoint.address
        for table in catalog.tables.values():
            kind, sums = (WorkKind.LOAD, whole) if table.id in built else (WorkKind.CHANGE, added)
            if table.id in sums and table.id not in waiting and target.source_database in ("", table.database):
                choice = choice_of(kind, sums[table.id][1], store_url, place)
                found.append(PlannedWork(name, table.qualified_name, choice))
    for name, tables in lakes.items():
        place = records.lake(name).uri.partition("?")[0]
        for one in () if isinstance(tables, Failure) else tables:
            if one.bytes:
                choice = choice_of(WorkKind.PUBLISH, one.bytes, store_url, place)
                found.append(PlannedWork(name, one.table, choice))
    return found


def _held(target: Target) -> frozenset[str]:
    """The tables that it was recorded to hold back."""
    return frozenset(table.table for table in target.behind if table.failure.code == TargetDropsHeld.code)


def _rules(target: Target, approved: frozenset[str] = frozenset()) -> "TargetRules":
    from ccpr.targets.address import address_of
    from ccpr.targets.expected_tables import TargetRules

    assert target.dialect is not None  # it is a database
    settings = target.settings
    return TargetRules(
        target.dialect,
        address_of(target).database,
        settings.ddl_policy,
        settings.as_text,
        target.task_id,
        settings.duplicate_keys,
        target.source_database,
        settings.max_drop,
        approved,
        _held(target),
    )


def _carrier(workspace: Workspace, progress: Progress, carry: Carry | None = None) -> Carry:
    """One whose work ends by an error of the progress, too."""

    def carried(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        from ccpr.pipeline.spark.engine import Copier

        def beating() -> None:
            progress.on_rows(0, 0)
            beat()

        return (carry or Copier(workspace.home).carry)(work, here, beating)

    return carried


@contextmanager
def _opened_sync(
    workspace: Workspace,
    under: SyncedUnder,
    target: Target,
    newest: GlobalPoint,
    progress: Progress,
    *,
    sums: "LoadedSums | None" = None,
    rules: "TargetRules | None" = None,
    carry: Carry | None = None,
) -> "Iterator[TargetSync]":
    from ccpr.service.targets import open_target
    from ccpr.targets.sync import TargetSync

    with open_target(workspace, target, carry or _carrier(workspace, progress)) as destination:
        yield TargetSync(
            destination,
            under.mirror,
            workspace.of(under.subscription).history,
            newest,
            rules or _rules(target),
            confirm=under.confirm,
            progress=progress,
            reading=under.subscription.settings.reading,
            **({} if sums is None else {"on_loaded": sums.add}),
        )


class LoadedSums:
    """Sums over the rows of tables that a target loads whole, for a later drill to compare with.

    Attributes
    ----------
    done : says which tables were loaded as they are at the point, and the sums of those that tasks have read.
    """

    def __init__(self, records: "SubscriptionRecords", point: GlobalPoint) -> None:
        self._records, self._point, self._lock = records, point, Lock()
        self._sums: dict[int, Summing] = {}
        self.done: SyncResult | None = None

    def add(self, table_id: int, read: "pa.Table", given: "pa.Table") -> None:
        """See `TargetSync`."""
        from ccpr.mirror.row_sums import Summing

        with self._lock:
            if table_id not in self._sums:
                self._sums[table_id] = Summing.of_users(read.schema)
            self._sums[table_id].add(read)

    def record(self, now: datetime) -> None:
        if self.done is None:
            return
        found = {table_id: self._sums[table_id].row_sum() for table_id in self.done.whole if table_id in self._sums}
        if found := {**found, **self.done.row_sums}:
            self._records.row_sums.complete(self._point.lsn, found, MadeBy.TARGET, now)


def _record_result(
    workspace: Workspace, records: TargetRecords, target: Target, result: "SyncResult | LakeResult"
) -> None:
    reached = result.lsn, result.snapshot_ts, result.needed_lsn
    records.record_sync(target, *reached, result.behind, workspace.now())
