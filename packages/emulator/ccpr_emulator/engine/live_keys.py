"""The keys of a table's live rows, so that a small change does not read the table: for the primary key and for each
unique index a dictionary from a key to the number of its row. It is built when it is first asked for, kept up to date
by small changes, and dropped by large ones.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr_emulator.engine.definitions import Definition

FEW_ROWS: Final = 2048
Key: TypeAlias = Any  # a value, or a tuple of values; None if a part is null, which may repeat
_INEXACT = frozenset((types.FLOAT32, types.FLOAT64, types.JSON, *types.VECTOR_TYPES))


def unique_columns(definition: Definition) -> dict[str, tuple[str, ...]]:
    """The columns of the primary key and of each unique index, by its name."""
    found = {"PRIMARY": definition.primary_key} if definition.primary_key else {}
    return found | {index.name: index.columns for index in definition.indexes if index.unique}


def has_exact_keys(definition: Definition) -> bool:
    """Whether equal keys are equal Python values."""
    names = {name for columns in unique_columns(definition).values() for name in columns}
    return all(definition.column(name).type.oid not in _INEXACT for name in names)


def keys_in(rows: pa.Table, columns: tuple[str, ...]) -> list[Key]:
    """The key of each row; None if a part of it is null."""
    parts = [_values(rows.column(name)) for name in columns]
    if len(parts) == 1:
        return parts[0]
    return [None if None in key else key for key in zip(*parts, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Dates and times as numbers: some are beyond what Python's types hold, such as the zero date."""
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).to_pylist()
    return column.cast(pa.int64()).to_pylist() if pa.types.is_temporal(column.type) else column.to_pylist()


@dataclass(slots=True, eq=False)
class LiveKeys:
    """Of one table, under one definition. `rows` : by key name, then by key."""

    definition: Definition
    columns: dict[str, tuple[str, ...]]
    rows: dict[str, dict[Key, int]]

    @staticmethod
    def of(definition: Definition, rows: pa.Table, numbers: np.ndarray) -> "LiveKeys":
        columns = unique_columns(definition)
        keys = LiveKeys(definition, columns, {name: {} for name in columns})
        keys.add(rows, numbers)
        return keys

    def add(self, rows: pa.Table, numbers: np.ndarray) -> None:
        for name, columns in self.columns.items():
            known = self.rows[name]
            known.update(zip(keys_in(rows, columns), numbers.tolist(), strict=True))
            known.pop(None, None)

    def remove(self, rows: pa.Table) -> None:
        for name, columns in self.columns.items():
            known = self.rows[name]
            for key in keys_in(rows, columns):
                known.pop(key, None)
