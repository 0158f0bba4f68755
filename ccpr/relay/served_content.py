"""The bytes of a mirror's objects as the relay serves them: only of objects that the ledger has, compared with its
checksum before they are served for the first time.

The object format has no checksum, so that damaged bytes would become wrong rows. The ledger has one of the whole
object. An object is read whole for the first chunk that is asked for, piece by piece; the checksums of the pieces,
which that comparison vouches for, are kept, and from then on only the pieces that are asked for are read, each compared
with its own, each time: what is sent is what was checked. Of a bucket what was read stays in memory for a while. A
folder's pieces are read as they are sent, so that a chunk of 100 MiB costs a piece. A
cluster that loads objects checks nothing. It costs a third of the rate on loopback (`benchmarks/relay.py`).
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from zlib import crc32

import pyarrow as pa

from ccpr.base.newest import Newest
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.matrixone.objects.stats import OBJECT_NAME
from ccpr.matrixone.server.answers import StatementError, Streamed
from ccpr.matrixone.server.backing import internal
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.state.ledger import LedgerEntry

PIECE_BYTES = 4 << 20
CACHED_PIECES = 64
_MOST_ENTRIES = 100_000
_LOCKS = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _CheckedContent:
    """The checksum with which an object was compared, and the CRC-32 of its pieces, which is computed for all that is
    ever sent."""

    sha256: bytes
    pieces: tuple[int, ...]


class ServedContent:
    """The objects of one mirror. Thread-safe.

    `entry` looks an object up in the ledger; None = it is not in it.
    """

    def __init__(self, mirror: Mirror, entry: Callable[[str], LedgerEntry | None]) -> None:
        self._store, self._entry = mirror.store, entry
        self._entries = Newest[str, LedgerEntry](_MOST_ENTRIES)
        self._checked = Newest[str, _CheckedContent](_MOST_ENTRIES)
        self._pieces = Newest[tuple[str, int], pa.Buffer](CACHED_PIECES)
        self._in_folder = mirror.store.folder is not None
        self._checking = [Lock() for _ in range(_LOCKS)]  # by name: of several that ask, one compares

    def size(self, name: str) -> int | None:
        """None for what is not an object of this mirror, whatever it is."""
        entry = self._find(name)
        return None if entry is None else entry.size

    def read(self, name: str, offset: int, size: int) -> memoryview | Streamed:
        """Raises StatementError for an object that is damaged; MirrorDamaged, StoreFailed. What is found while a large
        chunk is sent breaks its connection, and the object is compared as a whole before it is served again."""
        entry = self._find(name)
        if entry is None:
            return memoryview(b"")
        length = max(0, min(size, entry.size - offset))
        known = self._known(entry)
        if known is None:
            with self._lock_of(name):
                known = self._known(entry)
                if known is None:
                    answer = memoryview(bytearray(0 if self._in_folder else length))
                    known = self._sum_up(entry, offset, answer)
                    if not self._in_folder:
                        return answer
        pieces = partial(self._checked_pieces, entry, known, offset, length)
        if length <= PIECE_BYTES or not self._in_folder:
            return memoryview(b"".join(pieces()))
        return Streamed(length, partial(_or_break, pieces, name))

    def _find(self, name: str) -> LedgerEntry | None:
        if OBJECT_NAME.fullmatch(name) is None:
            return None
        entry = self._entries.get(name) or self._entry(name)
        if entry is not None:
            self._entries.put(name, entry)
        return entry

    def _known(self, entry: LedgerEntry) -> _CheckedContent | None:
        known = self._checked.get(entry.name)
        return known if known is not None and known.sha256 == entry.sha256 else None

    def _lock_of(self, name: str) -> Lock:
        return self._checking[hash(name) % _LOCKS]

    def _sum_up(self, entry: LedgerEntry, offset: int, answer: memoryview) -> _CheckedContent:
        """Compare the whole object, and fill in what was asked for on the way."""
        content, whole, sums = cache(partial(self._open, entry)), hashlib.sha256(), list[int]()
        for number in range(_pieces(entry)):
            data = self._piece(entry, number, content)
            whole.update(data)
            sums.append(crc32(data))
            _copy(data, number * PIECE_BYTES - offset, answer)
        if whole.digest() != entry.sha256:
            for number in range(len(sums)):
                self._pieces.drop((entry.name, number))
            raise _damaged(entry.name)
        known = _CheckedContent(entry.sha256, tuple(sums))
        self._checked.put(entry.name, known)
        return known

    def _checked_pieces(
        self, entry: LedgerEntry, known: _CheckedContent, offset: int, length: int
    ) -> Iterator[memoryview]:
        """What is asked for, each piece read and compared when it is taken."""
        content, end = cache(partial(self._open, entry)), offset + length
        for number in _numbers(entry, offset, length):
            at, data = number * PIECE_BYTES, self._piece(entry, number, content)
            if crc32(data) != known.pieces[number]:
                self._pieces.drop((entry.name, number))
                self._checked.drop(entry.name)
                raise _damaged(entry.name)
            yield memoryview(data).cast("B")[max(0, offset - at) : end - at]

    def _open(self, entry: LedgerEntry) -> ObjectBytes:
        content = self._store.open(object_path(entry.name))
        if content.size != entry.size:
            raise _damaged(entry.name)
        return content

    def _piece(self, entry: LedgerEntry, number: int, content: Callable[[], ObjectBytes]) -> pa.Buffer:
        """PIECE_BYTES of an object; the last one has the rest, too. So none is so small that the store would keep it,
        and show it damaged after it was repaired."""
        data = self._pieces.get((entry.name, number))
        if data is None:
            data = content().slice(*_place(entry, number))
            if not self._in_folder:
                self._pieces.put((entry.name, number), data)
        return data


def _pieces(entry: LedgerEntry) -> int:
    return max(1, entry.size // PIECE_BYTES)


def _place(entry: LedgerEntry, number: int) -> tuple[int, int]:
    """Offset and length of a piece."""
    offset, is_last = number * PIECE_BYTES, number == _pieces(entry) - 1
    return offset, entry.size - offset if is_last else PIECE_BYTES


def _numbers(entry: LedgerEntry, offset: int, length: int) -> range:
    """The pieces that have these bytes."""
    last = _pieces(entry) - 1
    return range(min(last, offset // PIECE_BYTES), min(last, (offset + length - 1) // PIECE_BYTES) + 1)


def _or_break(pieces: Callable[[], Iterator[memoryview]], name: str) -> Iterator[memoryview]:
    """The pieces; what is wrong with one breaks the connection. Asked again, the client gets the error."""
    try:
        yield from pieces()
    except (StatementError, CcprError) as error:
        _log.error("object %s: the connection that it is sent to is broken: %s", name, error)
        raise ConnectionAbortedError(f"object {name} cannot be sent any more") from error


def _copy(data: pa.Buffer, at: int, answer: memoryview) -> None:
    """What of the piece belongs into the answer, where it begins at `at`."""
    begin, end = max(0, at), min(len(answer), at + data.size)
    if begin < end:
        answer[begin:end] = memoryview(data).cast("B")[begin - at : end - at]


def _damaged(name: str) -> StatementError:
    return internal(f"object {name} is damaged in the mirror; see: ccpr verify")
