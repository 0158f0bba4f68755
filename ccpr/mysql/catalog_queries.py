"""A SELECT on `information_schema` alone, as tools write it for their trees of names. It is about names and numbers of
these tables, none of a replica's values, and so DuckDB's rules do where MySQL's differ: almost whatever a tool writes
is answered. What calls a function that is not known, or names anything else, is not taken here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ccpr.mysql.catalog_tables import INFORMATION_SCHEMA, columns_of
from ccpr.mysql.select_scope import ShownColumn
from ccpr.mysql.statement_text import TEXT_MARK, StatementText
from ccpr.mysql.value_kinds import INT, TEXT

Constant = Callable[[str], str | int | None]
_OF_SESSION = frozenset(("database", "schema", "version", "user", "session_user", "system_user", "connection_id"))
_OF_TEXT = exp.Upper, exp.Lower, exp.Trim, exp.StrPosition, exp.Substring, exp.Replace, exp.Length
_NOT_TAKEN = exp.Command, exp.UDTF, exp.Parameter, exp.Into, exp.Lock, exp.Placeholder


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """
    Attributes
    ----------
    tables : the names of the tables of `information_schema` that `sql` reads, in lower case.
    names : of the columns of the result, as MySQL says them; empty where `sql` says it.
    """

    sql: str
    tables: frozenset[str]
    names: tuple[str, ...]

    def columns(self, found: pa.Schema) -> list[ShownColumn]:
        """Whole numbers and texts."""
        named = found.names
        if len(self.names) == len(named) and "*" not in self.names:
            named = [name or other for name, other in zip(self.names, named, strict=True)]
        kinds = [INT if pa.types.is_integer(one) or pa.types.is_boolean(one) else TEXT for one in found.types]
        return [ShownColumn(name, kind) for name, kind in zip(named, kinds, strict=True)]


def catalog_query(text: StatementText, database: str, constant: Constant) -> CatalogQuery | None:
    """For DuckDB; None if it is another statement. Raises StatementError for a variable that is not known."""
    if database != INFORMATION_SCHEMA and INFORMATION_SCHEMA not in text.sql.lower():
        return None
    try:
        trees = sqlglot.parse(text.sql, dialect="mysql")
    except (SqlglotError, RecursionError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query) or tree.find(*_NOT_TAKEN) is not None:
        return None
    tables = set[str]()
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if not table.db and table.name.lower() in own:
            continue
        of = (table.db or database).lower()
        if of != INFORMATION_SCHEMA or not isinstance(table.this, exp.Identifier) or table.catalog or "{" in table.name:
            return None
        tables.add(table.name.lower())
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
        table.set("this", exp.to_identifier(table.name.lower()))
        table.set("db", None)
    if not tables:
        return None
    try:
        _write_texts(tree, text)
        for node in reversed(list(tree.walk())):  # what is inside comes first
            if (other := _changed(node, constant)) is not node:
                node.replace(other)
        for select in list(tree.find_all(exp.Select)):
            _say_whose(select)
            _without_having(select)
        listed = zip(tree.selects, text.names, strict=False)
        names = tuple("" if isinstance(one, exp.Alias) else name for one, name in listed)
        return CatalogQuery(tree.sql(dialect="duckdb", identify=True), frozenset(tables), names)
    except (_NotTaken, SqlglotError, RecursionError):
        return None


class _NotTaken(Exception):
    """It has something that is not known here."""


def _write_texts(tree: exp.Expr, text: StatementText) -> None:
    for node in list(tree.find_all(exp.Literal, exp.Identifier)):
        if node.name.startswith(TEXT_MARK):
            node.set("this", text.texts[int(node.name.removeprefix(TEXT_MARK))])


def _changed(node: exp.Expr, constant: Constant) -> exp.Expr:
    """A part of the tree as DuckDB has it."""
    if isinstance(node, exp.Column) and node.args.get("db"):
        node.set("db", None)
        node.set("catalog", None)
    elif isinstance(node, exp.Collate) or (isinstance(node, exp.Cast) and _is_of_bytes(node)):
        return node.this
    elif isinstance(node, exp.Like | exp.ILike):
        like = exp.ILike(**node.copy().args)
        return like if isinstance(node.parent, exp.Escape) else exp.Escape(this=like, expression=exp.convert("\\"))
    elif isinstance(node, exp.EQ | exp.NEQ | exp.In):  # letter case does not count here, in MySQL
        for text in (one for one in node.iter_expressions() if isinstance(one, exp.Literal) and one.is_string):
            text.replace(exp.Collate(this=text.copy(), expression=exp.var("NOCASE")))
    elif isinstance(node, _OF_TEXT):
        node.set("this", exp.cast(node.this, "text"))  # MySQL would convert a number
    elif isinstance(node, exp.SessionParameter):
        return exp.convert(constant(f"@@{node.name.lower()}"))
    elif isinstance(node, exp.CurrentUser | exp.CurrentSchema | exp.CurrentDatabase):
        return exp.convert(constant("current_user()" if isinstance(node, exp.CurrentUser) else "database()"))
    elif isinstance(node, exp.Anonymous):
        if node.name.lower() not in _OF_SESSION:
            raise _NotTaken
        return exp.convert(constant(f"{node.name.lower()}()"))
    return node


def _is_of_bytes(node: exp.Cast) -> bool:
    """BINARY x, CONVERT(x USING utf8)."""
    return isinstance(node.to, exp.CharacterSet) or node.is_type("binary", "varbinary")


def _say_whose(select: exp.Select) -> None:
    """A name is a column's before it is one of the list, but in ORDER BY."""
    parts = [select.args.get("from_"), *(select.args.get("joins") or ())]
    tables = [part.this for part in parts if part is not None and isinstance(part.this, exp.Table)]
    owners: dict[str, list[str]] = {}
    for table in tables:
        for column in columns_of(table.name):
            owners.setdefault(column.lower(), []).append(table.alias)
    listed = {one.alias.lower() for one in select.expressions if isinstance(one, exp.Alias)}
    for column in list(select.find_all(exp.Column)):
        found = owners.get(column.name.lower(), ())
        if column.table or len(found) != 1 or column.find_ancestor(exp.Select) is not select:
            continue
        if column.find_ancestor(exp.Order, exp.Having) is None or column.name.lower() not in listed:
            column.set("table", exp.to_identifier(found[0]))


def _without_having(select: exp.Select) -> None:
    """HAVING without groups is a condition of rows that knows the names of the list."""
    having = select.args.get("having")
    if having is None or select.args.get("group") or select.find(exp.AggFunc):
        return
    named = {one.alias.lower(): one.this for one in select.expressions if isinstance(one, exp.Alias)}

    def meant(node: exp.Expr) -> exp.Expr:
        is_named = isinstance(node, exp.Column) and not node.table and node.name.lower() in named
        return exp.paren(named[node.name.lower()].copy()) if is_named else node

    select.set("having", None)
    select.where(having.this.transform(meant), copy=False)
