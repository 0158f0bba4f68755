"""A row delta through Spark: its splits in tasks, the changes as a DataFrame, or handed to a function where they arise.

Source: architecture.md, decisions 7 and 8; spec/spark.md section 2.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from replication.delta.delta import Delta
from replication.delta.split import DeltaPart, DeltaShape, DeltaSplit, run_split
from replication.spark.tasks import in_tasks, refuse_unshared_store, spark_schema
from replication.spark.worker import configure_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELETED = "__ccpr_deleted"  # true in a row that names a key to delete; its other columns are null
_SPLIT = pa.schema([pa.field("split", pa.binary()), pa.field("task", pa.int32())])
Consumer = Callable[[DeltaSplit, Iterator[DeltaPart]], Iterable[pa.RecordBatch]]


def delta_with_spark(spark: "SparkSession", delta: Delta) -> "DataFrame":
    """The changes of a table as rows: the columns of upserts behind the flag `__ccpr_deleted`. One task a split.

    Raises StoreNotShared; an action on the frame raises what Spark makes of the errors of `run_split`.
    """
    return consume_with_spark(spark, delta, partial(_rows, delta.shape), changes_schema(delta.shape))


def consume_with_spark(spark: "SparkSession", delta: Delta, consume: Consumer, schema: pa.Schema) -> "DataFrame":
    """Run `consume` on the parts of each split, inside its task; its batches, of `schema`, are the frame's rows.

    `consume` travels to the workers by pickle, and may be called again for the same split: Spark repeats tasks that
    fail.
    """
    store_url = delta.mirror.store.url
    refuse_unshared_store(spark, store_url)
    splits = [pickle.dumps(split) for split in delta.splits()]
    rows = pa.table([splits, list(range(len(splits)))], schema=_SPLIT)
    if not splits:
        return spark.createDataFrame(schema.empty_table(), spark_schema(schema))
    return in_tasks(spark, rows).mapInArrow(partial(_run_splits, store_url, consume), spark_schema(schema))


def changes_schema(shape: DeltaShape) -> pa.Schema:
    """Of the frame that `delta_with_spark` gives."""
    return pa.schema([pa.field(DELETED, pa.bool_()), *shape.upsert_schema])


def part_of(changes: pa.Table, shape: DeltaShape) -> DeltaPart:
    """Rows of `delta_with_spark` as upserts and deletes."""
    deleted = changes.column(DELETED)
    upserts = changes.filter(pc.invert(deleted)).select(shape.upsert_schema.names)
    return DeltaPart(
        upserts.cast(shape.upsert_schema),
        changes.filter(deleted).select(shape.delete_schema.names).cast(shape.delete_schema),
    )


def _run_splits(store_url: str, consume: Consumer, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    configure_worker()
    for batch in batches:
        for pickled in batch.column("split").to_pylist():
            split = pickle.loads(pickled)
            yield from consume(split, run_split(store_url, split))


def _rows(shape: DeltaShape, split: DeltaSplit, parts: Iterator[DeltaPart]) -> Iterator[pa.RecordBatch]:
    schema = changes_schema(shape)
    for part in parts:
        for deleted, rows in ((False, part.upserts), (True, part.deletes)):
            columns = [
                rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
                for field in shape.upsert_schema
            ]
            flags = pa.repeat(pa.scalar(deleted), rows.num_rows)
            yield from pa.Table.from_arrays([flags, *columns], schema=schema).to_batches()
