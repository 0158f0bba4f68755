"""Which rows of a table exist at a time: docs/format/object-file.md 6, 9."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ValueRefused
from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE, rowid_order
from ccpr.matrixone.objects.object_layout import Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.objects.zonemap import rowid_range
from ccpr.matrixone.schema import Column

Opener = Callable[[str, bytes | None], ObjectFile]  # by object name, with its sums

ROW_BITS = 32  # of a deleted row's place, `block << 32 | row`
_ROW_MASK = (1 << ROW_BITS) - 1
_RUN_BYTES = 4 << 20  # of decoded columns that are in memory together, unless a block alone has more


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One row of the object list.

    Attributes
    ----------
    stats : see `ObjectStats`.
    created, deleted : the object is valid from `created` until before `deleted`, which is None while it is live.
    tombstone : its rows name deleted rows of data objects.
    sums : of its file when it was copied (`ccpr.matrixone.objects.object_layout`); None = not known.
    """

    stats: ObjectStats
    created: Timestamp
    deleted: Timestamp | None
    tombstone: bool
    sums: bytes | None = None

    def takes_part(self, at: Timestamp) -> bool:
        """Whether the object is valid at a time: at the exact time of a merge only the new object is (9.1)."""
        return self.created <= at and (self.deleted is None or at < self.deleted)


def deleted_rows(
    objects: Iterable[ListedObject], open_object: Opener, at: Timestamp, *, of: Collection[bytes] | None = None
) -> Mapping[bytes, np.ndarray]:
    """Rows deleted at a time, by the id of their data object: sorted, unique `block << 32 | row` (uint64).

    `of` limits the answer to some data objects by id; tombstone objects and blocks whose rowids name none of them are
    skipped. Without it, rows of data objects that are not listed are returned as well. Memory: 8 bytes for each
    returned row, and one block of a tombstone object at a time.
    """
    wanted = None if of is None else frozenset(of)
    places = None if wanted is None else sorted(map(rowid_order, wanted))
    parts: dict[bytes, list[np.ndarray]] = {}
    for listed in objects:
        if not listed.tombstone or not listed.takes_part(at) or _is_apart(listed.stats.sort_key_zonemap, places):
            continue
        file = open_listed(listed, open_object)
        for block in file.blocks:
            if block.rows == 0 or (len(block.columns) and _is_apart(block.columns[0]["zonemap"].item(), places)):
                continue
            for target, positions in _targets(_existing_rowids(listed, file, block.number, at)):
                if wanted is None or target in wanted:
                    parts.setdefault(target, []).append(positions)
    return {target: np.unique(np.concatenate(pieces)) for target, pieces in parts.items()}


def count_deletions(
    objects: Iterable[ListedObject],
    open_object: Opener,
    at: Timestamp,
    *,
    of: Collection[bytes],
    since: Timestamp | None = None,
) -> dict[bytes, int]:
    """How many rows some tombstone objects have at a time for each of the data objects `of`; without those that have
    none.

    A row that is deleted twice counts twice. `since` skips tombstone rows that existed at that time already.
    Memory: one block at a time.
    """
    wanted = frozenset(of)
    places = sorted(map(rowid_order, wanted))
    counts: dict[bytes, int] = {}
    for listed in objects:
        if not listed.takes_part(at) or _is_apart(listed.stats.sort_key_zonemap, places):
            continue
        file = open_listed(listed, open_object)
        for block in file.blocks:
            if block.rows:
                for target, positions in _targets(_existing_rowids(listed, file, block.number, at, since)):
                    if target in wanted:
                        counts[target] = counts.get(target, 0) + len(positions)
    return counts


def tombstones_of(objects: Iterable[ListedObject], of: Collection[bytes]) -> list[ListedObject]:
    """The tombstone objects that may name rows of some data objects, by the zone maps in their stats."""
    places = sorted(map(rowid_order, of))
    return [listed for listed in objects if listed.tombstone and not _is_apart(listed.stats.sort_key_zonemap, places)]


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """Rows that exist at a time, of blocks of one object.

    Attributes
    ----------
    blocks : at least one.
    rows : their numbers, counted through the blocks, in order; None = all.
    """

    file: ObjectFile
    blocks: tuple[Block, ...]
    rows: np.ndarray | None

    @property
    def stored(self) -> int:
        """How many rows the blocks have, visible or not."""
        return sum(block.rows for block in self.blocks)

    @property
    def count(self) -> int:
        return self.stored if self.rows is None else len(self.rows)

    def column(self, column: Column) -> pa.Array:
        """Their values. Raises as `ObjectFile.column`, for these rows only."""
        numbers = [block.number for block in self.blocks]
        if self.rows is None:
            return self.file.values(numbers, column)
        if len(numbers) == 1:
            return self.file.column(numbers[0], column, self.rows)
        try:
            return self.file.values(numbers, column).take(pa.array(self.rows))
        except (ObjectDamaged, ValueRefused):  # of a row that is not among these, perhaps
            by_block = zip(numbers, _split(self.rows, self.blocks), strict=True)
            return pa.concat_arrays([self.file.column(number, column, rows) for number, rows in by_block])

    def where(self, mask: np.ndarray) -> "VisibleRows | None":
        """The rows that a mask keeps: bool, one a row. Blocks without such rows are left out. None if there are no
        such rows."""
        rows = np.flatnonzero(mask) if self.rows is None else self.rows[mask]
        if len(rows) == self.stored:
            return self
        parts = _split(rows, self.blocks)
        chosen = [(block, part) for block, part in zip(self.blocks, parts, strict=True) if len(part)]
        return together([VisibleRows(self.file, (block,), part) for block, part in chosen]) if chosen else None

    def batch(self, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
        """The rows, with columns in the order given; `schema` is their `arrow_schema`."""
        return batch_of([self.column(column) for column in columns], schema, self.count)


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of so many rows, even if it has no columns."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # Without columns only a struct array keeps the number of rows.
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def _split(rows: np.ndarray, blocks: Sequence[Block]) -> list[np.ndarray]:
    """The rows of each block, counted from its first."""
    starts = np.cumsum([0, *(block.rows for block in blocks)])
    bounds = np.searchsorted(rows, starts)
    return [rows[first:stop] - start for (first, stop), start in zip(pairwise(bounds), starts[:-1], strict=True)]


def together(parts: Sequence[VisibleRows]) -> VisibleRows:
    """Rows of one object, in the order of its blocks, as one."""
    first, blocks = parts[0], tuple(block for part in parts for block in part.blocks)
    if len(parts) == 1 or all(part.rows is None for part in parts):
        return VisibleRows(first.file, blocks, first.rows)
    starts = np.cumsum([0, *(part.stored for part in parts)])
    rows = [
        (np.arange(part.stored) if part.rows is None else part.rows) + start
        for part, start in zip(parts, starts[:-1], strict=True)
    ]
    return VisibleRows(first.file, blocks, np.concatenate(rows))


def vary_in_size(kinds: Iterable[pa.DataType]) -> bool:
    """Whether values of one of them can have any length."""
    return any(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind) for kind in kinds)


def in_runs(blocks: Iterable[VisibleRows], columns: Sequence[Column]) -> Iterator[VisibleRows]:
    """Blocks that follow each other in an object, together as long as these columns take up at most _RUN_BYTES in
    Arrow. Values of any length stay by block: what they take up is known when they are decoded, and together they may
    be more than an array holds.

    The first run is one block, and each may have twice as many as the one before: who stops after some rows has not
    read much more than these.
    """
    kinds = [arrow_type(column) for column in columns]
    if vary_in_size(kinds):
        yield from blocks
        return
    width = 1 + sum(kind.bit_width for kind in kinds) // 8
    most, rows, run = 1, 0, list[VisibleRows]()
    for visible in blocks:
        full = len(run) == most or (rows + visible.stored) * width > _RUN_BYTES
        if run and (full or visible.file is not run[0].file):
            yield together(run)
            most, rows, run = 2 * most, 0, []
        run.append(visible)
        rows += visible.stored
    if run:
        yield together(run)


def visible_blocks(
    objects: Sequence[ListedObject],
    open_object: Opener,
    at: Timestamp,
    *,
    choose: Callable[[ObjectFile], Iterable[Block]] | None = None,
) -> Iterator[VisibleRows]:
    """The rows of a table that exist at a time, by block. No column is read but commit times and abort flags.

    `objects` may have some data objects of the table only, and must have all of its tombstones. `choose` returns the
    blocks of a data object to read; the others are skipped.
    """
    chosen = [listed for listed in objects if not listed.tombstone and listed.takes_part(at)]
    dead = deleted_rows(objects, open_object, at, of=frozenset(listed.stats.object_id for listed in chosen))
    for listed in chosen:
        file = open_listed(listed, open_object)
        deletions = dead.get(listed.stats.object_id)
        check_deletions(listed, file, deletions)
        for block in file.blocks if choose is None else choose(file):
            keep = visible_mask(listed, file, block.number, deletions, at)
            if block.rows and (keep is None or keep.any()):
                yield VisibleRows(file, (block,), None if keep is None else np.flatnonzero(keep))


def check_deletions(listed: ListedObject, file: ObjectFile, deletions: np.ndarray | None) -> None:
    """Raises `ObjectMismatch` if the object's `deletions` (from `deleted_rows`) name a block that it does not have."""
    if deletions is not None and int(deletions[-1]) >> ROW_BITS >= len(file.blocks):
        block, row = divmod(int(deletions[-1]), 1 << ROW_BITS)
        message = f"row {row} of block {block} is deleted, of {len(file.blocks)} blocks"
        raise ObjectMismatch(message, subject=f"object {listed.stats.name}")


def visible_mask(
    listed: ListedObject, file: ObjectFile, block: int, deletions: np.ndarray | None, at: Timestamp
) -> np.ndarray | None:
    """bool, one a stored row of a block; None if all are visible (9.2, 9.3). `deletions` are the object's, from
    `deleted_rows`."""
    rows = file.blocks[block].rows
    keep = None
    if listed.stats.appendable:
        times = file.commit_timestamps(block)
        if times is None:
            raise ObjectMismatch("an appendable object without commit times", subject=f"object {listed.stats.name}")
        keep = not_after(times, at)
        keep = None if keep.all() else keep
    elif (aborted := file.aborted(block)) is not None:
        keep = ~aborted
    if deletions is not None:
        first, stop = np.searchsorted(deletions, np.array([block << ROW_BITS, (block + 1) << ROW_BITS], np.uint64))
        if stop > first:
            dead = (deletions[first:stop] & np.uint64(_ROW_MASK)).astype(np.int64)
            if int(dead[-1]) >= rows:
                message = f"row {int(dead[-1])} of block {block} is deleted, of {rows}"
                raise ObjectMismatch(message, subject=f"object {listed.stats.name}")
            keep = np.ones(rows, bool) if keep is None else keep
            keep[dead] = False
    return keep


def _existing_rowids(
    listed: ListedObject, file: ObjectFile, block: int, at: Timestamp, since: Timestamp | None = None
) -> np.ndarray:
    """Rowids of the tombstone rows that exist at a time. A CN's tombstones all exist from the object's creation on
    (9.3)."""
    rowids = file.rowids(block)
    if listed.stats.created_by_cn:
        aborted = file.aborted(block)
        rowids = rowids if aborted is None else rowids[~aborted]
        return rowids if since is None or since < listed.created else rowids[:0]
    times = file.commit_timestamps(block)
    if times is None:
        if listed.stats.appendable:
            raise ObjectMismatch("an appendable object without commit times", subject=f"object {listed.stats.name}")
        return rowids if since is None or since < listed.created else rowids[:0]
    existing = not_after(times, at)
    if since is not None:
        existing &= ~not_after(times, since)
    return rowids if existing.all() else rowids[existing]


def not_after(times: np.ndarray, at: Timestamp) -> np.ndarray:
    """bool for each commit time (TIMESTAMP_DTYPE): whether it is at or before a time."""
    physical, logical = times["physical"], times["logical"]
    return (physical < at.physical) | ((physical == at.physical) & (logical <= at.logical))


def first_and_last(times: np.ndarray) -> tuple[Timestamp, Timestamp]:
    """Of commit times (TIMESTAMP_DTYPE), at least one."""
    physical, logical = times["physical"], times["logical"]
    first, last = physical.min(), physical.max()
    return (
        Timestamp(int(first), int(logical[physical == first].min())),
        Timestamp(int(last), int(logical[physical == last].max())),
    )


def _targets(rowids: np.ndarray) -> Iterator[tuple[bytes, np.ndarray]]:
    """The id of each object that sorted rowids name, with their `block << 32 | row`."""
    if len(rowids) == 0:
        return
    positions = rowids["block"].astype(np.uint64) << np.uint64(ROW_BITS) | rowids["row"]
    ids = np.frombuffer(rowids["object"].tobytes(), np.uint8).reshape(len(rowids), OBJECT_ID_SIZE)
    bounds = [0, *(np.flatnonzero((ids[1:] != ids[:-1]).any(axis=1)) + 1).tolist(), len(rowids)]
    for start, stop in pairwise(bounds):
        yield ids[start].tobytes(), positions[start:stop]


def _is_apart(zonemap: bytes, places: list[tuple[bytes, int]] | None) -> bool:
    """Whether a zone map of rowids proves that none belongs to the objects of these sort keys (sorted; None = any
    object)."""
    known = None if places is None else rowid_range(zonemap)
    if places is None or known is None:
        return places == []
    first = bisect_left(places, rowid_order(known[0][:OBJECT_ID_SIZE]))
    return first == len(places) or places[first] > rowid_order(known[1][:OBJECT_ID_SIZE])


def open_listed(listed: ListedObject, open_object: Opener) -> ObjectFile:
    """The file of a listed object; raises `ObjectMismatch` if it is another object's."""
    file = open_object(listed.stats.name, listed.sums)
    if file.object_id != listed.stats.object_id or file.appendable != listed.stats.appendable:
        raise ObjectMismatch("the file opened is another object", subject=f"object {listed.stats.name}")
    return file
