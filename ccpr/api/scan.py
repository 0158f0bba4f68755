"""What is to be read of a table, decided and not yet read: a scan."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ccpr.base.errors import require
from ccpr.mirror.errors import BadOption
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import TableRead, count_rows, first_rows, with_json

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class Scan:
    """A read of a table; made by `Table.scan`, which has fixed the point, the columns and the filters.

    No file with rows has been opened. Every call reads anew, and shows the same point. It can be given to everything
    that takes Arrow streams (`__arrow_c_stream__`), such as `polars.DataFrame(scan)`.

    Attributes
    ----------
    table : `database.table`, at the point.
    lsn : of the point.
    limit : how many rows are read at most; None = all.

    Notes
    -----
    All that read raise MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported or StoreFailed if a file is
    missing, is not what was written, or cannot be read, and ValueRefused if a value cannot be read in the way that was
    asked for (`open_mirror`). Of a stream these come while batches are taken.
    """

    def __init__(self, mirror: Mirror, read: TableRead, limit: int | None = None) -> None:
        self._mirror, self._read = mirror, read
        self.table, self.lsn, self.limit = read.ref.qualified_name, read.lsn, limit

    def __repr__(self) -> str:
        return f"<ccpr.Scan of {self.table} at point {self.lsn}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow types."""
        return self._read.schema

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream, in batches of a block (8192 rows as a rule) or of some, up to 4 MB.

        In memory are the batch at hand, 8 bytes for each deleted row, and from an object store the file at hand. With a
        limit no more files are read than the rows are in.
        """
        batches = first_rows(self._read.batches(mirror=self._mirror), self.limit)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def to_arrow(self) -> pa.Table:
        """All rows in memory, in no particular order."""
        return self.to_batches().read_all()

    def to_pylist(self, *, parse_json: bool = False) -> list[dict[str, Any]]:
        """All rows in memory as dictionaries of Python's values.

        Parameters
        ----------
        parse_json : values of JSON columns as what they are, and not as text.
        """
        columns = self._read.json_columns if parse_json else ()
        return [row for batch in self.to_batches() for row in with_json(batch.to_pylist(), columns)]

    def count(self) -> int:
        """How many rows there are, without decoding them.

        Of a file its metadata is read, of the ones that name deleted rows the row ids, of the youngest files the commit
        times. With filters also their columns, in blocks whose minima and maxima do not decide them.
        """
        found = self._mirror.manifest(self._read.ref)
        return count_rows(self._mirror, found, self._read.at, self._read.filters, limit=self.limit)

    def to_polars(self) -> "pl.DataFrame":
        """All rows in memory as a `polars.DataFrame`. Raises ExtraMissing without polars."""
        require("polars", "polars")
        import polars

        return polars.DataFrame(self.to_arrow())

    def to_lazy(self) -> "pl.LazyFrame":
        """The rows as a `polars.LazyFrame`: each `collect` reads the columns that it needs, as a stream. Polars does
        not say which rows it needs in a way that saves reading: name them in the scan. Raises ExtraMissing without
        polars.

        An error of a file ends `collect` with an error of Polars, whose text has the code.
        """
        require("polars", "polars")
        import polars
        from polars.io.plugins import register_io_source

        def frames(
            names: list[str] | None, where: "pl.Expr | None", most: int | None, size: int | None
        ) -> "Iterator[pl.DataFrame]":
            known = {column.name: column for column in self._read.columns}
            wanted = self._read.columns if names is None else tuple(known[name] for name in names)
            limit = min((each for each in (self.limit, most) if each is not None), default=None)
            for batch in Scan(self._mirror, replace(self._read, columns=wanted), limit).to_batches():
                frame = polars.DataFrame(batch)
                yield frame if where is None else frame.filter(where)

        return register_io_source(frames, schema=polars.DataFrame(self.schema.empty_table()).schema, is_pure=True)

    def to_pandas(self) -> "pd.DataFrame":
        """All rows in memory as a `pandas.DataFrame`. Raises ExtraMissing without pandas.

        Whole numbers and bools have pandas' own types with nulls (`Int64`, `boolean`, …): as floats, large numbers
        would lose digits. Times are in microseconds, decimals and dates are Python's.
        """
        require("pandas", "pandas")
        import pandas

        nullable: dict[pa.DataType, Any] = {pa.bool_(): pandas.BooleanDtype()}
        for width in (8, 16, 32, 64):
            nullable[getattr(pa, f"int{width}")()] = getattr(pandas, f"Int{width}Dtype")()
        return self.to_arrow().to_pandas(types_mapper=nullable.get)

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection", name: str | None = None) -> "duckdb.DuckDBPyRelation":
        """Register the rows in a connection of DuckDB, under the table's name without the database, or `name`.

        No row is copied: each query reads the files as a stream. DuckDB does not say which columns and rows a query
        needs: name them in the scan of a large table.

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

        from ccpr.mirror.duckdb_rows import quoted

        if not isinstance(connection, duckdb.DuckDBPyConnection):
            message = f"{type(connection).__name__} is not a connection of DuckDB"
            raise BadOption(message, subject=f"table {self.table}", remedy="Give what duckdb.connect() returns.")
        shown = self._read.ref.name if name is None else name
        connection.register(shown, self)
        return connection.table(quoted(shown))

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_batches().__arrow_c_stream__(requested_schema)
