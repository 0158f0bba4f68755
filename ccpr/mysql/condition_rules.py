"""Comparisons, conditions, and one of several values."""

import re
from dataclasses import replace

from sqlglot import exp

from ccpr.matrixone.server.answers import StatementError
from ccpr.mysql.expression_rules import Expressions, Rules, rule, written_number
from ccpr.mysql.statement_text import refused
from ccpr.mysql.terms import Term, decimal_sql, huge, made, text_sql
from ccpr.mysql.value_kinds import EXACT, INT, NULL, TRUTH

_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}
# They bind otherwise to one another in MySQL than sqlglot reads them.
_PREDICATES = (*_SIGNS, exp.Between, exp.In, exp.Like, exp.RegexpLike, exp.Escape, exp.Is, exp.Not)
_REPEATED = r"(?:[*+?]|\{\d\d?(?:,(?:\d\d?)?)?\})?"
_PATTERN = re.compile(
    r"(?:(?:[^\\\[\](){}*+?|^$\0-\x1f]|\\[.\[\](){}*+?|^$\\/-]|\[\^?(?:[^\\\[\]^&~-](?:-[^\\\[\]^&~-])?)+\]|\))"
    rf"{_REPEATED}|[(|^$](?![*+?{{]))+"
)


def _compared(rules: Expressions, node: exp.Binary) -> Term:
    sign = _SIGNS[type(node)]
    for side in (node.this, node.expression):
        if isinstance(side, _PREDICATES):
            raise refused("a comparison of a comparison without parentheses")
    left, right = rules.value(node.this), rules.value(node.expression)
    a, b = rules.comparable(left, right, f"the comparison {'<=>' if sign.startswith('IS') else sign}")
    return made(f"({a} {sign} {b})", TRUTH, left, right)


def _between(rules: Expressions, node: exp.Between) -> Term:
    value = rules.value(node.this)
    low, high = (written_number(rules.value(node.args[name]), value) for name in ("low", "high"))
    doubles = [one.kind.base == "double" for one in (low, high)]
    if value.kind.base != "double" and doubles[0] != doubles[1] and "null" not in (low.kind.base, high.kind.base):
        raise refused("BETWEEN numbers of several kinds")
    parts = [
        f"{a} {sign} {b}"
        for sign, bound in ((">=", low), ("<=", high))
        for a, b in (rules.comparable(value, bound, "BETWEEN"),)
    ]
    return made(f"({' AND '.join(parts)})", TRUTH, value, low, high)


def _within(rules: Expressions, node: exp.In) -> Term:
    value = rules.value(node.this)
    if query := node.args.get("query"):
        sql, kinds = rules.rows_of(query)
        if len(kinds) != 1:
            raise StatementError(1241, "Operand should contain 1 column(s)", "21000")
        one = kinds[0]
        same = one.base == value.kind.base or (one.base in EXACT and value.kind.base in EXACT)
        unusual = one.base in ("opaque", "truth") or one.collation or value.kind.collation or value.computed is not None
        if not same or unusual:
            raise refused(f"IN of {value.kind.base} and {one.base}")
        left = value.sql
        if "decimal" in (one.base, value.kind.base) and (one.base != value.kind.base or one.digits != value.digits):
            digits = max(one.digits, value.digits)
            left = decimal_sql(value, digits)
            sql = f"SELECT CAST(c0 AS DECIMAL(38,{digits})) FROM ({sql})"
        return made(f"({left} IN ({sql}))", TRUTH, value)
    options, lefts = list[str](), set[str]()
    terms = [written_number(rules.value(one), value) for one in node.expressions]
    bases = {one.kind.base for one in terms} - {"null"}
    if "double" in bases and len(bases) > 1 and value.kind.base != "double":
        raise refused("IN with numbers of several kinds")
    for one in terms:
        left, right = rules.comparable(value, one, "IN")
        options.append(right)
        lefts.add(left)
    if len(lefts) != 1:
        raise refused("IN with values of several kinds")
    (left,) = lefts
    return made(f"({left} IN ({', '.join(options)}))", TRUTH, value, *terms)


def _like(rules: Expressions, node: exp.Like | exp.Escape) -> Term:
    escape = "\\"
    if isinstance(node, exp.Escape):
        escape, like = rules.text_value(node.expression, "the ESCAPE"), node.this
        if not isinstance(like, exp.Like) or len(escape) != 1 or not escape.isascii():
            raise refused("this ESCAPE")
    else:
        like = node
    value, given = rules.value(like.this), rules.value(like.expression)
    for one in (value, given):
        if one.kind.base not in ("text", "null") or one.kind.collation:
            raise refused(f"LIKE of a {one.kind.collation or one.kind.base}")
    pattern = given.value if isinstance(given.value, str) else escape
    if given.value is not None and re.search(
        rf"(?<!{re.escape(escape)})({re.escape(escape * 2)})*{re.escape(escape)}\Z", pattern
    ):
        raise refused("a pattern of LIKE that ends in its escape")
    sql = f"{value.sql} {'NOT LIKE' if like.args.get('negate') else 'LIKE'} {given.sql}"
    ending = f" ESCAPE {text_sql(escape)}" if escape in pattern else ""  # without one DuckDB has faster ways
    return made(f"({sql}{ending})", TRUTH, value, given)


def _matched(rules: Expressions, node: exp.RegexpLike) -> Term:
    """With what patterns mean everywhere: MySQL's own depends on its version."""
    value, pattern = rules.value(node.this), rules.text_value(node.expression, "a pattern of REGEXP")
    if value.kind.base not in ("text", "null") or value.kind.collation:
        raise refused(f"REGEXP of a {value.kind.collation or value.kind.base}")
    if not _PATTERN.fullmatch(pattern):
        raise refused(
            "this pattern of REGEXP", r"it has . ^ $ | ( ) * + ? {2,3} [a-z] [^a-z] and signs behind a \, no more"
        )
    text = f"ccpr_line({value.sql})" if "." in pattern or "$" in pattern else value.sql
    return made(f"regexp_matches({text}, {text_sql(pattern)})", TRUTH, value)


def _is(rules: Expressions, node: exp.Is) -> Term:
    if isinstance(node.this, _PREDICATES):
        raise refused("IS of a comparison without parentheses")
    if isinstance(node.expression, exp.Null):
        found = rules.term(node.this)  # of a value that is only shown, too
        return made(f"({found.sql} IS NULL)", TRUTH, found)
    if not isinstance(node.expression, exp.Boolean):
        raise refused("IS of something else than NULL, TRUE and FALSE")
    found = rules.truth(node.this)
    return made(f"({found.sql} IS {'TRUE' if node.expression.this else 'FALSE'})", TRUTH, found)


def _joined(rules: Expressions, node: exp.Connector) -> Term:
    left, right = rules.truth(node.this), rules.truth(node.expression)
    word = {exp.And: "AND", exp.Or: "OR", exp.Xor: "<>"}[type(node)]
    return made(f"({left.sql} {word} {right.sql})", TRUTH, left, right)


def _negated(rules: Expressions, node: exp.Not) -> Term:
    found = rules.truth(node.this)
    return replace(found, sql=f"(NOT {found.sql})")


# ---- one of several values


def _case(rules: Expressions, node: exp.Case) -> Term:
    conditions, results = list[Term](), list[Term]()
    for one in node.args["ifs"]:
        if node.this is None:
            conditions.append(rules.truth(one.this))
        else:
            left, right = rules.value(node.this), rules.value(one.this)
            a, b = rules.comparable(left, right, "CASE")
            conditions.append(made(f"({a} = {b})", TRUTH, left, right))
        results.append(rules.value(one.args["true"]))
    default = node.args.get("default")
    return _chosen(rules, conditions, results, Term("NULL", NULL) if default is None else rules.value(default), "CASE")


def _if(rules: Expressions, node: exp.If) -> Term:
    if node.args.get("false") is None:
        raise refused("IF without a third value")
    condition, result = rules.truth(node.this), rules.value(node.args["true"])
    return _chosen(rules, [condition], [result], rules.value(node.args["false"]), "IF")


def _chosen(rules: Expressions, conditions: list[Term], results: list[Term], default: Term, what: str) -> Term:
    sqls, found = rules.unified([*results, default], what)
    when = " ".join(f"WHEN {one.sql} THEN {sql}" for one, sql in zip(conditions, sqls[:-1], strict=True))
    flags = made("", TRUTH, *conditions)
    return replace(
        found,
        sql=f"CASE {when} ELSE {sqls[-1]} END",
        aggregate=found.aggregate or flags.aggregate,
        window=found.window or flags.window,
    )


def _coalesce(rules: Expressions, node: exp.Coalesce) -> Term:
    sqls, found = rules.unified([rules.value(one) for one in (node.this, *node.expressions)], "COALESCE or IFNULL")
    return replace(found, sql=f"coalesce({', '.join(sqls)})")


def _nullif(rules: Expressions, node: exp.Nullif) -> Term:
    left, right = rules.value(node.this), rules.value(node.expression)
    a, b = rules.comparable(left, right, "NULLIF")
    kind = INT if left.kind.base == "truth" else left.kind
    sql = f"CASE WHEN {a} = {b} THEN NULL ELSE {huge(left, 'BIGINT') if kind is INT else left.sql} END"
    return made(sql, kind, left, right, computed=left.computed)


def _extreme(rules: Expressions, node: exp.Greatest | exp.Least) -> Term:
    """NULL if one of them is."""
    terms = [rules.value(one) for one in (node.this, *node.expressions)]
    if any(one.kind.collation for one in terms):
        raise refused(f"{node.key.upper()} of text with another collation")
    sqls, found = rules.unified(terms, node.key.upper())
    missing = " OR ".join(f"{sql} IS NULL" for sql in sqls)
    return replace(found, sql=f"CASE WHEN {missing} THEN NULL ELSE {node.key}({', '.join(sqls)}) END")


CONDITION_RULES: Rules = {
    **dict.fromkeys(_SIGNS, rule(_compared)),
    exp.Between: rule(_between, "low", "high"),
    exp.In: rule(_within, "query"),
    exp.Like: rule(_like, "negate"),
    exp.Escape: rule(_like),
    exp.RegexpLike: rule(_matched),
    exp.Is: rule(_is),
    **dict.fromkeys((exp.And, exp.Or, exp.Xor), rule(_joined)),
    exp.Not: rule(_negated),
    exp.Case: rule(_case, "ifs", "default"),
    exp.If: rule(_if, "true", "false"),
    exp.Coalesce: rule(_coalesce, "is_nvl", "is_null"),
    exp.Nullif: rule(_nullif),
    **dict.fromkeys((exp.Greatest, exp.Least), rule(_extreme)),
}
