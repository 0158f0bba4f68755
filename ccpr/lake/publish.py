"""Publishing one table at one point: a commit that turns the files of the version before into those of the point.

The objects that the point has and the version has not get files. Of the others only those are looked at whose rows can
have come or gone: appendable ones, and those that a new tombstone names. What is found is compared with what the
version says; an equal vector is no action. Source: docs/how-to/lake.md, "Why it needs no merge".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ccpr.lake.changed_rows import check_feed_names
from ccpr.lake.commit import (
    OBJECT,
    ROWS,
    Lake,
    LakeCommit,
    PointToPublish,
    TablePlace,
    check_files,
    manifest_before,
    shows,
    visible_rows,
)
from ccpr.lake.deletion_vectors import CommitVectors, is_in_log
from ccpr.lake.delta_table import (
    FORMAT,
    NEWEST,
    VECTORS,
    check_features,
    columns_of,
    joined,
    metadata,
    protocol,
)
from ccpr.lake.errors import LakeChanged
from ccpr.lake.feed import VersionChanges, VersionFeed
from ccpr.lake.hidden_rows import later_tombstones, touched_by_tombstones
from ccpr.lake.lake_columns import LakeColumns, delta_schema, file_schema, next_columns
from ccpr.lake.lake_log import Action, LakeLog, LakeTableState
from ccpr.lake.object_files import KnownFile, ObjectResult, ObjectTask, publish_objects, stored_rows
from ccpr.lake.parquet import FileShape
from ccpr.lake.statistics import mended_stats, stats_text
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, deleted_rows
from ccpr.matrixone.schema import Table
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import files_of
from ccpr.mirror.points import TableRef


@dataclass(frozen=True, slots=True)
class Published:
    """What was done to a table.

    Attributes
    ----------
    version : that shows the point.
    committed : whether there is a new version.
    pending : whether a later point may show other rows, although the manifest is the same.
    rows, size : visible rows, and bytes of the files, at the version.
    files_added, files_removed : by the commit; a file with another vector is not counted.
    vectors : files that got another vector.
    bytes_written : Parquet files, vectors and log.
    data_changed : whether rows changed, as far as it was proved that they did not.
    """

    version: int
    committed: bool
    pending: bool
    rows: int = 0
    size: int = 0
    files_added: int = 0
    files_removed: int = 0
    vectors: int = 0
    bytes_written: int = 0
    data_changed: bool = True


def publish_table(
    lake: Lake, point: PointToPublish, ref: TableRef, place: TablePlace, *, again: bool = False, verify: bool = False
) -> Published:
    """Make the table in its folder show a point. Nothing is written if it does.

    Parameters
    ----------
    again : all files are written anew, also where others have changed the table.
    verify : something was wrong with it, so that its files are looked for first.

    Raises LakeChanged, LakeForeign, LakeAhead, LakeConflict, LakeTableRefused, MirrorDamaged, StoreFailed,
    ValueRefused, and other errors of reading the mirror.
    """
    log = lake.log(place.folder)
    state = log.read(foreign=True) if again else lake.state(place)
    if verify and not again:
        check_files(lake, log, state)
    manifest = lake.mirror.manifest(ref)
    shows(state, point, log)
    published = _Publication(lake, point, manifest, place, log, state, again=again).commit()
    if again:
        log.write_checkpoint(state)  # behind which the commits of others are not read any more
    return published


def empty_table(lake: Lake, point: PointToPublish, place: TablePlace) -> Published:
    """Make a table that is gone upstream show nothing. Its earlier versions stay as long as their points."""
    log, state = lake.log(place.folder), lake.state(place)
    if not shows(state, point, log):
        removes = list(state.live.values())
        before, columns = manifest_before(lake, place, state), _columns_before(state, log, again=False)
        changes = VersionChanges()
        if before is not None and columns is not None:
            shape = FileShape(place.folder, before.table, columns, lake.reading)
            feed = VersionFeed(lake, place, state.version + 1, shape, columns, removes, before, None, point.at)
            changes = feed.changes(removes, ())
        LakeCommit(lake, point, place, log, state).write(
            "DROP TABLE", removes=removes, unchanged=changes.unchanged, changes=changes.actions
        )
    lake.states.pop(place.folder, None)
    return _outcome(state, committed=True, pending=False)


def _outcome(state: LakeTableState, *, committed: bool, pending: bool, **counts: Any) -> Published:
    rows = sum(visible_rows(add) for add in state.live.values())
    size = sum(int(add["size"]) for add in state.live.values())
    return Published(state.version, committed, pending, rows, size, **counts)


def _columns_before(state: LakeTableState, log: LakeLog, *, again: bool) -> LakeColumns | None:
    """Those of the newest version; None before the first, and if `again` replaces what others have made of it."""
    try:
        return columns_of(state.metadata)
    except (KeyError, TypeError, ValueError) as error:
        if again:
            return None
        raise LakeChanged("its metadata is not what was written", subject=log.subject) from error


class _Publication:
    """One table at one point."""

    def __init__(
        self,
        lake: Lake,
        point: PointToPublish,
        manifest: Manifest,
        place: TablePlace,
        log: LakeLog,
        state: LakeTableState,
        *,
        again: bool,
    ) -> None:
        self.lake, self.point, self.manifest, self.place = lake, point, manifest, place
        self.log, self.state = log, state
        self.table: Table = manifest.table
        self.objects = manifest.listed_objects()
        check_features(state.protocol, log.subject)
        if lake.rules.change_data:
            check_feed_names(self.table)
        self.again = again
        self.columns_before = before = _columns_before(state, log, again=again)
        self.columns = next_columns(self.table, lake.reading, lake.rules.mapped, before)
        if again and before is not None and self.columns.generation == before.generation:
            self.columns = replace(self.columns, generation=before.generation + 1)
        self.shape = FileShape(
            place.folder, self.table, self.columns, lake.reading, visible_only=lake.rules.copy_on_write
        )
        keeps = before is not None and before.generation == self.columns.generation
        self.live = {add["tags"][OBJECT]: add for add in self._former()} if keeps else {}
        self.before = None if again else manifest_before(lake, place, state)
        self.vectors = CommitVectors()
        self.written = 0

    def _former(self) -> Iterator[Action]:
        """The files of the version before, as this release names them."""
        found = self.state.metadata or {}
        if found["configuration"].get(FORMAT) == NEWEST:
            yield from self.state.live.values()
        else:
            schema = file_schema(self.table, self.columns, self.lake.reading)
            yield from ({**add, "stats": mended_stats(add["stats"], schema)} for add in self.state.live.values())

    def commit(self) -> Published:
        lake, state = self.lake, self.state
        data = [listed for listed in self.objects if not listed.tombstone]
        tasks = self._tasks(data)
        results = []
        place = lake.mirror, lake.store.files, self.shape, self.point.at
        for result in publish_objects(lake.carry, *place, tasks):
            results.append(result)
            if result.file is not None:
                lake.on_rows(result.file.rows, result.file.size)
        adds, changed = self._adds(results)
        now = {listed.stats.name for listed in data}
        kept = {add["path"]: add for name, add in self.live.items() if name in now and name not in changed}
        removes = [add for add in state.live.values() if add["path"] not in kept]
        head = self._head(vectors=any("deletionVector" in add for add in adds))
        pending = any(result.pending for result in results) or later_tombstones(
            self.objects, lake.mirror.open_object, self.point.at
        )
        if not adds and not removes and not head:
            lake.states[self.place.folder] = state
            return _outcome(state, committed=False, pending=pending)
        former, renamed = self._renamed(kept)
        self._store_vectors()
        lake.store.files.sync(f"{self.place.folder}/data")
        feed = VersionFeed(
            lake,
            self.place,
            state.version + 1,
            self.shape,
            self.columns_before,
            list(state.live.values()),
            self.before,
            self.manifest,
            self.point.at,
            self.again,
        )
        changes = feed.changes(removes, adds)
        self.written += changes.size
        commit = LakeCommit(lake, self.point, self.place, self.log, state)
        removes, adds = [*removes, *former], [*adds, *renamed]
        unchanged = changes.unchanged.union(kept)
        self.written += commit.write(
            self._operation(), head=head, removes=removes, adds=adds, unchanged=unchanged, changes=changes.actions
        )
        before = {add["path"] for add in removes}
        after = {add["path"] for add in adds}
        return _outcome(
            state,
            committed=True,
            pending=pending,
            files_added=len(after - before),
            files_removed=len(before - after),
            vectors=len(after & before),
            bytes_written=self.written,
        )

    def _operation(self) -> str:
        """As the table's history calls the version."""
        before = self.columns_before
        if self.state.version < 0:
            return "CREATE TABLE"
        same = before is not None and before.generation == self.columns.generation and self.columns.continues(before)
        return "WRITE" if same else "REPLACE TABLE"

    def _tasks(self, data: Sequence[ListedObject]) -> list[ObjectTask]:
        touched = self._touched()
        affected = [
            listed
            for listed in data
            if touched is None
            or listed.stats.appendable
            or listed.stats.name not in self.live
            or listed.stats.object_id in touched
        ]
        ids = frozenset(listed.stats.object_id for listed in affected)
        with files_of(self.table.qualified_name):
            dead = deleted_rows(self.objects, self.lake.mirror.open_object, self.point.at, of=ids) if ids else {}
        return [
            ObjectTask(listed, dead.get(listed.stats.object_id), self._known(listed.stats.name)) for listed in affected
        ]

    def _touched(self) -> frozenset[bytes] | None:
        """Ids of objects whose rows may have been deleted since the version before; None if that is not known."""
        if self.before is None or not self.live:
            return None
        with files_of(self.table.qualified_name):
            return frozenset(touched_by_tombstones(self.before, self.manifest, self.lake.mirror.open_object))

    def _renamed(self, kept: Mapping[str, Action]) -> tuple[list[Action], list[Action]]:
        """Of the files that stay those that a former release named otherwise: as it did, and as they are named now."""
        before, after = [], []
        for path, add in kept.items():
            vector = add.get("deletionVector")
            if vector is not None and is_in_log(vector):
                hidden = stored_rows(self.lake.store.files, self.place.folder, vector)
                add = {**add, "deletionVector": self.vectors.add(hidden)}
            if add != self.state.live[path]:
                before.append(self.state.live[path])
                after.append(add)
        return before, after

    def _known(self, name: str) -> KnownFile | None:
        add = self.live.get(name)
        if add is None or self.state.mark is None:
            return None
        return KnownFile(add["tags"][ROWS], add.get("deletionVector"), Timestamp(self.state.mark.at))

    def _adds(self, results: Sequence[ObjectResult]) -> tuple[list[dict[str, Any]], set[str]]:
        """The new adds, and the names of the objects whose files were replaced, or left."""
        adds, changed = [], set()
        for result in results:
            if result.hidden is None:
                continue
            before = self.live.get(result.name)
            changed.add(result.name)
            if not result.shown:
                continue
            if result.file is not None:
                path, size, stats = result.file.path, result.file.size, stats_text(result.file.statistics)
                self.written += size if result.file.new else 0
            else:
                assert before is not None
                path, size, stats = before["path"], before["size"], before["stats"]
            vector = None if self.shape.visible_only else self.vectors.add(result.hidden)
            adds.append(
                {
                    "path": path,
                    "partitionValues": {},
                    "size": size,
                    "modificationTime": self.point.milliseconds,
                    "dataChange": True,
                    "stats": stats,
                    "tags": {OBJECT: result.name, ROWS: result.rows},
                    **({} if vector is None else {"deletionVector": vector}),
                }
            )
        return adds, changed

    def _head(self, *, vectors: bool) -> list[Action]:
        """Protocol and metadata, where they are new. `vectors`: whether a file gets a deletion vector."""
        lake, before = self.lake, self.state.metadata
        created = self.point.milliseconds if before is None else before["createdTime"]
        schema = delta_schema(self.table, self.columns, lake.reading, lake.rules.mapped)
        needed = joined(self.state.protocol, protocol(schema, lake.rules, vectors=vectors))
        about = (self.table, self.columns, lake.reading, lake.rules, self.place.folder, lake.task, created)
        found = metadata(*about, vectors=VECTORS in needed.get("readerFeatures", ()))
        head: list[Action] = [] if needed == self.state.protocol else [{"protocol": needed}]
        return head if found == before else [*head, {"metaData": found}]

    def _store_vectors(self) -> None:
        named = self.vectors.name_file()
        if named is not None:
            name, content = named
            self.lake.store.files.put(f"{self.place.folder}/{name}", [content], overwrite=True)
            self.lake.store.files.sync(self.place.folder)
            self.written += len(content)
