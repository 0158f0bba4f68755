"""Arithmetic, functions of numbers, and CAST."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from ccpr.mysql.date_rules import as_date, as_moment, moved
from ccpr.mysql.expression_rules import MOST_INT, Expressions, Rules, rule
from ccpr.mysql.statement_text import refused
from ccpr.mysql.terms import (
    MOST_DIGITS,
    Term,
    decimal_sql,
    double,
    huge,
    made,
    quotient_of,
    rounded_quotient,
    scaled,
    units,
    whole_number,
)
from ccpr.mysql.value_kinds import DOUBLE, EXACT, INT, ROUNDED, UINT, WHOLE, ValueKind

MOST_ROUNDED = 10
_SIGNED = frozenset(("int", "truth"))


def _arithmetic(rules: Expressions, node: exp.Binary) -> Term:
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        return moved(rules, node.this, node.expression, "-" if isinstance(node, exp.Sub) else "+")
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
        return moved(rules, node.expression, node.this, "+")
    left, right = rules.numbers(node)
    sign = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}[type(node)]
    bases = {left.kind.base, right.kind.base}
    if "double" in bases:
        return made(f"ccpr_finite({double(left)} {sign} {double(right)})", DOUBLE, left, right)
    if bases <= _SIGNED:
        return made(f"({huge(left, 'BIGINT')} {sign} {huge(right, 'BIGINT')})", INT, left, right)
    if bases <= WHOLE:
        return made(f"CAST({huge(left)} {sign} {huge(right)} AS UBIGINT)", UINT, left, right)
    behind, computed = (
        a + b if sign == "*" else max(a, b)
        for a, b in ((left.kind.digits, right.kind.digits), (left.digits, right.digits))
    )
    if computed > MOST_DIGITS:
        raise refused(f"a product of more than {MOST_DIGITS} digits behind the point")
    sql = f"({decimal_sql(left)} {sign} {decimal_sql(right)})"
    found = made(sql, ValueKind("decimal", behind), left, right, computed=computed)
    return replace(found, loose=2) if found.loose and sign != "*" else found


def _divided(rules: Expressions, node: exp.Div) -> Term:
    left, right = rules.numbers(node)
    if "double" in (left.kind.base, right.kind.base):
        return made(f"ccpr_finite({double(left)} / nullif({double(right)}, 0))", DOUBLE, left, right)
    return quotient_of(left, right)


def _whole_quotient(rules: Expressions, node: exp.IntDiv) -> Term:
    left, right = rules.numbers(node)
    bases = {left.kind.base, right.kind.base}
    if bases <= WHOLE and "uint" in bases:
        return made(f"CAST(ccpr_cut({huge(left)}, {huge(right)}) AS UBIGINT)", UINT, left, right)
    if not bases <= _SIGNED | {"decimal"}:
        raise refused(f"DIV of {' and '.join(sorted(bases))}")
    a, b = _in_same_units(left, right, max(left.digits, right.digits))
    return made(f"CAST(ccpr_cut({a}, {b}) AS BIGINT)", INT, left, right)


def _remainder(rules: Expressions, node: exp.Mod) -> Term:
    left, right = rules.numbers(node)
    bases = {left.kind.base, right.kind.base}
    if "double" in bases:
        return made(f"({double(left)} % nullif({double(right)}, 0))", DOUBLE, left, right)
    if bases <= _SIGNED:
        return made(f"({huge(left, 'BIGINT')} % nullif({huge(right, 'BIGINT')}, 0))", INT, left, right)
    if bases <= WHOLE:  # it has the sign of what is divided
        kind, width = (UINT, "UBIGINT") if left.kind.base == "uint" else (INT, "BIGINT")
        return made(f"CAST({huge(left)} % nullif({huge(right)}, 0) AS {width})", kind, left, right)
    if "decimal" not in bases or "uint" in bases or left.computed or right.computed:
        raise refused(f"MOD of {' and '.join(sorted(bases))}")
    digits = max(left.digits, right.digits)
    a, b = _in_same_units(left, right, digits)
    return made(scaled(f"({a} % nullif({b}, 0))", digits), ValueKind("decimal", digits), left, right)


def _in_same_units(left: Term, right: Term, digits: int) -> tuple[str, str]:
    a, b = (
        units(one) if one.digits == digits else f"{units(one)} * CAST({10 ** (digits - one.digits)} AS HUGEINT)"
        for one in (left, right)
    )
    return a, b


def _minus(rules: Expressions, node: exp.Neg) -> Term:
    found = rules.value(node.this)
    base = found.kind.base
    if base == "int" and isinstance(found.value, int):
        return Term(f"CAST({-found.value} AS BIGINT)", INT, -found.value)
    if base == "uint" and found.value == MOST_INT + 1:
        return Term(f"CAST({-MOST_INT - 1} AS BIGINT)", INT, -MOST_INT - 1)
    if base == "decimal" and isinstance(found.value, Decimal):
        return replace(found, sql=f"(-{found.sql})", value=-found.value)
    if base in _SIGNED:
        return made(f"(-{huge(found, 'BIGINT')})", INT, found)
    if base not in ("decimal", "double"):
        raise refused(f"- of a {base}")
    if base == "double":  # 0 - x, as there: -x would be -0 of 0
        return made(f"(CAST(0 AS DOUBLE) - {double(found)})", DOUBLE, found)
    return replace(found, sql=f"(-{found.sql})", value=None)


# ---- functions


def _absolute(rules: Expressions, node: exp.Abs) -> Term:
    found = rules.value(node.this)
    if found.kind.base == "uint":
        return found
    if found.kind.base in WHOLE:
        return made(f"CAST(abs({huge(found)}) AS BIGINT)", INT, found)
    if found.kind.base == "double":
        return made(f"abs({double(found)})", DOUBLE, found)
    if found.kind.base != "decimal":
        raise refused(f"ABS of a {found.kind.base}")
    return replace(found, sql=f"abs({found.sql})", value=None)


def _sign(rules: Expressions, node: exp.Sign) -> Term:
    found = rules.value(node.this)
    if found.kind.base not in ("int", "uint", "decimal", "double"):
        raise refused(f"SIGN of a {found.kind.base}")
    return made(f"CAST(sign({found.sql}) AS BIGINT)", INT, found)


def _rounded(rules: Expressions, node: exp.Round) -> Term:
    return _to_digits(rules, rules.term(node.this), node, "ROUND")


def _truncated(rules: Expressions, node: exp.Trunc) -> Term:
    if node.args.get("decimals") is None:
        raise refused("TRUNCATE without digits")
    return _to_digits(rules, rules.value(node.this), node, "TRUNCATE")


def _to_digits(rules: Expressions, found: Term, node: exp.Expr, what: str) -> Term:
    place = node.args.get("decimals")
    digits = 0 if place is None else whole_number(rules.value(place), what)
    if digits < 0:
        raise refused(f"{what} to tens")
    if found.kind.base == "double":
        return _rounded_double(found, f"ccpr_{what.lower()}_double({double(found)}, {digits})", digits)
    if found.kind.base not in EXACT:
        raise refused(f"{what} of a {found.kind.base}")
    if found.quotient is not None:
        if digits > found.kind.digits:
            raise refused("ROUND to more digits than a quotient has")
        return rounded_quotient(found.quotient, digits)
    if found.kind.base in WHOLE:
        return made(huge(found, "BIGINT"), INT, found) if found.kind.base == "truth" else found
    if digits > found.kind.digits:
        raise refused(f"{what} to more digits than a decimal has")
    if digits == found.digits:
        return rules.value(node.this)
    kind = ValueKind("decimal", digits)
    if what == "ROUND":
        return made(f"round({found.sql}, {digits})", kind, found)
    return made(scaled(f"ccpr_cut({units(found)}, {10 ** (found.digits - digits)})", digits), kind, found)


def _rounded_double(found: Term, sql: str, digits: int) -> Term:
    if digits > MOST_ROUNDED:
        raise refused(f"a DOUBLE with {digits} digits behind the point")
    return made(f"ccpr_rounded({sql}, {digits})", ValueKind("double", digits, ROUNDED), found)


def _floor(rules: Expressions, node: exp.Floor | exp.Ceil) -> Term:
    found = rules.value(node.this)
    if found.kind.base in WHOLE:
        return made(huge(found, "BIGINT"), INT, found) if found.kind.base == "truth" else found
    if found.kind.base == "double":
        return _rounded_double(found, f"{node.key}({double(found)})", 0)
    if found.kind.base != "decimal":
        raise refused(f"{node.key.upper()} of a {found.kind.base}")
    return made(f"CAST({node.key}({found.sql}) AS DECIMAL(38,0))", ValueKind("decimal"), found)


def _root(rules: Expressions, node: exp.Sqrt) -> Term:
    found = rules.value(node.this)
    if found.kind.base not in ("int", "uint", "decimal", "double"):
        raise refused(f"SQRT of a {found.kind.base}")
    number = double(found)
    return made(f"CASE WHEN {number} < 0 THEN NULL ELSE sqrt({number}) END", DOUBLE, found)


# ---- CAST


def _cast(rules: Expressions, node: exp.Cast) -> Term:
    to = node.args["to"]
    kind, sizes = to.this, [int(one.name) for one in to.expressions if one.name.isdecimal()]
    if len(sizes) != len(to.expressions):
        raise refused("CAST to this type")
    if kind == exp.DType.DATE and not sizes:
        return as_date(rules, node)
    if kind == exp.DType.DATETIME and sizes in ([], [6]):
        return as_moment(rules, node, sizes[0] if sizes else 0)
    if kind == exp.DType.TIMESTAMPTZ and not sizes and isinstance(node.this, exp.Literal):  # TIMESTAMP '…'
        found, fraction = as_moment(rules, node, 6), rules.written_out(node.this.name).partition(".")[2]
        return replace(found, kind=ValueKind("datetime", len(fraction)))
    if kind in (exp.DType.CHAR, exp.DType.VARCHAR, exp.DType.TEXT):
        text = rules.as_text(node.this, "CAST AS CHAR")
        return replace(text, sql=f"left({text.sql}, {sizes[0]})" if sizes else text.sql, value=None)
    return _cast_number(rules.value(node.this), kind, sizes, to)


def _cast_number(found: Term, kind: exp.DType, sizes: Sequence[int], to: exp.Expr) -> Term:
    base = found.kind.base
    if kind == exp.DType.BIGINT and not sizes and base in (*EXACT, "null"):
        return made(f"CAST({found.sql} AS BIGINT)", INT, found)
    if kind == exp.DType.UBIGINT and not sizes and base in WHOLE:
        sql = f"CAST({found.sql} AS UBIGINT)"
        if isinstance(found.value, int) and 0 <= found.value <= MOST_INT:  # as a parameter without a sign is written
            return Term(sql, UINT, found.value)
        return made(sql, UINT, found)
    if kind == exp.DType.DOUBLE and not sizes and base in (*EXACT, "double"):
        return made(f"CAST({huge(found) if base == 'truth' else found.sql} AS DOUBLE)", DOUBLE, found)
    if kind == exp.DType.DECIMAL and base in EXACT:
        precision, digits = (*sizes, 0)[:2] if sizes else (10, 0)
        if precision <= 38 and digits <= precision:
            wide = found.sql if base == "decimal" else f"CAST({huge(found)} AS DECIMAL(20,0))"
            return made(f"CAST({wide} AS DECIMAL({precision},{digits}))", ValueKind("decimal", digits), found)
    raise refused(f"CAST of a {base} AS {to.sql(dialect='mysql'):.30}")


NUMBER_RULES: Rules = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), rule(_arithmetic)),
    exp.Div: rule(_divided, "typed", "safe"),
    exp.IntDiv: rule(_whole_quotient),
    exp.Mod: rule(_remainder),
    exp.Neg: rule(_minus),
    exp.Abs: rule(_absolute),
    exp.Sign: rule(_sign),
    exp.Round: rule(_rounded, "decimals"),
    exp.Trunc: rule(_truncated, "decimals"),
    **dict.fromkeys((exp.Floor, exp.Ceil), rule(_floor, "this", only=True)),
    exp.Sqrt: rule(_root),
    exp.Cast: rule(_cast, "to", "_type"),
}
