"""Expressions of MySQL as DuckDB's SQL with the same answer. What is not in a table of this file is refused by name:
nothing is handed on as it came.

Every operand has a kind (`value_kinds`), and a rule takes those kinds alone for which the answers were found equal
(`tests/mysql/test_oracle.py`). MySQL would convert a text to a number, or cut it; here that is refused.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from sqlglot import exp

from ccpr.matrixone.server.answers import StatementError
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mysql.statement_text import TEXT_MARK, refused
from ccpr.mysql.value_kinds import DATE, DOUBLE, EXACT, INT, NULL, NUMBERS, TEXT, TRUTH, UINT, WHOLE, ValueKind

MOST_INT = 2**63 - 1
_DIGITS_OF_WORD = 9  # in which MySQL keeps decimals
_DIVISION_DIGITS = 4  # more behind the point than the dividend has
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_FORMATS = {"Y": "%Y", "y": "%y", "m": "%m", "d": "%d", "H": "%H", "i": "%M", "s": "%S", "S": "%S", "j": "%j"}
# Macros of each connection: to divide whole numbers, half away from zero or cut; a moment that MySQL has.
MACROS = (
    "CREATE TEMP MACRO ccpr_divided(n, d) AS CASE WHEN d = 0 THEN NULL ELSE "
    "sign(n) * sign(d) * ((2 * abs(n) + abs(d)) // (2 * abs(d))) END",
    "CREATE TEMP MACRO ccpr_cut(n, d) AS CASE WHEN d = 0 THEN NULL ELSE sign(n) * sign(d) * (abs(n) // abs(d)) END",
    "CREATE TEMP MACRO ccpr_finite(x) AS CASE WHEN isinf(x) OR isnan(x) "
    "THEN error('DOUBLE value is out of range') ELSE x END",
    "CREATE TEMP MACRO ccpr_moment(t) AS CASE WHEN t > TIMESTAMP '9999-12-31 23:59:59.999999' THEN NULL "
    "WHEN t < TIMESTAMP '0001-01-01 00:00:00' THEN error('a date before the year 1') ELSE t END",
    "CREATE TEMP MACRO ccpr_ascii(t) AS CASE WHEN strlen(t) = length(t) THEN t "
    "ELSE error('LOWER or UPPER of text beyond ASCII') END",
    "CREATE TEMP MACRO ccpr_short(t) AS CASE WHEN strlen(t) > 1024 "
    "THEN error('GROUP_CONCAT of more than 1024 bytes, which MySQL would cut') ELSE t END",
)


@dataclass(frozen=True, slots=True)
class Quotient:
    """Of `a / b`: MySQL keeps more digits than it shows, so it is shown or rounded, and no more."""

    dividend: "Term"
    divisor: "Term"


@dataclass(frozen=True, slots=True)
class Term:
    """
    Attributes
    ----------
    value : of a literal.
    aggregate : whether it contains a function of a group.
    """

    sql: str
    kind: ValueKind
    value: str | int | Decimal | float | None = None
    aggregate: bool = False
    quotient: Quotient | None = None

    @property
    def is_literal(self) -> bool:
        return self.value is not None or self.kind.base == "null"


class Expressions:
    """Rules for expressions. `column` and `query` are of who reads the statement (`select_rules`)."""

    def __init__(self, texts: Sequence[str], constants: Callable[[str], str | int | None]) -> None:
        """`constants` gives the values of functions without arguments and of system variables, or raises."""
        self._texts, self._constants = texts, constants
        self.in_group = False

    def column(self, node: exp.Column) -> Term:
        raise NotImplementedError

    def scalar(self, node: exp.Expr) -> Term:
        raise NotImplementedError

    def rows_of(self, node: exp.Expr) -> tuple[str, list[ValueKind]]:
        raise NotImplementedError

    # ---- one expression

    def term(self, node: exp.Expr) -> Term:
        """Raises StatementRefused, StatementError."""
        if isinstance(node, exp.Column):
            return self.column(node)
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if not node.expressions:
                return self._constant(f"{name}()")
            raise refused(f"the function {node.name.upper():.40}")
        rule = RULES.get(type(node))
        if rule is None:
            is_function = isinstance(node, exp.Func)
            raise refused(node.sql(dialect="mysql").partition("(")[0][:40] if is_function else node.key.upper())
        for name, value in node.args.items():
            if value not in (None, False, [], "") and name not in rule.arguments:
                raise refused(f"{node.key.upper()} with {name.strip('_').upper()}")
        return rule.write(self, node)

    def value(self, node: exp.Expr) -> Term:
        """One that is computed with: no quotient, no value that is only shown."""
        found = self.term(node)
        if found.quotient is not None:
            raise refused("the result of / inside another expression", "MySQL keeps digits of it that it does not show")
        if found.kind.base == "opaque":
            raise refused(f"an expression of a {found.kind.name} column", "its values are shown, not computed with")
        return found

    def truth(self, node: exp.Expr) -> Term:
        """As a condition."""
        found = self.value(node)
        if found.kind.base == "truth":
            return found
        if found.kind.base == "null":
            return replace(found, sql="CAST(NULL AS BOOLEAN)", kind=TRUTH, value=None)
        if found.kind.base not in NUMBERS:
            raise refused(f"a {found.kind.base} as a condition")
        return Term(f"({found.sql} <> 0)", TRUTH, aggregate=found.aggregate)

    def numbers(self, node: exp.Binary) -> tuple[Term, Term]:
        left, right = self.value(node.this), self.value(node.expression)
        for one in (left, right):
            if one.kind.base not in NUMBERS and one.kind.base != "null":
                raise refused(f"{node.key.upper()} of a {one.kind.base}", "MySQL would convert it")
        return left, right

    # ---- literals

    def literal(self, node: exp.Literal) -> Term:
        if node.is_string:
            text = self.written_out(node.this)
            if "\0" in text:
                raise refused("a string with a zero byte")
            return Term(text_sql(text), TEXT, text)
        text = node.this.lower()
        if "e" in text:
            return Term(f"CAST('{float(text)!r}' AS DOUBLE)", DOUBLE, float(text))
        if "." not in text:
            number = int(text)
            if number > 2**64 - 1:
                raise refused("a whole number above 18446744073709551615")
            kind = INT if number <= MOST_INT else UINT
            return Term(f"CAST({number} AS {'BIGINT' if number <= MOST_INT else 'UBIGINT'})", kind, number)
        whole, _, fraction = text.partition(".")
        if len(whole.lstrip("0")) + len(fraction) > 38 or not fraction:
            raise refused(f"the number {text:.50}")
        width = max(1, len(whole.lstrip("0"))) + len(fraction)
        sql = f"CAST('{text}' AS DECIMAL({min(38, width)},{len(fraction)}))"
        return Term(sql, ValueKind("decimal", len(fraction)), Decimal(text))

    def _constant(self, name: str) -> Term:
        value = self._constants(name)
        if isinstance(value, int):
            return Term(f"CAST({value} AS BIGINT)", INT, value)
        if value is None:
            return Term("NULL", NULL)
        if name in ("now()", "current_timestamp()", "curdate()", "current_date()"):
            kind = DATE if "date" in name else ValueKind("datetime")
            return Term(f"{'DATE' if kind is DATE else 'TIMESTAMP'} '{value}'", kind)
        return Term(text_sql(value), TEXT, value)

    def text_value(self, node: exp.Expr | None, what: str) -> str:
        """Of a string that is written out."""
        if not isinstance(node, exp.Literal) or not node.is_string:
            raise refused(f"{what} that is no string")
        return self.written_out(node.this)

    def written_out(self, mark: str) -> str:
        """The string that stands for a mark of `statement_text`."""
        return self._texts[int(mark.removeprefix(TEXT_MARK))]

    # ---- comparison

    def comparable(self, left: Term, right: Term, what: str) -> tuple[str, str]:
        """Both sides as DuckDB compares them. Raises StatementRefused where MySQL would convert one."""
        bases = {left.kind.base, right.kind.base} - {"null"}
        collation = left.kind.collation or right.kind.collation
        if collation:
            raise refused(f"{what} of text with collation {collation}", "texts are compared by bytes here")
        if bases <= NUMBERS:
            if "double" in bases:
                return _double(left), _double(right)
            return _plain(left), _plain(right)
        if bases == {"text"} or len(bases) == 1:
            return left.sql, right.sql
        if bases <= {"date", "datetime"}:
            return left.sql, right.sql
        if bases == {"date", "text"} or bases == {"datetime", "text"}:
            return self._moment(left), self._moment(right)
        raise refused(f"{what} of {' and '.join(sorted(bases))}", "MySQL would convert one of them")

    def _moment(self, term: Term) -> str:
        if term.kind.base != "text":
            return term.sql
        if isinstance(term.value, str) and _MOMENT.fullmatch(term.value):
            try:
                if len(term.value) == 10:
                    return f"DATE '{date.fromisoformat(term.value)}'"
                return f"TIMESTAMP '{datetime.fromisoformat(term.value).isoformat(' ')}'"
            except ValueError:
                pass
        raise refused("a date compared with text", "only with one written out: '2026-01-31' or '2026-01-31 09:30:00'")

    def compared(self, node: exp.Binary) -> Term:
        sign = _SIGNS[type(node)]
        for side in (node.this, node.expression):
            if isinstance(side, _PREDICATES):
                raise refused("a comparison of a comparison without parentheses")
        left, right = self.value(node.this), self.value(node.expression)
        a, b = self.comparable(left, right, f"the comparison {'<=>' if sign.startswith('IS') else sign}")
        return Term(f"({a} {sign} {b})", TRUTH, aggregate=left.aggregate or right.aggregate)

    def between(self, node: exp.Between) -> Term:
        value, low, high = self.value(node.this), self.value(node.args["low"]), self.value(node.args["high"])
        doubles = [one.kind.base == "double" for one in (low, high)]
        if value.kind.base != "double" and doubles[0] != doubles[1] and "null" not in (low.kind.base, high.kind.base):
            raise refused("BETWEEN numbers of several kinds")
        parts = [
            f"{a} {sign} {b}"
            for sign, bound in ((">=", low), ("<=", high))
            for a, b in (self.comparable(value, bound, "BETWEEN"),)
        ]
        aggregate = any(one.aggregate for one in (value, low, high))
        return Term(f"({' AND '.join(parts)})", TRUTH, aggregate=aggregate)

    def within(self, node: exp.In) -> Term:
        value = self.value(node.this)
        if query := node.args.get("query"):
            sql, kinds = self.rows_of(query)
            if len(kinds) != 1:
                raise StatementError(1241, "Operand should contain 1 column(s)", "21000")
            one = kinds[0]
            same = one.base == value.kind.base or (one.base in EXACT and value.kind.base in EXACT)
            if not same or one.base in ("opaque", "truth") or one.collation or value.kind.collation:
                raise refused(f"IN of {value.kind.base} and {one.base}")
            return Term(f"({value.sql} IN ({sql}))", TRUTH, aggregate=value.aggregate)
        options, lefts = list[str](), set[str]()
        terms = [self.value(one) for one in node.expressions]
        if {"double"} & {one.kind.base for one in terms} and value.kind.base != "double":
            raise refused("IN with numbers of several kinds")
        for one in terms:
            left, right = self.comparable(value, one, "IN")
            options.append(right)
            lefts.add(left)
        if len(lefts) != 1:
            raise refused("IN with values of several kinds")
        (left,) = lefts
        aggregate = value.aggregate or any(one.aggregate for one in terms)
        return Term(f"({left} IN ({', '.join(options)}))", TRUTH, aggregate=aggregate)

    def like(self, node: exp.Like | exp.Escape) -> Term:
        escape = "\\"
        if isinstance(node, exp.Escape):
            escape, like = self.text_value(node.expression, "the ESCAPE"), node.this
            if not isinstance(like, exp.Like) or len(escape) != 1 or not escape.isascii():
                raise refused("this ESCAPE")
        else:
            like = node
        value, pattern = self.value(like.this), self.text_value(like.expression, "a pattern of LIKE")
        if value.kind.base not in ("text", "null") or value.kind.collation:
            raise refused(f"LIKE of a {value.kind.collation or value.kind.base}")
        if re.search(rf"(?<!{re.escape(escape)})({re.escape(escape * 2)})*{re.escape(escape)}\Z", pattern):
            raise refused("a pattern of LIKE that ends in its escape")
        sql = f"{value.sql} {'NOT LIKE' if like.args.get('negate') else 'LIKE'} {text_sql(pattern)}"
        return Term(f"({sql} ESCAPE {text_sql(escape)})", TRUTH, aggregate=value.aggregate)

    def is_(self, node: exp.Is) -> Term:
        if isinstance(node.this, _PREDICATES):
            raise refused("IS of a comparison without parentheses")
        if isinstance(node.expression, exp.Null):
            found = self.term(node.this)  # of a value that is only shown, too
            return Term(f"({found.sql} IS NULL)", TRUTH, aggregate=found.aggregate)
        if not isinstance(node.expression, exp.Boolean):
            raise refused("IS of something else than NULL, TRUE and FALSE")
        found = self.truth(node.this)
        return Term(f"({found.sql} IS {'TRUE' if node.expression.this else 'FALSE'})", TRUTH, aggregate=found.aggregate)

    def joined(self, node: exp.Connector) -> Term:
        left, right = self.truth(node.this), self.truth(node.expression)
        word = "AND" if isinstance(node, exp.And) else "OR"
        return Term(f"({left.sql} {word} {right.sql})", TRUTH, aggregate=left.aggregate or right.aggregate)

    def negated(self, node: exp.Not) -> Term:
        found = self.truth(node.this)
        return replace(found, sql=f"(NOT {found.sql})")

    # ---- arithmetic

    def arithmetic(self, node: exp.Binary) -> Term:
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            return self._moved(node.this, node.expression, "-" if isinstance(node, exp.Sub) else "+")
        left, right = self.numbers(node)
        sign, aggregate = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}[type(node)], left.aggregate or right.aggregate
        bases = {left.kind.base, right.kind.base}
        if "null" in bases:
            raise refused("a number computed with NULL", "of which kind that NULL is depends on the server")
        if "double" in bases:
            return Term(f"ccpr_finite({_double(left)} {sign} {_double(right)})", DOUBLE, aggregate=aggregate)
        if bases <= WHOLE:
            kind, width = (UINT, "UBIGINT") if "uint" in bases else (INT, "BIGINT")
            sql = f"CAST({_huge(left)} {sign} {_huge(right)} AS {width})"
            return Term(sql, kind, aggregate=aggregate)
        digits = (left.kind.digits, right.kind.digits)
        behind = sum(digits) if sign == "*" else max(digits)
        if behind > 30:
            raise refused("a product of more than 30 digits behind the point")
        return Term(f"({_decimal(left)} {sign} {_decimal(right)})", ValueKind("decimal", behind), aggregate=aggregate)

    def divided(self, node: exp.Div) -> Term:
        left, right = self.numbers(node)
        return self._quotient(left, right)

    def _quotient(self, left: Term, right: Term) -> Term:
        aggregate = left.aggregate or right.aggregate
        bases = {left.kind.base, right.kind.base}
        if "null" in bases:
            raise refused("a number computed with NULL", "of which kind that NULL is depends on the server")
        if "double" in bases:
            divisor = f"nullif({_double(right)}, 0)"
            return Term(f"ccpr_finite({_double(left)} / {divisor})", DOUBLE, aggregate=aggregate)
        digits = left.kind.digits + _DIVISION_DIGITS
        found = self._rounded(Quotient(left, right), digits)
        return replace(found, quotient=Quotient(left, right))

    def _rounded(self, quotient: Quotient, digits: int) -> Term:
        """MySQL computes a quotient to whole words of nine digits, cut, and rounds that to what is shown."""
        left, right = quotient.dividend, quotient.divisor
        a, b = left.kind.digits, right.kind.digits
        words = [-(-one // _DIGITS_OF_WORD) * _DIGITS_OF_WORD for one in (a, b)]
        more = max(0, _DIVISION_DIGITS - (words[0] - a) - (words[1] - b))
        computed = -(-(sum(words) + more) // _DIGITS_OF_WORD) * _DIGITS_OF_WORD
        if digits > computed or digits > 18:
            raise refused(f"a quotient with {digits} digits behind the point")
        # a / b with so many digits = a * 10**digits / b, as whole numbers of the units of each
        macro = "ccpr_cut" if digits == computed else "ccpr_divided"
        dividend = f"{_units(left)} * CAST({10 ** (digits + b)} AS HUGEINT)"
        divisor = f"{_units(right)} * CAST({10**a} AS HUGEINT)"
        sql = _scaled(f"{macro}({dividend}, {divisor})", digits)
        return Term(sql, ValueKind("decimal", digits), aggregate=left.aggregate or right.aggregate)

    def whole_quotient(self, node: exp.IntDiv) -> Term:
        left, right = self.numbers(node)
        if not {left.kind.base, right.kind.base} <= {"int", "truth"}:
            raise refused("DIV of something else than whole numbers with a sign")
        sql = f"CAST(ccpr_cut({_huge(left)}, {_huge(right)}) AS BIGINT)"
        return Term(sql, INT, aggregate=left.aggregate or right.aggregate)

    def remainder(self, node: exp.Mod) -> Term:
        left, right = self.numbers(node)
        if not {left.kind.base, right.kind.base} <= {"int", "truth"}:
            raise refused("MOD of something else than whole numbers with a sign")
        sql = f"CAST({_huge(left)} % nullif({_huge(right)}, 0) AS BIGINT)"
        return Term(sql, INT, aggregate=left.aggregate or right.aggregate)

    def minus(self, node: exp.Neg) -> Term:
        found = self.value(node.this)
        base = found.kind.base
        if base == "int" and isinstance(found.value, int):
            return Term(f"CAST({-found.value} AS BIGINT)", INT, -found.value)
        if base == "uint" and found.value == MOST_INT + 1:
            return Term(f"CAST({-MOST_INT - 1} AS BIGINT)", INT, -MOST_INT - 1)
        if base == "decimal" and isinstance(found.value, Decimal):
            return replace(found, sql=f"(-{found.sql})", value=-found.value)
        if base in ("int", "truth"):
            return Term(f"CAST(-{_huge(found)} AS BIGINT)", INT, aggregate=found.aggregate)
        if base not in ("decimal", "double"):
            raise refused(f"- of a {base}")
        if base == "double":  # 0 - x, as there: -x would be -0 of 0
            return replace(found, sql=f"(CAST(0 AS DOUBLE) - {_double(found)})", kind=DOUBLE, value=None)
        return replace(found, sql=f"(-{found.sql})", value=None)

    # ---- one of several values

    def unified(self, terms: Sequence[Term], what: str) -> tuple[list[str], ValueKind]:
        """The values as those of one kind. Raises StatementRefused."""
        bases = {term.kind.base for term in terms} - {"null"}
        collation = next((term.kind.collation for term in terms if term.kind.collation), "")
        if not bases:
            return [term.sql for term in terms], NULL
        if bases == {"truth"} or bases <= {"int", "truth"}:
            return [_huge(term, "BIGINT") for term in terms], INT
        if bases <= {"uint"}:
            return [term.sql for term in terms], UINT
        if bases <= NUMBERS and "double" in bases:
            return [_double(term) for term in terms], DOUBLE
        if bases <= EXACT and "decimal" in bases and "uint" not in bases:
            digits = {term.kind.digits for term in terms if term.kind.base != "null"}
            if len(digits) > 1:
                raise refused(f"{what} of decimals with different digits behind the point")
            return [term.sql for term in terms], ValueKind("decimal", max(digits))
        if bases == {"text"}:
            return [term.sql for term in terms], ValueKind("text", collation=collation)
        digits = max(term.kind.digits for term in terms)
        if bases == {"date"}:
            return [term.sql for term in terms], DATE
        if bases == {"datetime"}:
            return [term.sql for term in terms], ValueKind("datetime", digits)
        raise refused(f"{what} of {' and '.join(sorted(bases))}", "MySQL would convert one of them")

    def case(self, node: exp.Case) -> Term:
        conditions, results = list[Term](), list[Term]()
        for one in node.args["ifs"]:
            if node.this is None:
                conditions.append(self.truth(one.this))
            else:
                left, right = self.value(node.this), self.value(one.this)
                a, b = self.comparable(left, right, "CASE")
                conditions.append(Term(f"({a} = {b})", TRUTH, aggregate=left.aggregate or right.aggregate))
            results.append(self.value(one.args["true"]))
        default = node.args.get("default")
        return self._chosen(conditions, results, Term("NULL", NULL) if default is None else self.value(default), "CASE")

    def if_(self, node: exp.If) -> Term:
        if node.args.get("false") is None:
            raise refused("IF without a third value")
        condition, result = self.truth(node.this), self.value(node.args["true"])
        return self._chosen([condition], [result], self.value(node.args["false"]), "IF")

    def _chosen(self, conditions: list[Term], results: list[Term], default: Term, what: str) -> Term:
        sqls, kind = self.unified([*results, default], what)
        when = " ".join(f"WHEN {one.sql} THEN {sql}" for one, sql in zip(conditions, sqls[:-1], strict=True))
        aggregate = any(one.aggregate for one in (*conditions, *results, default))
        return Term(f"CASE {when} ELSE {sqls[-1]} END", kind, aggregate=aggregate)

    def coalesce(self, node: exp.Coalesce) -> Term:
        terms = [self.value(one) for one in (node.this, *node.expressions)]
        sqls, kind = self.unified(terms, "COALESCE or IFNULL")
        return Term(f"coalesce({', '.join(sqls)})", kind, aggregate=any(one.aggregate for one in terms))

    def nullif(self, node: exp.Nullif) -> Term:
        left, right = self.value(node.this), self.value(node.expression)
        a, b = self.comparable(left, right, "NULLIF")
        kind = INT if left.kind.base == "truth" else left.kind
        sql = f"CASE WHEN {a} = {b} THEN NULL ELSE {_huge(left, 'BIGINT') if kind is INT else left.sql} END"
        return Term(sql, kind, aggregate=left.aggregate or right.aggregate)

    # ---- texts

    def text(self, node: exp.Expr, what: str) -> Term:
        found = self.value(node)
        if found.kind.base not in ("text", "null"):
            raise refused(f"{what} of a {found.kind.base}")
        return found

    def as_text(self, node: exp.Expr, what: str) -> Term:
        """Also of a number or date whose text is the same in both."""
        found = self.value(node)
        base = found.kind.base
        if base in ("text", "null"):
            return found
        if base in EXACT:
            return replace(found, sql=f"CAST({_huge(found) if base in WHOLE else found.sql} AS VARCHAR)", kind=TEXT)
        if base == "date":
            return replace(found, sql=f"strftime({found.sql}, '%Y-%m-%d')", kind=TEXT)
        raise refused(f"{what} of a {base}")

    def concat(self, node: exp.Concat) -> Term:
        terms = [self.as_text(one, "CONCAT") for one in node.expressions]
        collation = next((one.kind.collation for one in terms if one.kind.collation), "")
        kind, aggregate = ValueKind("text", collation=collation), any(one.aggregate for one in terms)
        return Term(f"({' || '.join(one.sql for one in terms)})", kind, aggregate=aggregate)

    def length(self, node: exp.Length) -> Term:
        found = self.as_text(node.this, "LENGTH")
        return Term(f"{'strlen' if node.args.get('binary') else 'length'}({found.sql})", INT, aggregate=found.aggregate)

    def cased(self, node: exp.Upper | exp.Lower) -> Term:
        found = self.text(node.this, node.key.upper())
        return replace(found, sql=f"{node.key}(ccpr_ascii({found.sql}))", value=None)

    def substring(self, node: exp.Substring) -> Term:
        found, start = self.text(node.this, "SUBSTRING"), _whole(self.value(node.args["start"]), "SUBSTRING")
        length = node.args.get("length")
        count = None if length is None else _whole(self.value(length), "SUBSTRING")
        if start == 0 or (count is not None and count < 0):
            return replace(found, sql=f"CASE WHEN {found.sql} IS NULL THEN NULL ELSE '' END", value=None)
        if start < 0:
            tail = f"CASE WHEN length({found.sql}) < {-start} THEN '' ELSE right({found.sql}, {-start}) END"
            sql = tail if count is None else f"left({tail}, {count})"
        else:
            sql = f"substring({found.sql}, {start}{'' if count is None else f', {count}'})"
        return replace(found, sql=sql, value=None)

    def side(self, node: exp.Left | exp.Right) -> Term:
        found, count = self.text(node.this, node.key.upper()), _whole(self.value(node.expression), node.key.upper())
        return replace(found, sql=f"{node.key}({found.sql}, {max(0, count)})", value=None)

    def trim(self, node: exp.Trim) -> Term:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
        found = self.text(node.this, "TRIM")
        return replace(found, sql=f"{name}({found.sql}, ' ')", value=None)

    def replace(self, node: exp.Replace) -> Term:
        terms = [self.text(one, "REPLACE") for one in (node.this, node.expression, node.args["replacement"])]
        if not all(isinstance(one.value, str) for one in terms[1:]) or not terms[1].value:
            raise refused("REPLACE of something else than strings that are written out")
        sql = f"replace({', '.join(one.sql for one in terms)})"
        return replace(terms[0], sql=sql, value=None, aggregate=any(one.aggregate for one in terms))

    # ---- numbers

    def absolute(self, node: exp.Abs) -> Term:
        found = self.value(node.this)
        if found.kind.base == "uint":
            return found
        if found.kind.base in WHOLE:
            return Term(f"CAST(abs({_huge(found)}) AS BIGINT)", INT, aggregate=found.aggregate)
        if found.kind.base not in ("decimal", "double"):
            raise refused(f"ABS of a {found.kind.base}")
        return replace(found, sql=f"abs({found.sql})", value=None)

    def rounded(self, node: exp.Round) -> Term:
        found, place = self.term(node.this), node.args.get("decimals")
        digits = 0 if place is None else _whole(self.value(place), "ROUND")
        if found.kind.base not in EXACT or digits < 0:
            raise refused(f"ROUND of a {found.kind.base}" if digits >= 0 else "ROUND to tens")
        if found.quotient is not None:
            if digits > found.kind.digits:
                raise refused("ROUND to more digits than a quotient has")
            return self._rounded(found.quotient, digits)
        if digits > found.kind.digits and found.kind.base == "decimal":
            raise refused("ROUND to more digits than a decimal has")
        if found.kind.base in WHOLE or digits == found.kind.digits:
            return self.value(node.this) if found.kind.base != "truth" else replace(found, sql=_huge(found), kind=INT)
        kind = ValueKind("decimal", digits)
        return Term(f"round({found.sql}, {digits})", kind, aggregate=found.aggregate)

    def floor(self, node: exp.Floor | exp.Ceil) -> Term:
        found = self.value(node.this)
        if found.kind.base in WHOLE:
            return found if found.kind.base != "truth" else replace(found, sql=_huge(found), kind=INT)
        if found.kind.base != "decimal":
            raise refused(f"{node.key.upper()} of a {found.kind.base}")
        return Term(f"CAST({node.key}({found.sql}) AS DECIMAL(38,0))", ValueKind("decimal"), aggregate=found.aggregate)

    # ---- dates

    def moment(self, node: exp.Expr, what: str) -> Term:
        if isinstance(node, exp.TsOrDsToTimestamp):  # as sqlglot reads DATE_FORMAT
            node = node.this
        found = self.value(node)
        if found.kind.base == "text" and found.is_literal:
            sql = self._moment(found)
            kind = DATE if sql.startswith("DATE") else ValueKind("datetime", 6 if "." in sql else 0)
            return Term(sql, kind)
        if found.kind.base not in ("date", "datetime", "null"):
            raise refused(f"{what} of a {found.kind.base}")
        return found

    def part(self, node: exp.Func) -> Term:
        found = self.moment(node.this, node.key.upper())
        if isinstance(node, exp.Hour | exp.Minute | exp.Second) and found.kind.base == "date":
            sql = f"CASE WHEN {found.sql} IS NULL THEN NULL ELSE CAST(0 AS BIGINT) END"
            return Term(sql, INT, aggregate=found.aggregate)
        name = {"dayofmonth": "day", "day": "day"}.get(node.key, node.key)
        moment = found.sql if found.kind.base == "date" else f"CAST({found.sql} AS TIMESTAMP)"
        return Term(f"CAST(datepart('{name}', {moment}) AS BIGINT)", INT, aggregate=found.aggregate)

    def date_of(self, node: exp.Expr) -> Term:
        found = self.moment(node.this, "DATE")
        return Term(f"CAST({found.sql} AS DATE)", DATE, aggregate=found.aggregate)

    def format(self, node: exp.TimeToStr) -> Term:
        found = self.moment(node.this, "DATE_FORMAT")
        pattern = self.text_value(node.args.get("format"), "a format of DATE_FORMAT")
        parts = list[str]()
        for escaped, plain in re.findall(r"%(.?)|([^%]+)", pattern, re.DOTALL):
            if plain:
                parts.append(plain)
            elif escaped == "%":
                parts.append("%%")
            elif escaped in _FORMATS and escaped:
                parts.append(_FORMATS[escaped])
            else:
                raise refused(f"%{escaped} in a format of DATE_FORMAT")
        sql = f"strftime(CAST({found.sql} AS TIMESTAMP), {text_sql(''.join(parts))})"
        return Term(sql, TEXT, aggregate=found.aggregate)

    def days_between(self, node: exp.DateDiff) -> Term:
        if node.args.get("unit") is not None:
            raise refused("TIMESTAMPDIFF")
        a, b = self.moment(node.this, "DATEDIFF"), self.moment(node.expression, "DATEDIFF")
        sql = f"datediff('day', CAST({b.sql} AS DATE), CAST({a.sql} AS DATE))"
        return Term(sql, INT, aggregate=a.aggregate or b.aggregate)

    def moved(self, node: exp.DateAdd | exp.DateSub) -> Term:
        interval = exp.Interval(this=node.expression, unit=node.args.get("unit"))
        return self._moved(node.this, interval, "-" if isinstance(node, exp.DateSub) else "+")

    def _moved(self, node: exp.Expr, interval: exp.Interval, sign: str) -> Term:
        found, unit = self.moment(node, "a date and INTERVAL"), str(interval.args.get("unit") or "").upper()
        if unit not in ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER", "HOUR", "MINUTE", "SECOND"):
            raise refused(f"INTERVAL of {unit or 'no unit':.30}")
        count = self._interval_count(interval.this)
        if found.kind.base == "null":
            return found
        sql = f"ccpr_moment(CAST({found.sql} AS TIMESTAMP) {sign} to_{unit.lower()}s({count}))"
        if found.kind.base == "date" and unit in ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER"):
            return Term(f"CAST({sql} AS DATE)", DATE, aggregate=found.aggregate)
        return Term(sql, ValueKind("datetime", found.kind.digits), aggregate=found.aggregate)

    def _interval_count(self, node: exp.Expr) -> int:
        if isinstance(node, exp.Literal):
            text = node.this
            if text.startswith(TEXT_MARK):
                text = self.written_out(text)
        elif isinstance(node, exp.Neg | exp.Paren):
            inner = self._interval_count(node.this)
            return -inner if isinstance(node, exp.Neg) else inner
        else:
            text = ""
        if not re.fullmatch(r"-?\d{1,6}", text):
            raise refused("INTERVAL of something else than a whole number that is written out")
        return int(text)

    def cast(self, node: exp.Cast) -> Term:
        to = node.args["to"]
        kind, sizes = to.this, [int(one.name) for one in to.expressions if one.name.isdecimal()]
        if kind == exp.DType.DATE and not sizes:
            return self.date_of(node)
        found = self.value(node.this)
        if kind in (exp.DType.CHAR, exp.DType.VARCHAR, exp.DType.TEXT):
            text = self.as_text(node.this, "CAST AS CHAR")
            return replace(text, sql=f"left({text.sql}, {sizes[0]})" if sizes else text.sql, value=None)
        if kind == exp.DType.BIGINT and not sizes and found.kind.base in ("int", "decimal", "truth", "null"):
            return Term(f"CAST({found.sql} AS BIGINT)", INT, aggregate=found.aggregate)
        if kind == exp.DType.DECIMAL and found.kind.base in EXACT:
            precision, digits = (*sizes, 0)[:2] if sizes else (10, 0)
            if precision <= 38:
                sql = f"CAST({_decimal(found)} AS DECIMAL({precision},{digits}))"
                return Term(sql, ValueKind("decimal", digits), aggregate=found.aggregate)
        raise refused(f"CAST of a {found.kind.base} AS {to.sql(dialect='mysql'):.30}")

    # ---- of a group

    def count(self, node: exp.Count) -> Term:
        inner = node.this
        if isinstance(inner, exp.Star):
            return Term("count(*)", INT, aggregate=True)
        distinct, inner = self._distinct(inner)
        found = self._of_group(inner, self.value if distinct else self.term)
        if found.kind.base == "text" and found.kind.collation and distinct:
            raise refused(f"COUNT(DISTINCT) of text with collation {found.kind.collation}")
        _not_nested(found)
        return Term(f"count({distinct}{found.sql})", INT, aggregate=True)

    def sum(self, node: exp.Sum) -> Term:
        distinct, inner = self._distinct(node.this)
        found = self._of_group(inner, self.value)
        _not_nested(found)
        if found.kind.base == "double":
            return Term(f"ccpr_finite(sum({distinct}{_double(found)}))", DOUBLE, aggregate=True)
        if found.kind.base not in EXACT:
            raise refused(f"SUM of a {found.kind.base}")
        inner_sql = _huge(found) if found.kind.base in WHOLE else found.sql
        digits = found.kind.digits
        return Term(
            f"CAST(sum({distinct}{inner_sql}) AS DECIMAL(38,{digits}))", ValueKind("decimal", digits), None, True
        )

    def average(self, node: exp.Avg) -> Term:
        distinct, inner = self._distinct(node.this)
        found = self._of_group(inner, self.value)
        _not_nested(found)
        if found.kind.base == "double":
            return Term(f"ccpr_finite(avg({distinct}{_double(found)}))", DOUBLE, aggregate=True)
        total = self.sum(exp.Sum(this=node.this))
        return self._quotient(total, Term(f"count({distinct}{found.sql})", INT, aggregate=True))

    def extreme(self, node: exp.Min | exp.Max) -> Term:
        _, inner = self._distinct(node.this)
        found = self._of_group(inner, self.value)
        _not_nested(found)
        if found.kind.collation:
            raise refused(f"{node.key.upper()} of text with collation {found.kind.collation}")
        if found.kind.base == "truth":
            return Term(f"{node.key}({_huge(found)})", INT, None, True)
        return Term(f"{node.key}({found.sql})", found.kind, None, True)

    def group_concat(self, node: exp.GroupConcat) -> Term:
        inner, order = node.this, ""
        if isinstance(inner, exp.Order):
            distinct, value = self._distinct(inner.this)
            order = self.ordered(inner.expressions)
        else:
            distinct, value = self._distinct(inner)
        found = self._of_group(value, lambda one: self.as_text(one, "GROUP_CONCAT"))
        _not_nested(found)
        if found.kind.collation:
            raise refused("GROUP_CONCAT of text with another collation")
        if distinct and order and any(self.term(one.this).sql != self.term(value).sql for one in inner.expressions):
            raise refused("GROUP_CONCAT(DISTINCT …) in the order of something else")
        separator = node.args.get("separator")
        between = "," if separator is None else self.text_value(separator, "a SEPARATOR")
        sql = f"ccpr_short(string_agg({distinct}{found.sql}, {text_sql(between)}{order}))"
        return Term(sql, TEXT, None, True)

    def _of_group(self, node: exp.Expr, read: Callable[[exp.Expr], Term]) -> Term:
        """What a function of a group is about: with a column of an outer query it would be that query's group, in
        MySQL."""
        before, self.in_group = self.in_group, True
        try:
            return read(node)
        finally:
            self.in_group = before

    def ordered(self, nodes: Sequence[exp.Expr]) -> str:
        parts = []
        for node in nodes:
            if not isinstance(node, exp.Ordered) or node.args.get("with_fill"):
                raise refused("this ORDER BY")
            found = self.value(node.this)
            if found.kind.collation:
                raise refused(f"ORDER BY of text with collation {found.kind.collation}")
            parts.append(found.sql + direction(node))
        return f" ORDER BY {', '.join(parts)}"

    def _distinct(self, node: exp.Expr) -> tuple[str, exp.Expr]:
        if not isinstance(node, exp.Distinct):
            return "", node
        if len(node.expressions) != 1 or node.args.get("on"):
            raise refused("DISTINCT of several values in a function")
        return "DISTINCT ", node.expressions[0]


@dataclass(frozen=True, slots=True)
class Rule:
    """How an expression is written, and the parts of it that are looked at: with any other it is refused."""

    write: Callable[[Expressions, exp.Expr], Term]
    arguments: frozenset[str] = frozenset(("this", "expression", "expressions"))


def _rule(write: object, *arguments: str) -> Rule:
    return Rule(write, frozenset(("this", "expression", "expressions", *arguments)))  # type: ignore[arg-type]


def _variable(rules: Expressions, node: exp.Expr) -> Term:
    return rules._constant(f"@@{node.name.lower()}")


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
_PREDICATES = (*_SIGNS, exp.Between, exp.In, exp.Like, exp.Escape, exp.Is, exp.Not)
RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _rule(Expressions.literal, "is_string"),
    exp.Null: _rule(lambda rules, node: Term("NULL", NULL)),
    exp.Boolean: _rule(lambda rules, node: Term(str(bool(node.this)).upper(), TRUTH)),
    exp.Paren: _rule(lambda rules, node: rules.term(node.this)),
    exp.SessionParameter: _rule(_variable, "kind"),
    exp.CurrentSchema: _rule(lambda rules, node: rules._constant("database()")),
    exp.CurrentVersion: _rule(lambda rules, node: rules._constant("version()")),
    exp.CurrentUser: _rule(lambda rules, node: rules._constant("user()")),
    exp.CurrentDate: _rule(lambda rules, node: rules._constant("curdate()")),
    exp.CurrentTimestamp: _rule(lambda rules, node: rules._constant("now()")),
    **dict.fromkeys(_SIGNS, _rule(Expressions.compared)),
    exp.Between: _rule(Expressions.between, "low", "high"),
    exp.In: _rule(Expressions.within, "query"),
    exp.Like: _rule(Expressions.like, "negate"),
    exp.Escape: _rule(Expressions.like),
    exp.Is: _rule(Expressions.is_),
    exp.And: _rule(Expressions.joined),
    exp.Or: _rule(Expressions.joined),
    exp.Not: _rule(Expressions.negated),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _rule(Expressions.arithmetic)),
    exp.Div: _rule(Expressions.divided, "typed", "safe"),
    exp.IntDiv: _rule(Expressions.whole_quotient),
    exp.Mod: _rule(Expressions.remainder),
    exp.Neg: _rule(Expressions.minus),
    exp.Case: _rule(Expressions.case, "ifs", "default"),
    exp.If: _rule(Expressions.if_, "true", "false"),
    exp.Coalesce: _rule(Expressions.coalesce, "is_nvl", "is_null"),
    exp.Nullif: _rule(Expressions.nullif),
    exp.Concat: _rule(Expressions.concat, "safe", "coalesce"),
    exp.Length: _rule(Expressions.length, "binary"),
    **dict.fromkeys((exp.Upper, exp.Lower), _rule(Expressions.cased)),
    exp.Substring: Rule(Expressions.substring, frozenset(("this", "start", "length"))),  # type: ignore[arg-type]
    **dict.fromkeys((exp.Left, exp.Right), _rule(Expressions.side)),
    exp.Trim: Rule(Expressions.trim, frozenset(("this", "position"))),  # type: ignore[arg-type]
    exp.Replace: _rule(Expressions.replace, "replacement"),
    exp.Abs: _rule(Expressions.absolute),
    exp.Round: _rule(Expressions.rounded, "decimals"),
    **dict.fromkeys((exp.Floor, exp.Ceil), Rule(Expressions.floor, frozenset(("this",)))),  # type: ignore[arg-type]
    **dict.fromkeys(
        (exp.Year, exp.Month, exp.Day, exp.DayOfMonth, exp.Quarter, exp.Hour, exp.Minute, exp.Second),
        _rule(Expressions.part),
    ),
    exp.TsOrDsToDate: _rule(Expressions.date_of),
    exp.Date: Rule(Expressions.date_of, frozenset(("this",))),  # type: ignore[arg-type]
    exp.TimeToStr: _rule(Expressions.format, "format"),
    exp.DateDiff: _rule(Expressions.days_between, "date_part_boundary", "unit"),
    **dict.fromkeys((exp.DateAdd, exp.DateSub), _rule(Expressions.moved, "unit")),
    exp.Cast: _rule(Expressions.cast, "to", "_type"),
    exp.Count: Rule(Expressions.count, frozenset(("this", "big_int"))),  # type: ignore[arg-type]
    exp.Sum: _rule(Expressions.sum),
    exp.Avg: _rule(Expressions.average),
    **dict.fromkeys((exp.Min, exp.Max), Rule(Expressions.extreme, frozenset(("this",)))),  # type: ignore[arg-type]
    exp.GroupConcat: _rule(Expressions.group_concat, "separator"),
    exp.Subquery: Rule(lambda rules, node: rules.scalar(node), frozenset(("this",))),
    exp.Exists: Rule(lambda rules, node: Term(f"EXISTS ({rules.rows_of(node.this)[0]})", TRUTH), frozenset(("this",))),
}


def direction(node: exp.Ordered) -> str:
    """NULL is the smallest value of all, in MySQL."""
    return " DESC NULLS LAST" if node.args.get("desc") else " ASC NULLS FIRST"


def text_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def shown(term: Term) -> str:
    """As a column of a result."""
    if term.kind.base == "truth":
        return f"CAST({term.sql} AS BIGINT)"
    return term.sql


def column_sql(source: str, name: str, kind: ValueKind) -> str:
    """A stored column as expressions take it."""
    sql = f"{quoted(source)}.{quoted(name)}"
    if kind.name == "timestamp":
        return f"timezone('UTC', {sql})"
    return f"CAST({sql} AS TINYINT)" if kind.name == "bool" else sql


def _whole(term: Term, what: str) -> int:
    if not isinstance(term.value, int):
        raise refused(f"{what} with a place that is not written out")
    return term.value


def _not_nested(term: Term) -> None:
    if term.aggregate:
        raise StatementError(1111, "Invalid use of group function", "HY000")


def _plain(term: Term) -> str:
    """Of a number that is compared: a literal without a cast, so that filters see it."""
    if isinstance(term.value, int):
        return str(term.value)
    return _huge(term) if term.kind.base == "truth" else term.sql


def _huge(term: Term, width: str = "HUGEINT") -> str:
    if isinstance(term.value, int):
        return f"CAST({term.value} AS {width})"
    return f"CAST({term.sql} AS {width})"


def _double(term: Term) -> str:
    return f"CAST({term.sql} AS DOUBLE)"


def _decimal(term: Term) -> str:
    return f"CAST({_huge(term)} AS DECIMAL(20,0))" if term.kind.base in WHOLE else term.sql


def _units(term: Term) -> str:
    """How many units of its last digit it is."""
    if term.kind.base in WHOLE:
        return _huge(term)
    digits = term.kind.digits
    return f"CAST({term.sql} * CAST({10**digits} AS DECIMAL({digits + 1},0)) AS HUGEINT)"


def _scaled(units: str, digits: int) -> str:
    if digits == 0:
        return f"CAST({units} AS DECIMAL(38,0))"
    return (
        f"CAST({units} AS DECIMAL({37 - digits},0)) * CAST('0.{'0' * (digits - 1)}1' AS DECIMAL({digits + 1},{digits}))"
    )
