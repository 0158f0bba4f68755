"""Sums over rows: they depend on every value, its column and its row, on nothing else, and never change."""

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.mirror.row_sums import RowSum, Summing, joined_sum

TYPES: dict[pa.DataType, st.SearchStrategy] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 3): st.decimals(-(10**15), 10**15, places=3),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)),
    pa.date32(): st.dates(),
    pa.string(): st.text(max_size=30),
    pa.large_string(): st.text(max_size=30),
    pa.binary(): st.binary(max_size=30),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.list_(pa.float32()): st.lists(st.floats(width=32, allow_nan=False), max_size=5),
    pa.list_(pa.float64(), 2): st.lists(st.floats(allow_nan=False), min_size=2, max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    count = draw(st.integers(0, 12))
    columns = {}
    for number, kind in enumerate(kinds):
        values = draw(st.lists(st.none() | TYPES[kind], min_size=count, max_size=count))
        columns[f"c{number}"] = pa.array(values, kind)
    return pa.table(columns)


def row_sum_of(batches: Sequence[pa.RecordBatch | pa.Table], schema: pa.Schema) -> RowSum:
    summing = Summing(schema)
    for batch in batches:
        summing.add(batch)
    return summing.row_sum()


def row_sum(table: pa.Table) -> RowSum:
    return row_sum_of([table], table.schema)


def key(row: dict[str, Any]) -> str:
    """Values that are equal to Arrow and differ in their bytes are told apart: 0.0 and -0.0."""
    return repr(row)


@given(table=tables(), data=st.data())
def test_order_and_batches_do_not_matter(table: pa.Table, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(table.num_rows)))
    mixed = table.take(pa.array(order, pa.int64()))
    cut = data.draw(st.integers(0, table.num_rows))
    parts = [mixed.slice(0, cut), mixed.slice(cut)]
    assert row_sum_of(parts, table.schema) == joined_sum([row_sum(part) for part in parts]) == row_sum(table)
    padded = pa.concat_tables([table.slice(0, 1), table]).slice(1 if table.num_rows else 0)
    assert row_sum(padded) == row_sum(table), "the same values at other offsets"


@given(one=tables(), data=st.data())
def test_other_rows_have_other_sums(one: pa.Table, data: st.DataObject) -> None:
    columns = {}
    for name, kind in zip(one.column_names, one.schema.types, strict=True):
        values = one.column(name).to_pylist()
        for place in data.draw(st.sets(st.integers(0, max(0, one.num_rows - 1)), max_size=2)):
            if values:
                values[place] = data.draw(st.none() | TYPES[kind])
        columns[name] = pa.array(values, kind)
    other = pa.table(columns)
    same = sorted(map(key, one.to_pylist())) == sorted(map(key, other.to_pylist()))
    assert (row_sum(one) == row_sum(other)) == same


def test_a_value_counts_with_its_column_and_its_row() -> None:
    def of(a: list, b: list) -> str:
        return row_sum(pa.table({"a": pa.array(a, pa.string()), "b": pa.array(b, pa.string())})).total

    all_of = [
        of(["x", "y"], ["1", "2"]),
        of(["x", "y"], ["2", "1"]),
        of(["1", "2"], ["x", "y"]),
        of(["x", "y"], [None, "12"]),
        of(["x", "y"], ["", "12"]),
        of(["x", "y", "y"], ["1", "2", "2"]),
        of(["xy", ""], ["1", "2"]),
        of(["x\0", "y"], ["1", "2"]),
    ]
    assert len(set(all_of)) == len(all_of)


def test_what_is_compared_and_what_not() -> None:
    one = row_sum(pa.table({"a": [1, 2]}))
    assert one.differs(one) == ""
    assert one.differs(RowSum(3)) == "2 rows instead of 3"
    assert one.differs(row_sum(pa.table({"a": [1, 3]}))) == "as many rows, and other values"
    assert one.differs(row_sum(pa.table({"b": [1, 3]}))) == "", "of other columns"
    assert one.differs(RowSum(2)) == "", "counted only"
    assert [joined_sum(parts) for parts in ([], [one, RowSum(2)], [one, row_sum(pa.table({"b": [1]}))])] == [None] * 3


def test_the_sums_that_are_stored_never_change() -> None:
    random.seed(5)
    columns = {
        "i": pa.array([None if n % 7 == 0 else n * n - 50 for n in range(1000)], pa.int64()),
        "f": pa.array([n / 7 for n in range(1000)], pa.float32()),
        "d": pa.array([Decimal(n) / 100 for n in range(1000)], pa.decimal128(18, 2)),
        "s": pa.array([None if n % 5 == 0 else "é" * (n % 40) + str(n) for n in range(1000)]),
        "b": pa.array([bytes([n % 256]) * (n % 17) for n in range(1000)], pa.binary()),
        "v": pa.array([[n, n + 0.5] for n in range(1000)], pa.list_(pa.float32())),
        "t": pa.array(np.arange(1000) * 10**9, pa.timestamp("us")),
        "z": pa.array([n % 3 == 0 for n in range(1000)]),
    }
    assert row_sum(pa.table(columns)) == RowSum(1000, TOTAL, BASIS)


TOTAL, BASIS = "f06df0abbc068a3df46e41ff8577bd08", "66175829c422fe1d"


@pytest.mark.parametrize("names", [["a"], ["b", "a"]])
def test_only_the_columns_that_are_asked_for_count(names: list[str]) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5]})
    summing = Summing(pa.schema([table.schema.field(name) for name in names]))
    summing.add(table)
    assert summing.row_sum() == row_sum(table.select(names))
