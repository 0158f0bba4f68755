"""Where the bytes of an object file come from, its layout: header, extents, metadata area (docs/format/object-file.md
2), and checksums of what is read of it at a time: its header, its metadata, each stored column of each block.

Nothing here trusts the file: an offset, count or length is compared with what is there before it is used, and an
origin length (the size before compression) is accepted only within LZ4's best ratio and the caller's limit. Every
error is an `ObjectDamaged` or `ObjectUnsupported`.

The sums are made where the file is copied and kept beside its entry in the manifest, so that a bit that flips later is
found by the read that meets it, before anything is decoded (docs/format/mirror.md, "Manifests"; decision
reads-prove-themselves). They are 4 bytes each, little-endian, the lower half of XXH3: header, metadata, then those of
the blocks, one after another, each with one for every column meta; 0 where no column is stored.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import cramjam
import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from ccpr.matrixone.objects.errors import ObjectChanged, ObjectDamaged, ObjectUnsupported, unknown_form
from ccpr.matrixone.objects.stats import BLOCK_ROWS_LIMIT, BLOCKS_LIMIT, FOOTER_SIZE, Extent
from ccpr.matrixone.objects.vectors import SLOTS_AT


class ObjectBytes(Protocol):
    """Bytes with random access. `pa.Buffer` is one."""

    @property
    def size(self) -> int: ...

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """`length` bytes from `offset`, which the caller has checked against `size`."""
        ...


class FileContent:
    """An open file. Unlike a memory-mapped one it keeps only the slices in use in memory, and truncating the file
    meanwhile cannot crash the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        return pa.py_buffer(os.pread(self._descriptor, self._size - offset if length is None else length, offset))


HEADER, METADATA, BLOCKS = 0, 1, 2  # places of the sums; those of the blocks begin there
_LOWER = 0xFFFFFFFF


def sum_of(stored: pa.Buffer) -> int:
    return xxh3_64_intdigest(stored) & _LOWER


def packed(sums: Sequence[int]) -> bytes:
    return np.array(sums, "<u4").tobytes()


def unpacked(sums: bytes, subject: str) -> memoryview:
    """Numbers. Raises ObjectChanged if there are not even those of header and metadata."""
    if len(sums) % 4 or len(sums) < 4 * BLOCKS:
        raise ObjectChanged(f"{len(sums)} bytes are no checksums of an object", subject=subject)
    return np.frombuffer(sums, "<u4").astype(np.uint32).data


def check_sum(stored: pa.Buffer, sums: memoryview | None, place: int, what: str, subject: str) -> None:
    """Raises ObjectChanged unless the bytes are those that were copied; `sums` None = that is not known."""
    if sums is not None and sum_of(stored) != sums[place]:
        raise changed(what, subject)


def changed(what: str, subject: str) -> ObjectChanged:
    return ObjectChanged(f"{what} is not what was copied: its checksum differs", subject=subject)


MAGIC = bytes.fromhex("ffffffff00000000")
HEADER_SIZE = 64
FORMAT_VERSION = 1
META_ENTRY, META_VERSIONS = 1, (1, 2, 3)
NO_SORT_KEY = 65535

COLUMN_META_DTYPE = np.dtype(
    {
        "names": ["oid", "position", "distinct", "nulls", "algorithm", "offset", "length", "origin", "zonemap"],
        "formats": ["u1", "<u2", "<u4", "<u4", "u1", "<u4", "<u4", "<u4", "V64"],
        "offsets": [0, 1, 3, 7, 11, 12, 16, 20, 28],
        "itemsize": 124,
    }
)
TIMESTAMP_DTYPE = np.dtype([("logical", "<u4"), ("physical", "<i8")])  # 12 bytes, the logical part first
COLUMN_META_SIZE = COLUMN_META_DTYPE.itemsize
BLOCK_HEADER_SIZE = 179

_LZ4_BEST_RATIO = 255  # one byte of input extends a match by 255 bytes at most
_RAW, _COMPRESSED = 0, 1
_LEAD = -SLOTS_AT % 64  # before an inflated column, so that its slots are aligned as Arrow likes them
# Of the metadata's origin length: 124 bytes describe a column of a block, whose payload is hardly ever below 31 bytes.
_META_LIMIT_BASE, _META_LIMIT_PER_BYTE = 16 << 20, 4

_ENTRY = struct.Struct("<HH")
_OBJECT_META = struct.Struct("<HI")
_OBJECT_META_SIZE = 34
_OBJECT_ID, _OBJECT_ID_AT = struct.Struct("18s"), 16
_ROWS_AND_COLUMNS = struct.Struct("<36xI100xH")  # from the start of a block header
_SHAPE, _SHAPE_AT = struct.Struct("<HHBH"), 142  # max seqnum, start id, appendable, sort key
_PAIR_SIZE = 8
_U32 = struct.Struct("<I")
_COLUMN_EXTENT, _COLUMN_EXTENT_AT = struct.Struct("<BIII"), 11  # of a column meta
_COLUMN_PLACE = struct.Struct("<B11xII104x")  # oid, offset and length of a column meta


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One block of an object (2.5).

    Attributes
    ----------
    number : its index in the object; part of the rowid.
    rows : rows stored, visible or not.
    columns : COLUMN_META_DTYPE, index = seqnum; oid 0 = not stored.
    sums : of the stored columns, same index (`ccpr.matrixone.objects.object_layout`); None = not known.
    """

    number: int
    rows: int
    columns: np.ndarray
    sums: memoryview | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Metadata:
    """The metadata area (2.5).

    Attributes
    ----------
    object_id : 18 bytes.
    rows : of all blocks together.
    max_seqnum : largest ordinary seqnum; special columns come after it.
    appendable, sort_key : sort_key is a seqnum or None.
    columns : object-level COLUMN_META_DTYPE, for their zone maps.
    """

    object_id: bytes
    rows: int
    max_seqnum: int
    appendable: bool
    sort_key: int | None
    columns: np.ndarray
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """The first 64 bytes (2.3): extent of the metadata area, schema version of the table at the time of writing."""

    meta: Extent
    schema_version: int


def read_header(content: ObjectBytes, subject: str, sums: memoryview | None = None) -> Header:
    """With `sums` everything that is wrong is an ObjectChanged."""
    kind = ObjectDamaged if sums is None else ObjectChanged
    if content.size < HEADER_SIZE + FOOTER_SIZE:
        raise kind(f"a file of {content.size} bytes is shorter than header and footer", subject=subject)
    stored = content.slice(0, HEADER_SIZE)
    check_sum(stored, sums, HEADER, "its header", subject)
    raw = stored.to_pybytes()
    if not raw.startswith(MAGIC):
        raise ObjectDamaged("the file does not start with the magic number of an object", subject=subject)
    version = int.from_bytes(raw[8:10], "little")
    if version != FORMAT_VERSION:
        raise unknown_form("format version", version, FORMAT_VERSION, subject=subject)
    meta = Extent.parse(raw, 10)
    if meta.offset < HEADER_SIZE or meta.end + FOOTER_SIZE != content.size:
        raise kind(f"{content.size} bytes, but header and metadata say {meta.end + FOOTER_SIZE}", subject=subject)
    return Header(meta, _U32.unpack_from(raw, 23)[0])


def stored_columns(block: Block) -> Iterator[tuple[int, int, int, int]]:
    """Seqnum, oid, offset and length of every stored column of a block; nothing is checked."""
    for seqnum, (oid, offset, length) in enumerate(_COLUMN_PLACE.iter_unpack(block.columns.data)):
        if oid:
            yield seqnum, oid, offset, length


class Scratch:
    """Memory that is reused for one inflated extent after another: each overwrites the one before. New memory for each
    would cost as much as inflating.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = np.empty(0, np.uint8)  # frees the old memory before the new is allocated
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].data


def inflate(
    content: ObjectBytes, extent: Extent, limit: int, subject: str, sums: memoryview | None = None
) -> pa.Buffer:
    """The bytes of an extent, inflated to exactly its origin length, which must not exceed `limit`. With `sums` it is
    that of the metadata."""
    stored = stored_bytes(content, extent.offset, extent.length, subject)
    check_sum(stored, sums, METADATA, "its metadata", subject)
    return _inflate(stored, extent.algorithm, extent.origin, limit, subject, None)


def inflate_column(
    content: ObjectBytes, block: Block, seqnum: int, limit: int, subject: str, scratch: Scratch | None = None
) -> pa.Buffer:
    """As `inflate`, for a stored column of a block, without the cost of an `Extent` for each of a million columns.
    Nobody else has the memory, and its slots are aligned; but with `scratch` the bytes are valid until its next use.
    """
    algorithm, offset, length, origin = _COLUMN_EXTENT.unpack_from(
        block.columns.data, seqnum * COLUMN_META_SIZE + _COLUMN_EXTENT_AT
    )
    stored = stored_bytes(content, offset, length, subject)
    if block.sums is not None and sum_of(stored) != block.sums[seqnum]:
        raise changed(f"column {seqnum} of block {block.number}", subject)
    return _inflate(stored, algorithm, origin, limit, subject, scratch)


def stored_bytes(content: ObjectBytes, offset: int, length: int, subject: str) -> pa.Buffer:
    if offset + length > content.size:
        raise ObjectDamaged(f"an extent ends at {offset + length} of {content.size} bytes", subject=subject)
    return content.slice(offset, length)


def _inflate(
    stored: pa.Buffer, algorithm: int, origin: int, limit: int, subject: str, scratch: Scratch | None
) -> pa.Buffer:
    length = stored.size
    if origin > limit:
        message = f"an extent claims to inflate to {origin} bytes where {limit} can be justified"
        raise ObjectDamaged(message, subject=subject)
    if algorithm == _RAW:
        if origin != length:
            raise ObjectDamaged(f"{length} bytes stored as they are, origin length {origin}", subject=subject)
        inflated, writable = _memory(origin, scratch)
        writable[:] = memoryview(stored).cast("B")
        return inflated
    if algorithm != _COMPRESSED:
        raise unknown_form("compression algorithm", algorithm, _COMPRESSED, subject=subject)
    if origin == 0 or origin > _LZ4_BEST_RATIO * length:
        raise ObjectDamaged(f"{length} bytes of LZ4 cannot inflate to {origin}", subject=subject)
    inflated, writable = _memory(origin, scratch)
    try:
        # Not Arrow's codec, which does not return how many bytes it wrote.
        size = cramjam.lz4.decompress_block_into(stored, writable, output_len=origin)
    except cramjam.DecompressionError as error:
        raise ObjectDamaged("the LZ4 data is corrupt", subject=subject) from error
    if size != origin:
        raise ObjectDamaged(f"the LZ4 data inflates to {size} bytes, not to {origin}", subject=subject)
    return inflated


def _memory(size: int, scratch: Scratch | None) -> tuple[pa.Buffer, memoryview]:
    """The same memory twice. New memory is Arrow's own: threads of DuckDB free it without Python's lock."""
    if scratch is not None:
        writable = scratch.take(size)
        return pa.py_buffer(writable), writable
    whole = pa.allocate_buffer(_LEAD + size)
    return whole.slice(_LEAD), memoryview(whole).cast("B")[_LEAD:]


def read_metadata(content: ObjectBytes, extent: Extent, subject: str, sums: memoryview | None = None) -> Metadata:
    """With `sums` the blocks have theirs. Raises ObjectChanged for those of another number of columns."""
    limit = _META_LIMIT_BASE + _META_LIMIT_PER_BYTE * content.size
    area = inflate(content, extent, limit, subject, sums).to_pybytes()
    _check_there(area, 0, _ENTRY.size, subject)
    kind, version = _ENTRY.unpack_from(area)
    if kind != META_ENTRY:
        raise ObjectDamaged(f"entry type {kind} where the metadata should be", subject=subject)
    if version not in META_VERSIONS:
        raise unknown_form("metadata version", version, max(META_VERSIONS), subject=subject)
    start, expected = _ENTRY.size, None
    if version > 1:
        _check_there(area, start, _OBJECT_META_SIZE, subject)
        expected, offset = _OBJECT_META.unpack_from(area, start)
        start += offset
    return _data_meta(area, start, expected, subject, sums)


def _data_meta(area: bytes, start: int, expected_blocks: int | None, subject: str, sums: memoryview | None) -> Metadata:
    rows, columns = _rows_and_columns(area, start, subject)
    (object_id,) = _OBJECT_ID.unpack_from(area, start + _OBJECT_ID_AT)
    max_seqnum, _, appendable, sort_key = _SHAPE.unpack_from(area, start + _SHAPE_AT)
    index = start + BLOCK_HEADER_SIZE + columns.nbytes
    _check_there(area, index, _U32.size, subject)
    (count,) = _U32.unpack_from(area, index)
    index += _U32.size
    _check_there(area, index, count * _PAIR_SIZE, subject)
    if expected_blocks is not None and count != expected_blocks:
        raise ObjectDamaged(f"{expected_blocks} blocks announced, {count} indexed", subject=subject)
    if count > BLOCKS_LIMIT:
        raise ObjectDamaged(f"{count} blocks indexed", subject=subject)
    offsets, lengths = np.frombuffer(area, "<u4", 2 * count, index).astype(np.int64).reshape(count, 2).T
    # Blocks that share their metadata could multiply the work of reading them.
    if int(lengths.sum()) > len(area):
        raise ObjectDamaged("metadata of blocks overlaps", subject=subject)
    blocks, place = [], BLOCKS
    for number, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        block_rows, block_columns = _rows_and_columns(area, start + offset, subject)
        if length != BLOCK_HEADER_SIZE + block_columns.nbytes:
            message = f"metadata of block {number}: {length} bytes for {len(block_columns)} columns"
            raise ObjectDamaged(message, subject=subject)
        if block_rows > BLOCK_ROWS_LIMIT:
            message = f"block {number} has {block_rows} rows; {BLOCK_ROWS_LIMIT} are the limit"
            raise ObjectUnsupported(message, subject=subject)
        stop = place + len(block_columns)
        blocks.append(Block(number, block_rows, block_columns, None if sums is None else sums[place:stop]))
        place = stop
    if sums is not None and len(sums) != place:
        raise ObjectChanged(f"{len(sums)} checksums for {place} parts of the file", subject=subject)
    return Metadata(
        object_id,
        rows,
        max_seqnum,
        bool(appendable),
        None if sort_key == NO_SORT_KEY else sort_key,
        columns,
        tuple(blocks),
    )


def _rows_and_columns(area: bytes, at: int, subject: str) -> tuple[int, np.ndarray]:
    """Rows and column metas of the block header at `at`."""
    start = at + BLOCK_HEADER_SIZE
    _check_there(area, at, BLOCK_HEADER_SIZE, subject)
    rows, count = _ROWS_AND_COLUMNS.unpack_from(area, at)
    _check_there(area, start, count * COLUMN_META_SIZE, subject)
    return rows, np.frombuffer(area, COLUMN_META_DTYPE, count, start)


def _check_there(area: bytes, at: int, length: int, subject: str) -> None:
    if at + length > len(area):
        message = f"the metadata ends at {len(area)}, but {length} bytes are to be read at {at}"
        raise ObjectDamaged(message, subject=subject)
