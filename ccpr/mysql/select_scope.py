"""Which table, and which column of it, each name in a SELECT is of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeGuard

from sqlglot import exp

from ccpr.matrixone.server.answers import StatementError
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mysql.statement_text import refused, split_mark
from ccpr.mysql.terms import Term, column_sql
from ccpr.mysql.value_kinds import NULL, ValueKind


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table as DuckDB has it: its name there, and the kind of each column."""

    name: str
    kinds: Mapping[str, ValueKind]


class Tables(Protocol):
    def table(self, database: str, name: str, point: int | None) -> ReadTable:
        """`database` is empty for the one in use; `point` is the number of `{…}`. Raises StatementError 1046, 1146."""
        ...


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """
    Attributes
    ----------
    computed : the digits behind the point of a decimal that shows fewer (`kind.digits`).
    """

    name: str
    kind: ValueKind
    computed: int | None = None


@dataclass(frozen=True, slots=True)
class Translated:
    sql: str
    columns: tuple[ShownColumn, ...]


@dataclass(slots=True)
class SelectSource:
    """One table of FROM. `hidden` are the columns that USING has made one with those of a table before."""

    alias: str
    inner: str
    columns: dict[str, tuple[str, ValueKind]]  # by name in lower case: the name as it is, the column inside
    stored: bool
    database: str = ""
    hidden: set[str] = field(default_factory=set)

    @classmethod
    def derived(cls, alias: str, inner: str, columns: Sequence[ShownColumn]) -> "SelectSource":
        names = [one.name.lower() for one in columns]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise StatementError(1060, f"Duplicate column name '{twice}'", "42S21")
        # A timestamp is a moment without a zone there, as expressions take it.
        return cls(alias, inner, {one.name.lower(): (one.name, one.kind) for one in columns}, False)

    def term(self, name: str) -> Term:
        inside, kind = self.columns[name]
        if self.stored:
            return Term(column_sql(self.inner, inside, kind), kind)
        place = list(self.columns).index(name)
        return Term(f"{quoted(self.inner)}.c{place}", kind)


@dataclass(slots=True)
class SelectScope:
    """
    Attributes
    ----------
    aliases : of the select list, where they may be named in an expression.
    listed : all of them, for ORDER BY of a name.
    windows : of its WINDOW.
    columns_first : in an expression of GROUP BY or ORDER BY, where a name is a column's before it is an alias.
    """

    above: "SelectScope | None"
    sources: list[SelectSource] = field(default_factory=list)
    aliases: dict[str, Term] = field(default_factory=dict)
    listed: dict[str, Term] = field(default_factory=dict)
    windows: dict[str, exp.Expr] = field(default_factory=dict)
    using: bool = False
    columns_first: bool = False

    def column(self, node: exp.Column, *, in_group: bool = False) -> Term:
        name = node.name.lower()
        if not self._is_alias(node):
            return self._stored(node, in_group=in_group)
        alias, is_column = self.aliases[name], any(name in source.columns for source in self.sources)
        if alias is _AMBIGUOUS and is_column and self.columns_first:
            return self._stored(node, in_group=in_group)
        return self._told_apart(name, alias)

    def order_key(self, node: exp.Expr) -> Term | None:
        """Of a name in ORDER BY, which is an alias before it is a column's."""
        name = node.name.lower()
        return self._told_apart(name, self.listed[name]) if self._is_alias(node) else None

    def _is_alias(self, node: exp.Expr) -> TypeGuard[exp.Column]:
        return isinstance(node, exp.Column) and not node.table and node.name.lower() in self.aliases

    def _told_apart(self, name: str, found: Term) -> Term:
        if found is _AMBIGUOUS:
            raise refused(f"the name {name:.60}, which is an alias and a column of a table")
        return found

    def _stored(self, node: exp.Column, *, in_group: bool) -> Term:
        name, qualifier = node.name.lower(), split_mark(node.table)[0].lower()
        if isinstance(node.this, exp.Star) or node.args.get("catalog"):
            raise refused("* in an expression")
        scope: SelectScope | None = self
        while scope is not None:
            there = [
                source
                for source in scope.sources
                if name in source.columns
                and (not qualifier or source.alias.lower() == qualifier)
                and (not node.db or source.database in ("", node.db.lower()))
                and (qualifier or name not in source.hidden)
            ]
            if len(there) > 1:
                raise StatementError(1052, f"Column '{node.name}' is ambiguous", "23000")
            if there:
                if in_group and scope is not self:
                    raise refused("a function of a group with a column of the outer query")
                return there[0].term(name)
            scope = scope.above
        raise unknown_column(node.sql(dialect="mysql"), "field list")

    def all_columns(self, qualifier: str) -> list[tuple[str, Term]]:
        """What `*`, or `qualifier.*`, stands for."""
        sources = [one for one in self.sources if not qualifier or one.alias.lower() == qualifier]
        if not sources:
            raise StatementError(1051, f"Unknown table '{qualifier}'", "42S02")
        merged = [] if qualifier else [name for source in sources for name in source.hidden]
        order = list(self.sources[0].columns)
        first = [
            (name, source)
            for name in sorted(merged, key=lambda one: order.index(one) if one in order else 0)
            for source in sources
            if name in source.columns and name not in source.hidden
        ]
        rest = [(name, source) for source in sources for name in source.columns if qualifier or name not in merged]
        return [(source.columns[name][0], source.term(name)) for name, source in (*first, *rest)]

    def alike(self) -> list[str]:
        """The names that the last table has, and one before it."""
        *before, last = self.sources
        return [name for source in before for name in source.columns if name in last.columns]

    def name_items(self, items: Sequence[tuple[str, Term]]) -> None:
        """From here on, the select list may be named by its aliases."""
        for name, term in items:
            key = name.lower()
            if not key:
                continue
            columns = [source.term(key).sql for source in self.sources if key in source.columns]
            same = all(sql == term.sql for sql in columns) or (len(columns) > 1 and term.sql in columns)
            other = key in self.listed and self.listed[key].sql != term.sql
            self.listed[key] = _AMBIGUOUS if other else term
            self.aliases[key] = term if same and not other else _AMBIGUOUS


_AMBIGUOUS = Term("", NULL)


def only_parts(node: exp.Expr, known: set[str] | frozenset[str]) -> None:
    for name, value in node.args.items():
        if name not in known and value not in (None, False, [], ""):
            raise refused(f"{node.key.upper()} with {name.strip('_').upper()}")


def unknown_column(name: str, where: str) -> StatementError:
    return StatementError(1054, f"Unknown column '{name:.100}' in '{where}'", "42S22")


def renamed(columns: Sequence[ShownColumn], names: Sequence[str]) -> tuple[ShownColumn, ...]:
    """The columns of a SELECT that is read from; `names` are given behind its alias, or are empty."""
    if names and len(names) != len(columns):
        raise StatementError(1353, "the list of names has another length than the SELECT", "HY000")
    if names:
        return tuple(replace(one, name=name) for one, name in zip(columns, names, strict=True))
    if any(not one.name for one in columns):
        raise refused("an expression without a name in a SELECT that is read from")
    return tuple(columns)
