"""Writing on a thread of its own: bounded memory, and a failure on either side ends the other."""

import errno
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.store import PutEnd, StoredFile
from ccpr.pipeline.copying import Pace
from ccpr.pipeline.write_queue import _THREADS, AHEAD_BYTES, SMALL_BYTES, TOGETHER, UNFINISHED, WriteQueue
from tests.support.waiting import until

LARGE = b"x" * (AHEAD_BYTES // 2 + 1)


def accept(content: ObjectBytes) -> None:
    """Every content is right."""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_objects_land_whole_and_in_order(store: LocalStore) -> None:
    with WriteQueue(store) as landing:
        futures = [
            landing.put(f"o{number}", number + len(LARGE) + 1, [b"a" * number, LARGE, b"b"], accept)
            for number in range(3)
        ]
        assert [future.result().size for future in futures] == [number + len(LARGE) + 1 for number in range(3)]
    assert store.read("o2").to_pybytes() == b"aa" + LARGE + b"b"


def test_no_more_is_read_ahead_than_may_be(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    may_write, writing = threading.Event(), threading.Event()
    real = LocalStore.begin

    def slow(self, name, chunks, *, check=None) -> PutEnd:
        writing.set()
        may_write.wait(30)
        return real(self, name, chunks, check=check)

    monkeypatch.setattr(LocalStore, "begin", slow)

    def chunks() -> Iterator[bytes]:
        for number in range(4):
            read.append(number)
            yield LARGE

    with WriteQueue(store) as landing:
        reader = threading.Thread(target=landing.put, args=("o", 4 * len(LARGE), chunks(), accept))
        reader.start()
        writing.wait(30)
        until(lambda: len(read) == 2, "as much as may be ahead")
        reader.join(0.2)
        assert reader.is_alive()
        assert read == [0, 1], "as much as may be ahead, and the one that is over it"
        may_write.set()
        reader.join(30)
    assert read == [0, 1, 2, 3]
    assert store.size("o") == 4 * len(LARGE)


def test_a_reader_that_fails_leaves_nothing_and_its_error_is_raised(store: LocalStore) -> None:
    def chunks() -> Iterator[bytes]:
        yield LARGE
        raise RuntimeError("line down")

    with WriteQueue(store) as landing:
        with pytest.raises(RuntimeError, match="line down"):
            landing.put("o", 1000 * len(LARGE), chunks(), accept)
        following = landing.put("next", 1, [b"x"], accept)
    assert following.result().size == 1
    assert store.size("o") is None
    assert store.sweep() == 0


def test_a_writer_that_fails_stops_the_reading(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self, name, chunks, *, check=None) -> PutEnd:
        next(iter(chunks))
        raise OSError("no space left")

    monkeypatch.setattr(LocalStore, "begin", full)
    read: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(1000):
            read.append(number)
            yield LARGE

    with WriteQueue(store) as landing, pytest.raises(OSError, match="no space left"):
        landing.put("o", 1000 * len(LARGE), chunks(), accept).result(30)
    assert len(read) < 10


def test_a_writing_that_failed_before_its_first_bytes_keeps_nobody_waiting(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> PutEnd:
        raise StoreFailed("no space left", subject="disk")

    with WriteQueue(store) as landing:
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "begin", full)
            patch.setattr(landing._threads, "submit", lambda work, *arguments: work(*arguments))
            with pytest.raises(StoreFailed):
                landing.put("bad", 2 * AHEAD_BYTES, [bytes(AHEAD_BYTES + 1), bytes(AHEAD_BYTES - 1)], accept).result(30)
        following: list[Future[StoredFile]] = []
        chunks = [LARGE, LARGE]
        reader = threading.Thread(
            target=lambda: following.append(landing.put("good", 2 * len(LARGE), chunks, accept)), daemon=True
        )
        reader.start()
        reader.join(30)
        assert not reader.is_alive(), "what failed still counts as read ahead"
        assert following[0].result(30).size == 2 * len(LARGE)


def test_others_are_written_while_files_are_waited_for_and_no_more_than_some(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    may_end, all_begun = threading.Event(), threading.Event()
    real = LocalStore.begin

    def begin(self, name, chunks, *, check=None) -> PutEnd:
        end = real(self, name, chunks, check=check)
        begun.append(name)
        if len(begun) == UNFINISHED + _THREADS:
            all_begun.set()

        def later() -> StoredFile:
            may_end.wait(30)
            return end()

        return later

    monkeypatch.setattr(LocalStore, "begin", begin)
    content = b"x" * (SMALL_BYTES + 1)
    with WriteQueue(store) as landing:
        names = [f"o{number}" for number in range(3 * UNFINISHED + _THREADS)]
        futures = [landing.put(name, len(content), [content], accept) for name in names]
        assert all_begun.wait(30)
        assert len(begun) == UNFINISHED + _THREADS, "what writes waits for room, too"
        assert not any(future.done() for future in futures)
        assert store.size(begun[0]) is None, "it has no name before it is on disk"
        may_end.set()
    assert [future.result().size for future in futures] == [len(content)] * len(names)
    assert all(store.size(name) == len(content) for name in names)


def test_a_file_that_cannot_be_brought_to_the_disk_raises_it_and_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with WriteQueue(store) as landing:
        with monkeypatch.context() as patch:
            patch.setattr("ccpr.mirror.local_store.os.fsync", fails)
            with pytest.raises(StoreFailed, match="could not write"):
                landing.put("o", len(LARGE), [LARGE], accept).result(30)
        following = landing.put("o", len(LARGE), [LARGE], accept)
    assert following.result().size == len(LARGE)
    assert store.sweep() == 0


def test_a_refused_content_is_raised_from_the_future(store: LocalStore) -> None:
    def refuse(content: ObjectBytes) -> None:
        raise ValueError("damaged")

    with WriteQueue(store) as landing, pytest.raises(ValueError, match="damaged"):
        landing.put("o", 1, [b"x"], refuse).result(30)
    assert store.size("o") is None


def test_small_objects_wait_for_others_until_they_are_flushed(store: LocalStore) -> None:
    with WriteQueue(store) as landing:
        futures = [landing.put(f"o{number}", 3, [b"a", b"bc"], accept) for number in range(TOGETHER + 1)]
        assert [future.result(30).size for future in futures[:TOGETHER]] == [3] * TOGETHER
        assert store.size(f"o{TOGETHER}") is None
        landing.flush()
        assert futures[TOGETHER].result(30).sha256 == hashlib.sha256(b"abc").digest()
        last = landing.put("last", 3, [b"abc"], accept)
    assert last.done(), "leaving writes what waits"
    assert store.read("last").to_pybytes() == b"abc"


def test_a_large_object_does_not_keep_small_ones_waiting(store: LocalStore) -> None:
    with WriteQueue(store) as landing:
        small = landing.put("small", 1, [b"x"], accept)
        landing.put("large", len(LARGE), [LARGE], accept)
        assert small.result(30).size == 1


def test_small_objects_that_cannot_be_written_each_raise_it(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self, contents) -> list[StoredFile]:
        raise StoreFailed("no space left", subject="disk")

    monkeypatch.setattr(LocalStore, "put_together", full)
    with WriteQueue(store) as landing:
        futures = [landing.put(f"o{number}", 1, [b"x"], accept) for number in range(3)]
        landing.flush()
        for future in futures:
            with pytest.raises(StoreFailed):
                future.result(30)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("size", [10, SMALL_BYTES, SMALL_BYTES + 2])
def test_the_check_sees_the_whole_content_before_the_name_appears(store: LocalStore, size: int, parts: int) -> None:
    content = bytes(range(250)) * (size // 250 + 1)
    content = content[:size]
    seen: list[bytes] = []

    def check(found: ObjectBytes) -> None:
        assert store.size("o") is None
        seen.append(found.slice(0, found.size).to_pybytes())

    with WriteQueue(store) as landing:
        step = size // parts
        landing.put("o", size, [content[at : at + step] for at in range(0, size, step)], check)
    assert seen == [content] == [store.read("o").to_pybytes()]


def test_a_pace_keeps_the_average() -> None:
    now = 0.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(100.0, lambda: now, sleep)
    assert list(pace.slow_down([b"x" * 50, b"x" * 150])) == [b"x" * 50, b"x" * 150]
    assert list(pace.slow_down([b"x" * 100])) == [b"x" * 100]
    assert now == pytest.approx(3.0)
    assert slept == pytest.approx([0.5, 1.5, 1.0])
