import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported
from ccpr.matrixone.objects.vectors import Vector, gather, parse_vector, varlena_array
from tests.matrixone.objects.building import SIZES, column_entry, nulls_bytes, varlena_entry, varlena_slots

VARCHAR, INT32 = 61, 22
_lengths = st.sampled_from((0, 1, 3, 12, 13, 23, 24, 25, 60, 300))
_values = st.lists(st.one_of(st.none(), _lengths.flatmap(lambda n: st.binary(min_size=n, max_size=n))), max_size=40)


def parse(entry: bytes, oid: int, rows: int) -> Vector:
    return parse_vector(pa.py_buffer(entry), oid, SIZES[oid], rows, "test")


@settings(max_examples=300, deadline=None)
@given(_values, st.data())
def test_varlena_values_are_those_that_were_written(values: list[bytes | None], data: st.DataObject) -> None:
    outside = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    version = data.draw(st.sampled_from((1, 2)))
    entry = varlena_entry(VARCHAR, values, outside=outside, share=data.draw(st.booleans()), version=version)
    array = varlena_array(parse(entry, VARCHAR, len(values)), "test")
    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == values


@pytest.mark.parametrize("length", [0, 1, 12, 13, 23, 24, 100])
@pytest.mark.parametrize("with_null", [False, True])
def test_values_of_one_length_need_no_views(length: int, with_null: bool) -> None:
    values: list[bytes | None] = [bytes([row % 251]) * length for row in range(500)]
    if with_null:
        values[77] = None
    assert varlena_array(parse(varlena_entry(VARCHAR, values), VARCHAR, 500), "test").to_pylist() == values


def test_a_value_that_ends_outside_the_area_is_damage() -> None:
    slots, area = varlena_slots([b"x" * 30])
    with pytest.raises(ObjectDamaged, match="ends outside"):
        varlena_array(parse(column_entry(VARCHAR, slots, 1, area=area[:-1]), VARCHAR, 1), "test")


@pytest.mark.parametrize(("start", "length"), [(0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFF0, 0x20), (0, 0xFFFFFFFF), (5, 28)])
def test_starts_and_lengths_of_values_cannot_overflow(start: int, length: int) -> None:
    slots = struct.pack("<III", 0xFFFFFFFF, start, length) + bytes(12)
    with pytest.raises((ObjectDamaged, ObjectUnsupported)):
        varlena_array(parse(column_entry(VARCHAR, slots, 1, area=bytes(32)), VARCHAR, 1), "test")


@pytest.mark.parametrize("places", [[(0, 1 << 31), (1 << 31, (1 << 31) + 16), (16, 6)], [(8, 4), (12, 30)], [(40, 0)]])
def test_values_that_follow_one_another_have_to_be_in_the_area(places: list[tuple[int, int]]) -> None:
    """Counted in 32 bits those of the first case end inside."""
    slots = b"".join(struct.pack("<III", 0xFFFFFFFF, *place) + bytes(12) for place in places)
    with pytest.raises((ObjectDamaged, ObjectUnsupported)):
        varlena_array(parse(column_entry(VARCHAR, slots, len(places), area=bytes(32)), VARCHAR, len(places)), "test")


def test_a_slot_that_is_neither_inline_nor_outside_is_damage() -> None:
    slots = bytes([24]) + bytes(23)
    with pytest.raises(ObjectDamaged, match="neither inline"):
        varlena_array(parse(column_entry(VARCHAR, slots, 1, area=bytes(100)), VARCHAR, 1), "test")


def test_values_that_share_an_area_beyond_two_gigabytes_are_refused_before_anything_is_allocated() -> None:
    slots = (struct.pack("<III", 0xFFFFFFFF, 0, 1 << 20) + bytes(12)) * 4096
    with pytest.raises(ObjectUnsupported, match="bytes in one block"):
        varlena_array(parse(column_entry(VARCHAR, slots, 4096, area=bytes(1 << 20)), VARCHAR, 4096), "test")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.booleans(), max_size=200), st.sampled_from((1, 2)), st.integers(0, 300))
def test_null_bitmaps_may_be_shorter_or_longer_than_the_rows(null: list[bool], version: int, bits: int) -> None:
    entry = column_entry(
        INT32, bytes(4 * len(null)), len(null), nulls=nulls_bytes(null, version=version, bits=bits), version=version
    )
    vector = parse(entry, INT32, len(null))
    mask = vector.null_mask()
    expected = [is_null and row < bits for row, is_null in enumerate(null)]
    assert (mask.tolist() if mask is not None else [False] * len(null)) == expected
    array = pa.Array.from_buffers(pa.int32(), len(null), [vector.validity(), vector.slots])
    assert array.is_null().to_pylist() == expected


@pytest.mark.parametrize("version", [1, 2])
def test_a_constant_vector_repeats_its_slot(version: int) -> None:
    entry = column_entry(INT32, struct.pack("<i", -7), 5, constant=True, version=version)
    assert parse(entry, INT32, 5).fixed("<i4").tolist() == [-7] * 5
    slots, area = varlena_slots([b"a value in the area, long"])
    entry = column_entry(VARCHAR, slots, 3, area=area, constant=True, version=version)
    assert varlena_array(parse(entry, VARCHAR, 3), "test").to_pylist() == [b"a value in the area, long"] * 3


def test_a_constant_vector_is_null_without_a_slot_or_with_its_first_bit_set() -> None:
    for entry in (
        column_entry(VARCHAR, b"", 9, constant=True),
        column_entry(VARCHAR, b"\xff" * 24, 9, constant=True, nulls=nulls_bytes([True])),
        column_entry(VARCHAR, b"\xff" * 24, 9, constant=True, version=1, nulls=nulls_bytes([True], version=1)),
    ):
        assert varlena_array(parse(entry, VARCHAR, 9), "test").to_pylist() == [None] * 9
    assert varlena_array(parse(column_entry(VARCHAR, b"", 0, constant=True), VARCHAR, 0), "test").to_pylist() == []


def test_what_does_not_agree_is_damage_and_what_is_unknown_is_unsupported() -> None:
    sound = column_entry(INT32, bytes(12), 3)
    assert parse(sound, INT32, 3).rows == 3
    for damaged in (
        sound[:-1],
        sound + b"\x00",
        b"\x03" + sound[1:],
        column_entry(INT32, bytes(8), 3),
        column_entry(INT32, bytes(12), 4),
        column_entry(INT32, bytes(2), 3, constant=True),
        column_entry(INT32, bytes(12), 3, nulls=bytes(10)),
        column_entry(INT32, bytes(12), 3, nulls=struct.pack("<qQQ", 1, 64, 16) + bytes(8)),
        column_entry(INT32, bytes(12), 3, nulls=struct.pack("<qQQ", 1, 2**64 - 1, 8) + bytes(8)),
        column_entry(23, bytes(24), 3),
        sound[:17],
    ):
        with pytest.raises(ObjectDamaged):
            parse(damaged, INT32, 3)
    for unknown in (column_entry(INT32, bytes(12), 3, version=3), sound[:4] + b"\x02" + sound[5:]):
        with pytest.raises(ObjectUnsupported):
            parse(unknown, INT32, 3)


@given(st.binary(max_size=80), st.data())
def test_gathered_values_are_the_named_ranges(data: bytes, draw: st.DataObject) -> None:
    ranges = draw.draw(
        st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, len(data))).map(sorted), max_size=20)
    )
    starts, lengths = np.array([a for a, _ in ranges], np.int64), np.array([b - a for a, b in ranges], np.int64)
    assert gather(pa.py_buffer(data), starts, lengths).to_pylist() == [data[a:b] for a, b in ranges]
