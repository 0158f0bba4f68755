"""The writer's filters against a reader of filters that shares no code with it."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.writing.fuse_filters import plain_filters, rowid_filters, xxhash64
from tests.matrixone.objects import filter_reading
from tests.matrixone.objects.filter_reading import contains, hybrid_parts


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
