"""A row delta computed by Spark as a DataFrame, a task for each split.

Source: decisions deltas-by-commit-time, spark-dataframes.
"""

import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.delta.change_rows import change_batches, change_schema
from ccpr.mirror.delta.delta import Delta
from ccpr.mirror.delta.split import DeltaShape, run_split
from ccpr.pipeline.spark.tasks import in_tasks, refuse_unshared_store, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLIT = pa.schema([pa.field("split", pa.binary()), pa.field("task", pa.int32())])


def delta_with_spark(spark: "SparkSession", delta: Delta, reading: Reading = DEFAULT_READING) -> "DataFrame":
    """The changes of a table as rows, see `ccpr.mirror.delta.change_rows`. One task a split.

    Raises StoreNotShared; an action on the frame raises what Spark makes of the errors of `run_split`.
    """
    store_url, schema = delta.mirror.store.url, change_schema(delta.shape, reading)
    refuse_unshared_store(spark, store_url)
    splits = [pickle.dumps(split) for split in delta.splits()]
    rows = pa.table([splits, list(range(len(splits)))], schema=_SPLIT)
    if not splits:
        return spark.createDataFrame(schema.empty_table(), spark_schema(schema))
    return in_tasks(spark, rows, partial(_changes, store_url, delta.shape, reading), schema)


def _changes(
    store_url: str, shape: DeltaShape, reading: Reading, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for split in batch.column("split").to_pylist():
            yield from change_batches(shape, run_split(store_url, pickle.loads(split)), reading)
