"""The physical replica: object files byte for byte, a manifest for each changed table of a point, and points that name
manifests.

Layout below the mirror's store, all immutable but `head.json`:

    objects/<object name>                      as the upstream has it
    manifests/<table id>/<lsn>-<fence>.arrow   the live objects of one table, and its schema
    ledger/<lsn>-<fence>.arrow                 name, size, sha256 of each object that the point brought
    points/<lsn>.json                          the point's tables: what differs from the one before; every 16th complete
    head.json                                  the newest point, the next lsn, the watermark
    work/<lsn>-<attempt>/                      results of steps of an iteration that has not ended

A reader needs this folder only, no state database. Everything that reads rows calls `Mirror.rows`: `Mirror.read`,
exports, the tasks of `replication.mirror.table_read`. Source: docs/architecture.md, "One commit"; decisions
mirror-is-the-first-destination, identity-by-id, objects-born-and-gone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from matrixone.objects.reader import ObjectFile
from matrixone.objects.stats import ObjectStats, stats_columns
from matrixone.objects.timestamp import Timestamp
from matrixone.objects.types import arrow_schema
from matrixone.objects.visibility import ListedObject, visible_batches
from matrixone.schema import Column, Table, integer_of, text_of
from replication.errors import MirrorDamaged, PointGone, PointNotReached, TableMissingInMirror
from replication.mirror.arrow_files import read_arrow_file
from replication.mirror.filters import Condition, Filter, conditions, satisfying
from replication.mirror.layout import COMPLETE_EVERY, FORMAT, HEAD, MANIFEST_SCHEMA, object_path, point_path
from replication.mirror.points import Head, LaggingTable, Point, TableRef, instant_text, nanoseconds_of
from replication.mirror.pruning import prune, stats_tell_of
from replication.mirror.store import Store


@dataclass(frozen=True, slots=True)
class Manifest:
    """One table as of the point that wrote the manifest: its schema and its live objects (MANIFEST_SCHEMA)."""

    table: Table
    objects: pa.Table

    @property
    def data_objects(self) -> pa.Table:
        """Those that hold rows, and not the names of deleted ones."""
        return self.objects.filter(pc.invert(self.objects.column("is_tombstone")))

    def only(self, names: Sequence[str] | pa.Array) -> "Manifest":
        """The table with some of its data objects; tombstones stay."""
        stored = stats_columns(self.objects.column("stats").combine_chunks()).column("name")
        wanted = pc.is_in(stored, names if isinstance(names, pa.Array) else pa.array(names, pa.string()))
        return Manifest(self.table, self.objects.filter(pc.or_(self.objects.column("is_tombstone"), wanted)))

    def listed_objects(self) -> list[ListedObject]:
        """The objects as values for the reader. A loop over objects, not rows; the largest table has as many as it has
        files."""
        columns = (self.objects.column(name) for name in MANIFEST_SCHEMA.names)
        return [
            ListedObject(
                ObjectStats.parse(stats.as_py()), Timestamp(physical.as_py(), logical.as_py()), None, tombstone.as_py()
            )
            for stats, physical, logical, tombstone in zip(*columns, strict=True)
        ]


class Mirror:
    """A mirror folder, to read from and, for the holder of the lease, to write to."""

    def __init__(self, store: Store) -> None:
        self.store = store

    # ---- reading

    def published_head(self) -> Head | None:
        """None before the first iteration has ended."""
        if self.store.size(HEAD) is None:
            return None
        value = self._json(HEAD)
        with self._understood(HEAD):
            oldest, newest = (
                None if value[key] is None else integer_of(value[key]) for key in ("oldest_point", "newest_point")
            )
            return Head(oldest, newest, integer_of(value["iteration_lsn"]), integer_of(value["watermark"]))

    def lsns(self) -> list[int]:
        """The points that can be read, oldest first."""
        head = self.published_head()
        if head is None or head.oldest_point is None or head.newest_point is None:
            return []
        return [lsn for lsn in self._files() if head.oldest_point <= lsn <= head.newest_point]

    def points(self) -> list[Point]:
        """All points that can be read, oldest first. Each file is read once."""
        known: dict[int, dict[str, Any]] = {}
        return [self._load(lsn, known) for lsn in self.lsns()]

    def points_not_needed(self, oldest_lsn: int) -> list[str]:
        """Files of points before one that is kept, from which no delta up to it or later starts."""
        *_, (first, _) = self._layers(oldest_lsn)
        return [point_path(lsn) for lsn in self._files() if lsn < first]

    def _files(self) -> list[int]:
        stems = (name.rpartition("/")[2].removesuffix(".json") for name in self.store.names("points"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def point(self, at: int | datetime | None = None) -> Point:
        """The point that shows `at`: an lsn (below 10^15), a time (nanoseconds or datetime; UTC without a zone), None
        for the newest.

        An idle iteration makes no point: its lsn reads as the point before it. A datetime counts to the end of its
        microsecond, so that a point is found by its own time.

        Raises PointNotReached, PointGone.
        """
        head = self.published_head()
        lsns = self.lsns()
        if head is None or head.newest_point is None or not lsns:
            raise PointNotReached(
                "the mirror has no point yet",
                subject=self.store.url,
                remedy="Run the first iteration: `ccpr run NAME`.",
            )
        if at is None:
            return self._load(head.newest_point)
        newest = f"; the newest is lsn {head.newest_point}, reached up to {instant_text(head.watermark)}"
        if isinstance(at, int) and at < 10**15:
            if at >= head.iteration_lsn:
                raise PointNotReached(f"lsn {at} is not reached{newest}", subject=self.store.url)
            older = [lsn for lsn in lsns if lsn <= at]
            if not older:
                raise PointGone(f"lsn {at} is before the oldest point, lsn {lsns[0]}", subject=self.store.url)
            return self._load(older[-1])
        instant, slack = (at, 0) if isinstance(at, int) else (nanoseconds_of(at), 999)
        if instant > head.watermark:
            raise PointNotReached(f"{instant_text(instant)} is not reached{newest}", subject=self.store.url)
        low, high = 0, len(lsns)  # points are ordered by time as by lsn
        while low < high:
            middle = (low + high) // 2
            if self._snapshot_ts(lsns[middle]) <= instant + slack:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            raise PointGone(
                f"{instant_text(instant)} is before the oldest point, lsn {lsns[0]}", subject=self.store.url
            )
        return self._load(lsns[low - 1])

    def manifest(self, ref: TableRef) -> Manifest:
        """Raises MirrorDamaged, which names the table."""
        with files_of(ref.qualified_name):
            table = self.read_arrow(ref.manifest, MANIFEST_SCHEMA)
            with self._understood(ref.manifest):
                return Manifest(Table.from_json(json.loads((table.schema.metadata or {})[b"ccpr"])["table"]), table)

    def open_object(self, name: str) -> ObjectFile:
        return ObjectFile(self.store.read(object_path(name)), subject=f"object {name}")

    def read(
        self,
        point: Point,
        qualified_name: str,
        *,
        columns: Sequence[str] | None = None,
        filters: Sequence[Filter] = (),
        hidden: bool = False,
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a table at a point of which all filters are true: the schema, and one batch a block at most.

        Raises TableMissingInMirror for an unknown table or column, BadFilter; and while batches are taken what `rows`
        raises.
        """
        manifest = self.manifest(point.table(qualified_name))
        wanted = choose_columns(manifest.table, columns, hidden=hidden)
        return arrow_schema(wanted), self.rows(manifest, wanted, point.at, filters=filters)

    def rows(
        self,
        manifest: Manifest,
        columns: Sequence[Column],
        at: Timestamp,
        *,
        filters: Sequence[Filter] = (),
        names: Sequence[str] | pa.Array | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table that are visible at a time and of which all filters are true, one batch a block at most.

        The time is the point's, not that of the manifest: an appendable object that stayed live may hold rows that were
        committed in between. Objects and blocks without a row that is asked for are not read, as far as zone maps tell.

        Parameters
        ----------
        columns : what the batches hold, in this order.
        names : data objects to read; without them all of the manifest that the filters do not exclude.

        Raises
        ------
        BadFilter
            At once, as MirrorDamaged for an object that is opened for its sort key.
        MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, StoreFailed
            While batches are taken; MirrorDamaged names the table.
        """
        tests = conditions(filters, manifest.table)
        with files_of(manifest.table.qualified_name):
            if names is None and filters:
                names = stats_columns(self.data_objects(manifest, filters).column("stats").combine_chunks()).column(
                    "name"
                )
        part = manifest if names is None else manifest.only(names)
        return self._rows(part, tuple(columns), at, tuple(filters), tests)

    def _rows(
        self,
        manifest: Manifest,
        columns: tuple[Column, ...],
        at: Timestamp,
        filters: tuple[Filter, ...],
        tests: tuple[Condition, ...],
    ) -> Iterator[pa.RecordBatch]:
        read = tuple(dict.fromkeys((*columns, *(test.column for test in tests))))
        choose = prune(filters, manifest.table.columns).blocks if filters else None
        places = [read.index(column) for column in columns]
        with files_of(manifest.table.qualified_name):
            batches = visible_batches(manifest.listed_objects(), self.open_object, read, at, choose=choose)
            for batch in batches:
                chosen = satisfying(batch, read, tests)
                if chosen.num_rows:
                    yield chosen if read == columns else chosen.select(places)

    def data_objects(self, manifest: Manifest, filters: Sequence[Filter] = ()) -> pa.Table:
        """The live data objects that can hold a row of which all filters are true (MANIFEST_SCHEMA).

        The object list has a zone map of one column, the one that the rows are sorted by. Which one that is, the
        smallest object says; nothing else is opened.
        """
        live, columns = manifest.data_objects, manifest.table.columns
        if not filters or not live.num_rows:
            return live
        objects = [ObjectStats.parse(raw) for raw in live.column("stats").to_pylist()]
        key = self.open_object(min(objects, key=attrgetter("size")).name).sort_key
        if key is None or not stats_tell_of(key, columns):
            return live
        tests = prune(filters, columns).on(key)
        return live.filter(pa.array([not tests.excludes_zone(listed.sort_key_zonemap) for listed in objects]))

    # ---- writing

    def write_manifest(self, table: Table, objects: pa.Table, name: str) -> None:
        about = json.dumps({"format": FORMAT, "table": table.to_json()}, ensure_ascii=False)
        self.write_arrow(name, objects.cast(MANIFEST_SCHEMA).replace_schema_metadata({b"ccpr": about}))

    def write_arrow(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        self.store.put(name, [sink.getvalue().to_pybytes()])

    def read_arrow(self, name: str, schema: pa.Schema) -> pa.Table:
        """What `write_arrow` wrote with this schema. Raises MirrorDamaged."""
        return read_arrow_file(self.store.read(name), schema, f"{self.store.url}/{name}")

    def publish(self, point: Point, changed: Mapping[int, TableRef | None], base: int | None) -> None:
        """Make a committed point readable without a catalog. `changed` names what differs from `base`; None = the
        table is gone."""
        complete = base is None or point.lsn // COMPLETE_EVERY != base // COMPLETE_EVERY
        tables = dict(point.tables) if complete else changed
        value = {
            "format": FORMAT,
            "lsn": point.lsn,
            "snapshot_ts": point.at.physical,
            "snapshot": point.snapshot,
            "committed_at": point.committed_at.isoformat(),
            "ledger": point.ledger,
            "base": None if complete else base,
            "tables": {str(table_id): ref and ref.to_json() for table_id, ref in sorted(tables.items())},
            **(
                {"behind": {str(table_id): late.to_json() for table_id, late in sorted(point.behind.items())}}
                if point.behind
                else {}
            ),
        }
        self.store.put(point_path(point.lsn), [json.dumps(value, ensure_ascii=False, indent=1).encode()])
        self.store.sync("points")

    def has_published(self, point: Point) -> bool:
        """Is this very point's file there? Once written it is never written otherwise."""
        if self.store.size(point_path(point.lsn)) is None:
            return False
        try:
            return self._json(point_path(point.lsn)).get("snapshot") == point.snapshot
        except MirrorDamaged:
            return False

    def publish_head(self, head: Head) -> None:
        self.store.replace(HEAD, json.dumps({"format": FORMAT, **asdict(head)}).encode())

    # ----

    def _load(self, lsn: int, known: dict[int, dict[str, Any]] | None = None) -> Point:
        """`known` are files that were read already, by lsn; what is read comes into it."""
        layers = [value for _, value in self._layers(lsn, {} if known is None else known)]
        value = layers[0]
        merged: dict[str, Any] = {}
        with self._understood(point_path(lsn)):
            for layer in reversed(layers):
                merged.update(layer["tables"])
            tables = {
                int(table_id): TableRef.from_json(int(table_id), ref)
                for table_id, ref in merged.items()
                if ref is not None
            }
            snapshot, committed_at, ledger = (text_of(value[key]) for key in ("snapshot", "committed_at", "ledger"))
            at = Timestamp(integer_of(value["snapshot_ts"]))
            behind = {int(table_id): LaggingTable.from_json(late) for table_id, late in value.get("behind", {}).items()}
            return Point(lsn, at, snapshot, datetime.fromisoformat(committed_at), ledger, tables, behind)

    def _layers(self, lsn: int, known: dict[int, dict[str, Any]] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """A point's file and those that it depends on, down to a complete one. A base is always older, so that this
        ends."""
        base: int | None = lsn
        while base is not None:
            lsn, name = base, point_path(base)
            value = known[lsn] if known and lsn in known else self._json(name)
            if known is not None:
                known[lsn] = value
            yield lsn, value
            with self._understood(name):
                base = None if value["base"] is None else integer_of(value["base"])
                if base is not None and base >= lsn:
                    raise ValueError(f"point {lsn} cannot depend on point {base}")

    def _snapshot_ts(self, lsn: int) -> int:
        name = point_path(lsn)
        value = self._json(name)
        with self._understood(name):
            return integer_of(value["snapshot_ts"])

    def _json(self, name: str) -> dict[str, Any]:
        subject = f"{self.store.url}/{name}"
        try:
            value = json.loads(self.store.read(name).to_pybytes())
        except (ValueError, RecursionError) as error:
            raise MirrorDamaged("the file is not JSON", subject=subject) from error
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise MirrorDamaged(
                f"the file is not of format {FORMAT}", subject=subject, remedy="Read it with the version that wrote it."
            )
        return value

    @contextmanager
    def _understood(self, name: str) -> Iterator[None]:
        """What the JSON of a file holds instead of what was written becomes MirrorDamaged."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"a field is missing or is not what was written: {type(error).__name__} {error!s:.200}"
            raise MirrorDamaged(message, subject=f"{self.store.url}/{name}") from error


@contextmanager
def files_of(qualified_name: str) -> Iterator[None]:
    """An error about a file of this table that is missing or damaged names the table, and how to get the file back."""
    try:
        yield
    except MirrorDamaged as error:
        remedy = (
            f"`ccpr resync NAME --table {qualified_name}` fetches what is missing or damaged, for the newest point; "
            "see `ccpr verify`."
        )
        subject = error.subject if error.subject.startswith("table ") else f"table {qualified_name}, {error.subject}"
        raise MirrorDamaged(error.message, subject=subject, remedy=remedy) from error


def choose_columns(table: Table, names: Sequence[str] | None, *, hidden: bool = False) -> tuple[Column, ...]:
    """The table's columns in declared order, or the named ones in the order given. Hidden ones on request or by name.
    Raises TableMissingInMirror."""
    if names is None:
        return table.columns if hidden else table.user_columns
    by_name = {column.name: column for column in table.columns}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise TableMissingInMirror(
            f"no column {', '.join(missing)}", subject=f"table {table.qualified_name}", remedy="Check the spelling."
        )
    return tuple(by_name[name] for name in names)
