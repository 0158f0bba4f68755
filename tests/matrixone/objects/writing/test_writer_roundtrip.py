"""What the writer wrote, our reader reads: every type, any number of rows and blocks."""

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE, ROWID_SIZE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.writing.writer import cut_blocks, sorted_blocks, write_data, write_tombstones
from ccpr.matrixone.objects.writing.zonemaps import rowid_order_columns
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from tests.matrixone.objects.generated_rows import ALL_TYPES, Generated, generated

NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00003"
_ROWS = st.sampled_from((0, 1, 2, 63, 64, 65, 500, 8191, 8192, 8193, 20000))
_NULLS = st.sampled_from((0.0, 0.1, 0.9, 1.0))
_SEEDS = st.integers(0, 2**32 - 1)
KEYS = [
    *(
        types.INT8,
        types.INT32,
        types.INT64,
        types.UINT16,
        types.UINT64,
        types.BIT,
        types.BOOL,
        types.FLOAT64,
        types.DECIMAL64,
    ),
    *(
        types.DECIMAL128,
        types.DECIMAL256,
        types.DATE,
        types.TIME,
        types.DATETIME,
        types.TIMESTAMP,
        types.YEAR,
        types.VARCHAR,
        types.VARBINARY,
    ),
    *(types.UUID, types.ENUM, "set", "packed"),
]


def rowid_sort(rowids: pa.Array) -> np.ndarray:
    """Indices that sort rowids (fixed binary of 24 bytes, without nulls) in the order of the format (7.2)."""
    raw = np.frombuffer(rowids.buffers()[1], np.uint8, len(rowids) * ROWID_SIZE, rowids.offset * ROWID_SIZE)
    return np.lexsort(rowid_order_columns(raw.reshape(-1, ROWID_SIZE))[::-1])


def table_of(*columns: Column) -> Table:
    return Table(1, 1, "db", "t", Kind.TABLE, columns)


def commit_times(blocks: list[pa.RecordBatch], seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    times = []
    for block in blocks:
        some = np.zeros(block.num_rows, TIMESTAMP_DTYPE)
        some["physical"], some["logical"] = (
            random.integers(0, 2**62, block.num_rows),
            random.integers(0, 2**32, block.num_rows),
        )
        times.append(some)
    return times


def assert_read_back(data: bytes, table: Table, blocks: list[pa.RecordBatch]) -> ObjectFile:
    file = ObjectFile(data)
    assert [block.rows for block in file.blocks] == [block.num_rows for block in blocks]
    for number, block in enumerate(blocks):
        for column, values in zip(table.columns, block.columns, strict=True):
            found = file.column(number, column)
            found.validate(full=True)
            assert found.type == values.type
            if column.type.oid == types.JSON:
                assert [parsed(text) for text in found.to_pylist()] == [parsed(text) for text in values.to_pylist()]
            else:
                assert found.equals(values)
    numbers = list(range(len(blocks)))
    for column in table.columns if numbers else ():
        by_block = pa.concat_arrays([file.column(number, column) for number in numbers])
        together = file.values(numbers, column)
        together.validate(full=True)
        assert together.equals(by_block)
    return file


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_int=float)


@pytest.mark.parametrize("kind", ALL_TYPES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_type_round_trips(kind: int | str, data: st.DataObject) -> None:
    column: Generated = data.draw(generated(kind))
    array = column.array(data.draw(_ROWS), data.draw(_NULLS), data.draw(_SEEDS))
    table = table_of(column.column)
    blocks = cut_blocks(pa.table([array], arrow_schema(table.columns)))
    written = write_data(table, blocks, name=NAME, appendable=False, by_cn=True, commit_ts=None)
    file = assert_read_back(written.content, table, blocks)
    file.check(written.stats, inflate=True, deep=True)
    assert written.stats.size == len(written.content)
    assert file.sort_key is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_tables_of_any_columns_round_trip_with_their_commit_times(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(ALL_TYPES), min_size=1, max_size=8))
    gap = data.draw(st.integers(0, 2))  # a dropped column leaves a hole in the sequence numbers
    columns = [data.draw(generated(kind, seqnum * (1 + gap), f"c{seqnum}")) for seqnum, kind in enumerate(kinds)]
    rows, nulls, seed = data.draw(_ROWS), data.draw(_NULLS), data.draw(_SEEDS)
    appendable = data.draw(st.booleans()) and 0 < rows <= 8192
    table = table_of(*(column.column for column in columns))
    arrays = [column.array(rows, nulls, seed + number) for number, column in enumerate(columns)]
    blocks = cut_blocks(pa.table(arrays, arrow_schema(table.columns)))
    times = commit_times(blocks, seed)
    written = write_data(
        table, blocks, name=NAME, appendable=appendable, by_cn=False, commit_ts=times, level=3, schema_version=9
    )
    file = assert_read_back(written.content, table, blocks)
    file.check(written.stats, inflate=True)
    assert (file.appendable, file.schema_version) == (appendable, 9)
    assert (written.stats.appendable, written.stats.sorted, written.stats.created_by_cn, written.stats.level) == (
        appendable,
        False,
        False,
        3,
    )
    for number, time in enumerate(times):
        found = file.commit_timestamps(number)
        assert found is not None
        assert (found == time).all()
    if appendable:
        own = file._vector(0, 1 + max(column.seqnum for column in table.columns), types.ROWID)
        assert own is not None
        expected = np.zeros(rows, ROWID_DTYPE)
        expected["object"], expected["row"] = np.void(written.stats.object_id), np.arange(rows)
        assert own.slots.to_pybytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_sorted_objects_are_in_the_order_of_their_zone_maps(kind: int | str, data: st.DataObject) -> None:
    key: Generated = data.draw(generated(kind, 1, "k"))
    table = table_of(Column("n", 0, SqlType(types.INT32)), key.column)
    rows, seed = data.draw(_ROWS), data.draw(_SEEDS)
    arrays = [pa.array(np.arange(rows), pa.int32()), key.array(rows, data.draw(_NULLS), seed)]
    blocks = sorted_blocks(table, pa.table(arrays, arrow_schema(table.columns)), 1)
    assert sorted(number for block in blocks for number in block.column(0).to_pylist()) == list(range(rows))
    written = write_data(table, blocks, name=NAME, appendable=False, by_cn=False, commit_ts=None, cluster_by=1)
    file = assert_read_back(written.content, table, blocks)
    assert (file.sort_key, written.stats.sorted) == (1, True)
    assert file.columns["zonemap"][1].tobytes() == written.stats.sort_key_zonemap
    bounds = [parse_zonemap(block.columns["zonemap"][1].tobytes()) for block in file.blocks]
    known = [bound for bound in bounds if bound is not None]
    for before, after in itertools.pairwise(known):
        assert before.minimum <= after.minimum
        assert before.maximum is None or before.minimum <= before.maximum
    if known and known[0].oid not in (types.UUID,):
        whole = parse_zonemap(written.stats.sort_key_zonemap)
        assert whole is not None
        assert whole.minimum == min(bound.minimum for bound in known)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_tombstones_round_trip(data: st.DataObject) -> None:
    key: Generated = data.draw(generated(data.draw(st.sampled_from(KEYS)), 4, "k"))
    rows, seed, by_cn = data.draw(_ROWS), data.draw(_SEEDS), data.draw(st.booleans())
    random = np.random.default_rng(seed)
    rowids = np.zeros(rows, ROWID_DTYPE)
    plain = rowids.view(np.uint8).reshape(rows, 24)
    plain[:, 0], plain[:, 17] = random.integers(0, 3, rows), random.integers(0, 2, rows)
    rowids["block"], rowids["row"] = random.integers(0, 1000, rows), random.integers(0, 2**32, rows)
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), rows, [None, pa.py_buffer(plain.tobytes())])
    array = array.take(pa.array(rowid_sort(array)))
    schema = pa.schema([("rowid", pa.binary(24)), ("key", arrow_schema([key.column]).field(0).type)])
    blocks = cut_blocks(pa.table([array, key.array(rows, 0, seed)], schema))
    times = None if by_cn else commit_times(blocks, seed)
    written = write_tombstones(
        [block.column(0) for block in blocks],
        [block.column(1) for block in blocks],
        key.column,
        name=NAME,
        appendable=not by_cn and 0 < rows <= 8192,
        by_cn=by_cn,
        commit_ts=times,
    )
    file = ObjectFile(written.content)
    file.check(written.stats, inflate=True)
    assert (written.stats.sorted, written.stats.created_by_cn) == (True, by_cn)
    stored = Column("k", 1, key.column.type, key.column.hidden, key.column.labels)
    for number, block in enumerate(blocks):
        assert file.rowids(number).tobytes() == b"".join(block.column(0).to_pylist())
        assert file.column(number, stored).equals(block.column(1))
        if times is not None:
            found = file.commit_timestamps(number)
            assert found is not None
            assert (found == times[number]).all()
