"""The SQL that every emulated upstream understands, as values.

`parse` turns one statement into a value or raises 1064. It knows the statements of a replication client and what MySQL
clients send when they connect; nothing else. The `__++__internal_*` commands are not SQL and never come here
(docs/upstream.md 5.1).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Literal_, Tokens

Test: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "like", "not like", "is null", "is not null"]


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """`publisher` and `publication` are empty where the statement has no FROM, `account` where it names none. All names
    in lower case."""

    name: str
    if_not_exists: bool
    level: str
    database: str
    table: str
    publisher: str
    publication: str
    account: str = ""


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    name: str
    if_exists: bool
    publisher: str
    publication: str


@dataclass(frozen=True, slots=True)
class Condition:
    column: str
    test: Test
    values: tuple[Literal_, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """From one catalog table. `columns` are (column, shown as); empty = all; `count` = count(*), as which the first of
    `columns` is shown; `checksum` are the columns of a checksum of the rows that comes with their number, and is shown
    as the second. `order` holds (column, descending)."""

    database: str
    table: str
    columns: tuple[tuple[str, str], ...] = ()
    count: bool = False
    mo_ts: int | None = None
    snapshot: str | None = None
    conditions: tuple[Condition, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    checksum: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """One expression without a table: a literal, a variable (`@@name`, scope removed) or a call. `shown_as` is its
    column name."""

    kind: Literal["literal", "variable", "call"]
    name: str
    arguments: tuple[Literal_, ...]
    shown_as: str


@dataclass(frozen=True, slots=True)
class SelectValues:
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Show:
    """`what` in lower case with single blanks, e.g. `publications`, `publication coverage`; `name`
    its object, `like` its pattern."""

    what: str
    name: str = ""
    like: str | None = None


@dataclass(frozen=True, slots=True)
class SetRole:
    role: str


@dataclass(frozen=True, slots=True)
class Use:
    database: str


@dataclass(frozen=True, slots=True)
class Plain:
    """A statement that only needs an OK: SET, BEGIN, COMMIT, ROLLBACK. `what` is its first word in lower case (`begin`
    for START TRANSACTION)."""

    what: str


Statement: TypeAlias = CreateSnapshot | DropSnapshot | Select | SelectValues | Show | SetRole | Use | Plain

_TESTS: Mapping[str, Test] = {"=": "=", "!=": "!=", "<>": "!=", "<=": "<=", ">=": ">=", "<": "<", ">": ">"}
MAX_DEPTH = 20  # of parentheses in a condition
LAST_TIME = 2**63 - 1  # in nanoseconds
SHOWS = (
    "publication coverage",
    "create publication",
    "publications",
    "snapshots",
    "variables",
    "session variables",
    "global variables",
    "warnings",
    "databases",
)


def parse(text: str, server: str = "emulator") -> Statement:
    """Raises `StatementError` 1064 for anything unknown; `server` is what its text calls the server."""
    tokens = Tokens(text, server)
    statement = _statement(tokens)
    tokens.accept(";")
    if not tokens.at_end():
        raise tokens.unknown()
    return statement


def _statement(tokens: Tokens) -> Statement:
    if tokens.accept("create", "snapshot"):
        return _create_snapshot(tokens)
    if tokens.accept("drop", "snapshot"):
        if_exists = tokens.accept("if", "exists")
        return DropSnapshot(tokens.name().lower(), if_exists, *_from_publication(tokens))
    if tokens.accept("select"):
        return _select(tokens)
    if tokens.accept("show"):
        return _show(tokens)
    if tokens.accept("set", "role"):
        return SetRole(tokens.name().lower())
    if tokens.accept("set"):
        if tokens.at("emulator"):  # a statement of tests
            raise tokens.unknown()
        tokens.skip_rest()
        return Plain("set")
    if tokens.accept("use"):
        return Use(tokens.name())
    if tokens.accept("begin") or tokens.accept("start", "transaction"):
        tokens.skip_rest()
        return Plain("begin")
    for word in ("commit", "rollback"):
        if tokens.accept(word):
            return Plain(word)
    raise tokens.unknown()


def _create_snapshot(tokens: Tokens) -> CreateSnapshot:
    if_not_exists = tokens.accept("if", "not", "exists")
    name = tokens.name().lower()
    tokens.expect("for")
    level, database, table, account = "account", "", "", ""
    if tokens.accept("cluster"):
        level = "cluster"
    elif tokens.accept("database"):
        level, database = "database", tokens.name().lower()
    elif tokens.accept("table"):
        level, database, table = "table", tokens.name().lower(), tokens.name().lower()
    else:
        tokens.expect("account")
        if tokens.at_name() and not tokens.at("from"):
            account = tokens.name().lower()
    publisher, publication = _from_publication(tokens)
    if publisher and (level == "cluster" or account):  # these have no FROM: docs/upstream.md 4.1
        raise tokens.unknown()
    return CreateSnapshot(name, if_not_exists, level, database, table, publisher, publication, account)


def _from_publication(tokens: Tokens) -> tuple[str, str]:
    if not tokens.accept("from"):
        return "", ""
    publisher = tokens.name().lower()
    tokens.expect("publication")
    return publisher, tokens.name().lower()


def _show(tokens: Tokens) -> Show:
    for what in SHOWS:
        if tokens.accept(*what.split()):
            name = tokens.name().lower() if what in ("publication coverage", "create publication") else ""
            like = tokens.text() if tokens.accept("like") else None
            return Show(what, name, like)
    raise tokens.unknown()


def _select(tokens: Tokens) -> Select | SelectValues:
    start = tokens.position
    if tokens.accept("*"):
        return _from(tokens, (), False)
    if tokens.accept("count", "(", "*", ")") or tokens.accept("count", "(", "1", ")"):
        shown = tokens.source(start)
        columns = (("count(*)", _alias(tokens) or shown),)
        if not tokens.accept(","):
            return _from(tokens, columns, True)
        start = tokens.position
        checksum = _checksum(tokens)
        shown = tokens.source(start)
        columns = (*columns, ("checksum", _alias(tokens) or shown))
        return replace(_from(tokens, columns, True), checksum=checksum)
    if tokens.at_name():
        items = [_item(tokens)]
        while tokens.accept(","):
            items.append(_item(tokens))
            tokens.limit(items)
        if tokens.at("from") and all(item is not None for item in items):
            return _from(tokens, tuple(item for item in items if item is not None), False)
    tokens.position = start
    values = [_value(tokens)]
    while tokens.accept(","):
        values.append(_value(tokens))
        tokens.limit(values)
    tokens.accept("from", "dual")
    if tokens.accept("limit"):
        tokens.number()
    return SelectValues(tuple(values))


def _checksum(tokens: Tokens) -> tuple[str, ...]:
    """The columns of a checksum (docs/upstream.md, "Checksums of the catalog")."""
    tokens.expect("bit_xor", "(", "cast", "(", "unhex", "(", "md5", "(", "concat_ws", "(")
    if tokens.text() != ",":
        raise tokens.unknown()
    columns: list[str] = []
    while tokens.accept(","):
        tokens.expect("coalesce", "(", "length", "(")
        columns.append(tokens.name().lower())
        tokens.expect(")", ",", "-", "1", ")", ",")
        if tokens.name().lower() != columns[-1]:
            raise tokens.unknown()
        tokens.limit(columns)
    tokens.expect(")", ")", ")", "as", "binary", "(", "16", ")", ")", ")")
    return tuple(columns)


def _item(tokens: Tokens) -> tuple[str, str] | None:
    """A column with its alias; None if it is something else (then the list is one of values)."""
    if not tokens.at_name():
        return None
    name = tokens.name()
    if tokens.accept("."):
        name = tokens.name()
    return name.lower(), _alias(tokens) or name


def _alias(tokens: Tokens) -> str:
    if tokens.accept("as"):
        return tokens.text() if tokens.kind == "text" else tokens.name()
    return ""


def _value(tokens: Tokens) -> Value:
    begin = tokens.position
    if tokens.kind in ("text", "number") or tokens.at("-"):
        value = tokens.literal()
        return Value("literal", "", (value,), _alias(tokens) or tokens.source(begin))
    if tokens.kind == "variable":
        name = tokens.next()
        if not name.startswith("@@"):
            raise tokens.unknown()
        shown = _alias(tokens) or name
        return Value("variable", re.sub(r"^@@((session|global|local)\.)?", "", name.lower()), (), shown)
    if tokens.accept("null"):
        return Value("literal", "", (None,), _alias(tokens) or "NULL")
    name = tokens.name().lower()
    tokens.expect("(")
    if name == "cast":
        cast = tokens.text()
        tokens.expect("as")
        kind = tokens.name().lower()
        tokens.expect(")")
        shown = tokens.source(begin)
        return Value("call", name, (cast, kind), _alias(tokens) or shown)
    arguments: list[Literal_] = []
    while not tokens.accept(")"):
        if arguments:
            tokens.expect(",")
        arguments.append(tokens.literal())
    shown = tokens.source(begin)
    return Value("call", name, tuple(arguments), _alias(tokens) or shown)


def _from(tokens: Tokens, columns: tuple[tuple[str, str], ...], count: bool) -> Select:
    tokens.expect("from")
    database, table = "", tokens.name().lower()
    if tokens.accept("."):
        database, table = table, tokens.name().lower()
    mo_ts = snapshot = None
    if tokens.accept("{"):
        if tokens.accept("mo_ts"):
            tokens.expect("=")
            mo_ts = tokens.number()
            if not 0 <= mo_ts <= LAST_TIME:
                raise StatementError(20301, f"invalid input: invalid timestamp value {mo_ts}")
        else:
            tokens.expect("snapshot", "=")
            snapshot = tokens.text()
        tokens.expect("}")
    if tokens.accept("as") or (tokens.at_name() and not tokens.at("where", "order", "limit")):
        tokens.name()
    where: tuple[Condition, ...] = conditions(tokens) if tokens.accept("where") else ()
    order: list[tuple[str, bool]] = []
    if tokens.accept("order", "by"):
        while True:
            item = _item(tokens)
            if item is None:
                raise tokens.unknown()
            descending = tokens.accept("desc")
            tokens.accept("asc")
            order.append((item[0], descending))
            tokens.limit(order)
            if not tokens.accept(","):
                break
    limit, offset = _limit(tokens)
    return Select(database, table, columns, count, mo_ts, snapshot, where, tuple(order), limit, offset)


def _limit(tokens: Tokens) -> tuple[int | None, int]:
    """``LIMIT n [OFFSET m]`` or ``LIMIT m, n``."""
    if not tokens.accept("limit"):
        return None, 0
    first = tokens.number()
    if tokens.accept(","):
        limit, offset = tokens.number(), first
    else:
        limit, offset = first, tokens.number() if tokens.accept("offset") else 0
    if limit < 0 or offset < 0:
        raise tokens.unknown()
    return limit, offset


def conditions(tokens: Tokens, depth: int = 0) -> tuple[Condition, ...]:
    found: list[Condition] = []
    while True:
        if depth < MAX_DEPTH and tokens.accept("("):
            found.extend(conditions(tokens, depth + 1))
            tokens.expect(")")
        else:
            found.extend(_condition(tokens))
        tokens.limit(found)
        if not tokens.accept("and"):
            return tuple(found)


def _condition(tokens: Tokens) -> tuple[Condition, ...]:
    """One; BETWEEN is two."""
    item = _item(tokens)
    if item is None:
        raise tokens.unknown()
    column = item[0]
    if tokens.accept("is"):
        negated = tokens.accept("not")
        tokens.expect("null")
        return (Condition(column, "is not null" if negated else "is null"),)
    negated = tokens.accept("not")
    if tokens.accept("in"):
        tokens.expect("(")
        values = [tokens.literal()]
        while tokens.accept(","):
            values.append(tokens.literal())
        tokens.expect(")")
        return (Condition(column, "not in" if negated else "in", tuple(values)),)
    if tokens.accept("like"):
        return (Condition(column, "not like" if negated else "like", (tokens.text(),)),)
    if negated:
        raise tokens.unknown()
    if tokens.accept("between"):
        low = tokens.literal()
        tokens.expect("and")
        return Condition(column, ">=", (low,)), Condition(column, "<=", (tokens.literal(),))
    for sign, test in _TESTS.items():
        if tokens.accept(sign):
            return (Condition(column, test, (tokens.literal(),)),)
    raise tokens.unknown()
