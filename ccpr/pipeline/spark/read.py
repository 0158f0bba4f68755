"""A table of a mirror as a DataFrame. What is read, and how it is shared out, is `ccpr.mirror.table_read`; here
are the functions that run inside executors, and those that start them.

Arrow batches all the way: a DataFrame of object names goes in, `mapInArrow` turns each task's names into batches. Only
the DataFrame API is used, so that a local session, a cluster and a Spark Connect server do the same. Source: decision
spark-dataframes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.filters import Filter, FilterTuple
from ccpr.mirror.layout import HEAD
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.table_read import TASK_BYTES, TableRead, plan_read
from ccpr.pipeline.spark.errors import StoreNotShared
from ccpr.pipeline.spark.short_decimals import as_decimals, as_numbers, as_numbers_schema
from ccpr.pipeline.spark.tasks import in_tasks, is_connect, refuse_unshared_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TASK_BYTES", "TableRead", "frame_of", "plan_read", "read_share", "read_table"]


def read_table(
    spark: "SparkSession",
    mirror: str,
    table: str,
    at: int | datetime | str | None = None,
    columns: Sequence[str] | None = None,
    *,
    filters: Iterable[FilterTuple | Filter] = (),
    hidden: bool = False,
    reading: Reading = DEFAULT_READING,
    task_bytes: int = TASK_BYTES,
) -> "DataFrame":
    """A table of a mirror at a point. The same rows as `format("matrixone")`, in half the time for a small table:
    nothing has to be planned in Python workers. `filters` keeps the rows that satisfy all; the workers apply them,
    and do not read what cannot hold such a row. Raises what `plan_read` raises, and StoreNotShared.
    """
    read = plan_read(mirror, table, at, columns=columns, filters=filters, hidden=hidden, reading=reading)
    return frame_of(spark, read, task_bytes)


def frame_of(spark: "SparkSession", read: TableRead, task_bytes: int = TASK_BYTES) -> "DataFrame":
    """What was planned, as a DataFrame. Raises StoreNotShared."""
    refuse_unshared_store(spark, read.store_url)
    shares, numbers = read.shares(task_bytes), as_numbers_schema(read.schema)
    if numbers != read.schema and not is_connect(spark):
        frame = in_tasks(spark, shares, partial(_read_numbers, read, numbers), numbers)
        if (decimals := as_decimals(frame, read.schema)) is not None:
            return decimals
    return in_tasks(spark, shares, partial(_read_names, read), read.schema)


def read_share(read: TableRead, names: Sequence[str] | pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows of a task, given its data objects; runs in a worker. Raises StoreNotShared where the mirror is not
    there."""
    store = open_store(read.store_url)
    if store.size(HEAD) is None:
        raise StoreNotShared("a worker does not find the mirror", subject=f"{read.store_url} on {os.uname().nodename}")
    return read.batches(names, mirror=Mirror(store))


def _read_names(read: TableRead, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = [batch.column("name") for batch in batches]
    if names:
        yield from read_share(read, pa.concat_arrays(names))


def _read_numbers(read: TableRead, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return as_numbers(_read_names(read, batches), schema)
