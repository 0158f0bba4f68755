"""Objects of a mirror in a bucket as the relay reads them: once whole, then what is asked for, and nothing that is
damaged, whenever it was damaged."""

import hashlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ccpr.matrixone.server.answers import StatementError
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.relay import served_content as relay_content
from ccpr.relay.served_content import PIECE_BYTES, ServedContent
from ccpr.state.ledger import LedgerEntry
from tests.support.bucket import Bucket, served

pytestmark = pytest.mark.integration

NAME = "0197f3a2-0000-7000-8000-000000000001_00000"
CHUNK = 5 * PIECE_BYTES // 2  # a chunk does not end where a piece does
SIZE = 2 * CHUNK + 12345
KEY = f"mirror/{object_path(NAME)}"


@pytest.fixture(scope="module")
def sound() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def bucket(sound: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    with served(Bucket({KEY: sound})) as bucket:
        yield bucket


@pytest.fixture
def content(bucket: Bucket, sound: bytes) -> ServedContent:
    entry = LedgerEntry(NAME, SIZE, hashlib.sha256(sound).digest())
    return ServedContent(Mirror(open_store(bucket.url("mirror"))), {NAME: entry}.get)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ServedContent:
    """Keeps one piece in memory."""
    monkeypatch.setattr(relay_content, "CACHED_PIECES", 1)
    return request.getfixturevalue("content")


def fetched(bucket: Bucket) -> int:
    """Bytes since the last time."""
    total = sum(last - first + 1 for _, first, last in bucket.ranges)
    bucket.ranges.clear()
    return total


def damage(bucket: Bucket, sound: bytes, at: int) -> None:
    bucket.files[KEY] = sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]


def test_an_object_is_read_once_for_all_its_chunks(content: ServedContent, bucket: Bucket, sound: bytes) -> None:
    chunks = [content.read(NAME, at, CHUNK) for at in range(0, SIZE, CHUNK)]
    assert b"".join(chunks) == sound
    assert fetched(bucket) == SIZE
    assert content.read(NAME, SIZE, CHUNK) == b""
    assert content.size(NAME) == SIZE


def test_what_is_no_longer_in_memory_is_read_by_ranges(forgetful: ServedContent, bucket: Bucket, sound: bytes) -> None:
    assert forgetful.read(NAME, 0, CHUNK) == sound[:CHUNK]
    assert fetched(bucket) == SIZE
    assert forgetful.read(NAME, CHUNK, CHUNK) == sound[CHUNK : 2 * CHUNK]
    assert fetched(bucket) == SIZE - 2 * PIECE_BYTES, "the pieces of what was asked for"


def test_of_many_who_ask_at_once_one_reads(content: ServedContent, bucket: Bucket, sound: bytes) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: bytes(content.read(NAME, 0, CHUNK)), range(8)))
    assert set(answers) == {sound[:CHUNK]}
    assert fetched(bucket) == SIZE


@pytest.mark.parametrize("at", [0, CHUNK + 1, SIZE - 1])
def test_nothing_is_served_of_an_object_that_is_damaged_anywhere(
    at: int, content: ServedContent, bucket: Bucket, sound: bytes
) -> None:
    damage(bucket, sound, at)
    for offset in (0, CHUNK, 2 * CHUNK):
        with pytest.raises(StatementError, match="is damaged in the mirror"):
            content.read(NAME, offset, CHUNK)
    bucket.files[KEY] = sound
    assert content.read(NAME, 0, CHUNK) == sound[:CHUNK], "repaired"


def test_what_was_damaged_after_the_check_is_not_served(forgetful: ServedContent, bucket: Bucket, sound: bytes) -> None:
    forgetful.read(NAME, 0, CHUNK)
    damage(bucket, sound, 2 * PIECE_BYTES)
    for _ in range(2):
        with pytest.raises(StatementError, match="is damaged in the mirror"):
            forgetful.read(NAME, 0, CHUNK)
    bucket.files[KEY] = sound
    assert forgetful.read(NAME, 0, CHUNK) == sound[:CHUNK], "repaired"


@pytest.mark.parametrize("shown", [0, 1000, SIZE - 1, SIZE + 1])
def test_an_object_of_another_length_is_damaged(
    shown: int, content: ServedContent, bucket: Bucket, sound: bytes
) -> None:
    bucket.files[KEY] = (sound + b"x")[:shown]
    with pytest.raises(StatementError, match="is damaged in the mirror"):
        content.read(NAME, 0, CHUNK)


def test_an_object_that_is_gone_is_an_error(content: ServedContent, bucket: Bucket) -> None:
    del bucket.files[KEY]
    with pytest.raises(MirrorDamaged):
        content.read(NAME, 0, CHUNK)
