"""From a parsed vector to an Arrow array, type by type: docs/format/object-file.md 4. No loop over rows.

Slots of null rows hold arbitrary bytes, so a range check that fails is repeated without them before it is an error.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.bytejson import json_text
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ValueRefused
from ccpr.matrixone.objects.geometry import geometry_text
from ccpr.matrixone.objects.identifiers import UUID_TEXT_SIZE, fixed_offsets, uuid_text
from ccpr.matrixone.objects.invalid_text import readable_text
from ccpr.matrixone.objects.vectors import Vector, varlena_array
from ccpr.matrixone.schema import Column

UNIX_EPOCH_DAYS = 719_162  # 1970-01-01, counted from 0001-01-01
MAX_DAYS = 3_652_058  # 9999-12-31, counted in the same way
DAY_US = 86_400_000_000
ZERO_DATE = -1  # what is stored for `0000-00-00`, in days or in microseconds
UNIX_EPOCH_US = UNIX_EPOCH_DAYS * DAY_US
_SET_BITS = 64
END_US = (MAX_DAYS + 1) * DAY_US - 1  # the last microsecond of 9999-12-31

# Built once: parsing the text costs as much as a conversion.
_I4, _I8, _U8 = (np.dtype(form) for form in ("<i4", "<i8", "<u8"))
_UNSIGNED, _SIGNED = ({size: np.dtype(f"<{kind}{size}") for size in (1, 2, 4, 8)} for kind in "ui")
Converter = Callable[[Vector, Column, str], pa.Array]


def to_arrow(vector: Vector, column: Column, subject: str) -> pa.Array:
    """The array of `types.arrow_type(column)`; the vector has the column's oid. Raises `ObjectDamaged` or
    `ObjectMismatch`."""
    if types.is_packed(column):
        return varlena_array(vector, subject)
    if types.is_set(column):
        return _set(vector, column, subject)
    return _CONVERTERS[column.type.oid](vector, column, subject)


def _array(kind: pa.DataType, vector: Vector, values: np.ndarray | pa.Buffer) -> pa.Array:
    data = values if isinstance(values, pa.Buffer) else pa.py_buffer(values)
    return pa.Array.from_buffers(kind, vector.rows, [vector.validity(), data])


def _as_stored(vector: Vector, column: Column, subject: str) -> pa.Array:
    return _array(types.plain_types()[vector.oid], vector, vector.memory())


def _widened(vector: Vector, column: Column, subject: str) -> pa.Array:
    size = types.SLOT_SIZES[vector.oid]
    return _array(types.plain_types()[vector.oid], vector, vector.fixed(_UNSIGNED[size]).astype(_SIGNED[2 * size]))


def _bool(vector: Vector, column: Column, subject: str) -> pa.Array:
    return _array(pa.bool_(), vector, np.packbits(vector.fixed("u1") != 0, bitorder="little"))


def _unsigned64(vector: Vector, column: Column, subject: str) -> pa.Array:
    limbs = np.zeros((vector.rows, 2), "<u8")
    limbs[:, 0] = vector.fixed(_U8)
    return _array(pa.decimal128(20, 0), vector, limbs)


def _decimal64(vector: Vector, column: Column, subject: str) -> pa.Array:
    kind = types.arrow_type(column)
    _check_scale(vector, column, subject)
    values = vector.fixed(_I8)
    bound = 10 ** types.decimal_digits(column) - 1
    lowest = int(values.min(initial=0))
    if lowest < -bound or int(values.max(initial=0)) > bound:
        _refuse_digits((values < -bound) | (values > bound), vector, column, subject)
    limbs = np.zeros((vector.rows, 2), _I8)
    limbs[:, 0] = values
    if lowest < 0:
        np.right_shift(values, 63, out=limbs[:, 1])
    return _array(kind, vector, limbs)


def _decimal128(vector: Vector, column: Column, subject: str) -> pa.Array:
    kind = types.arrow_type(column)
    _check_scale(vector, column, subject)
    limbs = vector.fixed(_I8).reshape(vector.rows, 2)
    if types.is_decimal_text(column):
        wide = np.empty((vector.rows, 4), "<i8")
        wide[:, :2] = limbs
        wide[:, 2:] = limbs[:, 1:] >> 63
        return decimal_text(_array(pa.decimal256(76, 0), vector, wide), column.type.scale)
    outside = beyond_decimal128(limbs, 10 ** types.decimal_digits(column) - 1)
    if outside is not None:
        _refuse_digits(outside, vector, column, subject)
    return _array(kind, vector, limbs)


def _refuse_digits(beyond: np.ndarray, vector: Vector, column: Column, subject: str) -> None:
    """Raises `ValueRefused` if a row that is not null is `beyond` the digits that the schema gives. The mirror's schema
    is widened when an object comes; what was copied by releases before 0.2 has the declared digits only."""
    null = vector.null_mask()
    if (beyond if null is None else beyond & ~null).any():
        message = f"a value has more than the {types.decimal_digits(column)} digits that the schema says"
        remedy = "`ccpr run NAME` finds out how many digits its values have: read the newest point then."
        raise ValueRefused(message, subject=f"column {column.name}, {subject}", remedy=remedy)


def beyond_decimal128(limbs: np.ndarray, bound: int) -> np.ndarray | None:
    """bool, one a row: which 128-bit numbers lie outside -bound .. bound; None if the high halves show that none does.

    `limbs` are `<i8` of shape (rows, 2), the low half first.
    """
    high, low = limbs[:, 1], limbs[:, 0].view("<u8")
    if len(limbs) == 0 or (int(high.max()) < bound >> 64 and int(high.min()) > -bound >> 64):
        return None
    top, bottom = divmod(bound, 1 << 64), divmod(-bound, 1 << 64)
    above = (high > top[0]) | ((high == top[0]) & (low > np.uint64(top[1])))
    below = (high < bottom[0]) | ((high == bottom[0]) & (low < np.uint64(bottom[1])))
    return above | below


def _decimal256(vector: Vector, column: Column, subject: str) -> pa.Array:
    """As text with exactly `scale` fraction digits: neither Arrow's decimal128 nor Spark's decimal can hold it."""
    types.arrow_type(column)  # bounds the scale, which becomes digits
    _check_scale(vector, column, subject)
    return decimal_text(_array(pa.decimal256(76, 0), vector, vector.slots), column.type.scale)


def decimal_text(unscaled: pa.Array, scale: int) -> pa.StringArray:
    """Decimals of scale 0 as text with the point `scale` digits from the right. Arrow's own cast would print 0.0000001
    as 1E-7."""
    digits = unscaled.cast(pa.string())
    if scale <= 0:
        return digits
    negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    sign = pc.if_else(negative, "-", "")
    whole, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


def _since(epoch: int, dtype: np.dtype, kind: pa.DataType) -> Converter:
    def convert(vector: Vector, column: Column, subject: str) -> pa.Array:
        return _array(kind, vector, _less_epoch(vector.fixed(dtype), epoch, vector, column, subject))

    return convert


def _uuid(vector: Vector, column: Column, subject: str) -> pa.Array:
    text = uuid_text(vector.fixed("u1").reshape(vector.rows, 16))
    offsets = fixed_offsets(vector.rows, UUID_TEXT_SIZE)
    return pa.Array.from_buffers(pa.string(), vector.rows, [vector.validity(), offsets, pa.py_buffer(text)])


def _enum(vector: Vector, column: Column, subject: str) -> pa.Array:
    """The label; empty text for 0, the number that MySQL stores for a value that was not a member. A number that has no
    label is `#` and the number: so different numbers stay different."""
    numbers, null = vector.fixed("<u2"), vector.null_mask()
    if null is not None:
        numbers = np.where(null, 0, numbers)
    texts, known = ["", *column.labels], len(column.labels)
    beyond = np.unique(numbers[numbers > known])
    if beyond.size:
        texts += [_without_label(number) for number in beyond.tolist()]
        places = known + 1 + np.searchsorted(beyond, numbers)
        numbers = np.where(numbers > known, places, numbers)
    return pa.array(texts, pa.string()).take(pa.array(numbers, mask=null))


def _without_label(number: int) -> str:
    return f"#{number}"


def _set(vector: Vector, column: Column, subject: str) -> pa.Array:
    """Members joined by commas, in the order of the labels. One that has no label is `#` and its number, from 1."""
    masks, null = vector.fixed(_U8), vector.null_mask()
    if null is not None:
        masks = np.where(null, 0, masks)
    texts = [*column.labels, *map(_without_label, range(len(column.labels) + 1, _SET_BITS + 1))]
    rows, members = np.nonzero(np.unpackbits(masks.view(np.uint8).reshape(vector.rows, 8), axis=1, bitorder="little"))
    offsets = np.zeros(vector.rows + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=vector.rows), out=offsets[1:])
    labels = pa.array(texts, pa.string()).take(pa.array(members))
    sets = pa.ListArray.from_arrays(pa.array(offsets), labels, mask=None if null is None else pa.array(null))
    return pc.binary_join(sets, ",")


def _geometry(vector: Vector, column: Column, subject: str) -> pa.Array:
    return geometry_text(varlena_array(vector, subject), f"column {column.name}, {subject}")


def _json(vector: Vector, column: Column, subject: str) -> pa.Array:
    return json_text(varlena_array(vector, subject), subject=f"{subject}, column {column.name}")


def _bfloat16(stored: np.ndarray) -> np.ndarray:
    """The upper half of a 32-bit float each."""
    return (stored.astype("<u4") << np.uint32(16)).view("<f4")


def _vectors(dtype: str, kind: pa.DataType, widen: Callable[[np.ndarray], np.ndarray] = np.copy) -> Converter:
    def convert(vector: Vector, column: Column, subject: str) -> pa.Array:
        values = varlena_array(vector, subject)
        if vector.rows == 0:
            return pa.array([], pa.list_(kind))
        _, offsets, data = values.buffers()
        width = np.dtype(dtype).itemsize
        ends = np.frombuffer(offsets, np.int32, vector.rows + 1)
        sizes = ends - ends[0]
        if (sizes % width).any():
            message = f"column {column.name} holds a vector that is not a multiple of {width} bytes"
            raise ObjectDamaged(message, subject=subject)
        total = int(sizes[-1])
        numbers = widen(np.frombuffer(data.slice(int(ends[0]), total), dtype) if total else np.empty(0, dtype))
        items = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
        starts = pa.py_buffer(sizes // np.int32(width))
        return pa.Array.from_buffers(pa.list_(kind), vector.rows, [vector.validity(), starts], children=[items])

    return convert


def _check_scale(vector: Vector, column: Column, subject: str) -> None:
    if vector.scale != column.type.scale:
        raise ObjectMismatch(
            f"column {column.name} has {vector.scale} fraction digits in the file, {column.type.scale} in the schema",
            subject=subject,
        )


def _less_epoch(values: np.ndarray, epoch: int, vector: Vector, column: Column, subject: str) -> np.ndarray:
    """The values less `epoch`. Raises `ValueRefused` for one from which it cannot be subtracted.

    A server can compute dates outside the years 1 to 9999 and store them. Arrow has them; Python's own types and the
    targets have not, and say so themselves.
    """
    lowest = int(np.iinfo(values.dtype).min) + epoch
    if int(values.min(initial=0)) >= lowest:
        return values - epoch
    bad, null = values < lowest, vector.null_mask()
    if null is not None:
        bad = bad & ~null
        values = np.where(null, 0, values)
    if bad.any():
        message = f"row {int(bad.argmax())} is before every date that Arrow has"
        raise ValueRefused(message, subject=f"column {column.name}, {subject}", remedy="Read the other columns.")
    return values - epoch


_CONVERTERS: dict[int, Converter] = {
    types.BOOL: _bool,
    types.BIT: _unsigned64,
    **dict.fromkeys((types.INT8, types.INT16, types.INT32, types.INT64, types.FLOAT32, types.FLOAT64), _as_stored),
    **dict.fromkeys((types.TIME, types.YEAR, types.TS, types.ROWID, types.BLOCK_ID), _as_stored),
    **dict.fromkeys((types.UINT8, types.UINT16, types.UINT32), _widened),
    types.UINT64: _unsigned64,
    types.DECIMAL64: _decimal64,
    types.DECIMAL128: _decimal128,
    types.DECIMAL256: _decimal256,
    types.DATE: _since(UNIX_EPOCH_DAYS, _I4, pa.date32()),
    types.DATETIME: _since(UNIX_EPOCH_US, _I8, pa.timestamp("us")),
    types.TIMESTAMP: _since(UNIX_EPOCH_US, _I8, pa.timestamp("us", "UTC")),
    types.UUID: _uuid,
    types.ENUM: _enum,
    types.JSON: _json,
    types.VECF32: _vectors("<f4", pa.float32()),
    types.VECF64: _vectors("<f8", pa.float64()),
    types.VECBF16: _vectors("<u2", pa.float32(), _bfloat16),
    types.VECF16: _vectors("<f2", pa.float32(), lambda stored: stored.astype("<f4")),
    types.VECINT8: _vectors("i1", pa.int8()),
    types.VECUINT8: _vectors("u1", pa.int16(), lambda stored: stored.astype("<i2")),
    **dict.fromkeys(types.GEOMETRY_TYPES, _geometry),
    **dict.fromkeys(types.TEXT_TYPES, lambda vector, _, subject: readable_text(varlena_array(vector, subject))),
    **dict.fromkeys(types.BINARY_TYPES, lambda vector, _, subject: varlena_array(vector, subject)),
}


# ---- the zero value of dates and times
#
# `0000-00-00`, stored as -1, the day or the microsecond before 0001-01-01, since 4.2.0. docs/format/object-file.md 4.


def is_zero_date(values: pa.Array) -> pa.BooleanArray:
    """For each date or timestamp in Arrow's form whether it is the zero value; null where the value is."""
    stored, zero = _stored(values)
    return pc.equal(values.view(stored), pa.scalar(zero, stored))


def without_zero_dates(values: pa.Array) -> pa.Array:
    """The values with null for the zero value."""
    if not _may_have_one(values):
        return values
    return pc.if_else(is_zero_date(values), pa.scalar(None, values.type), values)


def _stored(values: pa.Array) -> tuple[pa.DataType, int]:
    """As what numbers the values are stored, and which of them is the zero value."""
    if pa.types.is_date32(values.type):
        return pa.int32(), ZERO_DATE - UNIX_EPOCH_DAYS
    return pa.int64(), ZERO_DATE - UNIX_EPOCH_US


def _may_have_one(values: pa.Array) -> bool:
    """Whether a value is zero, or the place of a null holds what is. Asked of every block, so without Arrow, which
    takes four times as long for it."""
    stored, zero = _stored(values)
    data = values.buffers()[1]
    if len(values) == 0 or data is None:
        return False
    size = stored.bit_width // 8
    return bool((np.frombuffer(data, f"<i{size}", len(values), size * values.offset) == zero).any())
