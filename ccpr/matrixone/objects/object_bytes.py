"""Where the bytes of an object come from: a buffer in memory, or a file that is read by the requested slices only."""

import os
from typing import Protocol

import pyarrow as pa


class ObjectBytes(Protocol):
    """Bytes with random access. `pa.Buffer` is one."""

    @property
    def size(self) -> int: ...

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """`length` bytes from `offset`, which the caller has checked against `size`."""
        ...


class FileContent:
    """An open file. Unlike a memory-mapped one it keeps only the slices in use in memory, and truncating the file
    meanwhile cannot crash the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        return pa.py_buffer(os.pread(self._descriptor, self._size - offset if length is None else length, offset))
