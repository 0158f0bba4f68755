"""What a database has besides tables: views and sequences. Values, and the statements that make them again.

What is in them is an upstream's text, so each value says what a script may hold of it and what not: see `runnable`.
Source: docs/upstream.md, "Views, sequences, functions, grants".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, TypeAlias

from matrixone.schema import text_of
from matrixone.sql.lexer import scan
from matrixone.sql.quoting import quote_name, quote_names, quote_qualified, quote_string

_INTEGER_TYPE = re.compile(r"(?:tiny|small|big|)int(?: unsigned)?")
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
        name = quote_qualified((database, self.name)) if database else quote_name(self.name)
        return (f"CREATE VIEW {name}{columns} AS {self.query}",)

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
        """CREATE SEQUENCE in the current database, as SETVAL takes the name of no other, and what sets its value.
        (SETVAL with `true` as third argument does not count as a call; live.)"""
        create = (
            f"CREATE SEQUENCE {quote_name(self.name)} AS {self.type} INCREMENT BY {self.increment} "
            f"MINVALUE {self.minimum} MAXVALUE {self.maximum} START WITH {self.start} "
            f"{'CYCLE' if self.cycle else 'NO CYCLE'}"
        )
        if not self.value_can_be_set or (self.last == self.start and not self.called):
            return (create,)
        called = "" if self.called else ", false"
        return create, f"SELECT setval({quote_string(self.name)}, {self.last}{called})"

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
class Unreadable:
    """What could not be read, and why. `kind` is that of a definition; `name` is empty for all of that kind."""

    kind: str
    name: str
    reason: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(*(text_of(value[key]) for key in ("kind", "name", "reason")))


@dataclass(frozen=True, slots=True)
class Definitions:
    """What a database has besides tables, at one snapshot, each in order of its name."""

    database: str
    views: tuple[View, ...] = ()
    sequences: tuple[SequenceState, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def all(self) -> "tuple[Written, ...]":
        """Everything that has a statement."""
        return (*self.views, *self.sequences)

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self) if one.name != "database")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written. What a later release has
        written besides is not looked at."""
        return cls(
            text_of(value["database"]),
            tuple(map(View.from_json, value["views"])),
            tuple(map(SequenceState.from_json, value["sequences"])),
            tuple(map(Unreadable.from_json, value["unreadable"])),
        )


Written: TypeAlias = View | SequenceState


def runnable(statement: str) -> bool:
    """Whether a text is one statement to every client and server, so that it may stand in a script: no semicolon, no
    command of the client's (DELIMITER, a backslash outside of strings), nothing without an end."""
    for executable in (True, False):  # servers differ in which comments they read
        for token in scan(statement, executable_comments=executable):
            if token.kind == "broken" or token.is_sign(";", "\\") or token.is_word("DELIMITER"):
                return False
            if token.kind == "comment" and any(sign in token.value for sign in ";\\"):
                return False
    return "\0" not in statement


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


def _number_of(value: object) -> int:
    """A value of a sequence: up to 64 bits, signed or unsigned."""
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise TypeError(f"{value!r:.40} is not a value of a sequence")
    return value
