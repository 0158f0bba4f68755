"""From an Arrow array to a column of an object, type by type: the inverse of `ccpr.matrixone.objects.convert`.
docs/format/object-file.md 4. No loop over rows except for JSON.

Every value is checked against its type: what `convert` would not read is refused here with `NotWritable`.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import (
    DAY_US,
    END_US,
    MAX_DAYS,
    UNIX_EPOCH_DAYS,
    UNIX_EPOCH_US,
    ZERO_DATE,
    beyond_decimal128,
)
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.identifiers import UUID_DASHES, UUID_DIGITS, UUID_TEXT_SIZE
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.objects.vectors import bounds_of
from ccpr.matrixone.objects.writing.encoded_columns import EncodedColumn, varlena_column
from ccpr.matrixone.objects.writing.json_and_geometry import json_binary, stored_geometries
from ccpr.matrixone.schema import Column, SqlType

_YEARS = (1901, 2155)  # and 0
_NO_DIGIT = 0xFF
_DIGIT = np.full(256, _NO_DIGIT, np.uint8)
_DIGIT[np.frombuffer(b"0123456789", np.uint8)] = np.arange(10)
_DIGIT[np.frombuffer(b"abcdef", np.uint8)] = np.arange(10, 16)
_DIGIT[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_NULL_UUID = "00000000-0000-0000-0000-000000000000"  # in the place of nulls
_DECIMAL256_LIMBS, _ARROW_DECIMAL256 = 4, 76
_SET_LIMIT = 64
_WORD = 8  # bytes of the largest number that NumPy has
_DECLARED_IN_CHARACTERS, _DECLARED_IN_BYTES = (types.CHAR, types.VARCHAR), (types.BINARY, types.VARBINARY)

Encoder = Callable[[pa.Array, Column], EncodedColumn]


def encode(values: pa.Array, column: Column, *, wkb: bool = False) -> EncodedColumn:
    """A column of one block from values of `types.arrow_type(column)`, the type in which the reader returns them.
    With `wkb` geometries are stored in that form.

    Raises `NotWritable` for another Arrow type and for a value outside the column's type, `ObjectUnsupported` for a
    type that has no Arrow type.
    """
    kind = types.arrow_type(column)
    if values.type != kind:
        raise NotWritable(f"values of {values.type} where {kind} is written", subject=f"column {column.name}")
    if types.is_packed(column):
        return varlena_column(column.type, values, _subject(column))
    if types.is_set(column):
        return _set(values, column)
    if wkb and column.type.oid in types.GEOMETRY_TYPES:
        return varlena_column(column.type, stored_geometries(values, column.type.oid), _subject(column))
    return _ENCODERS[column.type.oid](values, column)


def _subject(column: Column) -> str:
    return f"column {column.name}"


def null_mask(values: pa.Array) -> np.ndarray | None:
    return None if values.null_count == 0 else values.is_null().to_numpy(zero_copy_only=False)


def plain(values: pa.Array, dtype: str, width: int = 1) -> np.ndarray:
    """The array's values as they are in its buffer, those of null rows included: shape (rows,), or (rows, width)."""
    buffer = values.buffers()[1]
    size = np.dtype(dtype).itemsize * width
    numbers = (
        np.empty(0, dtype)
        if buffer is None
        else np.frombuffer(buffer, dtype, len(values) * width, values.offset * size)
    )
    return numbers if width == 1 else numbers.reshape(len(values), width)


def _finished(numbers: np.ndarray, null: np.ndarray | None, kind: SqlType) -> EncodedColumn:
    """The column of these slots, with zero in null rows; `numbers` is copied before that if it is read-only."""
    if null is not None:
        if not numbers.flags.writeable:
            numbers = numbers.copy()
        numbers[null] = 0
    return EncodedColumn(kind, len(numbers), np.ascontiguousarray(numbers), null=null)


def _check(numbers: np.ndarray, low: int, high: int, null: np.ndarray | None, column: Column) -> None:
    """Raises unless all values that are not null lie in [low, high]."""
    if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) > high):
        limits = np.iinfo(numbers.dtype)
        _refuse((numbers < max(low, int(limits.min))) | (numbers > min(high, int(limits.max))), null, column)


def _refuse(bad: np.ndarray, null: np.ndarray | None, column: Column) -> None:
    if null is not None:
        bad = bad & ~null
    if bad.any():
        message = f"the value of row {int(bad.argmax())} is outside the range of its type"
        raise NotWritable(message, subject=_subject(column))


def _as_it_is(values: pa.Array, column: Column) -> EncodedColumn:
    """Numbers, times of day, timestamps, rowids, block ids."""
    size = types.SLOT_SIZES[column.type.oid]
    numbers = plain(values, f"<u{size}") if size <= _WORD else plain(values, "u1", size)
    return _finished(numbers, null_mask(values), column.type)


def _narrowed(values: pa.Array, column: Column) -> EncodedColumn:
    size, null = types.SLOT_SIZES[column.type.oid], null_mask(values)
    numbers = plain(values, f"<i{2 * size}")
    _check(numbers, 0, (1 << 8 * size) - 1, null, column)
    return _finished(numbers.astype(f"<u{size}"), null, column.type)


def _bool(values: pa.Array, column: Column) -> EncodedColumn:
    bits = np.frombuffer(values.buffers()[1], np.uint8) if len(values) else np.empty(0, np.uint8)
    stop = values.offset + len(values)
    numbers = np.unpackbits(bits, count=stop, bitorder="little")[values.offset :]
    return _finished(numbers, null_mask(values), column.type)


def _unsigned64(values: pa.Array, column: Column) -> EncodedColumn:
    limbs, null = plain(values, "<u8", 2), null_mask(values)
    bad = limbs[:, 1] != 0
    if column.type.oid == types.BIT and 0 < column.type.width < 64:
        bad = bad | (limbs[:, 0] >> np.uint64(column.type.width) != 0)
    _refuse(bad, null, column)
    return _finished(limbs[:, 0].copy(), null, column.type)


def _decimal64(values: pa.Array, column: Column) -> EncodedColumn:
    limbs, null = plain(values, "<i8", 2), null_mask(values)
    low = limbs[:, 0].copy()
    _refuse(limbs[:, 1] != low >> 63, null, column)
    bound = 10 ** types.decimal_digits(column) - 1
    _check(low, -bound, bound, null, column)
    return _finished(low, null, column.type)


def _decimal128(values: pa.Array, column: Column) -> EncodedColumn:
    if types.is_decimal_text(column):
        wide, null = _decimal_limbs(values, column), null_mask(values)
        limbs = np.ascontiguousarray(wide[:, :2]).view("<i8")
        _refuse((wide[:, 2:].view("<i8") != limbs[:, 1:] >> 63).any(axis=1), null, column)
        return _finished(limbs, null, column.type)
    limbs, null = plain(values, "<i8", 2), null_mask(values)
    outside = beyond_decimal128(limbs, 10 ** types.decimal_digits(column) - 1)
    if outside is not None:
        _refuse(outside, null, column)
    return _finished(limbs, null, column.type)


def _decimal256(values: pa.Array, column: Column) -> EncodedColumn:
    """From text, as `ccpr.matrixone.objects.convert` returns it."""
    return _finished(_decimal_limbs(values, column), null_mask(values), column.type)


def _decimal_limbs(values: pa.StringArray, column: Column) -> np.ndarray:
    precision, scale = types.decimal_digits(column), column.type.scale
    try:
        numbers = values.cast(pa.decimal256(min(precision, _ARROW_DECIMAL256), scale))
    except pa.ArrowInvalid as error:
        message = f"a value is not a decimal({precision},{scale}): {error}"
        raise NotWritable(message, subject=_subject(column)) from error
    return plain(numbers, "<u8", _DECIMAL256_LIMBS)


def _date(values: pa.Array, column: Column) -> EncodedColumn:
    days, null = plain(values, "<i4"), null_mask(values)
    _check(days, ZERO_DATE - UNIX_EPOCH_DAYS, MAX_DAYS - UNIX_EPOCH_DAYS, null, column)
    return _finished(days + np.int32(UNIX_EPOCH_DAYS), null, column.type)


def _datetime(low: int, high: int) -> Encoder:
    def convert(values: pa.Array, column: Column) -> EncodedColumn:
        times, null = plain(values, "<i8"), null_mask(values)
        _check(times, low - UNIX_EPOCH_US, high - UNIX_EPOCH_US, null, column)
        return _finished(times + np.int64(UNIX_EPOCH_US), null, column.type)

    return convert


def _year(values: pa.Array, column: Column) -> EncodedColumn:
    years, null = plain(values, "<i2"), null_mask(values)
    _refuse((years != 0) & ((years < _YEARS[0]) | (years > _YEARS[1])), null, column)
    return _finished(years, null, column.type)


def _uuid(values: pa.Array, column: Column) -> EncodedColumn:
    null = null_mask(values)
    texts = values if null is None else values.fill_null(_NULL_UUID)
    if len(values) and not pc.all(pc.equal(pc.binary_length(texts), UUID_TEXT_SIZE)).as_py():
        raise NotWritable(f"a UUID does not have {UUID_TEXT_SIZE} characters", subject=_subject(column))
    start, count, data = int(bounds_of(texts)[0]), len(values) * UUID_TEXT_SIZE, texts.buffers()[2]
    characters = np.frombuffer(data.slice(start, count) if count else b"", np.uint8).reshape(-1, UUID_TEXT_SIZE)
    digits = _DIGIT[characters[:, UUID_DIGITS]]
    _refuse((digits == _NO_DIGIT).any(axis=1) | (characters[:, UUID_DASHES] != ord("-")).any(axis=1), null, column)
    return _finished(np.ascontiguousarray(digits[:, 0::2] << 4 | digits[:, 1::2]), null, column.type)


def _enum(values: pa.Array, column: Column) -> EncodedColumn:
    """The label's number, from 1; empty text is 0."""
    null = null_mask(values)
    return _finished(_places(values, ("", *column.labels), null, column).astype("<u2"), null, column.type)


def _set(values: pa.Array, column: Column) -> EncodedColumn:
    """One bit for each member named in the text, which separates them by commas; an empty text has no members."""
    if len(column.labels) > _SET_LIMIT:
        raise NotWritable(f"a set of {len(column.labels)} members", subject=_subject(column))
    null = null_mask(values)
    masks = np.zeros(len(values), "<u8")
    filled = np.flatnonzero(pc.fill_null(pc.greater(pc.binary_length(values), 0), False).to_numpy(zero_copy_only=False))
    if filled.size:
        parts = pc.split_pattern(values.take(pa.array(filled)), ",")
        members = _places(parts.flatten(), column.labels, None, column).astype(np.uint64)
        masks[filled] = np.bitwise_or.reduceat(
            np.uint64(1) << members, parts.offsets.to_numpy()[:-1] - parts.offsets[0].as_py()
        )
    return _finished(masks, null, column.type)


def _places(values: pa.Array, labels: tuple[str, ...], null: np.ndarray | None, column: Column) -> np.ndarray:
    """The index of each value in `labels`; 0 for null rows. Raises `NotWritable` for a value that is not in it."""
    found = pc.index_in(values, pa.array(labels, pa.string()))
    missing = found.is_null().to_numpy(zero_copy_only=False)
    if null is not None:
        missing = missing & ~null
    if missing.any():
        value = values[int(missing.argmax())].as_py()
        raise NotWritable(f"{value!r:.60} is none of the labels", subject=_subject(column))
    return found.fill_null(0).to_numpy(zero_copy_only=False)


def _varlena(values: pa.Array, column: Column) -> EncodedColumn:
    kind, subject = column.type, _subject(column)
    stored = values if values.type == pa.binary() else stored_bytes(values)
    if kind.width > 0 and len(values) and kind.oid in (*_DECLARED_IN_CHARACTERS, *_DECLARED_IN_BYTES):
        longest = pc.max(pc.binary_length(stored)).as_py() or 0
        if longest > kind.width and kind.oid in _DECLARED_IN_CHARACTERS:
            longest = pc.max(pc.utf8_length(values)).as_py()
        if longest > kind.width:
            raise NotWritable(f"a value of length {longest} where {kind.width} is declared", subject=subject)
    return varlena_column(kind, stored, subject)


def _json(values: pa.Array, column: Column) -> EncodedColumn:
    return varlena_column(column.type, json_binary(values, subject=_subject(column)), _subject(column))


def _bfloat16(numbers: np.ndarray) -> np.ndarray:
    return (numbers.view("<u4") >> np.uint32(16)).astype("<u2")


def _floats(width: int, narrow: Callable[[np.ndarray], np.ndarray] | None = None) -> Encoder:
    """Vectors of numbers. `narrow` makes the stored ones of `width` bytes from those in Arrow."""

    def convert(values: pa.Array, column: Column) -> EncodedColumn:
        ends, items = bounds_of(values), values.values
        if values.flatten().null_count:
            raise NotWritable("an element of a vector is null", subject=_subject(column))
        sizes, null = np.diff(ends), null_mask(values)
        if column.type.width > 0:
            _refuse(sizes != column.type.width, null, column)
        if int(ends[-1]) * width > np.iinfo(np.int32).max:
            raise NotWritable("more than 2 GiB of vectors in one block", subject=_subject(column))
        offsets = pa.py_buffer((ends - ends[0]) * np.int32(width))
        data, size = items.buffers()[1], items.type.bit_width // 8
        data = (
            data.slice((items.offset + int(ends[0])) * size, int(ends[-1] - ends[0]) * size)
            if data is not None
            else pa.py_buffer(b"")
        )
        if column.type.oid == types.VECUINT8:
            elements = items.slice(int(ends[0]), int(ends[-1] - ends[0]))
            _check(plain(elements, "<i2"), 0, np.iinfo("u1").max, None, column)
        if narrow is not None:
            data = pa.py_buffer(np.ascontiguousarray(narrow(np.frombuffer(data, items.type.to_pandas_dtype()))))
        valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
        stored = pa.Array.from_buffers(pa.binary(), len(values), [valid, offsets, data])
        return varlena_column(column.type, stored, _subject(column))

    return convert


_ENCODERS: dict[int, Encoder] = {
    types.BOOL: _bool,
    types.BIT: _unsigned64,
    **dict.fromkeys((types.INT8, types.INT16, types.INT32, types.INT64, types.FLOAT32, types.FLOAT64), _as_it_is),
    **dict.fromkeys((types.TIME, types.TS, types.ROWID, types.BLOCK_ID), _as_it_is),
    **dict.fromkeys((types.UINT8, types.UINT16, types.UINT32), _narrowed),
    types.UINT64: _unsigned64,
    types.DECIMAL64: _decimal64,
    types.DECIMAL128: _decimal128,
    types.DECIMAL256: _decimal256,
    types.DATE: _date,
    types.DATETIME: _datetime(ZERO_DATE, END_US),
    types.TIMESTAMP: _datetime(-DAY_US, END_US + DAY_US),
    types.YEAR: _year,
    types.UUID: _uuid,
    types.ENUM: _enum,
    types.JSON: _json,
    types.VECF32: _floats(4),
    types.VECF64: _floats(8),
    types.VECBF16: _floats(2, _bfloat16),
    types.VECF16: _floats(2, lambda numbers: numbers.astype("<f2")),
    types.VECINT8: _floats(1),
    types.VECUINT8: _floats(1, lambda numbers: numbers.astype("u1")),
    **dict.fromkeys(types.TEXT_TYPES | types.BINARY_TYPES | types.GEOMETRY_TYPES, _varlena),
}
