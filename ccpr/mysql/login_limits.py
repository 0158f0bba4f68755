"""What a reader with limits sees of a table: fewer columns, and the rows that a condition lets through.

Its definition is another one then, without what is hidden, so that nothing that shows definitions has to know. Rows are
taken by another DuckDB than the statement's: no expression of a statement is ever computed of another row, and no error
can tell of one.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType, CreateTable, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mirror.errors import QueryFailed
from ccpr.mirror.sql import PointTable
from ccpr.mysql.select_rules import translated
from ccpr.mysql.select_scope import ReadTable
from ccpr.mysql.statement_text import refused, understood
from ccpr.mysql.value_kinds import ValueKind, kinds_of
from ccpr.service.workspace import Workspace
from ccpr.state.logins import PortLogin, ReadLimits

if TYPE_CHECKING:
    import duckdb

_RAW = "raw"
_log = logging.getLogger(__name__)


def narrowed(table: Table, newest: Table, limits: ReadLimits) -> Table:
    """The definition that a reader sees. `newest` is the table's at the newest point: a column that it does not have is
    hidden, too, since it may be one that is hidden now and was called otherwise."""
    there = _common(table, newest)
    shown = tuple(
        one
        for one in table.user_columns
        if one.name in there and not limits.hides(table.database, table.name, one.name)
    )
    names = {one.name for one in shown}
    try:
        created = create_table_of(table)
        columns = tuple(replace(one, generated=None) for one in created.columns if one.name in names)
    except DdlUnreadable:
        created, columns = CreateTable(table.name, ()), tuple(map(_column, shown))
    created = CreateTable(
        table.name,
        columns,
        primary_key=created.primary_key if names.issuperset(created.primary_key) else (),
        indexes=tuple(one for one in created.indexes if names.issuperset(part.column for part in one.parts)),
        comment=created.comment,
        options=created.options,
    )
    return replace(table, columns=shown, ddl=format_create_table(created), indexes=None, partitions=())


def _column(column: Any) -> ColumnDefinition:
    try:
        kind = ColumnType.of(column)
    except ValueError:
        kind = ColumnType("unknown")
    return ColumnDefinition(column.name, kind, column.nullable)


def _common(table: Table, newest: Table) -> frozenset[str]:
    """The columns that are the same at both points: of one physical table by their numbers, too."""
    now = {one.name: one.seqnum for one in newest.user_columns}
    same = table.id == newest.id
    return frozenset(
        one.name for one in table.user_columns if one.name in now and (not same or now[one.name] == one.seqnum)
    )


class ConditionedRows(ds.Dataset):
    """The rows of a table that conditions let through, as one of Arrow's datasets. Its first column is as that of
    `PointTable`.

    Attributes
    ----------
    error : why they could not be read, in words that tell nothing of the conditions; the log says more.
    """

    def __init__(
        self,
        rows: PointTable,
        table: Table,
        source: str,
        columns: Sequence[str],
        connect: Callable[[], "duckdb.DuckDBPyConnection"],
    ) -> None:
        self.row = rows.row
        self.error: StatementError | None = None
        self._rows, self._name, self._source, self._connection = rows, table.qualified_name, source, connect()
        self._running: set[duckdb.DuckDBPyConnection] = set()
        with self._asked(columns, None, " LIMIT 0") as reader:
            self._schema = pa.schema([pa.field(self.row, pa.null()), *reader.schema])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def interrupt(self) -> None:
        for connection in list(self._running):
            connection.interrupt()

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> ds.Scanner:
        """The rows that satisfy `filter`, too, which is compared with what is written out only, and so never fails."""
        wanted = list(self._schema.names if columns is None else columns)
        schema = pa.schema([self._schema.field(one) for one in wanted])
        return ds.Scanner.from_batches(self._batches(schema, filter), schema=schema, use_threads=False)

    def _batches(self, schema: pa.Schema, filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        with self._asked([one for one in schema.names if one != self.row], filter) as reader:
            for batch in self._read(reader):
                arrays = [pa.nulls(batch.num_rows) if one == self.row else batch.column(one) for one in schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def _asked(
        self, columns: Sequence[str], filter: pc.Expression | None, tail: str = ""
    ) -> Iterator[pa.RecordBatchReader]:
        import duckdb

        connection = self._connection.cursor()
        self._running.add(connection)
        try:
            connection.register(_RAW, _FilteredRows(self._rows, filter))
            listed = ", ".join(map(quoted, columns)) or "1"
            yield connection.sql(f"SELECT {listed} FROM {self._source}{tail}").to_arrow_reader()
        except duckdb.Error as error:
            raise self._failure(error) from error
        finally:
            self._running.discard(connection)
            connection.close()

    def _read(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        import duckdb

        try:
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StatementError:
        found, self._rows.error = self._rows.error or error, None
        _log.warning("the rows of %s that a login sees cannot be read: %s", self._name, found)
        self.error = StatementError(20101, f"table {self._name} cannot be read now: the log of the service says why")
        return self.error


class _FilteredRows(ds.Dataset):
    """A table's rows with a filter before all that are asked for."""

    def __init__(self, rows: PointTable, filter: pc.Expression | None) -> None:
        self._rows, self._filter = rows, filter

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> Any:
        parts = [one for one in (self._filter, filter) if one is not None]
        return self._rows.scanner(columns, reduce(and_, parts) if parts else None)


@dataclass(frozen=True, slots=True)
class _OneTable:
    """What a condition may name (`ccpr.mysql.select_scope.Tables`)."""

    kinds: Mapping[str, ValueKind]
    name: str

    def table(self, database: str, name: str, point: int | None) -> ReadTable:
        if database or point is not None or name != self.name:
            raise refused("a condition with another table")
        return ReadTable(_RAW, self.kinds)


def condition_sql(login: str, table: Table, newest: Table, conditions: Sequence[str]) -> str:
    """What follows FROM to read the rows for which all conditions hold. Raises StatementRefused, StatementError."""
    there = _common(table, newest)
    kinds = {name: kind for name, kind in kinds_of(table).items() if name in there}

    def constant(name: str) -> str:
        if "user()" not in name:
            raise refused(f"the function {name.upper():.40} in a condition")
        return f"{login}@%"

    where = " AND ".join(f"({one})" for one in conditions)
    text = understood(f"SELECT 1 FROM {quote_name(table.name)} WHERE {where}")
    return translated(text, _OneTable(kinds, table.name), constant).sql.partition(" AS c0 FROM ")[2]


def unused_conditions(workspace: Workspace, login: PortLogin) -> list[str]:
    """The patterns that no table matches now; of the others the conditions are tried. Raises StatementRefused,
    QueryFailed."""
    unused = {pattern for pattern, _ in login.limits.rows}
    for row in workspace.log.rows():
        if not row.iteration_lsn or (
            login.publications is not None and row.subscription_name.lower() not in login.publications
        ):
            continue
        mirror = workspace.mirror_to_read(row.subscription_name)
        for ref in mirror.point().tables.values():
            for pattern, condition in login.limits.rows:
                if ref.kind is Kind.TABLE and ReadLimits(rows=((pattern, condition),)).conditions(
                    ref.database, ref.name
                ):
                    unused.discard(pattern)
                    table = mirror.manifest(ref).table
                    try:
                        condition_sql(login.name, table, table, [condition])
                    except StatementError as error:
                        raise QueryFailed(
                            error.text, subject=f"condition {condition} of {ref.qualified_name}"
                        ) from error
    return sorted(unused)
