"""Names, and lists of them, as statements have them, and the table that is written to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry


@dataclass(frozen=True, slots=True)
class WrittenTable:
    database: str
    table: str
    entry: TableEntry

    @property
    def names(self) -> tuple[str, str]:
        return self.database, self.table

    @property
    def definition(self) -> Definition:
        return self.entry.definition

    def column(self, name: str) -> Column:
        lower = name.lower()
        for column in self.definition.user_columns:
            if column.name.lower() == lower:
                return column
        raise StatementError(20301, f"invalid input: column {name} does not exist")


T = TypeVar("T")


def table_name(tokens: Tokens, database: str, *, needs_database: bool = True) -> tuple[str, str]:
    """(database, table), in lower case as the upstream has them."""
    name = tokens.name().lower()
    if tokens.accept("."):
        return name, tokens.name().lower()
    if not database and needs_database:
        raise StatementError(1046, "No database selected", "3D000")
    return database.lower(), name


def names_in_brackets(tokens: Tokens) -> list[str]:
    """Names up to the closing bracket."""
    names = list_of(tokens, tokens.name)
    tokens.expect(")")
    return names


def key_columns(tokens: Tokens) -> list[str]:
    """The columns of a key in brackets; lengths and orders are read and have no effect."""

    def one() -> str:
        name = tokens.name()
        if tokens.accept("("):
            tokens.number()
            tokens.expect(")")
        if not tokens.accept("asc"):
            tokens.accept("desc")
        return name

    tokens.expect("(")
    names = list_of(tokens, one)
    tokens.expect(")")
    return names


def skip_key_options(tokens: Tokens) -> None:
    while True:
        if tokens.accept("using") or tokens.accept("with", "parser"):
            tokens.name()
        elif tokens.accept("comment"):
            tokens.text()
        elif not (tokens.accept("visible") or tokens.accept("invisible")):
            return


def list_of(tokens: Tokens, item: Callable[[], T]) -> list[T]:
    items = [item()]
    while tokens.accept(","):
        items.append(item())
    return items
