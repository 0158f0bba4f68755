"""A table that a statement writes to."""

from dataclasses import dataclass

from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table that is written to."""

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
