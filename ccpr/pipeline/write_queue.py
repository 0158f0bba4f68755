"""Objects on their way into the store: written, hashed and checked on threads of their own, while the next bytes are
read from upstream; and on others they are waited for, until the disk or the bucket has them, as that needs none:
threads that write and also wait fall into step, since one commit of the file system's journal ends the fsyncs of all.

The memory of it is bounded: what is read ahead of the writing is at most AHEAD_BYTES. A larger chunk is written before
the next is asked for. So are the files that are written and not on disk yet (UNFINISHED).
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import pyarrow as pa

from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.mirror.store import Chunk, PutEnd, Store, StoredFile

AHEAD_BYTES = 48 << 20  # three objects of common size; a chunk is up to 100 MiB
SMALL_BYTES, TOGETHER = 64 << 10, 8  # objects up to that size are written that many at a time
_THREADS = max(2, min(4, os.cpu_count() or 1))  # more than the machine has cores are in each other's way
UNFINISHED = 2  # files of a queue that are waited for at once; uploads of a bucket need a copy in TMPDIR each


class Abandoned(Exception):
    """The bytes of an object do not come to their end."""


@dataclass(slots=True)
class _Arrival:
    """An object between the two threads: chunks, then True for a good end or False for none; and the bytes not written
    yet."""

    items: "SimpleQueue[Chunk | bool]" = field(default_factory=SimpleQueue)
    held: int = 0


class WriteQueue:
    """A store's writing threads. A context manager: leaving it waits until what was handed over is written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held = 0  # bytes handed over and not written
        self._changed = threading.Condition()
        self._small: list[tuple[str, Chunk, Future[StoredFile]]] = []
        self._threads = ThreadPoolExecutor(_THREADS, "write-queue")
        self._ends = ThreadPoolExecutor(UNFINISHED, "write-queue-end")
        self._room = threading.BoundedSemaphore(UNFINISHED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        self._threads.shutdown()
        self._ends.shutdown()

    def run(self, action: Callable[[], StoredFile]) -> "Future[StoredFile]":
        """Something else for a thread to do, in its turn."""
        return self._threads.submit(action)

    def put(
        self, name: str, size: int, chunks: Iterable[Chunk], check: Callable[[ObjectBytes], None]
    ) -> "Future[StoredFile]":
        """Read the chunks, `size` bytes in all, here while they are written there; returns when all are read. The
        future raises what the store or the check raises. An object that comes in one chunk is checked in memory,
        before it is written; a small one here, and it may wait for others until `flush`.

        An error in reading, or in checking a small object, is raised here, and nothing appears under the name.
        """
        if size <= SMALL_BYTES:
            return self._put_small(name, b"".join(chunks), check)
        self.flush()
        chunks = iter(chunks)
        chunk = next(chunks, None)
        arrival = _Arrival()
        stored: Future[StoredFile] = Future()
        if chunk is not None and len(chunk) == size:
            begin = partial(self._store.begin, name, self._written(arrival, check))
        else:
            begin = partial(self._store.begin, name, self._written(arrival), check=check)
        self._threads.submit(self._begin, begin, stored)
        stored.add_done_callback(lambda _: self._release(arrival))  # however it ended, its bytes are free
        complete = False
        try:
            while chunk is not None and self._hand_over(arrival, chunk, stored):
                chunk = None  # a chunk is large: it must not be held while the next one arrives
                chunk = next(chunks, None)
            complete = True
        finally:
            arrival.items.put(complete)
        return stored

    def flush(self) -> None:
        """Write what waits for others."""
        if self._small:
            small, self._small = self._small, []
            self._threads.submit(self._write_together, small)

    def _begin(self, begin: Callable[[], PutEnd], stored: "Future[StoredFile]") -> None:
        try:
            end = begin()
            self._room.acquire()
            self._ends.submit(self._end, end, stored)
        except BaseException as error:
            stored.set_exception(error)
            raise

    def _end(self, end: PutEnd, stored: "Future[StoredFile]") -> None:
        try:
            stored.set_result(end())
        except BaseException as error:
            stored.set_exception(error)
            raise
        finally:
            self._room.release()

    def _put_small(self, name: str, content: bytes, check: Callable[[ObjectBytes], None]) -> "Future[StoredFile]":
        """Checked here: handing it over would take longer."""
        check(pa.py_buffer(content))
        stored: Future[StoredFile] = Future()
        self._small.append((name, content, stored))
        if len(self._small) == TOGETHER:
            self.flush()
        return stored

    def _write_together(self, small: "list[tuple[str, Chunk, Future[StoredFile]]]") -> None:
        try:
            written = self._store.put_together([(name, content) for name, content, _ in small])
        except BaseException as error:
            for _, _, stored in small:
                stored.set_exception(error)
            raise
        for (_, _, stored), value in zip(small, written, strict=True):
            stored.set_result(value)

    def _hand_over(self, arrival: _Arrival, chunk: Chunk, stored: "Future[StoredFile]") -> bool:
        """Give a chunk to the writer and wait until little enough is left to be written; False if the writing has
        failed, and the rest is not wanted.
        """
        with self._changed:
            if stored.done():  # its bytes were released: what is counted now would keep all others waiting for ever
                return False
            self._held += len(chunk)
            arrival.held += len(chunk)
        arrival.items.put(chunk)
        with self._changed:
            self._changed.wait_for(lambda: stored.done() or self._held <= AHEAD_BYTES)
        return not stored.done()

    def _written(self, arrival: _Arrival, check: Callable[[ObjectBytes], None] | None = None) -> Iterator[Chunk]:
        while not isinstance(item := arrival.items.get(), bool):
            size = len(item)
            if check is not None:
                check(pa.py_buffer(item))
            yield item
            del item
            self._release(arrival, size)
        if not item:
            raise Abandoned

    def _release(self, arrival: _Arrival, size: int | None = None) -> None:
        """So many bytes, or all that it has, are no longer held."""
        with self._changed:
            size = arrival.held if size is None else size
            arrival.held -= size
            self._held -= size
            self._changed.notify_all()
