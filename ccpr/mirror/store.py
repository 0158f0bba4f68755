"""The interface of the stores, which hold a mirror's files. A file appears with its whole content or not at all.

`ccpr.mirror.local_store` stores in a folder, `ccpr.mirror.s3_store` in an object store. `put` writes an
immutable file: a name that has other bytes already is an error. `replace` writes a mutable one (`head.json`, the
results of steps), and `sync` makes the files that were put in a folder survive a power cut. Names are relative and
`/`-separated, and consist of parts that this program has checked.

Files of an object store are read as far as they are asked for (`ranged`): one of up to WHOLE_BYTES at once, as one
request costs more than its bytes. Of a larger one blocks of BLOCK_BYTES are read, since what is asked for lies close
together: the metadata at the end, a column's blocks one after the other; the last used ones stay in memory. What is
longer than a block is read as it is and not kept.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

from ccpr.base.newest import Newest
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.mirror.errors import BadName, MirrorDamaged, StoreConflict

_NAME = re.compile(r"[A-Za-z0-9_.=-]+(?:/[A-Za-z0-9_.=-]+)*")
SUMMED_BYTES = 8 << 20
Chunk: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Size and checksum of a file that was written.

    Attributes
    ----------
    size : bytes.
    sha256 : checksum of the content, 32 bytes.
    """

    size: int
    sha256: bytes


PutEnd: TypeAlias = Callable[[], StoredFile]


class Hashing(Protocol):
    """What computes a checksum, as hashlib has it."""

    def update(self, data: Chunk, /) -> None: ...

    def digest(self) -> bytes: ...


class Unhashed:
    """Computes none: for bytes that are never the same."""

    def update(self, data: Chunk, /) -> None:
        """Nothing."""

    def digest(self) -> bytes:
        return b""


class Store(Protocol):
    """See the module. Stores inherit what has a body here and define the others. All methods raise StoreFailed, and
    BadName for a name that `check_name` refuses. What puts a file raises StoreConflict, and changes nothing, if it
    exists with other bytes.

    Attributes
    ----------
    url : from which it is opened again; without secrets.
    folder : where the files are, if that is a folder of this machine.
    shared : whether other users of the machine may read what is written.
    """

    url: str
    folder: Path | None
    shared: bool

    def put(
        self,
        name: str,
        chunks: Iterable[Chunk],
        *,
        check: Callable[[ObjectBytes], None] | None = None,
        overwrite: bool = False,
        hashing: Callable[[], Hashing] = hashlib.sha256,
    ) -> StoredFile:
        """Write an immutable file. `check` gets the whole content before the file appears, and raises to refuse it.
        `overwrite`: a file that is there is damaged, and this is what it was. `hashing`: for the checksum of the
        result, by which a file that is there is compared."""
        return self.begin(name, chunks, check=check, overwrite=overwrite, hashing=hashing)()

    def begin(
        self,
        name: str,
        chunks: Iterable[Chunk],
        *,
        check: Callable[[ObjectBytes], None] | None = None,
        overwrite: bool = False,
        hashing: Callable[[], Hashing] = hashlib.sha256,
    ) -> PutEnd:
        """The part of `put` that needs the processor: it takes the chunks and checks them. What it returns does the
        rest, which waits for the disk or the network, has to be called once, and may be on another thread."""
        ...

    def put_together(self, contents: Sequence[tuple[str, Chunk]]) -> list[StoredFile]:
        """Write small immutable files. Each appears on its own; after an error some are there, and some are not."""
        return [self.put(name, [content]) for name, content in contents]

    def replace(self, name: str, content: bytes) -> None:
        """Write a mutable file, which readers see with its former or its new content."""
        ...

    def sync(self, folder: str) -> None:
        """Make the names of the files in a folder survive a power cut, as their contents do; `""` is the root."""
        ...

    def read(self, name: str) -> pa.Buffer:
        """The content, in memory. Raises MirrorDamaged if the file is missing, StoreFailed."""
        ...

    def open(self, name: str) -> ObjectBytes:
        """The same to be read in parts: the store reads what is asked for, if it can, and each part when it is asked
        for."""
        ...

    def fresh(self, name: str) -> ObjectBytes:
        """As `open`, of what is stored now: nothing of it was kept from an earlier read."""
        ...

    def stored(self, name: str) -> StoredFile:
        """Size and checksum of what is stored now. Raises as `read`."""
        return summed(self.fresh(name))

    def size(self, name: str) -> int | None:
        """Bytes of a file, None if it does not exist."""
        ...

    def written_at(self, name: str) -> float | None:
        """When a file was written, in seconds since 1970 by the clock of the place; None if it does not exist."""
        ...

    def names(self, folder: str) -> Iterator[str]:
        """The names of all files below a folder, in order: all of them are held for that."""
        yield from in_order(self.each_name(folder))

    def each_name(self, folder: str) -> Iterator[str]:
        """The same in any order. Holds none that it has given, where the store lists in parts."""
        ...

    def delete(self, name: str) -> None:
        """Nothing happens if the file does not exist."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete all files below a folder. Nothing happens if there are none."""
        ...

    def sweep(self) -> int:
        """Delete what killed writers left unfinished. The caller holds the lease, so no other process writes. Returns
        the number of files."""
        ...


def is_name(name: str) -> bool:
    """Whether it consists of plain parts: false for `..`, empty parts and absolute names."""
    return _NAME.fullmatch(name) is not None and all(part.strip(".") for part in name.split("/"))


def check_name(name: str) -> str:
    """The name. Raises BadName if it is none."""
    if not is_name(name):
        raise BadName("not a name that may be a path", subject=f"name {name[:80]!r}")
    return name


def in_order(names: Iterable[str]) -> list[str]:
    """Names by their parts: what is in a folder stays together."""
    return sorted(names, key=lambda name: name.replace("/", "\0"))


def check_same(store: Store, name: str, written: StoredFile) -> None:
    """Raises StoreConflict if a file that exists has not these bytes. One that has just gone is no conflict."""
    try:
        there = store.stored(name)
    except MirrorDamaged:
        return
    if there != written:
        message = f"it exists with other bytes: {there.size} there, {written.size} to be written"
        raise StoreConflict(message, subject=f"{store.url.partition('?')[0]}/{name}")


def put_known(
    store: Store, name: str, chunks: Iterable[Chunk], sha256: bytes, other: CcprError, *, overwrite: bool
) -> None:
    """`Store.put` of a file whose checksum is known. Raises `other`, and writes nothing, if these are other bytes."""
    digest = hashlib.sha256()

    def check(_: ObjectBytes) -> None:
        if digest.digest() != sha256:
            raise other

    store.put(name, chunks, check=check, overwrite=overwrite, hashing=lambda: digest)


def pieces(content: ObjectBytes) -> Iterator[memoryview]:
    """The pieces of a content; one at a time is in memory."""
    for offset in range(0, content.size, SUMMED_BYTES):
        yield memoryview(content.slice(offset, min(SUMMED_BYTES, content.size - offset)))


def summed(content: ObjectBytes) -> StoredFile:
    """Size and checksum of a content; one piece at a time is in memory."""
    digest = hashlib.sha256()
    for piece in pieces(content):
        digest.update(piece)
    return StoredFile(content.size, digest.digest())


WHOLE_BYTES = 8 << 20
BLOCK_BYTES = 1 << 20
CACHED_BLOCKS = 64


class BlockCache:
    """Blocks of files by path and number, for several threads."""

    def __init__(self) -> None:
        self._blocks = Newest[tuple[str, int], pa.Buffer](CACHED_BLOCKS)

    def get(self, path: str, number: int, read: Callable[[], pa.Buffer]) -> pa.Buffer:
        block = self._blocks.get((path, number))
        if block is None:
            block = read()  # two threads may read the same one
            self._blocks.put((path, number), block)
        return block

    def forget(self, path: str) -> None:
        """Files do not change, but one that is damaged may be replaced."""
        for key in self._blocks:
            if key[0] == path:
                self._blocks.drop(key)


class RangedContent:
    """An open file of an object store.

    Parameters
    ----------
    read : so many bytes from an offset, exactly.
    """

    def __init__(self, path: str, size: int, read: Callable[[int, int], pa.Buffer], cache: BlockCache) -> None:
        self._path, self._size, self._read, self._cache = path, size, read, cache

    @property
    def size(self) -> int:
        return self._size

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        length = self._size - offset if length is None else length
        if length > BLOCK_BYTES:
            return self._read(length, offset)
        first, last = offset // BLOCK_BYTES, max(offset, offset + length - 1) // BLOCK_BYTES
        found = self._block(first) if first == last else pa.py_buffer(b"".join(map(self._block, (first, last))))
        return found.slice(offset - first * BLOCK_BYTES, length)

    def _block(self, number: int) -> pa.Buffer:
        begin = number * BLOCK_BYTES
        length = min(BLOCK_BYTES, self._size - begin)
        return self._cache.get(self._path, number, lambda: self._read(length, begin))


def ranged(path: str, size: int, read: Callable[[int, int], pa.Buffer], cache: BlockCache) -> ObjectBytes:
    """The content of a file: all of it, or what will be asked for."""
    return read(size, 0) if size <= WHOLE_BYTES else RangedContent(path, size, read, cache)
