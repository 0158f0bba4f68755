"""A statement's text before it is parsed: its strings and parameters are taken out, so that no parser but ours reads
what is in them; `FROM t {SNAPSHOT = 'x'}` becomes a mark at the table's name; and what MySQL calls each column of the
result, which is its text, is kept.

The parser sees `'§3'` in the place of a string: the number of it in `StatementText.texts`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Final, TypeAlias

from ccpr.matrixone.errors import Terminal
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.prepared import Parameter, Unsigned
from ccpr.matrixone.server.tokens import is_utf8
from ccpr.matrixone.sql.errors import SqlUnclosed
from ccpr.matrixone.sql.lexer import Token, complete_tokens


class StatementRefused(Terminal):
    """A statement has something for which MySQL and what answers here differ, or that is not done here."""

    code = "STATEMENT_REFUSED"
    about = "a statement of a MySQL client"
    default_remedy = "Write it in another way (docs: Connect a tool), or use `ccpr query`, which takes DuckDB's SQL."


TEXT_MARK = "§"
MOST_TOKENS = 20_000
_NOT_GIVEN: Final = object()
_MOST_EXPONENT = 100  # of a parameter
MOST_DEPTH = 60  # of parentheses: what parses and translates goes as deep
_MARK = re.compile(r"(.*)\{(\d+)\}", re.DOTALL)
_BEFORE_TEXT = re.compile(r"_\w+|[xbn]", re.IGNORECASE)  # they give the string that follows another meaning
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


AskedPoint: TypeAlias = int | datetime | str  # of `{…}` behind a table's name: a time, or the name of a held point


@dataclass(frozen=True, slots=True)
class StatementText:
    """
    Attributes
    ----------
    sql : what is parsed.
    texts, points : what its marks mean.
    names : what MySQL calls the columns of the result, one an expression of the first SELECT; of `*` it is the sign.
    """

    sql: str
    texts: list[str] = field(default_factory=list)
    points: list[AskedPoint] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def tokens_of(text: str) -> list[Token]:
    """Raises StatementError 1064 for what is no SQL, or too much of it."""
    try:
        found = complete_tokens(text)
    except SqlUnclosed as error:
        raise StatementError(1064, "SQL syntax: a string, name or comment has no end", "42000") from error
    while found and found[-1].is_sign(";"):
        found.pop()
    if any(token.is_sign(";") for token in found):
        raise StatementError(1064, "SQL syntax: one statement at a time", "42000")
    depth = most = 0
    for token in found:
        depth += token.is_sign("(") - token.is_sign(")")
        most = max(most, depth)
    if len(found) > MOST_TOKENS or most > MOST_DEPTH:
        raise StatementRefused(
            f"it has {len(found)} words, {most} parentheses in one another; {MOST_TOKENS} and {MOST_DEPTH} are taken",
            subject="a long statement",
        )
    return found


def parameters_in(text: str) -> int:
    """How many `?` it has."""
    return sum(token.is_sign("?") for token in tokens_of(text))


def understood(
    text: str, parameters: Sequence[Parameter] = (), variables: Mapping[str, Parameter] = MappingProxyType({})
) -> StatementText:
    """Raises StatementError 1064, StatementRefused."""
    tokens, result = tokens_of(text), StatementText("")
    parts, place, given = list[str](), 0, iter(parameters)
    while place < len(tokens):
        token, before = tokens[place], tokens[place - 1] if place else None
        if before is not None and before.end < token.start:
            parts.append(" ")
        if token.kind == "text":
            if before is not None and before.kind == "word" and _BEFORE_TEXT.fullmatch(before.value):
                raise refused(f"a string after {before.value:.20}")
            parts.append(_mark(result, token.value))
        elif token.kind == "variable" and not token.value.startswith("@@"):
            parts.append(_written(result, variables.get(token.value.lower())))
        elif token.is_sign("?"):
            value = next(given, _NOT_GIVEN)
            if value is _NOT_GIVEN:
                raise StatementError(1064, "SQL syntax: a ? that is no parameter of a prepared statement", "42000")
            parts.append(_written(result, value))
        elif token.is_sign("{"):
            place = _point(tokens, place, result)
            name = before.value if before is not None else ""
            if before is None or before.kind not in ("word", "name"):
                raise refused("{…} that follows no table")
            parts[-1 if parts[-1] != " " else -2] = f"`{name.replace('`', '``')}{{{len(result.points) - 1}}}`"
        elif token.kind == "sign" and token.value in "!}\\:~^":
            raise refused(f"the sign {token.value}")
        else:
            parts.append(text[token.start : token.end])
        place += 1
    sql = "".join(parts)
    if not is_utf8(sql):
        raise StatementError(1300, "the statement is not UTF-8", "HY000")
    return StatementText(sql, result.texts, result.points, _names(text, tokens))


def split_mark(name: str) -> tuple[str, int | None]:
    """A table's name as it was written, and the number of its `{…}`."""
    found = _MARK.fullmatch(name)
    return (found.group(1), int(found.group(2))) if found else (name, None)


def refused(what: str, why: str = "it is not answered here") -> StatementRefused:
    return StatementRefused(why, subject=what)


def _mark(result: StatementText, value: str) -> str:
    if not is_utf8(value):
        raise refused("a string that is not UTF-8")
    result.texts.append(value)
    return f"'{TEXT_MARK}{len(result.texts) - 1}'"


def _written(result: StatementText, value: object) -> str:
    """A parameter as a literal of its type: there are Unsigned ones."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return _mark(result, value)
    if isinstance(value, bytes):
        raise refused("a parameter of bytes", "MySQL would compare and cut it by bytes")
    if isinstance(value, Unsigned):
        return f"CAST({value} AS UNSIGNED)"
    if isinstance(value, float):
        if value != value or abs(value) == float("inf"):
            raise refused("a parameter that is no number")
        return f"({value:.17e})"
    if isinstance(value, date):  # a datetime is one
        is_moment = isinstance(value, datetime)
        return f"({'TIMESTAMP' if is_moment else 'DATE'} {_mark(result, str(value))})"
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _MOST_EXPONENT:
            raise refused("a parameter of so many digits")
        return f"({value:f})"
    return f"({value})"


def _point(tokens: Sequence[Token], place: int, result: StatementText) -> int:
    """What stands in `{…}`. Returns the place of its end."""
    end = next((n for n in range(place, len(tokens)) if tokens[n].is_sign("}")), None)
    inner = tokens[place + 1 : end]
    words = tuple(token.value.lower() for token in inner if token.kind != "text")
    value = inner[-1].value if inner else ""
    if end is None or words not in (("snapshot", "="), ("as", "of", "timestamp"), ("mo_ts", "=", value.lower())):
        raise refused("{…}", "it reads {SNAPSHOT = 'name'}, {MO_TS = nanoseconds} or {AS OF TIMESTAMP 'time'}")
    if words[0] == "mo_ts":
        if not value.isdecimal() or len(value) > 19:
            raise refused("{MO_TS = …}", "it takes nanoseconds since 1970")
        result.points.append(int(value))
    elif words[0] == "snapshot":
        result.points.append(value)
    else:
        result.points.append(moment_of(value))
    return end


def moment_of(text: str) -> datetime:
    """A time in UTC. Raises StatementRefused."""
    try:
        if _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise refused("a time of a point", "it is written 'YYYY-MM-DD hh:mm:ss', in UTC")


def _names(text: str, tokens: Sequence[Token]) -> list[str]:
    depth, start, names = 0, None, list[str]()
    for place, token in enumerate(tokens):
        depth += token.is_sign("(") - token.is_sign(")")
        if start is None:
            if depth == 0 and token.is_word("SELECT"):
                start = place + 1
            continue
        if depth > 0 or (depth == 0 and token.is_sign(")")):
            continue
        is_end = token.kind == "word" and token.value.upper() in _ENDS
        if depth < 0 or is_end or token.is_sign(","):
            names.append(_name(text, tokens[start:place]))
            start = place + 1
            if depth < 0 or is_end:
                return names
    return names if start is None else [*names, _name(text, tokens[start:])]


_ENDS = frozenset(("FROM", "WHERE", "LIMIT", "ORDER", "GROUP", "HAVING", "UNION"))


def _name(text: str, item: Sequence[Token]) -> str:
    while item and item[0].kind == "word" and item[0].value.upper() in ("DISTINCT", "ALL", "SQL_NO_CACHE"):
        item = item[1:]
    if not item:
        return ""
    names, dots = item[::2], item[1::2]
    if len(item) % 2 and all(one.kind in ("word", "name") for one in names) and all(one.value == "." for one in dots):
        return item[-1].value  # a column, by its own name
    if len(item) == 1 and item[0].kind == "text":
        return item[0].value
    return text[item[0].start : item[-1].end]
