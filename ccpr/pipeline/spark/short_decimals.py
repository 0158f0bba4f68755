"""Decimals of up to 18 digits on their way from the workers to Spark: as whole numbers, in units of their last digit.
That is half the bytes, and Spark does not have to make a BigDecimal of each.

What makes a decimal of such a number without computing is an expression of Spark's that the DataFrame interface has no
name for. So it is asked of the JVM; where there is none of our own (Spark Connect), or a release that has it elsewhere,
decimals travel as they are.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.sql.quoting import in_backquotes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
