"""Step 2: the object list of the snapshot, checked, and compared with the manifests of the tables in it: which list is
asked for, against what, and what it means for the tables of the last point."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import Failure
from ccpr.maintenance.verify import unsound_objects
from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.errors import HistoryUnreadable, SnapshotGone, StaleRead, UpstreamError
from ccpr.matrixone.client.retry import NO_RETRY, with_retry
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.mirror.errors import MirrorDamaged, TableMissingInMirror
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff, rows_of, without_objects
from ccpr.pipeline.appendable import FullList, LaterSnapshot
from ccpr.pipeline.applying import known_objects
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.committing import Last
from ccpr.pipeline.databases import still_there
from ccpr.pipeline.errors import BadObjectList, BaseSnapshotLost
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.object_list import (
    Batches,
    NamedSequences,
    ask_list,
    check_known,
    conflicting_objects,
    deduplicate,
    diff_objects,
)
from ccpr.pipeline.options import Resync
from ccpr.pipeline.results import PAST_UNREAD, Listed
from ccpr.pipeline.table_lists import DatabaseLists, TableFailures, TableLists
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots
from ccpr.schema.table_changes import ChangeKind
from ccpr.state.ledger import Ledger
from ccpr.state.subscription import Subscription

_logger = logging.getLogger(__name__)


def list_objects(iteration: Iteration, record: IterationRecord, catalog: CatalogDiff) -> Listed:
    """Wait until the snapshot is flushed, then read its list. Raises what `Listing.diff` raises, and
    TableMissingInMirror for a table to resync that is not there."""
    memory, temporary, resync = iteration.memory, record.temporary, iteration.options.resync
    asked = None if resync is None else resync.table
    if asked not in {None, *(table.qualified_name for table in catalog.named.values())}:
        raise TableMissingInMirror(
            "there is no such table at the snapshot", subject=f"table {asked}", remedy="Check the spelling."
        )
    with still_there(iteration.subscription):
        temporary.wait_until_flushed(record.snapshot, catalog)
        known = {number: ref.objects for number, ref in iteration.last.tables.refs.items()}
        sequences = NamedSequences(catalog.sequences())
        later, one_by_one = LaterSnapshot(temporary, FullList(memory.context.list_rows, known), sequences), None
        if catalog.lists:
            one_by_one = DatabaseLists(temporary, catalog.lists, later, TableLists(temporary))
        elif catalog.is_partitioned:
            one_by_one = TableLists(temporary)
            sequences.not_listed(sequences.asked)
        listing = Listing(
            temporary, catalog, iteration.last, iteration.mirror, iteration.committer.ledger, later, one_by_one
        )
        base = None if memory.context.by_rows else memory.context.current  # no list names what we wrote
        listed = listing.diff(record.snapshot, base, resync)
    memory.context = replace(memory.context, list_rows=later.full_list.rows)  # remembered with the commit
    return listed


def check_allowed(iteration: Iteration, listed: Listed, objects: pa.Table) -> None:
    """Raises BaseSnapshotLost or HistoryUnreadable, which say what a full list would fetch (COPY_INPUT), if the list
    has to be a full one and that was not allowed."""
    if not listed.base_lost or iteration.allow_resync or iteration.options.resync == Resync():
        return
    subject, size = f"subscription {iteration.subscription.name}", pc.sum(objects.column("size")).as_py() or 0
    if size > iteration.subscription.settings.resync_limit:
        kind = HistoryUnreadable if listed.base_is_there else BaseSnapshotLost
        raise kind(
            f"{listed.base_lost}; comparing with a full list instead would fetch {objects.num_rows} objects, {size} "
            "bytes",
            subject=subject,
        )
    _logger.warning("%s: a full list takes the place of a lost snapshot, %d bytes to fetch", subject, size)


@dataclass(frozen=True, slots=True)
class Listing:
    """One iteration's view.

    Attributes
    ----------
    temporary : the snapshots beside its own, and with them the session and how it is asked.
    catalog : at its snapshot; without the tables that `failures` names.
    last : the tables as their last points have them. A difference to the last point says nothing of those that are
        behind it (docs/architecture.md, "One commit").
    later : what a list of the snapshot is compared with instead of a long full list.
    one_by_one : lists several databases one by one, or tables where the upstream cannot list their database.
    """

    temporary: TemporarySnapshots
    catalog: CatalogDiff
    last: Last
    mirror: Mirror
    ledger: Ledger
    later: LaterSnapshot
    one_by_one: TableLists | DatabaseLists | None = None

    @property
    def subscription(self) -> Subscription:
        return self.temporary.subscription

    def diff(self, ref: SnapshotRef, base: SnapshotRef | None, resync: Resync | None) -> Listed:
        """From the tables' points to `ref`; `base` is the snapshot of the last point.

        Raises StaleRead, HistoryUnreadable and DatabaseMissing if `Timeouts.stale_read` is None; BadObjectList and
        MirrorDamaged, which in isolated mode become the failure of their table where they are one table's.
        """
        tables = self.catalog.tables.keys() - self.catalog.failures.keys()
        found = self._found(ref, base, tables, resync)
        self._check_shared(found, f"snapshot {ref.name}")
        found.failures.update(self.catalog.failures)
        asked = self._asked(tables, resync) - found.failures.keys()
        if asked and resync is not None:
            found.refetched = self._unsound(rows_of(found.kept(), asked), checksums=resync.table is not None)
        diff = found.diff.without(found.failures)
        rebuilt, sequences = frozenset(found.rebuilt - found.failures.keys()), frozenset(self.later.sequences.found)
        return Listed(diff, found.refetched, rebuilt, found.failures, found.base_lost, sequences)

    def _found(
        self, ref: SnapshotRef, base: SnapshotRef | None, tables: set[int], resync: Resync | None
    ) -> "_Comparing":
        # A difference shows what was written since the base. A table that we do not know yet may hold older objects
        # (CLONE), one that lags was not moved by it: their part comes from a full list.
        new = {
            change.table.id
            for change in self.catalog.changes
            if change.kind in (ChangeKind.CREATED, ChangeKind.REPLACED)
        }
        # The rows of a partition that is gone are in no list: what its table still has, the full list says.
        repartitioned = {
            change.table.id
            for change in self.catalog.changes
            if change.before and change.after and change.before.partitions != change.after.partitions
        }
        complete = tables & (new | self.last.behind.keys() | self._asked(tables, resync) | repartitioned)
        if base is None or complete == tables:
            return self._compare(ref, None, tables, resync)
        try:
            found = self._compare_patiently(ref, base, tables - complete, resync)
        except (SnapshotGone, *self._past_lost) as error:
            if isinstance(error, self._past_lost) and self.temporary.options.timeouts.stale_read is None:
                raise
            # Raises if our own snapshot is gone.
            upstream_snapshots.snapshot_timestamp(self.temporary.session, ref.name, self.subscription.publication)
            found = self._compare(ref, None, tables, resync)
            lost = "cannot read back to" if isinstance(error, PAST_UNREAD) else "no longer has"
            found.base_lost = f"the upstream {lost} snapshot {base.name} of the last point ({error.code})"
            return found
        return found.joined(self._compare(ref, None, complete, resync)) if complete else found

    def _compare_patiently(
        self, ref: SnapshotRef, base: SnapshotRef, tables: set[int], resync: Resync | None
    ) -> "_Comparing":
        """`_compare`; while the upstream does not reach back to the base, it is asked again."""
        policy = self.temporary.options.timeouts.stale_read
        policy = NO_RETRY if policy is None else policy
        return with_retry(lambda: self._compare(ref, base, tables, resync), policy, also=self._past_lost)

    @property
    def _past_lost(self) -> tuple[type[UpstreamError], ...]:
        """The upstream does not reach back to the base. Of several databases, a missing one may have been dropped."""
        return (StaleRead, HistoryUnreadable) if self.subscription.of_account else (StaleRead, *PAST_UNREAD)

    def _compare(
        self, ref: SnapshotRef, base: SnapshotRef | None, tables: set[int], resync: Resync | None
    ) -> "_Comparing":
        """The list of `ref`, against `base` or in full, compared with the manifests of these tables; of others nothing
        is looked at."""
        catalog, found = self.catalog, _Comparing()
        names: dict[str, dict[str, int | None]] = {
            self.subscription.database: dict.fromkeys(name for name, _ in catalog.unreplicated)
        }
        for table_id, table in catalog.listed().items():
            names.setdefault(table.database, {})[table.name] = table_id if table_id in tables else None
        subject, asked = f"snapshot {ref.name}", (self.temporary.session, self.subscription.publication, ref.name)

        def read_against(against: str | None, *, appendable: bool = False) -> pa.Table:
            def through(batches: Batches) -> Batches:
                counted = self.later.full_list.counted(batches) if against is None else batches
                return self.later.sequences.note(counted, appendable=appendable)

            return ask_list(*asked, against, names, subject, appendable=appendable, through=through)

        def read() -> pa.Table:
            if self.one_by_one is not None:  # of a catalog that was read
                wanted = [catalog.tables[table_id] for table_id in sorted(tables)]
                return self.one_by_one.read(ref, base, wanted, catalog.catalog.tables, found.failures)
            if base is None:
                return read_against(None)
            # A difference omits an appendable object that was created before the base and written after it (decision
            # created-before-its-rows).
            difference, read_full = read_against(base.name), partial(read_against, None, appendable=True)
            database = self.subscription.database
            return self.later.with_appendable(difference, ref, database, tables, subject, read_full)

        def check(rows: pa.Table, subject: str) -> pa.Table:
            rows = deduplicate(rows, subject)
            self.temporary.options.check_list(rows, ref.at, subject)
            return rows

        listed = self._each_table(with_retry(read), check, subject, found.failures)
        touched = (
            tables if base is None else set(pc.unique(listed.column("table_id")).to_pylist())
        ) - found.failures.keys()
        known = self._known(touched, self._asked(tables, resync), found, None if base is None else listed)

        def check_both(rows: pa.Table, subject: str) -> pa.Table:
            check_known(rows, known, subject)
            return rows

        listed = self._each_table(rows_of(listed, touched - found.failures.keys()), check_both, subject, found.failures)
        found.known = rows_of(known, touched - found.failures.keys())
        found.diff = diff_objects(
            listed, found.known, complete=touched - found.failures.keys() if base is None else set()
        )
        return found

    def _check_shared(self, found: "_Comparing", subject: str) -> None:
        """Objects that tables share (CLONE), with each other or with tables of earlier points. In isolated mode those
        tables fail that name one otherwise than others do.
        """
        added = found.diff.added
        stored = self.ledger.look_up(pc.unique(added.column("name")).to_pylist())
        names = conflicting_objects(added, {name: known.size for name, known in stored.items()})
        if not names:
            return
        error = BadObjectList(
            f"{', '.join(names[:3])}: described otherwise by another table that has the same object", subject=subject
        )
        if not self.subscription.settings.isolated:
            raise error
        failed = added.filter(pc.is_in(added.column("name"), pa.array(names))).column("table_id").to_pylist()
        found.failures.update(dict.fromkeys(failed, Failure.of(error)))
        found.diff = found.diff.without(found.failures)

    def _each_table(
        self, rows: pa.Table, check: Callable[[pa.Table, str], pa.Table], subject: str, failures: TableFailures
    ) -> pa.Table:
        """What `check` makes of a list. In isolated mode a table that does not pass is skipped, with its failure."""
        try:
            return check(rows, subject)
        except BadObjectList:
            if not self.subscription.settings.isolated:
                raise
        passed = []
        for table_id in pc.unique(rows.column("table_id")).to_pylist():
            try:
                passed.append(
                    check(rows_of(rows, [table_id]), f"{subject}, table {self.catalog.tables[table_id].qualified_name}")
                )
            except BadObjectList as error:
                failures[table_id] = Failure.of(error)
        return pa.concat_tables(passed) if passed else LISTED_SCHEMA.empty_table()

    def _known(self, touched: set[int], asked: set[int], found: "_Comparing", listed: pa.Table | None) -> pa.Table:
        """The live objects of tables as their manifests have them: all, or those that a difference names, as it says
        nothing of the others. A manifest that is lost fails its table, but for a resync of it."""
        parts = [LISTED_SCHEMA.empty_table()]
        for table_id in sorted(touched & self.last.tables.keys()):
            try:
                its = None if listed is None else rows_of(listed, [table_id])
                parts.append(known_objects(self.mirror, self.last.tables[table_id], its))
            except MirrorDamaged as error:
                if table_id in asked:
                    found.rebuilt.add(table_id)
                elif self.subscription.settings.isolated:
                    found.failures[table_id] = Failure.of(error)
                else:
                    raise
        return pa.concat_tables(parts)

    def _asked(self, tables: Collection[int], resync: Resync | None) -> set[int]:
        """The tables that a resync is to compare with what is really there."""
        if resync is None:
            return set()
        return {table_id for table_id in tables if resync.table in (None, self.catalog.tables[table_id].qualified_name)}

    def _unsound(self, kept: pa.Table, *, checksums: bool) -> pa.Table:
        copied = self.catalog.copied(self.subscription)
        return unsound_objects(self.mirror, self.ledger, rows_of(kept, copied), checksums=checksums)


@dataclass(slots=True)
class _Comparing:
    """What a comparison has come to so far; `known` has the objects of the tables that were looked at: of a full list
    all, of a difference those that it names."""

    diff: ObjectDiff = field(
        default_factory=lambda: ObjectDiff(LISTED_SCHEMA.empty_table(), LISTED_SCHEMA.empty_table())
    )
    known: pa.Table = field(default_factory=LISTED_SCHEMA.empty_table)
    refetched: pa.Table = field(default_factory=LISTED_SCHEMA.empty_table)
    failures: TableFailures = field(default_factory=dict)
    rebuilt: set[int] = field(default_factory=set)
    base_lost: str = ""

    def joined(self, other: "_Comparing") -> "_Comparing":
        """With the tables of another comparison, too."""
        known = pa.concat_tables([self.known, other.known])
        return _Comparing(
            self.diff.joined(other.diff),
            known,
            failures=self.failures | other.failures,
            rebuilt=self.rebuilt | other.rebuilt,
        )

    def kept(self) -> pa.Table:
        """The known objects that stay live."""
        return without_objects(self.known, self.diff.removed)
