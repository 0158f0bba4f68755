"""How the rows of a partitioned table are shared out to its partitions.

Which partition a row of a hash-partitioned table is in is the upstream's secret, and of no concern: here it is the
rest of a division.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.server.answers import StatementError

Method = Literal["hash", "range", "list"]
MARK = "%!%"


class NoPartition(StatementError):
    """A row for which the table has no partition."""

    def __init__(self) -> None:
        super().__init__(20301, "invalid input: Table has no partition for value from column_list")


@dataclass(frozen=True, slots=True)
class Part:
    """One partition. `values`: of a list those that are in it, of a range the one below which its values are (none =
    all), of a hash nothing."""

    name: str
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """By the whole numbers of one column; `parts` of a range are in order."""

    method: Method
    column: str
    parts: tuple[Part, ...]

    def places(self, values: pa.ChunkedArray) -> np.ndarray:
        """For each value the number of its partition; -1 if it has none."""
        known = np.asarray(pc.is_valid(values))
        numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
        if self.method == "hash":
            return np.where(known, numbers % len(self.parts), 0)
        if self.method == "range":
            bounds = np.array([part.values[0] for part in self.parts if part.values], np.int64)
            places = np.searchsorted(bounds, numbers, side="right")
            return np.where(known, np.where(places < len(self.parts), places, -1), 0)
        places = np.full(len(numbers), -1)
        for place, part in enumerate(self.parts):
            places[known & np.isin(numbers, part.values)] = place
        return places

    def added(self, parts: tuple[Part, ...]) -> "Partitioning":
        return replace(self, parts=(*self.parts, *parts))

    def without(self, names: tuple[str, ...]) -> "Partitioning":
        return replace(self, parts=tuple(part for part in self.parts if part.name not in names))


def by_hash(column: str, count: int) -> Partitioning:
    return Partitioning("hash", column, tuple(Part(f"p{number}") for number in range(count)))


def table_of(part: str, table: str) -> str:
    """The name of the hidden table of a partition."""
    return f"{MARK}{part}{MARK}{table}"
