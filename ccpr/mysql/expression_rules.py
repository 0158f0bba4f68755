"""Expressions of MySQL as DuckDB's SQL with the same answer. What is in no table of rules (`condition_rules`,
`number_rules`, `text_rules`, `date_rules`, `group_rules`) is refused by name: nothing is handed on as it came.

Every operand has a kind (`value_kinds`), and a rule takes those kinds alone for which the answers were found equal
(`tests/mysql/test_oracle.py`). MySQL would convert a text to a number, or cut it; here that is refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from sqlglot import exp

from ccpr.mysql.statement_text import TEXT_MARK, refused
from ccpr.mysql.terms import (
    MOST_DIGITS,
    Term,
    decimal_sql,
    double,
    exact,
    huge,
    made,
    moment_literal,
    plain,
    shown,
    text_sql,
)
from ccpr.mysql.value_kinds import (
    DATE,
    DOUBLE,
    EXACT,
    INT,
    NULL,
    NUMBERS,
    OF_LABELS,
    ROUNDED,
    TEXT,
    TRUTH,
    UINT,
    WHOLE,
    ValueKind,
)

MOST_INT = 2**63 - 1
_MOMENT = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d{1,6}))?)?")
_WRITTEN_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(\.\d{1,15})?")
_PARTS = frozenset(("this", "expression", "expressions"))


@dataclass(frozen=True, slots=True)
class Rule:
    """How an expression is written, and the parts of it that are looked at: with any other it is refused."""

    write: "Callable[[Expressions, exp.Expr], Term]"
    parts: frozenset[str] = _PARTS


def rule(write: object, *more: str, only: bool = False) -> Rule:
    """`more` parts of an expression are looked at, beside the usual ones; `only` those if it says so."""
    return Rule(write, frozenset(more) if only else _PARTS | set(more))  # type: ignore[arg-type]


Rules = Mapping[type[exp.Expr] | str, Rule]  # a function that sqlglot does not know is a rule by its name


class Expressions:
    """`column` and what follows it are of who reads the statement (`select_rules`)."""

    def __init__(self, rules: Rules, texts: Sequence[str], constants: Callable[[str], str | int | None]) -> None:
        """`constants` gives the values of functions without arguments and of system variables, or raises."""
        self._rules, self._texts, self._constants = rules, texts, constants
        self.in_group = False

    def column(self, node: exp.Column) -> Term:
        raise NotImplementedError

    def scalar(self, node: exp.Expr) -> Term:
        raise NotImplementedError

    def rows_of(self, node: exp.Expr) -> tuple[str, list[ValueKind]]:
        raise NotImplementedError

    def window_named(self, name: str) -> exp.Expr:
        raise NotImplementedError

    # ---- one expression

    def term(self, node: exp.Expr) -> Term:
        """Raises StatementRefused, StatementError."""
        if isinstance(node, exp.Column):
            return self.column(node)
        if isinstance(node, exp.Anonymous):
            name = node.name.upper()
            found = self._rules.get(name)
            if found is not None:
                return found.write(self, node)
            if not node.expressions:
                return self.constant(f"{name.lower()}()")
            raise refused(f"the function {name:.40}")
        found = self._rules.get(type(node))
        if found is None:
            is_function = isinstance(node, exp.Func)
            raise refused(node.sql(dialect="mysql").partition("(")[0][:40] if is_function else node.key.upper())
        for name, value in node.args.items():
            if value not in (None, False, [], "") and name not in found.parts:
                raise refused(f"{node.key.upper()} with {name.strip('_').upper()}")
        return found.write(self, node)

    def value(self, node: exp.Expr) -> Term:
        """One that is computed with: a quotient with all its digits, no value that is only shown."""
        found = exact(self.term(node))
        if found.kind.name == ROUNDED:
            raise refused("an expression of a DOUBLE that was rounded", "MySQL shows it with as many digits")
        if found.kind.base == "opaque":
            raise refused(f"an expression of a {found.kind.name} column", "its values are shown, not computed with")
        if found.kind.name in OF_LABELS:
            return replace(found, kind=replace(TEXT, collation=found.kind.collation))
        return found

    def settled(self, node: exp.Expr, what: str) -> Term:
        """One whose digits are all shown, as it is kept in a group."""
        found = self.value(node)
        if found.computed is not None:
            raise refused(f"{what} of the result of /", "MySQL keeps digits of it that it does not show")
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
        return made(f"({found.sql} <> 0)", TRUTH, found)

    def numbers(self, node: exp.Binary) -> tuple[Term, Term]:
        left, right = self.value(node.this), self.value(node.expression)
        for one in (left, right):
            if one.kind.base not in NUMBERS and one.kind.base != "null":
                raise refused(f"{node.key.upper()} of a {one.kind.base}", "MySQL would convert it")
        if "null" in (left.kind.base, right.kind.base):
            raise refused("a number computed with NULL", "of which kind that NULL is depends on the server")
        return left, right

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
            return made(f"CAST({huge(found) if base in WHOLE else shown(found)} AS VARCHAR)", TEXT, found)
        if base == "date":
            return made(f"strftime({found.sql}, '%Y-%m-%d')", TEXT, found)
        if base == "datetime":
            form, digits = "%Y-%m-%d %H:%M:%S.%f", found.kind.digits
            return made(f"left(strftime({found.sql}, '{form}'), {20 + digits if digits else 19})", TEXT, found)
        raise refused(f"{what} of a {base}")

    def moment(self, node: exp.Expr, what: str) -> Term:
        """A date or a date with a time, also one that is written out."""
        if isinstance(node, exp.TsOrDsToTimestamp):  # as sqlglot reads DATE_FORMAT
            node = node.this
        found = self.value(node)
        if found.kind.base == "text" and found.is_literal:
            return written_moment(found)
        if found.kind.base not in ("date", "datetime", "null"):
            raise refused(f"{what} of a {found.kind.base}")
        return found

    def ordered(self, nodes: Sequence[exp.Expr], what: str) -> str:
        """ORDER BY in a function."""
        parts = []
        for node in nodes:
            if not isinstance(node, exp.Ordered) or node.args.get("with_fill"):
                raise refused("this ORDER BY")
            found = self.settled(node.this, what)
            no_place(found)
            parts.append(ordering(replace(found, kind=self.term(node.this).kind)) + direction(node))
        return f"ORDER BY {', '.join(parts)}"

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
        if len(whole.lstrip("0")) + len(fraction) > 38 or len(fraction) > MOST_DIGITS or not fraction:
            raise refused(f"the number {text:.50}")
        width = max(1, len(whole.lstrip("0"))) + len(fraction)
        sql = f"CAST('{text}' AS DECIMAL({min(38, width)},{len(fraction)}))"
        return Term(sql, ValueKind("decimal", len(fraction)), Decimal(text))

    def constant(self, name: str) -> Term:
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
        number = mark.removeprefix(TEXT_MARK)
        if number == mark or not number.isdecimal():
            raise refused("a function that the parser writes in another way")
        return self._texts[int(number)]

    # ---- values beside one another

    def comparable(self, left: Term, right: Term, what: str) -> tuple[str, str]:
        """Both sides as DuckDB compares them. Raises StatementRefused where MySQL would convert one."""
        bases = {left.kind.base, right.kind.base} - {"null"}
        collation = left.kind.collation or right.kind.collation
        if collation:
            raise refused(f"{what} of text with collation {collation}", "texts are compared by bytes here")
        values = [one.value for one in (left, right) if one.value is not None]
        if "year" in (left.kind.name, right.kind.name) and not all(isinstance(v, int) and v > 99 for v in values):
            raise refused(f"{what} of a YEAR and two digits or text", "MySQL would add a century")
        if bases <= NUMBERS:
            if "double" in bases:
                return double(left), double(right)
            return plain(left), plain(right)
        if bases in ({"text"}, {"date"}, {"datetime"}, set()) or bases <= {"date", "datetime"}:
            return left.sql, right.sql
        if bases in ({"date", "text"}, {"datetime", "text"}):
            return written_moment(left).sql, written_moment(right).sql
        numbers = written_number(left, right), written_number(right, left)
        if numbers != (left, right):
            return self.comparable(*numbers, what)
        raise refused(f"{what} of {' and '.join(sorted(bases))}", "MySQL would convert one of them")

    def unified(self, terms: Sequence[Term], what: str) -> tuple[list[str], Term]:
        """The values as those of one kind, and what one of them is, but for its SQL. Raises StatementRefused."""
        bases = {term.kind.base for term in terms} - {"null"}
        collation = next((term.kind.collation for term in terms if term.kind.collation), "")
        sqls, kind, computed = [term.sql for term in terms], NULL, None
        digits = max(term.kind.digits for term in terms)
        loose = 0
        if bases == {"truth"} or (bases and bases <= {"int", "truth"}):
            sqls, kind = [huge(term, "BIGINT") for term in terms], INT
        elif bases == {"uint"}:
            kind = UINT
        elif bases == {"uint", "int"} and all(_is_unsigned(term) for term in terms):
            sqls, kind = [huge(term, "UBIGINT") for term in terms], UINT
        elif bases <= NUMBERS and "double" in bases:
            sqls, kind = [double(term) for term in terms], DOUBLE
        elif bases <= EXACT and "decimal" in bases:
            computed = max(term.digits for term in terms)
            counts = [term.digits for term in terms if term.kind.base != "null" and term.value != 0]
            loose = 2 if len(set(counts)) > 1 else int(any(term.value == 0 for term in terms))
            sqls, kind = [decimal_sql(term, computed) for term in terms], ValueKind("decimal", digits)
        elif bases == {"text"}:
            kind = ValueKind("text", collation=collation)
        elif bases == {"date"}:
            kind = DATE
        elif bases == {"datetime"}:
            kind = ValueKind("datetime", digits)
        elif bases:
            raise refused(f"{what} of {' and '.join(sorted(bases))}", "MySQL would convert one of them")
        found = made("", kind, *terms, computed=computed)
        return sqls, replace(found, loose=max(found.loose, loose))


def written_moment(term: Term) -> Term:
    """A text beside a date or a moment, as one. Raises StatementRefused."""
    if term.kind.base != "text":
        return term
    if isinstance(term.value, str) and (parts := _MOMENT.fullmatch(term.value)):
        *numbers, fraction = parts.groups()
        try:
            if numbers[-1] is None:
                return moment_literal(date(*map(int, numbers[:3])))
            year, month, day, hour, minute, second = map(int, numbers)
            at = datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")))
            return moment_literal(at, 6 if fraction else 0)
        except ValueError:
            pass
    raise refused("a date compared with text", "only with one written out: '2026-01-31' or '2026-01-31 09:30:00'")


def written_number(term: Term, other: Term) -> Term:
    """A text that is written out beside a number, as one. MySQL compares doubles, which is the same for whole numbers
    of so many digits."""
    found = isinstance(term.value, str) and _WRITTEN_NUMBER.fullmatch(term.value)
    if not found or other.kind.base not in ("int", "uint", "decimal", "double"):
        return term
    if found.group(1) is None and other.kind.base in WHOLE:
        return Term(term.sql, INT, int(found.group()))
    return Term(f"CAST('{found.group()}' AS DOUBLE)", DOUBLE, float(found.group()))


def _is_unsigned(term: Term) -> bool:
    return term.kind.base in ("uint", "null") or (isinstance(term.value, int) and term.value >= 0)


def no_place(term: Term) -> None:
    if term.value is not None:
        raise refused("ORDER BY of a value that is written out", "in parentheses, or as a parameter, it may be a place")


def ordering(term: Term) -> str:
    """What it is ordered by: an enum by the places of its labels."""
    kind = term.kind
    if not kind.is_ordered:
        raise refused(f"ORDER BY of a {kind.name or kind.collation}")
    return f"ccpr_place({term.sql}, [{', '.join(map(text_sql, kind.labels))}])" if kind.labels else term.sql


def direction(node: exp.Ordered) -> str:
    """NULL is the smallest value of all, in MySQL."""
    return " DESC NULLS LAST" if node.args.get("desc") else " ASC NULLS FIRST"


def _variable(rules: Expressions, node: exp.Expr) -> Term:
    return rules.constant(f"@@{node.name.lower()}")


def _now(rules: Expressions, node: exp.CurrentTimestamp | exp.Anonymous) -> Term:
    """NOW(6) is a whole second, too."""
    found = rules.constant("now()")
    for digits in node.expressions if isinstance(node, exp.Anonymous) else filter(None, [node.this]):
        if digits.name not in tuple("0123456"):
            raise refused("NOW with something else than up to 6 digits")
        found = replace(found, kind=replace(found.kind, digits=int(digits.name)))
    return found


VALUE_RULES: Rules = {
    exp.Literal: rule(Expressions.literal, "is_string"),
    exp.Null: rule(lambda rules, node: Term("NULL", NULL)),
    exp.Boolean: rule(lambda rules, node: Term(str(bool(node.this)).upper(), TRUTH)),
    exp.Paren: rule(lambda rules, node: rules.term(node.this)),
    exp.SessionParameter: rule(_variable, "kind"),
    exp.CurrentSchema: rule(lambda rules, node: rules.constant("database()")),
    exp.CurrentVersion: rule(lambda rules, node: rules.constant("version()")),
    exp.CurrentUser: rule(lambda rules, node: rules.constant("user()")),
    exp.CurrentDate: rule(lambda rules, node: rules.constant("curdate()")),
    exp.CurrentTimestamp: rule(_now),
    "NOW": rule(_now),
    exp.Subquery: rule(lambda rules, node: rules.scalar(node), "this", only=True),
    exp.Exists: rule(lambda rules, node: Term(f"EXISTS ({rules.rows_of(node.this)[0]})", TRUTH), "this", only=True),
}
