"""A SELECT of MySQL as one of DuckDB: which table each name is of, what is grouped, the order of NULLs.

Each column of a result is called `c0`, `c1` and so on inside, each table `s0`, `s1`: so no name of a statement can mean
another thing to DuckDB than it means here. What is not looked at is refused by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ccpr.base.newest import Newest
from ccpr.matrixone.server.answers import StatementError
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mysql.condition_rules import CONDITION_RULES
from ccpr.mysql.date_rules import DATE_RULES
from ccpr.mysql.expression_rules import VALUE_RULES, Expressions, Rules, direction, no_place, ordering
from ccpr.mysql.group_rules import GROUP_RULES
from ccpr.mysql.number_rules import NUMBER_RULES
from ccpr.mysql.select_scope import (
    ReadTable,
    SelectScope,
    SelectSource,
    ShownColumn,
    Tables,
    Translated,
    only_parts,
    renamed,
    unknown_column,
)
from ccpr.mysql.statement_text import TEXT_MARK, StatementText, refused, split_mark
from ccpr.mysql.terms import Term, exact, shown
from ccpr.mysql.text_rules import TEXT_RULES
from ccpr.mysql.value_kinds import DOUBLE, EXACT, INT, NULL, NUMBERS, ROUNDED, ValueKind

RULES: Rules = {**VALUE_RULES, **CONDITION_RULES, **NUMBER_RULES, **TEXT_RULES, **DATE_RULES, **GROUP_RULES}
_SELECT_PARTS = frozenset(
    "expressions from_ joins where group having order limit offset distinct with_ windows operation_modifiers".split()  # noqa: SIM905
)
_UNION_PARTS = frozenset(("this", "expression", "distinct", "order", "limit", "offset", "with_", "expressions"))


Constants = Callable[[str], str | int | None]
_Asked = list[tuple[Callable[[Tables, Constants], object], object]]  # what a translation asked, and the answers
KeptTranslations = Newest[tuple[object, ...], tuple[_Asked, Translated]]


def translated_once(kept: KeptTranslations, text: StatementText, tables: Tables, constants: Constants) -> Translated:
    """As `translated`, which is repeated only if one of the things that it asks for has changed."""
    key = text.sql, *text.texts, *text.points, *text.names
    known = kept.get(key)
    if known is not None and all(ask(tables, constants) == answer for ask, answer in known[0]):
        return known[1]
    asked = _Asked()

    def noted(ask: Callable[[Tables, Constants], Any]) -> Any:
        asked.append((ask, answer := ask(tables, constants)))
        return answer

    class Noting:
        def table(self, database: str, name: str, point: int | None) -> ReadTable:
            return noted(lambda tables, _: tables.table(database, name, point))

    found = translated(text, Noting(), lambda name: noted(lambda _, constants: constants(name)))
    kept.put(key, (asked, found), len(text.sql) + len(found.sql))
    return found


def translated(text: StatementText, tables: Tables, constants: Constants) -> Translated:
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
    def __init__(self, text: StatementText, tables: Tables, constants: Constants) -> None:
        super().__init__(RULES, text.texts, constants)
        self._tables = tables
        self._scope = SelectScope(None)
        self._count = 0
        self._named: list[dict[str, tuple[str, tuple[ShownColumn, ...]]]] = []  # WITH, the innermost last

    # ---- queries

    def query(
        self, node: exp.Expr, above: SelectScope | None, *, outermost: bool = False, scalar: bool = False
    ) -> Translated:
        """A `scalar` one gives decimals with all digits that MySQL computes."""
        before, in_group = self._scope, self.in_group
        self.in_group = False
        self._named.append({})
        try:
            with_ = self._with(node.args.get("with_"))
            if isinstance(node, exp.SetOperation):
                found = self._union(node, above)
            else:
                found = self._select(node, above, outermost, scalar)
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
            only_parts(one, {"this", "alias"})
            inner = self.query(one.this, None)
            name, names = f"w{self._next()}", [column.name for column in one.args["alias"].args.get("columns") or ()]
            self._named[-1][one.alias.lower()] = name, renamed(inner.columns, names)
            parts.append(f"{name} AS ({inner.sql})")
        return f"WITH {', '.join(parts)} "

    def _union(self, node: exp.SetOperation, above: SelectScope | None) -> Translated:
        word = node.key.upper()
        only_parts(node, _UNION_PARTS)
        sides = []
        for side in (node.this, node.expression):
            inner = side.this if isinstance(side, exp.Subquery) else side
            if inner is not side:
                only_parts(side, {"this"})
            if not isinstance(inner, exp.Select | exp.SetOperation):
                raise refused(f"{word} of something else than SELECT")
            if (
                inner is side
                and isinstance(inner, exp.SetOperation)
                and (type(inner) is not type(node) or word != "UNION")
            ):
                raise refused(f"{word} beside {inner.key.upper()} without parentheses")
            sides.append(self.query(inner, above))
        left, right = sides
        if len(left.columns) != len(right.columns):
            raise StatementError(1222, "The used SELECT statements have a different number of columns", "21000")
        kinds = [_common(a.kind, b.kind) for a, b in zip(left.columns, right.columns, strict=True)]
        left, right = _as_kinds(left, kinds), _as_kinds(right, kinds)
        if not node.args.get("distinct"):
            word += " ALL"
        columns = tuple(replace(one, kind=kind) for one, kind in zip(left.columns, kinds, strict=True))
        sql = f"{left.sql} {word} {right.sql}"
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
            parts.append(ordering(Term(str(place + 1), columns[place].kind)) + direction(one))
        return f" ORDER BY {', '.join(parts)}"

    def _select(self, node: exp.Expr, above: SelectScope | None, outermost: bool, scalar: bool) -> Translated:
        assert isinstance(node, exp.Select)
        modifiers = {str(one).upper() for one in node.args.get("operation_modifiers") or ()}
        if modifiers - {"SQL_NO_CACHE"}:
            raise refused(f"SELECT {' '.join(sorted(modifiers)):.60}")
        only_parts(node, _SELECT_PARTS)
        scope = self._scope = SelectScope(above)
        scope.windows = {one.name.lower(): one for one in node.args.get("windows") or ()}
        source = self._from(node, scope)
        where = self._where(node)
        items = self._items(node)
        scope.name_items(items)
        group = self._group(node, [term for _, term in items])
        having, having_sql = node.args.get("having"), ""
        if having is not None:
            condition = self.truth(having.this)
            if not group and not condition.aggregate:
                raise refused("HAVING without GROUP BY")
            if condition.window:
                raise refused("a function of a window in HAVING")
            having_sql = f" HAVING {condition.sql}"
        grouped = bool(group) or any(term.aggregate for _, term in items) or bool(having_sql)
        if grouped and any(term.window for _, term in items):
            raise refused("a function of a window beside those of a group")
        order = self._order(node, items, grouped)
        distinct = self._distinct_of(node, items)
        if scalar:
            items = [(name, exact(term)) for name, term in items]
            if any(term.computed is not None for _, term in items) and (distinct or order or group):
                raise refused("the result of / of a query in an expression, with GROUP BY, ORDER BY or DISTINCT")
        sqls = [term.sql if scalar and term.computed else self._shown(term, outermost) for _, term in items]
        listed = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(sqls))
        sql = f"SELECT {distinct}{listed}{source}{where}{group}{having_sql}{order}{self._limit(node)}"
        columns = tuple(
            ShownColumn(name, _kind_shown(term, outermost or scalar), term.computed if scalar else None)
            for name, term in items
        )
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
            if term.kind.base == "opaque" or term.kind.collation or term.computed is not None:
                raise refused(f"DISTINCT of a {term.kind.name or term.kind.collation or 'quotient'} column")
        return "DISTINCT "

    def _limit(self, node: exp.Expr) -> str:
        sql = ""
        for name in ("limit", "offset"):
            part = node.args.get(name)
            if part is None:
                continue
            inner = part.expression
            while isinstance(inner, exp.Paren) or (isinstance(inner, exp.Cast) and inner.to.this == exp.DType.UBIGINT):
                inner = inner.this
            if not isinstance(inner, exp.Literal) or inner.is_string or not inner.this.isdecimal():
                raise refused(f"{name.upper()} of something else than a whole number")
            only_parts(part, {"this", "expression"})
            sql += f" {name.upper()} {min(int(inner.this), 2**63 - 1)}"
        return sql

    # ---- FROM

    def _from(self, node: exp.Select, scope: SelectScope) -> str:
        from_, joins = node.args.get("from_"), node.args.get("joins") or []
        if from_ is None:
            return ""
        sql = f" FROM {self._source(from_.this, scope)}"
        bare = [one for one in joins if not any(one.args.get(part) for part in ("on", "using", "method"))]
        if bare and any(one.args.get("side") for one in joins):
            raise refused("an outer join beside a table that is joined without a condition")
        for join in joins:
            only_parts(join, {"this", "side", "kind", "on", "using", "method"})
            side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
            if side not in ("", "LEFT", "RIGHT") or kind not in ("", "INNER", "CROSS", "OUTER"):
                raise refused(f"{side} {kind} JOIN".strip())
            right, using = self._source(join.this, scope), [one.name for one in join.args.get("using") or ()]
            if method := join.args.get("method"):
                if method != "NATURAL":
                    raise refused(f"{method} JOIN")
                using = scope.alike()
            if using:
                if side == "RIGHT" or scope.using:
                    raise refused("USING of a RIGHT JOIN" if side else "USING of several joins")
                condition = self._using(using, scope)
            elif join.args.get("on") is not None:
                condition = self.truth(join.args["on"]).sql
            elif side:
                raise refused(f"NATURAL {side} JOIN of tables without a common name")
            else:
                sql += f" CROSS JOIN {right}"
                continue
            sql += f" {side or 'INNER'} JOIN {right} ON {condition}"
        return sql

    def _using(self, names: Sequence[str], scope: SelectScope) -> str:
        scope.using, right, parts = True, scope.sources[-1], []
        for one in names:
            name = one.lower()
            left = [source for source in scope.sources[:-1] if name in source.columns and name not in source.hidden]
            if len(left) != 1 or name not in right.columns:
                raise unknown_column(one, "from clause")
            a, b = self.comparable(left[0].term(name), right.term(name), "USING")
            parts.append(f"{a} = {b}")
            right.hidden.add(name)
        return " AND ".join(parts)

    def _source(self, node: exp.Expr, scope: SelectScope) -> str:
        inner = f"s{self._next()}"
        if isinstance(node, exp.Table):
            sql, source = self._table(node, inner)
        elif isinstance(node, exp.Subquery):
            only_parts(node, {"this", "alias"})
            if not node.alias:
                raise StatementError(1248, "Every derived table must have its own alias", "42000")
            found = self.query(node.this, None)
            self._scope = scope
            names = [column.name for column in node.args["alias"].args.get("columns") or ()]
            sql, source = f"({found.sql})", SelectSource.derived(node.alias, inner, renamed(found.columns, names))
        else:
            raise refused(f"{node.key.upper()} in FROM")
        if any((one.alias.lower(), one.database) == (source.alias.lower(), source.database) for one in scope.sources):
            raise StatementError(1066, f"Not unique table/alias: '{source.alias}'", "42000")
        scope.sources.append(source)
        return f"{sql} AS {inner}"

    def _table(self, node: exp.Table, inner: str) -> tuple[str, SelectSource]:
        only_parts(node, {"this", "db", "alias", "joins"})
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
                    return sql, SelectSource.derived(node.alias or name, inner, columns)
        table = self._tables.table(node.db, name, point)
        columns = {one.lower(): (one, kind) for one, kind in table.kinds.items()}
        return quoted(table.name), SelectSource(
            node.alias or name, inner, columns, True, "" if node.alias else node.db.lower()
        )

    # ---- names

    def column(self, node: exp.Column) -> Term:
        return self._scope.column(node, in_group=self.in_group)

    def window_named(self, name: str) -> exp.Expr:
        found = self._scope.windows.get(name.lower())
        if found is None:
            raise StatementError(3579, f"Window name '{name:.60}' is not defined.", "HY000")
        if found.args.get("alias"):
            raise refused("a window that is named after another")
        return found

    def _items(self, node: exp.Select) -> list[tuple[str, Term]]:
        items = list[tuple[str, Term]]()
        for one in node.expressions:
            if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
                only_parts(one, {"this", "table"})
                items += self._scope.all_columns(one.table.lower() if isinstance(one, exp.Column) else "")
                continue
            name, inner = "", one
            if isinstance(one, exp.Alias):
                only_parts(one, {"this", "alias"})
                name, inner = one.alias, one.this
                if name.startswith(TEXT_MARK):
                    name = self.written_out(name)
            elif isinstance(one, exp.Column):
                name = one.name
            items.append((name, self.term(inner)))
        return items

    def _where(self, node: exp.Select) -> str:
        where = node.args.get("where")
        if where is None:
            return ""
        condition = self.truth(where.this)
        if condition.aggregate or condition.window:
            raise StatementError(1111, "Invalid use of group function", "HY000")
        return f" WHERE {condition.sql}"

    def _group(self, node: exp.Select, terms: Sequence[Term]) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        rollup = group.args.get("rollup")
        for name, value in group.args.items():
            if name not in ("expressions", "rollup") and value:
                raise refused(f"GROUP BY {name.upper()}")
        parts = []
        for one in group.expressions:
            if isinstance(one, exp.Literal) and not one.is_string:
                found = terms[_position(one, len(terms))]
            else:
                found = self._of_columns(one)
                if found.is_literal:
                    raise refused("GROUP BY of a value that is written out")
            if found.computed is not None or found.kind.base == "opaque" or found.kind.collation:
                raise refused(f"GROUP BY of a {found.kind.name or found.kind.collation or 'quotient'}")
            if found.aggregate or found.window:
                raise StatementError(1056, "Can't group on a function of a group", "42000")
            parts.append(found)
        listed = ", ".join(one.sql for one in parts)
        if not rollup:
            return f" GROUP BY {listed}"
        if (
            rollup[0].expressions
            or len(rollup) > 1
            or any(node.args.get(one) for one in ("having", "order", "distinct"))
        ):
            raise refused("WITH ROLLUP beside HAVING, ORDER BY or DISTINCT")
        order = (f"grouping({one.sql}), {ordering(one)} ASC NULLS FIRST" for one in parts)
        return f" GROUP BY ROLLUP ({listed}) HAVING count(*) > 0 ORDER BY {', '.join(order)}"

    def _of_columns(self, node: exp.Expr) -> Term:
        scope = self._scope
        scope.columns_first = True
        found, scope.columns_first = self.term(node), False
        return found

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
            elif (alias := self._scope.order_key(one.this)) is not None:
                found = alias
            else:
                no_place(found := self._of_columns(one.this))
            if node.args.get("distinct") is not None and found.sql not in sqls:
                raise refused("ORDER BY of something that SELECT DISTINCT does not list")
            if (found.aggregate and not grouped) or (found.window and grouped):
                raise refused("ORDER BY of a function of a group or window")
            sql = f"c{sqls.index(found.sql)}" if found.sql in sqls else shown(found)
            parts.append(ordering(replace(found, sql=sql)) + direction(one))
        return f" ORDER BY {', '.join(parts)}"

    # ---- queries inside expressions

    def scalar(self, node: exp.Expr) -> Term:
        found = self.query(node.this, self._scope, scalar=True)
        if len(found.columns) != 1:
            raise StatementError(1241, "Operand should contain 1 column(s)", "21000")
        kind = replace(found.columns[0].kind, labels=())
        return Term(f"({found.sql})", kind, computed=found.columns[0].computed)

    def rows_of(self, node: exp.Expr) -> tuple[str, list[ValueKind]]:
        inner = node.this if isinstance(node, exp.Subquery) else node
        if inner is not node:
            only_parts(node, {"this"})
        if not isinstance(inner, exp.Select | exp.SetOperation):
            raise refused(f"{inner.key.upper()} where a SELECT is due")
        if inner.args.get("limit") is not None:
            raise StatementError(1235, "This version doesn't yet support 'LIMIT & IN/ALL/ANY/SOME subquery'", "42000")
        found = self.query(inner, self._scope)
        return found.sql, [one.kind for one in found.columns]

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


def _position(node: exp.Literal, count: int) -> int:
    if not node.this.isdecimal() or not 1 <= int(node.this) <= count:
        raise StatementError(1054, f"Unknown column '{node.this:.40}' in 'order clause'", "42S22")
    return int(node.this) - 1


def _kind_shown(term: Term, outermost: bool) -> ValueKind:
    if term.computed is not None and not outermost:
        return ValueKind("opaque", term.kind.digits, "quotient")
    return INT if term.kind.base == "truth" else term.kind


def _as_kinds(side: Translated, kinds: Sequence[ValueKind]) -> Translated:
    """DuckDB itself would give decimals fewer digits, and texts a number."""
    columns = [
        f"c{place}"
        if kind == column.kind or column.kind == NULL or kind.base == "text"
        else f"{_converted(f'c{place}', kind)} AS c{place}"
        for place, (column, kind) in enumerate(zip(side.columns, kinds, strict=True))
    ]
    return replace(side, sql=f"SELECT {', '.join(columns)} FROM ({side.sql})")


def _converted(sql: str, kind: ValueKind) -> str:
    types = {"decimal": f"DECIMAL(38,{kind.digits})", "double": "DOUBLE", "datetime": "TIMESTAMP", "int": "BIGINT"}
    return f"CAST({sql} AS {types[kind.base]})"


def _common(one: ValueKind, other: ValueKind) -> ValueKind:
    if {one.base, other.base} == {"text"} and not one.collation and not other.collation:
        return ValueKind("text", name=one.name or other.name)
    if one == other and one.base not in ("opaque", "truth") and not one.collation:
        return one
    if "null" in (one.base, other.base):
        return replace(other if one.base == "null" else one, labels=())
    bases, digits = {one.base, other.base}, max(one.digits, other.digits)
    if ROUNDED in (one.name, other.name):
        raise refused("UNION of DOUBLEs that were rounded and others")
    if bases == {"int"}:
        return INT
    if bases <= EXACT:
        return ValueKind("decimal", digits)
    if bases <= NUMBERS:
        return DOUBLE
    if bases <= {"date", "datetime"}:
        return ValueKind("datetime", digits)
    raise refused(f"UNION of a {one.name or one.base} and a {other.name or other.base}")
