"""Functions of dates and moments."""

import re
from calendar import monthrange
from datetime import date, datetime, timedelta

from sqlglot import exp

from ccpr.mysql.expression_rules import Expressions, Rules, rule
from ccpr.mysql.statement_text import TEXT_MARK, refused
from ccpr.mysql.terms import Term, made, moment_literal, text_sql
from ccpr.mysql.value_kinds import DATE, INT, TEXT, WHOLE, ValueKind

_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_CLOCK = ("HOUR", "MINUTE", "SECOND")
_UNITS = ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER", *_CLOCK)
# What `%…` of DATE_FORMAT is in strftime's patterns.
_FORMATS = {
    **dict.fromkeys("YymdHSjfIp", ""),
    **{"a": "%a", "b": "%b", "c": "%-m", "e": "%-d", "h": "%I", "i": "%M", "k": "%-H", "l": "%-I", "M": "%B"},
    **{"r": "%I:%M:%S %p", "s": "%S", "T": "%H:%M:%S", "W": "%A", "w": "%w"},
}


def _part(rules: Expressions, node: exp.Func) -> Term:
    return _part_of(rules.moment(node.this, node.key.upper()), {"dayofmonth": "day"}.get(node.key, node.key).upper())


def _extracted(rules: Expressions, node: exp.Extract) -> Term:
    name = node.this.name.upper()
    if name not in _PARTS:
        raise refused(f"EXTRACT of {name:.30}")
    return _part_of(rules.moment(node.expression, "EXTRACT"), name)


def _part_of(found: Term, name: str) -> Term:
    if name in _CLOCK and found.kind.base == "date":
        return made(f"CASE WHEN {found.sql} IS NULL THEN NULL ELSE CAST(0 AS BIGINT) END", INT, found)
    moment = found.sql if found.kind.base == "date" else f"CAST({found.sql} AS TIMESTAMP)"
    return made(f"CAST(datepart('{name.lower()}', {moment}) AS BIGINT)", INT, found)


def _number_of_day(rules: Expressions, node: exp.Func | exp.Anonymous) -> Term:
    """DAYOFWEEK (Sunday is 1), WEEKDAY (Monday is 0), DAYOFYEAR."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else node.key
    found = rules.moment(_only_argument(node), name.upper())
    part, more = {"dayofweek": ("dow", " + 1"), "weekday": ("isodow", " - 1")}.get(name, ("doy", ""))
    return made(f"CAST(datepart('{part}', CAST({found.sql} AS DATE)){more} AS BIGINT)", INT, found)


def _only_argument(node: exp.Func | exp.Anonymous) -> exp.Expr:
    if not isinstance(node, exp.Anonymous):
        return node.this
    if len(node.expressions) != 1:
        raise refused(f"{node.name.upper():.30} of something else than one value")
    return node.expressions[0]


def _microseconds(rules: Expressions, node: exp.Anonymous) -> Term:
    found = rules.moment(_only_argument(node), "MICROSECOND")
    return made(f"CAST(datepart('microsecond', CAST({found.sql} AS TIMESTAMP)) % 1000000 AS BIGINT)", INT, found)


def as_date(rules: Expressions, node: exp.Expr) -> Term:
    found = rules.moment(node.this, "DATE")
    if isinstance(found.value, date):
        value = found.value
        return moment_literal(value.date() if isinstance(value, datetime) else value)
    return made(f"CAST({found.sql} AS DATE)", DATE, found)


def as_moment(rules: Expressions, node: exp.Expr, digits: int) -> Term:
    """CAST AS DATETIME."""
    found = rules.moment(node.this, "CAST AS DATETIME")
    if found.kind.digits > digits:
        raise refused("CAST AS DATETIME of a moment with fractions of a second", "MySQL may round or cut them")
    return made(f"CAST({found.sql} AS TIMESTAMP)", ValueKind("datetime", digits), found)


def _last_day(rules: Expressions, node: exp.LastDay) -> Term:
    found = rules.moment(node.this, "LAST_DAY")
    return made(f"last_day(CAST({found.sql} AS DATE))", DATE, found)


def _format(rules: Expressions, node: exp.TimeToStr) -> Term:
    found, pattern = rules.moment(node.this, "DATE_FORMAT"), node.args.get("format")
    if isinstance(pattern, exp.Literal) and pattern.this == "%B":  # as sqlglot reads MONTHNAME
        return _strftime(found, "%B")
    parts = list[str]()
    written = rules.text_value(pattern, "a format of DATE_FORMAT")
    for escaped, plain in re.findall(r"%(.?)|([^%]+)", written, re.DOTALL):
        if plain:
            parts.append(plain)
        elif escaped == "%":
            parts.append("%%")
        elif escaped in _FORMATS and escaped:
            parts.append(_FORMATS[escaped] or f"%{escaped}")
        else:
            raise refused(f"%{escaped} in a format of DATE_FORMAT")
    return _strftime(found, "".join(parts))


def _day_name(rules: Expressions, node: exp.Dayname) -> Term:
    return _strftime(rules.moment(node.this, "DAYNAME"), "%A")


def _strftime(found: Term, pattern: str) -> Term:
    return made(f"strftime(CAST({found.sql} AS TIMESTAMP), {text_sql(pattern)})", TEXT, found)


def _days_between(rules: Expressions, node: exp.DateDiff) -> Term:
    if node.args.get("unit") is not None:
        raise refused("this TIMESTAMPDIFF")
    a, b = rules.moment(node.this, "DATEDIFF"), rules.moment(node.expression, "DATEDIFF")
    return made(f"datediff('day', CAST({b.sql} AS DATE), CAST({a.sql} AS DATE))", INT, a, b)


def _units_between(rules: Expressions, node: exp.TimestampDiff) -> Term:
    unit = node.args["unit"].name.upper()
    if unit not in _UNITS:
        raise refused(f"TIMESTAMPDIFF in {unit:.30}")
    a, b = rules.moment(node.this, "TIMESTAMPDIFF"), rules.moment(node.expression, "TIMESTAMPDIFF")
    sql = f"datesub('{unit.lower()}', CAST({b.sql} AS TIMESTAMP), CAST({a.sql} AS TIMESTAMP))"
    return made(f"CAST({sql} AS BIGINT)", INT, a, b)


def _moved_by(rules: Expressions, node: exp.DateAdd | exp.DateSub) -> Term:
    interval = exp.Interval(this=node.expression, unit=node.args.get("unit"))
    return moved(rules, node.this, interval, "-" if isinstance(node, exp.DateSub) else "+")


def moved(rules: Expressions, node: exp.Expr, interval: exp.Interval, sign: str) -> Term:
    """A date and an INTERVAL."""
    found, unit = rules.moment(node, "a date and INTERVAL"), str(interval.args.get("unit") or "").upper()
    if unit not in _UNITS:
        raise refused(f"INTERVAL of {unit or 'no unit':.30}")
    count = _interval_count(rules, interval.this)
    if found.kind.base == "null":
        return found
    if isinstance(found.value, date) and isinstance(count.value, int):
        value = _moved_literal(found.value, unit, -count.value if sign == "-" else count.value)
        if value is not None:
            return moment_literal(value, found.kind.digits)
    sql = f"ccpr_moment(CAST({found.sql} AS TIMESTAMP) {sign} to_{unit.lower()}s({count.sql}))"
    if found.kind.base == "date" and unit not in _CLOCK:
        return made(f"CAST({sql} AS DATE)", DATE, found, count)
    return made(sql, ValueKind("datetime", found.kind.digits), found, count)


def _moved_literal(value: date, unit: str, count: int) -> date | None:
    """None if it is none that Python has."""
    try:
        if unit in ("DAY", "WEEK"):
            return value + timedelta(days=count * (7 if unit == "WEEK" else 1))
        if unit in _CLOCK:
            at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            return at + timedelta(seconds=count * {"HOUR": 3600, "MINUTE": 60, "SECOND": 1}[unit])
        months = value.year * 12 + value.month - 1 + count * {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
        year, month = divmod(months, 12)
        return value.replace(year=year, month=month + 1, day=min(value.day, monthrange(year, month + 1)[1]))
    except (ValueError, OverflowError):
        return None


def _interval_count(rules: Expressions, node: exp.Expr) -> Term:
    if isinstance(node, exp.Literal) and node.is_string:  # which sqlglot makes of a number, too
        text = rules.written_out(node.this) if node.this.startswith(TEXT_MARK) else node.this
        if not re.fullmatch(r"-?\d{1,6}", text):
            raise refused("INTERVAL of a text that is no whole number")
        return Term(text, INT, int(text))
    found = rules.value(node)
    if found.kind.base not in WHOLE - {"uint"} or abs(int(str(found.value or 0))) > 999_999:
        raise refused("INTERVAL of something else than a whole number")
    if isinstance(found.value, int):
        return Term(str(found.value), INT, found.value)
    # DuckDB's counts have 32 bits; with more than 999,999 no unit but SECOND and MINUTE stays in MySQL's range.
    sql = f"CASE WHEN abs({found.sql}) > 999999 THEN error('an INTERVAL above 999999') ELSE {found.sql} END"
    return made(f"CAST({sql} AS INTEGER)", INT, found)


DATE_RULES: Rules = {
    **dict.fromkeys(
        (exp.Year, exp.Month, exp.Day, exp.DayOfMonth, exp.Quarter, exp.Hour, exp.Minute, exp.Second), rule(_part)
    ),
    exp.Extract: rule(_extracted),
    **dict.fromkeys((exp.DayOfWeek, exp.DayOfYear, "WEEKDAY"), rule(_number_of_day)),
    "MICROSECOND": rule(_microseconds),
    exp.TsOrDsToDate: rule(as_date),
    exp.Date: rule(as_date, "this", only=True),
    exp.LastDay: rule(_last_day, "this", only=True),
    exp.TimeToStr: rule(_format, "format"),
    exp.Dayname: rule(_day_name, "this", only=True),
    exp.DateDiff: rule(_days_between, "date_part_boundary", "unit"),
    exp.TimestampDiff: rule(_units_between, "unit"),
    **dict.fromkeys((exp.DateAdd, exp.DateSub), rule(_moved_by, "unit")),
}
