"""What was loaded into a table, as the server can count it again (`ccpr.mirror.column_sums`)."""

from collections.abc import Sequence
from threading import Lock

import pyarrow as pa

from ccpr.matrixone.objects.types import arrow_schema
from ccpr.mirror.column_sums import ColumnSum
from ccpr.mirror.row_sums import RowSum, Summing
from ccpr.schema.choices import Dialect
from ccpr.targets.encoding import LoadColumn, for_target

_ROWS = 1 << 14  # at once: what is made of them stays in the cache


class TableTally:
    """Counts one table while it is loaded, by any number of threads.

    Parameters
    ----------
    columns : the user's; those that this release knows can be read.
    """

    def __init__(self, columns: Sequence[LoadColumn], dialect: Dialect, subject: str) -> None:
        sources = [column.source for column in columns if column.source is not None]
        self._summing, self._lock, self._subject = Summing(arrow_schema(sources)), Lock(), subject
        self._columns = [column for column in columns if column.source is not None]
        self._counts = [ColumnSum(column.name, column.target.type, dialect) for column in self._columns]
        self._sums = [(0,) * len(count.expressions) for count in self._counts]

    def add(self, read: pa.Table, given: pa.Table) -> None:
        """Rows as they were read, and as they are given to the server."""
        for start in range(0, given.num_rows, _ROWS):
            piece, source = given.slice(start, _ROWS), read.slice(start, _ROWS)
            values = (for_target(piece, column, self._subject) for column in self._columns)
            found = [count.of(given) for count, given in zip(self._counts, values, strict=True)]
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
        return [count.name for count in self._counts if not count.is_summed]

    def differs(self, found: Sequence[object]) -> str:
        """How what the server counted differs, for people; empty if it does not. `found`: of `expressions`."""
        rows, *others = (int(str(value if value is not None else 0)) for value in found)
        if rows != self.row_sum.rows:
            return f"{rows:,} rows instead of {self.row_sum.rows:,}"
        for count, (expected, *total) in zip(self._counts, self._sums, strict=True):
            counted, *there = (others.pop(0) for _ in count.expressions)
            if counted != expected:
                return f"column {count.name}: {counted:,} values that are not null instead of {expected:,}"
            if there != total:
                return f"column {count.name}: as many values, and others"
        return ""
