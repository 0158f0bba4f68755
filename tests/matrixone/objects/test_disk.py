"""Checksums of a DISK file service: taken off where they are right, and any wrong one found."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects.disk import BLOCK_BYTES, CONTENT_BYTES, framed_size, is_framed, unframe
from ccpr.matrixone.objects.errors import ObjectDamaged
from tests.matrixone.objects.building import column_entry, object_file
from tests.support.disk_files import crc32c, framed
from tests.support.recorded import opened

LENGTHS = (1, 4, 2043, 2044, 2045, 2048, 4087, 4088, 4089, 20_000, 300 * 2044)


def test_the_tests_checksum_is_castagnolis() -> None:
    assert crc32c(np.frombuffer(b"123456789", np.uint8).reshape(1, 9)).tolist() == [0xE3069283]
    assert crc32c(np.zeros((2, 32), np.uint8)).tolist() == [0x8A9136AA] * 2


@pytest.mark.parametrize("length", LENGTHS)
def test_the_content_comes_back(length: int) -> None:
    content = random.Random(length).randbytes(length)
    file = framed(content)
    assert len(file) == framed_size(length)
    assert bytes(unframe(file, at=0, subject="object")) == content


def test_a_flipped_bit_anywhere_is_found_and_its_block_named() -> None:
    chance = random.Random(1)
    file = framed(chance.randbytes(2 * CONTENT_BYTES + 500))
    for place in (*range(12), *chance.sample(range(len(file)), 400), len(file) - 1):
        damaged = bytearray(file)
        damaged[place] ^= 1 << chance.randrange(8)
        with pytest.raises(ObjectDamaged) as raised:
            unframe(bytes(damaged), at=10 * BLOCK_BYTES, subject="object")
        block = (10 + place // BLOCK_BYTES) * BLOCK_BYTES
        assert raised.value.message == f"the block at byte {block} of its file does not have its CRC32C"


def test_a_file_that_ends_in_a_block_is_damaged() -> None:
    file = framed(bytes(3 * CONTENT_BYTES))
    for length in (1, 3, 4, 5, BLOCK_BYTES - 1, BLOCK_BYTES + 2, 2 * BLOCK_BYTES + 100):
        with pytest.raises(ObjectDamaged):
            unframe(file[:length], at=0, subject="object")


def test_blocks_that_changed_places_have_their_checksums_and_only_the_object_shows_it() -> None:
    """The checksum is of a block alone. What follows it in a file is for the check of the object."""
    one, other = framed(b"a" * CONTENT_BYTES), framed(b"b" * CONTENT_BYTES)
    assert bytes(unframe(other + one, at=0, subject="object")) == b"b" * CONTENT_BYTES + b"a" * CONTENT_BYTES


@pytest.mark.parametrize("rows", [1, 400, 511, 512, 2000])
def test_an_object_file_of_either_form_is_read(tmp_path: Path, rows: int) -> None:
    values = np.arange(rows, dtype="<i4")
    content = object_file([(rows, {0: (22, column_entry(22, values.tobytes(), rows))})], compressed=False)
    assert is_framed(pa.py_buffer(framed(content)))
    assert not is_framed(pa.py_buffer(content))
    path = tmp_path / "object"
    path.write_bytes(framed(content))
    read = opened(path)
    assert (read.rows, read.size) == (rows, len(content))
    path.write_bytes(framed(content)[:-1])
    with pytest.raises(ObjectDamaged):
        opened(path)
