"""A table of a mirror: its rows at a point as Arrow, Polars, pandas or DuckDB, and what has changed between two."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pyarrow as pa

from ccpr.api.differences import Changes, changes_of
from ccpr.api.scan import Scan
from ccpr.api.values import At, plain_at
from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.errors import BadOption
from ccpr.mirror.filters import FilterTuple
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import plan_read

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class Selection(TypedDict, total=False):
    """What of a table is read: the keywords of `Table.scan`."""

    columns: Sequence[str] | None
    filters: Iterable[FilterTuple] | None
    limit: int | None
    hidden: bool


class Table:
    """A table of a mirror, by its name; made by `Mirror.table`.

    It can be given to everything that takes Arrow streams (`__arrow_c_stream__`), such as `polars.DataFrame(table)`:
    that reads all rows and columns.

    Attributes
    ----------
    name : `database.table`.
    lsn : the point that it shows where a call names no other; None = the newest, as of the call.

    Notes
    -----
    All methods that read take the parameters of `scan` and raise what it raises. While rows are read, they raise what
    `Scan` does.
    """

    def __init__(self, mirror: Mirror, name: str, reading: Reading = DEFAULT_READING, lsn: int | None = None) -> None:
        self._mirror, self._reading = mirror, reading
        self.name, self.lsn = name, lsn

    def __repr__(self) -> str:
        point = "" if self.lsn is None else f" at point {self.lsn}"
        return f"<ccpr.Table {self.name}{point} of {self._mirror.store.url}>"

    @property
    def schema(self) -> pa.Schema:
        """The user's columns, as Arrow types. Of another point: ``scan(at=…).schema``."""
        return self.scan().schema

    def scan(
        self,
        at: At = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Iterable[FilterTuple] | None = None,
        limit: int | None = None,
        hidden: bool = False,
    ) -> Scan:
        """What is to be read, as a value: nothing is read of it but the description of the table at the point.

        The point is fixed by this call, so that everything that is made of the scan shows the same one.

        Parameters
        ----------
        at : the point: an lsn, a datetime, a text (an lsn, an ISO time or a held point's name), a `Point`; None = the
            table's own, or the newest. See `Mirror.point`.
        columns : names, in the order wanted; None = all of the user's, in declared order.
        filters : tuples `(column, operator, value)`; only rows that satisfy all are read. Operators are `=` (also
            `==`), `!=` (also `<>`), `<`, `<=`, `>`, `>=`, `in` and `not in` (a list of values), and without a value
            `is null`, `is not null`. Files and blocks without such a row are not read, as far as their minima and
            maxima show.
        limit : how many rows at most, any of them: rows have no order. None = all.
        hidden : the server's own key columns, too.

        Raises
        ------
        TableMissingInMirror
            The point has no such table, or the table no such column.
        PointNotReached, PointGone
            The mirror, or this table, has not reached the point; the point is no longer retained.
        BadFilter
            A filter names a column that the table does not have, or compares it with a value of another type.
        BadOption
            `at`, `columns` or `limit` cannot be understood.
        MirrorDamaged, StoreFailed
            A file is missing, is not what was written, or cannot be read.
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            message = f"limit = {limit!r:.40} is not a number of rows"
            raise BadOption(message, subject=f"table {self.name}", remedy="Give a whole number, or None for all.")
        point = self.lsn if at is None else plain_at(at)
        read = plan_read(
            self._mirror,
            self.name,
            point,
            columns=columns,
            filters=filters or (),
            hidden=hidden,
            reading=self._reading,
        )
        return Scan(self._mirror, read, limit)

    def to_batches(self, at: At = None, **selection: Unpack[Selection]) -> pa.RecordBatchReader:
        """The rows as a stream: `Scan.to_batches`."""
        return self.scan(at, **selection).to_batches()

    def to_arrow(self, at: At = None, **selection: Unpack[Selection]) -> pa.Table:
        """All rows in memory, in no particular order."""
        return self.scan(at, **selection).to_arrow()

    def to_polars(self, at: At = None, **selection: Unpack[Selection]) -> "pl.DataFrame":
        """All rows in memory as a `polars.DataFrame`: `Scan.to_polars`."""
        return self.scan(at, **selection).to_polars()

    def to_lazy(self, at: At = None, **selection: Unpack[Selection]) -> "pl.LazyFrame":
        """The rows as a `polars.LazyFrame`, which reads when it is collected: `Scan.to_lazy`."""
        return self.scan(at, **selection).to_lazy()

    def to_pandas(self, at: At = None, **selection: Unpack[Selection]) -> "pd.DataFrame":
        """All rows in memory as a `pandas.DataFrame`: `Scan.to_pandas`."""
        return self.scan(at, **selection).to_pandas()

    def to_pylist(
        self, at: At = None, *, parse_json: bool = False, **selection: Unpack[Selection]
    ) -> list[dict[str, Any]]:
        """All rows in memory as dictionaries: `Scan.to_pylist`."""
        return self.scan(at, **selection).to_pylist(parse_json=parse_json)

    def to_duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: str | None = None,
        at: At = None,
        **selection: Unpack[Selection],
    ) -> "duckdb.DuckDBPyRelation":
        """Register the table in a connection of DuckDB: `Scan.to_duckdb`. Queries show the point that was the newest,
        or named, at this call."""
        return self.scan(at, **selection).to_duckdb(connection, name)

    def count(self, at: At = None, *, filters: Iterable[FilterTuple] | None = None) -> int:
        """How many rows there are: `Scan.count`."""
        return self.scan(at, columns=(), filters=filters).count()

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
            the newest point, also of a table that shows an older one.

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
        return self.scan().__arrow_c_stream__(requested_schema)
