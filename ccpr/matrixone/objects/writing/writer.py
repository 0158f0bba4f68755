"""From Arrow rows to an object file: docs/format/object-file.md 5, 6, 11.

An object consists of blocks of 8,192 rows, only the last one may be shorter; an appendable one has a single block. Rows
are in the Arrow types of the reader (`types.arrow_type`), hidden columns included.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE, ROWID_SIZE
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.stats import ObjectStats, object_id_of
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.encoded_columns import EncodedColumn
from ccpr.matrixone.objects.writing.fuse_filters import fixed_hashes, plain_filters, rowid_filters, xxhash64
from ccpr.matrixone.objects.writing.object_parts import (
    HYBRID_FILTER,
    PLAIN_FILTER,
    ObjectParts,
    StoredBlock,
    StoredColumn,
    object_content,
)
from ccpr.matrixone.objects.writing.zonemaps import block_zonemap, object_zonemap, rowid_order_columns
from ccpr.matrixone.objects.zonemap import ZONEMAP_SIZE
from ccpr.matrixone.schema import Column, SqlType, Table

BLOCK_ROWS = 8192
_TS, _ROWID, _ABORT = SqlType(types.TS), SqlType(types.ROWID), SqlType(types.BOOL)


@dataclass(frozen=True, slots=True)
class WrittenObject:
    """An object's file, and its stats as the object list shows them."""

    stats: ObjectStats
    content: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The columns of all blocks as they are stored.

    Attributes
    ----------
    seqnums, kinds : of each column.
    special : how many columns at the end are special (5.1).
    sort_key : seqnum of the column that the rows are sorted by, or None.
    filter_kind : PLAIN_FILTER or HYBRID_FILTER.
    unique_key : whether the values of the sort key are distinct.
    """

    seqnums: list[int]
    kinds: list[SqlType]
    special: int
    blocks: list[StoredBlock]
    sort_key: int | None
    filter_kind: int
    unique_key: bool


def write_data(
    table: Table,
    blocks: Sequence[pa.RecordBatch],
    *,
    name: str,
    appendable: bool,
    by_cn: bool,
    commit_ts: Sequence[np.ndarray] | None,
    aborted: Sequence[np.ndarray] | None = None,
    primary_key: int | None = None,
    cluster_by: int | None = None,
    level: int = 0,
    schema_version: int = 0,
    wkb: bool = False,
) -> WrittenObject:
    """A data object (5).

    Parameters
    ----------
    table : its columns are the stored ones, with distinct seqnums.
    blocks : rows, in the order and types (`types.arrow_type`) of `table.columns`; all blocks but the last have
        BLOCK_ROWS rows. Rows of an object that is not appendable are sorted by the key if there is one (see
        `sorted_blocks`), those of an appendable object by commit time.
    name : of the object, `<segment UUID>_<five digits>`.
    by_cn : written by a compute node: its rows have no commit times, all are committed when the object is created.
    commit_ts : the commit times of each block, TIMESTAMP_DTYPE. None leaves the column out; an appendable object must
        have it.
    aborted : of each block, bool for each row: whether it does not exist, since its transaction was aborted. None
        leaves the column out, as releases up to 4.2 do.
    primary_key, cluster_by : seqnum of the column that the table is sorted by: its primary key (`__mo_cpkey_col` if
        composite), or else its cluster-by column; both None for a table that has only the hidden fake key.
    level : of the merge, 0..7.
    schema_version : of the table.
    wkb : geometries are stored as WKB, as since 4.0.0-rc3, and not as the text that they are.

    Raises `NotWritable` for rows that do not fit the table, the format, or the other parameters.
    """
    subject = f"object {name} of table {table.qualified_name}"
    object_id = object_id_of(name)
    _check_blocks(blocks, appendable, subject)
    if appendable and commit_ts is None:
        raise NotWritable("an appendable object without commit times", subject=subject)
    if aborted is not None and commit_ts is None:
        raise NotWritable("abort flags without commit times", subject=subject)
    if by_cn and (appendable or commit_ts is not None):
        raise NotWritable("a compute node writes neither appendable objects nor commit times", subject=subject)
    times = None if commit_ts is None else _one_a_row(commit_ts, _TS, blocks, subject)
    seqnums, kinds = [column.seqnum for column in table.columns], [column.type for column in table.columns]
    key = primary_key if primary_key is not None else cluster_by
    if key is not None and key not in seqnums:
        raise NotWritable(f"no column has the number {key} of the sort key", subject=subject)
    key_place = None if key is None else seqnums.index(key)
    sorted_by = None if appendable else key_place
    aborts = None if aborted is None else _one_a_row(aborted, _ABORT, blocks, subject)
    special = [] if times is None else [_ROWID, _TS] if appendable else [_TS]
    special += [] if aborts is None else [_ABORT]
    following = max(seqnums, default=-1) + 1
    seqnums.extend(range(following, following + len(special)))
    kinds.extend(special)
    for block in blocks:
        if block.num_columns != len(table.columns):
            message = f"{block.num_columns} columns where {len(table.columns)} are stored"
            raise NotWritable(message, subject=subject)

    unique = None if primary_key is None else key_place
    stored, hashes = _table_columns(table.columns, blocks, sorted_by=sorted_by, unique=unique, wkb=wkb, subject=subject)
    if times is not None:
        for number, (block, columns) in enumerate(zip(blocks, stored, strict=True)):
            if appendable:
                columns.append(_stored(_own_rowids(object_id, number, block.num_rows)))
            columns.append(_stored(times[number]))
            if aborts is not None:
                columns.append(_stored(aborts[number]))
    if sorted_by is not None:
        _check_order(table.columns[sorted_by], [block.column(sorted_by) for block in blocks], subject)
    filters = plain_filters(hashes) if primary_key is not None else [b""] * len(blocks)
    whole = [
        StoredBlock(block.num_rows, columns, filter_)
        for block, columns, filter_ in zip(blocks, stored, filters, strict=True)
    ]
    parts = _Columns(seqnums, kinds, len(special), whole, key, PLAIN_FILTER, primary_key is not None)
    flags = {"appendable": appendable, "in_order": sorted_by is not None, "by_cn": by_cn, "level": level}
    return _written(object_id, parts, flags, schema_version)


def _table_columns(
    columns: Sequence[Column],
    blocks: Sequence[pa.RecordBatch],
    *,
    sorted_by: int | None,
    unique: int | None,
    wkb: bool,
    subject: str,
) -> tuple[list[list[StoredColumn]], list[np.ndarray]]:
    """The stored columns of each block, and the hashes of each block's keys.

    `sorted_by` is the position of the column that the rows are sorted by, `unique` that of the primary key; None if
    there is none.
    """
    stored: list[list[StoredColumn]] = [[] for _ in blocks]
    hashes: list[np.ndarray] = []
    # A column of a block is stored as soon as it is encoded, while it is in the processor's cache; all blocks of one
    # column before the next column, since they compress alike.
    for position, column in enumerate(columns):
        for block, done in zip(blocks, stored, strict=True):
            encoded = encode(block.column(position), column, wkb=wkb)
            if position == unique:
                hashes.append(_key_hashes(encoded, subject))
            done.append(_stored(encoded, in_order=position == sorted_by))
    return stored, hashes


def _check_order(column: Column, blocks: Sequence[pa.Array], subject: str) -> None:
    if not _in_order(_ordered(column, block) for block in blocks):
        raise NotWritable(f"the rows are not in the order of column {column.name}", subject=subject)


def write_tombstones(
    rowids: Sequence[pa.Array],
    keys: Sequence[pa.Array],
    key_column: Column,
    *,
    name: str,
    appendable: bool,
    by_cn: bool,
    commit_ts: Sequence[np.ndarray] | None,
    aborted: Sequence[np.ndarray] | None = None,
    level: int = 0,
    schema_version: int = 0,
) -> WrittenObject:
    """A tombstone object (6): the rows with these rowids are deleted.

    Parameters
    ----------
    rowids : the rowids of each block, fixed binary of 24 bytes, ascending in the order of 7.2 over the whole object.
    keys : the keys of the deleted rows of each block, in the Arrow type of `key_column`.
    key_column : the table's key: the primary key, `__mo_cpkey_col` or the fake key.
    commit_ts : as in `write_data`; None if and only if `by_cn`.
    aborted : as in `write_data`.

    The others are as in `write_data`. Raises `NotWritable`.
    """
    subject = f"tombstones {name}"
    object_id = object_id_of(name)
    names = ["rowid", "key"]
    columns = (Column("__mo_%1_delete_rowid", 0, _ROWID), replace(key_column, seqnum=1))
    if (commit_ts is None) != by_cn or (by_cn and appendable):
        raise NotWritable("tombstones have commit times unless a compute node wrote them", subject=subject)
    blocks = [pa.RecordBatch.from_arrays([*pair], names=names) for pair in zip(rowids, keys, strict=True)]
    _check_blocks(blocks, appendable, subject)
    encoded, plain = _encoded_tombstones(blocks, columns, subject)
    seqnums, kinds = [0, 1], [_ROWID, key_column.type]
    for place, kind, values in ((2, _TS, commit_ts), (3, _ABORT, aborted)):
        if values is not None:
            for block, column in zip(encoded, _one_a_row(values, kind, blocks, subject), strict=True):
                block.append(column)
            seqnums.append(place)
            kinds.append(kind)
    filters = rowid_filters(plain)
    whole = [
        StoredBlock(block[0].rows, list(map(_stored, block)), filter_)
        for block, filter_ in zip(encoded, filters, strict=True)
    ]
    parts = _Columns(seqnums, kinds, len(seqnums) - 2, whole, 0, HYBRID_FILTER, True)
    flags = {"appendable": appendable, "in_order": True, "by_cn": by_cn, "level": level}
    return _written(object_id, parts, flags, schema_version)


def _encoded_tombstones(
    blocks: Sequence[pa.RecordBatch], columns: Sequence[Column], subject: str
) -> tuple[list[list[EncodedColumn]], list[np.ndarray]]:
    """The columns of each block, and its rowids as uint8 of shape (rows, 24). Raises `NotWritable` for a null, and for
    rowids that do not ascend."""
    encoded = [
        [encode(values, column) for values, column in zip(block.columns, columns, strict=True)] for block in blocks
    ]
    if any(column.null is not None for block in encoded for column in block):
        raise NotWritable("a rowid or a key is null", subject=subject)
    plain = [block[0].slots.reshape(-1).view(np.uint8).reshape(-1, ROWID_SIZE) for block in encoded]
    if not _ascending(plain):
        raise NotWritable("the rowids do not ascend", subject=subject)
    return encoded, plain


def sorted_blocks(table: Table, rows: pa.Table | pa.RecordBatch, key: int | None) -> list[pa.RecordBatch]:
    """Rows cut into blocks for `write_data`. If `key` is not None they are sorted by the column of that seqnum, nulls
    first, as the server orders them."""
    if key is not None:
        (column,) = (column for column in table.columns if column.seqnum == key)
        values = rows.column(table.columns.index(column))
        ordered = _ordered(column, values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
        rows = rows.take(pc.array_sort_indices(ordered, null_placement="at_start"))
    return cut_blocks(rows)


def _ordered(column: Column, values: pa.Array) -> pa.Array:
    """Values that compare as the stored ones do: enums and sets by their numbers, decimals that are texts in Arrow as
    numbers."""
    if types.is_decimal_text(column):
        return values.cast(pa.decimal256(types.MAX_PRECISION[types.DECIMAL256], column.type.scale))
    if column.type.oid != types.ENUM and not types.is_set(column):
        return (
            stored_bytes(values) if column.type.oid in types.TEXT_TYPES and pa.types.is_string(values.type) else values
        )
    encoded = encode(values, column)
    return pa.array(encoded.slots, mask=encoded.null)


def _in_order(blocks: Iterable[pa.Array]) -> bool:
    """Whether the values of all blocks together never decrease, with nulls first."""
    last: pa.Array | None = None
    for block in blocks:
        values = block if last is None else pa.concat_arrays([last, block])
        nulls = values.null_count
        if nulls and values.slice(nulls).null_count:
            return False
        values = values.slice(nulls)
        if len(values) > 1 and pc.any(pc.less(values.slice(1), values.slice(0, len(values) - 1))).as_py():
            return False
        last = block.slice(len(block) - 1)
    return True


def cut_blocks(rows: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    """Blocks of BLOCK_ROWS rows, the last one shorter; none without rows."""
    whole = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return whole.combine_chunks().to_batches(max_chunksize=BLOCK_ROWS) if len(whole) else []


def _ascending(blocks: list[np.ndarray]) -> bool:
    """Whether the rowids of all blocks together never decrease."""
    if not blocks:
        return True
    whole = np.concatenate(blocks)
    equal = np.ones(max(len(whole) - 1, 0), bool)
    for numbers in rowid_order_columns(whole):
        before, after = numbers[:-1], numbers[1:]
        if (equal & (after < before)).any():
            return False
        equal &= after == before
    return True


def _check_blocks(blocks: Sequence[pa.RecordBatch], appendable: bool, subject: str) -> None:
    if appendable and len(blocks) != 1:
        raise NotWritable(f"an appendable object of {len(blocks)} blocks", subject=subject)
    sizes = [block.num_rows for block in blocks]
    if any(size != BLOCK_ROWS for size in sizes[:-1]) or any(not 0 < size <= BLOCK_ROWS for size in sizes[-1:]):
        message = f"blocks of {sizes[:5]} rows; each has {BLOCK_ROWS}, the last one at least one"
        raise NotWritable(message, subject=subject)


def _key_hashes(column: EncodedColumn, subject: str) -> np.ndarray:
    """Hashes of a block's keys, over the bytes as they are stored."""
    if column.null is not None:
        raise NotWritable("a primary key is null", subject=subject)
    if column.values is None:
        return fixed_hashes(column.slots.reshape(-1).view(np.uint8).reshape(column.rows, -1))
    _, offsets, data = column.values.buffers()
    ends = np.frombuffer(offsets, np.int32, column.rows + 1, 4 * column.values.offset).astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])  # the buffer may be that of all blocks
    return xxhash64(np.frombuffer(data or b"", np.uint8)[first:last], ends[:-1] - first, np.diff(ends))


def _own_rowids(object_id: bytes, block: int, rows: int) -> EncodedColumn:
    """The rowids of a block's own rows, which appendable objects store."""
    rowids = np.zeros(rows, ROWID_DTYPE)
    rowids["object"], rowids["block"], rowids["row"] = np.void(object_id), block, np.arange(rows)
    return EncodedColumn(_ROWID, rows, rowids.view(np.uint8))


def _one_a_row(
    values: Sequence[np.ndarray], kind: SqlType, blocks: Sequence[pa.RecordBatch], subject: str
) -> list[EncodedColumn]:
    """A special column: commit times or abort flags."""
    what, dtype = ("commit time", TIMESTAMP_DTYPE) if kind is _TS else ("abort flag", np.uint8)
    if [len(part) for part in values] != [block.num_rows for block in blocks]:
        raise NotWritable(f"not one {what} for each row", subject=subject)
    return [EncodedColumn(kind, len(part), np.ascontiguousarray(part, dtype).view(np.uint8)) for part in values]


def _written(object_id: bytes, columns: _Columns, flags: dict[str, Any], schema_version: int) -> WrittenObject:
    stored = columns.blocks
    zonemaps = [
        object_zonemap([block.columns[place].zonemap for block in stored], kind.oid, kind.scale)
        for place, kind in enumerate(columns.kinds)
    ]
    key = None if columns.sort_key is None else columns.seqnums.index(columns.sort_key)
    rows = sum(block.rows for block in stored)
    parts = ObjectParts(
        object_id=object_id,
        oids=[kind.oid for kind in columns.kinds],
        seqnums=columns.seqnums,
        special=columns.special,
        blocks=stored,
        appendable=flags["appendable"],
        sort_key=columns.sort_key,
        filter_kind=columns.filter_kind,
        zonemaps=zonemaps,
        distinct=_distinct(columns, rows),
        nulls=[sum(block.columns[place].nulls for block in stored) for place in range(len(columns.kinds))],
        schema_version=schema_version,
    )
    file = object_content(parts)
    stats = ObjectStats.build(
        object_id,
        file.meta,
        rows,
        len(stored),
        size=len(file.content),
        origin_size=file.origin_size,
        sort_key_zonemap=bytes(ZONEMAP_SIZE) if key is None else zonemaps[key],
        appendable=flags["appendable"],
        in_order=flags["in_order"],
        created_by_cn=flags["by_cn"],
        level=flags["level"],
    )
    return WrittenObject(stats, file.content)


def _stored(column: EncodedColumn, *, in_order: bool = False) -> StoredColumn:
    return StoredColumn.compressed(column.entry(), column.null_count, block_zonemap(column, in_order=in_order))


def _distinct(columns: _Columns, rows: int) -> list[int]:
    """The number of distinct values of each column: exact for a unique key, else not counted (0), as for the server's
    special columns."""
    return [rows if columns.unique_key and seqnum == columns.sort_key else 0 for seqnum in columns.seqnums]
