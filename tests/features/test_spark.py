"""A third of all recorded (table, snapshot) pairs, replicated and then read by Spark at each point in time."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.support.expected import assert_rows_equal
from tests.support.replica import SIZED_OLDER, SIZED_SCENARIOS, replaying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.recordings, pytest.mark.spark]


NEWER = ("all_types", "cut_inside_object", "ddl", "dml", "geometry", "keys", "new_vectors", "zero_dates")  # of 4.2.0
BOTH = [*SIZED_OLDER, *(one for one in SIZED_SCENARIOS if one.id in {f"4.2.0/{name}" for name in NEWER})]


@pytest.mark.parametrize("scenario", BOTH)
def test_spark_reads_the_rows_that_were_true_at_each_point(
    scenario: str, recordings: Path, home: Path, spark: "SparkSession"
) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe()
        for _ in range(replica.about.snapshots):
            replica.run()
        points = range(1, replica.about.snapshots + 1)
        pairs = [(snapshot, *item) for snapshot in points for item in sorted(replica.in_scope(snapshot).items())]
        for snapshot, table, expected in pairs[::3]:
            options = {"mirror": str(replica.mirror), "table": table, "at": str(snapshot - 1), "zero_dates": "keep"}
            frame = spark.read.format("matrixone").options(**options).load()
            assert_rows_equal(frame.toArrow(), pq.read_table(expected))
