"""Deletion vectors: bytes as Spark writes them, and vectors that come back."""

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.lake.deletion_vectors import (
    CommitVectors,
    digest_of_rows,
    file_of,
    is_in_log,
    rows_of,
    serialized,
    unique_id,
    unz85,
    z85,
)

ROWS = np.array([3, 4, 7, 11, 18, 29])
INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"  # of these rows, by Spark
row_sets = st.sets(st.one_of(st.integers(0, 400), st.integers(2**32 - 50, 2**32 + 50), st.integers(0, 2**45)))


def no_file(name: str, offset: int, size: int) -> bytes:
    raise AssertionError(name)


def read_from(content: bytes) -> Any:
    return lambda name, offset, size: content[offset : offset + size]


def test_a_vector_in_the_log_is_as_spark_writes_it() -> None:
    assert z85(serialized(ROWS)) == INLINE
    vector = {"storageType": "i", "pathOrInlineDv": INLINE, "sizeInBytes": 44, "cardinality": 6}
    assert rows_of(vector, no_file).tolist() == ROWS.tolist()
    assert is_in_log(vector)


def test_a_file_of_vectors_has_version_sizes_and_checksums() -> None:
    vectors = CommitVectors()
    first, second = vectors.add(ROWS), vectors.add(np.array([2**32 + 1]))
    named = vectors.name_file()
    assert named is not None
    assert first is not None
    assert second is not None
    name, content = named
    data = serialized(ROWS)
    framed = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    assert content[: 1 + len(framed)] == b"\x01" + framed
    assert (first["offset"], second["offset"]) == (1, 1 + len(framed))
    assert file_of(first) == file_of(second) == name
    assert rows_of(first, read_from(content)).tolist() == ROWS.tolist()
    assert rows_of(second, read_from(content)).tolist() == [2**32 + 1]


def test_the_same_vectors_have_the_same_file() -> None:
    names = []
    for _ in range(2):
        vectors = CommitVectors()
        vectors.add(ROWS)
        named = vectors.name_file()
        assert named is not None
        names.append(named[0])
    assert names[0] == names[1]


def test_no_rows_are_no_vector() -> None:
    vectors = CommitVectors()
    assert vectors.add(np.empty(0, np.int64)) is None
    assert vectors.name_file() is None
    assert rows_of(None, no_file).tolist() == []
    assert unique_id(None) == ""


@given(row_sets)
def test_every_set_of_rows_comes_back(rows: set[int]) -> None:
    wanted = np.array(sorted(rows), np.int64)
    vectors = CommitVectors()
    vector = vectors.add(wanted)
    named = vectors.name_file()
    content = b"" if named is None else named[1]
    assert rows_of(vector, read_from(content)).tolist() == wanted.tolist()
    assert (vector or {"cardinality": 0})["cardinality"] == len(rows)


@given(row_sets, row_sets)
def test_digests_tell_sets_of_rows_apart(one: set[int], other: set[int]) -> None:
    first, second = (digest_of_rows(np.array(sorted(rows), np.int64)) for rows in (one, other))
    assert (first == second) == (one == other)


@given(st.binary(max_size=200))
def test_z85_comes_back_but_for_filling(data: bytes) -> None:
    assert unz85(z85(data))[: len(data)] == data


@pytest.mark.parametrize("text", ["0000", "00000,", '"""""', "#####"])
def test_what_is_no_z85_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="Z85"):
        unz85(text)


def test_a_damaged_vector_is_an_error() -> None:
    vectors = CommitVectors()
    vector = vectors.add(ROWS)
    named = vectors.name_file()
    assert named is not None
    assert vector is not None
    for place in range(1, len(named[1])):
        damaged = bytearray(named[1])
        damaged[place] ^= 1
        with pytest.raises(ValueError, match="damaged"):
            rows_of(vector, read_from(bytes(damaged)))
    for change in ({"sizeInBytes": 43}, {"cardinality": 7}, {"storageType": "p"}):
        with pytest.raises(ValueError, match="vector"):
            rows_of({**vector, **change}, read_from(named[1]))
