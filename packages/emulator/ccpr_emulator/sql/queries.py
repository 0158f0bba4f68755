"""SELECT on a simulated upstream: DuckDB over the engine's rows, which it reads as Arrow.

Each table of a statement is registered under a name of its own: as the transaction sees it, or at a snapshot. Views are
put in as subqueries. What a result column is (its MySQL type, how its values are written) is that of the table's
column that it shows, if it shows one, and else that of DuckDB's type.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import ResultColumn, ResultSet, StatementError
from ccpr_emulator.engine.stored_table import whole
from ccpr_emulator.sql.dialect import AT, MACROS, select_texts, to_duckdb
from ccpr_emulator.sql.text import cells, charset, coerced, mysql_type, plain_cells, plain_type

if TYPE_CHECKING:
    import duckdb
    from sqlglot import exp

ROW: Final = "__mo_row_number"
_SEEN: Final = "__mo_row_is_seen"
_MAX_VIEWS: Final = 20  # in one another
_SETTINGS: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET TimeZone = 'UTC'",
    "SET threads = 1",
)
_database: "duckdb.DuckDBPyConnection | None" = None
_opening = threading.Lock()


@dataclass(frozen=True, slots=True)
class Relation:
    """What a name in FROM means: rows with their columns (`numbers` and `seen` for a table of the engine), or a
    query.

    Attributes
    ----------
    columns : the table's columns; None in the place of a column that is not one of the engine's.
    """

    names: tuple[str, ...]
    columns: tuple[Column | None, ...]
    rows: pa.Table | None = None
    numbers: np.ndarray | None = None
    seen: np.ndarray | None = None
    query: "exp.Expr | None" = None


Find = Callable[[str, str, str, str], Relation]  # (database, table, "" | "snapshot" | "mo_ts" | "timestamp", which)
Replace = Callable[["exp.Expr"], "exp.Expr | None"]
Shape = list[tuple[str, Column | None]]


@dataclass(slots=True)
class Result:
    """A query's rows. `columns` : the name of each, and the table's column that it shows."""

    columns: Shape
    rows: pa.Table

    def array(self, place: int) -> pa.Array:
        return whole(self.rows.column(place))


def open_database() -> "duckdb.DuckDBPyConnection":
    """A connection of its own to the process's DuckDB, which is in memory and may open no file."""
    global _database
    import duckdb

    with _opening:
        if _database is None:
            made = duckdb.connect(":memory:")
            for macro in MACROS:
                made.execute(f"CREATE MACRO {macro}")
            for setting in _SETTINGS:
                made.execute(setting)
            made.execute("SET lock_configuration = true")
            _database = made
        return _database.cursor()


@dataclass(eq=False)
class Reader:
    """Runs the queries of one session. Used by one thread."""

    find: Find
    replace: Replace
    current_database: Callable[[], str]
    _connection: Any = None
    _numbers: "count[int]" = field(default_factory=count)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def read(self, tree: "exp.Expr", text: str = "", *, with_rows: Sequence["exp.Table"] = ()) -> Result:
        """Run a query. `text`: where the names of its columns are taken from; `with_rows`: tables that have the further
        column `ROW`. Raises StatementError."""
        statement = _Statement(self, with_rows)
        name_columns(tree, text)
        try:
            shape = statement.prepare(tree)
            return statement.run(to_duckdb(tree), shape)
        finally:
            statement.close()

    def values(self, expressions: Sequence["exp.Expr"], rows: pa.Table | None = None) -> list[pa.Array]:
        """The values of expressions over some rows; without rows, one value each."""
        from sqlglot import exp

        tree = exp.Select(expressions=[exp.alias_(one.copy(), f"v{n}") for n, one in enumerate(expressions)])
        statement = _Statement(self, ())
        try:
            statement.put_in(tree)
            if rows is not None:
                name = statement.register(_readable(rows))
                tree = tree.from_(exp.Table(this=exp.to_identifier(name, quoted=True)), copy=False)
            result = statement.run(to_duckdb(tree), None)
            return [result.array(place) for place in range(len(expressions))]
        finally:
            statement.close()

    def explain(self, tree: "exp.Expr") -> list[str]:
        statement = _Statement(self, ())
        try:
            statement.prepare(tree)
            with _errors():
                (_, plan), *_ = self.connection().execute(f"EXPLAIN {to_duckdb(tree)}").fetchall()
            return str(plan).splitlines()
        finally:
            statement.close()

    def connection(self) -> Any:
        if self._connection is None:
            self._connection = open_database()
        return self._connection


class _Statement:
    """What one statement has registered."""

    def __init__(self, reader: Reader, with_rows: Sequence["exp.Table"]) -> None:
        self.reader = reader
        self.with_rows = {id(table) for table in with_rows}
        self.names: list[str] = []
        self.shapes: dict[int, Shape | None] = {}

    def close(self) -> None:
        for name in self.names:
            self.reader.connection().unregister(name)

    def register(self, rows: pa.Table) -> str:
        name = f"r{next(self.reader._numbers)}"
        self.reader.connection().register(name, rows)
        self.names.append(name)
        return name

    def run(self, sql: str, shape: Shape | None) -> Result:
        connection = self.reader.connection()
        with _errors():
            rows = connection.sql(sql).to_arrow_table()
        names = list(rows.column_names)
        if shape is None or len(shape) != len(names):
            shape = [(name, None) for name in names]
        return Result(shape, rows)

    def prepare(self, tree: "exp.Expr") -> Shape | None:
        self.put_in(tree)
        return self.shape(tree, {})

    def put_in(self, tree: "exp.Expr", depth: int = 0) -> None:
        """Put in what the session knows: its variables and functions, and the tables."""
        from sqlglot import exp

        for node in list(tree.walk()):
            known = self.reader.replace(node)
            if known is not None:
                node.replace(known) if node.parent is not None else None
        known_names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        for table in list(tree.find_all(exp.Table)):
            if isinstance(table.this, exp.Identifier) and (table.db or table.name.lower() not in known_names):
                self._put_table(table, depth)
            elif isinstance(table.this, exp.GenerateSeries) and not table.args["alias"].columns:
                table.args["alias"].set("columns", [exp.to_identifier("result")])

    def _put_table(self, table: "exp.Table", depth: int) -> None:
        from sqlglot import exp

        if depth > _MAX_VIEWS:
            raise StatementError(20101, f"internal error: more than {_MAX_VIEWS} views in one another")
        name, _, state = table.name.partition(AT)
        how, _, which = state.partition(AT)
        database = table.db or self.reader.current_database()
        if not database:
            raise StatementError(1046, "No database selected", "3D000")
        if how and (AT in which or not which):
            raise StatementError(1064, "SQL syntax: a table is read at one snapshot", "42000")
        relation = self.reader.find(database.lower(), name.lower(), how, which)
        alias = table.alias or name
        shape: Shape | None = list(zip(relation.names, relation.columns, strict=True))
        if relation.query is not None:
            inner = relation.query.copy()
            self.put_in(inner, depth + 1)
            if relation.names:
                inner = exp.Subquery(
                    this=inner,
                    alias=exp.TableAlias(
                        this=exp.to_identifier("v"), columns=[exp.to_identifier(n, quoted=True) for n in relation.names]
                    ),
                )
                inner = exp.select("*").from_(inner)
            source: Any = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        else:
            needs_row = id(table) in self.with_rows
            source = self._source(relation, alias, needs_row=needs_row)
            if needs_row:
                shape = None
        for key in ("joins", "pivots", "laterals"):
            if table.args.get(key):
                source.set(key, table.args[key])
        self.shapes[id(source)] = shape
        table.replace(source)

    def _source(self, relation: Relation, alias: str, *, needs_row: bool) -> "exp.Expr":
        from sqlglot import exp

        rows = relation.rows if relation.rows is not None else pa.table({})
        shown = _readable(rows)
        condition = None
        if relation.seen is not None and not relation.seen.all():
            shown = shown.append_column(_SEEN, pa.array(relation.seen))
            condition = exp.column(_SEEN, quoted=True)
        if needs_row and relation.numbers is not None:
            shown = shown.append_column(ROW, pa.array(relation.numbers))
        names = [*relation.names, *([ROW] if needs_row else [])]
        name = self.register(shown)
        inner = exp.select(*(exp.column(one, quoted=True) for one in names)).from_(exp.to_identifier(name, quoted=True))
        inner = inner.where(condition) if condition is not None else inner
        return exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))

    # ---- what the columns of a result are

    def shape(self, tree: "exp.Expr", known: Mapping[str, Shape | None]) -> Shape | None:
        """The columns of a query; None if that cannot be told."""
        from sqlglot import exp

        known = dict(known)
        for cte in getattr(tree, "ctes", ()):
            known[cte.alias.lower()] = self.shape(cte.this, known)
        if isinstance(tree, exp.Subquery):
            return self.shape(tree.this, known)
        if isinstance(tree, exp.SetOperation):
            left, right = self.shape(tree.left, known), self.shape(tree.right, known)
            if left is None or right is None or len(left) != len(right):
                return None
            return [(name, same(column, other)) for (name, column), (_, other) in zip(left, right, strict=True)]
        if not isinstance(tree, exp.Select):
            return None
        sources = self._sources(tree, known)
        found: Shape = []
        for node in tree.expressions:
            inner = node.unalias() if isinstance(node, exp.Alias) else node
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                asked = inner.table.lower() if isinstance(inner, exp.Column) else ""
                wanted = [shape for alias, shape in sources if asked in ("", alias)]
                if not wanted or any(shape is None for shape in wanted) or inner.args.get("except_"):
                    return None
                if not asked and any(j.args.get("using") or j.args.get("method") for j in tree.args.get("joins") or []):
                    return None
                found += [one for shape in wanted for one in shape or ()]
            else:
                found.append((node.alias_or_name or node.output_name, self._origin(inner, sources)))
        return found

    def _sources(self, tree: "exp.Expr", known: Mapping[str, Shape | None]) -> list[tuple[str, Shape | None]]:
        from sqlglot import exp

        clause = tree.args.get("from_") or tree.args.get("from")
        nodes = ([clause.this] if clause is not None else []) + [j.this for j in tree.args.get("joins") or []]
        found: list[tuple[str, Shape | None]] = []
        for node in nodes:
            alias = node.alias_or_name.lower()
            if id(node) in self.shapes:
                found.append((alias, self.shapes[id(node)]))
            elif isinstance(node, exp.Subquery):
                found.append((alias, self.shape(node.this, known)))
            else:
                found.append((alias, known.get(node.name.lower()) if isinstance(node, exp.Table) else None))
        return found

    def _origin(self, node: "exp.Expr", sources: list[tuple[str, Shape | None]]) -> Column | None:
        from sqlglot import exp

        if isinstance(node, exp.Paren | exp.Min | exp.Max | exp.AnyValue):
            return self._origin(node.this, sources)
        if not isinstance(node, exp.Column):
            return None
        asked = node.table.lower()
        for alias, shape in sources:
            if asked in ("", alias):
                for name, column in shape or ():
                    if name.lower() == node.name.lower():
                        return column
        return None


def same(column: Column | None, other: Column | None) -> Column | None:
    return column if column is not None and other is not None and column.type == other.type else None


def name_columns(tree: "exp.Expr", text: str) -> None:
    """Name the columns of a SELECT as MySQL does: an expression by its text."""
    from sqlglot import exp

    if not isinstance(tree, exp.Select):
        return
    texts = select_texts(text)
    if len(texts) != len(tree.expressions):
        texts = [node.sql(dialect="mysql") for node in tree.expressions]
    named = []
    for node, shown in zip(tree.expressions, texts, strict=True):
        plain = isinstance(node, exp.Alias | exp.Column | exp.Star) or node.is_star
        named.append(node if plain else exp.alias_(node, shown[:256], quoted=True))
    tree.set("expressions", named)


def _readable(rows: pa.Table) -> pa.Table:
    """Rows with types that DuckDB reads as they are meant: a time zone would be shown."""
    for place, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            rows = rows.set_column(place, column.name, rows.column(place).cast(pa.timestamp("us")))
    return rows


def result_set(result: Result) -> ResultSet:
    """A result as the text protocol shows it."""
    described, texts = [], []
    for place, (name, column) in enumerate(result.columns):
        values = result.array(place)
        if column is not None and _is_like(column, values.type):
            described.append(ResultColumn(name, mysql_type(column), charset(column)))
            texts.append(cells(column, coerced(column, values)))
        else:
            kind, characters = plain_type(values.type)
            described.append(ResultColumn(name, kind, characters))
            texts.append(plain_cells(values))
    return ResultSet(tuple(described), list(zip(*texts, strict=True)))


def _is_like(column: Column, kind: pa.DataType) -> bool:
    """Whether values of a type can be those of the column: not a sum of another type."""
    meant = types.arrow_type(column)
    if pa.types.is_timestamp(meant):
        return pa.types.is_timestamp(kind)
    if pa.types.is_duration(meant):
        return pa.types.is_interval(kind)
    return meant == kind


class _errors:
    """DuckDB's errors as the upstream's."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        import duckdb

        if not isinstance(error, duckdb.Error):
            return
        text = str(error).split("\n\n")[0].split("\nLINE ")[0]
        missing = re.search(
            r'Referenced column "([^"]*)" (?:was )?not found|does not have a column named "([^"]*)"', text
        )
        if missing is None:
            missing = re.search(r'column "?([^" ]*)"? (?:was )?not found|Table "[^"]*" does not have a column', text)
        if missing is not None:
            name = next((part for part in missing.groups() if part), "")
            raise StatementError(20301, f"invalid input: column {name} does not exist") from error
        function = re.search(r"Function with name (\S+) does not exist", text)
        if function is not None:
            raise StatementError(
                20105, f"not supported: the emulator does not know the function {function[1]}"
            ) from error
        if isinstance(error, duckdb.ParserException):
            raise StatementError(
                1064, "You have an error in your SQL syntax, or use what the emulator does not know", "42000"
            ) from error
        first = text.splitlines()[0] if text else kind.__name__ if kind else ""
        first = re.sub(r"'[^']*'", "'***'", first)
        raise StatementError(20301, f"invalid input: {first}") from error
