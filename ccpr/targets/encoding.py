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
import pyarrow.csv

from ccpr.matrixone.ddl.definition import ColumnDefinition
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import is_zero_date
from ccpr.matrixone.schema import Column, Table
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.targets.errors import DeltaUnfit, TargetValueRefused
from ccpr.values.cells import LOAD_DATA, written
from ccpr.values.times import outside_calendar

FORMAT = "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
_WRITE = pyarrow.csv.WriteOptions(include_header=False, batch_size=16_384, null_string="\\N", quoting_style="all_valid")
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
    def digits(self) -> int:
        """Of a second, if it has times of day."""
        return 6 if self.source is None else self.source.type.scale

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
    for table in rows:
        names = set(table.schema.names)
        missing = [column.arrow_name for column in columns if column.arrow_name not in names]
        if missing:
            raise DeltaUnfit(f"the rows have no column {', '.join(missing)}", subject=subject)
        if table.num_rows == 0:
            continue
        step = max(1, table.num_rows * _BYTES_A_PIECE // max(1, table.nbytes))
        for start in range(0, table.num_rows, step):
            piece, sink = table.slice(start, step), pa.BufferOutputStream()
            arrays = [
                written(for_target(piece, column, subject), LOAD_DATA, digits=column.digits) for column in columns
            ]
            pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(arrays, [column.name for column in columns]), sink, _WRITE)
            yield sink.getvalue()


def for_target(rows: pa.Table | pa.RecordBatch, column: LoadColumn, subject: str) -> pa.Array | pa.ChunkedArray:
    """The values as the target is to have them. Raises TargetValueRefused for what it cannot store."""
    values = rows.column(column.arrow_name)
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
