"""The end of an iteration: one commit of points and outcome, then what follows from it
(docs/architecture.md, "One commit").

Everything that a commit names was written before under names that nothing else uses; the commit is one transaction in
the catalog database, guarded by the fence. Publishing and sweeping repeat what is committed, so they can be done again
by the next executor.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from ccpr.base.clock import Clock, utc_now, wall_clock
from ccpr.base.errors import Failure
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.definitions import Definitions
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Table
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import LaggingTable
from ccpr.pipeline.changed_tables import count_changed
from ccpr.pipeline.copying import CopyReport
from ccpr.pipeline.results import Listed
from ccpr.retention.dropping import Replica
from ccpr.retention.retention import Retention
from ccpr.retention.sweeping import Swept, sweep
from ccpr.state.care_records import MadeBy
from ccpr.state.checkpoint.checkpoint import Checkpoint
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.context import Context
from ccpr.state.database import repeatable, together
from ccpr.state.errors import CheckpointUnknown, StateUnavailable
from ccpr.state.history import GlobalPoint, as_mirror_point
from ccpr.state.lease import Lease
from ccpr.state.ledger import due_time
from ccpr.state.point_rows import TablePoint
from ccpr.state.point_tables import PointTables
from ccpr.state.publishing import publish_pending, write_point
from ccpr.state.settings import Settings


@dataclass(frozen=True, slots=True)
class IterationOutcome:
    """How an iteration ended.

    Attributes
    ----------
    point : False for an idle iteration, which moves the watermark only.
    tables : that the mirror shows after it.
    tables_changed : in their rows or definitions. Neither counts hidden index tables.
    objects_total, bytes_total : live in the mirror after it, what is shared counted once a table.
    lag_seconds : age of the replica's state when the iteration ended, see `ccpr.pipeline.lag`.
    clock_skew_seconds : our clock less the upstream's; None if not known.
    quarantined : names of the tables that failed while the others went on.
    zero_dates : by table and column, see `ccpr.matrixone.schema.zero_dates_of`.
    objects_direct : of those copied, how many came straight from storage.
    newest_point, newest_point_ts : lsn of the newest point, made by this iteration or before, and its time by the
        upstream's clock in nanoseconds; None if there is none.
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
    quarantined: tuple[str, ...] = ()
    zero_dates: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    objects_direct: int = 0
    newest_point: int | None = None
    newest_point_ts: int | None = None


@dataclass(frozen=True, slots=True)
class IterationResult:
    """What an iteration has come to, ready to be committed.

    Attributes
    ----------
    points : of the tables that changed, those of tables that went included; None for an idle iteration, which makes no
        point.
    listed : of the tables that are moved.
    failed : by id at the snapshot, the tables that are not, and why.
    behind : by id, what the point will not show.
    kept : ids of the tables whose objects the mirror keeps.
    tables_changed : see `ccpr.pipeline.changed_tables`.
    """

    points: tuple[TablePoint, ...] | None
    listed: Listed
    report: CopyReport
    failed: Mapping[int, tuple[Table, Failure]]
    behind: Mapping[int, LaggingTable]
    kept: Collection[int]
    tables_changed: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last point.

    Attributes
    ----------
    point : None before the first.
    tables : those that lag as they were at their own point.
    behind : the tables that the point does not show, by id.
    places : in logical mode, where the rows of small tables lie at the snapshot of the iteration that read this, by the
        snapshot's name and the table's id; as the upstream said it.
    """

    point: GlobalPoint | None
    tables: PointTables
    behind: dict[int, LaggingTable]
    places: dict[tuple[str, int], Sequence[tuple[bytes | None, ...]]] = field(default_factory=dict)


class PointCommitter:
    """What is kept of one subscription: in the catalog database, and published from there in the mirror."""

    def __init__(self, lease: Lease, mirror: Mirror, clock: Clock = wall_clock) -> None:
        self._log, self._lease, self._mirror, self._clock = lease.log, lease, mirror, clock
        records = lease.log.of(lease.claim.task_id)
        self.history, self.ledger = records.history, records.ledger
        self.quarantine, self.figures = records.quarantine, records.row_sums
        self._checkpoint = Checkpoint(records.engine, records.task_id, clock)
        self._is_loaded = False  # and the checkpoint has not been flushed since

    @repeatable
    def last(self, known: Last | None = None) -> Last:
        """The last point. `known` is an earlier answer, if no other executor has held the lease since: then only the
        tables that changed since are read."""
        with together(self.history.engine):
            self._checkpoint.load(described=False)
            self._is_loaded = True
            newest = self.history.newest()
            if newest is None:
                return Last(None, PointTables(self.history, -1, {}, {}), {})
            return Last(newest, self._tables(newest.lsn, known), self.quarantine.behind(newest.lsn))

    def _tables(self, lsn: int, known: Last | None) -> PointTables:
        if known is None or known.point is None or known.point.lsn > lsn:
            return PointTables.read(self.history, lsn)
        if known.point.lsn == lsn:
            return known.tables
        return known.tables.moved(lsn, self.history.changed_after(known.point.lsn))

    def commit(
        self,
        ref: SnapshotRef,
        context: Context,
        last: Last,
        result: IterationResult,
        definitions: Sequence[Definitions] = (),
    ) -> None:
        """Points and outcome in one transaction. Raises LeaseLost, and nothing is committed, unless the claim is still
        what it was (docs/requirements.md O5). `definitions`: what the point has besides tables.
        """
        claim, lsn = self._lease.claim, self._lease.claim.lsn
        now = utc_now(self._clock)
        needed = pc.is_in(result.report.rows.column("name"), result.listed.wanted.column("name").combine_chunks())
        ledger = result.report.ledger.filter(needed)
        orphans = result.report.rows.filter(pc.invert(needed)).column("name").to_pylist()
        write_point = self._point(ref, now, last, result, ledger, self._definitions(last, definitions))

        def write_outcome(connection: sa.Connection) -> None:
            self._log.commit_row(connection, claim, context, ref.at.physical)
            self.quarantine.write(connection, lsn, now, result.failed)
            # What was copied for a table that failed is kept for the next attempt, and deleted some time after the
            # last.
            self.ledger.schedule_orphans(connection, orphans, due_time(ref.at.physical))

        self._flush(ref, result, [write_outcome, *([write_point] if write_point else [])])

    def _definitions(self, last: Last, found: Sequence[Definitions]) -> str:
        """Write what the point has besides tables, unless the last point has the same. Returns its path."""
        if not any(found):
            return ""
        before = "" if last.point is None else self.history.definitions_of(last.point.lsn)
        claim = self._lease.claim
        path = self._mirror.write_definitions(found, claim.lsn, claim.fence, before)
        self._mirror.store.sync("definitions")
        return path

    def _point(
        self,
        ref: SnapshotRef,
        now: datetime,
        last: Last,
        result: IterationResult,
        ledger: pa.Table,
        definitions: str,
    ) -> Callable[[sa.Connection], None] | None:
        """Write the point's ledger and file. Returns what the transaction adds for it; None for an idle iteration."""
        if result.points is None:
            return None
        lsn, path, points = self._lease.claim.lsn, "", result.points
        if ledger.num_rows:
            path = self._mirror.write_ledger(ledger, lsn, self._lease.claim.fence)
            self._mirror.store.sync("ledger")
        numbers = (result.tables_changed, result.report.objects_fetched, result.report.bytes_fetched)
        point = GlobalPoint(lsn, ref.at, ref.name, now, path, *numbers)
        changed = {table.table.id: table for table in points}
        refs = last.tables.moved(lsn, points).refs
        shown = as_mirror_point(point, refs, result.behind, definitions)
        point = replace(point, file=write_point(self._mirror, shown, changed, self.history.chain()))
        self._mirror.store.sync("points")
        ended = {table.table.id for table in points if table.ref is None} | result.listed.rebuilt
        counted = count_changed(self._mirror, points, ref.at)

        def write(connection: sa.Connection) -> None:
            self.ledger.record(connection, lsn, ledger, result.listed.diff, result.kept, ended)
            self.quarantine.write_behind(connection, lsn, result.behind)
            self.history.write(connection, point, points, definitions)
            self.figures.write(connection, lsn, counted, MadeBy.COMMIT, now)

        return write

    def _flush(self, ref: SnapshotRef, result: IterationResult, extra: list[Callable[[sa.Connection], None]]) -> None:
        """The commit is the flush of the checkpoint: tables that were written are acknowledged, those that failed hold
        the global point back (C2).
        """
        here = Location(self._lease.claim.lsn, ref.at.physical)
        if not self._is_loaded:
            self._checkpoint.load(described=False)
        self._is_loaded = False
        acknowledged, gone = [], []
        for point in result.points or ():
            if point.ref is None:
                gone.append(point.table.id)
                continue
            table = point.table
            self._checkpoint.save_table_point(
                table.id, here, schema=table.database, name=table.name, info=table.to_json()
            )
            acknowledged.append(table.id)
        if result.points is not None:
            for table_id, late in result.behind.items():
                self._checkpoint.save_table_point(table_id, here, schema=late.database, name=late.name)
            gone += self._checkpoint.unfinished_tables() - result.behind.keys() - set(acknowledged)
        self._checkpoint.save_global_point(here)
        snapshot = self._checkpoint.snapshot(forced=True)
        assert snapshot is not None  # as it is forced
        try:
            self._checkpoint.flush(snapshot, acknowledged, extra, gone=gone)
        except CheckpointUnknown as error:  # whether it happened is looked up in the row of the log
            lost = StateUnavailable(error.message, subject=error.subject)
            if not self._log.has_committed(self._lease.claim, lost):
                raise lost from error

    def publish_pending(self) -> None:
        """See `ccpr.state.publishing`."""
        publish_pending(self._log, self._lease.claim.name, self._mirror, self._lease.claim)

    def sweep(self, settings: Settings, age_seconds: float, *, orphans: bool = False) -> Swept:
        """Expire points that need not stay, delete files that no point has named for long enough. For `age_seconds`
        and `orphans` see `retention.sweep`."""
        swept = sweep(
            Replica(self.history.engine, self.history.task_id, self._mirror),
            Retention.of(settings),
            age_seconds,
            confirm=self._lease.confirm,
            grace_seconds=settings.retain_files,
            orphans=orphans,
        )
        if swept.changed:
            self.publish_pending()
        return swept
