"""Brings a lake to the mirror's newest point: each point since the lake's newest one is published, oldest first.

The first publication begins with the newest point. A table that cannot be published stays at its version, and the
others go on; it is published directly at the next point at which it can be. What was interrupted anywhere is repeated:
the log of each table says which point it shows. Source: docs/architecture.md, "Lakes"; decision lake-every-point.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ccpr.base.errors import Failure
from ccpr.base.loops import unexpected
from ccpr.lake.cleaning import Horizon, clean, is_checkpoint_due, oldest_removal
from ccpr.lake.commit import Lake, PointToPublish, TablePlace
from ccpr.lake.delta_table import NEWEST
from ccpr.lake.errors import IcebergFailed, LakeAhead, LakeChanged, LakeStoreUnsafe, LakeTableUnknown
from ccpr.lake.iceberg import ChangedTable, IcebergTables
from ccpr.lake.lake_catalog import (
    BEHIND,
    CHANGED,
    CLEANED,
    CREATED,
    DROPPED,
    REMOVED,
    CatalogEntry,
    LakeCatalog,
    LakeContents,
    TableRow,
    contents_of,
    new_folder,
)
from ccpr.lake.lake_log import LakeTableState
from ccpr.lake.publish import Published, empty_table, publish_table
from ccpr.matrixone.errors import CcprError, Transient
from ccpr.matrixone.schema import Kind
from ccpr.mirror.errors import PointGone, StoreFailed
from ccpr.mirror.points import Point, TableRef
from ccpr.retention.retention import Dated, Retention
from ccpr.state.errors import LeaseLost
from ccpr.state.patterns import ALL_NAMES, NamePatterns
from ccpr.state.targets import LaggingTargetTable

OpenIceberg: TypeAlias = Callable[[Lake], IcebergTables]
_OF_A_TABLE = (LakeChanged, IcebergFailed)  # of its cleaning: the others go on
_OF_THE_LAKE = (LeaseLost, StoreFailed, LakeAhead, LakeStoreUnsafe)


@dataclass(frozen=True, slots=True)
class LakeScope:
    """
    Attributes
    ----------
    database : of several that are subscribed to; empty for all.
    tables : by name.
    """

    database: str = ""
    tables: NamePatterns = ALL_NAMES

    def takes(self, ref: TableRef) -> bool:
        return ref.kind is Kind.TABLE and self.takes_named(ref.database, ref.name)

    def takes_named(self, database: str, name: str) -> bool:
        return self.database in ("", database) and self.tables.match(name)


@dataclass(frozen=True, slots=True)
class SyncedLakeTable:
    """What was done to one table, all points together.

    Attributes
    ----------
    action : ``created``, ``changed`` or ``dropped``.
    version : of the Delta table, the newest.
    upserted, deleted, missing : 0; files are published, no rows.
    """

    table: str
    action: str
    version: int
    rows: int
    files_added: int = 0
    files_removed: int = 0
    vectors: int = 0
    bytes_written: int = 0
    upserted: int = 0
    deleted: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class LakeResult:
    """
    Attributes
    ----------
    lsn, snapshot_ts : the point that the lake shows.
    needed_lsn : the oldest point that is needed to go on.
    points : how many were published.
    """

    lsn: int
    snapshot_ts: int
    needed_lsn: int
    tables: tuple[SyncedLakeTable, ...]
    behind: tuple[LaggingTargetTable, ...]
    points: int
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class LakeSync:
    """One sync of one lake. One thread.

    Parameters
    ----------
    newest : the newest point of the subscription's history.
    later : its points that are later than a time, oldest first.
    watermark : up to which the replica is complete. Times are nanoseconds by the upstream's clock.
    iceberg : opens the lake's Iceberg tables, when there is something to do with them; None if it has none.
    shown : by the folder of an Iceberg table, the version of the lake's log that the catalog shows; None where asking
        for all of them is not cheap.
    held : times of points whose snapshots stay in Iceberg's tables.
    """

    def __init__(
        self,
        lake: Lake,
        scope: LakeScope,
        newest: Dated,
        later: Callable[[int], Sequence[Dated]],
        watermark: int,
        retention: Retention,
        iceberg: OpenIceberg | None = None,
        shown: Callable[[], Mapping[str, int]] | None = None,
        held: Collection[int] = (),
    ) -> None:
        self.lake, self.scope, self.newest, self.later = lake, scope, newest, later
        self.watermark, self.retention, self._open, self._shown = watermark, retention, iceberg, shown
        self.held = held
        self._held_versions: dict[str, set[int]] | None = None
        self._tables: IcebergTables | None = None
        self.catalog = LakeCatalog(lake)
        self.contents = LakeContents()
        self.horizon = Horizon()
        self.oldest_at: int | None = None
        self.done: dict[int, SyncedLakeTable] = {}
        self.failed: dict[int, LaggingTargetTable] = {}
        self._versions: dict[str, int] = {}
        self._due: dict[int, LakeTableState] = {}  # tables that get a checkpoint, by logical id
        self._stale: frozenset[str] = frozenset()
        self._last = False  # whether the point that is published is the last one
        # What makes a table be looked at again, although its rows are the same.
        self._reading = f"{lake.reading.invalid_text.value} {lake.reading.zero_dates.value} {NEWEST}"
        if iceberg is not None and shown is None:
            self._reading += " iceberg"  # of a lake that was one of Delta's alone each table is made there

    def run(self) -> LakeResult:
        """Raises LakeAhead, LakeChanged (of the table of points), LakeForeign, StoreFailed, LeaseLost, and of Iceberg
        tables IcebergFailed, LakeConflict."""
        self.contents = self.catalog.read()
        newest, shown = self.newest, self.contents.newest
        if shown is not None and shown.at > newest.at:
            what = f"it shows lsn {shown.lsn}, which is later than lsn {newest.lsn} by the upstream's clock"
            raise LakeAhead(what, subject=self.lake.store.url)
        published = 0
        for point in self._points():
            self._last = point.lsn == newest.lsn
            self._publish(point)
            published += 1
        behind = tuple(self.failed[number] for number in sorted(self.failed))
        return LakeResult(newest.lsn, newest.at.physical, newest.lsn, tuple(self.done.values()), behind, published)

    def rebuild(self, table: str) -> LakeResult:
        """The same, and publish one table anew at the newest point: all of its files, also those that others changed.
        `table` is its name upstream, `t` or `db.t`. Raises LakeTableUnknown, and what `run` and `publish_table`
        raise."""
        result = self.run()
        found = self.lake.mirror.point(self.newest.lsn)
        wanted = {number: ref for number, ref in self._wanted(found).items() if table in (ref.name, ref.qualified_name)}
        if len(wanted) != 1:
            what = "the lake shows no such table" if not wanted else "several databases have a table of this name"
            raise LakeTableUnknown(what, subject=f"table {table}")
        ((number, ref),) = wanted.items()
        point = PointToPublish(found.lsn, found.at, found.snapshot)
        self._versions = self.contents.folder_versions()
        row = self._table(point, ref, number, self._folders(self._wanted(found), ()), again=True)
        rows = self._completed(point, [] if row is None else [row], again=True)
        self.contents = self.catalog.record(point, rows)
        behind = tuple(one for one in result.behind if one.table != ref.qualified_name)
        mine = (self.failed[number],) if number in self.failed else ()
        return replace(result, tables=tuple(self.done.values()), behind=(*behind, *mine))

    @property
    def iceberg(self) -> IcebergTables | None:
        """They are opened once."""
        if self._tables is None and self._open is not None:
            self._tables = self._open(self.lake)
        return self._tables

    def _points(self) -> Iterator[Point]:
        shown = self.contents.newest
        if shown is None or shown.at == self.newest.at:
            yield self.lake.mirror.point(self.newest.lsn)
            return
        for one in self.later(shown.at.physical):
            if one.lsn <= self.newest.lsn:
                try:
                    yield self.lake.mirror.point(one.lsn)
                except PointGone:  # the newest one never is
                    continue

    def _publish(self, found: Point) -> None:
        point = PointToPublish(found.lsn, found.at, found.snapshot)
        self._look_back(point)
        self.failed = {}
        self._versions = self.contents.folder_versions()
        self._stale = self._other_version()
        wanted = self._wanted(found)
        gone = [one for one in self.contents.tables.values() if self._is_gone(one, found, wanted)]
        folders = self._folders(wanted, gone)
        rows = [row for number, ref in wanted.items() if (row := self._table(point, ref, number, folders)) is not None]
        rows += [self._drop(point, one, frozenset(folders.values())) for one in gone]
        rows = self._completed(point, rows)
        rows += self._late(found, wanted)
        rows += self._expired(frozenset(folders.values()), {row.logical_id for row in rows})
        self.contents = self.catalog.record(point, rows, oldest_at=self.oldest_at, held=self.held)
        state = self.catalog.state
        if state is not None and is_checkpoint_due(state):
            passed = Horizon.of(self.watermark, self.watermark)  # of this table only the newest version is read
            oldest = self.catalog.own_oldest_version(passed.at or 0)
            clean(self.lake, self.catalog.log, state, passed, oldest, committed=True)

    def _look_back(self, point: PointToPublish) -> None:
        """Which points are kept once this one is published."""
        points = [*(one for one in self.contents.points if one.at < point.at), point]
        oldest = self.retention.oldest_kept(points, self.watermark)
        self.oldest_at = next((one.at.physical for one in points if one.lsn == oldest), None)
        self.horizon, self._held_versions = Horizon.of(self.oldest_at, self.watermark), None

    # ---- which tables

    def _wanted(self, point: Point) -> dict[int, TableRef]:
        """The tables that the lake is to show, by logical id. Of two of one logical id the later one counts."""
        known = {entry.table_id: entry.logical_id for entry in self.contents.tables.values()}
        found = {}
        for ref in sorted(point.tables.values(), key=lambda ref: ref.table_id):
            if self.scope.takes(ref):
                number = known.get(ref.table_id)
                found[self.lake.mirror.manifest(ref).table.logical_id if number is None else number] = ref
        return found

    def _is_gone(self, entry: CatalogEntry, point: Point, wanted: Mapping[int, TableRef]) -> bool:
        return not entry.dropped and entry.logical_id not in wanted and entry.table_id not in point.behind

    def _folders(self, wanted: Mapping[int, TableRef], gone: Collection[CatalogEntry]) -> dict[int, str]:
        """The folder of each table, by logical id. A new table may have that of one that is gone."""
        leaving = {one.logical_id for one in gone}
        found = {
            one.logical_id: one.folder
            for one in self.contents.tables.values()
            if not one.dropped and one.logical_id not in leaving
        }
        for logical_id, ref in wanted.items():
            if logical_id not in found:
                found[logical_id] = new_folder(ref.database, ref.name, ref.table_id, frozenset(found.values()))
        return found

    # ---- one table

    def _table(
        self,
        point: PointToPublish,
        ref: TableRef,
        logical_id: int,
        folders: Mapping[int, str],
        *,
        again: bool = False,
    ) -> TableRow | None:
        """Its row, if the point changes it, or if it is published `again`. A failure of the table is kept."""
        entry, folder = self.contents.tables.get(logical_id), folders[logical_id]
        entry = None if entry is None or entry.dropped else entry
        if entry is not None and not again and self._is_same(entry, ref):
            return None
        about = (ref.qualified_name, ref.table_id, logical_id, folder)
        try:
            with unexpected():
                published = self._published(point, ref, entry, folder, again=again)
        except _OF_THE_LAKE:
            raise
        except CcprError as error:
            return self._failed(error, about, entry)
        self.failed.pop(logical_id, None)
        action = CREATED if entry is None else CHANGED
        self._note(logical_id, ref.qualified_name, action, published)
        state = self.lake.states.get(folder)
        since = None if state is None else oldest_removal(state)
        if state is not None and published.committed and is_checkpoint_due(state):
            self._due[logical_id] = state
        if self._last and self._open is None:
            self.lake.states.pop(folder, None)
        shown = (published.version, published.rows, published.size)
        return TableRow(action, *about, *shown, ref.manifest, published.pending, self._reading, since)

    def _failed(
        self, error: CcprError, about: tuple[str, int, int, str], entry: CatalogEntry | None
    ) -> TableRow | None:
        """The row of a table that does not show the point, if it showed the one before."""
        self.failed[about[2]] = LaggingTargetTable(about[0], Failure.of(error), again=isinstance(error, Transient))
        return TableRow(BEHIND, *about, None) if entry is not None and not entry.behind else None

    def _is_same(self, entry: CatalogEntry, ref: TableRef) -> bool:
        return (
            entry.manifest == ref.manifest
            and not entry.pending
            and not entry.behind
            and entry.reading == self._reading
            and entry.name == ref.qualified_name
            and entry.folder not in self._stale
        )

    def _other_version(self) -> frozenset[str]:
        """Folders of tables that the catalog shows in another version than the lake: one of the two was restored, or a
        metadata file was lost."""
        if self._shown is None:
            return frozenset()
        shown = self._shown()
        live = (one for one in self.contents.tables.values() if not one.dropped)
        return frozenset(one.folder for one in live if shown.get(one.folder) != one.version)

    def _published(
        self, point: PointToPublish, ref: TableRef, entry: CatalogEntry | None, folder: str, *, again: bool
    ) -> Published:
        place = TablePlace(folder, self._versions.get(folder, -1))
        if entry is not None:
            place = replace(place, manifest=entry.manifest, at=entry.at)
        return publish_table(self.lake, point, ref, place, again=again, verify=entry is not None and entry.behind)

    def _drop(self, point: PointToPublish, entry: CatalogEntry, used: Collection[str]) -> TableRow:
        """The row of a table that is gone. A new table that has its folder has removed its files."""
        version = None
        if entry.folder not in used:
            place = TablePlace(entry.folder, entry.version, entry.manifest, entry.at)
            version = empty_table(self.lake, point, place).version
        shown = entry.version if version is None else version
        self._note(entry.logical_id, entry.name, DROPPED, Published(shown, committed=True, pending=False))
        return TableRow(DROPPED, entry.name, entry.table_id, entry.logical_id, entry.folder, version)

    def _note(self, logical_id: int, name: str, action: str, published: Published) -> None:
        before = self.done.get(logical_id)
        if before is None and not published.committed:
            return
        added, removed, vectors, written = (
            getattr(published, key) + (getattr(before, key) if before else 0)
            for key in ("files_added", "files_removed", "vectors", "bytes_written")
        )
        shown = before.action if before and action == CHANGED else action
        about = (name, shown, published.version, published.rows)
        self.done[logical_id] = SyncedLakeTable(*about, added, removed, vectors, written)

    # ---- what follows the commits of a point

    def _completed(self, point: PointToPublish, rows: Sequence[TableRow], *, again: bool = False) -> list[TableRow]:
        """The rows, once Iceberg's tables show the point, too, and old files have left. Of a table that fails the row
        says that it is behind."""
        failed = self._followed(point, rows, again=again)
        found = []
        for row in rows:
            state = self._due.pop(row.logical_id, None)
            error = failed.get(row.path)
            if error is None and state is not None:
                try:
                    self._clean(row.table, row.path, state, committed=True)
                    row = replace(row, removed_since=oldest_removal(state))
                except _OF_A_TABLE as changed:
                    error = changed
            if error is None:
                found.append(row)
            else:
                about = (row.table, row.table_id, row.logical_id, row.path)
                behind = self._failed(error, about, self.contents.tables.get(row.logical_id))
                found += [] if behind is None else [behind]
        if self._last:
            self.lake.states.clear()
        return found

    def _followed(self, point: PointToPublish, rows: Sequence[TableRow], *, again: bool) -> dict[str, CcprError]:
        """What goes wrong with Iceberg's tables, by folder."""
        if self._open is None:
            return {}
        tables = []
        for row in rows:
            if row.version is not None:
                before = self.contents.tables.get(row.logical_id)
                former = row.table if before is None else before.name
                state = self.lake.states.get(row.path) or self.lake.log(row.path).read()
                dropped = row.change == DROPPED
                tables.append(ChangedTable(row.path, row.table, former, state, again, dropped))
        return self.iceberg.publish(point, tables) if tables and self.iceberg is not None else {}

    def _clean(self, name: str, folder: str, state: LakeTableState, *, committed: bool) -> None:
        """Let old files of a table go. What no snapshot of Iceberg's needs goes behind the snapshot."""
        held = frozenset[str]()
        if self.iceberg is not None:
            table = ChangedTable(folder, name, name, state)
            held = self.iceberg.expire(table, self.horizon, self._held().get(folder, ()), committed=committed)
        oldest = self.catalog.version_at(folder, self.horizon.at)
        clean(self.lake, self.lake.log(folder), state, self.horizon, oldest, committed=committed, held=held)

    def _held(self) -> dict[str, set[int]]:
        """By folder, the versions that points show which are held."""
        if self._held_versions is None:
            self._held_versions = {}
            for at in self.held:
                for entry in contents_of(self.catalog.rows, at).tables.values():
                    if not entry.dropped and not entry.behind:
                        self._held_versions.setdefault(entry.folder, set()).add(entry.version)
        return self._held_versions

    # ---- tables that the point does not change

    def _late(self, point: Point, wanted: Mapping[int, TableRef]) -> Iterator[TableRow]:
        """Tables that the mirror's point does not show, because they failed there."""
        for entry in self.contents.tables.values():
            if entry.logical_id not in wanted and entry.table_id in point.behind and not entry.behind:
                yield TableRow(BEHIND, entry.name, entry.table_id, entry.logical_id, entry.folder, None)

    def _expired(self, used: Collection[str], changed: Collection[int]) -> Iterator[TableRow]:
        """Old files of tables that did not change for an hour, and folders of tables that are gone."""
        for entry in self.contents.tables.values():
            if entry.logical_id in changed or not self.horizon.is_past(entry.at) or self._is_held(entry):
                continue
            about = (entry.name, entry.table_id, entry.logical_id, entry.folder)
            if entry.dropped:
                if entry.folder not in used:
                    if self.iceberg is not None:
                        self.iceberg.drop(entry.name, entry.folder)
                    self.lake.confirm()
                    self.lake.store.files.delete_folder(entry.folder)
                yield TableRow(REMOVED, *about, None)
            elif self.horizon.is_past(entry.removed_since) and not entry.behind:
                try:
                    since = self._cleaned(entry)
                except _OF_A_TABLE as error:
                    if (row := self._failed(error, about, entry)) is not None:
                        yield row
                    continue
                shown = (entry.version, entry.rows, entry.size)
                yield TableRow(CLEANED, *about, *shown, entry.manifest, entry.pending, entry.reading, since)

    def _is_held(self, entry: CatalogEntry) -> bool:
        """Whether a held point shows what would leave: then it does with the table's next commits, or once the point is
        released."""
        since = entry.at if entry.dropped else entry.removed_since
        return since is not None and any(at < since for at in self.held) and entry.folder in self._held()

    def _cleaned(self, entry: CatalogEntry) -> int | None:
        state = self.lake.state(TablePlace(entry.folder, entry.version))
        self._clean(entry.name, entry.folder, state, committed=False)
        return oldest_removal(state)
