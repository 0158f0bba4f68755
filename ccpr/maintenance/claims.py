"""Work at a place that one process does at a time, on whatever machine it runs: bringing a second copy to where the
mirror is, a drill.

Each claims the place by a file of its own below `work` there, and then looks whether there are others. Of two that come
at the same moment at least one sees the other's file, so never both go on; nothing is asked of the store that a folder
or a bucket does not have. A second file says that it went on. A claim that was not renewed for TTL_SECONDS, by the
clock of the place, is of a process that is dead or lost: the next one deletes both. Source: decision
a-place-is-claimed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ccpr.base.loops import Guard
from ccpr.mirror.store import Store
from ccpr.state.errors import SubscriptionBusy

TTL_SECONDS = 90.0
_LOOK_SECONDS = 0.5
_HELD = ".held"


@dataclass(frozen=True)
class Worker:
    """Who claims.

    Attributes
    ----------
    is_dead : knows of some others, by their ids, that they have ended.
    patience : seconds for which it waits for another to end; one that is dead has ended by then.
    """

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    is_dead: Callable[[str], bool] = lambda worker: False
    patience: float = TTL_SECONDS + 5.0


class PlaceClaim:
    """Of a place. `confirm` is for moments at which no other may have taken it over."""

    def __init__(self, store: Store, what: str, worker: Worker) -> None:
        self._store, self._what, self._worker = store, what, worker
        self._folder = f"work/{what}-claims"
        self._name = f"{self._folder}/{worker.id}.{uuid.uuid4().hex[:8]}"
        self._held = f"{self._name}{_HELD}"
        self._ended, self._guard = threading.Event(), Guard("claims")
        self._thread = threading.Thread(target=self._renew, name=f"claim-{what}", daemon=True)

    def confirm(self) -> None:
        """Raises SubscriptionBusy."""
        if self._store.size(self._held) is None:
            raise self._busy()

    def begin(self) -> None:
        until = time.monotonic() + self._worker.patience
        while not self._take():
            _delete(self._store, self._name)
            if time.monotonic() > until:
                raise self._busy()
            time.sleep(_LOOK_SECONDS)
        self._thread.start()

    def _take(self) -> bool:
        """Whether nobody else has it. What the dead have left goes."""
        self._write()
        now = self._store.written_at(self._name) or 0.0
        there = list(self._store.names(self._folder))
        others = [name for name in there if name != self._name and not name.endswith(_HELD)]
        if not all(self._is_left(name, now) for name in others):
            return False
        for name in others:
            _delete(self._store, name)
        self._store.replace(self._held, b"")
        return True

    def _is_left(self, name: str, now: float) -> bool:
        """Whether who wrote it does not go on. What is of a later time was written before a clock was set back."""
        if self._worker.is_dead(name.removeprefix(f"{self._folder}/").partition(".")[0]):
            return True
        at = self._store.written_at(name)
        return at is None or abs(now - at) > TTL_SECONDS

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._guard.attempt(f"{self._name} was not deleted", lambda: _delete(self._store, self._name))

    def _renew(self) -> None:
        while not self._ended.wait(TTL_SECONDS / 3):
            self._guard.attempt(f"{self._name} was not renewed", self._renew_once)

    def _renew_once(self) -> None:
        if self._store.size(self._name) is not None:  # else another has taken over
            self._write()

    def _write(self) -> None:
        self._store.replace(self._name, self._worker.id.encode())

    def _busy(self) -> SubscriptionBusy:
        remedy = f"Wait until it has ended. If its machine is dead, its claim ends after {TTL_SECONDS:g} s."
        return SubscriptionBusy(f"another {self._what} is under way", subject=self._store.url, remedy=remedy)


def _delete(store: Store, name: str) -> None:
    store.delete(f"{name}{_HELD}")
    store.delete(name)


@contextmanager
def claimed(store: Store, what: str, worker: Worker) -> Iterator[PlaceClaim]:
    """The place for oneself. Raises SubscriptionBusy, StoreFailed."""
    claim = PlaceClaim(store, what, worker)
    try:
        claim.begin()
        yield claim
    finally:
        claim.end()
