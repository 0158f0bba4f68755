"""The lakes of a state folder as warehouses of the catalog, and their tables as a reader sees them: as they are now, or
all of them at one point.

A warehouse is `subscription.lake`, or `subscription` alone where it has one lake. Behind an `@` there can be a point:
then all tables are those of that point, for as long as a client is attached. Which point a table shows in which
snapshot is what the lake itself says (`ccpr.lake.lake_catalog`); a table that does not show a point is not there.
Source: decision lake-catalog.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from ccpr.base.newest import Newest
from ccpr.catalog.refusals import Refusal, bad_request, json_bytes, no_table
from ccpr.catalog.table_keys import Keys, TableKeys
from ccpr.lake.iceberg import VERSION
from ccpr.lake.lake_catalog import LakeContents, contents_of, read_points, times_of
from ccpr.lake.lake_options import options_of
from ccpr.lake.stores import LakeStore, open_lake
from ccpr.matrixone.errors import CcprError
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.log import CcprLog
from ccpr.state.table_pointers import PointerMove, TablePointer, TablePointers
from ccpr.state.targets import Target

K = TypeVar("K")
V = TypeVar("V")
NEWEST = "newest"
_KEPT_BYTES = 64 << 20
_KEPT_POINTS, _KEPT_SECONDS = 64, 60.0

Identifier = tuple[str, str]  # database and table
Held: TypeAlias = Callable[[], Mapping[str, LakeContents]]


@dataclass(frozen=True, slots=True)
class HeldPoint:
    """`at`: nanoseconds by the upstream's clock; None for a point that the subscription has no more."""

    name: str
    lsn: int
    at: int | None


KeptFiles = Newest[tuple[str, str], bytes]  # metadata files by the lake's URL and their names: they never change


@dataclass(frozen=True, slots=True)
class Warehouse:
    """
    Attributes
    ----------
    subscription : its name; the lake's is `target.name`.
    """

    subscription: str
    target: Target
    store: LakeStore
    pointers: TablePointers
    files: KeptFiles

    @property
    def name(self) -> str:
        return f"{self.subscription}.{self.target.name}"

    def content(self, pointer: TablePointer) -> bytes | None:
        """Of the metadata file; None if it is gone or damaged. Raises StoreFailed."""
        found = self.files.get((self.store.url, pointer.metadata))
        if found is None and (stored := self.store.read(pointer.metadata)) is not None:
            with suppress(ValueError):
                json.loads(content := stored.to_pybytes())
                self.keep(pointer.metadata, found := content)
        return found

    def note_lost(self, pointer: TablePointer) -> None:
        """Its metadata file is gone: the next sync of the lake shall look at the table."""
        if pointer.version is not None:
            self.pointers.move([PointerMove(pointer, replace(pointer, version=None))])

    def keep(self, name: str, content: bytes) -> None:
        """In memory, of a metadata file."""
        self.files.put((self.store.url, name), content, len(content))

    def metadata(self, pointer: TablePointer) -> dict[str, Any] | None:
        content = self.content(pointer)
        return None if content is None else json.loads(content)


class WarehouseView(Protocol):
    """The tables of a warehouse for a reader."""

    def tables(self) -> Mapping[Identifier, Any]:
        """By their names. Raises CcprError."""
        ...

    def folder(self, table: Identifier) -> str:
        """Of its files, below the lake. Raises Refusal, CcprError."""
        ...

    def load(self, table: Identifier, keys: Sequence[Keys] = ()) -> bytes:
        """What the specification calls LoadTableResult. Raises Refusal, CcprError."""
        ...


class LiveView:
    """As it was when its tables were asked for first.

    Parameters
    ----------
    held : what the lake shows at held points, by their names, which are tags in the tables' metadata.
    """

    def __init__(self, warehouse: Warehouse, held: Held = dict) -> None:
        self._warehouse, self._held = warehouse, held

    def tables(self) -> Mapping[Identifier, TablePointer]:
        return self._tables

    @cached_property
    def _tables(self) -> dict[Identifier, TablePointer]:
        return {
            (one.database, one.name): one
            for one in self._warehouse.pointers.all()
            if not one.gone and one.at is not None
        }

    def folder(self, table: Identifier) -> str:
        return self._pointer(table).folder

    def _pointer(self, table: Identifier) -> TablePointer:
        if (found := self._tables.get(table)) is None:
            raise no_table(".".join(table))
        return found

    def load(self, table: Identifier, keys: Sequence[Keys] = ()) -> bytes:
        pointer, warehouse = self._pointer(table), self._warehouse
        content = warehouse.content(pointer)
        if content is None:
            warehouse.note_lost(pointer)
            raise no_table(".".join(table), "has lost its metadata file: the next sync of the lake writes it anew")
        if held := self._held():
            content = json_bytes(_tagged(json.loads(content), pointer.folder, held))
        return loaded(warehouse.store.location(pointer.metadata), content, keys)


def _tagged(metadata: dict[str, Any], folder: str, held: Mapping[str, LakeContents]) -> dict[str, Any]:
    refs = dict(metadata.get("refs", {}))
    for name, contents in held.items():
        for one in contents.tables.values():
            if one.folder == folder and not one.dropped and not one.behind:
                snapshot = _showing(metadata, one.version)
                if snapshot is not None and name not in refs:
                    refs[name] = {"snapshot-id": snapshot["snapshot-id"], "type": "tag"}
    return {**metadata, "refs": refs}


def _showing(metadata: Mapping[str, Any], version: int) -> dict[str, Any] | None:
    """The snapshot that shows a version of the lake's log."""
    snapshots = reversed(metadata.get("snapshots", ()))
    return next((one for one in snapshots if one.get("summary", {}).get(VERSION) == str(version)), None)


def loaded(location: str | None, metadata: bytes, keys: Sequence[Keys] = ()) -> bytes:
    """A LoadTableResult. Without keys a client has its own."""
    about = json.dumps(location).encode(), metadata, json_bytes(keys)
    return b'{"metadata-location":%s,"metadata":%s,"config":{},"storage-credentials":%s}' % about


class PinnedView:
    """At one point."""

    def __init__(self, warehouse: Warehouse, contents: LakeContents) -> None:
        self._warehouse, self._contents = warehouse, contents

    def tables(self) -> dict[Identifier, tuple[str, int]]:
        """Folder and version."""
        shown = (one for one in self._contents.tables.values() if not one.dropped and not one.behind)
        return {identifier_of(one.name, one.folder): (one.folder, one.version) for one in shown}

    def folder(self, table: Identifier) -> str:
        return self._shown(table)[0]

    def _shown(self, table: Identifier) -> tuple[str, int]:
        if (found := self.tables().get(table)) is None:
            raise no_table(".".join(table), "is not shown at that point")
        return found

    def load(self, table: Identifier, keys: Sequence[Keys] = ()) -> bytes:
        folder, version = self._shown(table)
        for pointer in self._warehouse.pointers.all():
            metadata = self._warehouse.metadata(pointer) if pointer.folder == folder else None
            if pointer.folder == folder and metadata is None:
                self._warehouse.note_lost(pointer)
            elif metadata is not None and (snapshot := _showing(metadata, version)) is not None:
                # Clients ask for a location and keep metadata by it: it is no other table's, and no file.
                location = f"{self._warehouse.store.location(pointer.metadata)}#{snapshot['snapshot-id']}"
                return loaded(location, json_bytes(at_snapshot(metadata, snapshot)), keys)
        raise no_table(".".join(table), "is not kept at that point")


def identifier_of(name: str, folder: str) -> Identifier:
    """Of `db.t`, where the folder says what is before the dot: there are names with dots."""
    first, _, _ = folder.partition(".")
    dots = first.count("=2E")
    parts = name.split(".")
    return ".".join(parts[: dots + 1]), ".".join(parts[dots + 1 :])


def at_snapshot(metadata: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """A table's metadata as if a snapshot of it were the newest."""
    number = snapshot["sequence-number"]
    snapshots = [one for one in metadata["snapshots"] if one["sequence-number"] <= number]
    kept = {one["snapshot-id"] for one in snapshots}
    refs = {name: ref for name, ref in metadata.get("refs", {}).items() if ref["snapshot-id"] in kept}
    return {
        **metadata,
        "current-snapshot-id": snapshot["snapshot-id"],
        "current-schema-id": snapshot.get("schema-id", metadata["current-schema-id"]),
        "refs": {**refs, "main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        "snapshots": snapshots,
        "snapshot-log": [one for one in metadata.get("snapshot-log", ()) if one["snapshot-id"] in kept],
        "metadata-log": [],
        "last-updated-ms": snapshot["timestamp-ms"],
        "last-sequence-number": number,
        **{
            name: [one for one in metadata[name] if one["snapshot-id"] in kept]
            for name in ("statistics", "partition-statistics")
            if name in metadata
        },
    }


class Warehouses:
    """Those of a state folder. Thread-safe."""

    def __init__(self, log: CcprLog, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.log, self._files, self._monotonic, self._lock = log, KeptFiles(_KEPT_BYTES), monotonic, Lock()
        self.keys = TableKeys(monotonic)
        self._held = Newest[tuple[Any, ...], tuple[dict[str, LakeContents], float]](_KEPT_POINTS)
        self._stores: dict[str, LakeStore] = {}
        self._points = Newest[tuple[str, str, int], tuple[LakeContents, float]](_KEPT_POINTS)

    def find(self, name: str) -> Warehouse:
        """By `subscription.lake` or `subscription`. Raises Refusal, StateUnavailable."""
        subscription, _, lake = name.partition(".")
        try:
            task = self.log.row(subscription).task_id
            lakes = [one for one in self.log.of(task).targets.lakes() if lake in ("", one.name)]
            lakes = [one for one in lakes if options_of(one).has_iceberg]
        except SubscriptionMissing:
            lakes = []
        if len(lakes) != 1:
            why = "does not exist" if not lakes else f"has several lakes: name one, {subscription}.{lakes[0].name}"
            raise Refusal(400 if lakes else 404, "NoSuchWarehouseException", f"warehouse {name:.200} {why}")
        return self.of(subscription, lakes[0])

    def of(self, subscription: str, target: Target) -> Warehouse:
        with self._lock:
            store = self._stores.get(target.uri) or open_lake(target.uri)
            self._stores[target.uri] = store
        pointers = TablePointers(self.log.engine, target.task_id, target.name)
        return Warehouse(subscription, target, store, pointers, self._files)

    def time_of(self, warehouse: Warehouse, point: str) -> int:
        """Of a point: of its lsn, of `newest`, or a time of one, which stays what it is where a restored state counts
        anew. Raises Refusal, CcprError."""
        is_number = point.isascii() and point.isdecimal() and len(point) < 20
        mine = warehouse.target.task_id, warehouse.target.name
        if is_number and self._points.get((*mine, int(point))) is not None:  # a time at which a client is attached
            return int(point)
        tables = warehouse.pointers.all()
        shown = max((one.at for one in tables if one.at is not None), default=-1)
        if point == NEWEST and self._points.get((*mine, shown)) is not None:
            return shown
        rows = self._rows(warehouse)
        points, held = times_of(rows), self.held(warehouse)
        points |= {one.at: one.lsn for one in self.holds(mine[0]) if one.at and one.name in held}
        if point == NEWEST:
            found = [at for at in points if at <= shown]
        elif is_number:
            found = [at for at, lsn in points.items() if int(point) in (at, lsn)]
        else:
            raise bad_request(f"{point:.60} is no point: write its number, or {NEWEST}")
        if not found:
            raise Refusal(404, "NoSuchWarehouseException", f"warehouse {warehouse.name} does not show point {point}")
        self._points.put((*mine, max(found)), (contents_of(rows, max(found)), self._monotonic()))
        return max(found)

    def holds(self, task: str) -> tuple[HeldPoint, ...]:
        """Those of a subscription that have not ended."""
        mine = self.log.of(task)
        holds = mine.kept.holds()
        watermark = mine.history.watermark() if holds else 0
        found = [(one, mine.history.point(one.lsn)) for one in holds if not one.has_ended(watermark)]
        return tuple(HeldPoint(one.name, one.lsn, at and at.at.physical) for one, at in found)

    def held(self, warehouse: Warehouse) -> dict[str, LakeContents]:
        """What a lake shows at the points that are held, by the names of the holds. Raises Refusal, CcprError."""
        if not (holds := self.holds(warehouse.target.task_id)):
            return {}

        def read() -> dict[str, LakeContents]:
            rows = self._rows(warehouse)
            times = {lsn: at for at, lsn in times_of(rows).items()}
            times |= {one.lsn: one.at for one in holds if one.at is not None}
            found = {one.name: contents_of(rows, times[one.lsn]) for one in holds if one.lsn in times}
            return {name: contents for name, contents in found.items() if contents.tables}

        return self._fresh(self._held, (warehouse.target.task_id, warehouse.target.name, *holds), read)

    def pinned(self, warehouse: Warehouse, at: int) -> PinnedView:
        """The point of that time. Raises Refusal, CcprError."""
        key = warehouse.target.task_id, warehouse.target.name, at
        contents = self._fresh(self._points, key, lambda: contents_of(self._rows(warehouse), at))
        return PinnedView(warehouse, contents)

    def _fresh(self, kept: Newest[K, tuple[V, float]], key: K, read: Callable[[], V]) -> V:
        """What was read less than a minute ago, or is read now."""
        now, found = self._monotonic(), kept.get(key)
        if found is None or now - found[1] > _KEPT_SECONDS:
            found = read(), now
            kept.put(key, found)
        return found[0]

    def _rows(self, warehouse: Warehouse) -> pa.Table:
        """What the lake says of itself."""
        try:
            return read_points(warehouse.store, warehouse.target.task_id)
        except CcprError as error:
            raise Refusal(500, "ServiceFailureException", f"the lake cannot be read: {error.code}") from error
