"""Arrow rows as the text that LOAD DATA reads, exact for every value, without a loop over rows.

The text is CSV as `pyarrow.csv` writes it: every value in double quotes, which are doubled inside; a backslash is
doubled, since it is the escape of LOAD DATA; NULL is \\N without quotes. So a text may hold anything: `\\N`, `NULL`,
quotes, line ends, zero bytes.

A column's text depends on both sides: the Arrow type as the reader gives it (`ccpr.matrixone.objects.types`), and the
target's type.

* Bytes are hexadecimal digits, and LOAD DATA applies UNHEX; a bit column is a number, and LOAD DATA applies CAST.
* Float and double have the digits that read back as the same bits, except -0, which MariaDB stores as 0. A float is
  written as a double, because the server reads it as one.
* Decimals never have an exponent. Vectors are `[1, 2.5]` without exponents, as MatrixOne prints them.
* A timestamp is its UTC time, a time of day may have more than 24 hours, a year has four digits.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ccpr.matrixone.ddl.definition import ColumnDefinition
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import decimal_text
from ccpr.matrixone.objects.time_text import time_text
from ccpr.matrixone.objects.zero_dates import is_zero_date
from ccpr.matrixone.schema import Column, Table
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.targets.errors import DeltaUnfit, TargetValueRefused

FORMAT = "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
_WRITE = pyarrow.csv.WriteOptions(include_header=False, batch_size=16_384, null_string="\\N", quoting_style="all_valid")
_FIRST_DAY, _DAY_AFTER_LAST = -719_528, 2_932_897  # since 1970: 0000-01-01, and the day after 9999-12-31
_TEXTS = ("varchar", "longtext")
_BYTES_A_PIECE = 8 << 20  # in Arrow's memory; the text is about twice as long
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), "<u2")


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
    for table in rows:
        names = set(table.schema.names)
        missing = [column.arrow_name for column in columns if column.arrow_name not in names]
        if missing:
            raise DeltaUnfit(f"the rows have no column {', '.join(missing)}", subject=subject)
        if table.num_rows == 0:
            continue
        step = max(1, table.num_rows * _BYTES_A_PIECE // max(1, table.nbytes))
        for start in range(0, table.num_rows, step):
            piece = table.slice(start, step)
            arrays = texts_of(piece, columns, subject)
            sink = pa.BufferOutputStream()
            pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(arrays, [column.name for column in columns]), sink, _WRITE)
            yield sink.getvalue()


def texts_of(piece: pa.Table | pa.RecordBatch, columns: Sequence[LoadColumn], subject: str) -> list[pa.Array]:
    """The values of each column as they are written: numbers and times as Arrow writes them, texts with backslashes
    doubled, bytes as hexadecimal digits. Raises DeltaUnfit and TargetValueRefused."""
    return [_as_csv(_whole(piece.column(column.arrow_name)), column, subject) for column in columns]


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _as_csv(values: pa.Array, column: LoadColumn, subject: str) -> pa.Array:
    """Values that `write_csv` writes in the way the target has to read them."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hexadecimal(values.cast(pa.binary()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _escaped(values)
    if pa.types.is_decimal(kind):
        return _decimals(values)
    if pa.types.is_floating(kind):
        return _finite(values.cast(pa.float64()), column, subject)
    if pa.types.is_list(kind):
        return _vectors(values)
    if pa.types.is_timestamp(kind):
        plain = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
        return _in_calendar(plain, "0000-00-00 00:00:00", column, subject)
    if pa.types.is_duration(kind):
        return time_text(values, column.source.type.scale if column.source else 6)
    if column.source is not None and column.source.type.oid == types.YEAR:
        return pc.utf8_lpad(values.cast(pa.string()), 4, "0")  # '0' would be the year 2000
    if pa.types.is_date32(kind):
        return _in_calendar(values, "0000-00-00", column, subject)
    if pa.types.is_integer(kind):
        return values
    raise DeltaUnfit(f"column {column.arrow_name} is of type {kind}", subject=subject)


def _in_calendar(values: pa.Array, text: str, column: LoadColumn, subject: str) -> pa.Array:
    """Dates or times; as text with this one for zero dates if there are any. Raises TargetValueRefused for those
    outside the years 0 to 9999, which a target can keep as text only."""
    zero = is_zero_date(values)
    days = (pa.scalar(day, pa.int32()).cast(pa.date32()) for day in (_FIRST_DAY, _DAY_AFTER_LAST))
    first, end = (day.cast(values.type) for day in days)
    outside = pc.or_(pc.less(values, first), pc.greater_equal(values, end))
    if column.target.type.name not in _TEXTS and pc.any(pc.and_(outside, pc.invert(zero))).as_py():
        raise TargetValueRefused(
            f"column {column.name} has a date outside the years 0 to 9999, which the target cannot store",
            subject=subject,
        )
    return pc.if_else(zero, text, values.cast(pa.string())) if pc.any(zero).as_py() else values


def _hexadecimal(values: pa.Array) -> pa.Array:
    if len(values) == 0:
        return pa.array([], pa.large_string())
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    first, last = int(ends[0]), int(ends[-1])
    digits = _HEX[np.frombuffer(data, np.uint8, last - first, first)] if last > first else np.empty(0, "<u2")
    starts = (ends.astype(np.int64) - first) * 2
    hexadecimal = pa.Array.from_buffers(
        pa.large_string(), len(values), [None, pa.py_buffer(starts), pa.py_buffer(digits)]
    )
    return (
        pc.if_else(values.is_valid(), hexadecimal, pa.scalar(None, pa.large_string()))
        if values.null_count
        else hexadecimal
    )


def _escaped(values: pa.Array) -> pa.Array:
    has_backslash = pc.any(pc.match_substring(values, "\\")).as_py()
    return pc.replace_substring(values, "\\", "\\\\") if has_backslash else values


def _decimals(values: pa.Array) -> pa.Array:
    scale = values.type.scale
    if scale <= 6:  # Arrow writes an exponent only below 0.000001
        return values.cast(pa.string())
    return decimal_text(values.cast(pa.decimal256(76, scale)).view(pa.decimal256(76, 0)), scale)


def _finite(values: pa.Array, column: LoadColumn, subject: str) -> pa.Array:
    if not pc.all(pc.is_finite(values)).as_py() and pc.any(pc.invert(pc.is_finite(values))).as_py():
        raise TargetValueRefused(
            f"column {column.name} has a NaN or an infinity, which the target cannot store", subject=subject
        )
    return values


def _vectors(values: pa.Array) -> pa.Array:
    items = plain_floats(values.flatten())
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    texts = pa.ListArray.from_arrays(pa.array(offsets), items.cast(pa.string()))
    joined = pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", "")
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, pa.string())) if values.null_count else joined


def plain_floats(values: pa.Array) -> pa.Array:
    """Shortest digits that read back equal, never an exponent: 1e-07 is 0.0000001. One pass for each exponent that
    occurs."""
    text = values.cast(pa.string())
    with_exponent = pc.match_substring(text, "e")
    if not pc.any(with_exponent).as_py():
        return text
    parts = pc.extract_regex(
        text.filter(with_exponent), r"^(?P<sign>-?)(?P<whole>\d)(?:\.(?P<rest>\d+))?e(?P<power>[+-]?\d+)$"
    )
    sign, whole, rest, power = (parts.field(number) for number in range(4))
    digits = pc.binary_join_element_wise(whole, rest, "")
    powers = pc.utf8_ltrim(power, "+").cast(pa.int32())
    plain = digits
    for exponent in pc.unique(powers).to_pylist():
        mask = pc.equal(powers, exponent)
        chosen = digits.filter(mask)
        if exponent < 0:
            written = pc.binary_join_element_wise("0." + "0" * (-exponent - 1), chosen, "")
        else:
            point = exponent + 1
            padded = pc.utf8_rpad(chosen, point, "0")
            fraction = pc.utf8_slice_codeunits(padded, point)
            dot = pc.if_else(pc.equal(pc.utf8_length(fraction), 0), "", ".")
            written = pc.binary_join_element_wise(pc.utf8_slice_codeunits(padded, 0, point), dot, fraction, "")
        plain = pc.replace_with_mask(plain, mask, written)
    return pc.replace_with_mask(text, with_exponent, pc.binary_join_element_wise(sign, plain, ""))
