"""What was loaded into a table, as the server can count it again: rows, and of each column whose sum has one meaning on
both sides how many values are not null, the sum of numbers, the lengths of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.schema import Column
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.figures import Figures, Summing

EXACT = Context(prec=160)  # a sum of many values of 76 digits is not rounded
_INTEGERS = frozenset((*range(types.INT8, types.INT64 + 1), *range(types.UINT8, types.UINT64 + 1)))
_DECIMALS = frozenset({types.DECIMAL64, types.DECIMAL128})
_TEXTS = frozenset({types.VARCHAR, types.TEXT, types.BLOB, types.VARBINARY})  # CHAR loses blanks at its end


@dataclass(frozen=True, slots=True)
class Count:
    """A figure of a column: `values` that are not null, the `sum` of numbers, or `bytes` of texts."""

    column: str
    kind: str

    @property
    def expression(self) -> str:
        name = in_backquotes(self.column)
        return {"values": f"COUNT({name})", "sum": f"SUM({name})"}.get(self.kind, f"SUM(LENGTH({name}))")

    def of(self, values: pa.Array) -> Decimal:
        if self.kind == "values":
            return Decimal(len(values) - values.null_count)
        if self.kind == "bytes":
            return Decimal(pc.sum(pc.binary_length(values)).as_py() or 0)
        scale = values.type.scale if pa.types.is_decimal(values.type) else 0
        return Decimal(pc.sum(values.cast(pa.decimal256(76, scale))).as_py() or 0)


class Tally:
    """Counts one table while it is loaded, by any number of threads.

    Parameters
    ----------
    columns : the user's; those that this release knows can be read.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._summing, self._lock = Summing(arrow_schema(columns)), Lock()
        self.counts = [Count(column.name, kind) for column in columns for kind in _kinds(column)]
        self._sums = [Decimal(0)] * len(self.counts)

    def add(self, read: pa.Table, given: pa.Table) -> None:
        """Rows as they were read, and as they are given to the server."""
        with self._lock:
            self._summing.add(read)
            for number, count in enumerate(self.counts):
                for piece in given.column(count.column).chunks:
                    self._sums[number] = EXACT.add(self._sums[number], count.of(piece))

    @property
    def figures(self) -> Figures:
        return self._summing.figures()

    @property
    def expressions(self) -> list[str]:
        return ["COUNT(*)", *(count.expression for count in self.counts)]

    def differs(self, found: Sequence[object]) -> str:
        """How what the server counted differs, for people; empty if it does not. `found`: of `expressions`."""
        rows, *others = (Decimal(str(value if value is not None else 0)) for value in found)
        if rows != self.figures.rows:
            return f"{rows:,} rows instead of {self.figures.rows:,}"
        for count, expected, value in zip(self.counts, self._sums, others, strict=True):
            if value != expected:
                return f"column {count.column}: its {count.kind} are {value} instead of {expected}"
        return ""


def _kinds(column: Column) -> Sequence[str]:
    if column.type.oid in _INTEGERS | _DECIMALS and not column.labels:
        return ("values", "sum")
    return ("values", "bytes") if column.type.oid in _TEXTS else ("values",)
