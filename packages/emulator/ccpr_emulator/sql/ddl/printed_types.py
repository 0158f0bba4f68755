"""A column's type as DDL writes it."""

import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column


def type_text(column: Column | None, kind: pa.DataType) -> str:
    """The type of a column that a query gives, as DDL writes it."""
    if column is not None:
        return printed_type(column)
    if pa.types.is_decimal(kind):
        return f"decimal({min(kind.precision, 38)},{kind.scale})"
    if pa.types.is_integer(kind):
        return "bigint" if kind.bit_width > 32 else "int"
    for test, text in (
        (pa.types.is_boolean, "bool"),
        (pa.types.is_floating, "double"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "datetime(6)"),
        (pa.types.is_interval, "time(6)"),
        (pa.types.is_binary, "blob"),
    ):
        if test(kind):
            return text
    return "varchar(65535)"


_PRINTED = {
    types.BOOL: "bool", types.INT8: "tinyint", types.INT16: "smallint", types.INT32: "int", types.INT64: "bigint",
    types.UINT8: "tinyint unsigned", types.UINT16: "smallint unsigned", types.UINT32: "int unsigned",
    types.UINT64: "bigint unsigned", types.FLOAT32: "float", types.FLOAT64: "double", types.DATE: "date",
    types.YEAR: "year", types.JSON: "json", types.UUID: "uuid", types.BLOB: "blob", types.TEXT: "text",
    types.DATALINK: "datalink", types.GEOMETRY: "geometry", types.GEOMETRY32: "geometry32",
}  # fmt: skip


_PRINTED_WIDTH = {
    types.CHAR: "char", types.VARCHAR: "varchar", types.BINARY: "binary", types.VARBINARY: "varbinary",
    types.BIT: "bit", types.VECF32: "vecf32", types.VECF64: "vecf64", types.VECBF16: "vecbf16", types.VECF16: "vecf16",
    types.VECINT8: "vecint8", types.VECUINT8: "vecuint8",
}  # fmt: skip


_PRINTED_SCALE = {types.TIME: "time", types.DATETIME: "datetime", types.TIMESTAMP: "timestamp"}


def printed_type(column: Column) -> str:
    """A column's type as DDL writes it."""
    oid = column.type.oid
    if column.labels:
        labels = ",".join("'" + label.replace("'", "''") + "'" for label in column.labels)
        return f"{'set' if types.is_set(column) else 'enum'}({labels})"
    if oid in types.MAX_PRECISION:
        return f"decimal({column.type.width},{column.type.scale})"
    if oid in _PRINTED_SCALE:
        return _PRINTED_SCALE[oid] + (f"({column.type.scale})" if column.type.scale else "")
    return _PRINTED.get(oid) or f"{_PRINTED_WIDTH[oid]}({column.type.width})"
