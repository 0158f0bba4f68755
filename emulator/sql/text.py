"""Values to and from the text of SQL: literals of statements, cells of result sets."""

import json
import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrixone.objects import types
from matrixone.objects.convert import decimal_text
from matrixone.objects.invalid_text import escaped
from matrixone.schema import Column
from wire.server import BIGINT, BLOB_TEXT, INT, SMALL, TINY, VAR_STRING, Cell, StatementError
from wire.statements import Literal_

_UTF8, _BINARY = 33, 63
_TIME = re.compile(r"(-?)(\d{1,4}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
_DECIMAL, _DATE, _DATETIME, _TIMESTAMP, _MYSQL_TIME, _FLOAT, _DOUBLE, _BIT = 246, 10, 12, 7, 11, 4, 5, 16
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
}


def mysql_type(column: Column) -> int:
    return VAR_STRING if types.is_set(column) else _MYSQL_TYPES.get(column.type.oid, VAR_STRING)


def charset(column: Column) -> int:
    """The character set of the column in a result set: texts are UTF-8, all else is binary, so that a client does not
    decode bytes."""
    is_text = pa.types.is_string(types.arrow_type(column)) and mysql_type(column) in (VAR_STRING, BLOB_TEXT)
    return _UTF8 if is_text else _BINARY


def array_of(column: Column, literals: list[Literal_ | bytes]) -> pa.Array:
    """Literals as the column's values. Raises StatementError 20301 for what is not a value of its type."""
    try:
        return _array(column, literals)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise StatementError(20301, f"invalid input: a value of column {column.name}: {error}") from error


def _array(column: Column, literals: list[Literal_ | bytes]) -> pa.Array:
    kind, oid = types.arrow_type(column), column.type.oid
    if pa.types.is_binary(kind):
        return pa.array([_bytes(value) for value in literals], kind)
    texts = [
        None if value is None else escaped(value) if isinstance(value, bytes) else str(value) for value in literals
    ]
    if oid == types.ENUM:
        known = ["", *column.labels]
        return pa.array(
            [known[value] if isinstance(value, int) else text for value, text in zip(literals, texts, strict=True)],
            kind,
        )
    if oid == types.BOOL:
        return pa.array(
            [
                None if text is None else {"true": 1, "false": 0}.get(text.lower(), text) not in ("0", 0)
                for text in texts
            ],
            kind,
        )
    if oid == types.TIME:
        return pa.array([None if text is None else _duration(text) for text in texts], pa.int64()).cast(kind)
    if oid in types.VECTOR_TYPES:
        return pa.array([None if text is None else json.loads(text) for text in texts], kind)
    strings = pa.array(texts, pa.string())
    if pa.types.is_timestamp(kind):
        return strings.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)
    return strings.cast(kind)


def _bytes(value: Literal_ | bytes) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _duration(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    sign, hours, minutes, seconds, fraction = found.groups()
    total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "0").ljust(6, "0"))
    return -total if sign else total


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
    elif pa.types.is_list(kind):
        return [
            None if value is None else "[" + ", ".join(_number(item, kind) for item in value) + "]"
            for value in values.to_pylist()
        ]
    else:
        text = values.cast(pa.string())
    return text.to_pylist()


def _number(value: float, kind: pa.DataType) -> str:
    number = np.float32(value) if kind.value_type == pa.float32() else np.float64(value)
    return np.format_float_positional(number, trim="-")


def _duration_text(microseconds: int, digits: int) -> str:
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    text = f"{'-' if microseconds < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}"[: len(text) + 1 + digits] if digits else text
