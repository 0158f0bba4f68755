"""A part of a statement: DuckDB's SQL of it, and what MySQL's rules have to know of its value."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from ccpr.mirror.duckdb_rows import quoted
from ccpr.mysql.statement_text import refused
from ccpr.mysql.value_kinds import DATE, WHOLE, ValueKind

_DIGITS_OF_WORD = 9  # in which MySQL keeps decimals
DIVISION_DIGITS = 4  # more behind the point than the dividend has
MOST_DIGITS = 30
# Latin, Greek, Cyrillic and what has no case: of all others it depends on a server's version of Unicode.
_SAME_CASES = (
    r"\x00-\xB4\xB6-\xDE\xE0-\xFE\x{100}-\x{12F}\x{132}-\x{148}\x{14A}-\x{17E}\x{386}-\x{38F}\x{391}-\x{3AF}"
    r"\x{3B1}-\x{3CE}\x{400}-\x{45F}\x{900}-\x{109F}\x{1100}-\x{139F}\x{2000}-\x{2125}\x{2200}-\x{24B5}"
    r"\x{3000}-\x{A63F}\x{AC00}-\x{FAFF}\x{1F000}-\x{1FAFF}"
)
# Macros of each connection: to divide whole numbers, half away from zero or cut; whole months, which DuckDB counts
# otherwise at a month's end; a moment that MySQL has.
MACROS = (
    "CREATE TEMP MACRO ccpr_divided(n, d) AS CASE WHEN d = 0 THEN NULL ELSE "
    "sign(n) * sign(d) * ((2 * abs(n) + abs(d)) // (2 * abs(d))) END",
    "CREATE TEMP MACRO ccpr_cut(n, d) AS CASE WHEN d = 0 THEN NULL ELSE sign(n) * sign(d) * (abs(n) // abs(d)) END",
    "CREATE TEMP MACRO ccpr_units(x, power, same) AS CAST(trunc(x) AS HUGEINT) * power + "
    "CAST((x - trunc(x)) * same AS HUGEINT)",  # x * power has too many digits
    "CREATE TEMP MACRO ccpr_full_months(a, b) AS 12 * (year(b) - year(a)) + month(b) - month(a) - "
    "CAST((day(b), CAST(b AS TIME)) < (day(a), CAST(a AS TIME)) AS INTEGER)",
    "CREATE TEMP MACRO ccpr_months(a, b) AS CASE WHEN b < a THEN -ccpr_full_months(b, a) "
    "ELSE ccpr_full_months(a, b) END",
    "CREATE TEMP MACRO ccpr_finite(x) AS CASE WHEN isinf(x) OR isnan(x) "
    "THEN error('DOUBLE value is out of range') ELSE x END",
    "CREATE TEMP MACRO ccpr_round_double(x, n) AS round_even(x * 10.0::DOUBLE ** n, 0) / 10.0::DOUBLE ** n",
    "CREATE TEMP MACRO ccpr_truncate_double(x, n) AS trunc(x * 10.0::DOUBLE ** n) / 10.0::DOUBLE ** n",
    "CREATE TEMP MACRO ccpr_rounded(x, n) AS CASE WHEN abs(x) * 10.0::DOUBLE ** n >= 1e15 "
    "THEN error('a DOUBLE that is too large to be rounded') ELSE x END",
    "CREATE TEMP MACRO ccpr_moment(t) AS CASE WHEN t > TIMESTAMP '9999-12-31 23:59:59.999999' THEN NULL "
    "WHEN t < TIMESTAMP '0001-01-01 00:00:00' THEN error('a date before the year 1') ELSE t END",
    "CREATE TEMP MACRO ccpr_read(t, pattern, form) AS CASE WHEN t IS NULL THEN NULL "
    "WHEN regexp_full_match(t, pattern) THEN ccpr_moment(strptime(t, form)) "
    "ELSE error('STR_TO_DATE of a text in another form') END",
    "CREATE TEMP MACRO ccpr_first_sunday(y) AS make_date(y, 1, 1) + "
    "CAST((7 - dayofweek(make_date(y, 1, 1))) % 7 AS INTEGER)",
    "CREATE TEMP MACRO ccpr_sunday(t) AS CASE WHEN t IS NULL THEN NULL "
    "WHEN regexp_full_match(t, '\\d{4}(0[1-9]|[1-5]\\d) Sunday') "
    "THEN ccpr_first_sunday(CAST(left(t, 4) AS INTEGER)) + 7 * CAST(substring(t, 5, 2) AS INTEGER) - 7 "
    "ELSE error('STR_TO_DATE of a text in another form') END",
    "CREATE TEMP MACRO ccpr_day_of_year(y, n) AS CASE WHEN y IS NULL OR n IS NULL OR n < 1 THEN NULL "
    "WHEN y BETWEEN 1000 AND 9998 AND n < 367 THEN make_date(y, 1, 1) + CAST(n - 1 AS INTEGER) "
    "ELSE error('MAKEDATE of such numbers') END",
    "CREATE TEMP MACRO ccpr_year_week(d) AS CASE WHEN strftime(d, '%U') = '00' "
    "THEN strftime(make_date(year(d) - 1, 12, 31), '%Y%U') ELSE strftime(d, '%Y%U') END",
    "CREATE TEMP MACRO ccpr_seconds(n) AS CASE WHEN n IS NULL THEN NULL WHEN n BETWEEN 0 AND 2147483647999999 "
    "THEN CAST(n AS BIGINT) ELSE error('UNIX_TIMESTAMP or FROM_UNIXTIME before 1970 or after 2038') END",
    r"CREATE TEMP MACRO ccpr_line(t) AS CASE WHEN regexp_matches(t, '[\n\x0b\f\r\x{85}\x{2028}\x{2029}]') "
    "THEN error('REGEXP of a text of several lines') ELSE t END",
    "CREATE TEMP MACRO ccpr_place(t, labels) AS CASE WHEN t = '' AND NOT list_contains(labels, t) THEN 0 "
    "ELSE coalesce(list_position(labels, t), CAST(substring(t, 2) AS BIGINT)) END",  # '#9' has no label
    f"CREATE TEMP MACRO ccpr_cased(t) AS CASE WHEN regexp_matches(t, '[^{_SAME_CASES}]') "
    "THEN error('LOWER or UPPER of letters whose other case servers differ in') ELSE t END",
    "CREATE TEMP MACRO ccpr_short(t) AS CASE WHEN strlen(t) > 1024 "
    "THEN error('GROUP_CONCAT of more than 1024 bytes, which MySQL would cut') ELSE t END",
)


@dataclass(frozen=True, slots=True)
class Quotient:
    dividend: "Term"
    divisor: "Term"


@dataclass(frozen=True, slots=True)
class Term:
    """
    Attributes
    ----------
    value : of a literal.
    aggregate, window : whether it contains a function of a group, of a window.
    computed : the digits behind the point of a decimal that shows fewer (`kind.digits`).
    quotient : of `a / b`, whose `sql` has the digits that are shown: `exact` gives it with those that MySQL computes.
    loose : whether the digits of a decimal depend on the row, in MySQL: they do where one of several values is taken.
        1 = only those of 0 do, which matters for no quotient; 2 = others do.
    """

    sql: str
    kind: ValueKind
    value: str | int | Decimal | float | date | None = None
    aggregate: bool = False
    window: bool = False
    computed: int | None = None
    quotient: Quotient | None = None
    loose: int = 0

    @property
    def is_literal(self) -> bool:
        return self.value is not None or self.kind.base == "null"

    @property
    def digits(self) -> int:
        """Behind the point, of `sql`."""
        return self.kind.digits if self.computed is None or self.quotient else self.computed


def made(sql: str, kind: ValueKind, *parts: Term, computed: int | None = None) -> Term:
    """One that is computed of others."""
    return Term(
        sql,
        kind,
        aggregate=any(one.aggregate for one in parts),
        window=any(one.window for one in parts),
        computed=None if computed == kind.digits else computed,
        loose=max((one.loose for one in parts), default=0) if kind.base == "decimal" else 0,
    )


# ---- decimals


def quotient_of(left: Term, right: Term) -> Term:
    """`a / b` of exact numbers. MySQL computes whole words of digits, cuts the rest, and shows fewer."""
    quotient = Quotient(left, right)
    digits = left.kind.digits + DIVISION_DIGITS
    shown_ = rounded_quotient(quotient, digits)
    computed = _computed_digits(left.digits, right.digits)
    return Term(
        shown_.sql, shown_.kind, None, shown_.aggregate, shown_.window, computed, quotient, max(left.loose, right.loose)
    )


def rounded_quotient(quotient: Quotient, digits: int) -> Term:
    """With so many digits behind the point, as MySQL rounds what it has computed."""
    left, right = quotient.dividend, quotient.divisor
    computed = _computed_digits(left.digits, right.digits)
    least = min(
        _computed_digits(a, b)
        for a in {left.digits, 0 if left.loose > 1 else left.digits}
        for b in {right.digits, 0 if right.loose > 1 else right.digits}
    )
    if digits > least or digits > 18 or (digits == least and least != computed):
        raise refused(f"a quotient with {digits} digits behind the point")
    # a / b with so many digits = a * 10**digits / b, as whole numbers of the units of each
    macro = "ccpr_cut" if digits == computed else "ccpr_divided"
    dividend = f"{units(left)} * CAST({10 ** (digits + right.digits)} AS HUGEINT)"
    divisor = f"{units(right)} * CAST({10**left.digits} AS HUGEINT)"
    return made(scaled(f"{macro}({dividend}, {divisor})", digits), ValueKind("decimal", digits), left, right)


def exact(term: Term) -> Term:
    """A quotient with all digits that MySQL computes with."""
    if term.quotient is None:
        return term
    if term.loose > 1:
        raise refused("the result of / inside another expression", "how many digits MySQL computes depends on the row")
    assert term.computed is not None
    found = rounded_quotient(term.quotient, term.computed)
    return made(found.sql, term.kind, found, computed=term.computed)


def _computed_digits(a: int, b: int) -> int:
    words = [-(-one // _DIGITS_OF_WORD) * _DIGITS_OF_WORD for one in (a, b)]
    more = max(0, DIVISION_DIGITS - (words[0] - a) - (words[1] - b))
    return -(-(sum(words) + more) // _DIGITS_OF_WORD) * _DIGITS_OF_WORD


def units(term: Term) -> str:
    """How many units of its last digit it is."""
    if term.kind.base in WHOLE:
        return huge(term)
    digits = term.digits
    if digits <= _DIGITS_OF_WORD:
        return f"CAST({term.sql} * {_power(digits)} AS HUGEINT)"
    return f"ccpr_units({term.sql}, {10**digits}::HUGEINT, {_power(digits)})"


def _power(digits: int) -> str:
    return f"CAST({10**digits} AS DECIMAL({digits + 1},0))"


def scaled(number: str, digits: int) -> str:
    """So many units of the last of some digits behind the point."""
    if digits == 0:
        return f"CAST({number} AS DECIMAL(38,0))"
    return f"CAST({number} AS DECIMAL(38,0)) * CAST('0.{'0' * (digits - 1)}1' AS DECIMAL({digits},{digits}))"


def decimal_sql(term: Term, digits: int = 0) -> str:
    """With so many digits behind the point, if it has fewer. DuckDB itself would give values of several kinds a common
    one that has fewer digits, where one of them is wide."""
    if isinstance(term.value, int):
        return f"CAST({term.value} AS DECIMAL({min(38, len(str(abs(term.value))) + digits)},{digits}))"
    if term.kind.base in WHOLE:
        return f"CAST({huge(term)} AS DECIMAL({min(38, 20 + digits)},{digits}))"
    if term.digits >= digits or term.kind.base == "null":
        return term.sql
    return f"CAST({term.sql} AS DECIMAL(38,{digits}))"


# ---- as DuckDB takes it


def shown(term: Term) -> str:
    """As a column of a result."""
    if term.kind.base == "truth":
        return f"CAST({term.sql} AS BIGINT)"
    if term.computed is not None and term.quotient is None:
        return f"round({term.sql}, {term.kind.digits})"
    return term.sql


def huge(term: Term, width: str = "HUGEINT") -> str:
    if isinstance(term.value, int):
        return f"CAST({term.value} AS {width})"
    return f"CAST({term.sql} AS {width})"


def double(term: Term) -> str:
    return f"CAST({term.sql} AS DOUBLE)"


def plain(term: Term) -> str:
    """Of a number that is compared: a literal without a cast, so that filters see it."""
    if isinstance(term.value, int):
        return str(term.value)
    return huge(term) if term.kind.base == "truth" else term.sql


def moment_literal(value: date, digits: int = 0) -> Term:
    """A date, or a date with a time."""
    if isinstance(value, datetime):
        return Term(f"TIMESTAMP '{value.isoformat(' ')}'", ValueKind("datetime", digits), value)
    return Term(f"DATE '{value.isoformat()}'", DATE, value)


def text_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def column_sql(source: str, name: str, kind: ValueKind) -> str:
    """A stored column as expressions take it."""
    sql = f"{quoted(source)}.{quoted(name)}"
    if kind.name == "timestamp":
        return f"timezone('UTC', {sql})"
    return f"CAST({sql} AS TINYINT)" if kind.name == "bool" else sql


# ---- what is looked at


def whole_number(term: Term, what: str) -> int:
    if not isinstance(term.value, int):
        raise refused(f"{what} with a place that is not written out")
    return term.value


def not_nested(term: Term) -> None:
    """What a function of a group is about."""
    if term.aggregate or term.window:
        raise refused("a function of a group or window in another one")
