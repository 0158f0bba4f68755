"""A SELECT of MySQL as one of DuckDB: which table each name is of, what is grouped, the order of NULLs.

Each column of a result is called `c0`, `c1` and so on inside, each table `s0`, `s1`: so no name of a statement can mean
another thing to DuckDB than it means here. What is not looked at is refused by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ccpr.matrixone.server.answers import StatementError
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mysql.expression_rules import Expressions, Term, column_sql, direction, shown
from ccpr.mysql.statement_text import TEXT_MARK, StatementText, refused, split_mark
from ccpr.mysql.value_kinds import EXACT, INT, NULL, ValueKind

_SELECT_PARTS = frozenset(
    ("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_")
)
_UNION_PARTS = frozenset(("this", "expression", "distinct", "order", "limit", "offset", "with_", "expressions"))


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
    name: str
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Translated:
    sql: str
    columns: tuple[ShownColumn, ...]


@dataclass(slots=True)
class _Source:
    """One table of FROM. `hidden` are the columns that USING has made one with those of a table before."""

    alias: str
    inner: str
    columns: dict[str, tuple[str, ValueKind]]  # by name in lower case: the name as it is, the column inside
    stored: bool
    database: str = ""
    hidden: set[str] = field(default_factory=set)

    def term(self, name: str) -> Term:
        inside, kind = self.columns[name]
        if self.stored:
            return Term(column_sql(self.inner, inside, kind), kind)
        place = list(self.columns).index(name)
        return Term(f"{quoted(self.inner)}.c{place}", kind)


@dataclass(slots=True)
class _SelectScope:
    above: "_SelectScope | None"
    sources: list[_Source] = field(default_factory=list)
    aliases: dict[str, Term] = field(default_factory=dict)  # of the select list, where they may be named
    using: bool = False


def translated(text: StatementText, tables: Tables, constants: Callable[[str], str | int | None]) -> Translated:
    """Raises StatementRefused; StatementError with MySQL's number for a statement that MySQL would not take."""
    try:
        trees = sqlglot.parse(text.sql, dialect="mysql")
    except (SqlglotError, RecursionError) as error:
        raise StatementError(1064, f"SQL syntax: {str(error).partition(chr(10))[0][:200]}", "42000") from error
    tree = trees[0] if len(trees) == 1 else None
    while isinstance(tree, exp.Subquery) and not any(value for key, value in tree.args.items() if key != "this"):
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise refused("a statement that is no SELECT")
    try:
        found = _Query(text, tables, constants).query(tree, None, outermost=True)
    except RecursionError as error:
        raise refused("a statement of so many parts in one another") from error
    if len(text.names) == len(found.columns) and "*" not in text.names:
        named = zip(found.columns, text.names, strict=True)
        return replace(found, columns=tuple(c if c.name else replace(c, name=name) for c, name in named))
    return replace(found, columns=tuple(c if c.name else replace(c, name="expression") for c in found.columns))


class _Query(Expressions):
    def __init__(self, text: StatementText, tables: Tables, constants: Callable[[str], str | int | None]) -> None:
        super().__init__(text.texts, constants)
        self._tables = tables
        self._scope = _SelectScope(None)
        self._count = 0
        self._named: list[dict[str, tuple[str, tuple[ShownColumn, ...]]]] = []  # WITH, the innermost last

    # ---- queries

    def query(self, node: exp.Expr, above: _SelectScope | None, *, outermost: bool = False) -> Translated:
        before, in_group = self._scope, self.in_group
        self.in_group = False
        self._named.append({})
        try:
            with_ = self._with(node.args.get("with_"))
            found = (
                self._union(node, above) if isinstance(node, exp.SetOperation) else self._select(node, above, outermost)
            )
            return replace(found, sql=with_ + found.sql)
        finally:
            self._named.pop()
            self._scope, self.in_group = before, in_group

    def _with(self, node: exp.Expr | None) -> str:
        if node is None:
            return ""
        if node.args.get("recursive"):
            raise refused("WITH RECURSIVE")
        parts = []
        for one in node.expressions:
            _only(one, {"this", "alias"})
            inner = self.query(one.this, None)
            name, names = f"w{self._next()}", [column.name for column in one.args["alias"].args.get("columns") or ()]
            self._named[-1][one.alias.lower()] = name, _renamed(inner.columns, names)
            parts.append(f"{name} AS ({inner.sql})")
        return f"WITH {', '.join(parts)} "

    def _union(self, node: exp.SetOperation, above: _SelectScope | None) -> Translated:
        if not isinstance(node, exp.Union):
            raise refused(node.key.upper())
        _only(node, _UNION_PARTS)
        sides = []
        for side in (node.this, node.expression):
            inner = side.this if isinstance(side, exp.Subquery) else side
            if inner is not side:
                _only(side, {"this"})
            if not isinstance(inner, exp.Select | exp.SetOperation):
                raise refused("a UNION of something else than SELECT")
            sides.append(self.query(inner, above))
        left, right = sides
        if len(left.columns) != len(right.columns):
            raise StatementError(1222, "The used SELECT statements have a different number of columns", "21000")
        kinds = [_common(a.kind, b.kind) for a, b in zip(left.columns, right.columns, strict=True)]
        word = "UNION" if node.args.get("distinct") else "UNION ALL"
        columns = tuple(replace(one, kind=kind) for one, kind in zip(left.columns, kinds, strict=True))
        sql = f"SELECT * FROM ({left.sql}) {word} SELECT * FROM ({right.sql})"
        order = node.args.get("order")
        if order is not None:
            sql += self._order_of_union(order, columns)
        return Translated(sql + self._limit(node), columns)

    def _order_of_union(self, order: exp.Order, columns: Sequence[ShownColumn]) -> str:
        names, parts = [one.name.lower() for one in columns], []
        for one in order.expressions:
            inner = one.this
            if isinstance(inner, exp.Literal) and not inner.is_string:
                place = _position(inner, len(columns))
            elif isinstance(inner, exp.Column) and not inner.table and names.count(inner.name.lower()) == 1:
                place = names.index(inner.name.lower())
            else:
                raise refused("ORDER BY of a UNION by something else than one of its columns")
            _ordering(columns[place].kind)
            parts.append(f"{place + 1}{direction(one)}")
        return f" ORDER BY {', '.join(parts)}"

    def _select(self, node: exp.Expr, above: _SelectScope | None, outermost: bool) -> Translated:
        assert isinstance(node, exp.Select)
        modifiers = {str(one).upper() for one in node.args.get("operation_modifiers") or ()}
        if modifiers - {"SQL_NO_CACHE"}:
            raise refused(f"SELECT {' '.join(sorted(modifiers)):.60}")
        _only(node, _SELECT_PARTS | {"operation_modifiers"})
        scope = self._scope = _SelectScope(above)
        source = self._from(node, scope)
        where = self._where(node, scope)
        items = self._items(node, scope)
        scope.aliases = self._aliases(items, scope)
        group = self._group(node, scope, [term for _, term in items])
        having, aliased = node.args.get("having"), replace_scope(scope)
        self._scope = aliased
        having_sql = ""
        if having is not None:
            condition = self.truth(having.this)
            if not group and not condition.aggregate:
                raise refused("HAVING without GROUP BY")
            having_sql = f" HAVING {condition.sql}"
        grouped = bool(group) or any(term.aggregate for _, term in items) or bool(having_sql)
        order = self._order(node, items, grouped)
        distinct = self._distinct_of(node, items)
        terms = [self._shown(term, outermost) for _, term in items]
        listed = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(terms))
        sql = f"SELECT {distinct}{listed}{source}{where}{group}{having_sql}{order}{self._limit(node)}"
        columns = tuple(ShownColumn(name, _kind_shown(term, outermost)) for name, term in items)
        return Translated(sql, columns)

    def _shown(self, term: Term, outermost: bool) -> str:
        if outermost and term.kind.name == "time":
            return f"epoch_us({term.sql})"
        return shown(term)

    def _distinct_of(self, node: exp.Select, items: Sequence[tuple[str, Term]]) -> str:
        distinct = node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on"):
            raise refused("DISTINCT ON")
        for _, term in items:
            if term.kind.base == "opaque" or term.kind.collation or term.quotient:
                raise refused(f"DISTINCT of a {term.kind.name or term.kind.collation or 'quotient'} column")
        return "DISTINCT "

    def _limit(self, node: exp.Expr) -> str:
        sql = ""
        for name in ("limit", "offset"):
            part = node.args.get(name)
            if part is None:
                continue
            inner = part.expression
            while isinstance(inner, exp.Paren):
                inner = inner.this
            if not isinstance(inner, exp.Literal) or inner.is_string or not inner.this.isdecimal():
                raise refused(f"{name.upper()} of something else than a whole number")
            _only(part, {"this", "expression"})
            sql += f" {name.upper()} {min(int(inner.this), 2**63 - 1)}"
        return sql

    # ---- FROM

    def _from(self, node: exp.Select, scope: _SelectScope) -> str:
        from_, joins = node.args.get("from_"), node.args.get("joins") or []
        if from_ is None:
            return ""
        sql = f" FROM {self._source(from_.this, scope)}"
        bare = [one for one in joins if not one.args.get("on") and not one.args.get("using")]
        if bare and any(one.args.get("side") for one in joins):
            raise refused("an outer join beside a table that is joined without a condition")
        for join in joins:
            _only(join, {"this", "side", "kind", "on", "using"})
            side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
            if side not in ("", "LEFT", "RIGHT") or kind not in ("", "INNER", "CROSS", "OUTER"):
                raise refused(f"{side} {kind} JOIN".strip())
            right = self._source(join.this, scope)
            if join.args.get("using"):
                if side == "RIGHT" or scope.using:
                    raise refused("USING of a RIGHT JOIN" if side else "USING of several joins")
                condition = self._using(join.args["using"], scope)
            elif join.args.get("on") is not None:
                condition = self.truth(join.args["on"]).sql
            else:
                sql += f" CROSS JOIN {right}"
                continue
            sql += f" {side or 'INNER'} JOIN {right} ON {condition}"
        return sql

    def _using(self, names: Sequence[exp.Expr], scope: _SelectScope) -> str:
        scope.using, right, parts = True, scope.sources[-1], []
        for one in names:
            name = one.name.lower()
            left = [source for source in scope.sources[:-1] if name in source.columns and name not in source.hidden]
            if len(left) != 1 or name not in right.columns:
                raise _unknown(one.name, "from clause")
            a, b = self.comparable(left[0].term(name), right.term(name), "USING")
            parts.append(f"{a} = {b}")
            right.hidden.add(name)
        return " AND ".join(parts)

    def _source(self, node: exp.Expr, scope: _SelectScope) -> str:
        inner = f"s{self._next()}"
        if isinstance(node, exp.Table):
            sql, source = self._table(node, inner)
        elif isinstance(node, exp.Subquery):
            _only(node, {"this", "alias"})
            if not node.alias:
                raise StatementError(1248, "Every derived table must have its own alias", "42000")
            found = self.query(node.this, None)
            self._scope = scope
            names = [column.name for column in node.args["alias"].args.get("columns") or ()]
            sql, source = f"({found.sql})", _derived(node.alias, inner, _renamed(found.columns, names))
        else:
            raise refused(f"{node.key.upper()} in FROM")
        if any((one.alias.lower(), one.database) == (source.alias.lower(), source.database) for one in scope.sources):
            raise StatementError(1066, f"Not unique table/alias: '{source.alias}'", "42000")
        scope.sources.append(source)
        return f"{sql} AS {inner}"

    def _table(self, node: exp.Table, inner: str) -> tuple[str, _Source]:
        _only(node, {"this", "db", "alias", "joins"})
        if node.args.get("joins") or not isinstance(node.this, exp.Identifier) or node.args.get("catalog"):
            raise refused(f"{node.this.key.upper()} in FROM")
        name, point = split_mark(node.name)
        if name.startswith(TEXT_MARK):
            raise refused("a string in FROM")
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise refused("an alias of a table with names of columns")
        if not node.db:
            for named in reversed(self._named):
                if name.lower() in named:
                    if point is not None:
                        raise refused("{…} behind the name of a WITH")
                    sql, columns = named[name.lower()]
                    return sql, _derived(node.alias or name, inner, columns)
        table = self._tables.table(node.db, name, point)
        columns = {one.lower(): (one, kind) for one, kind in table.kinds.items()}
        return quoted(table.name), _Source(
            node.alias or name, inner, columns, True, "" if node.alias else node.db.lower()
        )

    # ---- names

    def column(self, node: exp.Column) -> Term:
        name, qualifier = node.name.lower(), split_mark(node.table)[0].lower()
        if isinstance(node.this, exp.Star) or node.args.get("catalog"):
            raise refused("* in an expression")
        if not qualifier and name in self._scope.aliases:
            found = self._scope.aliases[name]
            if found is _AMBIGUOUS:
                raise refused(f"the name {node.name:.60}, which is an alias and a column of a table")
            return found
        scope: _SelectScope | None = self._scope
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
                if self.in_group and scope is not self._scope:
                    raise refused("a function of a group with a column of the outer query")
                return there[0].term(name)
            scope = scope.above
        raise _unknown(node.sql(dialect="mysql"), "field list")

    def _items(self, node: exp.Select, scope: _SelectScope) -> list[tuple[str, Term]]:
        items = list[tuple[str, Term]]()
        for one in node.expressions:
            if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
                _only(one, {"this", "table"})
                items += self._all(one.table.lower() if isinstance(one, exp.Column) else "", scope)
                continue
            name, inner = "", one
            if isinstance(one, exp.Alias):
                _only(one, {"this", "alias"})
                name, inner = one.alias, one.this
                if name.startswith(TEXT_MARK):
                    name = self.written_out(name)
            elif isinstance(one, exp.Column):
                name = one.name
            items.append((name, self.term(inner)))
        return items

    def _all(self, qualifier: str, scope: _SelectScope) -> list[tuple[str, Term]]:
        sources = [one for one in scope.sources if not qualifier or one.alias.lower() == qualifier]
        if not sources:
            raise StatementError(1051, f"Unknown table '{qualifier}'", "42S02")
        merged = [] if qualifier else [name for source in sources for name in source.hidden]
        order = list(scope.sources[0].columns)
        first = [
            (name, source)
            for name in sorted(merged, key=lambda one: order.index(one) if one in order else 0)
            for source in sources
            if name in source.columns and name not in source.hidden
        ]
        rest = [(name, source) for source in sources for name in source.columns if qualifier or name not in merged]
        return [(source.columns[name][0], source.term(name)) for name, source in (*first, *rest)]

    def _aliases(self, items: Sequence[tuple[str, Term]], scope: _SelectScope) -> dict[str, Term]:
        found: dict[str, Term] = {}
        for name, term in items:
            key = name.lower()
            if not key:
                continue
            columns = [source.term(key).sql for source in scope.sources if key in source.columns]
            same = all(sql == term.sql for sql in columns) or (len(columns) > 1 and term.sql in columns)
            other = key in found and found[key].sql != term.sql
            found[key] = term if same and not other else _AMBIGUOUS
        return found

    def _where(self, node: exp.Select, scope: _SelectScope) -> str:
        where = node.args.get("where")
        if where is None:
            return ""
        condition = self.truth(where.this)
        if condition.aggregate:
            raise StatementError(1111, "Invalid use of group function", "HY000")
        return f" WHERE {condition.sql}"

    def _group(self, node: exp.Select, scope: _SelectScope, terms: Sequence[Term]) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        for name, value in group.args.items():
            if name != "expressions" and value:
                raise refused(f"GROUP BY {name.upper()}")
        parts = []
        for one in group.expressions:
            if isinstance(one, exp.Literal) and not one.is_string:
                found = terms[_position(one, len(terms))]
            else:
                found = self.term(one)
                if found.is_literal:
                    raise refused("GROUP BY of a value that is written out")
            if found.quotient or found.kind.base == "opaque" or found.kind.collation:
                raise refused(f"GROUP BY of a {found.kind.name or found.kind.collation or 'quotient'}")
            if found.aggregate:
                raise StatementError(1056, "Can't group on a function of a group", "42000")
            parts.append(found.sql)
        return f" GROUP BY {', '.join(parts)}"

    def _order(self, node: exp.Select, items: Sequence[tuple[str, Term]], grouped: bool) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        parts, sqls = [], [term.sql for _, term in items]
        for one in order.expressions:
            if not isinstance(one, exp.Ordered) or one.args.get("with_fill"):
                raise refused("this ORDER BY")
            if isinstance(one.this, exp.Literal) and not one.this.is_string:
                found = items[_position(one.this, len(items))][1]
            else:
                found = self.term(one.this)
            if found.quotient:
                raise refused("ORDER BY of the result of /", "MySQL orders by digits that it does not show")
            if node.args.get("distinct") is not None and found.sql not in sqls:
                raise refused("ORDER BY of something that SELECT DISTINCT does not list")
            if found.aggregate and not grouped:
                raise refused("ORDER BY of a function of a group")
            _ordering(found.kind)
            sql = f"c{sqls.index(found.sql)}" if found.sql in sqls else shown(found)
            parts.append(sql + direction(one))
        return f" ORDER BY {', '.join(parts)}"

    # ---- queries inside expressions

    def scalar(self, node: exp.Expr) -> Term:
        found = self.query(node.this, self._scope)
        if len(found.columns) != 1:
            raise StatementError(1241, "Operand should contain 1 column(s)", "21000")
        return Term(f"({found.sql})", found.columns[0].kind)

    def rows_of(self, node: exp.Expr) -> tuple[str, list[ValueKind]]:
        inner = node.this if isinstance(node, exp.Subquery) else node
        if inner is not node:
            _only(node, {"this"})
        if not isinstance(inner, exp.Select | exp.SetOperation):
            raise refused(f"{inner.key.upper()} where a SELECT is due")
        if inner.args.get("limit") is not None:
            raise StatementError(1235, "This version doesn't yet support 'LIMIT & IN/ALL/ANY/SOME subquery'", "42000")
        found = self.query(inner, self._scope)
        return found.sql, [one.kind for one in found.columns]

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


_AMBIGUOUS = Term("", NULL)


def replace_scope(scope: _SelectScope) -> _SelectScope:
    return _SelectScope(scope.above, scope.sources, scope.aliases, scope.using)


def _only(node: exp.Expr, known: set[str] | frozenset[str]) -> None:
    for name, value in node.args.items():
        if name not in known and value not in (None, False, [], ""):
            raise refused(f"{node.key.upper()} with {name.strip('_').upper()}")


def _unknown(name: str, where: str) -> StatementError:
    return StatementError(1054, f"Unknown column '{name:.100}' in '{where}'", "42S22")


def _position(node: exp.Literal, count: int) -> int:
    if not node.this.isdecimal() or not 1 <= int(node.this) <= count:
        raise StatementError(1054, f"Unknown column '{node.this:.40}' in 'order clause'", "42S22")
    return int(node.this) - 1


def _ordering(kind: ValueKind) -> None:
    if kind.base == "opaque" or kind.collation:
        raise refused(f"ORDER BY of a {kind.name or kind.collation}")


def _kind_shown(term: Term, outermost: bool) -> ValueKind:
    if term.quotient is not None and not outermost:
        return ValueKind("opaque", term.kind.digits, "quotient")
    return INT if term.kind.base == "truth" else term.kind


def _derived(alias: str, inner: str, columns: Sequence[ShownColumn]) -> _Source:
    names = [one.name.lower() for one in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise StatementError(1060, f"Duplicate column name '{twice}'", "42S21")
    # A timestamp is a moment without a zone there, as expressions take it.
    by_name = {one.name.lower(): (one.name, one.kind) for one in columns}
    return _Source(alias, inner, by_name, False)


def _renamed(columns: Sequence[ShownColumn], names: Sequence[str]) -> tuple[ShownColumn, ...]:
    if names and len(names) != len(columns):
        raise StatementError(1353, "the list of names has another length than the SELECT", "HY000")
    if names:
        return tuple(replace(one, name=name) for one, name in zip(columns, names, strict=True))
    if any(not one.name for one in columns):
        raise refused("an expression without a name in a SELECT that is read from")
    return tuple(columns)


def _common(one: ValueKind, other: ValueKind) -> ValueKind:
    if one == other and one.base not in ("opaque", "truth") and not one.collation:
        return one
    if one.base == "null":
        return other
    if other.base == "null":
        return one
    if {one.base, other.base} <= EXACT - {"uint"} and one.digits == other.digits == 0:
        return ValueKind("decimal") if "decimal" in (one.base, other.base) else INT
    raise refused(f"UNION of a {one.name or one.base} and a {other.name or other.base}")
