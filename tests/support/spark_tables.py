"""A table of a mirror as a DataFrame, in one call."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ccpr.mirror.table_read import TASK_BYTES, plan_read
from ccpr.pipeline.spark.read import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: "SparkSession",
    mirror: str,
    table: str,
    at: int | datetime | str | None = None,
    columns: Sequence[str] | None = None,
    *,
    task_bytes: int = TASK_BYTES,
    **options: Any,
) -> "DataFrame":
    return frame_of(spark, plan_read(mirror, table, at, columns=columns, **options), task_bytes)
