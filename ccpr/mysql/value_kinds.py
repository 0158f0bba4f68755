"""What kind of value an expression has, as far as MySQL's rules depend on it, and the kind of each column of a table.

DuckDB is asked for texts by bytes, as MatrixOne up to 4.2 compares them, without padding. A table whose definition
names another collation has texts that are shown and not compared.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column, Table

Base: TypeAlias = Literal[
    "int", "uint", "decimal", "double", "text", "date", "datetime", "null", "truth", "opaque"
]  # `truth` is what a condition gives: 1, 0 or NULL in MySQL, BOOLEAN in DuckDB
NUMBERS = frozenset(("int", "uint", "decimal", "double", "truth"))
WHOLE = frozenset(("int", "uint", "truth"))
EXACT = WHOLE | {"decimal"}
OF_LABELS = frozenset(("enum", "set"))

_COLLATION = re.compile(r"\bCOLLATE[ =]+(\w+)", re.IGNORECASE)
_BY_BYTES = re.compile(r"binary|\w+_bin", re.IGNORECASE)
_WHOLE = {
    **dict.fromkeys((types.BOOL, types.INT8, types.INT16, types.INT32, types.INT64, types.YEAR), "int"),
    **dict.fromkeys((types.UINT8, types.UINT16, types.UINT32, types.UINT64), "uint"),
}


@dataclass(frozen=True, slots=True)
class ValueKind:
    """
    Attributes
    ----------
    digits : behind the point, of a decimal or a double that was ROUNDED; of a second, of a moment.
    name : the type's, if more has to be known: of an `opaque` kind, which is shown, counted and asked for NULL, no
        more; `float`; `timestamp`; `enum` and `set`, which are texts but for their order.
    collation : of a text that is not compared by bytes.
    labels : of the column of an enum, in its order; none of what is made of it, whose order is not known.
    """

    base: Base
    digits: int = 0
    name: str = ""
    collation: str = ""
    labels: tuple[str, ...] = ()

    @property
    def is_ordered(self) -> bool:
        return self.base != "opaque" and not self.collation and (bool(self.labels) or self.name not in OF_LABELS)


ROUNDED = "rounded"  # a double that is shown with some digits behind the point, and what is computed of it, too
INT, UINT, DOUBLE, TEXT = ValueKind("int"), ValueKind("uint"), ValueKind("double"), ValueKind("text")
DATE, NULL, TRUTH = ValueKind("date"), ValueKind("null"), ValueKind("truth")


def kinds_of(table: Table) -> dict[str, ValueKind]:
    """By the name of each column that users see."""
    named = (found.group(1) for found in _COLLATION.finditer(table.ddl))
    collation = next((name for name in named if not _BY_BYTES.fullmatch(name)), "")
    return {column.name: _kind_of(column, collation) for column in table.user_columns}


def _kind_of(column: Column, collation: str) -> ValueKind:
    oid, scale = column.type.oid, max(0, column.type.scale)
    if column.labels:
        is_set = types.is_set(column)
        return ValueKind("text", 0, "set" if is_set else "enum", collation, () if is_set else column.labels)
    if oid in _WHOLE:
        return ValueKind(_WHOLE[oid], name={types.BOOL: "bool", types.YEAR: "year"}.get(oid, ""))  # type: ignore[arg-type]
    if oid in (types.FLOAT32, types.FLOAT64):
        return ValueKind("double", name="float" if oid == types.FLOAT32 else "")
    if oid in types.MAX_PRECISION:
        return ValueKind("opaque", name="decimal") if types.is_decimal_text(column) else ValueKind("decimal", scale)
    if oid == types.DATE:
        return DATE
    if oid in (types.DATETIME, types.TIMESTAMP):
        return ValueKind("datetime", scale, "timestamp" if oid == types.TIMESTAMP else "")
    if oid in types.TEXT_TYPES:
        return ValueKind("text", collation=collation)
    names = {types.TIME: "time", types.BIT: "bit", types.JSON: "json", types.UUID: "uuid"}
    if oid in types.BINARY_TYPES:
        return ValueKind("opaque", name="binary")
    if oid in types.VECTOR_TYPES:
        return ValueKind("opaque", name="vector")
    return ValueKind("opaque", scale, names.get(oid, "geometry" if oid in types.GEOMETRY_TYPES else "unknown"))
