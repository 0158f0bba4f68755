"""The bytes of a mirror's objects as the relay serves them: only of objects that the ledger has, compared with its
checksum before they are served for the first time.

The object format has no checksum, so whoever gets damaged bytes would read wrong rows from them. The ledger has one of
the whole object. An object in a folder is mapped, and compared once. One in a bucket is read whole for the first chunk
that is asked for, piece by piece; the checksums of the pieces, which that comparison vouches for, are kept, and from
then on only the pieces that are asked for are read, each compared with its own (decision hashed-before-served).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock

import pyarrow as pa

from matrixone.objects.content import Content as StoredContent
from matrixone.objects.stats import OBJECT_NAME
from relay.states import Newest
from replication.mirror.layout import object_path
from replication.mirror.local_store import LocalStore
from replication.mirror.mirror import Mirror
from replication.state.ledger import LedgerEntry
from wire.answers import StatementError
from wire.backing import internal

PIECE_BYTES = 4 << 20
CACHED_PIECES = 64
_MOST_ENTRIES = 100_000
_LOCKS = 64


@dataclass(frozen=True, slots=True)
class _Piece:
    """PIECE_BYTES of an object; the last one has the rest, too. So none is so small that the store would keep it, and
    show it damaged after it was repaired."""

    sha256: bytes
    data: pa.Buffer


@dataclass(frozen=True, slots=True)
class _Checked:
    """The checksum with which an object was compared, and those of its pieces; a mapped one needs none."""

    sha256: bytes
    pieces: tuple[bytes, ...] = ()


class Content:
    """The objects of one mirror. Thread-safe.

    `entry` looks an object up in the ledger; None = it is not in it.
    """

    def __init__(self, mirror: Mirror, entry: Callable[[str], LedgerEntry | None]) -> None:
        self._store, self._entry = mirror.store, entry
        self._entries = Newest[str, LedgerEntry](_MOST_ENTRIES)
        self._checked = Newest[str, _Checked](_MOST_ENTRIES)
        self._pieces = Newest[tuple[str, int], _Piece](CACHED_PIECES)
        self._mapped = isinstance(mirror.store, LocalStore)
        self._checking = [Lock() for _ in range(_LOCKS)]  # by name: of several that ask, one compares

    def size(self, name: str) -> int | None:
        """None for what is not an object of this mirror, whatever it is."""
        entry = self._find(name)
        return None if entry is None else entry.size

    def read(self, name: str, offset: int, size: int) -> memoryview:
        """Raises StatementError for an object that is damaged; MirrorDamaged, StoreFailed."""
        entry = self._find(name)
        if entry is None:
            return memoryview(b"")
        if self._mapped:
            return self._read_mapped(entry)[offset : offset + size]
        answer = memoryview(bytearray(max(0, min(size, entry.size - offset))))
        content = cache(partial(self._open, entry))
        known = self._known(entry)
        if known is None:
            with self._lock_of(name):
                known = self._known(entry)
                if known is None:
                    self._check(entry, content, offset, answer)
                    return answer
        last = len(known.pieces) - 1
        for number in range(min(last, offset // PIECE_BYTES), min(last, (offset + len(answer) - 1) // PIECE_BYTES) + 1):
            piece = self._piece(entry, number, content)
            if piece.sha256 != known.pieces[number]:
                self._pieces.drop((name, number))
                raise _damaged(name)
            _copy(piece.data, number * PIECE_BYTES - offset, answer)
        return answer

    def _find(self, name: str) -> LedgerEntry | None:
        if OBJECT_NAME.fullmatch(name) is None:
            return None
        entry = self._entries.get(name) or self._entry(name)
        if entry is not None:
            self._entries.put(name, entry)
        return entry

    def _known(self, entry: LedgerEntry) -> _Checked | None:
        known = self._checked.get(entry.name)
        return known if known is not None and known.sha256 == entry.sha256 else None

    def _lock_of(self, name: str) -> Lock:
        return self._checking[hash(name) % _LOCKS]

    def _read_mapped(self, entry: LedgerEntry) -> memoryview:
        content = self._store.read(object_path(entry.name))
        if self._known(entry) is None:
            with self._lock_of(entry.name):
                if self._known(entry) is None:
                    if content.size != entry.size or hashlib.sha256(content).digest() != entry.sha256:
                        raise _damaged(entry.name)
                    self._checked.put(entry.name, _Checked(entry.sha256))
        return memoryview(content)

    def _open(self, entry: LedgerEntry) -> StoredContent:
        content = self._store.open(object_path(entry.name))
        if content.size != entry.size:
            raise _damaged(entry.name)
        return content

    def _check(self, entry: LedgerEntry, content: Callable[[], StoredContent], offset: int, answer: memoryview) -> None:
        """Compare the whole object, and fill in what was asked for on the way."""
        whole, sums = hashlib.sha256(), list[bytes]()
        for number in range(_pieces(entry)):
            piece = self._piece(entry, number, content)
            whole.update(piece.data)
            sums.append(piece.sha256)
            _copy(piece.data, number * PIECE_BYTES - offset, answer)
        if whole.digest() != entry.sha256:
            for number in range(len(sums)):
                self._pieces.drop((entry.name, number))
            raise _damaged(entry.name)
        self._checked.put(entry.name, _Checked(entry.sha256, tuple(sums)))

    def _piece(self, entry: LedgerEntry, number: int, content: Callable[[], StoredContent]) -> _Piece:
        piece = self._pieces.get((entry.name, number))
        if piece is None:
            offset, is_last = number * PIECE_BYTES, number == _pieces(entry) - 1
            data = content().slice(offset, entry.size - offset if is_last else PIECE_BYTES)
            piece = _Piece(hashlib.sha256(data).digest(), data)
            self._pieces.put((entry.name, number), piece)
        return piece


def _pieces(entry: LedgerEntry) -> int:
    return max(1, entry.size // PIECE_BYTES)


def _copy(data: pa.Buffer, at: int, answer: memoryview) -> None:
    """What of the piece belongs into the answer, where it begins at `at`."""
    begin, end = max(0, at), min(len(answer), at + data.size)
    if begin < end:
        answer[begin:end] = memoryview(data).cast("B")[begin - at : end - at]


def _damaged(name: str) -> StatementError:
    return internal(f"object {name} is damaged in the mirror; see: ccpr verify")
