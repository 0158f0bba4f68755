"""A table of a mirror: its rows at a point as Arrow, Polars, pandas or DuckDB, and what has changed between two."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ccpr.api.changes import Changes, changes_of
from ccpr.api.values import At, plain_at
from ccpr.base.extras import require
from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mirror.errors import BadOption
from ccpr.mirror.filters import FilterTuple
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import TableRead, plan_read

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class Table:
    """A table of a mirror, by its name; made by `Mirror.table`.

    It can be given to everything that takes Arrow streams (`__arrow_c_stream__`), such as `polars.DataFrame(table)`:
    that reads all rows and columns of the newest point.

    Attributes
    ----------
    name : `database.table`.

    Notes
    -----
    All methods that read take the same parameters:

    at : the point: an lsn, a datetime, a text (an lsn or an ISO time), a `Point`; None = the newest. See
        `Mirror.point`.
    columns : names, in the order wanted; None = all of the user's, in declared order.
    filters : tuples `(column, operator, value)`; only rows of which all are true are read. Operators are `=` (also
        `==`), `!=` (also `<>`), `<`, `<=`, `>`, `>=`, `in` and `not in` (a list of values), and without a value
        `is null`, `is not null`. Files and blocks without such a row are not read, as far as their minima and maxima
        show.
    hidden : the server's own key columns, too.

    All of them raise:

    TableMissingInMirror
        The point has no such table, or the table no such column.
    PointNotReached, PointGone
        The mirror, or this table, has not reached the point; the point is no longer retained.
    BadFilter
        A filter names a column that the table does not have, or compares it with a value of another type.
    BadOption
        `at` or `columns` cannot be understood.
    MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, StoreFailed
        A file is missing, is not what was written, or cannot be read. Of a stream: while batches are taken.
    ValueRefused
        A value cannot be read in the way that was asked for (`open_mirror`). While batches are taken.
    """

    def __init__(self, mirror: Mirror, name: str, reading: Reading = DEFAULT_READING) -> None:
        self._mirror, self._reading = mirror, reading
        self.name = name

    def __repr__(self) -> str:
        return f"<ccpr.Table {self.name} of {self._mirror.store.url}>"

    @property
    def schema(self) -> pa.Schema:
        """The user's columns at the newest point, as Arrow types. Of another point: ``to_batches(at=…).schema``."""
        return plan_read(self._mirror, self.name, reading=self._reading).schema

    def to_batches(
        self,
        at: At = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Iterable[FilterTuple] | None = None,
        hidden: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows as a stream, one batch a block (8192 rows as a rule) at most.

        In memory are the batch at hand, 8 bytes for each deleted row, and from an object store the file at hand. The
        point is fixed by the call; errors of files come while batches are taken.
        """
        return self._scan(at, columns, filters, hidden).reader()

    def to_arrow(
        self,
        at: At = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Iterable[FilterTuple] | None = None,
        hidden: bool = False,
    ) -> pa.Table:
        """All rows in memory, in no particular order."""
        return self.to_batches(at, columns=columns, filters=filters, hidden=hidden).read_all()

    def to_polars(
        self,
        at: At = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Iterable[FilterTuple] | None = None,
        hidden: bool = False,
    ) -> "pl.DataFrame":
        """All rows in memory as a `polars.DataFrame`. Raises ExtraMissing without polars."""
        require("polars", "polars")
        import polars

        return polars.DataFrame(self.to_arrow(at, columns=columns, filters=filters, hidden=hidden))

    def to_pandas(
        self,
        at: At = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Iterable[FilterTuple] | None = None,
        hidden: bool = False,
    ) -> "pd.DataFrame":
        """All rows in memory as a `pandas.DataFrame`. Raises ExtraMissing without pandas.

        Whole numbers and bools have pandas' own types with nulls (`Int64`, `boolean`, …): as floats, large numbers
        would lose digits. Times are in microseconds, decimals and dates are Python's.
        """
        require("pandas", "pandas")
        import pandas

        nullable: dict[pa.DataType, Any] = {pa.bool_(): pandas.BooleanDtype()}
        for width in (8, 16, 32, 64):
            nullable[getattr(pa, f"int{width}")()] = getattr(pandas, f"Int{width}Dtype")()
        rows = self.to_arrow(at, columns=columns, filters=filters, hidden=hidden)
        return rows.to_pandas(types_mapper=nullable.get)

    def to_duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: str | None = None,
        at: At = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Iterable[FilterTuple] | None = None,
        hidden: bool = False,
    ) -> "duckdb.DuckDBPyRelation":
        """Register the table in a connection of DuckDB, under its name without the database, or `name`.

        No row is copied: each query reads the files as a stream, always at the point that was the newest, or named,
        at this call. DuckDB does not say which columns and rows a query needs: name them here for a large table.

        Returns
        -------
        duckdb.DuckDBPyRelation
            The registered table.

        Raises
        ------
        ExtraMissing
            duckdb is not installed: ``pip install 'matrixone-ccpr[duckdb]'``.

        An error of a file ends the query with an error of DuckDB, whose text has the code.
        """
        require("duckdb", "duckdb")
        import duckdb

        if not isinstance(connection, duckdb.DuckDBPyConnection):
            message = f"{type(connection).__name__} is not a connection of DuckDB"
            raise BadOption(message, subject=f"table {self.name}", remedy="Give what duckdb.connect() returns.")
        shown = self.name.rpartition(".")[2] if name is None else name
        connection.register(shown, self._scan(at, columns, filters, hidden))
        return connection.table(quoted(shown))

    def changes(self, since: At, until: At = None) -> Changes:
        """What leads the rows of the table from one point to another, by key.

        The table is the one that has the name at `until`, or, if none has it there, at `since`. It is found at the
        other point by its identity, whatever it was called there:

        * It was not there yet: all rows are upserts.
        * It was dropped: all rows are deletes.
        * It was renamed: only what changed in its rows.
        * It was truncated, rewritten by an ALTER, or dropped and created again: all its rows at `until` are upserts,
          and keys of rows at `since` that it no longer has are deletes.

        Parameters
        ----------
        since, until : see `Mirror.point`. `since` None = before the first point: all rows are upserts. `until` None =
            the newest point.

        Raises
        ------
        PointNotReached
            The mirror has not reached a point, or the table lags at one.
        PointGone
            The point `since` is no longer retained: read the table whole.
        TableMissingInMirror
            Neither point has such a table.
        KeyChanged
            The table was replaced by one with another key: read it whole.
        BadOption
            `since` is later than `until`.
        ValueRefused
            A key is a value that the reading (`open_mirror`) would change, so that nothing could be found by it: a zero
            date as null, text that is not UTF-8 with replacement characters. By this call where such dates were counted
            when the files came, else while batches are taken. `zero_dates="keep"` and `invalid_text="escape"` or
            ``"binary"`` give every key as it is, in rows and in changes alike.
        MirrorDamaged, ObjectDamaged, ObjectMismatch, StoreFailed
            A file is missing, is not what was written, or cannot be read.
        """
        return changes_of(self._mirror, self.name, since, until, self._reading)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._scan(None, None, None, hidden=False).__arrow_c_stream__(requested_schema)

    def _scan(
        self, at: At, columns: Sequence[str] | None, filters: Iterable[FilterTuple] | None, hidden: bool
    ) -> "_Scan":
        options: dict[str, Any] = {"columns": columns, "filters": filters or (), "hidden": hidden}
        read = plan_read(self._mirror, self.name, plain_at(at), **options, reading=self._reading)
        return _Scan(self._mirror, read)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A read that can be repeated: each stream begins at the start, and shows the same point."""

    mirror: Mirror
    read: TableRead

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.read.schema, self.read.batches(mirror=self.mirror))

    def __arrow_c_schema__(self) -> object:
        return self.read.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)
