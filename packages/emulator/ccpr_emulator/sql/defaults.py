"""What a row gets that its statement does not say: defaults, AUTO_INCREMENT numbers, generated columns."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.dialect import parse
from ccpr_emulator.sql.names import WrittenTable
from ccpr_emulator.sql.queries import Reader
from ccpr_emulator.sql.text import array_of, coerced, plain_cells

if TYPE_CHECKING:
    from sqlglot import exp

_NOW_WORDS = ("now", "current_timestamp", "localtime", "localtimestamp", "sysdate")


@dataclass(eq=False)
class Defaults:
    """Of the tables that one session writes to."""

    storage: Storage
    reader: Reader
    _expressions: dict[str, "exp.Expr"] = field(default_factory=dict)

    def completed(self, target: WrittenTable, given: dict[str, pa.Array], count: int) -> tuple[pa.Table, int]:
        """All user columns: with defaults, AUTO_INCREMENT numbers and generated columns; and the first of the
        numbers."""
        arrays: dict[str, pa.Array] = {}
        insert_id = 0
        definition = target.definition
        for column in definition.user_columns:
            attributes = definition.attributes_of(column.name)
            array = given.get(column.name)
            if attributes.auto_increment:
                array, insert_id = self._numbered(target.entry, column, array, count)
            elif attributes.generated:
                continue
            elif array is None:
                array = self.of_column(target, column, count)
            arrays[column.name] = array
        return self.generated(definition, arrays), insert_id

    def _numbered(self, entry: TableEntry, column: Column, array: pa.Array | None, count: int) -> tuple[pa.Array, int]:
        kind = types.arrow_type(column)
        values = pa.nulls(count, pa.int64()) if array is None else array.cast(pa.int64())
        missing = pc.fill_null(pc.or_kleene(pc.is_null(values), pc.equal(values, 0)), True).to_numpy(
            zero_copy_only=False
        )
        with self.storage.lock:
            highest = pc.max(values).as_py()
            if highest is not None:
                entry.next_auto = max(entry.next_auto, highest + 1)
            asked = int(missing.sum())
            first, entry.next_auto = entry.next_auto, entry.next_auto + asked
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).copy()
        numbers[missing] = first + np.arange(asked)
        return pa.array(numbers, pa.int64()).cast(kind), first if asked else 0

    def of_column(self, target: WrittenTable, column: Column, count: int) -> pa.Array:
        """The default of a column, `count` times. Raises 1364 if it has none and must have a value."""
        text = target.definition.attributes_of(column.name).default
        if not text or text.lower() == "null":
            if not column.nullable and count:
                raise StatementError(1364, f"Field '{column.name}' doesn't have a default value", "HY000")
            return pa.nulls(count, types.arrow_type(column))
        if count > 1 and not _varies(text):
            return pa.repeat(array_of(column, self.cells(text, 1))[0], count)
        return array_of(column, self.cells(text, count))

    def cells(self, text: str, count: int) -> list[Any]:
        """What a default's text means, for so many rows."""
        if is_now(text):
            return [now_text()] * count
        if not _varies(text):
            return [self._value(text)] * count if count else []
        return [self._value(text) for _ in range(count)]

    def cell(self, target: WrittenTable, column: Column) -> Any:
        """That of a column as one cell; None if it has none."""
        text = target.definition.attributes_of(column.name).default
        return self.cells(text, 1)[0] if text else None

    def _value(self, text: str) -> Any:
        (array,) = self.reader.values([self.expression(text)])
        return plain_cells(array)[0]

    def expression(self, text: str) -> "exp.Expr":
        """An expression's text as a tree."""
        if text not in self._expressions:
            tree = parse(f"SELECT {text}")
            if len(tree.expressions) != 1:
                raise StatementError(1064, "You have an error in your SQL syntax: one expression is expected", "42000")
            self._expressions[text] = tree.expressions[0].unalias()
        return self._expressions[text].copy()

    def generated(self, definition: Definition, arrays: dict[str, pa.Array]) -> pa.Table:
        """The other columns, and those that are generated from them."""
        made = {
            column: attributes.generated for column, attributes in definition.attributes.items() if attributes.generated
        }
        for column in definition.user_columns:
            if column.name in made:
                (values,) = self.reader.values([self.expression(made[column.name])], pa.table(arrays))
                arrays[column.name] = coerced(column, values)
        return pa.table({column.name: arrays[column.name] for column in definition.user_columns})


def is_now(text: str) -> bool:
    """Whether a default is the time of the statement."""
    return text.lower().split("(")[0].strip() in _NOW_WORDS


def _varies(text: str) -> bool:
    """Whether each row has a default of its own."""
    return "(" in text and not is_now(text)


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
