"""Large files of an object store: what is asked for is read, in blocks, and a bounded number of them stays."""

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.schema import Column, SqlType
from ccpr.mirror import store as ranges
from ccpr.mirror.errors import MirrorDamaged, StoreFailed
from ccpr.mirror.layout import object_path
from ccpr.mirror.open_store import open_store
from ccpr.mirror.store import BLOCK_BYTES, CACHED_BLOCKS, WHOLE_BYTES, BlockCache, RangedContent, ranged
from tests.matrixone.objects.building import column_entry, object_file, varlena_entry
from tests.support.bucket import Bucket, served

pytestmark = pytest.mark.integration

NAME = object_path("018f0000-0000-7000-8000-000000000001_00000")


class File:
    """A file in memory that notes what is read of it."""

    def __init__(self, size: int) -> None:
        self.content, self.read_bytes, self.reads = random.Random(size).randbytes(size), 0, 0

    def read(self, length: int, offset: int) -> pa.Buffer:
        found = self.content[offset : offset + length]
        assert len(found) == length, "beyond the end"
        self.read_bytes, self.reads = self.read_bytes + length, self.reads + 1
        return pa.py_buffer(found)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "BLOCK_BYTES", 100)
    monkeypatch.setattr(ranges, "CACHED_BLOCKS", 5)


@pytest.mark.parametrize("size", [1, 99, 100, 101, 1234])
def test_every_slice_is_that_of_the_file(size: int, small_blocks: None) -> None:
    file, chance = File(size), random.Random(size)
    content = RangedContent("a", size, file.read, BlockCache())
    assert content.size == size
    assert content.slice().to_pybytes() == file.content
    for _ in range(500):
        offset = chance.randrange(size)
        length = chance.choice([0, 1, 99, 100, 101, 350, size]) % (size - offset + 1)
        assert content.slice(offset, length).to_pybytes() == file.content[offset : offset + length]


def test_blocks_are_read_once_while_they_are_among_the_last_used(small_blocks: None) -> None:
    file, cache = File(1000), BlockCache()
    content = RangedContent("a", 1000, file.read, cache)
    for _ in range(3):
        for number in range(5):
            content.slice(100 * number + 3, 50)
    assert file.reads == 5
    content.slice(900, 10)  # takes the place of block 0
    content.slice(100, 10)
    assert file.reads == 6
    content.slice(0, 10)
    assert file.reads == 7
    assert len(cache._blocks) == 5
    RangedContent("a", 1000, file.read, cache).slice(0, 10)
    assert file.reads == 7, "the same file, opened again"
    RangedContent("b", 1000, file.read, cache).slice(0, 10)
    cache.forget("a")
    content.slice(0, 10)
    assert file.reads == 9


def test_what_is_longer_than_a_block_is_read_as_it_is_and_not_kept(small_blocks: None) -> None:
    file, cache = File(1000), BlockCache()
    RangedContent("a", 1000, file.read, cache).slice(50, 300)
    assert (file.reads, file.read_bytes, len(cache._blocks)) == (1, 300, 0)


def test_a_small_file_is_read_at_once() -> None:
    file = File(100_000)
    content = ranged("a", 100_000, file.read, BlockCache())
    content.slice(5, 10), content.slice(90_000, 10)
    assert (file.reads, file.read_bytes) == (1, 100_000)
    assert CACHED_BLOCKS * BLOCK_BYTES <= 64 << 20


BLOCKS, ROWS = 6, 1024
IDS = [np.arange(ROWS, dtype="<i8") + ROWS * block for block in range(BLOCKS)]


def _large_object() -> bytes:
    chance = random.Random(3)
    payload = [varlena_entry(70, [chance.randbytes(3000) for _ in range(ROWS)]) for _ in range(BLOCKS)]
    columns = [
        {0: (23, column_entry(23, ids.tobytes(), ROWS)), 1: (70, entry)}
        for ids, entry in zip(IDS, payload, strict=True)
    ]
    return object_file([(ROWS, one) for one in columns])


@pytest.fixture(scope="module")
def large() -> bytes:
    file = _large_object()
    assert len(file) > 2 * WHOLE_BYTES
    return file


@pytest.fixture
def bucket(large: bytes, s3_credentials: None) -> Iterator[Bucket]:
    with served(Bucket({f"mirror/{NAME}": large})) as bucket:
        yield bucket


def _bytes_read(bucket: Bucket) -> int:
    return sum(last - first + 1 for _, first, last in bucket.ranges)


def _ids(file: ObjectFile) -> list[int]:
    column = Column("id", 0, SqlType(23, 64, 0))
    return [number for block in range(BLOCKS) for number in file.column(block, column).to_pylist()]


def test_one_column_of_a_large_object_costs_little_more_than_the_column(bucket: Bucket, large: bytes) -> None:
    store = open_store(bucket.url("mirror"))
    assert _ids(ObjectFile(store.open(NAME))) == list(range(BLOCKS * ROWS))
    first = _bytes_read(bucket)
    assert first <= (BLOCKS + 2) * BLOCK_BYTES < len(large) / 2, "these blocks lie apart; MatrixOne's side by side"
    assert _ids(ObjectFile(store.open(NAME))) == list(range(BLOCKS * ROWS))
    assert _bytes_read(bucket) == first, "metadata and the column are remembered"
    assert store.open(NAME).slice(0, len(large)).to_pybytes() == large


def test_a_file_that_goes_or_shrinks_is_damage_and_a_server_that_fails_is_not(bucket: Bucket, large: bytes) -> None:
    store = open_store(bucket.url("mirror"))
    with pytest.raises(MirrorDamaged, match="missing"):
        store.open(NAME + "1")
    content = store.open(NAME)
    bucket.files[f"mirror/{NAME}"] = large[:1000]
    with pytest.raises(StoreFailed):
        content.slice(5 << 20, 100)
    bucket.files[f"mirror/{NAME}"] = large
    bucket.may_read = False
    with pytest.raises(StoreFailed):
        content.slice(9 << 20, 100)
