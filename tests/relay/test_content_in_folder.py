"""Objects of a mirror in a folder as the relay sends them: what is sent is what was compared, whenever it was damaged,
and a large chunk is never in memory as a whole."""

import hashlib
import os
import random
from pathlib import Path

import pytest

from ccpr.matrixone.server.answers import StatementError, Streamed
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.relay import served_content as relay_content
from ccpr.relay.served_content import PIECE_BYTES, ServedContent
from ccpr.state.ledger import LedgerEntry

NAME = "0197f3a2-0000-7000-8000-000000000001_00000"
CHUNK = 5 * PIECE_BYTES // 2  # a chunk does not end where a piece does
SIZE = 2 * CHUNK + 12345


@pytest.fixture(scope="module")
def sound() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def file(tmp_path: Path, sound: bytes) -> Path:
    path = tmp_path / object_path(NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(sound)
    return path


@pytest.fixture
def content(tmp_path: Path, file: Path, sound: bytes) -> ServedContent:
    entry = LedgerEntry(NAME, SIZE, hashlib.sha256(sound).digest())
    return ServedContent(Mirror(open_store(tmp_path.as_uri())), {NAME: entry}.get)


def flip(file: Path, at: int) -> None:
    """Without another size or, as on a disk, another time."""
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_chunks_of_any_place_and_length_are_what_was_stored(content: ServedContent, sound: bytes) -> None:
    assert content.size(NAME) == SIZE
    for offset in (0, 1, PIECE_BYTES - 1, PIECE_BYTES, CHUNK, 2 * CHUNK, SIZE - 1, SIZE):
        for length in (0, 1, 100, PIECE_BYTES, PIECE_BYTES + 1, CHUNK, SIZE):
            found = content.read(NAME, offset, length)
            assert len(found) == len(sound[offset : offset + length])
            assert bytes(found) == sound[offset : offset + length]


@pytest.mark.parametrize("at", [0, CHUNK - 1, CHUNK, SIZE - 1])
def test_nothing_is_served_of_an_object_that_was_damaged_before(content: ServedContent, file: Path, at: int) -> None:
    flip(file, at)
    for offset in (0, CHUNK, 2 * CHUNK):
        with pytest.raises(StatementError, match="ccpr verify"):
            content.read(NAME, offset, CHUNK)


def test_a_bit_that_flips_after_the_check_is_not_served(content: ServedContent, file: Path, sound: bytes) -> None:
    """A small answer is an error at once; a large one breaks its connection, and is an error when it is asked again."""
    assert bytes(content.read(NAME, 0, SIZE)) == sound
    flip(file, CHUNK + 5)
    assert bytes(content.read(NAME, 0, 100)) == sound[:100], "a sound piece of it"
    with pytest.raises(StatementError, match="ccpr verify"):
        content.read(NAME, CHUNK, 100)
    flip(file, CHUNK + 5)
    assert bytes(content.read(NAME, CHUNK, 100)) == sound[CHUNK : CHUNK + 100], "it was repaired"
    flip(file, CHUNK + 5)
    large = content.read(NAME, 0, SIZE)
    with pytest.raises(ConnectionError):
        bytes(large)
    for offset in (0, CHUNK):
        with pytest.raises(StatementError, match="ccpr verify"):
            content.read(NAME, offset, CHUNK)


def test_a_bit_that_flips_while_a_chunk_is_sent_breaks_the_connection(content: ServedContent, file: Path) -> None:
    chunk = content.read(NAME, 0, SIZE)
    assert isinstance(chunk, Streamed)
    pieces = chunk.pieces()
    next(pieces)
    flip(file, SIZE - 1)
    with pytest.raises(ConnectionError):
        list(pieces)


def test_a_file_that_becomes_shorter_or_goes_ends_one_connection_and_no_process(
    content: ServedContent, file: Path
) -> None:
    chunk = content.read(NAME, 0, SIZE)
    assert isinstance(chunk, Streamed)
    os.truncate(file, PIECE_BYTES)
    with pytest.raises(ConnectionError):
        list(chunk.pieces())
    with pytest.raises(StatementError, match="ccpr verify"):
        content.read(NAME, 0, 100)
    file.unlink()
    with pytest.raises(MirrorDamaged):
        content.read(NAME, 0, 100)


def test_no_more_than_a_piece_is_read_ahead_of_what_is_sent(
    content: ServedContent, sound: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes(content.read(NAME, 0, 1))
    read = list[int]()
    place = relay_content._place
    monkeypatch.setattr(relay_content, "_place", lambda entry, number: read.append(number) or place(entry, number))
    chunk = content.read(NAME, 0, SIZE)
    assert isinstance(chunk, Streamed)
    for number, piece in enumerate(chunk.pieces()):
        assert read == list(range(number + 1))
        assert bytes(piece) == sound[number * PIECE_BYTES :][: len(piece)]
