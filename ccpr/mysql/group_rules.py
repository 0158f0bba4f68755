"""Functions of a group, and of a window."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from ccpr.mysql.expression_rules import Expressions, Rules, rule
from ccpr.mysql.statement_text import refused
from ccpr.mysql.terms import Term, double, huge, made, not_nested, quotient_of, text_sql, whole_number
from ccpr.mysql.value_kinds import DOUBLE, EXACT, INT, TEXT, ValueKind

# `over` is what stands behind a function of a window.


def _grouped(sql: str, kind: ValueKind, found: Term, over: str = "") -> Term:
    return replace(made(sql, kind, found), aggregate=not over, window=bool(over))


def _count(rules: Expressions, node: exp.Count, over: str = "") -> Term:
    inner = node.this
    if isinstance(inner, exp.Star):
        return Term(f"count(*){over}", INT, aggregate=not over, window=bool(over))
    if isinstance(inner, exp.Distinct) and len(inner.expressions) > 1:
        return _count_of_several(rules, inner.expressions)
    distinct, inner = _distinct(inner)
    found = _of_group(rules, inner, (lambda one: rules.settled(one, "COUNT(DISTINCT)")) if distinct else rules.term)
    if found.kind.base == "text" and found.kind.collation and distinct:
        raise refused(f"COUNT(DISTINCT) of text with collation {found.kind.collation}")
    return _grouped(f"count({distinct}{found.sql}){over}", INT, found, over)


def _count_of_several(rules: Expressions, nodes: Sequence[exp.Expr]) -> Term:
    """Rows with a NULL among them are not counted."""
    terms = [_of_group(rules, one, lambda node: rules.settled(node, "COUNT(DISTINCT)")) for one in nodes]
    if any(one.kind.collation for one in terms):
        raise refused("COUNT(DISTINCT) of text with another collation")
    missing, sqls = " OR ".join(f"{one.sql} IS NULL" for one in terms), ", ".join(one.sql for one in terms)
    sql = f"count(DISTINCT CASE WHEN {missing} THEN NULL ELSE row({sqls}) END)"
    return replace(made(sql, INT, *terms), aggregate=True)


def _sum(rules: Expressions, node: exp.Sum, over: str = "") -> Term:
    distinct, inner = _distinct(node.this)
    return _sum_of(_of_group(rules, inner, lambda one: rules.settled(one, "SUM")), distinct, over)


def _sum_of(found: Term, distinct: str, over: str) -> Term:
    if found.kind.base == "double":
        return _grouped(f"ccpr_finite(sum({distinct}{double(found)}){over})", DOUBLE, found, over)
    if found.kind.base not in EXACT:
        raise refused(f"SUM of a {found.kind.base}")
    inner, digits = huge(found) if found.kind.base in ("uint", "truth") else found.sql, found.kind.digits
    sql = f"CAST(sum({distinct}{inner}){over} AS DECIMAL(38,{digits}))"
    return _grouped(sql, ValueKind("decimal", digits), found, over)


def _average(rules: Expressions, node: exp.Avg, over: str = "") -> Term:
    distinct, inner = _distinct(node.this)
    found = _of_group(rules, inner, lambda one: rules.settled(one, "AVG"))
    if found.kind.base == "double":
        return _grouped(f"ccpr_finite(avg({distinct}{double(found)}){over})", DOUBLE, found, over)
    count = _grouped(f"count({distinct}{found.sql}){over}", INT, found, over)
    return quotient_of(_sum_of(found, distinct, over), count)


def _extreme(rules: Expressions, node: exp.Min | exp.Max, over: str = "") -> Term:
    _, inner = _distinct(node.this)
    found = _of_group(rules, inner, lambda one: rules.settled(one, node.key.upper()))
    if found.kind.collation:
        raise refused(f"{node.key.upper()} of text with collation {found.kind.collation}")
    if found.kind.base == "truth":
        return _grouped(f"{node.key}({huge(found, 'BIGINT')}){over}", INT, found, over)
    return _grouped(f"{node.key}({found.sql}){over}", found.kind, found, over)


def _group_concat(rules: Expressions, node: exp.GroupConcat) -> Term:
    inner, order = node.this, ""
    if isinstance(inner, exp.Order):
        distinct, value = _distinct(inner.this)
        order = f" {rules.ordered(inner.expressions, 'GROUP_CONCAT')}"
    else:
        distinct, value = _distinct(inner)
    found = _of_group(rules, value, lambda one: rules.as_text(one, "GROUP_CONCAT"))
    if found.kind.collation:
        raise refused("GROUP_CONCAT of text with another collation")
    if distinct and order and any(rules.term(one.this).sql != rules.term(value).sql for one in inner.expressions):
        raise refused("GROUP_CONCAT(DISTINCT …) in the order of something else")
    separator = node.args.get("separator")
    between = "," if separator is None else rules.text_value(separator, "a SEPARATOR")
    return _grouped(f"ccpr_short(string_agg({distinct}{found.sql}, {text_sql(between)}{order}))", TEXT, found)


def _of_group(rules: Expressions, node: exp.Expr, read: Callable[[exp.Expr], Term]) -> Term:
    """What a function of a group is about: with a column of an outer query it would be that query's group, in MySQL."""
    before, rules.in_group = rules.in_group, True
    try:
        found = read(node)
    finally:
        rules.in_group = before
    not_nested(found)
    return found


def _distinct(node: exp.Expr) -> tuple[str, exp.Expr]:
    if not isinstance(node, exp.Distinct):
        return "", node
    if len(node.expressions) != 1 or node.args.get("on"):
        raise refused("DISTINCT of several values in a function")
    return "DISTINCT ", node.expressions[0]


# ---- of a window

_RANKS = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_OF_OTHER_ROWS = {
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
}
_SIDES = ("PRECEDING", "FOLLOWING")


def _window(rules: Expressions, node: exp.Window) -> Term:
    over = node
    if name := node.args.get("alias"):
        if node.args.get("partition_by") or node.args.get("order") or node.args.get("spec"):
            raise refused("OVER (name …)")
        over = rules.window_named(name.name)
    partition = ""
    if nodes := over.args.get("partition_by"):
        terms = [rules.settled(one, "PARTITION BY") for one in nodes]
        if any(one.kind.collation for one in terms):
            raise refused("PARTITION BY of text with another collation")
        partition = f"PARTITION BY {', '.join(one.sql for one in terms)} "
    order = over.args.get("order")
    ordered = "" if order is None else rules.ordered(order.expressions, "ORDER BY")
    return _over(rules, node.this, f" OVER ({partition}{ordered}{_frame(over.args.get('spec'))})")


def _frame(spec: exp.Expr | None) -> str:
    if spec is None:
        return ""
    parts = []
    for name, usual in (("start", None), ("end", "CURRENT ROW")):
        bound, side = spec.args.get(name) or usual, spec.args.get(f"{name}_side")
        if isinstance(bound, exp.Literal) and not bound.is_string and bound.this.isdecimal() and side in _SIDES:
            if spec.args.get("kind") != "ROWS":
                raise refused("RANGE with a distance")
            parts.append(f"{int(bound.this)} {side}")
        elif bound == "UNBOUNDED" and side in _SIDES:
            parts.append(f"UNBOUNDED {side}")
        elif bound == "CURRENT ROW":
            parts.append(bound)
        else:
            raise refused("this frame of a window")
    if spec.args.get("kind") not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise refused("this frame of a window")
    return f" {spec.args['kind']} BETWEEN {' AND '.join(parts)}"


def _over(rules: Expressions, node: exp.Expr, over: str) -> Term:
    if found := _RANKS.get(type(node)):
        return Term(f"{found}(){over}", INT, window=True)
    if isinstance(node, exp.Ntile):
        buckets = whole_number(rules.value(node.this), "NTILE")
        if buckets < 1:
            raise refused("NTILE of nothing")
        return Term(f"ntile({buckets}){over}", INT, window=True)
    if name := _OF_OTHER_ROWS.get(type(node)):
        return _of_other_row(rules, node, name, over)
    if isinstance(node, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max) and not isinstance(node.this, exp.Distinct):
        if any(value for part, value in node.args.items() if part not in ("this", "big_int")):
            raise refused(f"this {node.key.upper()} of a window")
        return _AGGREGATES[type(node)](rules, node, over)
    raise refused(f"{node.key.upper()} of a window")


def _of_other_row(rules: Expressions, node: exp.Expr, name: str, over: str) -> Term:
    if any(value for part, value in node.args.items() if part not in ("this", "offset")):
        raise refused(f"{name.upper()} with a value for no row")
    found, more = rules.settled(node.this, name.upper()), ""
    not_nested(found)
    if offset := node.args.get("offset"):
        more = f", {whole_number(rules.value(offset), name.upper())}"
    kind = INT if found.kind.base == "truth" else found.kind
    inner = huge(found, "BIGINT") if kind is INT else found.sql
    return _grouped(f"{name}({inner}{more}){over}", kind, found, over)


_AGGREGATES: Mapping[type[exp.Expr], Callable[..., Term]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _average,
    exp.Min: _extreme,
    exp.Max: _extreme,
}
GROUP_RULES: Rules = {
    exp.Count: rule(_count, "this", "big_int", only=True),
    exp.Sum: rule(_sum),
    exp.Avg: rule(_average),
    **dict.fromkeys((exp.Min, exp.Max), rule(_extreme, "this", only=True)),
    exp.GroupConcat: rule(_group_concat, "separator"),
    exp.Window: rule(_window, "this", "partition_by", "order", "spec", "alias", "over", only=True),
}
