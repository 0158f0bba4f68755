"""A dict that forgets."""

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(Generic[K, V]):
    """What was used last, up to a number of entries, or to what they weigh together. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._weight, self._lock, self._kept = most, 0, Lock(), OrderedDict[K, tuple[V, int]]()

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[K]:
        with self._lock:
            return iter(list(self._kept))

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """What is too heavy for itself is not kept."""
        with self._lock:
            self._drop(key)
            if weight > self._most:
                return
            self._kept[key] = value, weight
            self._weight += weight
            while self._weight > self._most:
                self._weight -= self._kept.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Nothing happens if it is not there."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: K) -> None:
        if (former := self._kept.pop(key, None)) is not None:
            self._weight -= former[1]
