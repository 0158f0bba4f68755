"""Short decimals travel as numbers, and are the same decimals in Spark; without the way to make them they travel as
they are."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.pipeline.spark import read
from ccpr.pipeline.spark.read import as_decimals, as_numbers, as_numbers_schema
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.spark_fixtures import RecordedMirror
from tests.support.spark_tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST = 10**18 - 1
NUMBERS = [0, 1, -1, 7, None, MOST, -MOST, 10**17, None]


def decimals(numbers: list[int | None], kind: pa.Decimal128Type) -> pa.Array:
    """Decimals of these numbers of their last digit."""
    return pa.array([None if one is None else Decimal(one).scaleb(-kind.scale) for one in numbers], kind)


def plan_of(frame: "DataFrame") -> str:
    return frame._jdf.queryExecution().optimizedPlan().toString()  # pyright: ignore[reportAttributeAccessIssue]


@given(st.lists(st.none() | st.integers(-MOST, MOST)), st.integers(0, 18), st.integers(0, 3), st.booleans())
def test_a_short_decimal_travels_as_the_number_of_its_last_digit(
    numbers: list[int | None], scale: int, start: int, wide: bool
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "a": decimals(numbers, pa.decimal128(18, scale)),
            "wide": decimals(numbers, pa.decimal128(19 if wide else 38, 1)),
            "text": pa.array(["x"] * len(numbers), pa.string()),
        }
    ).slice(start)
    schema = as_numbers_schema(batch.schema)
    assert schema.types == [pa.int64(), batch.schema.types[1], pa.string()]
    (travelling,) = as_numbers([batch], schema)
    travelling.validate(full=True)
    assert travelling.schema == schema
    assert travelling.column("a").to_pylist() == numbers[start:]
    assert travelling.select(["wide", "text"]) == batch.select(["wide", "text"])


@pytest.mark.spark
def test_spark_makes_the_same_decimals_of_the_numbers(spark: "SparkSession") -> None:
    kinds = {"a": pa.decimal128(18, 0), "b.`c`": pa.decimal128(18, 18), "d": pa.decimal128(18, 5)}
    table = pa.table({name: decimals(NUMBERS, kind) for name, kind in kinds.items()})
    schema = as_numbers_schema(table.schema)
    numbers = pa.Table.from_batches(as_numbers(table.to_batches(), schema), schema)
    frame = as_decimals(spark.createDataFrame(numbers), table.schema)
    assert frame is not None
    assert [kind for _, kind in frame.dtypes] == ["decimal(18,0)", "decimal(18,18)", "decimal(18,5)"]
    assert frame.toArrow().equals(table)
    totals = frame.selectExpr("sum(a)", "max(d)", "min(`b.``c```)").collect()[0]
    assert tuple(totals) == (10**17 + 7, Decimal(MOST).scaleb(-5), Decimal(-MOST).scaleb(-18))


@pytest.mark.spark
@pytest.mark.recordings
@pytest.mark.parametrize("release", ["this", "another"])
def test_a_table_has_the_servers_decimals_whichever_way_they_came(
    spark: "SparkSession",
    recordings: Path,
    recorded_mirror: RecordedMirror,
    release: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = recorded_mirror("wide_and_large")
    (name,) = [ref.qualified_name for ref in mirror.point(1).tables.values() if ref.name == "lineitem"]

    def missing(*arguments: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    if release == "another":
        monkeypatch.setattr(read, "_column", missing)
    frame = read_table(spark, mirror.store.url, name, 1)
    assert ("MakeDecimal" in plan_of(frame)) == (release == "this")
    assert {"decimal(15,2)"} == {kind for _, kind in frame.dtypes if kind.startswith("decimal")}
    snapshot = Snapshot(recordings / "wide_and_large" / "snapshot-001")
    assert_rows_equal(frame.toArrow(), snapshot.expected("lineitem"))
