"""The file around encoded columns: header, areas, metadata, footer. The inverse of
`ccpr.matrixone.objects.object_layout`. docs/format/object-file.md 2, 11."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.object_layout import (
    BLOCK_HEADER_SIZE,
    COLUMN_META_DTYPE,
    FORMAT_VERSION,
    HEADER_SIZE,
    MAGIC,
    META_ENTRY,
    NO_SORT_KEY,
)
from ccpr.matrixone.objects.stats import BLOCKS_LIMIT, EXTENT_FIELDS, Extent
from ccpr.matrixone.objects.zonemap import ZONEMAP_SIZE

PLAIN_FILTER, HYBRID_FILTER = 0, 2
_META_VERSION, _FILTER_ENTRY, _ZONEMAP_ENTRY = 3, (3, 2), (4, 1)
_COMPRESSED = 1
_COLUMN_DATA_LIMIT = 3 << 30  # the server refuses more
_COLUMNS_LIMIT = 65_530  # seqnums from here on are reserved
_ZONEMAP_LENGTHS_WRAP = 1 << 16
_LZ4 = pa.Codec("lz4_raw")
_ENTRY, _U32, _PAIR = struct.Struct("<HH"), struct.Struct("<I"), struct.Struct("<II")
_EXTENT = struct.Struct("<BIII")
_OBJECT_META = struct.Struct("<HIHI20xH")
# The server's footer has a memory address before the 13, which nothing reads.
_FOOTER = struct.pack("<48x8xQ", 13)
_EMPTY_FILTERS = _ENTRY.pack(*_FILTER_ENTRY) + _U32.pack(1) + _PAIR.pack(12, 0)
_EMPTY_ZONEMAPS = _ENTRY.pack(*_ZONEMAP_ENTRY) + _U32.pack(0)
_BLOCK_HEADER_FIELDS: list[tuple[str, Any, int]] = [  # name, format, offset
    ("object_id", "V18", 16),
    ("sequence", "<u2", 34),
    ("rows", "<u4", 36),
    ("columns", "<u2", 40),
    ("meta", EXTENT_FIELDS, 42),
    ("filters", EXTENT_FIELDS, 55),
    ("zonemaps", EXTENT_FIELDS, 72),
    ("metas", "<u2", 140),
    ("max_seqnum", "<u2", 142),
    ("start", "<u2", 144),
    ("appendable", "u1", 146),
    ("sort_key", "<u2", 147),
    ("filter_kind", "u1", 149),
]
_BLOCK_HEADER = np.dtype(
    {
        "names": [name for name, _, _ in _BLOCK_HEADER_FIELDS],
        "formats": [form for _, form, _ in _BLOCK_HEADER_FIELDS],
        "offsets": [offset for _, _, offset in _BLOCK_HEADER_FIELDS],
        "itemsize": BLOCK_HEADER_SIZE,
    }
)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of one block: its compressed entry (2.6), the entry's length before compression, the number of null
    rows, its zone map of 64 bytes."""

    stored: pa.Buffer
    origin: int
    nulls: int
    zonemap: bytes

    @classmethod
    def compressed(cls, entry: bytes, nulls: int, zonemap: bytes) -> "StoredColumn":
        return cls(_LZ4.compress(entry), len(entry), nulls, zonemap)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """The number of rows, the columns in the order of `ObjectParts.seqnums`, and the block's filter (empty without a
    primary key)."""

    rows: int
    columns: Sequence[StoredColumn]
    filter: bytes = b""


@dataclass(frozen=True, slots=True)
class ObjectParts:
    """Everything that is written into an object file.

    Attributes
    ----------
    object_id : 18 bytes.
    oids, seqnums : of each column, in the order in which they are written; special columns (5.1) come last, with the
        next numbers.
    special : how many of the columns are special.
    sort_key : a seqnum, or None.
    filter_kind : PLAIN_FILTER or HYBRID_FILTER.
    zonemaps, distinct, nulls : of each column over the whole object; distinct values may be an estimate.
    schema_version : of the table.
    """

    object_id: bytes
    oids: Sequence[int]
    seqnums: Sequence[int]
    special: int
    blocks: Sequence[StoredBlock]
    appendable: bool
    sort_key: int | None
    filter_kind: int
    zonemaps: Sequence[bytes]
    distinct: Sequence[int]
    nulls: Sequence[int]
    schema_version: int = 0


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """A whole file, the extent of its metadata, and the length that it would have without compression."""

    content: bytes
    meta: Extent
    origin_size: int


def object_content(parts: ObjectParts) -> ObjectContent:
    """The file of an object. Raises `NotWritable` if the parts exceed the format's limits."""
    subject = f"object of {len(parts.oids)} columns"
    if len(parts.blocks) >= BLOCKS_LIMIT:
        raise NotWritable(f"{len(parts.blocks)} blocks", subject=subject)
    metas = 1 + max(parts.seqnums, default=-1)
    if metas > _COLUMNS_LIMIT:
        raise NotWritable(f"a column of number {metas - 1}", subject=subject)
    file = _ObjectFile()
    columns, whole = _column_data(file, parts, metas, subject)
    filters = file.put(_filter_area(parts.blocks), compressed=False)
    zonemaps = file.put(_zonemap_area(columns), compressed=True)
    empty_filters = file.put(_EMPTY_FILTERS, compressed=False)
    empty_zonemaps = file.put(_EMPTY_ZONEMAPS, compressed=True)

    shape = {"columns": len(parts.oids), "metas": metas, "max_seqnum": max(metas - 1 - parts.special, 0)}
    block_metas = [
        _block_header(**shape, sequence=number, rows=block.rows, filter_kind=parts.filter_kind)
        + columns[number].tobytes()
        for number, block in enumerate(parts.blocks)
    ]
    size = BLOCK_HEADER_SIZE + whole.nbytes + _U32.size + sum(_PAIR.size + len(meta) for meta in block_metas)
    common = {
        "object_id": np.void(parts.object_id),
        "rows": sum(block.rows for block in parts.blocks),
        "appendable": parts.appendable,
        "sort_key": NO_SORT_KEY if parts.sort_key is None else parts.sort_key,
    }
    count = len(parts.blocks)
    first = _block_header(
        **common, **shape, sequence=count, meta=(0, file.size, 0, size), filters=filters, zonemaps=zonemaps
    )
    own = (0, file.size, 0, BLOCK_HEADER_SIZE + _U32.size)
    # Slot 1 has no blocks.
    second = _block_header(**common, start=count, meta=own, filters=empty_filters, zonemaps=empty_zonemaps)

    index = _index([len(meta) for meta in block_metas], BLOCK_HEADER_SIZE + whole.nbytes)
    head = _ENTRY.pack(META_ENTRY, _META_VERSION) + _OBJECT_META.pack(len(parts.blocks), _OBJECT_META.size, 0, 0, 0)
    meta = file.put(
        b"".join((head, first, whole.tobytes(), index, *block_metas, second, _U32.pack(0))), compressed=True
    )
    return file.finished(meta, parts.schema_version)


class _ObjectFile:
    """Pieces of the content after the header, one after the other."""

    def __init__(self) -> None:
        self._pieces: list[bytes | pa.Buffer] = []
        self.size = HEADER_SIZE
        self._origin = HEADER_SIZE

    def put(self, raw: bytes, *, compressed: bool) -> tuple[int, int, int, int]:
        """Add a piece; returns its extent."""
        return self.put_stored(_LZ4.compress(raw) if compressed else raw, len(raw), compressed=compressed)

    def put_stored(self, stored: bytes | pa.Buffer, origin: int, *, compressed: bool) -> tuple[int, int, int, int]:
        """Add a piece that is compressed already, if it is to be; returns its extent."""
        extent = (int(compressed), self.size, len(stored), origin)
        self._pieces.append(stored)
        self.size += len(stored)
        self._origin += origin
        return extent

    def finished(self, meta: tuple[int, int, int, int], schema_version: int) -> ObjectContent:
        header = MAGIC + FORMAT_VERSION.to_bytes(2, "little") + _EXTENT.pack(*meta) + _U32.pack(schema_version)
        content = b"".join((header.ljust(HEADER_SIZE, b"\x00"), *self._pieces, _FOOTER))
        return ObjectContent(content, Extent(*meta), self._origin + len(_FOOTER))


def _column_data(file: _ObjectFile, parts: ObjectParts, metas: int, subject: str) -> tuple[np.ndarray, np.ndarray]:
    """Write all columns. Returns the column metas of the blocks (blocks, metas) and of the object (metas,)."""
    columns = np.zeros((len(parts.blocks), metas), COLUMN_META_DTYPE)
    whole = np.zeros(metas, COLUMN_META_DTYPE)
    for position, (oid, seqnum) in enumerate(zip(parts.oids, parts.seqnums, strict=True)):
        total, origin, start = 0, 0, file.size
        for number, block in enumerate(parts.blocks):
            stored = block.columns[position]
            extent = file.put_stored(stored.stored, stored.origin, compressed=True)
            columns[number, seqnum] = (oid, position, 0, stored.nulls, *extent, np.void(stored.zonemap))
            total += extent[2]
            origin += extent[3]
            if file.size > _COLUMN_DATA_LIMIT:
                raise NotWritable(f"more than {_COLUMN_DATA_LIMIT} bytes of column data", subject=subject)
        counts, zonemap = (parts.distinct[position], parts.nulls[position]), np.void(parts.zonemaps[position])
        whole[seqnum] = (0, 0, *counts, _COMPRESSED, start, total, origin, zonemap)
    return columns, whole


def _block_header(**fields: Any) -> bytes:
    """179 bytes, zero where no field is given. Filled in place, since numpy does not copy the bytes between fields."""
    raw = bytearray(BLOCK_HEADER_SIZE)
    header = np.ndarray((), _BLOCK_HEADER, raw)
    for name, value in fields.items():
        header[name] = value
    return bytes(raw)


def _filter_area(blocks: Sequence[StoredBlock]) -> bytes:
    """The filters of the blocks, and an empty one of the object."""
    filters = [*(block.filter for block in blocks), b""]
    return b"".join((_ENTRY.pack(*_FILTER_ENTRY), _index([len(entry) for entry in filters], 0), *filters))


def _zonemap_area(columns: np.ndarray) -> bytes:
    """A copy of the blocks' zone maps; lengths are stored modulo 2**16."""
    zonemaps = np.ascontiguousarray(columns["zonemap"])
    blocks, metas = columns.shape
    length = ZONEMAP_SIZE * metas
    at, entries = _U32.size + _PAIR.size * blocks, [_U32.pack(blocks)]
    for _ in range(blocks):
        entries.append(_PAIR.pack(at, length % _ZONEMAP_LENGTHS_WRAP))
        at += length
    return b"".join((_ENTRY.pack(*_ZONEMAP_ENTRY), *entries, zonemaps.tobytes()))


def _index(lengths: Sequence[int], before: int) -> bytes:
    """The number of entries, then offset and length of each; the first starts after `before` bytes and this index."""
    at, entries = before + _U32.size + _PAIR.size * len(lengths), [_U32.pack(len(lengths))]
    for length in lengths:
        entries.append(_PAIR.pack(at, length))
        at += length
    return b"".join(entries)
