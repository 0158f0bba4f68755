"""A row delta computed by Spark, a task for each split: as a DataFrame, or passed to a function inside the tasks.

Source: decisions deltas-by-commit-time, spark-dataframes.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.delta.change_rows import change_batches, change_schema
from ccpr.mirror.delta.delta import Delta
from ccpr.mirror.delta.split import DeltaPart, DeltaShape, DeltaSplit, run_split
from ccpr.pipeline.spark.tasks import in_tasks, refuse_unshared_store, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLIT = pa.schema([pa.field("split", pa.binary()), pa.field("task", pa.int32())])
Consumer = Callable[[DeltaSplit, Iterator[DeltaPart]], Iterable[pa.RecordBatch]]


def delta_with_spark(spark: "SparkSession", delta: Delta, reading: Reading = DEFAULT_READING) -> "DataFrame":
    """The changes of a table as rows, see `ccpr.mirror.delta.change_rows`. One task a split.

    Raises StoreNotShared; an action on the frame raises what Spark makes of the errors of `run_split`.
    """
    schema = change_schema(delta.shape, reading)
    return consume_with_spark(spark, delta, partial(_rows, delta.shape, reading), schema)


def consume_with_spark(spark: "SparkSession", delta: Delta, consume: Consumer, schema: pa.Schema) -> "DataFrame":
    """Run `consume` on the parts of each split, inside its task. Its batches, of `schema`, are the rows of the frame.

    `consume` is pickled, and may be called again for the same split, since Spark repeats tasks that fail.
    """
    store_url = delta.mirror.store.url
    refuse_unshared_store(spark, store_url)
    splits = [pickle.dumps(split) for split in delta.splits()]
    rows = pa.table([splits, list(range(len(splits)))], schema=_SPLIT)
    if not splits:
        return spark.createDataFrame(schema.empty_table(), spark_schema(schema))
    return in_tasks(spark, rows, partial(_run_splits, store_url, consume), schema)


def _run_splits(store_url: str, consume: Consumer, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for pickled in batch.column("split").to_pylist():
            split = pickle.loads(pickled)
            yield from consume(split, run_split(store_url, split))


def _rows(
    shape: DeltaShape, reading: Reading, split: DeltaSplit, parts: Iterator[DeltaPart]
) -> Iterator[pa.RecordBatch]:
    return change_batches(shape, parts, reading)
