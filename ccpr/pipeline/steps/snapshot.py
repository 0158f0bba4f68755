"""Step 1: the snapshot that opens the iteration, whose name is recorded before it is made (decision
snapshot-names-first); and the upstream's catalog at it, compared with the last point by table id. Asked again it gives
the same answer (decision catalog-by-checksum)."""

import logging
from dataclasses import replace
from functools import partial

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.capabilities import Capabilities, probe
from ccpr.matrixone.client.errors import SnapshotGone
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.databases import chosen_databases, still_there
from ccpr.pipeline.ends import check_gone
from ccpr.pipeline.errors import NoOpenIteration, UpstreamClockBack
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.known_catalog import catalog_inputs, known_catalog
from ccpr.pipeline.lag import taken_at
from ccpr.pipeline.results import sweep_results
from ccpr.pipeline.scope import diff_scope
from ccpr.pipeline.step_names import Step
from ccpr.state.context import Context

_logger = logging.getLogger(__name__)


def take_snapshot(iteration: Iteration) -> IterationRecord:
    """Open the iteration. One that was interrupted goes on with the snapshot that it has."""
    iteration.enter(Step.CATALOG)
    memory = iteration.memory
    made_now = memory.context.open is None  # the open snapshot's name is this process's
    if made_now:
        memory.context = _opened(iteration, memory.context)
    _start(iteration)
    found = _read(iteration, made_now=made_now)
    if found is None:  # gone, or created again by others
        give_up(iteration)
        memory.remember(_opened(iteration, memory.context))
        found = _read(iteration, made_now=True)
        assert found is not None
    if found.at.physical < iteration.watermark:
        raise UpstreamClockBack(
            f"snapshot {found.name} is of {found.at}, before the replica's watermark {iteration.watermark}",
            subject=iteration.subject,
        )
    capabilities = _probed(iteration)
    if capabilities.relay:
        age = upstream_snapshots.snapshot_age(
            iteration.sessions.session, found.name, iteration.subscription.publication
        )
        found = replace(found, taken_at=iteration.clock(), age=age)
    memory.context = replace(memory.context, open=found, capabilities=capabilities)
    iteration.lag.since(iteration.subscription.task_id, found)
    sweep_work(iteration, found)
    return iteration.open_at(found)


def give_up(iteration: Iteration) -> None:
    """The open snapshot is of no use, and what was derived from it is void; the next one has another name."""
    iteration.memory.remember(iteration.memory.context.abandoned(iteration.clock()))
    iteration.record = None


def resume(iteration: Iteration) -> IterationRecord:
    """The open iteration's snapshot. One that an earlier run left open is taken up again, as every step but the first
    needs it.

    Raises NoOpenIteration if there is none, or if its snapshot is no longer upstream: what was derived from it is void.
    """
    if iteration.record is not None:
        return iteration.record
    ref = iteration.memory.context.open
    if ref is None or ref.physical is None:
        raise NoOpenIteration("no iteration is open", subject=iteration.subject)
    _start(iteration)
    if _read(iteration, made_now=False) is None:
        raise NoOpenIteration(f"the open iteration's snapshot {ref.name} is gone upstream", subject=iteration.subject)
    return iteration.open_at(ref)


def sweep_work(iteration: Iteration, ref: SnapshotRef) -> None:
    """Store what is remembered, and remove what interrupted runs left in the mirror: half-written files, results of
    earlier iterations' steps."""
    # It renews our lease, or raises: what looks half-written would be a successor's then.
    iteration.memory.remember(iteration.memory.context)
    iteration.mirror.store.sweep()
    sweep_results(iteration.mirror, ref)


def _opened(iteration: Iteration, context: Context) -> Context:
    subscription = iteration.subscription
    return context.opened(subscription.uid, iteration.lsn, of_account=subscription.of_account)


def _start(iteration: Iteration) -> None:
    iteration.memory.start()
    iteration.committer.publish_pending()


def _read(iteration: Iteration, *, made_now: bool) -> SnapshotRef | None:
    """The open snapshot with its time, created where that is not known yet; None if it is not upstream any more."""
    context, session = iteration.memory.context, iteration.sessions.session
    ref, publication = context.open, iteration.subscription.publication
    assert ref is not None
    if ref.physical is None:
        _create(iteration, ref.name)
        physical = upstream_snapshots.snapshot_timestamp(session, ref.name, publication).physical
        when = taken_at(physical, iteration.clock(), context.current, made_now=made_now)
        return replace(ref, physical=physical, taken_at=when)
    try:
        at = upstream_snapshots.snapshot_timestamp(session, ref.name, publication)
    except SnapshotGone:
        return None
    return ref if at == ref.at else None


def _create(iteration: Iteration, name: str) -> None:
    subscription, session = iteration.subscription, iteration.sessions.session
    if not subscription.of_account:
        upstream_snapshots.create_snapshot(session, name, subscription.publication, subscription.database)
        return
    first = next(iter(chosen_databases(session, subscription)[0]))
    with still_there(subscription):
        upstream_snapshots.create_account_snapshot(session, name, subscription.publication, first)


def _probed(iteration: Iteration) -> Capabilities:
    """What the upstream can do, asked in every iteration: it may have been upgraded in place since the last one."""
    known, name = iteration.memory.context.capabilities, iteration.subscription.name
    found = probe(iteration.sessions.session, known)
    if known is not None and found != replace(known, relay=found.relay):
        _logger.warning("subscription %s: the upstream has changed: %s", name, found.describe())
    return found


def diff_catalog(iteration: Iteration, record: IterationRecord) -> CatalogDiff:
    """Raises what `diff_scope` and `check_gone` raise."""
    iteration.enter(Step.CATALOG)
    session, subscription, last = iteration.sessions.session, iteration.subscription, iteration.last
    context, at = iteration.memory.context, record.snapshot.at
    inputs, whole = catalog_inputs(session, subscription, context.capabilities, at)
    if iteration.options.resync is None:
        known = known_catalog(session, subscription, context, last, at, inputs, whole=whole)
        if known is not None:
            return known
    with still_there(subscription):
        found = diff_scope(
            session, subscription, record.snapshot, last.tables, partial(record.temporary.of_databases, record.snapshot)
        )
    databases = {number: ref.database for number, ref in last.tables.refs.items()}
    check_gone(session, subscription, found.catalog, databases)
    return replace(found, inputs=inputs)
