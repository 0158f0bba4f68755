"""The zero value of dates and times, `0000-00-00`: stored as -1, the day or the microsecond before 0001-01-01, since
4.2.0. docs/format/object-file.md 4."""

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US, ZERO_DATE


def is_zero_date(values: pa.Array) -> pa.BooleanArray:
    """For each date or timestamp in Arrow's form whether it is the zero value; null where the value is."""
    if pa.types.is_date32(values.type):
        return pc.equal(values.view(pa.int32()), pa.scalar(ZERO_DATE - UNIX_EPOCH_DAYS, pa.int32()))
    return pc.equal(values.view(pa.int64()), pa.scalar(ZERO_DATE - UNIX_EPOCH_US, pa.int64()))


def without_zero_dates(values: pa.Array) -> pa.Array:
    """The values with null for the zero value."""
    zero = is_zero_date(values)
    return pc.if_else(zero, pa.scalar(None, values.type), values) if pc.any(zero).as_py() else values
