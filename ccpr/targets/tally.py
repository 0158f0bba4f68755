"""What was loaded into a table, as the server can count it again: rows, and of each column how many values are not null
and the sum of the CRC-32 of what is stored, as text or bytes. The sum does not depend on the order of rows. A column
whose values the server writes in a way of its own is only counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.crc32 import crc32_sum
from ccpr.mirror.row_sums import RowSum, Summing
from ccpr.schema.choices import Dialect
from ccpr.targets.encoding import LoadColumn, for_target
from ccpr.values.cells import Form, cells, plain_floats

_STORED = Form("", ("", ""), server=True)  # a null adds nothing to a sum, as an empty text does
_AS_THEY_ARE = frozenset(
    ("varchar", "char", "longtext", "text", "tinytext", "varbinary", "longblob", "blob", "enum", "set")
)
_FLOATS, _VECTORS = ("float", "double"), ("vecf32", "vecf64")
_ROWS = 1 << 14  # at once: what is made of them stays in the cache


@dataclass(frozen=True, slots=True)
class Count:
    """A column as a server of this dialect has it."""

    column: LoadColumn
    dialect: Dialect

    @property
    def is_summed(self) -> bool:
        kind = self.column.target.type.name
        if self.dialect is Dialect.MATRIXONE:
            return not kind.startswith("vec") or kind in _VECTORS
        return kind != "json"

    @property
    def expressions(self) -> tuple[str, ...]:
        name, kind = in_backquotes(self.column.name), self.column.target.type.name
        counted = f"COUNT({name})"
        if not self.is_summed:
            return (counted,)
        if self.dialect is not Dialect.MATRIXONE:
            stored = {"bit": f"{name} + 0", "float": f"{name} + 0e0", "double": f"{name} + 0e0"}.get(kind, name)
        elif kind in _AS_THEY_ARE or kind in _VECTORS:
            stored = name
        else:
            inner = {"bit": f"CAST({name} AS UNSIGNED)", "float": f"CAST({name} AS DOUBLE)"}.get(kind, name)
            stored = f"CAST({inner} AS TEXT)"
        return counted, f"SUM(CRC32({stored}))"

    def of(self, rows: pa.Table, subject: str) -> tuple[int, ...]:
        """The values of the expressions for these rows."""
        column = rows.column(self.column.arrow_name)
        counted = len(column) - column.null_count
        if not self.is_summed:
            return (counted,)
        stored = _stored(rows, self.column, self.dialect, subject)
        return counted, sum(map(crc32_sum, stored.chunks if isinstance(stored, pa.ChunkedArray) else [stored]))


class TableTally:
    """Counts one table while it is loaded, by any number of threads.

    Parameters
    ----------
    columns : the user's; those that this release knows can be read.
    """

    def __init__(self, columns: Sequence[LoadColumn], dialect: Dialect, subject: str) -> None:
        sources = [column.source for column in columns if column.source is not None]
        self._summing, self._lock, self._subject = Summing(arrow_schema(sources)), Lock(), subject
        self._counts = [Count(column, dialect) for column in columns if column.source is not None]
        self._sums = [(0,) * len(count.expressions) for count in self._counts]

    def add(self, read: pa.Table, given: pa.Table) -> None:
        """Rows as they were read, and as they are given to the server."""
        for start in range(0, given.num_rows, _ROWS):
            piece, source = given.slice(start, _ROWS), read.slice(start, _ROWS)
            found = [count.of(piece, self._subject) for count in self._counts]
            with self._lock:
                self._summing.add(source)
                pairs = zip(self._sums, found, strict=True)
                self._sums = [tuple(map(sum, zip(*pair, strict=True))) for pair in pairs]

    @property
    def row_sum(self) -> RowSum:
        return self._summing.row_sum()

    @property
    def expressions(self) -> list[str]:
        return ["COUNT(*)", *(text for count in self._counts for text in count.expressions)]

    @property
    def only_counted(self) -> list[str]:
        """The columns whose values are not compared."""
        return [count.column.name for count in self._counts if not count.is_summed]

    def differs(self, found: Sequence[object]) -> str:
        """How what the server counted differs, for people; empty if it does not. `found`: of `expressions`."""
        rows, *others = (int(str(value if value is not None else 0)) for value in found)
        if rows != self.row_sum.rows:
            return f"{rows:,} rows instead of {self.row_sum.rows:,}"
        for count, (expected, *total) in zip(self._counts, self._sums, strict=True):
            counted, *there = (others.pop(0) for _ in count.expressions)
            if counted != expected:
                return f"column {count.column.name}: {counted:,} values that are not null instead of {expected:,}"
            if there != total:
                return f"column {count.column.name}: as many values, and others"
        return ""


def _stored(rows: pa.Table, column: LoadColumn, dialect: Dialect, subject: str) -> pa.Array | pa.ChunkedArray:
    """The bytes or texts of a column's values, as the server takes them into CRC32()."""
    values, target = rows.column(column.arrow_name), column.target.type
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return values
    if dialect is Dialect.MATRIXONE and target.name in _VECTORS:
        return pa.chunked_array([_content(chunk) for chunk in values.chunks], pa.large_binary())
    if target.name in _FLOATS:
        return _float_text(values.combine_chunks().cast(pa.float64()), dialect)
    digits = target.parameters[0] if target.parameters else 0
    text = cells(for_target(rows, column, subject), _STORED, digits=digits).text
    if target.name not in ("datetime", "timestamp"):
        return text
    text = pc.if_else(pc.equal(text, "0000-00-00 00:00:00"), "0000-00-00 00:00:00.000000", text)
    return pc.utf8_slice_codeunits(text, 0, 20 + digits if digits else 19)


def _content(values: pa.Array) -> pa.Array:
    """The bytes of each vector."""
    values = values.cast(pa.large_list(values.type.value_type))
    width = values.type.value_type.bit_width // 8
    ends = pc.multiply(values.offsets, width)
    validity = pc.if_else(values.is_valid(), True, None)
    buffers = [None, ends.buffers()[1], values.values.buffers()[1]]
    content = pa.Array.from_buffers(pa.large_binary(), len(values), buffers, offset=0)
    return pc.if_else(validity, content, pa.scalar(None, pa.large_binary()))


def _float_text(values: pa.Array, dialect: Dialect) -> pa.Array:
    """The shortest digits that read back equal, as the servers write them: without an exponent from 1e-15 to 1e15, and
    in MySQL and MariaDB as long as there are digits behind the point. Their -0 is 0."""
    if dialect.speaks_mysql:
        values = pc.add(values, 0.0)
    text = values.cast(pa.string())
    with_exponent = pc.match_substring(text, "e")
    if not pc.any(with_exponent).as_py():
        return text
    odd, written = values.filter(with_exponent), text.filter(with_exponent)
    size = pc.abs(odd)
    is_plain = pc.and_(pc.less(size, 1e15), pc.greater_equal(size, 1e-15))
    if dialect.speaks_mysql:
        is_plain = pc.or_(is_plain, pc.and_(pc.greater_equal(size, 1e15), pc.not_equal(pc.trunc(odd), odd)))
        short = pc.replace_substring(written, "e+", "e")
    else:
        short = pc.replace_substring(written, "e", "E")
    return pc.replace_with_mask(text, with_exponent, pc.if_else(is_plain, plain_floats(odd), short))
