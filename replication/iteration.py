"""One iteration of one subscription: a method a step, each of which can be killed and run again (requirement N2; architecture, "The way of
the data").

    0 lease held        1 take_snapshot, diff_catalog        2 diff_objects        3 copy_objects
    4, 5 apply: manifests, one commit with 7 the outcome, the point published        6 old snapshots dropped, lease freed

What a step found is either asked for again at the same snapshot (which always gives the same answer) or kept in the mirror's work folder;
the Dagster assets, the command line and the service loop call the same methods.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
import structlog

from matrixone.errors import CcprError, Terminal
from matrixone.objects.timestamp import Timestamp
from matrixone.upstream import snapshots
from matrixone.upstream.catalog import index_tables, read_catalog
from matrixone.upstream.errors import PartitionedTable, SnapshotGone
from matrixone.upstream.session import Session
from replication.applying import apply_to_mirror, holds_later_rows
from replication.catalog_diff import CatalogDiff, diff_catalogs
from replication.context import Context, SnapshotRef
from replication.copying import COPY_INPUT, COPY_OUTPUT, CopyEngine, CopyReport, copy
from replication.errors import NoOpenIteration, ScopeConflict, StepMissing, UpstreamClockBack
from replication.lag import LagMeter, taken_at
from replication.lease import Lease
from replication.ledger import Ledger
from replication.listing import Listing
from replication.log import CcprLog
from replication.mirror import Mirror, ledger_path
from replication.object_diff import LISTED_SCHEMA, ObjectDiff
from replication.points import GlobalPoint, PointHistory, TablePoint, as_mirror_point
from replication.retention import GRACE_SECONDS, Retention, Swept, sweep
from replication.subscription import Subscription

FLUSH_TIMEOUT_SECONDS = 1800.0
_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an iteration ended.

    Attributes
    ----------
    point : False for an idle iteration, which moves the watermark only.
    objects_total, bytes_total : live in the mirror after it, what is shared counted once a table.
    lag_seconds : age of the replica's state when the iteration ended, see `replication.lag`.
    clock_skew_seconds : our clock less the upstream's; None if not known.
    """

    lsn: int
    point: bool
    at: Timestamp
    tables: int
    tables_changed: int
    objects_copied: int
    bytes_copied: int
    objects_total: int
    bytes_total: int
    lag_seconds: float
    clock_skew_seconds: float | None


class Iteration:
    """The open iteration of a subscription whose lease we hold. One thread uses it."""

    def __init__(
        self,
        log: CcprLog,
        lease: Lease,
        mirror: Mirror,
        connect: Callable[[], Session],
        *,
        allow_resync: bool = False,
        flush_timeout_seconds: float = FLUSH_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._lease, self._connect, self._clock = log, lease, connect, clock
        self._allow_resync, self._flush_timeout_seconds = allow_resync, flush_timeout_seconds
        self.mirror = mirror
        row = log.row(lease.claim.name)
        self.subscription = Subscription.from_row(row)
        self.lsn = row.iteration_lsn
        self.watermark = row.watermark
        self._context = Context.from_text(row.context)
        self._lag = LagMeter(clock)
        self._named_here = False  # the open snapshot's name is this process's
        self._running = False  # by us; what another left running is resumed
        self._history = PointHistory(log.engine, row.task_id)
        self._ledger = Ledger(log.engine, row.task_id)
        self._catalog: CatalogDiff | None = None

    # ---- 1

    def take_snapshot(self) -> SnapshotRef:
        """Open the iteration: a snapshot whose name is recorded before it is made. An iteration that was interrupted goes on with the one
        it has.
        """
        if self._context.open is None:
            self._context = self._context.opened(self.subscription.uid, self.lsn)
            self._named_here = True
        self._log.start(self._lease.claim, self._context)
        self._running = True  # from here on a failure is written down
        self.mend()
        found = self._read_open_snapshot()
        if found is None:  # it was there, and has vanished or been made anew by somebody: what we derived from it is void
            self._context = self._context.abandoned().opened(self.subscription.uid, self.lsn)
            self._named_here = True
            self._log.remember(self._lease.claim, self._context)
            found = self._read_open_snapshot()
            assert found is not None
        if found.at.physical < self.watermark:
            raise UpstreamClockBack(
                f"snapshot {found.name} is of {found.at}, before the replica's watermark {self.watermark}", subject=self._subject
            )
        self._context = replace(self._context, open=found)
        self._lag.since(self.subscription.task_id, found)
        self._log.remember(self._lease.claim, self._context)
        self._sweep(found)
        return found

    def _sweep(self, ref: SnapshotRef) -> None:
        """Remove what interrupted runs left in the mirror: half-written files, results of steps of other iterations."""
        self.mirror.store.sweep()
        for folder in {name.rpartition("/")[0] for name in self.mirror.store.names("work")} - {ref.work}:
            self.mirror.store.delete_folder(folder)

    def resume(self) -> SnapshotRef:
        """The open iteration's snapshot. One that an earlier run left open is taken up again, as every step but the first needs it.

        Raises NoOpenIteration if there is none, or if its snapshot is no longer upstream: what was derived from it is void.
        """
        ref = self._context.open
        if ref is None or ref.physical is None:
            raise NoOpenIteration("no iteration is open", subject=self._subject)
        if not self._running:
            self._log.start(self._lease.claim, self._context)
            self._running = True
            if self._read_open_snapshot() is None:
                raise NoOpenIteration(f"the open iteration's snapshot {ref.name} is gone upstream", subject=self._subject)
        return ref

    def _read_open_snapshot(self) -> SnapshotRef | None:
        ref = self._context.open
        assert ref is not None
        name, publication = ref.name, self.subscription.publication
        if ref.physical is None:
            snapshots.create_snapshot(self._session, name, publication, self.subscription.database)
            physical = snapshots.snapshot_timestamp(self._session, name, publication).physical
            when = taken_at(physical, self._clock(), self._context.current, made_now=self._named_here)
            return replace(ref, physical=physical, taken_at=when)
        try:
            at = snapshots.snapshot_timestamp(self._session, name, publication)
        except SnapshotGone:
            return None
        return ref if at == ref.at else None

    def diff_catalog(self) -> CatalogDiff:
        """Read the catalog at the snapshot and compare it with the last point, by table id."""
        self._lease.check()
        if self._catalog is None:
            self._catalog = self._diff_catalog(self.resume())
        return self._catalog

    def _diff_catalog(self, ref: SnapshotRef) -> CatalogDiff:
        subscription = self.subscription
        catalog = read_catalog(self._session, subscription.publication, subscription.database, ref.name, ref.at)
        if catalog.partitioned:
            raise PartitionedTable(
                "a partitioned table makes the upstream's object list of the whole database fail",
                subject=", ".join(f"{subscription.database}.{name}" for name in catalog.partitioned[:5]),
            )
        indexes: frozenset[str] = frozenset()
        if subscription.table is not None:
            ids = [table.id for table in catalog.tables if subscription.replicates(table, indexes)]
            if not ids and not self._before:
                raise ScopeConflict("the table does not exist upstream", subject=f"table {subscription.scope}")
            indexes = frozenset(
                name for table_id in ids for name in index_tables(self._session, subscription.publication, table_id, ref.name)
            )
        tables = {table.id: table for table in catalog.tables if subscription.replicates(table, indexes)}
        changes = diff_catalogs((point.table for point in self._before.values()), tables.values())
        return CatalogDiff(catalog, tables, changes, catalog.unreplicated)

    # ---- 2

    def diff_objects(self) -> ObjectDiff:
        """Wait until the snapshot is flushed, read and check the object list, compare it with the manifests of the tables in it."""
        self._lease.check()
        ref = self.resume()
        added, removed = f"{ref.work}/added.arrow", f"{ref.work}/removed.arrow"
        if self.mirror.store.size(removed) is None:
            diff = self._diff_objects(ref)
            self.mirror.write_arrow(added, diff.added)
            self.mirror.write_arrow(removed, diff.removed)  # last: its presence says that the step is done
            self.mirror.store.sync(ref.work)
        return ObjectDiff(self.mirror.read_arrow(added, LISTED_SCHEMA), self.mirror.read_arrow(removed, LISTED_SCHEMA))

    def _diff_objects(self, ref: SnapshotRef) -> ObjectDiff:
        catalog, publication = self.diff_catalog(), self.subscription.publication
        on_demand = self.subscription.settings.flush == "on_demand"
        stored = [table.id for table in catalog.catalog.tables]
        snapshots.wait_until_flushed(
            self._session,
            ref.name,
            publication,
            request_flush=partial(snapshots.flush_tables, self._connect, stored) if on_demand else None,
            timeout_seconds=self._flush_timeout_seconds,
        )
        return Listing(self._session, self.subscription, catalog, self._before, self.mirror).diff(
            ref, self._context.current, allow_resync=self._allow_resync
        )

    # ---- 3

    def objects_to_copy(self) -> pa.Table:
        """COPY_INPUT: new objects of the tables whose objects the mirror keeps, each name once."""
        tables = self.diff_catalog().tables
        copied = pa.array([table.id for table in tables.values() if self.subscription.copies(table)], pa.int64())
        added = self.diff_objects().added
        added = added.filter(pc.is_in(added.column("table_id"), copied)).select(COPY_INPUT.names)
        return (
            added.group_by("name", use_threads=False)
            .aggregate([("size", "first"), ("stats", "first")])
            .rename_columns(COPY_INPUT.names)
            .cast(COPY_INPUT)
        )

    def copy_objects(self, engine: CopyEngine) -> CopyReport:
        """Fetch the new objects. What an interrupted run brought is not fetched again."""
        self._lease.check()
        ref = self.resume()
        self._need(f"{ref.work}/removed.arrow", "object_diffs")
        name = f"{ref.work}/copied.arrow"
        if self.mirror.store.size(name) is None:
            report = copy(self.subscription.copy_job(self.mirror.store.url), self.objects_to_copy(), engine)
            self.mirror.write_arrow(name, report.rows)
            self.mirror.store.sync(ref.work)
        return CopyReport(self.mirror.read_arrow(name, COPY_OUTPUT))

    # ---- 4, 5, 7, 6

    def apply(self) -> Outcome:
        """Write the changed tables' manifests, commit the point and the outcome in one transaction, publish the point, drop what is due
        upstream.
        """
        self._lease.check()
        ref = self.resume()
        self._need(f"{ref.work}/copied.arrow", "copied_objects")
        catalog, diff = self.diff_catalog(), self.diff_objects()
        report = CopyReport(self.mirror.read_arrow(f"{ref.work}/copied.arrow", COPY_OUTPUT))
        if self._is_idle(ref, diff):
            return self._end(ref, None, diff, report)
        changed = apply_to_mirror(self.mirror, self.lsn, self._lease.claim.fence, catalog.tables, self._before, catalog.changes, diff)
        return self._end(ref, changed, diff, report)

    def apply_if_idle(self) -> Outcome | None:
        """`apply` for an iteration in which nothing has changed; there is nothing to copy. None for another one, which stays open."""
        self._lease.check()
        ref = self.resume()
        self._need(f"{ref.work}/removed.arrow", "object_diffs")
        diff = self.diff_objects()
        return self._end(ref, None, diff, CopyReport(COPY_OUTPUT.empty_table())) if self._is_idle(ref, diff) else None

    def _is_idle(self, ref: SnapshotRef, diff: ObjectDiff) -> bool:
        """Has no row become visible since the last point, and no table changed? That no object changed is not enough."""
        if self._newest is None or self.diff_catalog().changes or diff.table_ids:
            return False
        kept = [point for point in self._before.values() if self.subscription.copies(point.table)]
        return not holds_later_rows(self.mirror, kept, self._newest.at, ref.at)

    def _end(self, ref: SnapshotRef, changed: list[TablePoint] | None, diff: ObjectDiff, report: CopyReport) -> Outcome:
        """Commit, publish, clear away. `changed` is None for an idle iteration."""
        self._commit(ref, changed, diff, report)
        self.mend()
        self.mirror.store.delete_folder(ref.work)
        self.drop_due_snapshots()
        self.sweep()
        after = self._history.tables(self.lsn)
        refs = [point.ref for point in after.values() if point.ref is not None]
        lag = self._lag.since(self.subscription.task_id, ref)
        return Outcome(
            lsn=self.lsn,
            point=changed is not None,
            at=ref.at,
            tables=len(refs),
            tables_changed=_count(changed or []),
            objects_copied=report.objects_fetched,
            bytes_copied=report.bytes_fetched,
            objects_total=sum(table.objects for table in refs),
            bytes_total=sum(table.bytes for table in refs),
            lag_seconds=lag.seconds or 0.0,
            clock_skew_seconds=lag.skew_seconds,
        )

    def _commit(self, ref: SnapshotRef, changed: list[TablePoint] | None, diff: ObjectDiff, report: CopyReport) -> None:
        """The outcome and, unless nothing has changed (None), the point: one transaction, guarded by the fence."""
        context, write = self._context.committed(), _nothing
        if changed is not None:
            ledger = ""
            if report.rows.num_rows:
                ledger = ledger_path(self.lsn, self._lease.claim.fence)
                self.mirror.write_arrow(ledger, report.ledger)
                self.mirror.store.sync("ledger")
            now = datetime.fromtimestamp(self._clock(), UTC)
            numbers = (_count(changed), report.objects_fetched, report.bytes_fetched)
            point = GlobalPoint(self.lsn, ref.at, ref.name, now, ledger, *numbers)
            kept = {table.id for table in self.diff_catalog().tables.values() if self.subscription.copies(table)}
            gone = [table.table.id for table in changed if table.ref is None]

            def write(connection: sa.Connection) -> None:
                self._ledger.record(connection, self.lsn, report.ledger, diff, kept, gone)
                self._history.write(connection, point, changed)

        self._log.commit(self._lease.claim, context, ref.at.physical, write)
        self._context = context
        self._running = False

    def sweep(self, grace_seconds: int = GRACE_SECONDS) -> Swept:
        """Let points go that need not stay, delete files that nobody has named for the time of grace."""
        settings = self.subscription.settings
        retention = Retention(settings.retain, settings.retain_for)
        swept = sweep(self._history, self._ledger, self.mirror, retention, self._clock(), grace_seconds)
        if swept.points_dropped:
            self.mend()
        return swept

    def drop_due_snapshots(self) -> None:
        """Drop recorded snapshots that are no longer needed; one that cannot be dropped now stays recorded for the next time."""
        dropped = set()
        for name in self._context.to_drop:
            try:
                snapshots.drop_snapshot(self._session, name, self.subscription.publication)
                dropped.add(name)
            except CcprError as error:
                _logger.warning("a snapshot could not be dropped upstream, it will be tried again", snapshot=name, error=str(error))
        if dropped:
            self._context = self._context.dropped(dropped)
            self._log.remember(self._lease.claim, self._context)

    def mend(self) -> None:
        """Publish what was committed and not yet published: a crash in between is healed here."""
        mend(self._log, self.subscription.name, self.mirror)

    def fail(self, error: CcprError) -> None:
        """Write a failure down. A terminal one gives the snapshot up, so that the next attempt takes a new one; after another the iteration
        resumes. A step that was asked for too early fails nothing: the iteration stays open.
        """
        if not self._running or isinstance(error, StepMissing):
            return
        if isinstance(error, Terminal):
            self._context = self._context.abandoned()
        self._log.fail(self._lease.claim, self._context, error)
        if isinstance(error, Terminal):
            self.drop_due_snapshots()

    def close(self) -> None:
        """End the upstream session, if one was opened."""
        if "_session" in self.__dict__:
            self._session.close()

    # ----

    @cached_property
    def _session(self) -> Session:
        return self._connect()

    @cached_property
    def _newest(self) -> GlobalPoint | None:
        return self._history.newest()

    @cached_property
    def _before(self) -> dict[int, TablePoint]:
        """The tables of the last point."""
        return {} if self._newest is None else self._history.tables(self._newest.lsn)

    @property
    def _subject(self) -> str:
        return f"subscription {self.subscription.name}, lsn {self.lsn}"

    def _need(self, name: str, step: str) -> None:
        if self.mirror.store.size(name) is None:
            raise StepMissing(f"{step} has not run for this iteration", subject=self._subject)


def mend(log: CcprLog, name: str, mirror: Mirror) -> None:
    """Bring the published points and the head up to what is committed. Repeating it writes the same files."""
    row = log.row(name)
    history = PointHistory(log.engine, row.task_id)
    head, committed = mirror.published_head(), history.head()
    if head == committed or not committed.iteration_lsn:
        return
    base = head.newest_point if head else None
    for point in history.global_points(after=-1 if base is None else base):
        refs = {table_id: table.ref for table_id, table in history.changed(point.lsn).items()}
        mirror.publish(as_mirror_point(point, history.tables(point.lsn)), refs, base)
        base = point.lsn
    mirror.publish_head(committed)


def _count(changed: list[TablePoint]) -> int:
    """Tables that changed; a truncated one, which went under one id and came under another, counts once."""
    return len({point.table.logical_id for point in changed})


def _nothing(connection: sa.Connection) -> None:
    """What an idle iteration adds to its outcome."""
