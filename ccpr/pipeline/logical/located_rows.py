"""Where rows lie in the mirror's own objects: by their keys, or, in a table without one, by all of their values
(decision logical-mode). Blocks whose zone maps exclude the keys are not read. What is read is looked up some blocks at
a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE, ROWID_DTYPE
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.objects.object_layout import Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.visibility import ListedObject, VisibleRows, visible_blocks
from ccpr.matrixone.schema import Column
from ccpr.mirror.delta.row_keys import comparable, hashable, key_zone
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.row_sums import row_hashes
from ccpr.pipeline.logical.own_objects import StoredTable

_RUN_ROWS = 1 << 19  # that are looked up at once


@dataclass(frozen=True, slots=True, eq=False)
class LocatedRows:
    """
    Attributes
    ----------
    which : of each row, the number of the sought identity that it has.
    rowids : ROWID_DTYPE.
    keys : in the Arrow type of the table's key.
    """

    which: np.ndarray
    rowids: np.ndarray
    keys: pa.Array

    def take(self, rows: np.ndarray) -> "LocatedRows":
        return LocatedRows(self.which[rows], self.rowids[rows], self.keys.take(pa.array(rows)))

    def first_of_each(self, counts: np.ndarray) -> "LocatedRows":
        """Of each identity as many rows as are counted, at most."""
        order = np.argsort(self.which, kind="stable")
        ranked = self.which[order]
        starts = np.searchsorted(ranked, ranked, side="left")
        return self.take(order[np.arange(len(ranked)) - starts < counts[ranked]])


def identities(stored: StoredTable, rows: pa.RecordBatch) -> pa.Array:
    """By which rows (the user's columns) are sought: their keys, or a hash of all values."""
    if not stored.key.hidden:
        return hashable(stored.keys_of(rows), stored.key.match, stored.table.qualified_name)
    arrays = [comparable(values) for values in rows.columns]
    names = [str(place) for place in range(len(arrays))]
    return pa.array(row_hashes(pa.RecordBatch.from_arrays(arrays, names=names), names))


def locate(
    mirror: Mirror, objects: Sequence[ListedObject], at: Timestamp, stored: StoredTable, rows: pa.RecordBatch
) -> tuple[np.ndarray, LocatedRows]:
    """Of each row (the user's columns) the number of its identity, and all rows that are visible at a time with one of
    these. Raises what reading the mirror raises; ObjectMismatch for a null key."""
    sought = identities(stored, rows)
    distinct = pc.unique(sought)
    columns = stored.columns if stored.key.hidden else (stored.key.match,)
    zones = None if stored.key.hidden else _Sought.of(stored.keys_of(rows), stored.key.match)
    found, run, waiting = list[LocatedRows](), list[VisibleRows](), 0
    for visible in visible_blocks(objects, mirror.open_object, at, choose=zones and zones.blocks):
        run.append(visible)
        waiting += visible.count
        if waiting >= _RUN_ROWS:
            found += _matches(run, stored, columns, distinct)
            run, waiting = [], 0
    found += _matches(run, stored, columns, distinct)
    which = pc.index_in(sought, value_set=distinct).to_numpy()
    empty = pa.array([], arrow_schema([stored.key.match]).field(0).type)
    return which, LocatedRows(
        np.concatenate([np.zeros(0, np.int64), *(part.which for part in found)]),
        np.concatenate([np.zeros(0, ROWID_DTYPE), *(part.rowids for part in found)]),
        pa.concat_arrays([empty, *(part.keys for part in found)]),
    )


def _matches(
    run: Sequence[VisibleRows], stored: StoredTable, columns: Sequence[Column], distinct: pa.Array
) -> Iterator[LocatedRows]:
    if not run:
        return
    schema, match = arrow_schema(columns), stored.key.match
    values = [visible.batch(columns, schema) for visible in run]
    if stored.key.hidden:
        sought = pa.concat_arrays([identities(stored, batch) for batch in values])
    else:
        sought = pa.concat_arrays([hashable(batch.column(0), match, stored.table.qualified_name) for batch in values])
    numbers = pc.index_in(sought, value_set=distinct)
    hits = np.flatnonzero(numbers.is_valid().to_numpy(zero_copy_only=False))
    which = numbers.drop_null().to_numpy().astype(np.int64)
    ends = np.cumsum([visible.count for visible in run])
    for place in np.unique(np.searchsorted(ends, hits, side="right")).tolist():
        visible, first = run[place], int(ends[place]) - run[place].count
        mine = (hits >= first) & (hits < ends[place])
        rows = hits[mine] - first
        keys = values[place].column(0) if not stored.key.hidden else visible.column(match)
        rowids = np.empty(len(rows), ROWID_DTYPE)
        rowids["object"] = np.frombuffer(visible.file.object_id, f"V{OBJECT_ID_SIZE}")
        rowids["block"] = visible.blocks[0].number
        rowids["row"] = rows if visible.rows is None else visible.rows[rows]
        yield LocatedRows(which[mine], rowids, keys.take(pa.array(rows)))


@dataclass(frozen=True, slots=True, eq=False)
class _Sought:
    """Keys in their order, to be compared with zone maps."""

    keys: pa.Array
    column: Column

    @classmethod
    def of(cls, keys: pa.Array, column: Column) -> "_Sought":
        keys = stored_bytes(keys) if pa.types.is_string(keys.type) else keys
        return cls(keys.take(pc.array_sort_indices(keys)), column)

    def blocks(self, file: ObjectFile) -> Sequence[Block]:
        """The blocks of an object that may have one of the keys."""
        seqnum = self.column.seqnum
        if seqnum > file.max_seqnum or seqnum >= len(file.columns):
            return file.blocks
        within = self._within(file.columns["zonemap"][seqnum].tobytes())
        if not len(within.keys):
            return ()
        return [block for block in file.blocks if len(within._within(block.columns["zonemap"][seqnum].tobytes()).keys)]

    def _within(self, zonemap: bytes) -> "_Sought":
        """The keys that a zone may have."""
        zone = key_zone(zonemap, self.column)
        return self if zone is None else _Sought(zone.those_within(self.keys, self.column), self.column)
