"""Column types: their slots in a file and their Arrow types. docs/format/object-file.md 3.1, 4.

The reader returns only `string`, `binary` and `list` with 32-bit offsets, since Spark accepts no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.schema import Column, Table

if TYPE_CHECKING:  # `ccpr status` asks which columns can be read, and needs no Arrow
    import pyarrow as pa

BOOL, BIT = 10, 11
INT8, INT16, INT32, INT64 = 20, 21, 22, 23
UINT8, UINT16, UINT32, UINT64 = 25, 26, 27, 28  # UINT64 with labels is a set
FLOAT32, FLOAT64 = 30, 31
DECIMAL64, DECIMAL128, DECIMAL256 = 32, 33, 34
DATE, TIME, DATETIME, TIMESTAMP, YEAR = 50, 51, 52, 53, 55
CHAR, VARCHAR, JSON, UUID, BINARY, VARBINARY, ENUM, GEOMETRY, GEOMETRY32 = 60, 61, 62, 63, 64, 65, 66, 67, 68
BLOB, TEXT, DATALINK = 70, 71, 72
TS, ROWID, BLOCK_ID = 100, 101, 102
VECF32, VECF64, VECBF16, VECF16, VECINT8, VECUINT8 = 224, 225, 226, 227, 228, 229

VECTOR_TYPES = frozenset((VECF32, VECF64, VECBF16, VECF16, VECINT8, VECUINT8))
GEOMETRY_TYPES = frozenset((GEOMETRY, GEOMETRY32))
SIGNED = frozenset((INT8, INT16, INT32, INT64, DECIMAL64, DATE, TIME, DATETIME, TIMESTAMP, YEAR))  # numbers in slots
UNSIGNED = frozenset((UINT8, UINT16, UINT32, UINT64, BIT, ENUM))
WHOLE_NUMBERS = frozenset((INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64))
TEXT_TYPES = frozenset((CHAR, VARCHAR, TEXT, DATALINK))
BINARY_TYPES = frozenset((BINARY, VARBINARY, BLOB))
VARLENA_TYPES = TEXT_TYPES | BINARY_TYPES | VECTOR_TYPES | GEOMETRY_TYPES | {JSON}
BINARY_CHARSET = BINARY_TYPES | GEOMETRY_TYPES  # types that the server stores with the charset binary
ZERO_DATE_TYPES = frozenset((DATE, DATETIME, TIMESTAMP))  # stored as -1: the zero value `0000-00-00`

SLOT_SIZES = {
    **dict.fromkeys((BOOL, INT8, UINT8), 1),
    **dict.fromkeys((INT16, UINT16, YEAR, ENUM), 2),
    **dict.fromkeys((INT32, UINT32, FLOAT32, DATE), 4),
    **dict.fromkeys((BIT, INT64, UINT64, FLOAT64, DECIMAL64, TIME, DATETIME, TIMESTAMP), 8),
    TS: 12,
    **dict.fromkeys((DECIMAL128, UUID), 16),
    BLOCK_ID: 20,
    **dict.fromkeys((*VARLENA_TYPES, ROWID), 24),
    DECIMAL256: 32,
}

MAX_PRECISION = {DECIMAL64: 18, DECIMAL128: 38, DECIMAL256: 76}  # that can be declared
MOST_DIGITS = {DECIMAL64: 19, DECIMAL128: 39, DECIMAL256: 77}  # that a slot can hold, whatever is declared
ARROW_PRECISION = 38  # of Arrow's decimal128 and of Spark's decimal


def is_packed(column: Column) -> bool:
    """Whether a column declared as varchar holds packed keys (8) and not text: the hidden key columns, and those of
    index tables. No name says so: a user's column may be called `__mo_x` (docs/upstream.md)."""
    return column.type.oid in (CHAR, VARCHAR) and (column.hidden or column.indexed)


def is_set(column: Column) -> bool:
    return column.type.oid == UINT64 and bool(column.labels)


def decimal_digits(column: Column) -> int:
    """How many digits the values of a decimal column have at most: what is declared, or more if more is stored."""
    return min(max(column.type.width, column.digits), MOST_DIGITS[column.type.oid])


def is_decimal_text(column: Column) -> bool:
    """Whether a decimal is read as text, because it has more digits than Arrow's decimal128 and Spark's decimal."""
    oid = column.type.oid
    return oid == DECIMAL256 or (oid in MOST_DIGITS and decimal_digits(column) > ARROW_PRECISION)


@cache
def plain_types() -> "dict[int, pa.DataType]":
    """By OID, without the decimals."""
    import pyarrow as pa

    return {
        BOOL: pa.bool_(),
        BIT: pa.decimal128(20, 0),
        INT8: pa.int8(),
        INT16: pa.int16(),
        INT32: pa.int32(),
        INT64: pa.int64(),
        UINT8: pa.int16(),
        UINT16: pa.int32(),
        UINT32: pa.int64(),
        UINT64: pa.decimal128(20, 0),
        FLOAT32: pa.float32(),
        FLOAT64: pa.float64(),
        DATE: pa.date32(),
        TIME: pa.duration("us"),
        DATETIME: pa.timestamp("us"),
        TIMESTAMP: pa.timestamp("us", "UTC"),
        YEAR: pa.int16(),
        JSON: pa.string(),
        UUID: pa.string(),
        ENUM: pa.string(),
        TS: pa.binary(SLOT_SIZES[TS]),
        ROWID: pa.binary(SLOT_SIZES[ROWID]),
        BLOCK_ID: pa.binary(SLOT_SIZES[BLOCK_ID]),
        **dict.fromkeys((VECF32, VECBF16, VECF16), pa.list_(pa.float32())),
        VECF64: pa.list_(pa.float64()),
        VECINT8: pa.list_(pa.int8()),
        VECUINT8: pa.list_(pa.int16()),
        **dict.fromkeys(GEOMETRY_TYPES, pa.string()),
        **dict.fromkeys(TEXT_TYPES, pa.string()),
        **dict.fromkeys(BINARY_TYPES, pa.binary()),
    }


def arrow_type(column: Column) -> "pa.DataType":
    """The Arrow type of a column; raises `ObjectUnsupported` for a column type that has none."""
    import pyarrow as pa

    if (reason := _unsupported(column)) is not None:
        raise ObjectUnsupported(reason, subject=f"column {column.name}")
    if is_packed(column):
        return pa.binary()
    if is_set(column) or is_decimal_text(column):
        return pa.string()
    if column.type.oid in MAX_PRECISION:
        return pa.decimal128(decimal_digits(column), column.type.scale)
    return plain_types()[column.type.oid]


def _unsupported(column: Column) -> str | None:
    """Why a column's type cannot be read; None if it can."""
    oid, precision, scale = column.type.oid, column.type.width, column.type.scale
    if oid in MAX_PRECISION and not (0 < precision <= MAX_PRECISION[oid] and 0 <= scale <= precision):
        return f"decimal({precision},{scale}) of type {oid} is not known to this release"
    return None if oid in SLOT_SIZES else f"type {oid} is not known to this release"


def unreadable_columns(columns: Iterable[Column]) -> dict[str, str]:
    """Names of the columns that this release cannot read because of their types, with the reason; and of columns with
    a file whose form was not known when it was copied. They are copied like others: a release that knows type or
    form reads them from the same mirror."""
    found = {}
    for column in columns:
        if column.unread is not None:
            found[column.name] = f"{column.unread.reason} ({column.unread.release}), in some of its files"
        if (reason := _unsupported(column)) is not None:
            found[column.name] = reason
    return found


def check_readable(table: Table, columns: Iterable[Column]) -> None:
    """Raises `ObjectUnsupported`, which names column and table, if one of some columns of a table cannot be read."""
    for name, reason in unreadable_columns(replace(column, unread=None) for column in columns).items():
        raise ObjectUnsupported(reason, subject=f"column {name} of table {table.qualified_name}")


def arrow_schema(columns: Sequence[Column]) -> "pa.Schema":
    """The schema of decoded batches. All fields are nullable: columns that an old object lacks read as nulls (2.8)."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column)) for column in columns])
