"""A column of one block as the bytes of its entry: the inverse of `ccpr.matrixone.objects.vectors`.
docs/format/object-file.md 2.6, 3.

Slots and area are built for all rows at once. Vectors are flat, as all of the server's are (11). Bytes that the format
leaves undefined are zero: slots of null rows, the ends of varlena slots, bits of the null bitmap beyond the rows.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.vectors import COLUMN_ENTRY, VARLENA_SIZE, bounds_of
from ccpr.matrixone.schema import SqlType

ENTRY_VERSION = 2
_FLAT = 0
_HEAD = struct.Struct("<HHBBBBBiiiI")
_U32 = struct.Struct("<I")
_NULLS = struct.Struct("<qQQ")  # nulls, bits, bytes of the bitmap
_U32_MAX = 2**32 - 1
_INLINE_MAX = 23
_OUTSIDE = 0xFFFFFFFF
_SLOT, _WORDS = np.dtype(f"V{VARLENA_SIZE}"), VARLENA_SIZE // 8

# For each length of an inline value a mask of its bytes in the slot, as three words. The first byte, the length itself,
# is not part of the mask.
_KEPT = np.zeros((_INLINE_MAX + 1, VARLENA_SIZE), np.uint8)
for _length in range(_INLINE_MAX + 1):
    _KEPT[_length, 1 : 1 + _length] = 0xFF
_KEPT_WORDS = np.ascontiguousarray(_KEPT.view("<u8"))


@dataclass(frozen=True, slots=True, eq=False)
class EncodedColumn:
    """A column of one block, ready to be written.

    Attributes
    ----------
    type : its oid, width and scale are written into the vector's head.
    rows : number of values, nulls included.
    slots : rows * slot size bytes: a contiguous array of any shape. Zero where a row is null.
    area : bytes that varlena slots point into.
    null : bool, one a row; None without nulls.
    values : for varlena types the stored bytes as Arrow binary, from which zone maps and filters are built; else None.
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
        """The entry before compression."""
        nulls, area, oid = null_bitmap(self.null), memoryview(self.area), self.type.oid
        kind = (oid, int(oid in types.BINARY_CHARSET), 0, 0, types.SLOT_SIZES[oid], self.type.width, self.type.scale)
        head = _HEAD.pack(COLUMN_ENTRY, ENTRY_VERSION, _FLAT, *kind, self.rows)
        parts: list[Any] = [head]
        for part in (self.slots.data, area, nulls):
            parts += [_U32.pack(memoryview(part).nbytes), part]
        return b"".join((*parts, b"\x00"))


def null_bitmap(null: np.ndarray | None) -> bytes:
    """Number of nulls, length and words of the bitmap; no bytes at all without nulls (3.2)."""
    if null is None:
        return b""
    size = (len(null) + 63) // 64 * 8
    bits = np.packbits(null, bitorder="little").tobytes()
    return _NULLS.pack(int(np.count_nonzero(null)), len(null), size) + bits.ljust(size, b"\x00")


def varlena_column(kind: SqlType, values: pa.BinaryArray, subject: str) -> EncodedColumn:
    """Values of up to 23 bytes are stored in their slots, longer ones in the area one after another, in the order of
    the rows (3.3).

    Raises `NotWritable` if the area would exceed 32 bits.
    """
    rows = len(values)
    null = None if values.null_count == 0 else values.is_null().to_numpy(zero_copy_only=False)
    if rows == 0:
        return EncodedColumn(kind, 0, np.empty((0, _WORDS), "<u8"), values=values)
    ends, data = bounds_of(values), values.buffers()[2] or pa.py_buffer(b"")
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    if null is not None:
        lengths[null] = 0
    longest = int(lengths.max())
    if longest <= _INLINE_MAX:
        return EncodedColumn(kind, rows, _inline_slots(starts, lengths, longest, data), b"", null, values)
    outside = lengths > _INLINE_MAX
    sizes = lengths * outside
    after = np.cumsum(sizes)
    total = int(after[-1])
    if total > _U32_MAX:
        raise NotWritable(f"{total} bytes of values in one block", subject=subject)
    slots = np.zeros((rows, _WORDS), "<i8")
    slots[:, 0] = (after - sizes << 32 | _OUTSIDE) * outside
    slots[:, 1] = sizes
    slots = slots.view("<u8")
    short = np.flatnonzero(~outside)
    if short.size:
        slots[short] = _inline_slots(starts.take(short), lengths.take(short), _INLINE_MAX, data)
    area = data.slice(int(ends[0]), int(ends[-1] - ends[0]))
    if total < area.size:  # there are short values between the long ones
        kept = values.filter(pa.array(outside))
        area = kept.buffers()[2].slice(int(bounds_of(kept)[0]), total)
    return EncodedColumn(kind, rows, slots, area, null, values)


def _inline_slots(starts: np.ndarray, lengths: np.ndarray, longest: int, data: pa.Buffer) -> np.ndarray:
    """Slots of inline values, u8 of shape (rows, 3). One gather copies 24 bytes, starting one byte before each value;
    then the bytes after the value are cleared, and the first byte is set to the length."""
    rows, last = len(starts), len(starts) - 1
    if starts[last] - starts[0] == last * longest and int(lengths.min()) == longest:
        slots = np.zeros((rows, VARLENA_SIZE), np.uint8)
        slots[:, 0] = longest
        slots[:, 1 : 1 + longest] = np.frombuffer(data, np.uint8, rows * longest, int(starts[0])).reshape(rows, longest)
        return slots.view("<u8")
    low, high = int(starts[0]) - 1, int(starts[last]) + _INLINE_MAX
    if low >= 0 and high <= data.size:
        around = np.frombuffer(data, np.uint8, high - low, low)
    else:  # the first or the last values of their buffer
        around = np.zeros(high - low, np.uint8)
        used = min(high, data.size) - low - 1
        around[1 : 1 + used] = np.frombuffer(data, np.uint8, used, low + 1)
    found = np.ndarray((high - low - _INLINE_MAX,), _SLOT, around, 0, (1,))[starts - (low + 1)]
    slots = found.view("<u8").reshape(rows, _WORDS)
    slots &= _KEPT_WORDS.take(lengths, axis=0)
    slots[:, 0] |= lengths.astype(np.uint64)
    return slots
