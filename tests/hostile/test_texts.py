"""Texts from a server that would keep a careless pattern busy for minutes, and values outside every calendar."""

import struct

import pyarrow as pa
import pymysql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.client.classification import classify, mask
from ccpr.matrixone.ddl.definition import enum_members
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.stats import STATS_SIZE, ObjectStats, stats_columns
from ccpr.mirror.errors import MirrorDamaged, PointNotReached
from ccpr.mirror.layout import LEDGER_SCHEMA
from ccpr.state.context import Context
from tests.hostile.targets.lists import Stats
from tests.hostile.targets.mirror_files import ArrowFiles, MemoryStore, Points, mirror_of
from tests.support.packed_keys import unpack_key

_TIMES = 150_000  # earlier patterns took up to two minutes for 60,000, and six times as long for these


@pytest.mark.parametrize(
    "text", ["'" + "\\'" * _TIMES, "/* " * _TIMES, "'a" * _TIMES, "`" * (_TIMES + 1), "(" * _TIMES, '"' + "\\" * _TIMES]
)
def test_a_ddl_text_without_its_closing_quotes_is_read_in_one_pass(text: str) -> None:
    enum_members(text)


@pytest.mark.parametrize(
    "text", ["mysql://" * _TIMES, "mysql://" + "a" * _TIMES + ":" * _TIMES, "identified by '" * _TIMES]
)
def test_an_error_text_full_of_uris_is_masked_in_one_pass(text: str) -> None:
    classify(pymysql.err.OperationalError(20101, text), "SELECT 1")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("no mysql://a#b:p@w@h:6001/x.", "no mysql://a#b:***@h:6001/x."),
        ("'mysql://u:p@h' and MYSQL://v:q@i", "'mysql://u:***@h' and MYSQL://v:***@i"),
        ("mysql://u@h:6001", "mysql://u@h:6001"),
        ("identified by 'it''s' mysql://h", "identified by '***' mysql://h"),
    ],
)
def test_passwords_are_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_a_time_beyond_every_calendar_is_a_point_not_reached() -> None:
    store = MemoryStore(Points()._files)
    with pytest.raises(PointNotReached, match="1000000000000000000000000000000 ns"):
        mirror_of(store).point(10**30)


@pytest.mark.parametrize("kind", [0, 1])
def test_an_arrow_file_cut_anywhere_is_damage(kind: int) -> None:
    target = ArrowFiles()
    data = bytes((kind,)) + target._seeds[kind]
    assert target.run(data) == "rows"
    for length in range(1, len(data), 7):
        with pytest.raises(MirrorDamaged):
            target.run(data[:length])


def test_nulls_in_a_column_that_may_have_none_are_damage() -> None:
    nullable = pa.schema([pa.field(field.name, field.type) for field in LEDGER_SCHEMA])
    columns = [pa.array([None], field.type) for field in nullable]
    mirror = mirror_of(MemoryStore())
    path = mirror.write_ledger(pa.Table.from_arrays(columns, schema=LEDGER_SCHEMA), 1, 1)
    with pytest.raises(MirrorDamaged):
        mirror.files.read_arrow(path, LEDGER_SCHEMA)


@settings(max_examples=200, deadline=None)
@given(
    number=st.integers(0, 10**6),
    rows=st.integers(0, 2**32 - 1),
    blocks=st.integers(0, 2**32 - 1),
    flags=st.integers(0, 255),
)
def test_one_and_many_stats_are_read_alike(number: int, rows: int, blocks: int, flags: int) -> None:
    seeds = Stats()._seeds
    raw = bytearray(seeds[number % len(seeds)])
    raw[73:81] = struct.pack("<II", rows, blocks)
    raw[153] = flags
    (many,) = stats_columns(pa.array([bytes(raw)], pa.binary())).to_pylist()
    try:
        one = ObjectStats.parse(bytes(raw))
    except CcprError:
        return
    assert len(raw) == STATS_SIZE
    fields = ("name", "rows", "blocks", "size", "origin_size", "appendable", "sorted", "created_by_cn")
    assert {name: getattr(one, name) for name in fields} == {name: many[name] for name in fields}
    assert many["name_agrees"]
    assert many["meta_end"] == one.meta.end


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_a_key_or_an_error(raw: bytes) -> None:
    try:
        elements = unpack_key(raw)
    except CcprError:
        return
    assert bool(elements) == bool(raw)


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5).map(repr)
)
def test_any_text_is_a_context_or_an_error(text: str) -> None:
    try:
        context = Context.from_text(text)
    except CcprError:
        return
    assert Context.from_text(context.to_text()) == context
