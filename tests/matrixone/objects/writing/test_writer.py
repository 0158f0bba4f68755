"""What the writer refuses."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import BadObjectName, NotWritable, ObjectUnsupported
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.writer import write_data, write_tombstones
from ccpr.matrixone.schema import Column, Kind, SqlType, Table

NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00003"
_INT = Column("n", 0, SqlType(types.INT32, 32, -1))
_TABLE = Table(1, 1, "db", "t", Kind.TABLE, (_INT,))


def rows(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int32())], ["n"])


def times(count: int) -> np.ndarray:
    return np.zeros(count, TIMESTAMP_DTYPE)


@pytest.mark.parametrize(
    ("blocks", "options", "message"),
    [
        ([rows(1), rows(2)], {}, "blocks of"),
        ([rows()], {}, "blocks of"),
        ([rows(*range(8193))], {}, "blocks of"),
        ([rows(2, 1)], {"primary_key": 0}, "order"),
        ([rows(None, 1)], {"primary_key": 0}, "null"),
        ([rows(1, None)], {"cluster_by": 0}, "order"),
        ([rows(1)], {"primary_key": 5}, "no column"),
        ([rows(1)], {"appendable": True}, "commit times"),
        ([rows(1)], {"commit_ts": [times(2)], "by_cn": False}, "commit time"),
        ([rows(1)], {"commit_ts": [times(1)]}, "compute node"),
        ([pa.record_batch([pa.array([1], pa.int64())], ["n"])], {}, "int64"),
        ([pa.record_batch([pa.array([1]), pa.array([2])], ["n", "m"])], {}, "columns"),
    ],
)
def test_rows_that_contradict_the_parameters_are_refused(
    blocks: list[pa.RecordBatch], options: dict[str, Any], message: str
) -> None:
    settings_ = {"appendable": False, "by_cn": True, "commit_ts": None} | options
    with pytest.raises(NotWritable, match=message):
        write_data(_TABLE, blocks, name=NAME, **settings_)


def test_tombstones_out_of_order_or_without_their_times_are_refused() -> None:
    low, high = bytes(24), bytes(20) + b"\x01\x00\x00\x00"
    rowids, keys = pa.array([high, low], pa.binary(24)), pa.array([1, 2], pa.int32())
    with pytest.raises(NotWritable, match="ascend"):
        write_tombstones([rowids], [keys], _INT, name=NAME, appendable=False, by_cn=True, commit_ts=None)
    with pytest.raises(NotWritable, match="commit times"):
        write_tombstones(
            [rowids.slice(1)], [keys.slice(1)], _INT, name=NAME, appendable=False, by_cn=False, commit_ts=None
        )


def test_names_and_types_that_no_object_has_are_refused() -> None:
    for name in ("../x", NAME[:-5] + "70000"):
        with pytest.raises(BadObjectName):
            write_data(_TABLE, [rows(1)], name=name, appendable=False, by_cn=True, commit_ts=None)
    with pytest.raises(ObjectUnsupported):
        encode(pa.array([1]), Column("i", 0, SqlType(54)))
