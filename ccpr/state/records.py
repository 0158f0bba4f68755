"""What records of all kinds share: they are rows of one subscription, and each row is a value."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.database import UNREADABLE, batches, fetch, reading, repeatable, transaction, unreadable
from ccpr.state.tables import UtcTime

V = TypeVar("V")
_ROWS = 10_000  # of one INSERT


class Records:
    """Rows of one subscription in tables of the catalog database. Threads may share it."""

    def __init__(self, engine: sa.Engine, task_id: str) -> None:
        self.engine, self.task_id = engine, task_id

    def _mine(self, table: sa.Table, **cells: object) -> sa.ColumnElement[bool]:
        """Whether a row is of this subscription, and has these cells."""
        return sa.and_(table.c.task_id == self.task_id, *(table.c[name] == cell for name, cell in cells.items()))

    @repeatable
    def _rows(self, query: sa.Select, **parameters: object) -> list[sa.Row]:
        """All rows of a query, in which `task` is this subscription. Raises StateUnreadable."""
        with reading(self.engine) as connection:
            return fetch(connection, query, task=self.task_id, **parameters)

    def _first(self, form: "RowForm[V]", query: sa.Select, **parameters: object) -> V | None:
        """The first row of a query as a value; None if it has none. Raises StateUnreadable."""
        found = self._rows(query, **parameters)
        return form.value(found[0]) if found else None

    def _insert(self, connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, object]]) -> None:
        """Add rows of this subscription, in the caller's transaction."""
        for batch in batches([{"task_id": self.task_id, **row} for row in rows], _ROWS):
            connection.execute(table.insert(), batch)

    @repeatable
    def _scalar(self, query: sa.Select, **parameters: object) -> Any:
        """The one cell of a query; None if it has no row."""
        with reading(self.engine) as connection:
            return connection.scalar(query, {"task": self.task_id, **parameters})

    @repeatable
    def _write(self, *statements: sa.Delete | sa.Insert | sa.Update) -> int:
        """Statements that may be repeated, in one transaction. How many rows the last one touched."""
        with transaction(self.engine) as connection:
            return [connection.execute(statement).rowcount for statement in statements][-1]


@repeatable
def tasks_in(engine: sa.Engine, table: sa.Table) -> set[str]:
    """Task ids of the subscriptions that have a row in a table."""
    with reading(engine) as connection:
        return set(connection.scalars(sa.select(table.c.task_id).distinct()))


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of a value that is more than a column of the same name. `columns`: of which it is made. `read`: from
    their cells. Raises one of `UNREADABLE` for what was not written so. `write`: to the cells of the first of them; the
    others are only read."""

    columns: tuple[str, ...]
    read: Callable[..., Any]
    write: Callable[[Any], tuple[object, ...]]


def time_of(cell: object) -> datetime:
    """`cell` if it is a time; raises TypeError."""
    if not isinstance(cell, datetime):
        raise TypeError(f"{cell!r:.40} is not a time")
    return cell


def converted(column: str, read: Callable[[Any], Any], write: Callable[[Any], object]) -> StoredField:
    """Of one column."""
    return StoredField((column,), read, lambda value: (write(value),))


def texts_field(column: str) -> StoredField:
    """Texts by name, as a JSON object."""
    return converted(column, _texts, lambda texts: json.dumps(dict(texts), ensure_ascii=False))


def _texts(cell: str) -> dict[str, str]:
    texts = json.loads(cell)
    if not isinstance(texts, dict):
        raise TypeError(f"{cell:.40} is not a JSON object")
    return {text_of(name): text_of(text) for name, text in texts.items()}


FAILURE = converted(
    "failure",
    lambda text: None if text is None else Failure.from_text(text),
    lambda failure: None if failure is None else failure.to_text(),
)


class RowForm(Generic[V]):
    """How values of a dataclass are rows of a table: a column for each field, of its name if nothing else is said.
    `message`: of StateUnreadable, where a row is not what this program would have written. `stored`: by field, the name
    of its column, or more. `subject`: of StateUnreadable, from the row."""

    def __init__(
        self,
        table: sa.Table,
        of: type[V],
        message: str,
        stored: Mapping[str, str | StoredField],
        subject: Callable[[Mapping[Any, Any]], str] = lambda row: f"task {row['task_id']}",
    ) -> None:
        self._of, self._message, self._subject = of, message, subject
        self._fields: dict[str, StoredField] = {}
        for field in fields(of):  # type: ignore[arg-type]
            how = stored.get(field.name, field.name)
            self._fields[field.name] = _plain(table.c[how]) if isinstance(how, str) else how

    def values(self, rows: Iterable[sa.Row]) -> list[V]:
        """Raises StateUnreadable."""
        return [self.value(row) for row in rows]

    def value(self, row: sa.Row) -> V:
        """Raises StateUnreadable."""
        cells = row._mapping
        try:
            return self._of(*[how.read(*[cells[name] for name in how.columns]) for how in self._fields.values()])
        except UNREADABLE as error:
            raise unreadable(self._message, self._subject(cells), error) from error

    def cells(self, value: V) -> dict[str, Any]:
        """By column, for an INSERT."""
        return {
            name: cell
            for field, how in self._fields.items()
            for name, cell in zip(how.columns, how.write(getattr(value, field)), strict=False)
        }


def _plain(column: sa.Column[Any]) -> StoredField:
    check: Callable[[Any], Any]
    if isinstance(column.type, sa.Integer):
        check = integer_of
    elif isinstance(column.type, UtcTime):
        check = time_of
    else:
        check = text_of
    read = (lambda cell: None if cell is None else check(cell)) if column.nullable else check
    return StoredField((column.name,), read, lambda value: (value,))
