"""Steps 4, 5 and 7: which objects make each changed table, their manifests, and one commit of the point and the
outcome. Step 6 follows."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow.compute as pc

from ccpr.matrixone.client.capabilities import Capabilities
from ccpr.matrixone.client.database_definitions import (
    SEQUENCE,
    RowRules,
    read_definitions,
    read_row_rules,
    sequence_moved,
)
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.definitions import Definitions
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, zero_dates_of
from ccpr.mirror.errors import MirrorDamaged
from ccpr.pipeline.building import PointBuilder
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.committing import IterationOutcome, IterationResult
from ccpr.pipeline.copying import COPY_OUTPUT, CopyReport
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.known_catalog import settled_by
from ccpr.pipeline.results import Listed
from ccpr.pipeline.step_names import Step
from ccpr.pipeline.steps.release import drop_due_snapshots, sweep
from ccpr.state.context import MOST_UNREPLICATED, Context, Settled

_OBSERVED = 3  # new objects that are looked at until one says what the upstream can do


def apply(
    iteration: Iteration, record: IterationRecord, catalog: CatalogDiff, listed: Listed, report: CopyReport
) -> IterationOutcome:
    """Write the changed tables' manifests, commit the point and the outcome in one transaction, publish the point, drop
    what is due upstream."""
    _observe(iteration, listed, report)
    builder = _builder(iteration, record.snapshot, catalog, listed)
    return _end(iteration, record, catalog, builder.result(listed, report))


def apply_if_idle(
    iteration: Iteration, record: IterationRecord, catalog: CatalogDiff, listed: Listed
) -> IterationOutcome | None:
    """`apply` for an iteration in which nothing has changed; there is nothing to copy. None for another one, which
    stays open."""
    nothing = CopyReport(COPY_OUTPUT.empty_table())
    result = _builder(iteration, record.snapshot, catalog, listed).idle_result(listed, nothing)
    return None if result is None else _end(iteration, record, catalog, result)


def _builder(iteration: Iteration, ref: SnapshotRef, catalog: CatalogDiff, listed: Listed) -> PointBuilder:
    redefined = catalog.relations_digest != iteration.memory.context.relations
    return PointBuilder(
        iteration.mirror,
        iteration.subscription,
        catalog,
        iteration.last,
        iteration.lsn,
        iteration.lease.claim.fence,
        ref.at,
        iteration.enter,
        redefined or _sequences_moved(iteration, ref, catalog, listed.sequences),
    )


def _sequences_moved(iteration: Iteration, ref: SnapshotRef, catalog: CatalogDiff, named: frozenset[str]) -> bool:
    """Whether a sequence of these names has another value than at the last point. A merge of its objects names it,
    too."""
    subscription, last = iteration.subscription, iteration.last.point
    if not named or last is None or not subscription.publication.is_readable:
        return False
    try:
        found = iteration.mirror.definitions_in(iteration.committer.history.definitions_of(last.lsn))
    except MirrorDamaged:
        return True  # a new file takes its place
    known = {(one.database, state.name): state for one in found for state in one.sequences}
    places = [(subscription.database, name) for name in named]
    if subscription.of_account:
        places = [(table.database, table.name) for table, kind in catalog.relations() if kind == SEQUENCE]
    session = iteration.sessions.session
    return any(
        sequence_moved(session, database, known.get((database, name)), name, ref.at)
        for database, name in sorted(places)
        if name in named
    )


def _observe(iteration: Iteration, listed: Listed, report: CopyReport) -> None:
    """What a new object says of the upstream. It is remembered with the commit."""
    memory = iteration.memory
    known = memory.context.capabilities or Capabilities()
    if known.abort_column and known.early_creates:
        return  # no release goes back
    rows = listed.wanted
    rows = rows.filter(pc.and_(rows.column("appendable"), pc.invert(rows.column("is_tombstone"))))
    rows = rows.filter(pc.is_in(rows.column("name"), report.rows.column("name")))
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("create_physical", "descending")])[:_OBSERVED])
    columns = (rows.column(name).to_pylist() for name in ("name", "create_physical", "create_logical"))
    for name, *created in zip(*columns, strict=True):
        try:
            known = known.seen_in(iteration.mirror.open_object(name, None), Timestamp(*created))
        except CcprError:
            continue  # damaged: its table's readers report that
        memory.context = replace(memory.context, capabilities=known)
        return


def _end(
    iteration: Iteration, record: IterationRecord, catalog: CatalogDiff, result: IterationResult
) -> IterationOutcome:
    """Commit, publish, clear away."""
    iteration.enter(Step.OUTCOME)
    memory, committer, last = iteration.memory, iteration.committer, iteration.last
    before, definitions = memory.context, ()
    context = replace(_committed(before, catalog, result), by_rows=iteration.subscription.is_logical)
    settled = settled_by(iteration.subscription, iteration.lsn, context, catalog, last, result)
    context = replace(context, settled=settled)
    if result.points is not None:
        rules = read_row_rules(iteration.sessions.session, iteration.subscription.publication, record.snapshot.at)
        if not rules.problems:
            ruled = rules.among(table.qualified_name for table in catalog.named.values())
            context = replace(context, row_rules=ruled[:MOST_UNREPLICATED])
        definitions = _definitions(iteration, record.snapshot, catalog, rules)
    committer.commit(record.snapshot, context, last, result, definitions)
    memory.committed(context)
    iteration.record = None
    committer.publish_pending()
    iteration.enter(Step.RELEASE)
    orphans = before.attempts > 1 or record.results.had_writers
    record.results.clear()
    drop_due_snapshots(iteration)
    sweep(iteration, orphans=orphans)
    return _outcome(iteration, record.snapshot, result, settled)


def _committed(before: Context, catalog: CatalogDiff, result: IterationResult) -> Context:
    context = replace(before.committed(), unreplicated=catalog.unreplicated[:MOST_UNREPLICATED])
    if result.points is not None:
        context = replace(context, relations=catalog.relations_digest)
    if fetched := result.report.objects_fetched:
        context = replace(context, copied_last=(fetched, result.report.objects_direct))
    return context


def _definitions(
    iteration: Iteration, ref: SnapshotRef, catalog: CatalogDiff, rules: RowRules
) -> tuple[Definitions, ...]:
    """What the point has besides tables. Read for points only: an idle iteration asks nothing more."""
    if not catalog.is_whole:
        return ()
    subscription, found = iteration.subscription, catalog.catalog
    databases: Mapping[str, int] = {subscription.database: found.database_id}
    if subscription.of_account:
        databases = {name: one.number for name, one in catalog.lists.items()}
    session, publication = iteration.sessions.session, subscription.publication
    return read_definitions(session, publication, databases, found.tables, catalog.relations(), ref.at, rules)


def _outcome(
    iteration: Iteration, ref: SnapshotRef, result: IterationResult, settled: Settled | None
) -> IterationOutcome:
    last, report = iteration.last, result.report
    shown = last.tables.moved(iteration.lsn, result.points or ())
    refs = [table for number, table in shown.refs.items() if number not in result.behind]
    zero_dates = zero_dates_of(point.table for point in shown.values()) if settled is None else settled.zero_dates
    lag = iteration.lag.since(iteration.subscription.task_id, ref)
    newest = None if last.point is None else (last.point.lsn, last.point.at)
    if result.points is not None:
        newest = iteration.lsn, ref.at
    return IterationOutcome(
        lsn=iteration.lsn,
        point=result.points is not None,
        at=ref.at,
        tables=sum(table.kind is not Kind.INDEX for table in refs),
        tables_changed=result.tables_changed,
        objects_copied=report.objects_fetched,
        bytes_copied=report.bytes_fetched,
        objects_direct=report.objects_direct,
        objects_total=sum(table.objects for table in refs),
        bytes_total=sum(table.bytes for table in refs),
        lag_seconds=lag.seconds or 0.0,
        clock_skew_seconds=lag.skew_seconds,
        quarantined=tuple(sorted(table.qualified_name for table, _ in result.failed.values())),
        zero_dates=zero_dates,
        newest_point=None if newest is None else newest[0],
        newest_point_ts=None if newest is None else newest[1].physical,
    )
