"""A dict that forgets."""

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(Generic[K, V]):
    """What was used last, up to a number of entries. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._lock, self._kept = most, Lock(), OrderedDict[K, V]()

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
            return self._kept[key]

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def drop(self, key: K) -> None:
        """Nothing happens if it is not there."""
        with self._lock:
            self._kept.pop(key, None)
