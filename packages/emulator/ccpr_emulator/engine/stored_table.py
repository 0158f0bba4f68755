"""A table's rows and its objects: what was committed when, and where it is stored.

Each row has a permanent number. With its values are kept the ticks (see `ccpr_emulator.engine.clock`) at which it was
inserted (born) and deleted (died), and its place: the object that has it now, and the position in it. Flushes and
merges move rows to other places and change neither values nor ticks.

The life of an object, as in recordings of an upstream (docs/format/object-file.md 5, 6, 9): rows are in memory, in
objects of one block that have an id already. A flush writes each as an appendable object, created at its oldest commit
and deleted at the flush, and all rows that are alive into merged objects, created at the flush. Deletes are written in
the same way as tombstone objects. Since MatrixOne 4.2 (`StoredTable.prepare`) an appendable object is created when a
transaction is prepared, before the commit of its first row, and stays if that transaction is rolled back. After 4.2
(`ObjectFiles.abort_column`) its rows stay, too, marked as aborted. Larger inserts and deletes are written by the
compute node at their commit. Merges of data do not change tombstones; merges of tombstones drop those whose object
is gone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE, rowid_order
from ccpr.matrixone.schema import Column
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.object_files import BLOCK_ROWS, ObjectFiles, Written

ALIVE: Final = int(np.iinfo(np.int64).max)  # the tick of death of a live row, and of deletion of a live object
NO_ROW: Final = -1
_STATE = np.dtype([("born", "<i8"), ("died", "<i8"), ("place", "<i4"), ("position", "<i4"), ("aborted", "?")])
_FIRST_ROWS = 1024
_MANY_CHUNKS, _FEW_ROWS = 64, 2048


class MergeConflict(Exception):
    """An object that is being merged was replaced by another merge, or its table was dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Tombstones:
    """Deleted rows: their place and position, their keys, the ticks of the deletes, and whether these were aborted.
    Arrays of one length."""

    places: np.ndarray
    positions: np.ndarray
    keys: pa.Array
    ticks: np.ndarray
    aborted: np.ndarray

    def take(self, order: np.ndarray) -> "Tombstones":
        numbers = (self.places[order], self.positions[order])
        return Tombstones(*numbers, self.keys.take(pa.array(order)), self.ticks[order], self.aborted[order])

    @staticmethod
    def joined(parts: Sequence["Tombstones"]) -> "Tombstones":
        return Tombstones(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.positions for part in parts]),
            pa.concat_arrays([part.keys for part in parts]),
            np.concatenate([part.ticks for part in parts]),
            np.concatenate([part.aborted for part in parts]),
        )


@dataclass(slots=True, eq=False)
class StoredObject:
    """An object of this table, as the object list shows it.

    Attributes
    ----------
    written : stats and file, see `ccpr_emulator.engine.object_files.Written`.
    created, deleted : ticks; `deleted` is `ALIVE` while it is live.
    place : its number among the table's places (data objects).
    rows : the row at each position (data objects); `NO_ROW` if the table never had it (a clone).
    ticks : commit ticks in the file; None if it has none.
    tombstones : the rows of a tombstone object; None for data.
    """

    written: Written
    created: int
    deleted: int = ALIVE
    place: int = -1
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ticks: np.ndarray | None = None
    tombstones: Tombstones | None = None

    @property
    def appendable(self) -> bool:
        return self.written.appendable

    @property
    def live(self) -> bool:
        return self.deleted == ALIVE

    def known_ticks(self) -> np.ndarray:
        """Commit ticks as a merge reads them: if the file has none, all rows are committed when it was created."""
        count = len(self.rows) if self.tombstones is None else len(self.tombstones.ticks)
        return np.full(count, self.created, np.int64) if self.ticks is None else self.ticks


@dataclass(slots=True, eq=False)
class _Growing:
    """An object in memory, created at a tick. It receives rows until its block is full or the table's columns
    change."""

    place: int
    columns: tuple[Column, ...]
    created: int
    parts: list[np.ndarray] = field(default_factory=list)
    count: int = 0

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate(self.parts)


class StoredTable:
    """See the module. Not thread-safe: the engine's lock protects it."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files
        self._state = np.zeros(_FIRST_ROWS, _STATE)
        self.count = 0
        self._chunks: list[pa.Table] = []
        self._places: list[bytes] = []  # object ids
        self.objects: list[StoredObject] = []
        self._growing: list[_Growing] = []
        self._deletes: list[Tombstones] = []
        self._deletes_created: int | None = None  # of the tombstone object in memory; None: at its first commit
        self._prepared: int | None = None

    # ---- reading

    def visible(self, tick: int) -> np.ndarray:
        """Numbers of the rows that exist at a tick."""
        state = self._state[: self.count]
        return np.flatnonzero((state["born"] <= tick) & (state["died"] > tick))

    def is_older(self, rows: np.ndarray, tick: int) -> np.ndarray:
        """Whether the rows were inserted at or before a tick."""
        return self._state["born"][rows] <= tick

    def is_alive(self, rows: np.ndarray) -> np.ndarray:
        return self._state["died"][rows] == ALIVE

    def values(self, rows: np.ndarray, columns: Sequence[Column]) -> pa.Table:
        """The values of rows in these columns; null if a row is older than the column."""
        if len(rows) <= _FEW_ROWS and len(self._chunks) > 1:
            return self.every(columns).take(pa.array(rows)).combine_chunks()
        stored = self._combined()
        arrays = []
        for column in columns:
            name = _stored_name(column)
            if name in stored.column_names:
                arrays.append(stored.column(name).chunk(0).take(pa.array(rows)))
            else:
                arrays.append(pa.nulls(len(rows), types.arrow_type(column)))
        return pa.table(arrays, schema=types.arrow_schema(columns)) if columns else pa.table({})

    def _combined(self) -> pa.Table:
        if not self._chunks:
            return pa.table({})
        if len(self._chunks) > 1 or any(column.num_chunks != 1 for column in self._chunks[0].columns):
            joined = pa.concat_tables(self._chunks, promote_options="default")
            self._chunks = [pa.Table.from_arrays(list(map(whole, joined.columns)), schema=joined.schema)]
        return self._chunks[0]

    def every(self, columns: Sequence[Column]) -> pa.Table:
        """The values of all rows that ever were, in the order of their numbers, mostly without a copy."""
        if len(self._chunks) > _MANY_CHUNKS:
            self._combined()
        stored = pa.concat_tables(self._chunks, promote_options="default") if self._chunks else pa.table({})
        arrays = [
            stored.column(_stored_name(column))
            if _stored_name(column) in stored.column_names
            else pa.chunked_array([pa.nulls(self.count, types.arrow_type(column))])
            for column in columns
        ]
        return pa.table(arrays, schema=types.arrow_schema(columns))

    @property
    def in_memory(self) -> int:
        """The number of rows and deletes that are not in an object yet."""
        return sum(part.count for part in self._growing) + sum(len(part.ticks) for part in self._deletes)

    def oldest_in_memory(self) -> int:
        """The tick of the oldest commit that is not in an object yet; `ALIVE` if there is none."""
        if not self._growing and not self._deletes:
            return ALIVE
        ticks = [int(self._state["born"][part.parts[0][0]]) for part in self._growing if part.count] + [
            int(part.ticks[0]) for part in self._deletes
        ]
        return min(ticks, default=ALIVE)

    def listed(self, tick: int) -> list[StoredObject]:
        return [entry for entry in self.objects if entry.created <= tick < entry.deleted]

    # ---- commits

    def prepare(self, definition: Definition, tick: int, *, inserts: bool, deletes: bool) -> None:
        """As MatrixOne does since 4.2, create the objects that a transaction's rows will be in: at `tick`, before its
        commit. They stay, empty, if it does not commit."""
        self._prepared = tick
        if inserts:
            self._last_growing(definition, tick)
        if deletes and self._deletes_created is None:
            self._deletes_created = tick

    def replay_wal(self, checkpointed: int) -> None:
        """What the replay of the write-ahead log leaves after a restart: objects without rows are gone, and those that
        no checkpoint has were created at their first commit."""
        self._growing = [part for part in self._growing if part.count]
        for part in self._growing:
            part.created = int(self._state["born"][part.parts[0][0]])
        self._deletes_created = int(self._deletes[0].ticks[0]) if self._deletes else None
        for entry in self.objects:
            if entry.appendable and entry.deleted > checkpointed and entry.ticks is not None:
                entry.created = int(entry.ticks.min())

    def insert(
        self, definition: Definition, rows: pa.Table, tick: int | np.ndarray, *, by_cn: bool, aborted: bool = False
    ) -> np.ndarray:
        """Add rows (the definition's columns) as committed at a tick, or each at its own; returns their numbers. Rows
        of an aborted transaction exist at no tick."""
        added = rows.num_rows
        numbers = np.arange(self.count, self.count + added, dtype=np.int64)
        self._reserve(self.count + added)
        self._state["born"][numbers] = tick
        self._state["died"][numbers] = tick if aborted else ALIVE
        self._state["aborted"][numbers] = aborted
        self.count += added
        self._chunks.append(rows.rename_columns([_stored_name(column) for column in definition.columns]))
        if by_cn and isinstance(tick, int):
            self._write_merged(definition, numbers, None, tick, by_cn=True)
        else:
            self._keep_in_memory(definition, numbers)
        return numbers

    def delete(
        self, definition: Definition, rows: np.ndarray, tick: int, *, by_cn: bool, aborted: bool = False
    ) -> None:
        """Delete rows that are alive, at a tick; only record that if the transaction was aborted."""
        if not aborted:
            self._state["died"][rows] = tick
        tombstones = self._tombstones(definition, rows, tick, aborted=aborted)
        if by_cn:
            self._write_tombstones(definition, tombstones, tick, with_ticks=False, appendable=False, by_cn=True)
        else:
            self._deletes.append(tombstones)

    def _tombstones(self, definition: Definition, rows: np.ndarray, tick: int, *, aborted: bool = False) -> Tombstones:
        keys = whole(self.values(rows, [definition.key]).column(0))
        state = self._state[rows]
        ticks, flags = np.full(len(rows), tick, np.int64), np.full(len(rows), aborted)
        return Tombstones(state["place"].copy(), state["position"].copy(), keys, ticks, flags)

    def _reserve(self, count: int) -> None:
        if count > len(self._state):
            grown = np.zeros(max(count, 2 * len(self._state)), _STATE)
            grown[: self.count] = self._state[: self.count]
            self._state = grown

    def _keep_in_memory(self, definition: Definition, rows: np.ndarray) -> None:
        while len(rows):
            tick = int(self._state["born"][rows[0]])
            last = self._last_growing(definition, tick if self._prepared is None else self._prepared)
            part, rows = rows[: BLOCK_ROWS - last.count], rows[BLOCK_ROWS - last.count :]
            self._state["place"][part] = last.place
            self._state["position"][part] = last.count + np.arange(len(part))
            last.parts.append(part)
            last.count += len(part)

    def _last_growing(self, definition: Definition, created: int) -> _Growing:
        last = self._growing[-1] if self._growing else None
        if last is None or last.count == BLOCK_ROWS or last.columns != definition.columns:
            last = _Growing(self._new_place(self._files.new_ids(1)[0]), definition.columns, created)
            self._growing.append(last)
        return last

    def _new_place(self, object_id: bytes) -> int:
        self._places.append(object_id)
        return len(self._places) - 1

    # ---- flush and merge

    def flush(self, definition: Definition, tick: int) -> bool:
        """Write what is in memory into objects; False if there is nothing. An object without rows leaves no file."""
        growing, self._growing = [part for part in self._growing if part.count], []
        deletes, self._deletes = self._deletes, []
        first_delete, self._deletes_created = self._deletes_created, None
        for part in growing:
            ticks = self._state["born"][part.rows]
            written = self._files.write_rows(
                replace(definition, columns=part.columns),
                self.values(part.rows, part.columns),
                self._places[part.place],
                ticks,
                appendable=True,
                aborted=self._state["aborted"][part.rows],
            )
            self.objects.append(StoredObject(written, part.created, tick, part.place, part.rows, ticks))
        if growing:
            rows = np.concatenate([part.rows for part in growing])
            rows = rows[self.is_alive(rows)]
            self._write_merged(definition, rows, self._state["born"][rows], tick, by_cn=False)
        if deletes:
            tombstones = Tombstones.joined(deletes)
            for start in range(0, len(tombstones.ticks), BLOCK_ROWS):
                part = tombstones.take(np.arange(start, min(start + BLOCK_ROWS, len(tombstones.ticks))))
                created = first_delete if first_delete is not None and not start else int(part.ticks[0])
                entry = self._write_tombstones(definition, part, created, with_ticks=True, appendable=True, by_cn=False)
                entry.deleted = tick
            tombstones = tombstones.take(np.flatnonzero(~tombstones.aborted))
            if len(tombstones.ticks):
                self._write_tombstones(definition, tombstones, tick, with_ticks=True, appendable=False, by_cn=False)
        return bool(growing or deletes)

    def mergeable(self) -> list[StoredObject]:
        """Live data objects that a merge can take."""
        return [entry for entry in self.objects if entry.tombstones is None and entry.live]

    def merge(
        self, definition: Definition, sources: Sequence[StoredObject], started: int, tick: int, *, by_cn: bool
    ) -> None:
        """Rewrite data objects as of the tick `started` into new ones, created at `tick`.

        Rows that died in between are deleted again at their new places, by tombstones of this tick
        (docs/format/object-file.md 9.4). Objects of a compute node's merge have no commit times. Raises
        `MergeConflict`.
        """
        if not all(entry.live for entry in sources):
            raise MergeConflict("another merge was first")
        rows = np.concatenate([entry.rows for entry in sources])
        ticks = np.concatenate([entry.known_ticks() for entry in sources])
        kept = (rows != NO_ROW) & (self._state["died"][rows] > started)
        rows, ticks = rows[kept], ticks[kept]
        for entry in sources:
            entry.deleted = tick
        self._write_merged(definition, rows, None if by_cn else ticks, tick, by_cn=False)
        late = rows[~self.is_alive(rows)]
        if len(late):
            self._deletes.append(self._tombstones(definition, late, tick))

    def merge_tombstones(self, definition: Definition, tick: int) -> bool:
        """Rewrite the tombstone objects into one, without rows of objects that are gone; False if there is none."""
        sources = [entry for entry in self.objects if entry.tombstones is not None and entry.live]
        if not sources:
            return False
        parts = [
            replace(entry.tombstones, ticks=entry.known_ticks()) for entry in sources if entry.tombstones is not None
        ]
        tombstones = Tombstones.joined(parts)
        live = [entry.place for entry in self.objects if entry.tombstones is None and entry.live] + [
            part.place for part in self._growing
        ]
        tombstones = tombstones.take(np.flatnonzero(np.isin(tombstones.places, np.array(live, np.int32))))
        for entry in sources:
            entry.deleted = tick
        if len(tombstones.ticks):
            self._write_tombstones(definition, tombstones, tick, with_ticks=True, appendable=False, by_cn=False)
        return True

    def _write_merged(
        self, definition: Definition, rows: np.ndarray, ticks: np.ndarray | None, tick: int, *, by_cn: bool
    ) -> None:
        """Write rows into objects of one segment, sorted over all of them, and set the rows' new places."""
        if not len(rows):
            return
        if definition.sort_key is not None:
            order = _order(self.values(rows, [definition.sort_key]).column(0), definition.sort_key)
            rows, ticks = rows[order], None if ticks is None else ticks[order]
        size = self._files.object_rows
        ids = self._files.new_ids(-(-len(rows) // size))
        for number, object_id in enumerate(ids):
            part = rows[number * size : (number + 1) * size]
            part_ticks = None if ticks is None else ticks[number * size : (number + 1) * size]
            values = self.values(part, definition.columns)
            written = self._files.write_rows(definition, values, object_id, part_ticks, appendable=False, by_cn=by_cn)
            place = self._new_place(object_id)
            self._state["place"][part] = place
            self._state["position"][part] = np.arange(len(part))
            self.objects.append(StoredObject(written, tick, place=place, rows=part, ticks=part_ticks))

    def _write_tombstones(
        self,
        definition: Definition,
        tombstones: Tombstones,
        created: int,
        *,
        with_ticks: bool,
        appendable: bool,
        by_cn: bool,
    ) -> StoredObject:
        places = range(len(self._places))
        ranks = np.empty(len(places), np.int64)
        ranks[sorted(places, key=lambda place: rowid_order(self._places[place]))] = np.arange(len(places))
        tombstones = tombstones.take(np.lexsort((tombstones.positions, ranks[tombstones.places])))
        ticks = tombstones.ticks if with_ticks else None
        object_id = self._files.new_ids(1)[0]
        written = self._files.write_tombstones(
            definition,
            self._rowids(tombstones),
            tombstones.keys,
            object_id,
            ticks,
            appendable=appendable,
            by_cn=by_cn,
            aborted=tombstones.aborted,
        )
        entry = StoredObject(written, created, ticks=ticks, tombstones=tombstones)
        self.objects.append(entry)
        return entry

    def _rowids(self, tombstones: Tombstones) -> np.ndarray:
        ids = np.frombuffer(b"".join(self._places), "V18")
        rowids = np.empty(len(tombstones.ticks), ROWID_DTYPE)
        rowids["object"] = ids[tombstones.places]
        rowids["block"], rowids["row"] = np.divmod(tombstones.positions, BLOCK_ROWS)
        return rowids

    # ---- copies

    def clone(self, tick: int) -> "StoredTable":
        """The table's rows as a new table of the same objects, which both tables list from now on. Nothing may be in
        memory."""
        other = StoredTable(self._files)
        rows = self.visible(tick)
        renumbered = np.full(max(1, self.count), NO_ROW, np.int64)
        renumbered[rows] = np.arange(len(rows))
        stored = self._combined()
        columns = [column.chunk(0).take(pa.array(rows)) for column in stored.columns]
        other._chunks = [pa.Table.from_arrays(columns, stored.column_names)]
        other.count = len(rows)
        other._state = np.zeros(max(_FIRST_ROWS, len(rows)), _STATE)
        other._state[: len(rows)] = self._state[rows]
        other._state["born"][: len(rows)] = tick
        other._places = list(self._places)
        for entry in self.objects:
            if entry.live:
                self._files.share(entry.written)
                numbers = entry.rows
                if len(numbers):
                    numbers = np.where(numbers == NO_ROW, NO_ROW, renumbered[numbers])
                other.objects.append(replace(entry, created=tick, rows=numbers))
        return other

    def collect(self, is_needed: Callable[[StoredObject], bool]) -> int:
        """Remove objects that are not needed, with their files; returns their number."""
        removed = [entry for entry in self.objects if not is_needed(entry)]
        self.objects = [entry for entry in self.objects if is_needed(entry)]
        for entry in removed:
            self._files.release(entry.written)
        return len(removed)


def _stored_name(column: Column) -> str:
    return str(column.seqnum)


def _order(values: pa.ChunkedArray, column: Column) -> np.ndarray:
    """Positions in the order of the stored values, nulls first."""
    if column.type.oid == types.ENUM:
        values = pc.index_in(values, pa.array(column.labels, pa.string()))
    elif types.is_decimal_text(column):
        values = values.cast(pa.decimal256(types.MAX_PRECISION[types.DECIMAL256], column.type.scale))
    return pc.array_sort_indices(values, null_placement="at_start").to_numpy()


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
