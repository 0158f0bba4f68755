"""Row deltas computed by Spark tasks equal those computed in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ccpr.matrixone.schema import Kind
from ccpr.mirror.delta.change_rows import part_of
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.delta.split import DeltaPart, DeltaSplit
from ccpr.pipeline.spark.deltas import consume_with_spark, delta_with_spark
from ccpr.pipeline.spark.errors import StoreNotShared
from tests.support.delta_truth import assert_is_delta, rows_at
from tests.support.spark_fixtures import RecordedMirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.recordings]


@pytest.mark.parametrize(
    ("scenario", "former", "later"), [("dml", 3, 6), ("dml", 4, 5), ("dml", 8, 9), ("keys", 1, 2), ("all_types", 2, 3)]
)
def test_tasks_find_what_changed(
    spark: "SparkSession", recorded_mirror: RecordedMirror, scenario: str, former: int, later: int
) -> None:
    mirror = recorded_mirror(scenario)
    one, two = mirror.point(former), mirror.point(later)
    for table_id, ref in two.tables.items():
        if ref.kind is not Kind.TABLE:
            continue
        before = TableAt.of(one, table_id) if table_id in one.tables else None
        delta = table_delta(mirror, before, TableAt.of(two, table_id), split_rows=5000)
        change = part_of(delta_with_spark(spark, delta).toArrow(), delta.shape)
        assert_is_delta(
            change, rows_at(mirror, before, delta.shape), rows_at(mirror, TableAt.of(two, table_id), delta.shape)
        )


def counted(split: DeltaSplit, parts: Iterator[DeltaPart]) -> Iterator[pa.RecordBatch]:
    found = list(parts)
    counts = [sum(part.upserts.num_rows for part in found), sum(part.deletes.num_rows for part in found)]
    yield pa.RecordBatch.from_pydict({"table": [split.shape.table], "upserts": [counts[0]], "deletes": [counts[1]]})


def test_parts_are_consumed_where_they_arise(
    spark: "SparkSession", recorded_mirror: RecordedMirror, recordings: Path
) -> None:
    mirror = recorded_mirror("dml")
    one, two = mirror.point(3), mirror.point(6)
    (table_id,) = [ref.table_id for ref in two.tables.values() if ref.name == "acc"]
    delta = table_delta(mirror, TableAt.of(one, table_id), TableAt.of(two, table_id), split_rows=5000)
    assert len(delta.splits()) > 1
    schema = pa.schema([("table", pa.string()), ("upserts", pa.int64()), ("deletes", pa.int64())])
    counts = consume_with_spark(spark, delta, counted, schema).toArrow()
    assert set(counts.column("table").to_pylist()) == {"gd_dml.acc"}
    assert counts.num_rows == len(delta.splits())
    parts = list(delta.parts())
    assert pa.compute.sum(counts.column("upserts")).as_py() == sum(part.upserts.num_rows for part in parts)
    assert pa.compute.sum(counts.column("deletes")).as_py() == sum(part.deletes.num_rows for part in parts)


def test_a_local_mirror_is_refused_where_the_executors_are_elsewhere(recorded_mirror: RecordedMirror) -> None:
    class Conf:
        def get(self, name: str, default: str) -> str:
            return "spark://far:7077"

    class Session:
        conf = Conf()

    mirror = recorded_mirror("dml")
    point = mirror.point()
    delta = table_delta(mirror, None, TableAt.of(point, next(iter(point.tables))))
    with pytest.raises(StoreNotShared, match="spark://far:7077"):
        delta_with_spark(Session(), delta)  # pyright: ignore[reportArgumentType]
