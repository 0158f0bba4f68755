"""Functions of texts."""

from dataclasses import replace

from sqlglot import exp

from ccpr.mysql.expression_rules import Expressions, Rules, rule
from ccpr.mysql.statement_text import refused
from ccpr.mysql.terms import Term, made, text_sql, whole_number
from ccpr.mysql.value_kinds import INT, ValueKind

_MOST_REPEATED = 1000


def _concat(rules: Expressions, node: exp.Concat) -> Term:
    terms = [rules.as_text(one, "CONCAT") for one in node.expressions]
    return made(f"({' || '.join(one.sql for one in terms)})", _kind_of(terms), *terms)


def _concat_between(rules: Expressions, node: exp.ConcatWs) -> Term:
    """CONCAT_WS: what is NULL is left out."""
    terms = [rules.as_text(one, "CONCAT_WS") for one in node.expressions]
    if len(terms) < 2 or any(one.kind.base == "null" for one in terms):
        raise refused("CONCAT_WS of NULL")
    return made(f"concat_ws({', '.join(one.sql for one in terms)})", _kind_of(terms), *terms)


def _kind_of(terms: list[Term]) -> ValueKind:
    return ValueKind("text", collation=next((one.kind.collation for one in terms if one.kind.collation), ""))


def _length(rules: Expressions, node: exp.Length) -> Term:
    found = rules.as_text(node.this, "LENGTH")
    return made(f"{'strlen' if node.args.get('binary') else 'length'}({found.sql})", INT, found)


def _cased(rules: Expressions, node: exp.Upper | exp.Lower) -> Term:
    found = rules.text(node.this, node.key.upper())
    return replace(found, sql=f"{node.key}(ccpr_cased({found.sql}))", value=None)


def _substring(rules: Expressions, node: exp.Substring) -> Term:
    found, start = rules.text(node.this, "SUBSTRING"), whole_number(rules.value(node.args["start"]), "SUBSTRING")
    length = node.args.get("length")
    count = None if length is None else whole_number(rules.value(length), "SUBSTRING")
    if start == 0 or (count is not None and count < 0):
        return replace(found, sql=f"CASE WHEN {found.sql} IS NULL THEN NULL ELSE '' END", value=None)
    if start < 0:
        tail = f"CASE WHEN length({found.sql}) < {-start} THEN '' ELSE right({found.sql}, {-start}) END"
        sql = tail if count is None else f"left({tail}, {count})"
    else:
        sql = f"substring({found.sql}, {start}{'' if count is None else f', {count}'})"
    return replace(found, sql=sql, value=None)


def _side(rules: Expressions, node: exp.Left | exp.Right) -> Term:
    found, count = rules.text(node.this, node.key.upper()), whole_number(rules.value(node.expression), node.key.upper())
    return replace(found, sql=f"{node.key}({found.sql}, {max(0, count)})", value=None)


def _trim(rules: Expressions, node: exp.Trim) -> Term:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
    found = rules.text(node.this, "TRIM")
    return replace(found, sql=f"{name}({found.sql}, ' ')", value=None)


def _replace(rules: Expressions, node: exp.Replace) -> Term:
    terms = [rules.text(one, "REPLACE") for one in (node.this, node.expression, node.args["replacement"])]
    if any(one.kind.collation for one in terms):
        raise refused("REPLACE of text with another collation")
    text, old, new = (one.sql for one in terms)
    # What is not found is not replaced, also by NULL.
    sql = f"CASE WHEN {old} = '' OR strpos({text}, {old}) = 0 THEN {text} ELSE replace({text}, {old}, {new}) END"
    return made(sql, terms[0].kind, *terms)


def _position(rules: Expressions, node: exp.StrPosition) -> Term:
    text, wanted = rules.text(node.this, "LOCATE"), rules.text(node.args["substr"], "LOCATE")
    if text.kind.collation or wanted.kind.collation:
        raise refused("LOCATE in text with another collation")
    return made(f"strpos({text.sql}, {wanted.sql})", INT, text, wanted)


def _pad(rules: Expressions, node: exp.Pad) -> Term:
    name = "lpad" if node.args.get("is_left") else "rpad"
    found, filling = rules.text(node.this, name.upper()), node.args.get("fill_pattern")
    size = whole_number(rules.value(node.expression), name.upper())
    pattern = " " if filling is None else rules.text_value(filling, "what fills a text")
    if not pattern or not 0 <= size <= _MOST_REPEATED:
        raise refused(f"{name.upper()} with nothing, or of {size} characters")
    return replace(found, sql=f"{name}({found.sql}, {size}, {text_sql(pattern)})", value=None)


def _repeated(rules: Expressions, node: exp.Repeat) -> Term:
    found, times = rules.text(node.this, "REPEAT"), whole_number(rules.value(node.args["times"]), "REPEAT")
    if times > _MOST_REPEATED:
        raise refused(f"REPEAT more than {_MOST_REPEATED} times")
    return replace(found, sql=f"repeat({found.sql}, {max(0, times)})", value=None)


def _until(rules: Expressions, node: exp.SubstringIndex) -> Term:
    found = rules.text(node.this, "SUBSTRING_INDEX")
    delimiter = rules.text_value(node.args["delimiter"], "a delimiter of SUBSTRING_INDEX")
    count = whole_number(rules.value(node.args["count"]), "SUBSTRING_INDEX")
    if not delimiter or not count or found.kind.collation:
        raise refused("SUBSTRING_INDEX of nothing")
    parts = f"string_split({found.sql}, {text_sql(delimiter)})"
    some = f"list_slice({parts}, {f'1, {count}' if count > 0 else f'{count}, -1'})"
    return replace(found, sql=f"array_to_string({some}, {text_sql(delimiter)})", value=None)


def _compared(rules: Expressions, node: exp.Anonymous) -> Term:
    if len(node.expressions) != 2:
        raise refused("STRCMP of something else than two texts")
    left, right = (rules.text(one, "STRCMP") for one in node.expressions)
    a, b = rules.comparable(left, right, "STRCMP")
    return made(f"CASE WHEN {a} < {b} THEN -1 WHEN {a} > {b} THEN 1 WHEN {a} = {b} THEN 0 END", INT, left, right)


def _field(rules: Expressions, node: exp.Anonymous) -> Term:
    """The place of the first text among those that follow; 0 if it is none of them."""
    if len(node.expressions) < 2:
        raise refused("FIELD of nothing")
    wanted, *rest = (rules.text(one, "FIELD") for one in node.expressions)
    when = [
        f"WHEN {a} = {b} THEN {place}"
        for place, one in enumerate(rest, 1)
        for a, b in (rules.comparable(wanted, one, "FIELD"),)
    ]
    return made(f"CASE {' '.join(when)} ELSE 0 END", INT, wanted, *rest)


def _bytes(rules: Expressions, node: exp.Anonymous) -> Term:
    return _length(rules, exp.Length(this=node.expressions[0], binary=True))


def _middle(rules: Expressions, node: exp.Anonymous) -> Term:
    if len(node.expressions) not in (2, 3):
        raise refused("this MID")
    this, start, *length = node.expressions
    return _substring(rules, exp.Substring(this=this, start=start, length=length[0] if length else None))


TEXT_RULES: Rules = {
    exp.Concat: rule(_concat, "safe", "coalesce"),
    exp.ConcatWs: rule(_concat_between, "safe", "coalesce"),
    exp.Length: rule(_length, "binary"),
    **dict.fromkeys((exp.Upper, exp.Lower), rule(_cased)),
    exp.Substring: rule(_substring, "this", "start", "length", only=True),
    **dict.fromkeys((exp.Left, exp.Right), rule(_side)),
    exp.Trim: rule(_trim, "this", "position", only=True),
    exp.Replace: rule(_replace, "replacement"),
    exp.StrPosition: rule(_position, "this", "substr", only=True),
    exp.Pad: rule(_pad, "fill_pattern", "is_left"),
    exp.Repeat: rule(_repeated, "times"),
    exp.SubstringIndex: rule(_until, "delimiter", "count"),
    "STRCMP": rule(_compared),
    "FIELD": rule(_field),
    "OCTET_LENGTH": rule(_bytes),
    "MID": rule(_middle),
}
