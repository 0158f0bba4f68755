"""Functions of dates and moments."""

import re
from calendar import monthrange
from datetime import date, datetime, timedelta

from sqlglot import exp

from ccpr.mysql.expression_rules import Expressions, Rules, rule
from ccpr.mysql.statement_text import TEXT_MARK, refused
from ccpr.mysql.terms import Term, made, moment_literal, scaled, text_sql, whole_number
from ccpr.mysql.value_kinds import DATE, INT, TEXT, WHOLE, ValueKind

_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_CLOCK = ("HOUR", "MINUTE", "SECOND")
_UNITS = ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER", *_CLOCK)
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
# What `%…` of DATE_FORMAT is in strftime's patterns.
_FORMATS = {
    **dict.fromkeys("YymdHSjfIp", ""),
    **{"a": "%a", "b": "%b", "c": "%-m", "e": "%-d", "h": "%I", "i": "%M", "k": "%-H", "l": "%-I", "M": "%B"},
    **{"r": "%I:%M:%S %p", "s": "%S", "T": "%H:%M:%S", "W": "%A", "w": "%w", "U": "%U", "v": "%V", "x": "%G"},
}
# What STR_TO_DATE reads: a pattern of the text, and strptime's. MySQL takes other texts, too.
_READ = {
    "Y": (r"\d{4}", "%Y"),
    "m": (r"\d\d?", "%m"),
    "d": (r"\d\d?", "%d"),
    "H": (r"\d\d?", "%H"),
    "i": (r"\d\d?", "%M"),
}
_READ |= {"s": (r"\d\d?", "%S"), "S": (r"\d\d?", "%S"), "f": (r"\d{6}", "%f"), "T": (r"\d\d:\d\d:\d\d", "%H:%M:%S")}
_SUNDAY = "%X%V %W"  # as Metabase writes the first day of a week


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


def _read(rules: Expressions, node: exp.StrToDate) -> Term:
    """STR_TO_DATE of a text in the very form of the format."""
    found = rules.text(node.this, "STR_TO_DATE")
    written = rules.text_value(node.args.get("format"), "a format of STR_TO_DATE")
    if written == _SUNDAY:
        return made(f"ccpr_sunday({found.sql})", DATE, found)
    pattern, form = "", ""
    if "%" in re.sub("%.[^%\\d]", "", f"{written}."):  # it would depend on where a number ends
        raise refused("a format of STR_TO_DATE with nothing between two numbers")
    for escaped, plain in re.findall(r"%(.?)|([^%]+)", written, re.DOTALL):
        if not plain and escaped not in _READ:
            raise refused(f"%{escaped} in a format of STR_TO_DATE")
        more = (re.escape(plain), plain) if plain else _READ[escaped]
        pattern, form = pattern + more[0], form + more[1]
    if not {"%Y", "%m", "%d"} <= set(re.findall("%.", form)):
        raise refused("STR_TO_DATE of something else than a whole date")
    is_date = not re.search("%[HMSf]", form)
    sql = f"ccpr_read({found.sql}, {text_sql(pattern)}, {text_sql(form)})"
    kind = DATE if is_date else ValueKind("datetime", 6 if "%f" in form else 0)
    return made(f"CAST({sql} AS DATE)" if is_date else sql, kind, found)


def _of_year(rules: Expressions, node: exp.Anonymous) -> Term:
    """MAKEDATE."""
    if len(node.expressions) != 2:
        raise refused("MAKEDATE of something else than two numbers")
    year, day = (_whole(rules, one, "MAKEDATE") for one in node.expressions)
    return made(f"ccpr_day_of_year({year.sql}, {day.sql})", DATE, year, day)


def _whole(rules: Expressions, node: exp.Expr, what: str) -> Term:
    found = rules.value(node)
    if found.kind.base not in WHOLE - {"truth"}:
        raise refused(f"{what} of a {found.kind.base}")
    return found


def _week(rules: Expressions, node: exp.Week | exp.WeekOfYear | exp.Anonymous) -> Term:
    """WEEK, WEEKOFYEAR, YEARWEEK."""
    is_year = isinstance(node, exp.Anonymous)
    this, *modes = node.expressions if is_year else (node.this, *filter(None, [node.args.get("mode")]))
    mode = 3 if isinstance(node, exp.WeekOfYear) else whole_number(rules.value(modes[0]), "WEEK") if modes else 0
    sql = _WEEKS.get((is_year, mode))
    if sql is None or len(modes) > 1:
        raise refused(f"WEEK or YEARWEEK in mode {mode}")
    found = rules.moment(this, "WEEK")
    return made(f"CAST({sql.format(f'CAST({found.sql} AS DATE)')} AS BIGINT)", INT, found)


# By whether the year stands before, and the mode.
_WEEKS = {(False, 0): "strftime({0}, '%U')", (False, 3): "week({0})", (True, 0): "ccpr_year_week({0})"}
_WEEKS[False, 1] = "CASE WHEN isoyear({0}) < year({0}) THEN 0 WHEN isoyear({0}) > year({0}) THEN 53 ELSE week({0}) END"
_WEEKS |= dict.fromkeys(((True, 1), (True, 3)), "yearweek({0})")


def _seconds(rules: Expressions, node: exp.Anonymous) -> Term:
    """UNIX_TIMESTAMP; the time zone is UTC."""
    found = rules.moment(_only_argument(node), "UNIX_TIMESTAMP")
    micros, digits = f"ccpr_seconds(epoch_us(CAST({found.sql} AS TIMESTAMP)))", found.kind.digits
    if not digits:
        return made(f"CAST({micros} // 1000000 AS BIGINT)", INT, found)
    return made(scaled(f"({micros} // {10 ** (6 - digits)})", digits), ValueKind("decimal", digits), found)


def _of_seconds(rules: Expressions, node: exp.UnixToTime) -> Term:
    """FROM_UNIXTIME."""
    found = _whole(rules, node.this, "FROM_UNIXTIME")
    sql = f"make_timestamp(ccpr_seconds(CAST({found.sql} AS HUGEINT) * 1000000))"
    return made(sql, ValueKind("datetime"), found)


def _as_moment(rules: Expressions, node: exp.Timestamp) -> Term:
    """TIMESTAMP(…)."""
    found = rules.moment(node.this, "TIMESTAMP")
    return made(f"CAST({found.sql} AS TIMESTAMP)", ValueKind("datetime", found.kind.digits), found)


def _moved_by_days(rules: Expressions, node: exp.Anonymous) -> Term:
    """ADDDATE, SUBDATE: of days, or of an INTERVAL."""
    if len(node.expressions) != 2:
        raise refused(f"{node.name.upper()} of something else than two values")
    this, more = node.expressions
    interval = more if isinstance(more, exp.Interval) else exp.Interval(this=more, unit=exp.var("DAY"))
    return moved(rules, this, interval, "-" if node.name.upper() == "SUBDATE" else "+")


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
    sides = f"CAST({b.sql} AS TIMESTAMP), CAST({a.sql} AS TIMESTAMP)"
    months = _MONTHS.get(unit)
    sql = f"ccpr_cut(ccpr_months({sides}), {months})" if months else f"datesub('{unit.lower()}', {sides})"
    return made(f"CAST({sql} AS BIGINT)", INT, a, b)


def _moved_by(rules: Expressions, node: exp.DateAdd | exp.DateSub | exp.TimestampAdd) -> Term:
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
        months = value.year * 12 + value.month - 1 + count * _MONTHS[unit]
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
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.TimestampAdd), rule(_moved_by, "unit")),
    **dict.fromkeys(("ADDDATE", "SUBDATE"), rule(_moved_by_days)),
    exp.StrToDate: rule(_read, "format"),
    "MAKEDATE": rule(_of_year),
    exp.Week: rule(_week, "mode"),
    exp.WeekOfYear: rule(_week),
    "YEARWEEK": rule(_week),
    "UNIX_TIMESTAMP": rule(_seconds),
    exp.UnixToTime: rule(_of_seconds, "this", only=True),
    exp.Timestamp: rule(_as_moment, "this", only=True),
}
