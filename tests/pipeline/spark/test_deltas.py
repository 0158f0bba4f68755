"""Row deltas computed by Spark tasks equal those computed in this process."""

from typing import TYPE_CHECKING

import pytest

from ccpr.matrixone.schema import Kind
from ccpr.mirror.delta.change_rows import part_of
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.pipeline.spark.errors import StoreNotShared
from ccpr.pipeline.spark.read import delta_with_spark
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
