"""The tables of a lake as Iceberg tables, beside Delta's log: the same data files, and metadata that Iceberg's own
library writes.

What a commit changes is what Delta's log says between the version that the Iceberg table shows and the one that it is
to show; its snapshot names that version, and the point. So a commit that was made is not made again, and a snapshot
that names none is another writer's. All tables that a point changes are one transaction of the catalog. Source:
decision lake-iceberg.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ccpr.lake.cleaning import Horizon
from ccpr.lake.commit import ROWS, Lake, PointToPublish
from ccpr.lake.delta_table import columns_of
from ccpr.lake.errors import IcebergFailed, LakeChanged, LakeForeign
from ccpr.lake.iceberg_deletes import FOLDER, SUFFIXES, DeleteFile, delete_file, write_deletes
from ccpr.lake.iceberg_jvm import IcebergJvm, java_errors
from ccpr.lake.lake_columns import element_id
from ccpr.lake.lake_log import Action, LakeTableState
from ccpr.lake.lake_types import DeltaType
from ccpr.lake.parquet import has_element_ids
from ccpr.matrixone.errors import CcprError

VERSION, POINT, AT, TASK = "ccpr.version", "ccpr.point", "ccpr.at", "ccpr.task"
# Its files are Delta's, too, so no other program may delete them; Iceberg's own cleaning refuses.
_PROPERTIES = {
    "gc.enabled": "false",
    "write.delete.mode": "merge-on-read",
    "commit.manifest.min-count-to-merge": "4",
    "commit.manifest.target-size-bytes": "524288",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "3",
}
_BASE = "metadata", "metadata-location"
_WRITERS = 8
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
    dropped : at the point: it is listed no more.
    """

    folder: str
    name: str
    former: str
    state: LakeTableState
    again: bool = False
    dropped: bool = False


@dataclass(frozen=True)
class IcebergMetadata:
    """The newest metadata of an Iceberg table.

    Attributes
    ----------
    location : of the metadata file.
    source : what its catalog has of it.
    """

    location: str
    content: str
    source: Any

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class IcebergChange:
    """
    Attributes
    ----------
    known : None for a new table.
    asked : of `IcebergCommits.staged`; None if its metadata stay.
    """

    table: ChangedTable
    known: IcebergMetadata | None
    asked: Mapping[str, Any] | None

    def without_base(self) -> "IcebergChange":
        """The same of a table that is made."""
        assert self.asked is not None
        return IcebergChange(self.table, None, {key: self.asked[key] for key in self.asked if key not in _BASE})


class IcebergCatalog(Protocol):
    """Where the newest metadata of each table are named. What Java raises in it is an error of `java_errors`."""

    subject: str

    def find(self, table: ChangedTable) -> IcebergMetadata | None:
        """The table in a folder; None for a new one, which the commit makes. Raises LakeForeign."""
        ...

    def commit(self, changes: Sequence[IcebergChange]) -> Mapping[str, CcprError]:
        """All at once but those that cannot be changed, which it returns by folder. Raises LakeConflict."""
        ...

    def unneeded(self, known: IcebergMetadata, names: Iterable[str]) -> Iterable[str]:
        """Of files in a table's folder for metadata those that a killed commit left, and that nothing names."""
        ...

    def drop(self, name: str, folder: str) -> None:
        """Forget a table whose files go."""
        ...

    @property
    def files(self) -> Any:
        """What Java reads and writes files by."""
        ...


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
    """

    def __init__(self, lake: Lake, version: int, jvm: IcebergJvm, catalog: IcebergCatalog) -> None:
        self.lake, self.version, self.jvm, self.catalog = lake, version, jvm, catalog
        self.location = lake.store.location

    def publish(self, point: PointToPublish, tables: Sequence[ChangedTable]) -> dict[str, CcprError]:
        """Make the tables show a point, all in one transaction. Returns those that cannot, by folder. Raises
        IcebergFailed, LakeConflict: then the transaction is made or not, and a repetition finds which."""
        failed: dict[str, CcprError] = {}
        found, changes = [], []
        for one in tables:
            try:
                known = self._known(one)
                if known is not None or not one.dropped:
                    found.append((one, known))
            except (LakeChanged, LakeForeign) as error:
                failed[one.folder] = error
        with ThreadPoolExecutor(_WRITERS) as writers:
            asked = [writers.submit(self._asked, point, one, known) for one, known in found]
        for (one, known), end in zip(found, asked, strict=True):
            try:
                changes.append(IcebergChange(one, known, end.result()))
            except LakeChanged as error:
                failed[one.folder] = error
        # Behind the last file: what the first folder makes the disk write is nearly all of what the others would.
        for one in changes:
            if one.asked is not None and one.asked["hidden"]:
                self.lake.store.files.sync(f"{one.table.folder}/{FOLDER}")
        return failed | self._commit(changes)

    def drop(self, name: str, folder: str) -> None:
        """Take the table out of the catalog; its files stay. Raises IcebergFailed."""
        with java_errors(f"table {name}"):
            self.catalog.drop(name, folder)

    def _commit(self, changes: Sequence[IcebergChange]) -> dict[str, CcprError]:
        if not changes:
            return {}
        self.lake.confirm()
        with java_errors(self.catalog.subject):
            return dict(self.catalog.commit(changes))

    # ---- one table

    def _known(self, table: ChangedTable) -> IcebergMetadata | None:
        with java_errors(f"table {table.name}"):
            return self.catalog.find(table)

    def _asked(self, point: PointToPublish, one: ChangedTable, known: IcebergMetadata | None) -> dict[str, Any] | None:
        """What makes a table show a point; None if it shows it, or is dropped there. Files of deletes are written.
        Raises LakeChanged."""
        if one.dropped:
            return None
        snapshot = None if known is None else current_snapshot(known.metadata)
        shown = None if snapshot is None else self._shown(snapshot, one)
        if shown == one.state.version and not one.again:
            return None
        commits = None if shown is None or one.again else self.lake.log(one.folder).commits(shown, one.state)
        found = None if commits is None else difference(commits)
        schema = iceberg_schema(one.state.metadata)
        if found is None and any(isinstance(each["type"], dict) for each in schema["fields"]):
            self._check_lists(one)
        marks = {VERSION: one.state.version, POINT: point.lsn, AT: point.at.physical, TASK: self.lake.task}
        return {
            "name": one.name,
            "location": self.location(one.folder),
            "format-version": self.version,
            "properties": {**_PROPERTIES, TASK: self.lake.task},
            "schema": schema,
            "marks": {key: str(value) for key, value in marks.items()},
            "anew": found is None,
            **self._files(one, found or LogDifference(added=one.state.live, moved=False)),
            **_base(known),
        }

    def _check_lists(self, one: ChangedTable) -> None:
        """Readers would take all elements for nulls. Raises LakeChanged."""
        store = self.lake.store.files
        if not all(has_element_ids(store, f"{one.folder}/{path}") for path in one.state.live):
            what = "an earlier release wrote its files, in which Iceberg does not find the elements of vectors"
            raise LakeChanged(what, subject=self.lake.log(one.folder).subject)

    def _files(self, one: ChangedTable, found: LogDifference) -> dict[str, Any]:
        """What changes of the files. A loop over files."""
        removed, added = found.removed, found.added
        gone = [self._file(one.folder, each) for path, each in removed.items() if path not in added]
        come = [self._file(one.folder, each) for path, each in added.items() if path not in removed]
        shown, hidden = [], []
        for path in {**removed, **added}:
            before, after = (
                None if each is None else delete_file(each, self.version)
                for each in (removed.get(path), added.get(path))
            )
            if before != after:
                location = self.location(one.folder, path)
                shown += [] if before is None else [self._delete_file(one.folder, before, location, 1)]
                if after is not None:
                    size = write_deletes(self.lake.store.files, one.folder, added[path], location, self.version)
                    hidden.append(self._delete_file(one.folder, after, location, size))
        moved = bool(found.moved and gone and come and (shown or not hidden))
        return {"gone": gone, "come": come, "shown": shown, "hidden": hidden, "moved": moved}

    def _file(self, folder: str, action: Action) -> dict[str, Any]:
        return {"path": self.location(folder, action["path"]), "size": action["size"]}

    def _delete_file(self, folder: str, one: DeleteFile, data: str, size: int) -> dict[str, Any]:
        path, form = self.location(folder, one.path), SUFFIXES[self.version]
        place = {} if one.offset is None else {"offset": one.offset, "length": one.length}
        return {"path": path, "format": form, "size": size, "rows": one.rows, "of": data, **place}

    def _shown(self, snapshot: Mapping[str, Any], one: ChangedTable) -> int | None:
        """The version of Delta's log that a snapshot shows. None for one of another writer, if it is taken `again`.
        Raises LakeChanged."""
        summary = snapshot.get("summary", {})
        version, task = summary.get(VERSION), summary.get(TASK)
        if task == self.lake.task and version is not None and int(version) <= one.state.version:
            return int(version)
        if one.again:
            return None
        who = f"snapshot {snapshot['snapshot-id']} of its Iceberg table is another writer's"
        raise LakeChanged(f"{who}: {summary.get('operation')}", subject=self.lake.log(one.folder).subject)

    # ---- what leaves

    def expire(
        self, table: ChangedTable, horizon: Horizon, held: Collection[int], *, committed: bool
    ) -> frozenset[str]:
        """Forget the snapshots that were replaced by then; data files are never deleted here. Returns the files, below
        the table, that held snapshots of them show. Raises IcebergFailed, LakeConflict.

        Parameters
        ----------
        held : versions of Delta's log whose snapshots stay.
        committed : the table was just committed to, so that metadata that nothing names go, too.
        """
        known = self._known(table)
        if known is None:
            return frozenset()
        snapshots = sorted(known.metadata.get("snapshots", ()), key=lambda one: one.get("sequence-number", 0))
        times = [one.get("summary", {}).get(AT) for one in snapshots]
        past = [
            one for one, at in zip(snapshots, times[1:], strict=False) if at is not None and horizon.is_past(int(at))
        ]
        staying = [one["snapshot-id"] for one in past if int(one.get("summary", {}).get(VERSION, -1)) in held]
        if past := [one["snapshot-id"] for one in past if one["snapshot-id"] not in staying]:
            change = IcebergChange(table, known, {"name": table.name, "forget": past, **_base(known)})
            for error in self._commit([change]).values():
                raise error
            known = self._known(table) or known
        if committed:
            self._sweep(known, table.folder)
        if not staying:
            return frozenset()
        with java_errors(f"table {table.name}"):
            files = self.jvm.shown(self.catalog.files, known.content, staying)
        return frozenset(one.removeprefix(self.location(table.folder, "")) for one in files)

    def _sweep(self, known: IcebergMetadata, folder: str) -> None:
        """Delete manifests that no snapshot names, of expired ones, and what commits left that were killed."""
        with java_errors(f"table in {folder}"):
            self.jvm.read_manifests(self.catalog.files, known.content)
        named = set[str]().union(*(self.jvm.manifests[one["snapshot-id"]] for one in known.metadata["snapshots"]))
        store = self.lake.store.files
        stored = {path.rpartition("/")[2] for path in store.names(f"{folder}/metadata")}
        gone = {one for one in stored - named if one.endswith(".avro")}.union(self.catalog.unneeded(known, stored))
        self.lake.confirm()
        for path in sorted(gone):
            store.delete(f"{folder}/metadata/{path}")


def current_snapshot(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Of a table's metadata; None before the first."""
    number = metadata.get("current-snapshot-id")
    return next((one for one in metadata.get("snapshots", ()) if one["snapshot-id"] == number), None)


def unreadable(table: ChangedTable, why: str | None) -> IcebergFailed:
    """A table whose metadata do not let themselves be changed."""
    again = "It is tried again. If it stays, `ccpr target rebuild NAME TARGET TABLE` makes its Iceberg table anew."
    return IcebergFailed(f"{why}"[:400], subject=f"table {table.name}", remedy=again)


def name_aside(folder: str) -> str:
    """What a table is called whose name another one has."""
    return f"ccpr_{hashlib.sha256(folder.encode()).hexdigest()[:16]}"


def _base(known: IcebergMetadata | None) -> dict[str, str]:
    return {} if known is None else dict(zip(_BASE, (known.content, known.location), strict=True))


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
