"""Whether rows are those that a load must have left."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

from pymysql.connections import Connection

from ccpr.matrixone.sql.quoting import quote_name
from ccpr_emulator.errors import LoadLost
from ccpr_emulator.workload.record import Record
from ccpr_emulator.workload.steps import KEYS, LINES, ORDERS, PROGRESS, Model, Row

Read: TypeAlias = Callable[[str], Iterable[Row]]  # the rows of one of the tables
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TableDifference:
    """Rows that are there and should not be, the other way round, and those with a value that differs. `keys`: some of
    them."""

    table: str
    rows: int
    missing: int
    extra: int
    different: int
    keys: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Attributes
    ----------
    steps, changes : what the database has, by its own count.
    acknowledged : steps that the upstream has acknowledged, by the record.
    """

    steps: int
    changes: int
    acknowledged: int
    tables: tuple[TableDifference, ...]

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)

    @property
    def complete(self) -> bool:
        return self.steps >= self.acknowledged


def compare(record: Record, read: Read) -> Comparison:
    """Raises LoadLost if the database does not count its steps, or has more of them than were sent."""
    count = list(read(PROGRESS))
    steps = int(str(count[0][1])) if len(count) == 1 else -1
    if not 0 <= steps <= record.reserved:
        raise LoadLost(
            f"it counts {steps} steps; {record.reserved} were sent at most",
            subject=f"database {record.database}",
        )
    model = Model(record.load).go_to(steps)
    tables = tuple(_difference(table, model.rows(table), read(table)) for table in (ORDERS, LINES))
    return Comparison(steps, model.changes, record.acknowledged, tables)


def _difference(table: str, wanted: Iterable[Row], found: Iterable[Row]) -> TableDifference:
    width = KEYS[table]
    expected = {row[:width]: tuple(map(_value, row)) for row in wanted}
    rows = extra = different = 0
    keys: list[str] = []
    seen: set[Row] = set()
    for row in found:
        rows, key = rows + 1, row[:width]
        if key in expected and key not in seen and expected[key] == tuple(map(_value, row)):
            seen.add(key)
            continue
        if key in expected and key not in seen:
            different += 1
        else:
            extra += 1
        seen.add(key)
        if len(keys) < _SHOWN:
            keys.append(str(key))
    missing = [key for key in expected if key not in seen]
    keys.extend(map(str, missing[:_SHOWN]))
    return TableDifference(table, rows, len(missing), extra, different, tuple(keys[:_SHOWN]))


def _value(value: object) -> object:
    """Equal only if it is the same kind and the same digits."""
    if isinstance(value, Decimal | float):
        return type(value), str(value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def reader(connection: Connection, database: str) -> Read:
    """Of a database at one moment, as far as its transactions show one."""

    def read(table: str) -> Iterable[Row]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {quote_name(database)}.{quote_name(table)}")
            return list(cursor.fetchall())

    return read
