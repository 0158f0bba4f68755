"""Objects read from storage ahead of their writing: some requests are always under way, for parts of one large object
or for several small ones."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.store import Chunk
from ccpr.pipeline.storage import Storage, StoredObject, pieces_of

REQUESTS = 8  # under way, or answered and not used yet: with PIECE_BYTES each, what is in memory
_Item = TypeVar("_Item")


class _Reading(Generic[_Item]):
    """An item, and its object's file, which the first of its pieces opens."""

    def __init__(self, storage: Storage, item: _Item, stats: ObjectStats | None) -> None:
        self.item, self.pieces = item, 1 if stats is None else pieces_of(stats.size)
        self._storage, self._stats = storage, stats
        self._lock, self._opened, self._file = Lock(), stats is None, None

    def piece(self, number: int) -> Chunk | None:
        file = self._open()
        return None if file is None else file.piece(number)

    def _open(self) -> StoredObject | None:
        with self._lock:
            if not self._opened and self._stats is not None:
                self._file = self._storage.open(self._stats.name, self._stats.size)
                self._opened = True
            return self._file


def read_ahead(
    storage: Storage, wanted: Iterable[tuple[_Item, ObjectStats | None]]
) -> Generator[tuple[_Item, Iterator[Chunk] | None]]:
    """Each item, in order, with the content of its object; None for one without stats, and for an object that storage
    does not have. `wanted` is read ahead, too. A content has to be used before the next item is asked for. What it
    raises is of its object alone: see `Storage.open` and `StoredObject.piece`.
    """
    pieces = ((one, number) for one in (_Reading(storage, *entry) for entry in wanted) for number in range(one.pieces))
    ahead: deque[tuple[_Reading[_Item], Future[Chunk | None]]] = deque()
    pool = ThreadPoolExecutor(REQUESTS, "storage")

    def next_piece() -> tuple[_Reading[_Item], Future[Chunk | None]] | None:
        ahead.extend((one, pool.submit(one.piece, number)) for one, number in islice(pieces, REQUESTS - len(ahead)))
        return ahead.popleft() if ahead else None

    def content(first: Future[Chunk | None], more: int) -> Iterator[Chunk]:
        future = first
        del first
        while True:
            chunk = future.result()
            del future
            assert chunk is not None, "a file is there, or not, for all of its pieces"
            yield chunk
            del chunk
            if not more:
                return
            more -= 1
            found = next_piece()
            assert found is not None
            future = found[1]
            del found

    last: _Reading[_Item] | None = None
    try:
        while (found := next_piece()) is not None:
            reading, future = found
            del found
            if reading is last:  # its object failed, or is not there
                future.cancel()
                continue
            last = reading
            missing = future.exception() is None and future.result() is None
            chunks = None if missing else content(future, reading.pieces - 1)
            del future
            yield reading.item, chunks
    finally:
        pool.shutdown(cancel_futures=True)
