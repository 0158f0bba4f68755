"""The zone map of a column: the inverse of `ccpr.matrixone.objects.zonemap`. docs/format/object-file.md 1.2.

Other readers prune by zone maps, so they follow every rule of the server, including stale bytes and the AND of bools.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.identifiers import ROWID_SIZE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.writing.encoded_columns import EncodedColumn
from ccpr.matrixone.objects.zonemap import ZONEMAP_SIZE

_HALF, _MAX_AT = 30, 31
_MIN_LENGTH_AT, _MAX_LENGTH_AT, _FLAGS_AT, _OID_AT = 30, 61, 62, 63
_UNBOUNDED, _INITIALISED, _SCALE_MASK = 0x80, 0x80, 0x3F
_SUM = slice(8, 16)
_SHORT = 7
_NO_MAPS = types.VECTOR_TYPES | {types.DECIMAL256}

_FLOATS = {types.FLOAT32: "<f4", types.FLOAT64: "<f8"}
_NUMBERS = {
    **{oid: f"<i{types.SLOT_SIZES[oid]}" for oid in types.SIGNED},
    **{oid: f"<u{types.SLOT_SIZES[oid]}" for oid in types.UNSIGNED},
    **_FLOATS,
}
_SUMMED = types.WHOLE_NUMBERS | {types.DECIMAL64, types.BIT}


def empty_zonemap(oid: int, scale: int) -> bytearray:
    """A zone map without bounds: for columns that have only nulls, and for types that have no zone maps."""
    raw = bytearray(ZONEMAP_SIZE)
    if oid not in types.VARLENA_TYPES:
        raw[_MIN_LENGTH_AT] = raw[_MAX_LENGTH_AT] = types.SLOT_SIZES[oid]
    raw[_FLAGS_AT], raw[_OID_AT] = scale & _SCALE_MASK, oid
    return raw


def block_zonemap(column: EncodedColumn, *, in_order: bool = False) -> bytes:
    """The zone map of one block's column, whose values ascend if `in_order` (nulls first). It has no bounds if a float
    is NaN, which has no order."""
    oid = column.type.oid
    raw = empty_zonemap(oid, column.type.scale)
    if oid in _NO_MAPS or column.null_count == column.rows:
        return bytes(raw)
    if column.values is not None:
        put_bounds(raw, *_varlena_bounds(column, column.values, in_order=in_order))
        return bytes(raw)
    slots = column.slots.reshape(-1)
    kept = None if column.null is None else ~column.null
    if oid == types.BOOL:
        low = high = bytes((int(slots.all() if kept is None else slots[kept].all()),))
    elif oid in _NUMBERS:
        numbers = slots.view(_NUMBERS[oid])
        numbers = numbers if kept is None else numbers[kept]
        least, greatest = numbers.min(), numbers.max()
        if oid in _FLOATS and (np.isnan(least) or np.isnan(greatest)):
            return bytes(raw)
        low, high = least.tobytes(), greatest.tobytes()
        raw[_SUM] = _sum(numbers, oid)
    else:
        size = types.SLOT_SIZES[oid]
        rows = slots.view(np.uint8).reshape(column.rows, size)
        rows = rows if kept is None else rows[kept]
        order = _order(oid, rows)
        low, high = (rows[_extreme(order, greatest=greatest)].tobytes() for greatest in (False, True))
    raw[: len(low)] = low
    raw[_MAX_AT : _MAX_AT + len(high)] = high
    raw[_FLAGS_AT] |= _INITIALISED
    return bytes(raw)


def _varlena_bounds(column: EncodedColumn, values: pa.BinaryArray, *, in_order: bool) -> tuple[bytes, bytes]:
    """The least and the greatest value. Values of up to seven bytes are compared as numbers: big-endian, then their
    length."""
    if in_order:
        return values[column.null_count].as_py(), values[column.rows - 1].as_py()
    words = column.slots.reshape(column.rows, -1)[:, 0]
    if column.null is None and int((words & np.uint64(0xFF)).max()) <= _SHORT:
        numbers = (words >> np.uint64(8) | words << np.uint64(56)).byteswap()
        low, high = (int(number).to_bytes(8, "big") for number in (numbers.min(), numbers.max()))
        return low[: low[_SHORT]], high[: high[_SHORT]]
    bounds = pc.min_max(values)
    return bounds["min"].as_py(), bounds["max"].as_py()


def _sum(numbers: np.ndarray, oid: int) -> bytes:
    """Eight bytes: i64, u64 or f64; zeros if the running sum of integers exceeds 64 bits, and for types without a
    sum."""
    if oid in _FLOATS:
        with np.errstate(all="ignore"):
            return np.cumsum(numbers, dtype=np.float64)[-1:].tobytes()  # in order of the rows, as the server adds
    if oid not in _SUMMED:
        return bytes(8)
    signed = oid in types.SIGNED
    low, high = (-(2**63), 2**63 - 1) if signed else (0, 2**64 - 1)
    if numbers.itemsize < 8 or max(-int(numbers.min()), int(numbers.max())) * len(numbers) <= high:
        total = int(numbers.sum(dtype=np.int64 if signed else np.uint64))
    else:
        upper = np.cumsum((numbers >> numbers.dtype.type(32)).astype(np.int64))
        lower = np.cumsum((numbers & numbers.dtype.type(0xFFFFFFFF)).astype(np.int64))
        upper += lower >> 32
        if int(upper.max()) > high >> 32 or int(upper.min()) < low >> 32:
            return bytes(8)
        total = (int(upper[-1]) << 32) + (int(lower[-1]) & 0xFFFFFFFF)
    return total.to_bytes(8, "little", signed=signed)


def _order(oid: int, rows: np.ndarray) -> list[np.ndarray]:
    """Numbers that order values of uint8 (rows, size) as the server does, the most significant first."""
    if oid == types.DECIMAL128:
        limbs = rows.view("<u8")
        return [limbs[:, 1].view("<i8"), limbs[:, 0]]
    if oid == types.TS:
        times = rows.view(TIMESTAMP_DTYPE).reshape(-1)
        return [np.ascontiguousarray(times["physical"]), np.ascontiguousarray(times["logical"])]
    if oid == types.UUID:
        return list(rows.view(">u8").T)
    return rowid_order_columns(rows)


def rowid_order_columns(rows: np.ndarray) -> list[np.ndarray]:
    """The numbers by which rowids are ordered (7.2), the most significant first. `rows` are uint8 of shape (rows, 24),
    or (rows, 20) for block ids."""
    columns = [np.ascontiguousarray(rows[:, at : at + 8]).view(">u8").reshape(-1) for at in (0, 8)]
    columns += [np.ascontiguousarray(rows[:, at : at + 2]).view("<u2").reshape(-1) for at in (16, 18)]
    if rows.shape[1] == ROWID_SIZE:
        columns.append(np.ascontiguousarray(rows[:, 20:24]).view("<u4").reshape(-1))
    return columns


def _extreme(order: list[np.ndarray], *, greatest: bool) -> int:
    """The row of the least or greatest value."""
    rows: np.ndarray | None = None  # all of them
    for numbers in order:
        some = numbers if rows is None else numbers.take(rows)
        hits = np.flatnonzero(some == (some.max() if greatest else some.min()))
        if len(hits) < len(some):
            rows = hits if rows is None else rows.take(hits)
            if len(rows) == 1:
                break
    return 0 if rows is None else int(rows[0])


def put_bounds(raw: bytearray, low: bytes, high: bytes) -> None:
    """Write the bounds of a varlena type. As in the server, the least value is written into both halves first; where
    the greatest is shorter, the rest of the least one stays behind it."""
    raw[_FLAGS_AT] |= _INITIALISED
    _put_minimum(raw, low)
    _put_maximum(raw, low)
    _put_maximum(raw, high)


def _put_minimum(raw: bytearray, value: bytes) -> None:
    kept = value[:_HALF]
    raw[: len(kept)] = kept
    raw[_MIN_LENGTH_AT] = len(kept)


def _put_maximum(raw: bytearray, value: bytes) -> None:
    """A value that is cut to 30 bytes is increased by one, so that it is still a bound; there is none above 30 bytes
    0xFF."""
    kept = value[:_HALF]
    unbounded = 0
    if len(value) > _HALF:
        if kept == b"\xff" * _HALF:
            unbounded = _UNBOUNDED
        else:
            kept = (int.from_bytes(kept, "big") + 1).to_bytes(_HALF, "big")
    raw[_MAX_AT : _MAX_AT + len(kept)] = kept
    raw[_MAX_LENGTH_AT] = len(kept) | unbounded


def object_zonemap(blocks: list[bytes], oid: int, scale: int) -> bytes:
    """The zone map of a whole object, from those of its blocks. The sum is that of the last block, as in the server."""
    raw = empty_zonemap(oid, scale)
    for block in blocks:
        if not block[_FLAGS_AT] & _INITIALISED:
            continue
        if oid in types.VARLENA_TYPES:
            _widen_varlena(raw, block)
        else:
            _widen_fixed(raw, block, oid)
    return bytes(raw)


def _widen_varlena(raw: bytearray, block: bytes) -> None:
    """Widen the bounds by both bounds of a block, as if each were a value: a least value beyond the greatest one so far
    leaves its bytes there."""
    unbounded = (raw[_MAX_LENGTH_AT] | block[_MAX_LENGTH_AT]) & _UNBOUNDED
    bounds = block[: block[_MIN_LENGTH_AT]], block[_MAX_AT : _MAX_AT + (block[_MAX_LENGTH_AT] & ~_UNBOUNDED)]
    for bound in bounds:
        if not raw[_FLAGS_AT] & _INITIALISED:
            put_bounds(raw, bound, bound)
        elif bound < raw[: raw[_MIN_LENGTH_AT]]:
            _put_minimum(raw, bound)
        elif bound > raw[_MAX_AT : _MAX_AT + (raw[_MAX_LENGTH_AT] & ~_UNBOUNDED)]:
            _put_maximum(raw, bound)
    raw[_MAX_LENGTH_AT] |= unbounded


def _widen_fixed(raw: bytearray, block: bytes, oid: int) -> None:
    size = types.SLOT_SIZES[oid]
    low, high = block[:size], block[_MAX_AT : _MAX_AT + size]
    if not raw[_FLAGS_AT] & _INITIALISED:
        raw[_FLAGS_AT] |= _INITIALISED
        raw[:size], raw[_MAX_AT : _MAX_AT + size] = low, high
    else:
        if _before(oid, low, bytes(raw[:size])):
            raw[:size] = low
        if _before(oid, bytes(raw[_MAX_AT : _MAX_AT + size]), high):
            raw[_MAX_AT : _MAX_AT + size] = high
    if size <= _SUM.start:
        raw[_SUM] = block[_SUM]


def _before(oid: int, one: bytes, other: bytes) -> bool:
    if oid == types.BOOL:
        return one < other
    if one == other:
        return False
    if oid in _NUMBERS:
        first, second = np.frombuffer(one + other, _NUMBERS[oid])
        return bool(first <= second)
    return _extreme(_order(oid, np.frombuffer(one + other, np.uint8).reshape(2, -1)), greatest=False) == 0
