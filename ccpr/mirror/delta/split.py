"""One split of a row delta: what changed in some objects of a table between two points. Runs in this process, another
one, or a Spark task.

What is read: of removed objects, the keys of the rows visible before; of added objects, keys and commit times of the
rows visible after; of kept objects, only the keys of the rows that one of the two points does not show. Values are
read only of rows that are new or may differ, and of their predecessors only as many columns as are needed to find a
difference. Source: decision deltas-by-commit-time; docs/format/object-file.md 9.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema, check_readable
from ccpr.matrixone.objects.visibility import (
    ROW_BITS,
    ListedObject,
    check_deletions,
    deleted_rows,
    not_after,
    open_listed,
    visible_mask,
)
from ccpr.matrixone.schema import Column, Table
from ccpr.mirror.delta.row_keys import ALL_KEYS, KeyRange, RowKey, Zone, key_zone, partners, row_key, same
from ccpr.mirror.errors import KeysNotBytes
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.open_store import open_store

PART_ROWS = 32_768  # rows of a part, if the split has as many, and at most one block more


@dataclass(frozen=True, slots=True)
class DeltaPart:
    """Some changes of a table. A key is in one part of a delta only, and there either in `upserts` or in `deletes`.

    Attributes
    ----------
    upserts : complete rows to be written; the user's columns as declared at the later point, then the hidden key of a
        table without a key of its own.
    deletes : keys of rows to be deleted.
    replaced : of the upserts, how many have a key that the earlier point shows; the others are new there. None = not
        known.
    """

    upserts: pa.Table
    deletes: pa.Table
    replaced: int | None = None

    @property
    def rows(self) -> int:
        return self.upserts.num_rows + self.deletes.num_rows


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """The columns of a table's delta, as of the later point.

    Attributes
    ----------
    table : its qualified name.
    columns : of upserts.
    key : by which rows are matched.
    dated : whether a row with an old commit time is known to be unchanged; not if columns were added or changed
        between the points.
    """

    table: str
    columns: tuple[Column, ...]
    key: RowKey
    dated: bool = True

    @classmethod
    def of(cls, table: Table) -> "DeltaShape":
        """Raises TableWithoutKey, DdlUnreadable, ObjectUnsupported."""
        key = row_key(table)
        columns = table.user_columns + (key.columns if key.hidden else ())
        check_readable(table, columns)
        return cls(table.qualified_name, columns, key)

    @property
    def upsert_schema(self) -> pa.Schema:
        return arrow_schema(self.columns)

    @property
    def delete_schema(self) -> pa.Schema:
        return arrow_schema(self.key.columns)


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """A share of a delta; can be pickled. The splits of a delta have no key in common.

    Attributes
    ----------
    before, after : times of the two points.
    removed, added, kept : data objects of the earlier point only, of the later only, and of both.
    tombstones_before, tombstones_after : tombstone objects of each point that may delete rows of these.
    keys : which rows of the objects belong to this split; the others belong to other splits.
    left_out_before, left_out_after : rows that count as deleted at each point (`Duplicates.rows`), by object.
    """

    shape: DeltaShape
    before: Timestamp
    after: Timestamp
    removed: tuple[ListedObject, ...] = ()
    added: tuple[ListedObject, ...] = ()
    kept: tuple[ListedObject, ...] = ()
    tombstones_before: tuple[ListedObject, ...] = ()
    tombstones_after: tuple[ListedObject, ...] = ()
    keys: KeyRange = ALL_KEYS
    left_out_before: Mapping[bytes, np.ndarray] = field(default_factory=dict)
    left_out_after: Mapping[bytes, np.ndarray] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Stored rows of the data objects."""
        return sum(listed.stats.rows for listed in (*self.removed, *self.added, *self.kept))

    @property
    def bytes(self) -> int:
        """Stored bytes of the objects that are opened; an upper bound of what is read."""
        every = (*self.removed, *self.added, *self.kept, *self.tombstones_before, *self.tombstones_after)
        return sum(listed.stats.size for listed in every)


def run_split(mirror: Mirror | str, split: DeltaSplit) -> Iterator[DeltaPart]:
    """The changes of one split. `mirror` may be the URL of its store.

    Raises MirrorDamaged, which names the table; ObjectDamaged; ObjectMismatch, also if two visible rows have the same
    key.
    """
    opened = Mirror(open_store(mirror)) if isinstance(mirror, str) else mirror
    with files_of(split.shape.table):
        yield from joined(SplitRun(opened, split).parts())


def joined(parts: Iterator[DeltaPart]) -> Iterator[DeltaPart]:
    """The same changes in parts of PART_ROWS rows or more, but for the last one; no empty ones."""
    held: list[DeltaPart] = []
    rows = 0
    for part in parts:
        if part.rows:
            held.append(part)
            rows += part.rows
        if rows >= PART_ROWS:
            yield _one(held)
            held, rows = [], 0
    if held:
        yield _one(held)


def _one(parts: Sequence[DeltaPart]) -> DeltaPart:
    return DeltaPart(
        pa.concat_tables([part.upserts for part in parts]),
        pa.concat_tables([part.deletes for part in parts]),
        None if any(part.replaced is None for part in parts) else sum(part.replaced or 0 for part in parts),
    )


@dataclass(frozen=True, slots=True)
class _BlockRows:
    """Rows of one block.

    Attributes
    ----------
    rows : their numbers in the block, ascending; None = all.
    keys : of the rows.
    same : bool for each row: whether it is known that the earlier point shows it with the same values.
    """

    file: ObjectFile
    block: int
    rows: np.ndarray | None
    keys: pa.Array
    same: np.ndarray

    def column(self, column: Column, picked: np.ndarray | None = None) -> pa.Array:
        """Values of the rows, or of some of them (`picked`, numbers within the chunk)."""
        rows = self.rows if picked is None else picked if self.rows is None else self.rows[picked]
        return self.file.column(self.block, column, rows)


class Side:
    """The rows of one point, numbered from 0 in the order of the chunks."""

    def __init__(self, chunks: Sequence[_BlockRows]) -> None:
        self.chunks = chunks
        self.keys = [chunk.keys for chunk in chunks]
        self.starts = np.cumsum([0, *map(len, self.keys)])
        self.count = int(self.starts[-1])

    @cached_property
    def same(self) -> np.ndarray:
        return np.concatenate([np.empty(0, bool), *(chunk.same for chunk in self.chunks)])

    def pieces(self, rows: np.ndarray) -> Iterator[tuple[_BlockRows, slice, np.ndarray]]:
        """For ascending row numbers: each chunk that has some of them, which slice of `rows` these are, and their
        numbers within the chunk."""
        bounds = np.searchsorted(rows, self.starts)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            part = slice(int(bounds[number]), int(bounds[number + 1]))
            yield self.chunks[number], part, rows[part] - self.starts[number]

    def read(self, columns: Sequence[Column], rows: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Values of rows in ascending order, one batch for each block."""
        schema = arrow_schema(columns)
        for chunk, _, picked in self.pieces(rows):
            all_rows = len(picked) == len(chunk.keys)
            yield pa.RecordBatch.from_arrays(
                [chunk.column(column, None if all_rows else picked) for column in columns], schema=schema
            )


def lost_rows(before: Side, partner: np.ndarray) -> np.ndarray:
    """Numbers of the rows before that are no later row's partner."""
    lost = np.ones(before.count, bool)
    lost[partner[partner >= 0]] = False
    return np.flatnonzero(lost)


def doubtful_rows(after: Side, partner: np.ndarray) -> np.ndarray:
    """Numbers of the later rows that are not known to be unchanged."""
    return np.flatnonzero(~after.same | (partner < 0))


class SplitRun:
    """Computes the changes of one split."""

    def __init__(self, mirror: Mirror, split: DeltaSplit) -> None:
        self.split = split
        self.shape = split.shape
        self.match = split.shape.key.match
        self.limited = split.keys != ALL_KEYS
        self.open_object = mirror.open_object
        key = split.shape.key.columns
        self.compared = [number for number, column in enumerate(split.shape.columns) if column not in key]
        self.texts = [split.shape.columns.index(column) for column in split.shape.key.texts]

    def rows(self) -> tuple[Side, Iterator[_BlockRows]]:
        """The rows that the earlier point shows of what changed, and those that the later one shows."""
        split = self.split
        dead_before = self._deleted(split.tombstones_before, split.removed, split.before, split.left_out_before)
        dead_after = self._deleted(split.tombstones_after, split.added, split.after, split.left_out_after)
        before = Side(
            [
                *self._visible(split.removed, dead_before, split.before),
                *self._only(dead_before, dead_after, split.before, split.after),
            ]
        )
        rows_after = chain(
            self._visible(split.added, dead_after, split.after, dated=True),
            self._only(dead_after, dead_before, split.after, split.before),
        )
        return before, rows_after

    def parts(self) -> Iterator[DeltaPart]:
        before, rows_after = self.rows()
        if before.count == 0:
            for chunk in rows_after:  # nothing to compare with, so one chunk at a time is enough
                yield from self._upserts(Side([chunk]))
            return
        after = Side(list(rows_after))
        partner = partners(before.keys, after.keys, self.match, f"table {self.shape.table}")
        yield from self._deletes(before, lost_rows(before, partner))
        yield from self._changed(before, after, doubtful_rows(after, partner), partner)

    def is_same(self) -> bool:
        """Whether both points show the same rows. Commit times tell it: none of the later rows is new, and they are as
        many as before. Reads no keys; False also where the times do not tell."""
        split, count = self.split, 0
        before, after = split.removed, split.added
        dead = self._deleted(split.tombstones_before, before, split.before, split.left_out_before)
        for _, file, number, mask in self._blocks(before, dead, split.before):
            count += file.blocks[number].rows if mask is None else np.count_nonzero(mask)
        dead_after = self._deleted(split.tombstones_after, after, split.after, split.left_out_after)
        for listed, file, number, mask in self._blocks(after, dead_after, split.after):
            old = self._same(listed, file, number, None if mask is None else np.flatnonzero(mask))
            if old is None or not old.all():
                return False
            count -= len(old)
        return count == 0 and not any(
            True
            for one, other, at, then in (
                (dead, dead_after, split.before, split.after),
                (dead_after, dead, split.after, split.before),
            )
            for _ in self._only(one, other, at, then)
        )

    # ---- which rows

    def _deleted(
        self,
        tombstones: Sequence[ListedObject],
        moved: Sequence[ListedObject],
        at: Timestamp,
        left_out: Mapping[bytes, np.ndarray],
    ) -> Mapping[bytes, np.ndarray]:
        ids = [listed.stats.object_id for listed in (*moved, *self.split.kept)]
        dead = deleted_rows(tombstones, self.open_object, at, of=ids)
        if not left_out:
            return dead
        both = {key: np.union1d(dead[key], rows) if key in dead else rows for key, rows in left_out.items()}
        return {**dead, **both}

    def _visible(
        self, objects: Sequence[ListedObject], dead: Mapping[bytes, np.ndarray], at: Timestamp, *, dated: bool = False
    ) -> Iterator[_BlockRows]:
        """The visible rows of objects of one point. `dated`: also find out which of them are unchanged."""
        for listed, file, number, mask in self._blocks(objects, dead, at):
            yield from self._chunk(listed, file, number, mask, dated=dated)

    def _blocks(
        self, objects: Sequence[ListedObject], dead: Mapping[bytes, np.ndarray], at: Timestamp
    ) -> Iterator[tuple[ListedObject, ObjectFile, int, np.ndarray | None]]:
        """The blocks of objects of one point, by number, and which of their rows are visible; None = all."""
        for listed in objects:
            file, deletions = open_listed(listed, self.open_object), dead.get(listed.stats.object_id)
            check_deletions(listed, file, deletions)
            for block in file.blocks:
                if block.rows and not self._is_outside(file, block.columns):
                    yield listed, file, block.number, visible_mask(listed, file, block.number, deletions, at)

    def _only(
        self, dead: Mapping[bytes, np.ndarray], other_dead: Mapping[bytes, np.ndarray], at: Timestamp, other: Timestamp
    ) -> Iterator[_BlockRows]:
        """The rows of kept objects that are visible at one point and not at the other."""
        for listed, file in self.kept:
            deletions, other_deletions = dead.get(listed.stats.object_id), other_dead.get(listed.stats.object_id)
            check_deletions(listed, file, deletions)
            check_deletions(listed, file, other_deletions)
            blocks = range(len(file.blocks))
            if not listed.stats.appendable:
                nothing = np.empty(0, np.uint64)
                fewer, more = (nothing if removed is None else removed for removed in (deletions, other_deletions))
                blocks = (
                    np.unique(np.setdiff1d(more, fewer, assume_unique=True) >> np.uint64(ROW_BITS))
                    .astype(np.int64)
                    .tolist()
                )
            for number in blocks:
                rows = file.blocks[number].rows
                if rows == 0 or self._is_outside(file, file.blocks[number].columns):
                    continue
                shown = visible_mask(listed, file, number, deletions, at)
                shown = np.ones(rows, bool) if shown is None else shown
                hidden = visible_mask(listed, file, number, other_deletions, other)
                if hidden is not None:
                    yield from self._chunk(listed, file, number, shown & ~hidden)

    def _chunk(
        self, listed: ListedObject, file: ObjectFile, block: int, mask: np.ndarray | None, *, dated: bool = False
    ) -> Iterator[_BlockRows]:
        rows = None if mask is None or mask.all() else np.flatnonzero(mask)
        if rows is not None and len(rows) == 0:
            return
        keys = file.column(block, self.match, rows)
        if self.limited and not self.split.keys.holds(self._zone(file.blocks[block].columns)):
            inside = self.split.keys.mask(keys, self.match)
            rows = np.flatnonzero(inside) if rows is None else rows[inside]
            keys = keys.filter(pa.array(inside))
        if len(keys):
            same = self._same(listed, file, block, rows) if dated else None
            yield _BlockRows(file, block, rows, keys, np.zeros(len(keys), bool) if same is None else same)

    def _same(self, listed: ListedObject, file: ObjectFile, block: int, rows: np.ndarray | None) -> np.ndarray | None:
        """For rows that are visible at the later point: whether they were committed by the earlier one, where they were
        then visible with the same values. None = not known.

        Commit times count only if a transaction node (TN) wrote them. Those in an object of a compute node (CN), if
        any, may be another cluster's.
        """
        times = file.commit_timestamps(block) if self.shape.dated and not listed.stats.created_by_cn else None
        return None if times is None else not_after(times if rows is None else times[rows], self.split.before)

    @cached_property
    def kept(self) -> list[tuple[ListedObject, ObjectFile]]:
        """Needed for both points, so they stay open. Other objects are open as long as rows of them are needed."""
        return [(listed, open_listed(listed, self.open_object)) for listed in self.split.kept]

    def _zone(self, columns: np.ndarray) -> Zone | None:
        seqnum = self.match.seqnum
        return key_zone(columns["zonemap"][seqnum].tobytes(), self.match) if seqnum < len(columns) else None

    def _is_outside(self, file: ObjectFile, columns: np.ndarray) -> bool:
        return self.limited and self.split.keys.excludes(self._zone(columns))

    # ---- changes

    def _deletes(self, side: Side, rows: np.ndarray) -> Iterator[DeltaPart]:
        for batch in side.read(self.shape.key.columns, rows):
            yield self._part(deletes=[batch])

    def _upserts(self, side: Side) -> Iterator[DeltaPart]:
        for batch in side.read(self.shape.columns, np.arange(side.count)):
            yield self._part(upserts=[batch])

    def _changed(self, before: Side, after: Side, rows: np.ndarray, partner: np.ndarray) -> Iterator[DeltaPart]:
        """Of some rows of `after`, those that are new or differ from their partner; some blocks at a time."""
        for chosen, values, differ in self.compared_rows(before, after, rows, partner):
            yield DeltaPart(
                values if differ.all() else values.filter(pa.array(differ)),
                self.shape.delete_schema.empty_table(),
                int(np.count_nonzero(differ & (partner[chosen] >= 0))),
            )

    def compared_rows(
        self, before: Side, after: Side, rows: np.ndarray, partner: np.ndarray
    ) -> Iterator[tuple[np.ndarray, pa.Table, np.ndarray]]:
        """Some rows of `after`, some blocks at a time: their numbers, their values, and bool for each whether it is new
        or differs from its partner."""
        for start, stop in self._portions(after, rows):
            chosen = rows[start:stop]
            values = pa.Table.from_batches(
                after.read(self.shape.columns, chosen), self.shape.upsert_schema
            ).combine_chunks()
            yield chosen, values, self._differ(before, values, partner[chosen])

    def _portions(self, side: Side, rows: np.ndarray) -> Iterator[tuple[int, int]]:
        start = 0
        for _, part, _ in side.pieces(rows):
            if part.stop - start >= PART_ROWS:
                yield start, part.stop
                start = part.stop
        if start < len(rows):
            yield start, len(rows)

    def _differ(self, before: Side, values: pa.Table, partner: np.ndarray) -> np.ndarray:
        """bool for each row of `values`: whether it has no partner, or one with other values.

        Columns of a block of partners are read until all of its rows are known to differ. The columns that showed the
        most differences so far are read first. Raises KeysNotBytes.
        """
        differ = partner < 0
        matched = np.flatnonzero(~differ)
        matched = matched[np.argsort(partner[matched], kind="stable")]
        differences = np.zeros(len(self.shape.columns), np.int64)  # differences by column
        for chunk, part, picked in before.pieces(partner[matched]):
            open_rows = matched[part]
            for number in self.texts:
                if not self._equal(chunk, picked, values, open_rows, number).all():
                    raise KeysNotBytes(
                        f"two texts in column {self.shape.columns[number].name} are the same key upstream",
                        subject=f"table {self.shape.table}",
                    )
            for number in self.compared:
                equal = self._equal(chunk, picked, values, open_rows, number)
                differ[open_rows[~equal]] = True
                differences[number] += np.count_nonzero(~equal)
                open_rows, picked = open_rows[equal], picked[equal]
                if len(open_rows) == 0:
                    break
            self.compared.sort(key=lambda number: -differences[number])
        return differ

    def _equal(
        self, chunk: _BlockRows, picked: np.ndarray, values: pa.Table, rows: np.ndarray, number: int
    ) -> np.ndarray:
        """For some rows of `values`, whether they have the same in a column as their partners, `picked` in a chunk."""
        former = chunk.column(self.shape.columns[number], picked)
        return same(former, values.column(number).combine_chunks().take(pa.array(rows)))

    def _part(self, *, upserts: Sequence[pa.RecordBatch] = (), deletes: Sequence[pa.RecordBatch] = ()) -> DeltaPart:
        shape = self.shape
        return DeltaPart(
            pa.Table.from_batches(upserts, shape.upsert_schema),
            pa.Table.from_batches(deletes, shape.delete_schema),
            replaced=0,
        )
