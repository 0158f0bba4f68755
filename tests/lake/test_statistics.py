"""What the log says of values excludes none of them."""

import io
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.lake.statistics import statistics_of, stats_text

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "date": (pa.date32(), st.integers(-800_000, 3_000_000)),
    "zoned": (pa.timestamp("us", "UTC"), st.integers(-(2**60), 2**60)),
    "local": (pa.timestamp("us"), st.integers(-(2**60), 2**60)),
    "decimal": (pa.decimal128(18, 3), st.integers(-(10**17), 10**17)),
    "text": (pa.string(), st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=50)),
}


def stats(values: pa.Array) -> dict[str, Any]:
    table = pa.table({"v": values})
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False, store_decimal_as_integer=True, row_group_size=7)
    found = statistics_of(pq.read_metadata(io.BytesIO(sink.getvalue())), table.schema)
    return json.loads(stats_text(found))


def made(kind: pa.DataType, numbers: list[Any]) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([None if one is None else Decimal(one).scaleb(-3) for one in numbers], kind)
    if pa.types.is_string(kind):
        return pa.array(numbers, kind)
    width = pa.int32() if pa.types.is_date(kind) else pa.int64()
    return pa.array(numbers, kind if pa.types.is_integer(kind) else width).cast(kind)


def bound(kind: pa.DataType, shown: Any) -> pa.Scalar:
    """As a reader takes it."""
    if pa.types.is_date(kind):
        return pa.scalar(date.fromisoformat(shown), kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(datetime.fromisoformat(shown), kind)
    return pa.scalar(Decimal(str(shown)) if pa.types.is_decimal(kind) else shown, kind)


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_every_value_is_within_the_bounds(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    numbers = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=30))
    array = made(kind, numbers)
    found = stats(array)
    assert found["numRecords"] == len(array)
    assert found["nullCount"] == {"v": array.null_count}
    assert found["tightBounds"] is False
    if "v" in found["minValues"]:
        low, high = bound(kind, found["minValues"]["v"]), bound(kind, found["maxValues"]["v"])
        assert pc.all(pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))).as_py() in (True, None)


def test_small_numbers_have_bounds() -> None:
    assert stats(pa.array([3, 1, None]))["minValues"] == {"v": 1}
    assert stats(made(pa.decimal128(18, 3), [1500, -2250]))["maxValues"] == {"v": 1.5}
    assert stats(pa.array(["b", "a"]))["maxValues"] == {"v": "b"}


def test_times_are_rounded_outwards_to_the_millisecond() -> None:
    found = stats(made(pa.timestamp("us", "UTC"), [1_500_001]))
    assert found["minValues"] == {"v": "1970-01-01T00:00:01.500Z"}
    assert found["maxValues"] == {"v": "1970-01-01T00:00:01.501Z"}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, float("nan")]),
        pa.array([True]),
        pa.array([b"x"]),
        pa.array([None], pa.int64()),
        pa.array(["x" * 33]),
        pa.array([-719_163], pa.int32()).cast(pa.date32()),  # the zero date, as it is stored
        pa.array([Decimal("1e30")], pa.decimal128(38, 0)),
        pa.array([Decimal("562949953421312.3")], pa.decimal128(18, 1)),  # as a float it is 0.05 less
    ],
)
def test_what_has_no_exact_bounds_has_none(values: pa.Array) -> None:
    found = stats(values)
    assert (found["minValues"], found["maxValues"]) == ({}, {})


def test_columns_behind_the_first_32_have_none() -> None:
    table = pa.table({f"c{number}": [number] for number in range(40)})
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    found = statistics_of(pq.read_metadata(io.BytesIO(sink.getvalue())), table.schema)
    assert list(found["minValues"]) == [f"c{number}" for number in range(32)]
