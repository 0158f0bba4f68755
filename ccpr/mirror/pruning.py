"""Which objects and blocks of a table cannot hold a row that some filters ask for, and which blocks hold no other rows,
by zone maps and null counts. Needs no Spark.

Only ever a reason to leave data blocks out, or to count their rows without decoding them; rows are filtered after they
were decoded (`ccpr.mirror.filters`). So whatever is not certain is read: bool (its zone map is the AND of its values),
floats (a zone map says nothing of NaN), enums and sets (stored as numbers, compared as labels), json (stored in binary,
compared as text), types without zone maps. Zone maps cover all stored rows, visible ones or not, so neither time nor
deletes matter here. Source: docs/format/object-file.md 1.2, 2.5, 5.2; decision filters-leave-out-blocks.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US, ZERO_DATE
from ccpr.matrixone.objects.object_layout import Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.matrixone.schema import Column
from ccpr.mirror.filters import Compare, Filter, IsIn, IsNotIn, IsNotNull, IsNull, value_of

_CUT = b"\xff" * 30  # a maximum of this may stand for anything greater
# Types whose zone maps are in the order of the values; and the distance from the zero of a compared value to that of
# a stored one.
_STORED: dict[int, int] = {
    **dict.fromkeys((types.INT8, types.INT16, types.INT32, types.INT64, types.YEAR, types.TIME), 0),
    **dict.fromkeys((types.UINT8, types.UINT16, types.UINT32, types.UINT64, types.BIT), 0),
    **dict.fromkeys((types.DECIMAL64, types.DECIMAL128), 0),
    **dict.fromkeys((types.CHAR, types.VARCHAR, types.TEXT, types.UUID, *types.BINARY_TYPES), 0),
    types.DATE: UNIX_EPOCH_DAYS,
    types.DATETIME: UNIX_EPOCH_US,
    types.TIMESTAMP: UNIX_EPOCH_US,
}


@dataclass(frozen=True, slots=True)
class _Test:
    """A filter against a column's stored values.

    Attributes
    ----------
    operator : as in `Compare`, or ``in``, ``null``, ``not null``.
    values : stored form, ascending; one, but for ``in`` any number and for the last two none.
    exact : whether it is the filter itself; else every row that satisfies the filter satisfies it, and others do, too.
    """

    column: Column
    operator: str
    values: tuple[Any, ...] = ()
    exact: bool = True

    def excludes_zone(self, zonemap: bytes) -> bool:
        """Whether no non-null value of the zone can satisfy the test."""
        zone = zone_of(zonemap, self.column) if self.values or self.operator == "in" else None
        if zone is None:
            return False
        low, high = zone
        if self.operator == "in":
            first = bisect_left(self.values, low)
            return first == len(self.values) or (high is not None and self.values[first] > high)
        value = self.values[0]
        if self.operator in ("<", "<="):
            return low > value or (low == value and self.operator == "<")
        return high is not None and (high < value or (high == value and self.operator == ">"))

    def _may_be_zero_date(self, zonemap: bytes) -> bool:
        """Zero dates count as null, and the server counts them as values."""
        if self.column.type.oid not in types.ZERO_DATE_TYPES:
            return False
        zone = parse_zonemap(zonemap)
        return zone is None or zone.oid != self.column.type.oid or zone.minimum <= ZERO_DATE <= zone.maximum

    def excludes_block(self, block: Block, max_seqnum: int) -> bool:
        """Whether no row of the block can satisfy the test; `max_seqnum` is the object's, beyond which no column of
        the table is stored."""
        seqnum = self.column.seqnum
        oid = int(block.columns["oid"][seqnum]) if seqnum <= max_seqnum and seqnum < len(block.columns) else 0
        if oid not in (0, self.column.type.oid):
            return False  # reading says what is wrong with it
        nulls = int(block.columns["nulls"][seqnum]) if oid else block.rows  # a column that came later than the object
        if self.operator == "null":
            return nulls == 0 and not self._may_be_zero_date(block.columns["zonemap"][seqnum].tobytes())
        return nulls == block.rows or self.excludes_zone(block.columns["zonemap"][seqnum].tobytes())

    def covers_block(self, block: Block, max_seqnum: int) -> bool:
        """Whether it is certain that each row of the block satisfies the filter."""
        if not self.exact:
            return False
        seqnum = self.column.seqnum
        oid = int(block.columns["oid"][seqnum]) if seqnum <= max_seqnum and seqnum < len(block.columns) else 0
        if oid != self.column.type.oid:
            return oid == 0 and self.operator == "null"
        zonemap, nulls = block.columns["zonemap"][seqnum].tobytes(), int(block.columns["nulls"][seqnum])
        if self.operator == "null":
            return nulls == block.rows
        return nulls == 0 and not self._may_be_zero_date(zonemap) and self._covers_zone(zonemap)

    def _covers_zone(self, zonemap: bytes) -> bool:
        """Whether each non-null value of the zone satisfies the test. A zone map may be wider than the values."""
        if self.operator == "not null":
            return True
        zone = zone_of(zonemap, self.column)
        if zone is None or not self.values:
            return False
        low, high = zone
        if self.operator in (">", ">="):
            return low > self.values[0] or (low == self.values[0] and self.operator == ">=")
        if high is None:
            return False
        if self.operator in ("<", "<="):
            return high < self.values[0] or (high == self.values[0] and self.operator == "<=")
        return low == high and low in self.values


@dataclass(frozen=True, slots=True)
class Pruning:
    """Filters on a table, made ready by `prune`."""

    tests: tuple[_Test, ...]

    def blocks(self, file: ObjectFile) -> Sequence[Block]:
        """The blocks of a data object that can hold a row asked for."""
        for test in self.tests:
            seqnum = test.column.seqnum
            if (
                seqnum <= file.max_seqnum
                and seqnum < len(file.columns)
                and test.excludes_zone(file.columns["zonemap"][seqnum].tobytes())
            ):
                return ()
        return [
            block
            for block in file.blocks
            if not any(test.excludes_block(block, file.max_seqnum) for test in self.tests)
        ]

    def covers(self, file: ObjectFile, block: Block) -> bool:
        """Whether it is certain that each row of the block is asked for."""
        return all(test.covers_block(block, file.max_seqnum) for test in self.tests)

    def on(self, seqnum: int) -> "Pruning":
        """What of it concerns one column."""
        return Pruning(tuple(test for test in self.tests if test.column.seqnum == seqnum))

    def excludes_zone(self, zonemap: bytes) -> bool:
        """Whether a zone map of 64 bytes shows that no row is asked for; it is of the column that all tests are on
        (see `on`)."""
        return any(test.excludes_zone(zonemap) for test in self.tests)


def prune(filters: Iterable[Filter], columns: Sequence[Column]) -> Pruning:
    """`columns` are all of the table's. Filters on other columns say nothing."""
    by_name = {column.name: column for column in columns}
    return Pruning(tuple(_test(filter_, by_name[filter_.column]) for filter_ in filters if filter_.column in by_name))


def stats_tell_of(sort_key: int, columns: Sequence[Column]) -> bool:
    """Whether the zone map in an object's stats is that of the sort key, a seqnum: only where no column below it is
    missing (5.2)."""
    return set(range(sort_key + 1)) <= {column.seqnum for column in columns}


def _test(filter_: Filter, column: Column) -> _Test:
    """A value that cannot be compared leaves what every comparison implies: null never satisfies one."""
    match filter_:
        case IsNull():
            return _Test(column, "null")
        case IsNotNull():
            return _Test(column, "not null")
        case IsNotIn() | Compare(operator="!="):
            return _Test(column, "not null", exact=False)
        case IsIn():
            operator, values = "in", filter_.values
        case Compare():
            operator, values = filter_.operator, (filter_.value,)
    stored = [_stored(column, value) for value in values if value is not None]
    if None in stored or (operator != "in" and not stored):
        return _Test(column, "not null", exact=False)
    return _Test(column, "in" if operator == "=" else operator, tuple(sorted(stored)))


def zone_of(zonemap: bytes, column: Column) -> tuple[Any, Any] | None:
    """Bounds of the column's values, in the form of `_stored`; the upper one is None if there is none. None if the zone
    map says nothing."""
    zone = parse_zonemap(zonemap)
    if zone is None or zone.oid != column.type.oid:
        return None
    if zone.oid == types.UUID:  # compared as text, which is in the order of the bytes
        return str(zone.minimum).encode(), str(zone.maximum).encode()
    return zone.minimum, None if zone.maximum == _CUT else zone.maximum


def _stored(column: Column, value: Any) -> Any:
    """A value in the form and order of the column's zone maps; None if it has none."""
    if column.type.oid not in _STORED or types.is_set(column) or types.is_decimal_text(column):
        return None
    compared = value_of(column, value)
    return compared if compared is None or isinstance(compared, bytes) else compared + _STORED[column.type.oid]
