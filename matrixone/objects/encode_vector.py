"""A column of one block as the bytes of its entry: the inverse of `vectors`. object-format.md 2.6, 3.

Slots and area are made for all rows at once. Vectors are flat, as all of the server's are (11), and what the format leaves open is zero:
slots of null rows, the ends of varlena slots, bits of the null bitmap beyond the rows.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from matrixone.objects import types
from matrixone.objects.errors import NotWritable
from matrixone.objects.vectors import COLUMN_ENTRY, VARLENA_SIZE
from matrixone.schema import SqlType

ENTRY_VERSION = 2
_FLAT = 0
_HEAD = struct.Struct("<HHBBBBBiiiI")
_U32 = struct.Struct("<I")
_NULLS = struct.Struct("<qQQ")  # nulls, bits, bytes of the bitmap
_U32_MAX = 2**32 - 1
_INLINE_MAX = 23
_OUTSIDE = np.uint64(0xFFFFFFFF)
_BINARY_CHARSET = frozenset((types.BLOB, types.BINARY, types.VARBINARY, types.GEOMETRY))

# For each length of an inline value the bytes of its slot that count, as three words; the first byte, the length itself, is put in apart.
_KEPT = np.zeros((_INLINE_MAX + 1, VARLENA_SIZE), np.uint8)
for _length in range(_INLINE_MAX + 1):
    _KEPT[_length, 1 : 1 + _length] = 0xFF
_KEPT_WORDS = np.ascontiguousarray(_KEPT.view("<u8"))


@dataclass(frozen=True, slots=True, eq=False)
class EncodedColumn:
    """A column of one block, ready to be written.

    Attributes
    ----------
    type : oid, width and scale go into the vector's head.
    rows : values, nulls included.
    slots : rows * slot size bytes: a contiguous array of any shape. Zero where a row is null.
    area : bytes that varlena slots point into.
    null : bool, one a row; None without nulls.
    values : of varlena types, the stored bytes as Arrow binary, from which zone maps and filters are made; else None.
    """

    type: SqlType
    rows: int
    slots: np.ndarray
    area: Any = b""
    null: np.ndarray | None = None
    values: pa.BinaryArray | None = None

    @property
    def null_count(self) -> int:
        return 0 if self.null is None else int(np.count_nonzero(self.null))

    def entry(self) -> bytes:
        """The entry, not compressed."""
        nulls = null_bitmap(self.null)
        size = types.SLOT_SIZES[self.type.oid]
        charset = int(self.type.oid in _BINARY_CHARSET)
        head = _HEAD.pack(
            COLUMN_ENTRY, ENTRY_VERSION, _FLAT, self.type.oid, charset, 0, 0, size, self.type.width, self.type.scale, self.rows
        )
        area = memoryview(self.area)
        parts = (head, _U32.pack(self.slots.nbytes), self.slots.data, _U32.pack(area.nbytes), area, _U32.pack(len(nulls)), nulls, b"\x00")
        return b"".join(parts)


def null_bitmap(null: np.ndarray | None) -> bytes:
    """Count, length and words of the bitmap; no bytes at all without nulls (3.2)."""
    if null is None:
        return b""
    size = (len(null) + 63) // 64 * 8
    bits = np.packbits(null, bitorder="little").tobytes()
    return _NULLS.pack(int(np.count_nonzero(null)), len(null), size) + bits.ljust(size, b"\x00")


def varlena_column(kind: SqlType, values: pa.BinaryArray, subject: str) -> EncodedColumn:
    """Values of up to 23 bytes stand in their slots, longer ones in the area one after another, in the order of the rows (3.3).

    Raises `NotWritable` where the area would exceed 32 bits.
    """
    rows = len(values)
    null = None if values.null_count == 0 else values.is_null().to_numpy(zero_copy_only=False)
    slots = np.zeros((rows, VARLENA_SIZE // 8), "<u8")
    if rows == 0:
        return EncodedColumn(kind, 0, slots, values=values)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, rows + 1, 4 * values.offset).astype(np.int64)
    lengths = np.diff(ends)
    if null is not None:
        lengths[null] = 0
    longest = int(lengths.max())
    area: Any = b""
    if longest <= _INLINE_MAX:
        _put_inline(slots, slice(None), lengths, ends[:-1], data)
    else:
        outside = lengths > _INLINE_MAX
        count = int(np.count_nonzero(outside))
        places = slice(None) if count == rows else np.flatnonzero(outside)
        if count < rows:
            inside = np.flatnonzero(~outside)
            _put_inline(slots, inside, lengths[inside], ends[:-1][inside], data)
            if int(lengths[places].sum()) == int(ends[-1] - ends[0]):
                area = data.slice(int(ends[0]), int(ends[-1] - ends[0]))
            else:
                kept = values.filter(pa.array(outside))
                _, kept_offsets, kept_data = kept.buffers()
                kept_ends = np.frombuffer(kept_offsets, np.int32, count + 1, 4 * kept.offset)
                area = kept_data.slice(int(kept_ends[0]), int(kept_ends[-1] - kept_ends[0]))
        else:
            area = data.slice(int(ends[0]), int(ends[-1] - ends[0]))
        sizes = lengths[places].astype(np.uint64)
        total = int(sizes.sum())
        if total > _U32_MAX:
            raise NotWritable(f"{total} bytes of values in one block", subject=subject)
        starts = np.cumsum(sizes) - sizes
        slots[places, 0] = _OUTSIDE | starts << np.uint64(32)
        slots[places, 1] = sizes
    return EncodedColumn(kind, rows, slots, area, null, values)


def _put_inline(slots: np.ndarray, places: Any, lengths: np.ndarray, starts: np.ndarray, data: pa.Buffer | None) -> None:
    """Slots of values that stand in them: 24 bytes are read from one before each value, and cut to its length."""
    used = 0 if data is None else data.size
    padded = np.zeros(used + 2 * VARLENA_SIZE, np.uint8)
    if data is not None:
        padded[1 : 1 + used] = np.frombuffer(data, np.uint8)
    words = np.ndarray((used + VARLENA_SIZE,), "<u8", padded, 0, (1,))
    kept = _KEPT_WORDS[lengths]
    for word in range(VARLENA_SIZE // 8):
        slots[places, word] = words[starts + 8 * word] & kept[:, word]
    slots[places, 0] |= lengths.astype(np.uint64)
