"""The bytes of a mirror's objects as the relay serves them: only of objects that the ledger has, compared with its
checksum before they are served for the first time.

The object format has no checksum, so whoever gets damaged bytes would read wrong rows from them.
"""

import hashlib
from collections.abc import Callable
from threading import Lock

import pyarrow as pa

from matrixone.objects.stats import OBJECT_NAME
from relay.states import Newest
from replication.mirror.layout import object_path
from replication.mirror.local_store import LocalStore
from replication.mirror.mirror import Mirror
from replication.state.ledger import LedgerEntry
from wire.backing import internal

KEPT_BYTES = 256 << 20  # of objects from a bucket, which are read whole
_MOST_ENTRIES = 100_000


class Content:
    """The objects of one mirror. Thread-safe.

    `entry` looks an object up in the ledger; None = it is not in it.
    """

    def __init__(self, mirror: Mirror, entry: Callable[[str], LedgerEntry | None]) -> None:
        self._mirror, self._entry = mirror, entry
        self._entries = Newest[str, LedgerEntry](_MOST_ENTRIES)
        self._sound = Newest[str, bytes](_MOST_ENTRIES)
        self._mapped = isinstance(mirror.store, LocalStore)
        self._kept: dict[str, pa.Buffer] = {}
        self._lock = Lock()

    def size(self, name: str) -> int | None:
        """None for what is not an object of this mirror, whatever it is."""
        entry = self._find(name)
        return None if entry is None else entry.size

    def read(self, name: str, offset: int, size: int) -> memoryview:
        """Raises StatementError for an object that is damaged; MirrorDamaged, StoreFailed."""
        entry = self._find(name)
        if entry is None:
            return memoryview(b"")
        content = self._content(name)
        if self._sound.get(name) != entry.sha256:
            if content.size != entry.size or hashlib.sha256(content).digest() != entry.sha256:
                raise internal(f"object {name} is damaged in the mirror; see: ccpr verify")
            self._sound.put(name, entry.sha256)
        return memoryview(content)[offset : offset + size]

    def _find(self, name: str) -> LedgerEntry | None:
        if OBJECT_NAME.fullmatch(name) is None:
            return None
        entry = self._entries.get(name) or self._entry(name)
        if entry is not None:
            self._entries.put(name, entry)
        return entry

    def _content(self, name: str) -> pa.Buffer:
        if self._mapped:
            return self._mirror.store.read(object_path(name))
        with self._lock:
            content = self._kept.get(name)
        if content is None:
            content = self._mirror.store.read(object_path(name))
            with self._lock:
                self._kept[name] = content
                while len(self._kept) > 1 and sum(one.size for one in self._kept.values()) > KEPT_BYTES:
                    del self._kept[next(iter(self._kept))]
        return content
