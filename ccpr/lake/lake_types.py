"""The type of each column in a lake: as Delta names it, as Arrow holds it, and from what values of it are made.

Source: decision lake-types.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.types import JSON, TEXT_TYPES, ZERO_DATE_TYPES, arrow_type, is_packed
from ccpr.matrixone.schema import Column, Reading
from ccpr.mirror.as_asked import read_schema

DeltaType: TypeAlias = str | dict[str, Any]
# A column's digits can grow beyond what is declared. Up to 18 an engine holds a decimal in 64 bits.
_NARROW, _WIDE = 18, 38

_SIMPLE: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


@dataclass(frozen=True, slots=True)
class LakeType:
    """
    Attributes
    ----------
    arrow : of what is written.
    delta : as a schema of Delta Lake names it.
    form : what the stored bytes are taken for. While it stays the same, files that were written keep their meaning.
    """

    arrow: pa.DataType
    delta: DeltaType
    form: str


def lake_type(column: Column, reading: Reading) -> LakeType:
    """Raises ObjectUnsupported for a column that this release cannot read."""
    read = read_schema(pa.schema([pa.field(column.name, arrow_type(column))]), [column], reading).field(0).type
    written = _written(read)
    parts = [str(column.type.oid), str(written), *map(repr, column.labels)]
    if column.type.oid in (*TEXT_TYPES, JSON) and not is_packed(column):
        parts.append(reading.invalid_text.value)
    if column.type.oid in ZERO_DATE_TYPES:
        parts.append(reading.zero_dates.value)
    return LakeType(written, _delta(written), "|".join(parts))


def as_written(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as they were read, in the type that is written: a time as its microseconds, a decimal with spare
    digits."""
    return values if values.type == kind else pc.cast(values, kind)


def _written(read: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(read):
        return pa.int64()  # microseconds: a time of MatrixOne can be longer than a day
    if pa.types.is_decimal(read):
        return pa.decimal128(_NARROW if read.precision <= _NARROW else _WIDE, read.scale)
    if pa.types.is_fixed_size_binary(read):
        return pa.binary()
    return read


def _delta(written: pa.DataType) -> DeltaType:
    if pa.types.is_decimal(written):
        return f"decimal({written.precision},{written.scale})"
    if pa.types.is_list(written):
        return {"type": "array", "elementType": _delta(written.value_type), "containsNull": True}
    return _SIMPLE[written]
