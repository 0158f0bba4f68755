"""Values to and from the text of SQL: literals of statements, cells of result sets."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import decimal_text
from ccpr.matrixone.objects.invalid_text import escaped
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import BIGINT, BLOB_TEXT, INT, SMALL, TINY, VAR_STRING, Cell, StatementError

_UTF8, _BINARY = 33, 63
_TIME = re.compile(r"(-?)(\d{1,10}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
_DECIMAL, _DATE, _DATETIME, _TIMESTAMP, _MYSQL_TIME, _FLOAT, _DOUBLE, _BIT, _YEAR = 246, 10, 12, 7, 11, 4, 5, 16, 13
INTEGER_RANGES: Final = {
    types.INT8: (-(2**7), 2**7 - 1),
    types.INT16: (-(2**15), 2**15 - 1),
    types.INT32: (-(2**31), 2**31 - 1),
    types.INT64: (-(2**63), 2**63 - 1),
    types.UINT8: (0, 2**8 - 1),
    types.UINT16: (0, 2**16 - 1),
    types.UINT32: (0, 2**32 - 1),
    types.UINT64: (0, 2**64 - 1),
    types.YEAR: (0, 2155),
}
_MYSQL_TYPES: Final = {
    types.BOOL: TINY,
    types.BIT: _BIT,
    types.INT8: TINY,
    types.UINT8: TINY,
    types.INT16: SMALL,
    types.UINT16: SMALL,
    types.INT32: INT,
    types.UINT32: INT,
    types.INT64: BIGINT,
    types.UINT64: BIGINT,
    types.FLOAT32: _FLOAT,
    types.FLOAT64: _DOUBLE,
    types.DECIMAL64: _DECIMAL,
    types.DECIMAL128: _DECIMAL,
    types.DECIMAL256: _DECIMAL,
    types.DATE: _DATE,
    types.TIME: _MYSQL_TIME,
    types.DATETIME: _DATETIME,
    types.TIMESTAMP: _TIMESTAMP,
    types.TEXT: BLOB_TEXT,
    types.BLOB: BLOB_TEXT,
    types.YEAR: _YEAR,
}


def mysql_type(column: Column) -> int:
    return VAR_STRING if types.is_set(column) else _MYSQL_TYPES.get(column.type.oid, VAR_STRING)


def charset(column: Column) -> int:
    """The character set of the column in a result set: texts are UTF-8, all else is binary, so that a client does not
    decode bytes."""
    kind = types.arrow_type(column)
    is_text = (pa.types.is_string(kind) or pa.types.is_list(kind)) and mysql_type(column) in (VAR_STRING, BLOB_TEXT)
    return _UTF8 if is_text else _BINARY


def array_of(column: Column, values: Sequence[Any]) -> pa.Array:
    """Python values as the column's values, converted as an INSERT does it. Raises StatementError 20301 for what is not
    a value of its type, 1406 for what is too long."""
    kind = types.arrow_type(column)
    if pa.types.is_binary(kind):
        return _checked(column, pa.array([_bytes(value) for value in values], kind))
    if column.type.oid == types.BIT:
        values = [int.from_bytes(value) if isinstance(value, bytes) else value for value in values]
    if column.type.oid == types.ENUM:
        labels = ("", *column.labels)
        values = [labels[value] if isinstance(value, int) and 0 <= value < len(labels) else value for value in values]
    texts = [None if value is None else value if isinstance(value, str) else _as_sql(value) for value in values]
    return from_texts(column, pa.array(texts, pa.string()))


def coerced(column: Column, values: pa.Array) -> pa.Array:
    """The values of a query as the column's values. Raises like `array_of`."""
    kind, given = types.arrow_type(column), values.type
    if given == kind:
        return _checked(column, values)
    if pa.types.is_null(given):
        return pa.nulls(len(values), kind)
    if pa.types.is_binary(given) != pa.types.is_binary(kind) or pa.types.is_dictionary(given):
        return array_of(column, values.to_pylist())
    if pa.types.is_boolean(given):
        values = values.cast(pa.int8())
    if pa.types.is_list(given) or pa.types.is_struct(given):
        return array_of(column, values.to_pylist())
    if pa.types.is_floating(given) and pa.types.is_floating(kind):
        return values.cast(kind)
    return from_texts(column, pa.array(plain_cells(values), pa.string()))


def from_texts(column: Column, texts: pa.Array) -> pa.Array:
    """Texts as the column's values. Raises like `array_of`."""
    try:
        return _checked(column, _from_texts(column, texts))
    except (ValueError, TypeError, OverflowError, KeyError, pa.ArrowException) as error:
        raise StatementError(20301, f"invalid input: a value of column {column.name}: {error}") from error


def _from_texts(column: Column, texts: pa.Array) -> pa.Array:
    kind, oid = types.arrow_type(column), column.type.oid
    if oid in types.TEXT_TYPES or oid in types.GEOMETRY_TYPES or oid == types.JSON:
        return texts
    if oid == types.UUID:
        return pc.utf8_lower(texts)
    if types.is_set(column):
        return _set_of(column, texts)
    if oid == types.ENUM:
        return _enum_of(column, texts)
    if oid in types.VECTOR_TYPES:
        number = float if pa.types.is_floating(kind.value_type) else int
        return pa.array(
            [None if text is None else json.loads(text, parse_int=number) for text in texts.to_pylist()], kind
        )
    trimmed = pc.utf8_trim_whitespace(texts)
    if oid == types.BOOL:
        lower = pc.utf8_lower(trimmed)
        lower = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", lower))
        return pc.not_equal(_decimals(lower, 0), pa.scalar(0, pa.decimal256(76, 0)))
    if oid == types.TIME:
        step = 10 ** (6 - column.type.scale)
        return pa.array(
            [None if text is None else _duration(text, step) for text in trimmed.to_pylist()], pa.int64()
        ).cast(kind)
    if oid in (types.DATETIME, types.TIMESTAMP):
        return _rounded(_timestamps(trimmed), column.type.scale).cast(kind)
    if oid == types.DATE:
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            return _timestamps(trimmed).cast(pa.date32(), safe=False)
    if pa.types.is_floating(kind):
        return trimmed.cast(pa.float64()).cast(kind)
    if oid in types.MAX_PRECISION:
        numbers = _decimals(trimmed, column.type.scale)
        if pa.types.is_decimal(kind):
            return numbers.cast(pa.decimal256(kind.precision, kind.scale)).cast(kind)
        numbers = numbers.cast(pa.decimal256(column.type.width, column.type.scale))
        return decimal_text(
            numbers.cast(pa.decimal256(76, column.type.scale)).view(pa.decimal256(76, 0)), column.type.scale
        )
    whole = _decimals(trimmed, 0)
    low, high = INTEGER_RANGES[oid] if oid != types.BIT else (0, (1 << column.type.width) - 1)
    outside = pc.or_(pc.less(whole, pa.scalar(low, whole.type)), pc.greater(whole, pa.scalar(high, whole.type)))
    if pc.any(outside).as_py():
        raise ValueError("the number is out of range")
    return whole.cast(pa.decimal256(20, 0)).cast(kind)


def _decimals(texts: pa.Array, scale: int) -> pa.Array:
    """Texts as decimal256(76, scale), rounded half away from zero."""
    try:
        return texts.cast(pa.decimal256(76, scale))
    except pa.ArrowInvalid:
        finer = min(38, scale + 20)
    try:
        numbers = texts.cast(pa.decimal256(76, finer))
    except pa.ArrowInvalid:
        numbers = texts.cast(pa.float64()).cast(pa.decimal256(76, finer))
    return pc.round(numbers, scale, round_mode="half_towards_infinity").cast(pa.decimal256(76, scale))


def _timestamps(texts: pa.Array) -> pa.Array:
    """Texts as timestamp[us]; more digits of a second than six are cut, numbers such as 20240229 are dates."""
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        texts = pc.replace_substring_regex(texts, r"^(\d{4})(\d\d)(\d\d)$", r"\1-\2-\3")
        texts = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)\.$", r"\1")
        return pc.replace_substring_regex(texts, r"(\.\d{6})\d+$", r"\1").cast(pa.timestamp("us"))


def _rounded(times: pa.Array, digits: int) -> pa.Array:
    """Times with so many digits of a second, rounded."""
    if digits >= 6 or not len(times):
        return times.cast(pa.int64())
    step = 10 ** (6 - digits)
    numbers = times.cast(pa.int64())
    halves = pc.add(numbers, step // 2).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(halves // step * step, pa.int64(), mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _set_of(column: Column, texts: pa.Array) -> pa.Array:
    """Sets by their members, or by the number whose bits are the members."""

    def text_of(text: str) -> str:
        if not text.isdecimal() or text in column.labels:
            return text
        return ",".join(label for bit, label in enumerate(column.labels) if int(text) >> bit & 1)

    given = pc.unique(texts.drop_null())
    return pa.array([text_of(text) for text in given.to_pylist()], pa.string()).take(pc.index_in(texts, given))


def _enum_of(column: Column, texts: pa.Array) -> pa.Array:
    """Members, or their numbers as texts."""
    known = dict.fromkeys(column.labels)
    given = pc.unique(texts.drop_null()).to_pylist()
    labels = {text: text if text in known or text == "" else _label(column, text) for text in given}
    return pa.array(list(labels.values()), pa.string()).take(pc.index_in(texts, pa.array(list(labels), pa.string())))


def _label(column: Column, text: str) -> str:
    lower = {label.lower(): label for label in column.labels}
    if text.lower() in lower:
        return lower[text.lower()]
    if text.isdecimal() and 0 < int(text) <= len(column.labels):
        return column.labels[int(text) - 1]
    raise ValueError("it is not a member of the enum")


def _checked(column: Column, values: pa.Array) -> pa.Array:
    """Raises StatementError 1406 for what is longer than the column."""
    oid, width = column.type.oid, column.type.width
    if oid in (types.CHAR, types.VARCHAR, types.BINARY, types.VARBINARY) and len(values):
        lengths = pc.utf8_length(values) if pa.types.is_string(values.type) else pc.binary_length(values)
        if (pc.max(lengths).as_py() or 0) > width:
            raise StatementError(1406, f"Data too long for column '{column.name}'", "22001")
    return values


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else _as_sql(value).encode("utf-8", "surrogateescape")


def _as_sql(value: Any) -> str:
    """A Python value as SQL writes it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes):
        return escaped(value)
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, timedelta):
        return _duration_text(round(value.total_seconds() * 1_000_000), 6)
    return str(value)


def _duration(text: str, step: int) -> int:
    found = _TIME.fullmatch(text.rpartition(" ")[2])
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    sign, hours, minutes, seconds, fraction = found.groups()
    total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(
        (fraction or "0").ljust(6, "0")[:6]
    )
    total = (total + step // 2) // step * step
    return -total if sign else total


def plain_type(kind: pa.DataType) -> tuple[int, int]:
    """The MySQL type and the character set of a result column that is not a table's column."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return VAR_STRING, _UTF8
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return VAR_STRING, _UTF8
    if pa.types.is_binary(kind):
        return BLOB_TEXT, _BINARY
    if pa.types.is_decimal(kind):
        return (BIGINT if kind.scale == 0 else _DECIMAL), _BINARY
    if pa.types.is_boolean(kind):
        return TINY, _BINARY
    if pa.types.is_integer(kind):
        return (BIGINT if kind.bit_width > 32 else INT), _BINARY
    if pa.types.is_floating(kind):
        return _DOUBLE, _BINARY
    if pa.types.is_date(kind):
        return _DATE, _BINARY
    if pa.types.is_timestamp(kind):
        return _DATETIME, _BINARY
    return (_MYSQL_TIME, _BINARY) if pa.types.is_time(kind) or pa.types.is_interval(kind) else (VAR_STRING, _UTF8)


def plain_cells(values: pa.Array) -> list[Any]:
    """Values of a query as the text protocol shows them, and as INSERT reads them."""
    kind = values.type
    if pa.types.is_binary(kind):
        return values.to_pylist()
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(pa.string()).to_pylist()
    if pa.types.is_decimal(kind):
        finer = values.cast(pa.decimal256(76, kind.scale)).view(pa.decimal256(76, 0))
        return decimal_text(finer, kind.scale).to_pylist()
    if pa.types.is_interval(kind):
        return [
            None if value is None else _duration_text(value, 6 if value % 1_000_000 else 0)
            for value in microseconds(values).to_pylist()
        ]
    if pa.types.is_timestamp(kind):
        texts = values.cast(pa.timestamp("us")).cast(pa.string())
        return pc.replace_substring_regex(texts, r"\.0+$", "").to_pylist()
    if pa.types.is_time(kind):
        return pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "").to_pylist()
    if pa.types.is_list(kind):
        return [
            None if value is None else "[" + ", ".join(_item(item, kind) for item in value) + "]"
            for value in values.to_pylist()
        ]
    if pa.types.is_floating(kind):
        return _float_texts(values)
    if pa.types.is_struct(kind):
        return [None if value is None else json.dumps(value, default=str) for value in values.to_pylist()]
    return values.cast(pa.string()).to_pylist()


def _item(item: Any, kind: pa.DataType) -> str:
    return _number(item, kind) if isinstance(item, float) else str(item)


def microseconds(values: pa.Array) -> pa.Array:
    """Intervals of months, days and nanoseconds as microseconds; a month has 30 days."""
    parts = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    buffer = values.buffers()[1]
    raw = (
        np.frombuffer(buffer, parts, len(values), values.offset * parts.itemsize) if len(values) else np.empty(0, parts)
    )
    days = raw["months"].astype("i8") * 30 + raw["days"]
    numbers = days * 86_400_000_000 + raw["nanoseconds"] // 1000
    return pa.array(numbers, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def cells(column: Column, values: pa.Array) -> list[Cell]:
    """Values as the text protocol shows them."""
    oid, kind = column.type.oid, values.type
    if pa.types.is_binary(kind):
        return values.to_pylist()
    if oid == types.BIT:
        size = (column.type.width + 7) // 8
        return [None if value is None else int(value).to_bytes(size, "big") for value in values.to_pylist()]
    if pa.types.is_boolean(kind):
        text = values.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_decimal(kind):
        scale = kind.scale
        text = decimal_text(values.cast(pa.decimal256(76, scale)).view(pa.decimal256(76, 0)), scale)
    elif pa.types.is_duration(kind):
        return [
            None if value is None else _duration_text(value, column.type.scale)
            for value in values.cast(pa.int64()).to_pylist()
        ]
    elif pa.types.is_timestamp(kind):
        plain = values.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
        text = pc.utf8_slice_codeunits(plain, 0, 20 + column.type.scale if column.type.scale else 19)
        if oid == types.DATETIME:  # the upstream shows no fraction of zeros for it, unlike a TIMESTAMP's
            text = pc.replace_substring_regex(text, r"\.0+$", "")
    elif pa.types.is_list(kind):
        return [
            None if value is None else "[" + ", ".join(_number(item, kind) for item in value) + "]"
            for value in values.to_pylist()
        ]
    elif pa.types.is_floating(kind):
        return _float_texts(values)
    else:
        text = values.cast(pa.string())
    return text.to_pylist()


def _float_texts(values: pa.Array) -> list[Any]:
    """Numbers without an exponent, as the upstream writes them."""
    texts = values.cast(pa.string()).to_pylist()
    if any(text is not None and "e" in text for text in texts):
        kind = pa.list_(values.type)
        numbers = zip(texts, values.to_pylist(), strict=True)
        texts = [text if text is None or "e" not in text else _number(number, kind) for text, number in numbers]
    return texts


def _number(value: float, kind: pa.DataType) -> str:
    number = np.float32(value) if kind.value_type == pa.float32() else np.float64(value)
    return np.format_float_positional(number, trim="-")


def _duration_text(microseconds: int, digits: int) -> str:
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    text = f"{'-' if microseconds < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}"[: len(text) + 1 + digits] if digits else text
