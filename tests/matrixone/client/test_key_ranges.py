"""How a whole read is divided: every row in one range, whatever the ends of the key say."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.client.errors import BadAnswer
from ccpr.matrixone.client.table_rows import RANGE_ROWS, key_ranges
from ccpr.matrixone.client.upstream_session import Answer, Session
from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column, Kind, SqlType, Table

TABLE = Table(1, 1, "shop", "orders", Kind.TABLE, ())
KEY = Column("id", 0, SqlType(types.INT64, 64, -1))


class Ends:
    """A session that says the ends of a key."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self.rows = [tuple(None if cell is None else str(cell).encode() for cell in row) for row in rows]

    def read(self, sql: str) -> Answer:
        assert sql == "SELECT MIN(`id`), MAX(`id`) FROM `shop`.`orders` {SNAPSHOT = 's'}"
        return Answer(("min", "max"), (8, 8), self.rows)


def ranges(*rows: tuple[Any, ...], count: int, most: int = 8, column: Column = KEY) -> tuple[str, ...]:
    return key_ranges(cast("Session", Ends(*rows)), TABLE, column, "s", count, most)


def holds(condition: str, number: int) -> bool:
    return all(
        number >= int(limit) if sign == ">=" else number < int(limit)
        for _, sign, limit in (part.split(" ") for part in condition.split(" AND "))
    )


@given(
    ends=st.lists(st.integers(-(2**63), 2**64 - 1), min_size=2, max_size=2).map(sorted),
    most=st.integers(2, 9),
    number=st.integers(-(2**65), 2**65),
)
def test_every_number_is_in_one_range(ends: list[int], most: int, number: int):
    found = ranges(tuple(ends), count=20 * RANGE_ROWS, most=most)
    assert len(found) <= most
    if ends[1] - ends[0] >= most:
        assert len(found) == most
    if found != ("",):
        for one in (number, *ends):
            assert sum(holds(condition, one) for condition in found) == 1


def test_the_ranges_are_as_wide_as_each_other():
    assert ranges((1, 3 * RANGE_ROWS), count=3 * RANGE_ROWS) == (
        "`id` < 500001",
        "`id` >= 500001 AND `id` < 1000001",
        "`id` >= 1000001",
    )


@pytest.mark.parametrize("column", [KEY, Column("id", 0, SqlType(types.UINT64, 64, -1))])
def test_few_rows_are_one_range_and_so_is_a_key_of_one_value(column: Column):
    assert ranges(count=2 * RANGE_ROWS - 1, column=column) == ("",)
    assert ranges((7, 7), count=2 * RANGE_ROWS, column=column) == ("",)


def test_other_keys_are_not_divided():
    for oid in (types.VARCHAR, types.DATETIME, types.DECIMAL64, types.ENUM):
        assert ranges(count=20 * RANGE_ROWS, column=Column("id", 0, SqlType(oid, 9, 0))) == ("",)
    a_set = Column("id", 0, SqlType(types.UINT64), labels=("x",))
    assert ranges(count=20 * RANGE_ROWS, column=a_set) == ("",)


@pytest.mark.parametrize("rows", [[], [(1, 2), (3, 4)], [(1,)], [(1, None)], [("x", 2)]])
def test_ends_that_are_no_numbers_are_refused(rows: list[tuple[Any, ...]]):
    with pytest.raises(BadAnswer):
        ranges(*rows, count=20 * RANGE_ROWS)
