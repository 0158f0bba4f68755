"""Cells of the text protocol as the values that the reader of objects returns: `ccpr.matrixone.objects.convert` for
whoever has no objects. No loop over rows.

The server prints every type so that it can be read back (docs/upstream.md, "Values as text"): floats as short as they
are exact, moments in the zone of the session, which is UTC here. In the answer of a DATA BRANCH DIFF enums and sets are
their numbers.
"""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client.errors import BadAnswer
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import DAY_US, UNIX_EPOCH_DAYS, UNIX_EPOCH_US, ZERO_DATE, to_arrow
from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.objects.invalid_text import readable_text
from ccpr.matrixone.objects.vectors import Vector, bounds_of, is_ascii
from ccpr.matrixone.schema import Column

_ZERO = "0000-00-00"
_SECONDS_SIZE = len(":00:00")
_MOST_HOUR_DIGITS = 9  # the server takes 2,562,047 hours; so many fit in 64 bits of microseconds
_NO_BYTES = pa.py_buffer(b"")
_MORE_DIGITS = "Read it as a column of more digits."

Decoder = Callable[[pa.BinaryArray, Column], pa.Array]


def not_carried(columns: Iterable[Column]) -> dict[str, str]:
    """The columns, by name, whose values no answer of SELECT has as they are stored, with the reason."""
    return {
        column.name: f"values of type {column.type.oid} cannot be read by SELECT"
        for column in columns
        if types.is_packed(column) or column.type.oid not in _DECODERS
    }


def cell_values(cells: pa.BinaryArray, column: Column, *, numbered: bool = False) -> pa.Array:
    """The values of a column's cells, of `types.arrow_type(column)`. `numbered`: enums and sets are numbers.

    Raises `BadAnswer` for what is not a value of the type; `ValueRefused` for a decimal of more digits than the schema
    says; `ObjectUnsupported` for a type that has no Arrow type.
    """
    kind = types.arrow_type(column)
    try:
        if types.is_set(column) or column.type.oid == types.ENUM:
            return _numbers(cells, column) if numbered else readable_text(cells)
        values = _DECODERS[column.type.oid](cells, column)
    except (pa.ArrowInvalid, ValueError) as error:
        message = f"a value is none of the column's type: {error}"
        raise BadAnswer(f"{message:.200}", subject=f"column {column.name}") from error
    return values if values.type == kind else values.cast(kind)


def _ascii(cells: pa.BinaryArray) -> pa.StringArray:
    """The cells as text without a copy. Raises ValueError."""
    data = cells.buffers()[2]
    if data is not None and not is_ascii(data):
        raise ValueError("it is not ASCII")
    return cells.view(pa.string())


def _parsed(cells: pa.BinaryArray, column: Column) -> pa.Array:
    """What Arrow reads as the server prints it."""
    return _ascii(cells).cast(types.arrow_type(column))


def _stored(numbers: np.ndarray, null: np.ndarray | None, column: Column) -> pa.Array:
    """What the reader makes of these slots."""
    bits = None if null is None else np.packbits(null, bitorder="little")
    kind, slots = column.type, pa.py_buffer(numbers)
    vector = Vector(kind.oid, kind.width, kind.scale, len(numbers), slots, _NO_BYTES, bits, owned=True)
    return to_arrow(vector, column, "answer of the upstream")


def _null(cells: pa.Array) -> np.ndarray | None:
    return cells.is_null().to_numpy(zero_copy_only=False) if cells.null_count else None


def _numbers(cells: pa.BinaryArray, column: Column) -> pa.Array:
    """Unsigned numbers, as they are stored."""
    kind = pa.from_numpy_dtype(np.dtype(f"u{types.SLOT_SIZES[column.type.oid]}"))
    numbers = _ascii(cells).cast(kind)
    return _stored(numbers.fill_null(0).to_numpy(), _null(cells), column)


def _bits(cells: pa.BinaryArray, column: Column) -> pa.Array:
    """As many bytes as the declared bits take, the highest first."""
    size = (column.type.width + 7) // 8
    null = _null(cells)
    filled = cells.drop_null()
    if not pc.all(pc.equal(pc.binary_length(filled), size)).as_py() and len(filled):
        raise ValueError(f"it does not have {size} bytes")
    low = np.zeros((len(cells), 8), np.uint8)
    rows = slice(None) if null is None else ~null
    low[rows, 8 - size :] = _bytes(filled)[0].reshape(len(filled), size)
    return _stored(low.view(">u8").astype("<u8").reshape(-1), null, column)


def _bytes(cells: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """All bytes of the cells, and where each one begins, and where the last one ends."""
    ends = bounds_of(cells).astype(np.int64)
    return np.frombuffer(cells.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]], ends - ends[0]


def _decimal(cells: pa.BinaryArray, column: Column) -> pa.Array:
    """As text where Arrow has no such decimal, which is as the server prints it."""
    texts, kind, scale = _ascii(cells), types.arrow_type(column), column.type.scale
    form = rf"^-?[0-9]+\.[0-9]{{{scale}}}$" if scale else "^-?[0-9]+$"
    try:
        if pa.types.is_decimal(kind):
            return texts.cast(kind)
    except pa.ArrowInvalid as error:
        if not pc.all(pc.match_substring_regex(texts, form)).as_py():
            raise
        message = f"a value has more than the {types.decimal_digits(column)} digits that the schema says"
        raise ValueRefused(message, subject=f"column {column.name}", remedy=_MORE_DIGITS) from error
    if pc.any(pc.invert(pc.match_substring_regex(texts, form))).as_py():
        raise ValueError(f"it is no number with {scale} digits behind the point")
    return texts


def _date(cells: pa.BinaryArray, column: Column) -> pa.Array:
    return _with_zero(_ascii(cells), pa.date32(), pa.scalar(ZERO_DATE - UNIX_EPOCH_DAYS, pa.int32()))


def _moment(cells: pa.BinaryArray, column: Column) -> pa.Array:
    """Of a timestamp in UTC, which the session's zone is."""
    return _with_zero(_ascii(cells), pa.timestamp("us"), pa.scalar(ZERO_DATE - UNIX_EPOCH_US, pa.int64()))


def _with_zero(texts: pa.StringArray, kind: pa.DataType, zero: pa.Scalar) -> pa.Array:
    """Dates or moments; the zero date, which no calendar has, is what is stored for it."""
    is_zero = pc.starts_with(texts, _ZERO)
    if not pc.any(is_zero).as_py():
        return texts.cast(kind)
    values = pc.if_else(is_zero, None, texts).cast(kind)
    return pc.if_else(is_zero, zero, values.view(zero.type)).view(kind)


def _time(cells: pa.BinaryArray, column: Column) -> pa.Array:
    """`[-]hours:MM:SS[.fraction]`, of any number of hours."""
    null, filled = _null(cells), cells.drop_null()
    data, bounds = _bytes(filled)
    first, end = bounds[:-1].copy(), bounds[1:].copy()
    if (end - first <= _SECONDS_SIZE).any():
        raise ValueError("it is too short for a time")
    negative = data[first] == ord("-")
    first += negative
    micros = np.zeros(len(first), np.int64)
    scale = max(column.type.scale, 0)
    if scale:
        rows = np.flatnonzero(data[end - 3] != ord(":"))
        end[rows] -= scale + 1
        if (end[rows] - first[rows] <= _SECONDS_SIZE).any() or (data[end[rows]] != ord(".")).any():
            raise ValueError(f"it has no fraction of {scale} digits")
        micros[rows] = _digits(data, end[rows] + 1, scale) * 10 ** (6 - scale)
    at, hours = end - _SECONDS_SIZE, np.zeros(len(first), np.int64)
    sizes = at - first
    if len(sizes) and int(sizes.max()) > _MOST_HOUR_DIGITS:
        raise ValueError("it has too many hours")
    if (sizes < 1).any() or (data[at] != ord(":")).any() or (data[at + 3] != ord(":")).any():
        raise ValueError("it has no hours, minutes and seconds")
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        hours[rows] = hours[rows] * 10 + _digits(data, first[rows] + place, 1)
    seconds = hours * 3600 + _digits(data, at + 1, 2) * 60 + _digits(data, at + 4, 2)
    micros += seconds * (DAY_US // 86_400)
    values = np.zeros(len(cells), np.int64)
    values[slice(None) if null is None else ~null] = np.where(negative, -micros, micros)
    return pa.array(values, mask=null).view(pa.duration("us"))


def _digits(data: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """The numbers of so many digits at each place. Raises ValueError."""
    numbers = np.zeros(len(at), np.int64)
    for place in range(count):
        digits = data[at + place] - ord("0")  # wraps around below the digits
        if (digits > 9).any():
            raise ValueError("it has something else where a digit is")
        numbers = numbers * 10 + digits
    return numbers


def _list(items: pa.DataType, wider: pa.DataType | None = None) -> Decoder:
    """`[1.5, -2]`, for a vector."""

    def decode(cells: pa.BinaryArray, column: Column) -> pa.Array:
        texts = _ascii(cells)
        closed = pc.and_(pc.starts_with(texts, "["), pc.ends_with(texts, "]"))
        if not pc.all(closed).as_py() and len(texts) > texts.null_count:
            raise ValueError("it is not in brackets")
        parts = pc.split_pattern(pc.utf8_slice_codeunits(texts, 1, -1), ", ")
        numbers = parts.values.cast(items)
        mask = None if not texts.null_count else texts.is_null()
        return pa.ListArray.from_arrays(parts.offsets, numbers if wider is None else numbers.cast(wider), mask=mask)

    return decode


_DECODERS: dict[int, Decoder] = {
    **dict.fromkeys((types.BOOL, types.INT8, types.INT16, types.INT32, types.INT64), _parsed),
    **dict.fromkeys((types.FLOAT32, types.FLOAT64, types.YEAR), _parsed),
    types.BIT: _bits,
    **dict.fromkeys((types.UINT8, types.UINT16, types.UINT32, types.UINT64), _numbers),
    **dict.fromkeys(types.MAX_PRECISION, _decimal),
    types.DATE: _date,
    types.TIME: _time,
    **dict.fromkeys((types.DATETIME, types.TIMESTAMP), _moment),
    **dict.fromkeys(
        (types.JSON, types.UUID, types.ENUM, *types.GEOMETRY_TYPES, *types.TEXT_TYPES),
        lambda cells, column: readable_text(cells),
    ),
    **dict.fromkeys(types.BINARY_TYPES, lambda cells, column: cells),
    **dict.fromkeys((types.VECF32, types.VECBF16, types.VECF16), _list(pa.float32())),
    types.VECF64: _list(pa.float64()),
    types.VECINT8: _list(pa.int8()),
    types.VECUINT8: _list(pa.uint8(), pa.int16()),
}
