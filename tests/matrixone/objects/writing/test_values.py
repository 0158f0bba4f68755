from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.writer import write_data
from ccpr.matrixone.schema import Column, Kind, SqlType, Table

NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00003"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SqlType(types.UINT8), [-1]),
        (SqlType(types.UINT8), [256]),
        (SqlType(types.UINT64), [Decimal(2**64)]),
        (SqlType(types.UINT64), [Decimal(-1)]),
        (SqlType(types.BIT, 3), [Decimal(8)]),
        (SqlType(types.DATE), [-719164]),
        (SqlType(types.DATE), [2932897]),
        (SqlType(types.DATETIME), [253402300800000000]),
        (SqlType(types.YEAR), [1900]),
        (SqlType(types.UUID), ["00000000-0000-0000-0000-00000000000g"]),
        (SqlType(types.UUID), ["short"]),
        (SqlType(types.VARCHAR, 3), ["äöüß"]),
        (SqlType(types.BINARY, 3), [b"abcd"]),
        (SqlType(types.VECF32, 3), [[1.0, 2.0]]),
        (SqlType(types.VECF32, 2), [[1.0, None]]),
        (SqlType(types.VECUINT8, 1), [[256]]),
        (SqlType(types.DECIMAL256, 40, 2), ["1.234"]),
        (SqlType(types.DECIMAL256, 40, 2), ["x"]),
        (SqlType(types.JSON), ["{"]),
    ],
)
def test_a_value_beyond_its_type_is_refused(kind: SqlType, values: list[Any]) -> None:
    column = Column("c", 0, kind)
    array = pa.array([None, *values], arrow_type(column))
    table = Table(1, 1, "db", "t", Kind.TABLE, (column,))
    with pytest.raises(NotWritable, match="column c"):
        write_data(table, [pa.record_batch([array], ["c"])], name=NAME, appendable=False, by_cn=True, commit_ts=None)


def test_a_label_that_the_column_does_not_have_is_refused() -> None:
    for kind in (types.ENUM, types.UINT64):
        column = Column("c", 0, SqlType(kind), labels=("a", "b"))
        with pytest.raises(NotWritable, match="none of the labels"):
            encode(pa.array(["a", "c"]), column)
