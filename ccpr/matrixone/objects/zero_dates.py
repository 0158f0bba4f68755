"""The zero value of dates and times, `0000-00-00`: stored as -1, the day or the microsecond before 0001-01-01, since
4.2.0. docs/format/object-file.md 4."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US, ZERO_DATE


def is_zero_date(values: pa.Array) -> pa.BooleanArray:
    """For each date or timestamp in Arrow's form whether it is the zero value; null where the value is."""
    stored, zero = _stored(values)
    return pc.equal(values.view(stored), pa.scalar(zero, stored))


def without_zero_dates(values: pa.Array) -> pa.Array:
    """The values with null for the zero value."""
    if not _may_have_one(values):
        return values
    return pc.if_else(is_zero_date(values), pa.scalar(None, values.type), values)


def _stored(values: pa.Array) -> tuple[pa.DataType, int]:
    """As what numbers the values are stored, and which of them is the zero value."""
    if pa.types.is_date32(values.type):
        return pa.int32(), ZERO_DATE - UNIX_EPOCH_DAYS
    return pa.int64(), ZERO_DATE - UNIX_EPOCH_US


def _may_have_one(values: pa.Array) -> bool:
    """Whether a value is zero, or the place of a null holds what is. Asked of every block, so without Arrow, which
    takes four times as long for it."""
    stored, zero = _stored(values)
    data = values.buffers()[1]
    if len(values) == 0 or data is None:
        return False
    size = stored.bit_width // 8
    return bool((np.frombuffer(data, f"<i{size}", len(values), size * values.offset) == zero).any())
