"""SQL over the tables of a point: DuckDB over streams of Arrow. No row is copied before a statement asks for it, and
only the columns and blocks are read that it needs.

DuckDB says what it needs to objects of Arrow's datasets (`Dataset.scanner`), with the filters as Arrow's expressions.
Source: decision filters-leave-out-blocks.

A view's query is an upstream's text, and DuckDB's SQL reads files of this machine. So only one SELECT is taken whose
sources are all known by name, and which calls no function that sqlglot does not know.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ccpr.base.errors import require
from ccpr.base.wording import meant
from ccpr.matrixone.definitions import View
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import DEFAULT_READING, Kind, Reading
from ccpr.mirror.duckdb_rows import ZONE, batches_ahead, quoted, rows_of, unique_names
from ccpr.mirror.errors import BadOption, QueryFailed
from ccpr.mirror.filters import Filter
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.mirror.pushdown import columns_of, implied_filters, parts_of, say_all
from ccpr.mirror.table_read import TableRead, plan_read

if TYPE_CHECKING:
    import duckdb

_SHOW_TABLES = re.compile(r"\s*SHOW\s+(?:ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_CATALOG = re.compile(r"(?<!\w)(?:information_schema|duckdb_(?:tables|views|columns))(?!\w)")  # which lists all
_MISSING_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_TABLES = pa.schema([("database", pa.string()), ("table", pa.string())])
_REMEDY = "`ccpr tables NAME --ddl` shows its definition; query the tables that it reads."


class PointDatabase:
    """The tables of a point for SQL: as `db.t`, and as `t` those of the database that is queried. A context manager.

    Parameters
    ----------
    database : whose tables need no qualification.
    zone : the time zone in which TIMESTAMP is shown, compared with literals and taken apart, by its name; None leaves
        the connection's. Raises BadOption for one that DuckDB does not know; ExtraMissing without DuckDB.
    connection : to use instead of a new one.
    """

    def __init__(
        self,
        mirror: Mirror,
        point: Point,
        database: str,
        reading: Reading = DEFAULT_READING,
        zone: str | None = ZONE,
        connection: "duckdb.DuckDBPyConnection | None" = None,
    ) -> None:
        require("duckdb", "duckdb")
        import duckdb

        self._mirror, self._reading, self._database = mirror, reading, database
        self.point, self.error = point, None
        self._names = {ref.qualified_name: ref for ref in point.tables.values() if ref.kind is Kind.TABLE}
        self._known: dict[str, PointTable] = {}
        self._schemas: set[str] = set()
        self._by_lower_case: dict[str, list[str]] = {}
        for name in self._names:
            self._by_lower_case.setdefault(name.lower(), []).append(name)
        self.connection: duckdb.DuckDBPyConnection = duckdb.connect() if connection is None else connection
        if zone is not None:
            self._set_zone(zone)

    def __enter__(self) -> "PointDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def tables(self) -> list[str]:
        """`db.t`, by name."""
        return sorted(self._names)

    def query(self, sql: str) -> "pa.RecordBatchReader":
        """The rows of the last of some statements, as a stream. Raises QueryFailed, and what reading raises."""
        import duckdb

        try:
            if _SHOW_TABLES.fullmatch(sql):
                return self._table_of_tables().to_reader()
            self._show(sql)
            found = self.connection.sql(sql)
            return pa.schema([]).empty_table().to_reader() if found is None else rows_of(found)
        except duckdb.Error as error:
            raise self._failure(error, sql) from error

    def batches(self, sql: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """As `query`, with errors of files as what they are."""
        reader = self.query(sql)
        return reader.schema, self._read(reader, sql)

    def _set_zone(self, zone: str) -> None:
        import duckdb

        literal = zone.replace("'", "''")
        try:
            self.connection.execute(f"SET TimeZone = '{literal}'")
        except duckdb.Error as error:
            self.connection.close()
            remedy = "Write a name of the time zone database, such as Europe/Berlin, or UTC."
            raise BadOption("DuckDB knows no such time zone", subject=f"time zone {zone:.80}", remedy=remedy) from error

    def _read(self, reader: "pa.RecordBatchReader", sql: str) -> Iterator[pa.RecordBatch]:
        import duckdb

        try:
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error, sql) from error

    def _failure(self, error: Exception, sql: str) -> CcprError:
        for table in self._known.values():
            if table.error is not None:
                found, table.error = table.error, None
                return found
        text, subject = " ".join(str(error).partition("LINE ")[0].split()), f"query {sql.strip():.80}"
        if (missing := _MISSING_TABLE.search(text)) is not None:
            return self._missing_table(missing[1], subject)
        return QueryFailed(text, subject=subject)

    def _missing_table(self, name: str, subject: str) -> QueryFailed:
        """DuckDB would suggest tables of its own, and knows no views of the upstream."""
        views = (view.name.lower() for one in self._mirror.definitions(self.point) for view in one.views)
        if name.lower() in views:
            remedy = f"Query the tables that it reads: `ccpr tables NAME {name}` shows its SELECT."
            return QueryFailed(f"{name} is a view upstream, and views are not there", subject=subject, remedy=remedy)
        remedy = meant(name, self.tables, "tables", of="The point")
        return QueryFailed(f"the point shows no table {name}", subject=subject, remedy=remedy)

    def _show(self, sql: str) -> None:
        """Make views of the tables whose names occur in the statements: each costs the reading of its manifest."""
        text = sql.lower().replace('""', '"')
        everything = _CATALOG.search(text) is not None
        for name in self._names:
            table = name.partition(".")[2].lower()
            if everything or (table in text and re.search(rf"(?<!\w){re.escape(table)}(?!\w)", text)):
                self._show_table(name, sql)

    def show_all(self) -> None:
        """Make views of all tables: each costs the reading of its manifest. Raises QueryFailed for two that DuckDB
        does not tell apart."""
        for name in self._names:
            self._show_table(name, "of all tables")

    def _show_table(self, name: str, sql: str) -> None:
        if name in self._known:
            return
        self._check_case(name, sql)
        database, _, table = name.partition(".")
        self._known[name] = rows = PointTable(self._mirror, name, self.point.lsn, self._reading)
        inner = f"__ccpr_{self.point.lsn}_{rows.table_id}"
        self.connection.register(inner, rows)
        if database not in self._schemas:
            self._schemas.add(database)
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(database)}")
        places = [f"{quoted(database)}.{quoted(table)}"]
        if database == self._database and database.lower() != "main":
            places.append(f"main.{quoted(table)}")
        for place in places:
            self.connection.execute(
                f"CREATE OR REPLACE VIEW {place} AS SELECT * EXCLUDE ({quoted(rows.row)}) FROM {quoted(inner)}"
            )

    def _table_of_tables(self) -> pa.Table:
        """What SHOW TABLES lists: without a look at any table."""
        names = [name.partition(".") for name in self.tables]
        return pa.table({"database": [one[0] for one in names], "table": [one[2] for one in names]}, schema=_TABLES)

    def _check_case(self, name: str, sql: str) -> None:
        """DuckDB does not tell names apart that differ in letter case only: it would read one for the other."""
        if same := [other for other in self._by_lower_case[name.lower()] if other != name]:
            message = f"{name} and {same[0]} differ in letter case only, and DuckDB takes them for one table"
            remedy = f"Read it alone: `ccpr query NAME {name}`, or `ccpr export`."
            raise QueryFailed(message, subject=f"query {sql.strip():.80}", remedy=remedy)


class PointTable(ds.Dataset):
    """A table at a point as one of Arrow's datasets, which is what DuckDB asks for columns and with filters.

    Its first column, which the views leave out, has no values: DuckDB asks for the first one where it needs the number
    of rows only, and so nothing is decoded for it.

    Attributes
    ----------
    row : the name of that column; no other column has it.
    stored : how many rows it has, deleted ones included.
    error : what went wrong while it was read; DuckDB keeps the text only.
    """

    def __init__(self, mirror: Mirror, name: str, lsn: int, reading: Reading) -> None:
        self._read_of = (mirror, name, lsn, reading)
        whole = plan_read(mirror, name, lsn, reading=reading)
        self.table_id, self.stored = whole.ref.table_id, whole.ref.rows
        self.row = unique_names([*whole.schema.names, "__ccpr_row"])[-1]
        self._shown, self._columns = whole.schema, whole.columns
        self._schema = pa.schema([pa.field(self.row, pa.null()), *whole.schema])
        self.error: CcprError | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> "ds.Scanner | _Scan":
        """The rows that satisfy `filter`. Blocks that cannot hold one are not read, as far as it is understood."""
        mirror, name, lsn, reading = self._read_of
        wanted = list(self._schema.names if columns is None else columns)
        needed, filters, rest = wanted, tuple[Filter, ...](), None
        if filter is not None:
            parts = parts_of(filter, self._shown)
            filters = implied_filters(parts, self._columns, reading)
            if not say_all(filters, parts):
                named, rest = columns_of(parts), filter
                needed = [one for one in self._schema.names if named is None or one in named or one in wanted]
        read = plan_read(
            mirror, name, lsn, columns=[one for one in needed if one != self.row], filters=filters, reading=reading
        )
        schema, batches = pa.schema([self._schema.field(one) for one in needed]), self._batches(read, mirror)
        if self.row in needed:
            place = needed.index(self.row)
            batches = (batch.add_column(place, schema.field(place), pa.nulls(batch.num_rows)) for batch in batches)
        if rest is None:
            return _Scan(schema, batches)
        return ds.Scanner.from_batches(batches, schema=schema, columns=wanted, filter=rest, use_threads=False)

    def _batches(self, read: TableRead, mirror: Mirror) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches_ahead(read, mirror)
        except CcprError as error:
            self.error = error
            raise


@dataclass(frozen=True, slots=True)
class _Scan:
    """What DuckDB asks of a scanner, where Arrow has nothing to filter. One of Arrow's hands each batch to another
    thread and back, which took a third of such a scan's time."""

    projected_schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.batches)


if TYPE_CHECKING:
    from sqlglot import exp


def create_view(view: View, database: str, known: Collection[str]) -> str:
    """CREATE VIEW for DuckDB. `known` are the tables and views that may be read, `db.t` in lower case.

    Raises QueryFailed for a query that is not taken, and ExtraMissing without sqlglot.
    """
    require("duckdb", "sqlglot", otherwise="Tables can be queried without it.")
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    subject = f"view {database}.{view.name}"
    try:
        trees = sqlglot.parse(view.query, dialect="mysql")
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, exp.Query):
            raise QueryFailed("it is not one SELECT", subject=subject, remedy=_REMEDY)
        _check(tree, view.default_database or database, known, subject)
        query = tree.sql(dialect="duckdb", identify=True)
    except (SqlglotError, RecursionError) as error:
        raise QueryFailed("its SELECT is not understood", subject=subject, remedy=_REMEDY) from error
    columns = f" ({', '.join(map(quoted, view.columns))})" if view.columns else ""
    return f"CREATE OR REPLACE VIEW {quoted(database)}.{quoted(view.name)}{columns} AS {query}"


def _check(tree: "exp.Query", database: str, known: Collection[str], subject: str) -> None:
    """Names all tables with their database. Raises QueryFailed."""
    from sqlglot import exp

    if (other := next(tree.find_all(exp.Anonymous, exp.Command, exp.UDTF, exp.Parameter), None)) is not None:
        raise QueryFailed(f"it has {other.sql():.60}, which is not known", subject=subject, remedy=_REMEDY)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.catalog:
            raise QueryFailed(f"it reads {table.sql():.60}, no table", subject=subject, remedy=_REMEDY)
        if not table.db and table.name.lower() in own:
            continue
        of = table.db or database
        if f"{of}.{table.name}".lower() not in known:
            raise QueryFailed(f"it reads {of}.{table.name}, which is not there", subject=subject, remedy=_REMEDY)
        table.set("db", exp.to_identifier(of, quoted=True))
