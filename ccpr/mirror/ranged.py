"""Files of an object store, read as far as they are asked for: in blocks, and the last used ones stay in memory.

A file of up to WHOLE_BYTES is read at once, as one request costs more than its bytes. Of a larger one blocks of
BLOCK_BYTES are read, since what is asked for lies close together: the metadata at the end, a column's blocks one after
the other. What is longer than a block is read as it is and not kept.
"""

from collections.abc import Callable

import pyarrow as pa

from ccpr.base.newest import Newest
from ccpr.matrixone.objects.object_bytes import ObjectBytes

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
