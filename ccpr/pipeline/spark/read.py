"""A table of a mirror as a DataFrame. What is read, and how it is shared out, is `ccpr.mirror.table_read`; here
are the functions that run inside executors, and those that start them.

Arrow batches all the way: a DataFrame of object names goes in, `mapInArrow` turns each task's names into batches. Only
the DataFrame API is used, so that a local session, a cluster and a Spark Connect server do the same. Source: decision
spark-dataframes.
"""

import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.delta.change_rows import change_batches, change_schema
from ccpr.mirror.delta.delta import Delta
from ccpr.mirror.delta.split import DeltaShape, run_split
from ccpr.mirror.layout import HEAD
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.table_read import TASK_BYTES, TableRead
from ccpr.pipeline.spark.errors import StoreNotShared
from ccpr.pipeline.spark.tasks import in_tasks, is_connect, refuse_unshared_store, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def frame_of(spark: "SparkSession", read: TableRead, task_bytes: int = TASK_BYTES) -> "DataFrame":
    """What was planned, as a DataFrame: the same rows as `format("matrixone")`, in half the time for a small table, as
    nothing has to be planned in Python workers. Raises StoreNotShared."""
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


# ---- decimals of up to 18 digits
#
# From the workers to Spark they travel as whole numbers, in units of their last digit. That is half the bytes, and
# Spark does not have to make a BigDecimal of each.
#
# What makes a decimal of such a number without computing is an expression of Spark's that the DataFrame interface has
# no name for. So it is asked of the JVM; where there is none of our own (Spark Connect), or a release that has it
# elsewhere, decimals travel as they are.

MOST_DIGITS = 18  # that fit in 64 bits, as Spark's own rows have them


def as_numbers_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which short decimals are int64."""
    return pa.schema([field.with_type(pa.int64()) if _is_short(field.type) else field for field in schema])


def as_numbers(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches with their short decimals as numbers; `schema` is that of `as_numbers_schema`."""
    for batch in batches:
        columns = [_number(column) if _is_short(column.type) else column for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def as_decimals(frame: "DataFrame", schema: pa.Schema) -> "DataFrame | None":
    """The frame of such batches with decimals as `schema` has them; None where the release of Spark cannot be asked for
    that. Its session has a JVM of its own."""
    from py4j.protocol import Py4JError

    try:
        return frame.select(*(_column(frame, field) for field in schema))
    except (Py4JError, TypeError, AttributeError):
        return None


def _is_short(kind: pa.DataType) -> bool:
    return pa.types.is_decimal128(kind) and kind.precision <= MOST_DIGITS


def _number(decimals: pa.Array) -> pa.Array:
    """The low half of each; that the high one has no digit is the decoder's word."""
    valid, data = decimals.buffers()
    count = decimals.offset + len(decimals)
    low = np.frombuffer(data, "<i8", 2 * count)[::2].copy() if count else np.empty(0, "<i8")
    return pa.Array.from_buffers(pa.int64(), len(decimals), [valid, pa.py_buffer(low)], offset=decimals.offset)


def _column(frame: "DataFrame", field: pa.Field) -> "Column":
    column: Any = frame[in_backquotes(field.name)]
    if not _is_short(field.type):
        return column
    session: Any = frame.sparkSession
    sql = session._jvm.org.apache.spark.sql
    null_on_overflow = False
    decimal = sql.catalyst.expressions.MakeDecimal(
        sql.classic.ExpressionUtils.expression(column._jc), field.type.precision, field.type.scale, null_on_overflow
    )
    return type(column)(sql.classic.ExpressionUtils.column(decimal)).alias(field.name)


# ---- row deltas, a task for each split

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
