"""The tables of a lake as Iceberg tables, beside Delta's log: the same data files, and metadata that Iceberg's own
library writes.

What a commit changes is what Delta's log says between the version that the Iceberg table shows and the one that it is
to show; its snapshot names that version, and the point. So a commit that was made is not made again, and a snapshot
that names none is another writer's. All tables that a point changes are one transaction of the catalog. Source:
decision lake-iceberg.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccpr.lake.cleaning import Horizon
from ccpr.lake.commit import ROWS, Lake, PointToPublish
from ccpr.lake.delta_table import columns_of
from ccpr.lake.errors import LakeChanged, LakeForeign
from ccpr.lake.iceberg_deletes import FOLDER, SUFFIXES, DeleteFile, delete_file, write_deletes
from ccpr.lake.iceberg_jvm import IcebergJvm, exception_name, java_errors, java_exception
from ccpr.lake.lake_columns import element_id
from ccpr.lake.lake_log import Action, LakeTableState
from ccpr.lake.lake_types import DeltaType
from ccpr.matrixone.errors import CcprError

VERSION, POINT, AT, TASK = "ccpr.version", "ccpr.point", "ccpr.at", "ccpr.task"
# Its files are Delta's, too, so no other program may delete them; Iceberg's own cleaning refuses.
_PROPERTIES = {
    "gc.enabled": "false",
    "write.delete.mode": "merge-on-read",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_ABSENT = ("NoSuchTableException", "NoSuchNamespaceException")
_TYPES = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "string": "string",
    "binary": "binary",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
}


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table that an Iceberg table is to follow.

    Attributes
    ----------
    name : `db.t`, at the point.
    former : the same at the point before.
    state : of Delta's log.
    again : whatever it shows, all of its files are taken anew.
    """

    folder: str
    name: str
    former: str
    state: LakeTableState
    again: bool = False


@dataclass
class LogDifference:
    """What turns the files of one version of Delta's log into those of a later one: `remove`s of the former, `add`s of
    the latter. `moved`: no row changed."""

    removed: dict[str, Action] = field(default_factory=dict)
    added: dict[str, Action] = field(default_factory=dict)
    moved: bool = True


def difference(commits: Iterable[Sequence[Action]]) -> LogDifference | None:
    """None if another program made one of the commits."""
    found = LogDifference()
    for actions in commits:
        if not any("ccpr" in one.get("commitInfo", ()) for one in actions):
            return None
        for one in (action["remove"] for action in actions if "remove" in action):
            if ROWS not in one.get("tags", ()):
                return None
            if found.added.pop(one["path"], None) is None:
                found.removed[one["path"]] = one
            found.moved &= not one["dataChange"]
        for one in (action["add"] for action in actions if "add" in action):
            found.added[one["path"]] = one
            found.moved &= not one["dataChange"]
    return found


class IcebergTables:
    """The Iceberg tables of one lake.

    Parameters
    ----------
    version : of the format, 2 or 3.
    properties : of the REST catalog: `uri`, `warehouse`, `token`, those of a store.
    """

    def __init__(self, lake: Lake, version: int, jvm: IcebergJvm, properties: Mapping[str, str]) -> None:
        self.lake, self.version, self.jvm = lake, version, jvm
        self.subject = f"catalog {properties.get('uri', '')}"
        with java_errors(self.subject):
            self.catalog = jvm.catalog(properties)
        self.location = lake.store.location

    def publish(self, point: PointToPublish, tables: Sequence[ChangedTable]) -> dict[str, CcprError]:
        """Make the tables show a point, all in one transaction. Returns those that cannot, by folder. Raises
        IcebergFailed, LakeConflict: then the transaction is made or not, and a repetition finds which."""
        failed: dict[str, CcprError] = {}
        staged = []
        for one in tables:
            try:
                with java_errors(f"table {one.name}"):
                    transaction = self._transaction(point, one)
            except (LakeChanged, LakeForeign) as error:
                failed[one.folder] = error
                continue
            if transaction is not None:
                staged.append((one.name, transaction))
        if staged:
            self.lake.confirm()
            commits = [
                self.jvm.iceberg.catalog.TableCommit.create(
                    self.jvm.identifier(name), transaction.startMetadata(), transaction.currentMetadata()
                )
                for name, transaction in staged
            ]
            with java_errors(self.subject):
                self.catalog.commitTransaction(commits)
        return failed

    # ---- one table

    def _transaction(self, point: PointToPublish, one: ChangedTable) -> Any:
        """What makes a table show a point, not committed; None if it shows it."""
        table = self._table(one)
        snapshot = table.currentSnapshot()
        shown = None if snapshot is None else self._shown(snapshot, one)
        if shown == one.state.version and not one.again:
            return None
        transaction = table.newTransaction()
        operations = transaction.table().operations()
        schema = self.jvm.iceberg.SchemaParser.fromJson(json.dumps(iceberg_schema(one.state.metadata)))
        if not table.schema().sameSchema(schema):
            operations.commit(operations.current(), operations.current().updateSchema(schema))
        commits = None if shown is None or one.again else self.lake.log(one.folder).commits(shown, one.state)
        found = None if commits is None else difference(commits)
        if found is None:
            if snapshot is not None:
                everything = transaction.newDelete().deleteFromRowFilter(
                    self.jvm.iceberg.expressions.Expressions.alwaysTrue()
                )
                self._marked(everything, point, one).commit()
            found = LogDifference(added=one.state.live, moved=False)
        newest = operations.current().currentSnapshot()
        self._marked(self._change(transaction, table, one, found, newest), point, one).commit()
        return transaction

    def _change(self, transaction: Any, table: Any, one: ChangedTable, found: LogDifference, newest: Any) -> Any:
        """An update of the files, not committed. A loop over files."""
        spec = table.spec()
        removed, added = found.removed, found.added
        gone = [self._gone(spec, one.folder, each) for path, each in removed.items() if path not in added]
        come = [self._data_file(table, one.folder, each) for path, each in added.items() if path not in removed]
        shown, hidden = [], []
        for path in {**removed, **added}:
            before, after = (
                None if each is None else delete_file(each, self.version)
                for each in (removed.get(path), added.get(path))
            )
            if before != after:
                location = self.location(one.folder, path)
                shown += [] if before is None else [self._delete_file(spec, one.folder, before, location, 1)]
                if after is not None:
                    size = write_deletes(self.lake.store.files, one.folder, added[path], location, self.version)
                    hidden.append(self._delete_file(spec, one.folder, after, location, size))
        if hidden:
            self.lake.store.files.sync(f"{one.folder}/{FOLDER}")
        if found.moved and gone and come and (shown or not hidden):
            change = transaction.newRewrite()
            calls = ((change.deleteFile, [*gone, *shown]), (change.addFile, [*come, *hidden]))
        else:
            change = transaction.newRowDelta()
            calls = (
                (change.removeRows, gone),
                (change.addRows, come),
                (change.removeDeletes, shown),
                (change.addDeletes, hidden),
            )
        for call, files in calls:
            for each in files:
                call(each)
        if newest is not None:  # else a second vector of a file is refused
            change.validateFromSnapshot(newest.snapshotId())
        return change

    def _marked(self, change: Any, point: PointToPublish, one: ChangedTable) -> Any:
        marks = {VERSION: one.state.version, POINT: point.lsn, AT: point.at.physical, TASK: self.lake.task}
        for key, value in marks.items():
            change.set(key, str(value))
        return change

    def _data_file(self, table: Any, folder: str, add: Action) -> Any:
        """With the bounds that its footer has."""
        path, iceberg = self.location(folder, add["path"]), self.jvm.iceberg
        content, config = table.io().newInputFile(path), iceberg.MetricsConfig.getDefault()
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(content, config)
        builder = iceberg.DataFiles.builder(table.spec()).withPath(path).withFormat("parquet")
        return builder.withFileSizeInBytes(add["size"]).withMetrics(metrics).build()

    def _gone(self, spec: Any, folder: str, remove: Action) -> Any:
        """It is known by its path alone."""
        builder = self.jvm.iceberg.DataFiles.builder(spec).withPath(self.location(folder, remove["path"]))
        return builder.withFormat("parquet").withFileSizeInBytes(remove["size"]).withRecordCount(1).build()

    def _delete_file(self, spec: Any, folder: str, one: DeleteFile, data: str, size: int) -> Any:
        builder = self.jvm.iceberg.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
        builder.withPath(self.location(folder, one.path)).withFormat(SUFFIXES[self.version])
        builder.withFileSizeInBytes(size).withRecordCount(one.rows).withReferencedDataFile(data)
        if one.offset is not None:
            builder.withContentOffset(one.offset).withContentSizeInBytes(one.length)
        return builder.build()

    def _shown(self, snapshot: Any, one: ChangedTable) -> int | None:
        """The version of Delta's log that a snapshot shows. None for one of another writer, if it is taken `again`.
        Raises LakeChanged."""
        summary = snapshot.summary()
        version, task = summary.get(VERSION), summary.get(TASK)
        if task == self.lake.task and version is not None and int(version) <= one.state.version:
            return int(version)
        if one.again:
            return None
        what = f"snapshot {snapshot.snapshotId()} of its Iceberg table is another writer's: {snapshot.operation()}"
        raise LakeChanged(what, subject=self.lake.log(one.folder).subject)

    # ---- the catalog

    def drop(self, name: str, folder: str) -> None:
        """Take the table out of the catalog; its files stay. Raises IcebergFailed."""
        with java_errors(f"table {name}"):
            for identifier in (self.jvm.identifier(name), self._aside(name, folder)):
                if self._at(identifier, folder) is not None:
                    self.catalog.dropTable(identifier, False)

    def _table(self, one: ChangedTable) -> Any:
        """The Iceberg table in a folder, under its name of now; it is made if there is none. Raises LakeForeign."""
        wanted = self.jvm.identifier(one.name)
        there = self._loaded(wanted)
        if there is not None and there.location() == self.location(one.folder):
            return there
        if there is not None:
            self._make_way(one.name, wanted, there)
        for former in (self.jvm.identifier(one.former), self._aside(one.name, one.folder)):
            if (found := self._at(former, one.folder)) is not None:
                self.catalog.renameTable(former, wanted)
                return self._loaded(wanted) or found
        schema = self.jvm.iceberg.SchemaParser.fromJson(json.dumps(iceberg_schema(one.state.metadata)))
        spec, namespace = self.jvm.iceberg.PartitionSpec.unpartitioned(), wanted.namespace()
        if not self.catalog.namespaceExists(namespace):
            self.catalog.createNamespace(namespace, {})
        properties = {"format-version": str(self.version), TASK: self.lake.task, **_PROPERTIES}
        return self.catalog.createTable(wanted, schema, spec, self.location(one.folder), properties)

    def _make_way(self, name: str, identifier: Any, there: Any) -> None:
        """Another table of the lake has the name: it was dropped, or will get its own name in a moment."""
        folder = there.location().removeprefix(self.location(""))
        if there.properties().get(TASK) != self.lake.task or folder == there.location():
            raise LakeForeign("the catalog has another table of this name", subject=f"table {name}")
        self.catalog.renameTable(identifier, self._aside(name, folder))

    def _aside(self, name: str, folder: str) -> Any:
        """What a table is called whose name another one has."""
        database = name.partition(".")[0]
        return self.jvm.identifier(f"{database}.ccpr_{hashlib.sha256(folder.encode()).hexdigest()[:16]}")

    def _at(self, identifier: Any, folder: str) -> Any:
        """The table of this name if it is in the folder."""
        found = self._loaded(identifier)
        return found if found is not None and found.location() == self.location(folder) else None

    def _loaded(self, identifier: Any) -> Any:
        """None if there is no such table."""
        try:
            return self.catalog.loadTable(identifier)
        except Exception as error:
            thrown = java_exception(error)
            if thrown is not None and exception_name(thrown) in _ABSENT:
                return None
            raise

    def expire(self, name: str, folder: str, horizon: Horizon, *, committed: bool) -> None:
        """Forget the snapshots that were replaced by then; data files are never deleted here. `committed`: the table
        was just committed to, so that metadata that nothing names go, too. Raises IcebergFailed, LakeConflict."""
        with java_errors(f"table {name}"):
            table = self._at(self.jvm.identifier(name), folder)
            if table is None:
                return
            snapshots = sorted(table.snapshots(), key=lambda one: one.sequenceNumber())
            times = [one.summary().get(AT) for one in snapshots]
            past = self.jvm.java.util.ArrayList()
            for one, at in zip(snapshots, times[1:], strict=False):
                if at is not None and horizon.is_past(int(at)):
                    past.add(one)
            if past.size():
                operations = table.operations()
                base = operations.current()
                self.lake.confirm()
                operations.commit(base, self.jvm.iceberg.TableMetadata.buildFrom(base).removeSnapshots(past).build())
                table.refresh()
            if committed:
                self._sweep(table, folder)

    def _sweep(self, table: Any, folder: str) -> None:
        """Delete manifests that no snapshot names: of expired ones, and of commits that were killed."""
        named = set()
        for one in table.snapshots():
            number = one.snapshotId()
            if number not in self.jvm.manifests:
                paths = [one.manifestListLocation(), *(each.path() for each in one.allManifests(table.io()))]
                self.jvm.manifests[number] = {path.rpartition("/")[2] for path in paths}
            named |= self.jvm.manifests[number]
        store = self.lake.store.files
        stored = {path.rpartition("/")[2] for path in store.names(f"{folder}/metadata")}
        self.lake.confirm()
        for path in sorted(one for one in stored - named if one.endswith(".avro")):
            store.delete(f"{folder}/metadata/{path}")


def iceberg_schema(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """As JSON, from Delta's `metaData`: a column keeps its number."""
    columns = columns_of(metadata)
    assert metadata is not None
    assert columns is not None
    fields = json.loads(metadata["schemaString"])["fields"]
    named = zip(columns.columns, fields, strict=True)
    return {
        "type": "struct",
        "schema-id": 0,
        "fields": [_field(one.id, each["name"], each["type"]) for one, each in named],
    }


def _field(number: int, name: str, kind: DeltaType) -> dict[str, Any]:
    if isinstance(kind, dict):
        element = {"element-id": element_id(number), "element": _TYPES[kind["elementType"]], "element-required": False}
        return {"id": number, "name": name, "required": False, "type": {"type": "list", **element}}
    return {"id": number, "name": name, "required": False, "type": kind if kind.startswith("decimal") else _TYPES[kind]}
