"""The changes of a load as values. All of them follow from a seed: step *n* is the same on every machine, so that the
number of steps that a database shows says what rows it must have.

A step is one transaction: some orders are placed, with their lines, some are changed, some are deleted, and one row
counts the steps.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

from ccpr.matrixone.sql.quoting import quote_name, quote_string

ORDERS, LINES, PROGRESS = "orders", "order_lines", "progress"
TABLES = {
    ORDERS: (
        "id BIGINT PRIMARY KEY, customer INT NOT NULL, total DECIMAL(12,2) NOT NULL, status VARCHAR(10) NOT NULL, "
        "ratio DOUBLE, placed DATETIME NOT NULL, note VARCHAR(80)"
    ),
    LINES: "order_id BIGINT NOT NULL, line INT NOT NULL, amount INT NOT NULL, PRIMARY KEY (order_id, line)",
    PROGRESS: "id INT PRIMARY KEY, steps BIGINT NOT NULL",
}
KEYS = {ORDERS: 1, LINES: 2, PROGRESS: 1}  # how many of the first columns are the key
Row: TypeAlias = tuple[object, ...]
_FIRST = datetime(2026, 1, 1)
_STATES = ("new", "paid", "packed", "sent", "returned")
_NOTES = (
    None,
    "",
    "it's urgent",
    'a "gift"',
    "größer\\kleiner",
    "明日まで",
    "50\t%_",
    "x" * 80,
)
_MOST_LINES = 3
_SHARE_PLACED, _SHARE_CHANGED = 0.4, 0.4  # of the changes; the others delete


@dataclass(frozen=True, slots=True)
class Load:
    """What decides everything: two loads of the same values make the same changes.

    Attributes
    ----------
    rows : how many orders there are at most.
    batch : how many orders a step inserts, changes or deletes.
    """

    seed: int
    rows: int
    batch: int


@dataclass(frozen=True, slots=True)
class Step:
    """The changes of one transaction; no order is in two of them."""

    number: int
    placed: tuple[Row, ...]
    lines: tuple[Row, ...]
    changed: tuple[int, ...]
    status: str
    added: Decimal
    deleted: tuple[int, ...]

    @property
    def changes(self) -> int:
        return len(self.placed) + len(self.changed) + len(self.deleted)


@dataclass(slots=True)
class Model:
    """The rows that a database has after `steps` steps."""

    load: Load
    steps: int = 0
    changes: int = 0
    orders: dict[int, Row] = field(default_factory=dict)
    lines: dict[int, list[Row]] = field(default_factory=dict)
    _ids: list[int] = field(default_factory=list)  # of the orders, so that one can be chosen by its place
    _places: dict[int, int] = field(default_factory=dict)
    _last: int = 0

    def go_to(self, steps: int) -> "Model":
        """Steps are only taken forward."""
        while self.steps < steps:
            self.apply(self.next_step())
        return self

    def next_step(self) -> Step:
        """What follows from the seed and the rows that are there. It is not applied."""
        chance = random.Random(f"{self.load.seed} {self.steps + 1}").random  # the only method that never changes
        placed: list[Row] = []
        lines: list[Row] = []
        changed: list[int] = []
        deleted: list[int] = []
        touched: set[int] = set()
        for _ in range(self.load.batch):
            kind, chosen = chance(), self._chosen(chance())
            grows = len(self._ids) + len(placed) - len(deleted) < self.load.rows
            if grows and (chosen is None or kind < _SHARE_PLACED):
                order = self._last + len(placed) + 1
                placed.append(_order(order, chance))
                lines.extend((order, line, int(chance() * 100)) for line in range(1, 2 + int(chance() * _MOST_LINES)))
            elif chosen is not None and chosen not in touched:
                touched.add(chosen)
                (changed if kind < _SHARE_PLACED + _SHARE_CHANGED else deleted).append(chosen)
        status = _STATES[int(chance() * len(_STATES))]
        added = _cents(int(chance() * 2000) - 1000)
        return Step(self.steps + 1, tuple(placed), tuple(lines), tuple(changed), status, added, tuple(deleted))

    def _chosen(self, number: float) -> int | None:
        return self._ids[int(number * len(self._ids))] if self._ids else None

    def apply(self, step: Step) -> None:
        """What the statements of the next step do."""
        for row in step.placed:
            order = self._last = int(str(row[0]))
            self._places[order] = len(self._ids)
            self._ids.append(order)
            self.orders[order] = row
        for row in step.lines:
            self.lines.setdefault(int(str(row[0])), []).append(row)
        for order in step.changed:
            key, customer, total, _, *rest = self.orders[order]
            self.orders[order] = (key, customer, Decimal(str(total)) + step.added, step.status, *rest)
        for order in step.deleted:
            place, last = self._places.pop(order), self._ids.pop()
            if last != order:
                self._ids[place], self._places[last] = last, place
            del self.orders[order], self.lines[order]
        self.steps, self.changes = step.number, self.changes + step.changes

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of one of `TABLES`."""
        if table == ORDERS:
            return iter(self.orders.values())
        if table == LINES:
            return (row for rows in self.lines.values() for row in rows)
        return iter([(1, self.steps)])


def _order(order: int, chance: Callable[[], float]) -> Row:
    customer, total = 1 + int(chance() * 1000), _cents(int(chance() * 1_000_000))
    ratio = None if chance() < 0.1 else chance()
    note = _NOTES[int(chance() * len(_NOTES))]
    return order, customer, total, _STATES[0], ratio, _FIRST + timedelta(seconds=order), note


def _cents(number: int) -> Decimal:
    """With two digits, as the column has them."""
    return Decimal(number).scaleb(-2)


def statements(step: Step, database: str) -> list[str]:
    """Those of a step's transaction. The last one counts the step, and changes a row only if it is the next."""
    orders, lines, progress = (f"{quote_name(database)}.{quote_name(table)}" for table in (ORDERS, LINES, PROGRESS))
    found = []
    if step.placed:
        found.append(f"INSERT INTO {orders} VALUES {_values(step.placed)}")
        found.append(f"INSERT INTO {lines} VALUES {_values(step.lines)}")
    if step.changed:
        found.append(
            f"UPDATE {orders} SET total = total + {step.added}, status = {quote_string(step.status)} "
            f"WHERE id IN ({', '.join(map(str, step.changed))})"
        )
    if step.deleted:
        keys = ", ".join(map(str, step.deleted))
        found.append(f"DELETE FROM {lines} WHERE order_id IN ({keys})")
        found.append(f"DELETE FROM {orders} WHERE id IN ({keys})")
    found.append(f"UPDATE {progress} SET steps = {step.number} WHERE id = 1 AND steps = {step.number - 1}")
    return found


def _values(rows: Iterable[Row]) -> str:
    return ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return quote_string(value)
    return f"'{value}'" if isinstance(value, datetime) else repr(value) if isinstance(value, float) else str(value)
