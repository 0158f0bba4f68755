"""ObjectStats, the 154 bytes by which the object list describes an object: docs/format/object-file.md 1, 2.2, 7.1."""

import re
import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.errors import BadObjectName, ObjectDamaged
from ccpr.matrixone.objects.identifiers import NAME_SIZE, fixed_offsets, fixed_text_array, name_text, object_name

STATS_SIZE = 154
FOOTER_SIZE = 64
BLOCK_ROWS_LIMIT = 65_536  # every table has 8,192 rows a block; a block with more than this is not one of a table
BLOCKS_LIMIT = 65_536  # a block number is a u16

OBJECT_NAME = re.compile(r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}_[0-9]{5}\Z")

EXTENT_FIELDS = [("algorithm", "u1"), ("offset", "<u4"), ("length", "<u4"), ("origin", "<u4")]
STATS_DTYPE = np.dtype(
    [
        ("object_id", "V18"),
        ("name", "V42"),
        ("meta", EXTENT_FIELDS),
        ("rows", "<u4"),
        ("blocks", "<u4"),
        ("sort_key_zonemap", "V64"),
        ("size", "<u4"),
        ("origin_size", "<u4"),
        ("flags", "u1"),
    ]
)
_APPENDABLE, _SORTED, _CREATED_BY_CN, _DELETED = 0x01, 0x02, 0x04, 0x08
_UNKNOWN = 0x10
_LEVEL_SHIFT = 5
_FILE_NUMBER_LIMIT = 65_535
_EXTENT = struct.Struct("<BIII")


def check_object_name(name: str) -> str:
    """Return `name`, or raise `BadObjectName`. Call it before a name is used in a path, a key or a statement."""
    if OBJECT_NAME.match(name) is None:
        raise BadObjectName("not the name of an object", subject=f"name {name[:80]!r}")
    return name


def object_id_of(name: str) -> bytes:
    """The 18 bytes of an object's id; raises `BadObjectName` for another name, or a file number beyond 16 bits."""
    segment, _, number = check_object_name(name).partition("_")
    if int(number) > _FILE_NUMBER_LIMIT:
        raise BadObjectName(f"file number {number}", subject=f"name {name}")
    return bytes.fromhex(segment.replace("-", "")) + int(number).to_bytes(2, "little")


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of an object's logical content (2.2).

    Attributes
    ----------
    algorithm : 0 stored as is, 1 one bare LZ4 block.
    offset, length : bytes, in the logical content.
    origin : bytes, after inflation.
    """

    algorithm: int
    offset: int
    length: int
    origin: int

    @classmethod
    def parse(cls, raw: bytes, at: int = 0) -> "Extent":
        return cls(*_EXTENT.unpack_from(raw, at))

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class ObjectStats:
    """What the object list says about an object (1).

    Attributes
    ----------
    raw : the 154 bytes as they came.
    object_id : 18 bytes, segment UUID and file number; the first 18 bytes of every rowid in the object.
    name : file name of 42 characters, derived from the id.
    meta : extent of the metadata area.
    rows, blocks : counts over the whole object.
    sort_key_zonemap : 64 bytes, see `ccpr.matrixone.objects.zonemap`; all zero without a sort key.
    size, origin_size : bytes of the logical file, and what they would be without compression.
    appendable : one block in order of arrival, each row with its own commit time.
    sorted : rows are in the order of the sort key (tombstones: of the rowid) over the whole object.
    created_by_cn : all rows are committed at the object's create time, even if there is a commit column.
    level : merge level 0..7.
    """

    raw: bytes
    object_id: bytes
    name: str
    meta: Extent
    rows: int
    blocks: int
    sort_key_zonemap: bytes
    size: int
    origin_size: int
    appendable: bool
    sorted: bool
    created_by_cn: bool
    level: int

    @classmethod
    def parse(cls, raw: bytes) -> "ObjectStats":
        """Parse 154 bytes; raises `ObjectDamaged` if they are not the stats of one flushed object."""
        if len(raw) != STATS_SIZE:
            raise ObjectDamaged(f"object stats of {len(raw)} bytes instead of {STATS_SIZE}", subject="object list")
        values = np.frombuffer(raw, STATS_DTYPE)[0].item()
        object_id, name, meta, rows, blocks, zonemap, size, origin_size, flags = values
        stats = cls(
            raw=bytes(raw),
            object_id=object_id,
            name=object_name(object_id),
            meta=Extent(*meta),
            rows=rows,
            blocks=blocks,
            sort_key_zonemap=zonemap,
            size=size,
            origin_size=origin_size,
            appendable=bool(flags & _APPENDABLE),
            sorted=bool(flags & _SORTED),
            created_by_cn=bool(flags & _CREATED_BY_CN),
            level=flags >> _LEVEL_SHIFT,
        )
        stats._check(name)
        return stats

    @classmethod
    def build(
        cls,
        object_id: bytes,
        meta: Extent,
        rows: int,
        blocks: int,
        *,
        size: int,
        origin_size: int,
        sort_key_zonemap: bytes,
        appendable: bool,
        in_order: bool,
        created_by_cn: bool,
        level: int = 0,
    ) -> "ObjectStats":
        """The stats of an object that has been written; `in_order` is the flag sorted. Raises `ObjectDamaged` if they
        contradict themselves."""
        raw = np.zeros((), STATS_DTYPE)
        raw["object_id"], raw["name"] = np.void(object_id), np.void(object_name(object_id).encode("ascii"))
        raw["meta"] = (meta.algorithm, meta.offset, meta.length, meta.origin)
        raw["rows"], raw["blocks"], raw["size"], raw["origin_size"] = rows, blocks, size, origin_size
        raw["sort_key_zonemap"] = np.void(sort_key_zonemap)
        raw["flags"] = (
            appendable * _APPENDABLE | in_order * _SORTED | created_by_cn * _CREATED_BY_CN | level << _LEVEL_SHIFT
        )
        return cls.parse(raw.tobytes())

    def _check(self, name: bytes) -> None:
        fault = None
        if name != self.name.encode("ascii"):
            fault = f"name {name[:NAME_SIZE]!r} does not follow from the object id"
        elif self.size == 0:
            fault = "the object was never flushed (size 0)"
        elif self.size != self.meta.end + FOOTER_SIZE:
            fault = f"size {self.size} is not the metadata's end {self.meta.end} plus {FOOTER_SIZE}"
        elif self.blocks > BLOCKS_LIMIT or self.rows > self.blocks * BLOCK_ROWS_LIMIT:
            fault = f"{self.rows} rows in {self.blocks} blocks"
        elif self.appendable and self.blocks > 1:
            fault = f"appendable with {self.blocks} blocks"
        if fault:
            raise ObjectDamaged(f"object stats: {fault}", subject=f"object {self.name}")


def stats_columns(stats: pa.BinaryArray | pa.FixedSizeBinaryArray) -> pa.RecordBatch:
    """The stats of a whole object list as columns, without a loop over objects.

    Columns: name (string, derived from the id), rows, blocks, size, origin_size, meta_end (int64; bytes, `size` of a
    valid object is `meta_end` + 64), appendable, sorted, created_by_cn, name_agrees (bool; false where the stored name
    is not the one of the id). Raises `ObjectDamaged` if any value is null or not 154 bytes long. Nothing else is
    checked here: see `are_sound`.
    """
    table = stats_view(stats)
    plain = table.view(np.uint8).reshape(len(table), STATS_SIZE)
    names = name_text(plain[:, :18])
    meta = table["meta"]
    flags = table["flags"]
    columns = {
        "name": fixed_text_array(names),
        **{name: _array(table[name].astype(np.int64)) for name in ("rows", "blocks", "size", "origin_size")},
        "meta_end": _array(meta["offset"].astype(np.int64) + meta["length"]),
        "appendable": _array(flags & _APPENDABLE != 0),
        "sorted": _array(flags & _SORTED != 0),
        "created_by_cn": _array(flags & _CREATED_BY_CN != 0),
        "name_agrees": _array((names == plain[:, 18:60]).all(axis=1)),
    }
    return pa.RecordBatch.from_pydict(columns)


def stats_view(stats: pa.BinaryArray | pa.FixedSizeBinaryArray) -> np.ndarray:
    """The stats as they are in memory (STATS_DTYPE). Raises as `stats_columns`."""
    return np.frombuffer(_stats_bytes(stats), STATS_DTYPE)


def _array(values: np.ndarray) -> pa.Array:
    """As pa.array, which imports NumPy's masked arrays to know whether it has one: for numbers and booleans."""
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])


def without_delete_mark(stats: pa.BinaryArray) -> pa.BinaryArray:
    """The stats without the flag 0x08, with which releases after 4.2 mark the entry that tells of an object's delete.
    It says nothing of the object, and the same object is listed without it, too. Raises as `stats_columns`."""
    raw = np.frombuffer(_stats_bytes(stats), np.uint8).reshape(len(stats), STATS_SIZE)
    if not (raw[:, -1] & _DELETED).any():
        return stats
    raw = raw.copy()
    raw[:, -1] &= 0xFF ^ _DELETED
    return pa.Array.from_buffers(pa.binary(), len(raw), [None, fixed_offsets(len(raw), STATS_SIZE), pa.py_buffer(raw)])


def without_unknown_flags(stats: pa.ChunkedArray) -> pa.ChunkedArray:
    """The stats to compare with others: without flags that this release does not know. What is stored keeps them, as a
    later one may."""
    known = [bytes((flags & ~_UNKNOWN,)) for flags in range(256)]
    flags = pc.binary_slice(stats, STATS_SIZE - 1, STATS_SIZE)
    flags = pc.index_in(flags, pa.array([bytes((one,)) for one in range(256)]))
    return pc.binary_join_element_wise(
        pc.binary_slice(stats, 0, STATS_SIZE - 1), pc.take(pa.array(known), flags), b"", null_handling="skip"
    )


def are_appendable(stats: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
    """For each value whether it describes an appendable object, without decoding the rest; true for what has another
    length and describes none, so that it is not skipped before it is checked."""
    flags = pc.binary_slice(stats, STATS_SIZE - 1, STATS_SIZE)
    return pc.or_(
        pc.not_equal(pc.binary_length(stats), STATS_SIZE),
        pc.is_in(flags, pa.array([bytes([value]) for value in range(256) if value & _APPENDABLE], pa.binary())),
    ).fill_null(True)


def are_sound(decoded: pa.RecordBatch) -> pa.BooleanArray:
    """For each row of `stats_columns` whether `ObjectStats.parse` would accept it."""
    columns = {
        name: decoded.column(name).to_numpy(zero_copy_only=False) for name in decoded.schema.names if name != "name"
    }
    size, rows, blocks = columns["size"], columns["rows"], columns["blocks"]
    sound = columns["name_agrees"] & (size > 0) & (size == columns["meta_end"] + FOOTER_SIZE)
    sound &= (blocks <= BLOCKS_LIMIT) & (rows <= blocks * BLOCK_ROWS_LIMIT) & ~(columns["appendable"] & (blocks > 1))
    return _array(sound)


def _stats_bytes(stats: pa.BinaryArray | pa.FixedSizeBinaryArray) -> pa.Buffer | bytes:
    """The concatenated values; raises unless each has 154 bytes. An Arrow binary array holds 2**31 bytes at most, which
    is about 13.9 million objects.
    """
    if stats.null_count:
        raise ObjectDamaged(f"{stats.null_count} object stats are null", subject="object list")
    if len(stats) == 0:
        return b""
    if pa.types.is_fixed_size_binary(stats.type):
        width = stats.type.byte_width
        if width != STATS_SIZE:
            raise ObjectDamaged(f"object stats of {width} bytes instead of {STATS_SIZE}", subject="object list")
        return stats.buffers()[1].slice(stats.offset * width, len(stats) * width)
    if not pa.types.is_binary(stats.type):
        raise TypeError(f"object stats as {stats.type}")
    _, offsets, data = stats.buffers()
    ends = np.frombuffer(offsets, np.int32, len(stats) + 1, 4 * stats.offset)
    lengths = np.diff(ends)
    wrong = lengths != STATS_SIZE
    if wrong.any():
        raise ObjectDamaged(f"object stats of {lengths[wrong][0]} bytes instead of {STATS_SIZE}", subject="object list")
    return data.slice(int(ends[0]), int(ends[-1] - ends[0]))
