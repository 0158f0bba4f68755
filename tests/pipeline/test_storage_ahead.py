"""Reading ahead: objects in their order, each with its own content or its own error, and a bounded number of pieces."""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ccpr.matrixone.objects.errors import ObjectDamaged
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.store import Chunk
from ccpr.pipeline import storage as storage_module
from ccpr.pipeline.storage import PIECE_BYTES, REQUESTS, Storage, StoredObject, open_storage, read_ahead
from tests.matrixone.objects.building import object_file, stats_bytes
from tests.support.disk_files import framed

_STATS = ObjectStats.parse(stats_bytes(object_file([]), rows=0, blocks=0))


def an_object(number: int, size: int) -> ObjectStats:
    name = f"018f0000-0000-7000-8000-{number:012}_00000"
    return ObjectStats(**{field: getattr(_STATS, field) for field in _STATS.__slots__} | {"name": name, "size": size})


def content(stats: ObjectStats) -> bytes:
    return random.Random(stats.name).randbytes(stats.size)


SIZES = (100, 3 * PIECE_BYTES + 5, 1, 2 * PIECE_BYTES, 5 * PIECE_BYTES, 70, 80, 90)
OBJECTS = [an_object(number, size) for number, size in enumerate(SIZES)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    for number, stats in enumerate(OBJECTS):
        bare = content(stats)
        (tmp_path / stats.name).write_bytes(framed(bare) if number % 2 else bare)
    return open_storage(str(tmp_path))


def found(storage: Storage, wanted: list[ObjectStats | None]) -> list[bytes | str | None]:
    """What each comes to: its content, None, or the code of its error."""
    results: list[bytes | str | None] = []
    with closing(read_ahead(storage, ((number, stats) for number, stats in enumerate(wanted)))) as reading:
        for number, chunks in reading:
            assert number == len(results)
            try:
                results.append(None if chunks is None else b"".join(chunks))
            except ObjectDamaged as error:
                results.append(error.code)
    return results


def test_objects_come_in_order_and_whole(storage: Storage) -> None:
    assert found(storage, list(OBJECTS)) == [content(stats) for stats in OBJECTS]


def test_what_is_not_there_or_is_not_wanted_is_none_and_its_neighbours_come(storage: Storage, tmp_path: Path) -> None:
    missing = {1, 4, 5}
    for number in missing:
        (tmp_path / OBJECTS[number].name).unlink()
    wanted: list[ObjectStats | None] = list(OBJECTS)
    wanted[2] = None
    expected = [None if number in {*missing, 2} else content(stats) for number, stats in enumerate(OBJECTS)]
    assert found(storage, wanted) == expected


@pytest.mark.parametrize("block", [0, 1024, 2500])
def test_an_error_is_of_its_object_alone(block: int, storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / OBJECTS[1].name
    file = bytearray(path.read_bytes())
    file[2048 * block + 100] ^= 1
    path.write_bytes(file)
    expected: list[bytes | str] = [content(stats) for stats in OBJECTS]
    expected[1] = "OBJECT_DAMAGED"
    assert found(storage, list(OBJECTS)) == expected


def test_a_content_that_is_left_half_way_does_not_come_to_the_next(storage: Storage) -> None:
    taken = []
    with closing(read_ahead(storage, ((None, stats) for stats in OBJECTS))) as reading:
        for _, chunks in reading:
            assert chunks is not None
            taken.append(bytes(next(chunks)))
    assert taken == [content(stats)[:PIECE_BYTES] for stats in OBJECTS]


def test_some_requests_are_under_way_at_once_and_no_more(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that were asked for and not yet used are at most REQUESTS, though all of them would be there at once."""
    asked, used, most, together = 0, 0, 0, threading.Barrier(REQUESTS, timeout=60)
    lock, read_piece = threading.Lock(), StoredObject.piece

    def counted(self: StoredObject, number: int) -> Chunk:
        nonlocal asked, most
        with lock:
            asked += 1
            most = max(most, asked - used)
            first = asked <= REQUESTS
        if first:  # they wait for each other: one after the other they would never end
            together.wait()
        return read_piece(self, number)

    monkeypatch.setattr(storage_module.StoredObject, "piece", counted)
    with closing(read_ahead(storage, ((None, stats) for stats in OBJECTS * 3))) as reading:
        for _, chunks in reading:
            assert chunks is not None
            for _ in chunks:
                with lock:
                    used += 1
    assert asked == used
    assert most <= REQUESTS


def test_leaving_early_ends_the_threads(storage: Storage) -> None:
    before = set(threading.enumerate())

    def endless() -> Iterator[tuple[int, ObjectStats]]:
        number = 0
        while True:
            yield number, OBJECTS[number % len(OBJECTS)]
            number += 1

    with closing(read_ahead(storage, endless())) as reading:
        next(reading)
    assert set(threading.enumerate()) <= before
