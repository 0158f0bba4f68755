import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.errors import BadObjectName, ObjectDamaged
from ccpr.matrixone.objects.identifiers import object_name
from ccpr.matrixone.objects.stats import (
    STATS_DTYPE,
    STATS_SIZE,
    ObjectStats,
    are_sound,
    check_object_name,
    stats_columns,
    without_delete_mark,
    without_unknown_flags,
)
from tests.matrixone.objects.building import OBJECT_ID, column_entry, object_file, stats_bytes

FILE = object_file([(3, {0: (22, column_entry(22, bytes(12), 3))})])
RAW = stats_bytes(FILE, rows=3, blocks=1, flags=0x02 | 0x04 | 5 << 5)


def test_stats_are_read_field_by_field() -> None:
    assert STATS_DTYPE.itemsize == STATS_SIZE == len(RAW)
    stats = ObjectStats.parse(RAW)
    assert stats.raw == RAW
    assert stats.object_id == OBJECT_ID
    assert stats.name == "00010203-0405-0607-0809-0a0b0c0d0e0f_00001" == object_name(OBJECT_ID)
    assert (stats.rows, stats.blocks, stats.size, stats.level) == (3, 1, len(FILE), 5)
    assert (stats.appendable, stats.sorted, stats.created_by_cn) == (False, True, True)
    assert stats.meta.end + 64 == stats.size
    assert pickle.loads(pickle.dumps(stats)) == stats


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        RAW[:-1],
        RAW + b"\x00",
        bytes(STATS_SIZE),
        RAW[:20] + b"X" + RAW[21:],
        RAW[:145] + b"\x01" + RAW[146:],
        stats_bytes(FILE, rows=100_000, blocks=1),
        stats_bytes(FILE, rows=1, blocks=2**32 - 1),
        stats_bytes(FILE, rows=10_000, blocks=2, flags=0x01),
    ],
)
def test_stats_that_contradict_themselves_are_damage(raw: bytes) -> None:
    with pytest.raises(ObjectDamaged):
        ObjectStats.parse(raw)


@given(st.binary(min_size=STATS_SIZE, max_size=STATS_SIZE))
def test_any_bytes_are_stats_or_damage(raw: bytes) -> None:
    with pytest.raises(ObjectDamaged):
        ObjectStats.parse(raw)
    assert stats_columns(pa.array([raw], pa.binary())).num_rows == 1


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(STATS_SIZE)])
def test_columns_of_many_stats_say_what_each_says(kind: pa.DataType) -> None:
    wrong_name = RAW[:20] + b"X" + RAW[21:]
    array = pa.array([wrong_name, RAW, stats_bytes(FILE, rows=2**32 - 1, blocks=7, flags=1), wrong_name], kind).slice(
        1, 3
    )
    batch = stats_columns(array)
    assert batch.column("name").to_pylist() == ["00010203-0405-0607-0809-0a0b0c0d0e0f_00001"] * 3
    assert batch.column("rows").to_pylist() == [3, 2**32 - 1, 3]
    assert batch.column("size").to_pylist() == [len(FILE)] * 3
    assert batch.column("meta_end").to_pylist() == [len(FILE) - 64] * 3
    assert batch.column("appendable").to_pylist() == [False, True, False]
    assert batch.column("created_by_cn").to_pylist() == [True, False, True]
    assert batch.column("name_agrees").to_pylist() == [True, True, False]
    assert stats_columns(array.slice(0, 0)).num_rows == 0


@given(
    changes=st.dictionaries(
        st.sampled_from([20, 60, 61, 65, 73, 77, 145, 153]), st.sampled_from([0, 1, 2, 255]), max_size=3
    ),
    rows=st.sampled_from([0, 1, 65_536, 65_537, 2**32 - 1]),
    blocks=st.sampled_from([0, 1, 2, 65_536, 65_537, 2**32 - 1]),
    flags=st.integers(0, 7),
)
def test_what_is_sound_in_many_is_what_can_be_read_alone(
    changes: dict[int, int], rows: int, blocks: int, flags: int
) -> None:
    raw = bytearray(stats_bytes(FILE, rows=rows, blocks=blocks, flags=flags))
    for place, value in changes.items():
        raw[place] = value
    try:
        ObjectStats.parse(bytes(raw))
        sound = True
    except ObjectDamaged:
        sound = False
    assert are_sound(stats_columns(pa.array([RAW, bytes(raw)], pa.binary()))).to_pylist() == [True, sound]


@pytest.mark.parametrize("array", [pa.array([RAW, RAW[:-1]]), pa.array([RAW, None]), pa.array([b"abc"], pa.binary(3))])
def test_columns_of_stats_refuse_any_other_length(array: pa.Array) -> None:
    with pytest.raises(ObjectDamaged):
        stats_columns(array)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../" + "a" * 39,
        "00010203-0405-0607-0809-0A0b0c0d0e0f_00001",
        "00010203-0405-0607-0809-0a0b0c0d0e0f_00001\n",
        "x" * 42,
    ],
)
def test_only_names_of_objects_become_paths(name: str) -> None:
    with pytest.raises(BadObjectName):
        check_object_name(name)
    assert check_object_name(ObjectStats.parse(RAW).name) == ObjectStats.parse(RAW).name


def test_the_mark_of_a_delete_is_taken_off_and_nothing_else() -> None:
    marked = RAW[:-1] + bytes((RAW[-1] | 0x08,))
    cells = pa.array([b"before", RAW, marked, RAW], pa.binary())
    assert without_delete_mark(cells.slice(1)).to_pylist() == [RAW, RAW, RAW]
    assert without_delete_mark(cells.slice(1, 1)).equals(cells.slice(1, 1))
    assert without_delete_mark(cells.slice(0, 0)).to_pylist() == []
    assert ObjectStats.parse(marked).level == ObjectStats.parse(RAW).level == 5
    with pytest.raises(ObjectDamaged):
        without_delete_mark(cells)


def test_flags_that_are_not_known_do_not_count_where_stats_are_compared() -> None:
    unknown, other = RAW[:-1] + bytes((RAW[-1] | 0x10,)), RAW[:-1] + bytes((RAW[-1] ^ 0x01,))
    cells = pa.chunked_array([[RAW, unknown], [other, RAW[:20]]], pa.binary())
    assert without_unknown_flags(cells).to_pylist() == [RAW, RAW, other, RAW[:20]]
    assert ObjectStats.parse(unknown).raw == unknown
