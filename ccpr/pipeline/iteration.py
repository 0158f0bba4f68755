"""One iteration of one subscription: a method a step, each of which can be killed and run again
(docs/requirements.md N2; docs/architecture.md, "The way of the data"). The steps by name are in
`ccpr.pipeline.steps`.

    0 lease held        1 take_snapshot, diff_catalog        2 diff_objects        3 copy_objects
    4, 5 apply: manifests, one commit with 7 the outcome, the point published       6 old snapshots dropped, lease freed

What a step found is either asked for again at the same snapshot (which always gives the same answer) or kept in the
mirror's work folder; the Dagster assets, the command line and the service loop call the same methods.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import (
    BaseSnapshotLost,
    MirrorDisagrees,
    NoOpenIteration,
    PlanOutdated,
    StepMissing,
    TableChangedMeanwhile,
    TableMissingInMirror,
    UpstreamClockBack,
)
from ccpr.base.snapshot_ref import SnapshotRef
from ccpr.maintenance.retention import Swept
from ccpr.matrixone.client import snapshots
from ccpr.matrixone.client.capabilities import Capabilities, probe
from ccpr.matrixone.client.definitions import read_definitions
from ccpr.matrixone.client.errors import HistoryUnreadable, SnapshotGone
from ccpr.matrixone.client.session import Session
from ccpr.matrixone.definitions import Definitions
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import zero_dates_of
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import ObjectDiff
from ccpr.pipeline.appendable import FullList, LaterSnapshot
from ccpr.pipeline.building import PointBuilder
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.committing import IterationResult, Last, Outcome, PointCommitter
from ccpr.pipeline.copying import COPY_INPUT, COPY_OUTPUT, CopyEngine, CopyJob, CopyReport, copy_known
from ccpr.pipeline.database_lists import DatabaseLists
from ccpr.pipeline.databases import chosen_databases, still_there
from ccpr.pipeline.ends import check_gone, judge
from ccpr.pipeline.lag import LagMeter, taken_at
from ccpr.pipeline.listing import Listing
from ccpr.pipeline.options import DEFAULT_OPTIONS, IterationOptions, Resync
from ccpr.pipeline.passing_snapshots import PassingSnapshots
from ccpr.pipeline.results import Listed, StepResults, sweep_results
from ccpr.pipeline.scope import diff_scope
from ccpr.pipeline.steps import Step
from ccpr.pipeline.table_lists import TableLists
from ccpr.state.context import MOST_UNREPLICATED, Context
from ccpr.state.lease import Lease
from ccpr.state.subscription import Subscription

if TYPE_CHECKING:
    from ccpr.pipeline.plan import Plan

T = TypeVar("T")
_OBSERVED = 3  # new objects that are looked at until one says what the upstream can do
_logger = logging.getLogger(__name__)


class Iteration:
    """The open iteration of a subscription whose lease we hold. One thread uses it.

    Parameters
    ----------
    connect : opens a session with the upstream; called when the first one is needed.
    clock : seconds since 1970.
    key_file : opens the sealed password where this process copies; None to find the file by CCPR_KEY_FILE.
    session : gives a session that stays connected afterwards; None opens one for this iteration.
    known : the last point as an earlier iteration of this process read it, if nobody else has held the lease since.
    """

    def __init__(
        self,
        lease: Lease,
        mirror: Mirror,
        connect: Callable[[], Session],
        options: IterationOptions = DEFAULT_OPTIONS,
        clock: Callable[[], float] = time.time,
        key_file: Path | None = None,
        session: Callable[[], Session] | None = None,
        known: Last | None = None,
    ) -> None:
        self._kept_session, self._known = session, known
        self._log, self._lease, self._connect, self._clock = lease.log, lease, connect, clock
        self._options, self._allow_resync, self._key_file = options, options.allow_resync, key_file
        self._step: Step | None = None
        self.mirror = mirror
        row = lease.claim.row
        self.subscription = Subscription.from_row(row)
        self.lsn = row.iteration_lsn
        self.watermark = row.watermark
        self._context = Context.from_text(row.context)
        self._lag = LagMeter(clock)
        self._named_here = False  # the open snapshot's name is this process's
        self._answered: set[str] = set()  # names of passing snapshots that the upstream has said to be made
        self._running = False  # by us; what another left running is resumed
        self._committer = PointCommitter(lease, mirror, clock)
        self._catalog: CatalogDiff | None = None
        self._listing: Listed | None = None  # of the open snapshot
        self._is_kept = False  # in the mirror's work folder, that is
        self._enter(Step.INIT)

    @property
    def pause_seconds(self) -> float:
        """How long before this iteration's snapshot the last one's was taken, by the upstream's clock; 0 if one of them
        is missing."""
        known = (self._context.open, self._context.current, self._context.previous)
        times = [ref.physical for ref in known if ref is not None and ref.physical is not None]
        return (times[0] - times[1]) / 1e9 if len(times) > 1 else 0.0

    # ---- 1

    def take_snapshot(self) -> SnapshotRef:
        """Open the iteration: a snapshot whose name is recorded before it is made. An iteration that was interrupted
        goes on with the one it has.
        """
        self._enter(Step.CATALOG)
        if self._context.open is None:
            self._context = self._opened()
            self._named_here = True
        self._start()
        found = self._read_open_snapshot()
        if found is None:  # gone, or created again by somebody: what we derived from it is void
            self._context = self._context.abandoned(self._clock())
            self._context = self._opened()
            self._catalog = self._listing = None
            self.__dict__.pop("_passing", None)
            self._named_here = True
            self._log.remember(self._lease.claim, self._context)
            found = self._read_open_snapshot()
            assert found is not None
        if found.at.physical < self.watermark:
            raise UpstreamClockBack(
                f"snapshot {found.name} is of {found.at}, before the replica's watermark {self.watermark}",
                subject=self._subject,
            )
        capabilities = self._probed()
        if capabilities.relay:
            age = snapshots.snapshot_age(self._session, found.name, self.subscription.publication)
            found = replace(found, taken_at=self._clock(), age=age)
        self._context = replace(self._context, open=found, capabilities=capabilities)
        self._lag.since(self.subscription.task_id, found)
        self._log.remember(self._lease.claim, self._context)
        self._sweep(found)
        return found

    def _opened(self) -> Context:
        subscription = self.subscription
        return self._context.opened(subscription.uid, self.lsn, of_account=subscription.of_account)

    def _probed(self) -> Capabilities:
        """What the upstream can do, asked in every iteration: it may have been upgraded in place since the last one."""
        known = self._context.capabilities
        found = probe(self._session, known)
        if known is not None and found != replace(known, relay=found.relay):
            _logger.warning("subscription %s: the upstream has changed: %s", self.subscription.name, found.describe())
        return found

    def _observe(self, listed: Listed, report: CopyReport) -> None:
        """What a new object says of the upstream. It is remembered with the commit."""
        known = self._context.capabilities or Capabilities()
        if known.abort_column and known.early_creates:
            return  # no release goes back
        rows = listed.wanted
        rows = rows.filter(pc.and_(rows.column("appendable"), pc.invert(rows.column("is_tombstone"))))
        rows = rows.filter(pc.is_in(rows.column("name"), report.rows.column("name")))
        rows = rows.sort_by([("create_physical", "descending")]).slice(0, _OBSERVED)
        columns = (rows.column(name).to_pylist() for name in ("name", "create_physical", "create_logical"))
        for name, *created in zip(*columns, strict=True):
            try:
                known = known.seen_in(self.mirror.open_object(name), Timestamp(*created))
            except CcprError:
                continue  # damaged: its table's readers report that
            self._context = replace(self._context, capabilities=known)
            return

    def _sweep(self, ref: SnapshotRef) -> None:
        """Remove what interrupted runs left in the mirror: half-written files, results of earlier iterations' steps."""
        self._lease.confirm()  # else what looks half-written may be a successor's
        self.mirror.store.sweep()
        sweep_results(self.mirror, ref)

    def resume(self) -> SnapshotRef:
        """The open iteration's snapshot. One that an earlier run left open is taken up again, as every step but the
        first needs it.

        Raises NoOpenIteration if there is none, or if its snapshot is no longer upstream: what was derived from it is
        void.
        """
        ref = self._context.open
        if ref is None or ref.physical is None:
            raise NoOpenIteration("no iteration is open", subject=self._subject)
        if not self._running:
            self._start()
            if self._read_open_snapshot() is None:
                raise NoOpenIteration(
                    f"the open iteration's snapshot {ref.name} is gone upstream", subject=self._subject
                )
        return ref

    def _start(self) -> None:
        self._log.start(self._lease.claim, self._context)
        self._running = True  # from here on a failure is written down
        self.publish_pending()

    def _read_open_snapshot(self) -> SnapshotRef | None:
        ref = self._context.open
        assert ref is not None
        name, publication = ref.name, self.subscription.publication
        if ref.physical is None:
            self._create_open(name)
            physical = snapshots.snapshot_timestamp(self._session, name, publication).physical
            when = taken_at(physical, self._clock(), self._context.current, made_now=self._named_here)
            return replace(ref, physical=physical, taken_at=when)
        try:
            at = snapshots.snapshot_timestamp(self._session, name, publication)
        except SnapshotGone:
            return None
        return ref if at == ref.at else None

    def _create_open(self, name: str) -> None:
        publication, database = self.subscription.publication, self.subscription.database
        if not self.subscription.of_account:
            snapshots.create_snapshot(self._session, name, publication, database)
            return
        databases, _ = chosen_databases(self._session, self.subscription)
        first = next(iter(databases))
        with still_there(self.subscription):
            snapshots.create_account_snapshot(self._session, name, publication, first)

    def diff_catalog(self) -> CatalogDiff:
        """Read the catalog at the snapshot and compare it with the last point, by table id."""
        self._lease.check()
        if self._catalog is None:
            ref = self.resume()
            self._enter(Step.CATALOG)
            take = partial(self._passing.of_databases, ref)
            with still_there(self.subscription):
                found = diff_scope(self._session, self.subscription, ref, self._last.tables, take)
            before = {number: point.table.database for number, point in self._last.tables.items()}
            check_gone(self._session, self.subscription, found.catalog, before)
            self._catalog = found
        return self._catalog

    # ---- 2

    def diff_objects(self, *, keep: bool = True) -> ObjectDiff:
        """Wait until the snapshot is flushed, read and check the object list, compare it with the manifests of the
        tables in it.

        Parameters
        ----------
        keep : the result, for a run that takes this one up. Without it, it is kept when `apply_if_idle` has found that
            there is something to do.

        Raises BaseSnapshotLost with what a full list would fetch, if it has to be one and that was not allowed.
        """
        return self._allowed(keep=keep).diff

    def _allowed(self, *, keep: bool = True) -> Listed:
        listed = self._listed(keep=keep)
        if listed.base_lost and not (self._allow_resync or self._options.resync == Resync()):
            objects, size = _count(self._to_copy(listed))
            if size > self.subscription.settings.resync_limit:
                kind = HistoryUnreadable if listed.base_is_there else BaseSnapshotLost
                raise kind(
                    f"{listed.base_lost}; comparing with a full list instead would fetch {objects} objects, {size} "
                    "bytes",
                    subject=f"subscription {self.subscription.name}",
                )
            _logger.warning(
                "subscription %s: a full list takes the place of a lost snapshot, %d bytes to fetch",
                self.subscription.name,
                size,
            )
        return listed

    def _listed(self, *, keep: bool = True) -> Listed:
        self._lease.check()
        ref = self.resume()
        self._enter(Step.OBJECT_LIST)
        results, listing = self._results(ref), self._listing
        if listing is None:
            listing = results.listed()
            self._is_kept = listing is not None
            if listing is None:
                with still_there(self.subscription):
                    listing = self._list(ref)
            self._listing = listing
        if keep and not self._is_kept:
            results.keep_listed(listing)
            self._is_kept = True
        return listing

    def _list(self, ref: SnapshotRef) -> Listed:
        catalog, resync = self.diff_catalog(), self._options.resync
        if resync is not None and resync.table is not None:
            asked = resync.table
            if asked not in {table.qualified_name for table in catalog.tables.values()}:
                raise TableMissingInMirror(
                    "there is no such table at the snapshot", subject=f"table {asked}", remedy="Check the spelling."
                )
        passing = self._passing
        passing.wait_until_flushed(ref, catalog)
        known = {number: point.ref.objects for number, point in self._last.tables.items() if point.ref is not None}
        full_list = FullList(self._context.list_rows, known)
        later = LaterSnapshot(self._session, self.subscription, passing.later, full_list)
        by_table = TableLists(
            self._session, self.subscription, lambda table: passing.after_flush(table.database, table.name)
        )
        listing = Listing(
            self._session,
            self.subscription,
            catalog,
            self._last.tables,
            self._last.behind.keys(),
            self.mirror,
            self._committer.ledger,
            later,
            full_list,
            by_table,
            DatabaseLists(self._session, self.subscription, catalog.lists, later, by_table) if catalog.lists else None,
            self._options.timeouts.stale_read,
            self._options.check_list,
        )
        found = listing.diff(ref, self._context.current, resync)
        self._context = replace(self._context, list_rows=full_list.rows)  # remembered with the commit
        return found

    def plan(self) -> "Plan":
        """What this iteration is about to do. Nothing is copied, and the iteration stays open."""
        from ccpr.pipeline.plan import make_plan  # which few iterations ask for

        listed, ref = self._listed(), self.resume()
        objects, size = _count(self._to_copy(listed))
        return make_plan(self.subscription, ref, self.diff_catalog(), listed, objects=objects, size=size)

    def require_plan(self, plan_id: str) -> None:
        """Go on only if the open iteration is about to do what this plan says; a resync in it is then allowed. Raises
        PlanOutdated."""
        try:
            found = self.plan()
        except NoOpenIteration as error:
            raise PlanOutdated(
                f"its iteration is no longer open: {error.message}", subject=f"plan {plan_id}"
            ) from error
        if found.id != plan_id:
            raise PlanOutdated(f"what would be done now is plan {found.id}", subject=f"plan {plan_id}")
        self._allow_resync = True

    def forget_results(self) -> None:
        """Forget what the steps have found: the next run asks again, at the same snapshot."""
        self._listing = None
        self._results(self.resume()).clear()

    # ---- 3

    def objects_to_copy(self) -> pa.Table:
        """COPY_INPUT: new objects of the tables whose objects the mirror keeps, each name once."""
        return self._to_copy(self._allowed())

    def _to_copy(self, listed: Listed) -> pa.Table:
        copied = pa.array(
            [table.id for table in self.diff_catalog().tables.values() if self.subscription.copies(table)], pa.int64()
        )
        wanted = listed.wanted
        wanted = wanted.filter(pc.is_in(wanted.column("table_id"), copied)).select(COPY_INPUT.names)
        if wanted.num_rows == 0:  # grouping imports Arrow's datasets
            return COPY_INPUT.empty_table()
        return (
            wanted.group_by("name", use_threads=False)
            .aggregate([("size", "first"), ("stats", "first")])
            .rename_columns(COPY_INPUT.names)
            .cast(COPY_INPUT)
        )

    def copy_objects(self, engine: CopyEngine) -> CopyReport:
        """Fetch the new objects. What an interrupted run brought is not fetched again."""
        self._lease.check()
        results = self._results(self.resume())
        if not results.is_listed():
            raise StepMissing("object_diffs has not run for this iteration", subject=self._subject)
        listed = self._allowed()
        self._enter(Step.COPY)
        report = results.copied()
        if report is None:
            for name in listed.refetched.column("name").to_pylist():  # damaged: a soundness check alone might keep it
                self.mirror.store.delete(object_path(name))
            objects, store = self._to_copy(listed), self.mirror.store
            known = self._committer.ledger.checksums(objects.column("name").to_pylist())
            job = CopyJob.of(self.subscription, store.url, self._key_file)
            report = copy_known(job, objects, engine, known, store)
            results.keep_copied(report)
        return report

    def note_copier(self, text: str) -> None:
        """Who copies and why, for those who watch."""
        self._results(self.resume()).keep_copier(text)

    # ---- 4, 5, 7, 6

    def apply(self) -> Outcome:
        """Write the changed tables' manifests, commit the point and the outcome in one transaction, publish the point,
        drop what is due upstream.
        """
        self._lease.confirm()
        ref = self.resume()
        listed = self._allowed()  # first: what was copied for another list is void
        report = self._results(ref).copied()
        if report is None:
            raise StepMissing("copied_objects has not run for this iteration", subject=self._subject)
        self._observe(listed, report)
        return self._end(ref, self._builder(ref).result(listed, report))

    def apply_if_idle(self) -> Outcome | None:
        """`apply` for an iteration in which nothing has changed; there is nothing to copy. None for another one, which
        stays open."""
        self._lease.check()
        ref = self.resume()
        if self._listing is None and not self._results(ref).is_listed():
            raise StepMissing("object_diffs has not run for this iteration", subject=self._subject)
        listed = self._allowed(keep=False)
        result = self._builder(ref).idle_result(listed, CopyReport(COPY_OUTPUT.empty_table()))
        if result is None:
            self._listed()
            return None
        return self._end(ref, result)

    def _builder(self, ref: SnapshotRef) -> PointBuilder:
        fence = self._lease.claim.fence
        return PointBuilder(
            self.mirror,
            self.subscription,
            self.diff_catalog(),
            self._last,
            self.lsn,
            fence,
            ref.at,
            self._enter,
            self.diff_catalog().relations_digest != self._context.relations,
        )

    def _definitions(self, ref: SnapshotRef) -> tuple[Definitions, ...]:
        """What the point has besides tables. Read for points only: an idle iteration asks nothing more."""
        catalog = self.diff_catalog()
        if not catalog.is_whole:
            return ()
        publication, found = self.subscription.publication, catalog.catalog
        several = {name: one.number for name, one in catalog.lists.items()}
        databases = several if self.subscription.of_account else {self.subscription.database: found.database_id}
        return read_definitions(self._session, publication, databases, found.tables, catalog.relations, ref.at)

    def _end(self, ref: SnapshotRef, result: IterationResult) -> Outcome:
        """Commit, publish, clear away."""
        self._enter(Step.OUTCOME)
        catalog, definitions = self.diff_catalog(), ()
        attempts, left_out = self._context.attempts, catalog.unreplicated[:MOST_UNREPLICATED]
        context, report = replace(self._context.committed(), unreplicated=left_out), result.report
        if result.points is not None:
            context, definitions = replace(context, relations=catalog.relations_digest), self._definitions(ref)
        if report.objects_fetched:
            context = replace(context, copied_last=(report.objects_fetched, report.objects_direct))
        self._committer.commit(ref, context, self._last, result, definitions)
        self._context = context
        self._running = False
        self.publish_pending()
        self._enter(Step.RELEASE)
        self._results(ref).clear()
        self.drop_due_snapshots()
        self.sweep(strays=attempts > 1)
        shown = self._last.tables | {point.table.id: point for point in result.points or ()}
        refs = [
            point.ref for table_id, point in shown.items() if point.ref is not None and table_id not in result.behind
        ]
        lag = self._lag.since(self.subscription.task_id, ref)
        last = self._last.point
        newest = (self.lsn, ref.at) if result.points is not None else None if last is None else (last.lsn, last.at)
        return Outcome(
            lsn=self.lsn,
            point=result.points is not None,
            at=ref.at,
            tables=len(refs),
            tables_changed=result.tables_changed,
            objects_copied=report.objects_fetched,
            bytes_copied=report.bytes_fetched,
            objects_direct=report.objects_direct,
            objects_total=sum(table.objects for table in refs),
            bytes_total=sum(table.bytes for table in refs),
            lag_seconds=lag.seconds or 0.0,
            clock_skew_seconds=lag.skew_seconds,
            quarantined=tuple(sorted(table.qualified_name for table, _ in result.failed.values())),
            zero_dates=zero_dates_of(point.table for point in shown.values() if point.ref is not None),
            newest_point=None if newest is None else newest[0],
            newest_point_ts=None if newest is None else newest[1].physical,
        )

    def sweep(self, *, strays: bool = False) -> Swept:
        """Drop points that need not stay, delete files that nobody has named for long enough. `strays`: look for
        what attempts left that came to nothing."""
        age = self._lag.read(self.subscription.task_id, self._context).seconds or 0.0
        return self._committer.sweep(self.subscription.settings, age, strays=strays)

    def drop_due_snapshots(self) -> None:
        """Drop recorded snapshots that are no longer needed; one that cannot be dropped now stays recorded for the
        next time. One that was given up before the upstream answered may be made later, when a lock is free: it is
        dropped each time, for as long as that may happen."""
        dropped, now = set(), self._clock()
        unanswered = [name for name, _ in self._context.late if name not in self._context.to_drop]
        for name in (*self._context.to_drop, *unanswered):
            try:
                snapshots.drop_snapshot(self._session, name, self.subscription.publication)
                dropped.add(name)
            except CcprError as error:
                _logger.warning("snapshot %s could not be dropped upstream, it will be tried again: %s", name, error)
                if not isinstance(error, Terminal):
                    break  # the upstream is away: each of the others would be waited for as long, in vain
        context = self._context.dropped(dropped, now, self._answered)
        if context != self._context:
            self._context = context
            self._log.remember(self._lease.claim, self._context)

    def publish_pending(self) -> None:
        """Publish what was committed and not yet published: what a crash in between left undone is done here."""
        self._committer.publish_pending()

    def fail(self, error: CcprError) -> None:
        """Write a failure down. A terminal one gives the snapshot up, so that the next attempt takes a new one, and so
        do TableChangedMeanwhile and HistoryUnreadable; after another the iteration resumes. What was asked for wrongly
        (too early, by an outdated plan, for an unknown table) fails nothing: the iteration stays open.
        """
        if not self._running or isinstance(error, StepMissing | PlanOutdated | TableMissingInMirror):
            return
        # Where the state may be an old copy, what it has recorded may be needed by its successors.
        # What the snapshot shows of a table that has changed since cannot be listed any more.
        void = isinstance(error, Terminal | TableChangedMeanwhile | HistoryUnreadable)
        gives_up = void and not isinstance(error, MirrorDisagrees)
        ends, self._context = judge(
            error, self.subscription, self._context, self._connect, self._clock, self._options.sleep
        )
        if gives_up:
            self._context = self._context.abandoned(self._clock())
        self._log.fail(self._lease.claim, self._context, error, ends=ends)
        if gives_up:
            self.drop_due_snapshots()

    def confirm(self) -> None:
        """For what is done under our lease after the commit. Raises LeaseLost if it is another's."""
        self._lease.confirm()

    def close(self) -> None:
        """End the upstream session, if one was opened here."""
        if "_session" in self.__dict__ and self._kept_session is None:
            self._session.close()

    # ----

    @cached_property
    def _session(self) -> Session:
        return self._connect() if self._kept_session is None else self._kept_session()

    @cached_property
    def _passing(self) -> PassingSnapshots:
        return PassingSnapshots(
            self._session,
            self._connect,
            self.subscription,
            self._options,
            self._record,
            self._answered.add,
            self._clock,
        )

    def _record(self, change: Callable[[Context], tuple[Context, T]]) -> T:
        self._context, found = change(self._context)
        self._log.remember(self._lease.claim, self._context)
        return found

    @cached_property
    def _last(self) -> Last:
        return self._committer.last(self._known)

    @property
    def last_read(self) -> Last | None:
        """The last point as this iteration has read it, before its own; None if it has not. For `known` of the next."""
        return self.__dict__.get("_last")

    @property
    def _subject(self) -> str:
        return f"subscription {self.subscription.name}, lsn {self.lsn}"

    def _results(self, ref: SnapshotRef) -> StepResults:
        return StepResults(self.mirror, ref, self._options.resync, self.subscription.chosen)

    def _enter(self, step: Step) -> None:
        """A step begins; to look again at what an earlier one left is none."""
        if self._step is None or step.comes_after(self._step):
            self._step = step
            _logger.info("%s: step %s, %s", self._subject, step.value, step.label)
            self._options.progress.on_step(step)


def _count(objects: pa.Table) -> tuple[int, int]:
    return objects.num_rows, pc.sum(objects.column("size")).as_py() or 0
