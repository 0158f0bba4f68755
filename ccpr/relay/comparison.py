"""A copy in another cluster compared with the point that it was made from: rows counted there and by our reader, and
sums for each column whose sum has one meaning on both sides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.schema import Column, Kind
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.mirror import Mirror
from ccpr.relay.downstream import Downstream
from ccpr.relay.errors import CopyDiffers
from ccpr.relay.served_points import ServedPoint


class CompareBy(StrEnum):
    """How a copy is compared."""

    NONE = "none"
    COUNT = "count"
    SUM = "sum"  # and how many values of each column are not null, sums of numbers, lengths of texts


_DECIMALS = frozenset({types.DECIMAL64, types.DECIMAL128})
_EXACT = Context(prec=160)  # a sum of many values of 76 digits is not rounded
_TEXTS = frozenset({types.CHAR, types.VARCHAR, types.TEXT, types.BLOB, types.VARBINARY})


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of one column: how the other cluster computes it, and how we do."""

    column: Column
    kind: str

    @property
    def expression(self) -> str:
        name = in_backquotes(self.column.name)
        return {"values": f"COUNT({name})", "sum": f"SUM(CAST({name} AS DECIMAL(38, {self._scale})))"}.get(
            self.kind, f"SUM(LENGTH({name}))"
        )

    @property
    def _scale(self) -> int:
        return max(0, self.column.type.scale) if self.column.type.oid in _DECIMALS else 0

    def of(self, values: pa.Array) -> Decimal:
        if self.kind == "values":
            return Decimal(len(values) - values.null_count)
        if self.kind == "bytes":
            stored = stored_bytes(values) if pa.types.is_string(values.type) else values
            return Decimal(pc.sum(pc.binary_length(stored)).as_py() or 0)
        scale = values.type.scale if pa.types.is_decimal(values.type) else 0
        return Decimal(pc.sum(values.cast(pa.decimal256(76, scale))).as_py() or 0)


def compare(mirror: Mirror, state: ServedPoint, downstream: Downstream, database: str, check: CompareBy) -> int:
    """Raises CopyDiffers, which names the first table that differs. Returns how many rows were counted."""
    if check is CompareBy.NONE:
        return 0
    total = 0
    for table_id, table in sorted(state.tables.items()):
        if table.kind is not Kind.TABLE:
            continue
        figures = list(_figures(table.user_columns)) if check is CompareBy.SUM else []
        rows, ours = _ours(mirror, state, table_id, figures)
        counted, *theirs = downstream.figures(database, table.name, ["COUNT(*)", *(one.expression for one in figures)])
        subject = f"table {database}.{table.name}"
        if int(counted or b"0") != rows:
            raise CopyDiffers(f"it has {int(counted or b'0')} rows, the point has {rows}", subject=subject)
        for figure, expected, cell in zip(figures, ours, theirs, strict=True):
            if Decimal((cell or b"0").decode()) != expected:
                message = f"column {figure.column.name}: its {figure.kind} are another than at the point"
                raise CopyDiffers(message, subject=subject)
        total += rows
    return total


def _figures(columns: Sequence[Column]) -> Iterator[_Figure]:
    for column in columns:
        if column.unread is not None:
            continue
        yield _Figure(column, "values")
        if column.type.oid in types.WHOLE_NUMBERS | _DECIMALS and not column.labels:
            yield _Figure(column, "sum")
        elif column.type.oid in _TEXTS:
            yield _Figure(column, "bytes")


def _ours(mirror: Mirror, state: ServedPoint, table_id: int, figures: Sequence[_Figure]) -> tuple[int, list[Decimal]]:
    """How many rows the table has at the point, and its figures."""
    manifest = mirror.manifest(state.ref(table_id))
    wanted = tuple(dict.fromkeys(figure.column for figure in figures)) or manifest.table.columns[:1]
    rows, sums = 0, [Decimal(0)] * len(figures)
    for batch in mirror.rows(manifest, wanted, state.point.at):
        rows += batch.num_rows
        for number, figure in enumerate(figures):
            sums[number] = _EXACT.add(sums[number], figure.of(batch.column(wanted.index(figure.column))))
    return rows, sums
