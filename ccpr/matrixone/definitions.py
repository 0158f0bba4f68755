"""What a database has besides tables: views, sequences, functions, grants, row rules. Values, and the statements that
make them again.

What is in them is an upstream's text, so each value says what a script may hold of it and what not: see `runnable`.
Source: docs/upstream.md, "Views, sequences, functions, grants".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, TypeAlias

from ccpr.matrixone.schema import text_of
from ccpr.matrixone.sql.lexer import scan
from ccpr.matrixone.sql.quoting import quote_name, quote_names, quote_qualified, quote_string

_INTEGER_TYPE = re.compile(r"(?:tiny|small|big|)int(?: unsigned)?")
_WORDS = re.compile(r"[a-z][a-z0-9_]*(?: [a-z]+)*(?:\([0-9]+(?:, ?[0-9]+)?\))?")  # types, privileges, languages
_BUILT_IN_ROLES = ("public", "moadmin", "accountadmin")
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")  # what nextval and setval find: they take no quotes


@dataclass(frozen=True, slots=True)
class View:
    """
    Attributes
    ----------
    name : as stored, in lower case.
    query : the SELECT as it was typed.
    columns : the names that CREATE VIEW gives them; empty if it gives none.
    default_database : where the query's names without a database are.
    """

    name: str
    query: str
    columns: tuple[str, ...] = ()
    default_database: str = ""

    kind = "view"

    def statements(self, database: str = "") -> tuple[str, ...]:
        """CREATE VIEW, in this database, whichever is current."""
        columns = f" ({quote_names(self.columns, ', ')})" if self.columns else ""
        return (f"CREATE VIEW {_quoted(database, self.name)}{columns} AS {self.query}",)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        columns = tuple(map(text_of, value["columns"]))
        return cls(text_of(value["name"]), text_of(value["query"]), columns, text_of(value["default_database"]))


@dataclass(frozen=True, slots=True)
class SequenceState:
    """A sequence with its value.

    Attributes
    ----------
    type : of its values, such as `bigint` or `int unsigned`.
    last : the value that NEXTVAL gave last, or, unless `called`, the one that it gives next.
    """

    name: str
    type: str
    last: int
    minimum: int
    maximum: int
    start: int
    increment: int
    cycle: bool
    called: bool

    kind = "sequence"

    @property
    def value_can_be_set(self) -> bool:
        """Whether SETVAL finds it: it takes names without quotes only, and NEXTVAL likewise."""
        return _PLAIN_NAME.fullmatch(self.name) is not None

    def statements(self, database: str = "") -> tuple[str, ...]:
        """CREATE SEQUENCE in the current database, as SETVAL takes the name of no other, and what gives it its value.

        On a sequence whose NEXTVAL was never called, SETVAL sets what NEXTVAL gives next, whatever its third argument
        is (live). So NEXTVAL is called once where it was called at the source.
        """
        create = (
            f"CREATE SEQUENCE {quote_name(self.name)} AS {self.type} INCREMENT BY {self.increment} "
            f"MINVALUE {self.minimum} MAXVALUE {self.maximum} START WITH {self.start} "
            f"{'CYCLE' if self.cycle else 'NO CYCLE'}"
        )
        if not self.value_can_be_set or (self.last == self.start and not self.called):
            return (create,)
        name = quote_string(self.name)
        value = f"SELECT setval({name}, {self.last}, false)"
        return (create, value, f"SELECT nextval({name})") if self.called else (create, value)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        last, minimum, maximum, start, increment = (
            _number_of(value[key]) for key in ("last", "minimum", "maximum", "start", "increment")
        )
        if not _INTEGER_TYPE.fullmatch(text_of(value["type"])):
            raise ValueError(f"{value['type']!r:.40} is not a type of sequences")
        cycle, called = value["cycle"], value["called"]
        if not isinstance(cycle, bool) or not isinstance(called, bool):
            raise TypeError("a flag is neither true nor false")
        name, kind = text_of(value["name"]), text_of(value["type"])
        return cls(name, kind, last, minimum, maximum, start, increment, cycle, called)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a user has made.

    Attributes
    ----------
    arguments : name and type of each; the upstream keeps no lengths of types.
    handler : of a Python function, what in the body is called; else empty.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    returns: str
    language: str
    body: str
    handler: str = ""

    kind = "function"

    def statements(self, database: str = "") -> tuple[str, ...]:
        arguments = ", ".join(f"{quote_name(argument)} {kind}" for argument, kind in self.arguments)
        name = _quoted(database, self.name)
        create = f"CREATE FUNCTION {name} ({arguments}) RETURNS {self.returns} LANGUAGE {self.language}"
        handler = f" HANDLER {quote_string(self.handler)}" if self.handler else ""
        return (f"{create} AS {quote_string(self.body)}{handler}",)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        arguments = tuple((text_of(name), _words_of(kind)) for name, kind in value["arguments"])
        name, body, handler = (text_of(value[key]) for key in ("name", "body", "handler"))
        return cls(name, arguments, _words_of(value["returns"]), _words_of(value["language"]), body, handler)


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege of a role on the database, or on what is in it.

    Attributes
    ----------
    privilege : as GRANT takes it, such as `select` or `create view`.
    on : `database`, `table` or `view`.
    object : the table or view; empty for the database, or all tables or views of it.
    """

    role: str
    privilege: str
    on: str
    object: str
    with_option: bool

    kind = "grant"

    @property
    def name(self) -> str:
        return f"{self.privilege} on {self.on} {self.object or '*'} to {self.role}"

    def statements(self, database: str = "") -> tuple[str, ...]:
        """CREATE ROLE, unless every account has the role, and GRANT, which needs the database's name."""
        place = quote_name(database or "*") if self.on == "database" else self._object(database)
        option = " WITH GRANT OPTION" if self.with_option else ""
        grant = f"GRANT {self.privilege} ON {self.on.upper()} {place} TO {quote_name(self.role)}{option}"
        return _with_role(self.role, grant)

    def _object(self, database: str) -> str:
        inside = quote_name(self.object) if self.object else "*"
        return f"{quote_name(database)}.{inside}" if database else inside

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        if value["on"] not in ("database", "table", "view") or not isinstance(value["with_option"], bool):
            raise ValueError("it is not a grant")
        role, on, found = (text_of(value[key]) for key in ("role", "on", "object"))
        return cls(role, _words_of(value["privilege"]), on, found, value["with_option"])


@dataclass(frozen=True, slots=True)
class RowRule:
    """Which rows of a table a role sees: a SELECT that stands for the table. Nothing here applies it.

    Attributes
    ----------
    object : the table or view.
    rule : the SELECT as it was typed.
    """

    role: str
    object: str
    rule: str

    kind = "row rule"

    @property
    def name(self) -> str:
        return f"on {self.object} of {self.role}"

    def statements(self, database: str = "") -> tuple[str, ...]:
        """CREATE ROLE, unless every account has the role, and ALTER ROLE, which needs the database's name."""
        table = _quoted(database, self.object)
        rule = f"ALTER ROLE {quote_name(self.role)} ADD RULE {quote_string(self.rule)} ON TABLE {table}"
        return _with_role(self.role, rule)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(*(text_of(value[key]) for key in ("role", "object", "rule")))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What could not be read, and why. `kind` is that of a definition; `name` is empty for all of that kind."""

    kind: str
    name: str
    reason: str

    def shown(self, place: str = "") -> str:
        """What it is, for people; `place` comes before the name, or, where all of the kind are meant, after it."""
        if self.name:
            return f"{self.kind} {place}{'.' if place else ''}{self.name}"
        return f"{self.kind}s{' of ' if place else ''}{place}"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(*(text_of(value[key]) for key in ("kind", "name", "reason")))


@dataclass(frozen=True, slots=True)
class Definitions:
    """What a database has besides tables, at one snapshot, each in order of its name."""

    database: str
    views: tuple[View, ...] = ()
    sequences: tuple[SequenceState, ...] = ()
    functions: tuple[Function, ...] = ()
    grants: tuple[Grant, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    row_rules: tuple[RowRule, ...] = ()

    def all(self) -> "tuple[Written, ...]":
        """Everything that has a statement, in an order that can be run."""
        return (*self.functions, *self.sequences, *views_in_order(self.views), *self.grants, *self.row_rules)

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self) if one.name != "database")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written. What an earlier release
        has not written is empty, and what a later one has written besides is not looked at."""
        return cls(
            text_of(value["database"]),
            tuple(map(View.from_json, value.get("views", ()))),
            tuple(map(SequenceState.from_json, value.get("sequences", ()))),
            tuple(map(Function.from_json, value.get("functions", ()))),
            tuple(map(Grant.from_json, value.get("grants", ()))),
            tuple(map(Unreadable.from_json, value.get("unreadable", ()))),
            tuple(map(RowRule.from_json, value.get("row_rules", ()))),
        )


def definitions_json(found: Sequence[Definitions]) -> dict[str, Any]:
    """Of one database, or of several, which an earlier release takes for nothing."""
    if len(found) == 1:
        return found[0].to_json()
    return {"database": "", "databases": [one.to_json() for one in found]}


def definitions_of(value: Mapping[str, Any]) -> tuple[Definitions, ...]:
    """Raises ValueError, KeyError or TypeError for what `definitions_json` would not have written."""
    several = value.get("databases")
    return tuple(map(Definitions.from_json, [value] if several is None else several))


Written: TypeAlias = View | SequenceState | Function | Grant | RowRule


def runnable(statement: str) -> bool:
    """Whether a text is one statement to every client and to MatrixOne, so that it may stand in a script: no semicolon,
    no command of the client's (DELIMITER, a backslash outside of strings), nothing without an end; and MatrixOne's
    scanner sees strings, names and comments just where clients see them, whatever its sql_mode."""
    for executable in (True, False):  # servers differ in which comments they read
        inside: list[tuple[int, int]] = []
        for token in scan(statement, executable_comments=executable):
            if token.kind == "broken" or token.is_sign(";", "\\") or token.is_word("DELIMITER"):
                return False
            if token.kind == "comment" and any(sign in token.value for sign in ";\\"):
                return False
            if token.kind in ("name", "text", "comment"):
                inside.append((token.start, token.end))
        if any(insides(statement, mode) != inside for mode in MODES):
            return False
    return "\0" not in statement


def _with_role(role: str, statement: str) -> tuple[str, ...]:
    """A statement behind the one that makes its role, unless every account has the role."""
    return (statement,) if role in _BUILT_IN_ROLES else (f"CREATE ROLE IF NOT EXISTS {quote_name(role)}", statement)


def _quoted(database: str, name: str) -> str:
    """A name with its database, if that is given."""
    return quote_qualified((database, name) if database else (name,))


def views_in_order(views: Iterable[View]) -> list[View]:
    """Each after those that its query names, as far as that can be; else by name."""
    waiting = {view.name: view for view in sorted(views, key=lambda view: view.name)}
    needs = {name: (_names_in(view.query) & waiting.keys()) - {name} for name, view in waiting.items()}
    found: list[View] = []
    done: set[str] = set()
    while waiting:
        ready = [name for name in waiting if needs[name] <= done] or list(waiting)[:1]
        found += [waiting.pop(name) for name in ready]
        done.update(ready)
    return found


def _names_in(query: str) -> set[str]:
    return {token.value.lower() for token in scan(query) if token.kind in ("name", "word")}


def _words_of(value: object) -> str:
    """A type, a privilege or a language: words that stand in a statement as they are."""
    if not _WORDS.fullmatch(found := text_of(value)):
        raise ValueError(f"{found!r:.40} is not a few words")
    return found


def _number_of(value: object) -> int:
    """A value of a sequence: up to 64 bits, signed or unsigned."""
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise TypeError(f"{value!r:.40} is not a value of a sequence")
    return value


# Where MatrixOne's own scanner sees strings, names and comments in one statement: it is not MySQL's. The rules are
# those of `pkg/sql/parsers/dialect/mysql/scanner.go` of 4.2.0, which goes by bytes (docs/upstream.md, "What its scanner
# reads otherwise"). Where it eats a quote as part of something else (``@a'``, ``0x'``, ``_utf8mb4"``), reads a string
# of a kind of its own (``$$``), or has an error, nothing is modelled: such a text is not understood here. What a
# backslash and a double quote mean depends on the session's sql_mode, so each is asked in all `MODES`.
Mode: TypeAlias = tuple[bool, bool]  # whether a backslash escapes in single quotes, and in double quotes
MODES: tuple[Mode, ...] = ((True, True), (False, False), (True, False))  # default, NO_BACKSLASH_ESCAPES, ANSI_QUOTES
_SINGLE = {True: r"'(?:[^'\\]|\\.|'')*+'", False: r"'(?:[^']|'')*+'"}
_DOUBLE = {True: r'"(?:[^"\\]|\\.|"")*+"', False: r'"(?:[^"]|"")*+"'}
_PATTERN = r"""(?P<blank>[ \n\r\t]+)
    |(?P<inside>/\*(?!!).*?\*/|//[^\n]*|\#[^\n]*|--(?=[ \n\r\t]|\Z)[^\n]*
        |{single}|{double}|`(?:[^`]|``)++`)
    |(?P<word>[xX](?='(?:[0-9A-Fa-f]{{2}})*+')|[bB](?='[01]*+')|_utf8mb4(?=[ \n\r\t]*+')
        |(?![xXbB]'|_utf8mb4)[A-Za-z_][A-Za-z0-9_$]*+)
    |(?P<number>(?!0[xX](?![0-9A-Fa-f])|0[bB](?![01]))[0-9]++(?!\$))
    |(?P<variable>@@?[A-Za-z_][A-Za-z0-9_.]*+(?![$@"'`]))
    |(?P<sign>:[:=]|/(?![*/])|[-=,()+*%^~{{}}&|?.<>!])
    |(?P<not_understood>.)"""
_PATTERNS: dict[Mode, re.Pattern[str]] = {
    mode: re.compile(_PATTERN.format(single=_SINGLE[mode[0]], double=_DOUBLE[mode[1]]), re.VERBOSE | re.DOTALL)
    for mode in MODES
}


def insides(statement: str, mode: Mode) -> list[tuple[int, int]] | None:
    """Start and end of each string, quoted name and comment, in characters; None for what is not understood, among it
    a semicolon, a byte outside of these that is not ASCII, and whatever has no end."""
    found: list[tuple[int, int]] = []
    for piece in _PATTERNS[mode].finditer(statement):
        if piece.lastgroup == "not_understood":
            return None
        if piece.lastgroup == "inside":
            found.append(piece.span())
    return found
