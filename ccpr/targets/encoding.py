"""Arrow rows as the text that LOAD DATA reads, and the values of an INSERT, exact for every value
(`ccpr.values.cells`).

Every value for LOAD DATA is in double quotes, which are doubled inside; a backslash is doubled, since it is the escape
of LOAD DATA; NULL is \\N without quotes. So a text may hold anything: `\\N`, `NULL`, quotes, line ends, zero bytes.

A column's text depends on both sides: the Arrow type as the reader gives it (`ccpr.matrixone.objects.types`), and the
target's type.

* Bytes are hexadecimal digits, and LOAD DATA applies UNHEX; a bit column is a number, and LOAD DATA applies CAST.
* Float and double have the digits that read back as the same bits, except -0, which MariaDB stores as 0. A float is
  written as a double, because the server reads it as one.
* A timestamp is its UTC time, a year has four digits.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.ddl.definition import ColumnDefinition
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.zero_dates import is_zero_date
from ccpr.matrixone.schema import Column, Table
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.targets.errors import DeltaUnfit, TargetValueRefused
from ccpr.values.cells import LOAD_DATA, Cells, Form, content, lines
from ccpr.values.cells import cells as as_cells
from ccpr.values.times import outside_calendar

FORMAT = "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
_TEXTS = ("varchar", "longtext")
_BYTES_A_PIECE = 8 << 20  # in Arrow's memory; the text is about twice as long


@dataclass(frozen=True, slots=True)
class LoadColumn:
    """A column to be loaded into the target.

    Attributes
    ----------
    name : in the target; `arrow_name` is its name in the rows.
    source : as the source declares it; None for the hidden key.
    """

    name: str
    arrow_name: str
    source: Column | None
    target: ColumnDefinition

    @property
    def is_bytes(self) -> bool:
        return self.target.type.name in ("varbinary", "binary", "longblob", "blob")

    @property
    def is_bit(self) -> bool:
        return self.target.type.name == "bit"


def load_columns(
    source: Table, columns: Sequence[ColumnDefinition], hidden_key: str, arrow_key: str
) -> tuple[LoadColumn, ...]:
    """The target's columns with their sources. `hidden_key` is the name of the hidden key column in the target, and
    `arrow_key` its name in the rows. Raises DeltaUnfit.
    """
    by_name = {column.name: column for column in source.user_columns}
    found = []
    for column in columns:
        if column.name in by_name:
            found.append(LoadColumn(column.name, column.name, by_name[column.name], column))
        elif column.name == hidden_key:
            found.append(LoadColumn(column.name, arrow_key, None, column))
        else:
            raise DeltaUnfit(
                f"the source has no column {column.name}, the target has", subject=f"table {source.qualified_name}"
            )
    return tuple(found)


def load_statement(token: str, table: str, columns: Sequence[LoadColumn]) -> str:
    """LOAD DATA for text of these columns. `table` is quoted; `token` is the file name that the server will ask for."""
    places, sets = [], []
    for number, column in enumerate(columns):
        name = quote_name(column.name)
        if column.is_bytes:
            places.append(f"@c{number}")
            sets.append(f"{name} = UNHEX(@c{number})")
        elif column.is_bit:
            places.append(f"@c{number}")
            sets.append(f"{name} = CAST(@c{number} AS UNSIGNED)")
        else:
            places.append(name)
    text = f"LOAD DATA LOCAL INFILE '{token}' INTO TABLE {table} {FORMAT} ({', '.join(places)})"
    return f"{text} SET {', '.join(sets)}" if sets else text


def encode(
    rows: Iterable[pa.Table | pa.RecordBatch], columns: Sequence[LoadColumn], subject: str
) -> Iterator[pa.Buffer]:
    """The text of rows, in pieces of some megabytes. Columns are matched by name. Raises DeltaUnfit and
    TargetValueRefused."""
    between = [","] * (len(columns) - 1)
    for table in rows:
        names = set(table.schema.names)
        missing = [column.arrow_name for column in columns if column.arrow_name not in names]
        if missing:
            raise DeltaUnfit(f"the rows have no column {', '.join(missing)}", subject=subject)
        if table.num_rows == 0:
            continue
        step = max(1, table.num_rows * _BYTES_A_PIECE // max(1, table.nbytes))
        for start in range(0, table.num_rows, step):
            cells = cells_of(table.slice(start, step), columns, LOAD_DATA, subject)
            yield content(lines(cells, "", between, "\n"))


def cells_of(piece: pa.Table | pa.RecordBatch, columns: Sequence[LoadColumn], form: Form, subject: str) -> list[Cells]:
    """The values of each column as `form` has them. Raises DeltaUnfit and TargetValueRefused."""
    found = []
    for column in columns:
        values, digits = _for_target(piece.column(column.arrow_name), column, subject), 6
        if column.source is not None and pa.types.is_duration(values.type):
            digits = column.source.type.scale
        found.append(as_cells(values, form, digits=digits))
    return found


def _for_target(values: pa.Array | pa.ChunkedArray, column: LoadColumn, subject: str) -> pa.Array | pa.ChunkedArray:
    """The values as the target is to have them. Raises TargetValueRefused for what it cannot store."""
    kind = values.type
    if pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(values)).as_py() and pc.any(pc.invert(pc.is_finite(values))).as_py():
            raise TargetValueRefused(
                f"column {column.name} has a NaN or an infinity, which the target cannot store", subject=subject
            )
        return values.cast(pa.float64())
    if column.source is not None and column.source.type.oid == types.YEAR:
        return pc.utf8_lpad(values.cast(pa.string()), 4, "0")  # '0' would be the year 2000
    if (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)) and column.target.type.name not in _TEXTS:
        for piece in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            if pc.any(pc.and_(outside_calendar(piece), pc.invert(is_zero_date(piece)))).as_py():
                raise TargetValueRefused(
                    f"column {column.name} has a date outside the years 0 to 9999, which the target cannot store",
                    subject=subject,
                )
    return values
