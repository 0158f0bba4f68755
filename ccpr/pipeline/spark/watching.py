"""How far a copy by Spark has come, seen from outside: the driver looks which objects are in the store by now.

Tasks report nothing before they end: Spark Connect has no accumulators, and results come by partition. An object
appears under its name when it is whole, so its size says enough, with any session and any store.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.layout import object_path
from ccpr.mirror.store import Store

_LOCAL_SECONDS, _REMOTE_SECONDS = 0.5, 2.0


class Tally:
    """Bytes that were reported. What is reported again, because another engine starts over, does not count twice."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self._on_bytes = on_bytes
        self._lock = threading.Lock()
        self._reported = self._repeated = 0

    def __call__(self, size: int) -> None:
        with self._lock:
            self._repeated += size
            fresh = self._repeated - self._reported
            if fresh > 0:
                self._reported = self._repeated
        if fresh > 0:
            self._on_bytes(fresh)

    def again(self) -> Self:
        """From the first byte on."""
        self._repeated = 0
        return self


class Watch:
    """Looks for objects while tasks copy them, on a thread of its own; a context manager.

    Each task copies its objects about in their order: so only the next one of each is looked for. At a good end all
    count.

    Parameters
    ----------
    assigned : ``name``, ``size`` and ``task``.
    interrupt : called if `on_progress` raises: the copy is to end.

    Attributes
    ----------
    raised : what `on_progress` raised.
    """

    def __init__(
        self,
        store: Store,
        assigned: pa.Table,
        on_progress: Callable[[int], None],
        interrupt: Callable[[], object] = lambda: None,
    ) -> None:
        self._store, self._on_progress, self._interrupt = store, on_progress, interrupt
        self.raised: BaseException | None = None
        self._seconds = _LOCAL_SECONDS if store.url.startswith("file:") else _REMOTE_SECONDS
        self._waiting: dict[int, list[tuple[str, int]]] = {}
        names, sizes, tasks = (assigned.column(name).to_pylist() for name in ("name", "size", "task"))
        for name, size, task in zip(reversed(names), reversed(sizes), reversed(tasks), strict=True):
            self._waiting.setdefault(task, []).append((name, size))
        self._ended = threading.Event()
        self._thread = ThreadPoolExecutor(1, "copy-progress")

    def __enter__(self) -> Self:
        self._thread.submit(self._run).add_done_callback(self._stopped)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.shutdown()
        rest = sum(size for waiting in self._waiting.values() for _, size in waiting)
        if kind is None and rest:
            self._on_progress(rest)

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                found = sum(map(self._arrived, self._waiting.values()))
            except StoreFailed:  # the tasks will say so
                return
            if found:
                self._on_progress(found)

    def _stopped(self, run: Future[None]) -> None:
        self.raised = run.exception()
        if self.raised is not None:
            self._interrupt()

    def _arrived(self, waiting: list[tuple[str, int]]) -> int:
        """Bytes of the objects of a task that are there since the last look; they are waited for no longer."""
        found = 0
        while waiting and not self._ended.is_set() and self._store.size(object_path(waiting[-1][0])) == waiting[-1][1]:
            found += waiting.pop()[1]
        return found
