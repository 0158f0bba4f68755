import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.encoded_columns import varlena_column
from ccpr.matrixone.objects.writing.zonemaps import block_zonemap, object_zonemap
from ccpr.matrixone.schema import Column, SqlType


@pytest.mark.parametrize(
    ("values", "low", "high", "unbounded"),
    [
        ([b"b", b"a" * 40], b"a" * 30, b"b", False),
        ([b"a", b"b" * 40], b"a", b"b" * 29 + b"c", False),
        ([b"a", b"b" + b"\xff" * 40], b"a", b"c" + bytes(29), False),
        ([b"a", b"\xff" * 31], b"a", b"\xff" * 30, True),
        ([b"a", b"\xff" * 30], b"a", b"\xff" * 30, False),
        ([b"", None], b"", b"", False),
    ],
)
def test_long_texts_are_cut_in_zone_maps_so_that_they_stay_bounds(
    values: list[bytes], low: bytes, high: bytes, unbounded: bool
) -> None:
    kind = SqlType(types.VARBINARY)
    block = block_zonemap(varlena_column(kind, pa.array(values, pa.binary()), "test"))
    whole = object_zonemap([block, block], types.VARBINARY, 0)
    for raw in (block, whole):
        assert raw[: raw[30]] == low
        assert raw[31 : 31 + (raw[61] & 0x1F)] == high
        assert bool(raw[61] & 0x80) == unbounded
        assert raw[62:] == bytes((0x80, types.VARBINARY))


@given(
    st.lists(
        st.none() | st.binary(max_size=9) | st.text("\0\x01a\x7f", max_size=8).map(str.encode), min_size=1, max_size=20
    )
)
def test_short_values_are_bounded_by_the_least_and_the_greatest(values: list[bytes | None]) -> None:
    some = [value for value in values if value is not None]
    raw = block_zonemap(varlena_column(SqlType(types.VARBINARY), pa.array(values, pa.binary()), "test"))
    assert (raw[: raw[30]], raw[31 : 31 + raw[61]]) == (min(some, default=b""), max(some, default=b""))


def test_an_objects_bounds_stay_open_when_one_block_has_none() -> None:
    kind = SqlType(types.VARBINARY)
    blocks = [
        block_zonemap(varlena_column(kind, pa.array([value], pa.binary()), "test"))
        for value in (b"a", b"\xff" * 40, b"b")
    ]
    assert object_zonemap(blocks, types.VARBINARY, 0)[61] & 0x80


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1, 2, -5], -2),
        ([2**63 - 1, 1, -1], 0),  # the running sum leaves 64 bits
        ([2**63 - 1, -(2**63), 1], 0),
        ([2**62, -(2**62), 7], 7),
        ([-(2**63), 5], -(2**63) + 5),
    ],
)
def test_sums_that_leave_64_bits_are_zero(values: list[int], total: int) -> None:
    column = encode(pa.array(values, pa.int64()), Column("n", 0, SqlType(types.INT64)))
    assert struct.unpack_from("<q", block_zonemap(column), 8) == (total,)


def test_bools_are_bounded_by_their_conjunction_and_no_number_bounds_nothing() -> None:
    flags = encode(pa.array([True, False, None]), Column("b", 0, SqlType(types.BOOL)))
    assert (block_zonemap(flags)[0], block_zonemap(flags)[31], block_zonemap(flags)[62]) == (0, 0, 0x80)
    floats = encode(pa.array([1.0, float("nan")]), Column("f", 0, SqlType(types.FLOAT64)))
    assert block_zonemap(floats)[62] == 0
    nothing = encode(pa.array([None], pa.float64()), Column("f", 0, SqlType(types.FLOAT64)))
    assert (block_zonemap(nothing)[30], block_zonemap(nothing)[61], block_zonemap(nothing)[62]) == (8, 8, 0)
