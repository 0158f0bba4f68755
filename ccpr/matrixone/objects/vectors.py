"""Serialised vectors: docs/format/object-file.md 2.6, 3.

A parsed `Vector` has been checked against the row count of its block: `slots` holds exactly rows * slot size bytes,
and `nulls` one bit a row. Constant vectors are expanded to flat ones. Varlena slots are checked in `varlena_array`,
where they are followed, because only there it is known which rows are null.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported, unknown_form
from ccpr.matrixone.objects.identifiers import fixed_offsets

COLUMN_ENTRY = 2
_FLAT, _CONSTANT = 0, 1
VARLENA_SIZE = 24
_INLINE_MAX = 23  # first byte of a slot that holds its own value
_VIEW_INLINE_MAX = 12  # the same for Arrow's 16-byte views
_OUTSIDE = 0xFF  # first of four such bytes: the value is in the area
_OUTSIDE_WORD = 0xFFFFFFFF
_TOP_BITS = 0x8080808080808080
_INT32_MAX = 2**31 - 1
_NO_VALUE = np.zeros(1, np.int32)

# Entry type, entry version; class; oid, charset, not-null, filler, size, width, scale; rows, data length.
_HEAD = struct.Struct("<HHBBBBBiiiII")
_U32 = struct.Struct("<I")
# By entry version: a count (without a meaning in 1), bit length, byte size.
_NULLS = {1: struct.Struct("<iQQ"), 2: struct.Struct("<qQQ")}

SLOTS_AT = _HEAD.size  # in a column entry
HEAD_AND_TAIL_SIZE = SLOTS_AT + 2 * _U32.size + 1
NULLS_LIMIT_BASE, NULLS_LIMIT_PER_ROW = 64 << 10, 1  # a bitmap may be longer than the rows: the server reuses vectors


@dataclass(slots=True, eq=False)  # frozen would cost more than the rest of the parsing; it is never changed
class Vector:
    """One column of one block (3).

    Attributes
    ----------
    oid, width, scale : the type as the file has it; width as it was when the object was written.
    rows : number of values.
    slots : rows * slot size bytes.
    area : bytes that varlena slots point into.
    nulls : uint8, one bit a row, least significant first, set = null; None if no row is null.
    owned : nobody else has the memory of the slots, and it is aligned.
    """

    oid: int
    width: int
    scale: int
    rows: int
    slots: pa.Buffer
    area: pa.Buffer
    nulls: np.ndarray | None
    owned: bool = False

    def select(self, rows: np.ndarray, slot_size: int) -> "Vector":
        """The vector of some rows, by number, in that order."""
        slots = np.frombuffer(self.slots, np.uint8).reshape(self.rows, slot_size)[rows]
        null = self.null_mask()
        null = None if null is None or not null[rows].any() else null[rows]
        nulls = None if null is None else np.packbits(null, bitorder="little")
        return Vector(self.oid, self.width, self.scale, len(rows), pa.py_buffer(slots), self.area, nulls, owned=True)

    def memory(self) -> pa.Buffer:
        """The slots where Arrow may keep them: a copy, if somebody else has them, or they are not aligned."""
        return self.slots if self.owned else pa.py_buffer(np.frombuffer(self.slots, np.uint8).copy())

    def fixed(self, dtype: np.dtype | str) -> np.ndarray:
        """The slots as numbers, with arbitrary values where rows are null. Not to be changed."""
        return np.frombuffer(self.memory(), dtype)

    def null_mask(self) -> np.ndarray | None:
        """bool, one a row; None without nulls."""
        return None if self.nulls is None else np.unpackbits(self.nulls, count=self.rows, bitorder="little").view(bool)

    def validity(self) -> pa.Buffer | None:
        """Arrow's bitmap, which is the inverse of `nulls`; None without nulls."""
        return None if self.nulls is None else pa.py_buffer(np.invert(self.nulls))


def joined(vectors: Iterable[Vector | None], rows: int, slot_size: int) -> Vector | None:
    """Vectors of one column without an area, one after another; `rows` is the number of all their rows. Each is copied
    before the next one is asked for. None if one is None, or of another width or scale than the first.

    Slots are as they were: what is wrong with the bytes of one says so when they are converted.
    """
    memory = pa.allocate_buffer(rows * slot_size)  # Arrow keeps its memory: numpy's would be fetched anew each time
    slots, null, at, first = np.frombuffer(memory, np.uint8).reshape(rows, slot_size), None, 0, None
    for vector in vectors:
        if vector is None or (first is not None and (vector.width, vector.scale) != (first.width, first.scale)):
            return None
        first, end = first or vector, at + vector.rows
        slots[at:end] = np.frombuffer(vector.slots, np.uint8).reshape(vector.rows, slot_size)
        if (mask := vector.null_mask()) is not None:
            null = np.zeros(rows, bool) if null is None else null
            null[at:end] = mask
        at = end
    if first is None:
        return None
    nulls = None if null is None else np.packbits(null, bitorder="little")
    return Vector(first.oid, first.width, first.scale, rows, memory, pa.py_buffer(b""), nulls, owned=True)


def parse_vector(entry: pa.Buffer, oid: int, slot_size: int, rows: int, subject: str, *, owned: bool = False) -> Vector:
    """Parse a column entry of `rows` rows of type `oid`; raises `ObjectDamaged` or `ObjectUnsupported`. `owned` says
    that nobody else has its memory, and that its slots are aligned."""
    size = entry.size
    if size < HEAD_AND_TAIL_SIZE:
        raise ObjectDamaged(f"a column of {size} bytes", subject=subject)
    kind, version, vector_class, file_oid, _, _, _, file_slot_size, width, scale, count, data_length = (
        _HEAD.unpack_from(entry)
    )
    if kind != COLUMN_ENTRY:
        raise ObjectDamaged(f"entry type {kind} where a column should be", subject=subject)
    if version not in _NULLS:
        raise unknown_form("column version", version, max(_NULLS), subject=subject)
    if vector_class not in (_FLAT, _CONSTANT):
        raise unknown_form("vector class", vector_class, _CONSTANT, subject=subject)
    if file_oid != oid or file_slot_size != slot_size:
        raise ObjectDamaged(
            f"type {file_oid} with slots of {file_slot_size} bytes, announced as type {oid} ({slot_size})",
            subject=subject,
        )
    if count != rows:
        raise ObjectDamaged(f"vector of {count} rows in a block of {rows}", subject=subject)

    area_at = SLOTS_AT + data_length + _U32.size
    area_length = _length_before(entry, area_at, subject)
    nulls_at = area_at + area_length + _U32.size
    nulls_length = _length_before(entry, nulls_at, subject)
    if nulls_at + nulls_length + 1 != size:
        raise ObjectDamaged(f"a vector of {nulls_at + nulls_length + 1} bytes in {size}", subject=subject)
    data, area = entry.slice(SLOTS_AT, data_length), entry.slice(area_at, area_length)
    if vector_class == _FLAT:
        if data_length != slot_size * rows:
            raise ObjectDamaged(f"{data_length} bytes of data for {rows} rows of {slot_size}", subject=subject)
        nulls = _null_bits(entry.slice(nulls_at, nulls_length), version, rows, subject) if nulls_length else None
    else:
        data, nulls = _spread(data, entry.slice(nulls_at, nulls_length), version, slot_size, rows, subject)
    return Vector(oid, width, scale, rows, data, area, nulls, owned)


def _length_before(entry: pa.Buffer, at: int, subject: str) -> int:
    """The u32 that ends at `at`. Raises unless it and the sorted flag at the end lie inside the entry."""
    if at >= entry.size:
        raise ObjectDamaged(f"a vector of {entry.size} bytes has a part at {at}", subject=subject)
    return _U32.unpack_from(entry, at - _U32.size)[0]


def _null_bits(raw: pa.Buffer, version: int, rows: int, subject: str) -> np.ndarray | None:
    """The bitmap cut or extended to `rows` bits: rows beyond its length are not null, bits beyond the rows have no
    meaning (3.2)."""
    if raw.size == 0:
        return None
    head = _NULLS[version]
    if raw.size < head.size:
        raise ObjectDamaged(f"a null bitmap of {raw.size} bytes", subject=subject)
    _, bits, size = head.unpack_from(raw)
    if size != (bits + 63) // 64 * 8 or head.size + size != raw.size:
        raise ObjectDamaged(f"a null bitmap of {bits} bits in {size} of {raw.size} bytes", subject=subject)
    stored = np.frombuffer(raw, np.uint8, size, head.size)
    used = min(rows, bits)
    if not stored[: (used + 7) // 8].any():
        return None
    nulls = np.zeros((rows + 7) // 8, np.uint8)
    nulls[: (used + 7) // 8] = stored[: (used + 7) // 8]
    if used % 8:
        nulls[used // 8] &= (1 << used % 8) - 1
    return nulls if nulls.any() else None


def _spread(
    data: pa.Buffer, raw_nulls: pa.Buffer, version: int, slot_size: int, rows: int, subject: str
) -> tuple[pa.Buffer, np.ndarray | None]:
    """A constant vector as a flat one: its only slot repeated; all rows are null without a slot or with bit 0 set."""
    null = data.size == 0 or (rows > 0 and _null_bits(raw_nulls, version, 1, subject) is not None)
    if data.size not in (0, slot_size):
        raise ObjectDamaged(f"{data.size} bytes of data in a constant vector of slots of {slot_size}", subject=subject)
    if null:
        return pa.py_buffer(bytes(slot_size * rows)), np.full((rows + 7) // 8, 0xFF, np.uint8) if rows else None
    return pa.py_buffer(data.to_pybytes() * rows), None


def varlena_array(vector: Vector, subject: str) -> pa.BinaryArray:
    """The values of a varlena vector (3.3) as an Arrow binary array, nulls included.

    For each row numpy writes one Arrow view of 16 bytes; Arrow's cast then copies the bytes. Two cases need no views:
    all values inline and of one length, and all values one after another in the area (the area is then the data).
    """
    rows, valid, null = vector.rows, vector.validity(), vector.null_mask()
    if rows == 0:
        return pa.array([], pa.binary())
    slots = np.frombuffer(vector.slots, np.uint8).reshape(rows, VARLENA_SIZE)
    words = slots.view("<i4")
    if null is None and (array := _contiguous(words.view(np.uint32), vector.area)) is not None:
        return array
    first = slots[:, 0].copy()
    if null is not None:
        first[null] = 0
    longest = int(first.max())
    if longest <= _INLINE_MAX and null is None and int(first.min()) == longest:
        values = pa.py_buffer(np.ascontiguousarray(slots[:, 1 : 1 + longest]))
        return pa.Array.from_buffers(pa.binary(), rows, [None, fixed_offsets(rows, longest), values])

    # A view: u32 length, then either 12 bytes of value, or 4 that the cast ignores, u32 number of the buffer, u32 start
    # in it.
    views = np.frombuffer(pa.allocate_buffer(16 * rows), "<i4").reshape(rows, 4)
    if longest <= _VIEW_INLINE_MAX:
        _copy_inline(slots, views.view("V16")[:, 0])
        views[:, 0] = first
        return _cast(views, valid, [])

    # The length of an inline value, or -1; and from that, all bits or none. Masks, since branches would cost more than
    # all the rest where inline values and others alternate.
    lengths = first.view(np.int8).astype(np.int32)
    starts, outside = _inline_starts(rows), lengths >> 31
    if longest > _INLINE_MAX:
        if int((first + np.uint8(1)).max()) > _INLINE_MAX + 1:
            raise ObjectDamaged("a value is neither inline nor in the area", subject=subject)
        far_starts, far_lengths = words[:, 1] & outside, words[:, 2] & outside
        np.maximum(lengths, far_lengths, out=lengths)
        _check_inside(far_starts, far_lengths, lengths, vector.area.size, subject)
        starts = (starts & ~outside) | far_starts
    views[:, 0] = lengths
    np.negative(outside, out=views[:, 2])
    views[:, 3] = starts
    if int(lengths.min()) <= _VIEW_INLINE_MAX:
        short, inline = np.flatnonzero(lengths <= _VIEW_INLINE_MAX), np.empty(rows, "V16")
        _copy_inline(slots, inline)
        views.view("V16")[short, 0] = inline[short]
        views[short, 0] = lengths[short]
        odd = short[first[short] == _OUTSIDE]
        _copy_short(views.view(np.uint8), odd, starts[odd], vector.area)
    return _cast(views, valid, [vector.slots, vector.area])


def _copy_inline(slots: np.ndarray, views: np.ndarray) -> None:
    """The first 12 bytes of the values in slots, to the last 12 of the views; the others have no meaning then. 16 bytes
    each, since numpy copies those at ten times the speed of 12."""
    views[1:] = np.ndarray(len(views) - 1, "V16", slots, VARLENA_SIZE - 3, VARLENA_SIZE)
    views[:1].view(np.uint8)[4:] = slots[0, 1 : 1 + _VIEW_INLINE_MAX]


@lru_cache(maxsize=8)
def _inline_starts(rows: int) -> np.ndarray:
    """Where the values of inline slots start; not to be changed."""
    return np.arange(1, VARLENA_SIZE * rows + 1, VARLENA_SIZE, dtype=np.int32)


def _check_inside(
    starts: np.ndarray, lengths: np.ndarray, all_lengths: np.ndarray, area_size: int, subject: str
) -> None:
    """Raises unless every value in the area (of the others start and length are 0) ends inside it, and all values fit
    Arrow's 32-bit offsets. A number of 2**31 or more is negative here, and -1 among all lengths."""
    longest = int(all_lengths.max())
    if area_size > _INT32_MAX or (
        longest * len(lengths) > _INT32_MAX and int(all_lengths.sum(dtype=np.int64)) > _INT32_MAX
    ):
        raise ObjectUnsupported(f"a column of more than {_INT32_MAX} bytes in one block", subject=subject)
    # Two numbers below 2**31 cannot overflow 32 bits together.
    ends = (starts + lengths).view(np.uint32)
    if int(starts.min()) < 0 or int(all_lengths.min()) < 0 or int(ends.max()) > area_size:
        raise ObjectDamaged(f"a value ends outside an area of {area_size} bytes", subject=subject)


def _contiguous(words: np.ndarray, area: pa.Buffer) -> pa.BinaryArray | None:
    """The array without a copy if the values of all slots (their `<u4`) follow one another in the area without gaps,
    else None."""
    if words[0, 0] != _OUTSIDE_WORD:
        return None
    markers, starts, lengths = words[:, :3].T.copy()  # each by itself is read at a fifth of the cost
    if int(markers.min()) != _OUTSIDE_WORD:
        return None
    offsets = np.empty(len(starts) + 1, "<u4")
    offsets[0] = starts[0]
    np.add(starts, lengths, out=offsets[1:])
    if (offsets[1:-1] != starts[1:]).any():
        return None
    first, last = int(offsets[0]), int(offsets[-1])
    # Their sum without an overflow says that no end had one.
    if not first <= last <= min(area.size, _INT32_MAX) or int(lengths.sum(dtype=np.uint64)) != last - first:
        return None
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), area])


def bounds_of(values: pa.Array) -> np.ndarray:
    """int32: where the values of an array of texts, bytes or lists begin in its buffer, and the end of the last."""
    return (
        np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset) if len(values) else _NO_VALUE
    )


def is_ascii(data: pa.Buffer) -> bool:
    """Whether no byte has its top bit set."""
    whole = data.size // 8
    words = np.frombuffer(data, np.uint64, whole)
    if whole and int(np.bitwise_or.reduce(words)) & _TOP_BITS:
        return False
    return bytes(data.slice(whole * 8)).isascii()


def gather(data: pa.Buffer, starts: np.ndarray, lengths: np.ndarray) -> pa.BinaryArray:
    """The byte ranges `starts` .. `starts + lengths` of `data` as values. The caller has checked that they lie inside
    `data` and fit 32-bit offsets.
    """
    views = np.zeros((len(starts), 4), "<u4")
    views[:, 0] = lengths
    views[:, 3] = starts
    short = np.flatnonzero(lengths <= _VIEW_INLINE_MAX)
    _copy_short(views.view(np.uint8).reshape(-1, 16), short, starts[short], data)
    return _cast(views, None, [data])


def _copy_short(view_bytes: np.ndarray, rows: np.ndarray, starts: np.ndarray, area: pa.Buffer) -> None:
    """Copy values of the area into their views where they are so short that Arrow expects them there. Bytes after their
    end do not matter."""
    if area.size and rows.size:
        reach = np.minimum(starts[:, None].astype(np.int64) + np.arange(_VIEW_INLINE_MAX), area.size - 1)
        view_bytes[rows, 4:] = np.frombuffer(area, np.uint8)[reach]


def _cast(views: np.ndarray, valid: pa.Buffer | None, buffers: list[pa.Buffer]) -> pa.BinaryArray:
    return pa.Array.from_buffers(pa.binary_view(), len(views), [valid, pa.py_buffer(views), *buffers]).cast(pa.binary())
