"""The writer's parts against independent readings of the format: filters, packed keys, binary JSON, zone maps; and
what it refuses."""

import json
import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixone.objects import types
from matrixone.objects.errors import BadObjectName, NotWritable, ObjectUnsupported
from matrixone.objects.keys import unpack_key
from matrixone.objects.timestamp import TIMESTAMP_DTYPE
from matrixone.objects.types import arrow_type
from matrixone.objects.writing.bytejson import json_binary
from matrixone.objects.writing.filters import plain_filters, rowid_filters, xxhash64
from matrixone.objects.writing.keys import packed_keys
from matrixone.objects.writing.values import encode
from matrixone.objects.writing.vectors import varlena_column
from matrixone.objects.writing.writer import write_data, write_tombstones
from matrixone.objects.writing.zonemaps import block_zonemap, object_zonemap
from matrixone.schema import Column, Kind, SqlType, Table
from tests.matrixone.objects import filter_reading
from tests.matrixone.objects.building import json_bytes
from tests.matrixone.objects.filter_reading import contains, hybrid_parts
from tests.matrixone.objects.generated_rows import Generated, generated

NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00003"
_INT = Column("n", 0, SqlType(types.INT32, 32, -1))
_TABLE = Table(1, 1, "db", "t", Kind.TABLE, (_INT,))
KEY_TYPES = [
    *(
        types.BOOL,
        types.BIT,
        types.INT8,
        types.INT16,
        types.INT32,
        types.INT64,
        types.UINT8,
        types.UINT16,
        types.UINT32,
        types.UINT64,
    ),
    *(
        types.FLOAT32,
        types.FLOAT64,
        types.DECIMAL64,
        types.DECIMAL128,
        types.DATE,
        types.TIME,
        types.DATETIME,
        types.TIMESTAMP,
        types.YEAR,
    ),
    *(types.CHAR, types.VARBINARY, types.TEXT, types.UUID, types.ENUM, "set"),
]


def hashes(values: list[bytes]) -> np.ndarray:
    lengths = np.array([len(value) for value in values], np.int64)
    return xxhash64(np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths) - lengths, lengths)


@given(st.lists(st.binary(max_size=100), max_size=30))
def test_hashes_are_those_of_the_algorithm(values: list[bytes]) -> None:
    assert hashes(values).tolist() == [filter_reading.xxhash64(value) for value in values]


def test_hashes_are_those_of_the_published_vectors() -> None:
    assert [int(value) for value in hashes([b"", b"a", b"abc"])] == [
        0xEF46DB3751D8E999,
        0xD24EC4F1A98C6E5B,
        0x44BC2CF5AD770999,
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=12), max_size=60), max_size=12))
def test_filters_answer_every_key_with_yes(groups: list[list[bytes]]) -> None:
    filters = plain_filters([hashes(group) for group in groups])
    for group, filter_ in zip(groups, filters, strict=True):
        assert all(contains(filter_, key) for key in group)


def test_filters_that_need_another_seed_answer_every_key_with_yes() -> None:
    keys = [[struct.pack("<iq", block, number) for number in range(300)] for block in range(40)]
    filters = plain_filters([hashes(block) for block in keys])
    later = [(block, filter_) for block, filter_ in zip(keys, filters, strict=True) if filter_[:8] != filters[0][:8]]
    assert later, "one of these has no filter with the first seed"
    assert all(contains(filter_, key) for block, filter_ in later for key in block)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 8192])
def test_filters_answer_few_other_keys_with_yes(count: int) -> None:
    (filter_,) = plain_filters([hashes([struct.pack("<q", number) for number in range(count)])])
    others = sum(contains(filter_, struct.pack("<q", -number - 1)) for number in range(3000))
    assert others < 3000 * 0.012, "1/256 of them, by the eight bits of a fingerprint"


def test_a_filter_over_one_repeated_key_can_be_built() -> None:
    (filter_,) = plain_filters([hashes([b"same"] * 8192)])
    assert contains(filter_, b"same")


def test_filters_of_tombstones_know_objects_blocks_and_rows() -> None:
    rowids = np.random.default_rng(5).integers(0, 256, (3000, 24), np.uint8)
    rowids[:, 2:18] = 7
    (filter_,) = rowid_filters([rowids])
    for size, part in hybrid_parts(filter_):
        assert all(contains(part, row.tobytes()[:size]) for row in rowids[::10])


@pytest.mark.parametrize("kind", KEY_TYPES)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_packed_keys_unpack_and_order_as_their_values(kind: int | str, data: st.DataObject) -> None:
    first: Generated = data.draw(generated(kind, 0, "a"))
    second: Generated = data.draw(generated(types.VARCHAR, 1, "b"))
    arrays = [column.array(40, nulls, seed) for column, nulls, seed in ((first, 0.2, 1), (second, 0.0, 2))]
    columns = [first.column, second.column]
    packed = packed_keys(columns, arrays)
    full = packed_keys(columns, arrays, full=True)
    slots = encode(arrays[0], first.column)
    for row, (key, whole) in enumerate(zip(packed.to_pylist(), full.to_pylist(), strict=True)):
        elements = unpack_key(whole)
        assert elements[1].value == arrays[1][row].as_py().encode()
        if arrays[0][row].as_py() is None:
            assert key is None
            assert elements[0].value is None
            continue
        assert key == whole
        if slots.values is not None:
            assert elements[0].value == slots.values[row].as_py()
        elif kind in (types.FLOAT32, types.FLOAT64):
            assert elements[0].value == arrays[0][row].as_py()
        elif kind == types.UUID:
            assert str(elements[0].value) == arrays[0][row].as_py()
        else:
            stored = slots.slots.reshape(-1).view(np.uint8).reshape(40, -1)[row].tobytes()
            signed = kind not in (
                types.BIT,
                types.UINT8,
                types.UINT16,
                types.UINT32,
                types.UINT64,
                types.ENUM,
                types.BOOL,
                "set",
            )
            assert int(elements[0].value) == int.from_bytes(stored, "little", signed=signed)  # pyright: ignore[reportArgumentType]
    if kind not in (types.ENUM, "set"):  # these order by number, not by label
        rows = [(arrays[0][row].as_py(), arrays[1][row].as_py().encode(), full[row].as_py()) for row in range(40)]
        known = sorted((row for row in rows if row[0] is not None), key=lambda row: row[2])
        for before, after in pairwise(known):
            one, other = before[0], after[0]
            if isinstance(one, str):
                one, other = one.encode(), other.encode()
            if one == 0.0 == other and kind in (types.FLOAT32, types.FLOAT64):
                continue  # zero has two signs, and two keys
            assert (one, before[1]) <= (other, after[1])


def test_a_type_without_a_place_in_keys_is_refused() -> None:
    column = Column("d", 0, SqlType(types.DECIMAL256, 60, 0))
    with pytest.raises(NotWritable, match="cannot be part of a key"):
        packed_keys([column], [pa.array(["1"])])


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=15,
)


@given(_json)
def test_json_becomes_the_bytes_of_the_format(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with pytest.raises(NotWritable):
            json_binary(pa.array([json.dumps(value)]), subject="test")
        return
    assert json_binary(pa.array([json.dumps(value), None]), subject="test").to_pylist() == [json_bytes(value), None]


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[Infinity]", "1e999", "[" * 600 + "]" * 600, "9" * 400, '"\\ud800"', "[" * 100_000]
)
def test_text_that_no_json_column_holds_is_refused(text: str) -> None:
    with pytest.raises(NotWritable):
        json_binary(pa.array([text]), subject="test")


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


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.data())
def test_a_part_of_a_column_is_written_as_if_it_stood_alone(values: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    kind = SqlType(types.VARBINARY)
    part = varlena_column(kind, pa.array(values, pa.binary()).slice(start, stop - start), "test")
    assert part.entry() == varlena_column(kind, pa.array(values[start:stop], pa.binary()), "test").entry()


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


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SqlType(types.UINT8), [-1]),
        (SqlType(types.UINT8), [256]),
        (SqlType(types.UINT64), [Decimal(2**64)]),
        (SqlType(types.UINT64), [Decimal(-1)]),
        (SqlType(types.BIT, 3), [Decimal(8)]),
        (SqlType(types.DATE), [-719163]),
        (SqlType(types.DATE), [2932897]),
        (SqlType(types.DATETIME), [253402300800000000]),
        (SqlType(types.YEAR), [1900]),
        (SqlType(types.UUID), ["00000000-0000-0000-0000-00000000000g"]),
        (SqlType(types.UUID), ["short"]),
        (SqlType(types.VARCHAR, 3), ["äöüß"]),
        (SqlType(types.BINARY, 3), [b"abcd"]),
        (SqlType(types.VECF32, 3), [[1.0, 2.0]]),
        (SqlType(types.VECF32, 2), [[1.0, None]]),
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
def test_what_the_rows_do_not_bear_out_is_refused(
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
