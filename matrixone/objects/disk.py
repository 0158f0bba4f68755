"""Files of the DISK backend: the logical content cut into pieces, each after a checksum. docs/format/object-file.md
10.1."""

import numpy as np
import pyarrow as pa

from matrixone.objects.content import Content
from matrixone.objects.errors import ObjectDamaged
from matrixone.objects.layout import MAGIC

_PIECE, _CHECKSUM = 2048, 4
_POLYNOMIAL = 0x82F63B78  # CRC32C (Castagnoli), bits reversed


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _table()


def crc32c(pieces: np.ndarray) -> np.ndarray:
    """Checksums of the rows of a uint8 matrix: the loop runs over the bytes of a row, all rows at once."""
    state = np.full(len(pieces), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(pieces.T):
        state = _TABLE[(state ^ column) & 0xFF] ^ (state >> 8)
    return ~state


def is_disk_file(file: Content) -> bool:
    """Whether the magic number follows a checksum instead of being at the start."""
    return (
        file.size >= _CHECKSUM + len(MAGIC)
        and bytes(file.slice(_CHECKSUM, len(MAGIC))) == MAGIC
        and bytes(file.slice(0, len(MAGIC))) != MAGIC
    )


def logical_content(file: pa.Buffer, subject: str) -> pa.Buffer:
    """The content without its checksums, each of which is verified; raises `ObjectDamaged` if one does not match."""
    raw = np.frombuffer(file, np.uint8)
    whole = len(raw) // _PIECE
    rest = raw[whole * _PIECE :]
    pieces = raw[: whole * _PIECE].reshape(whole, _PIECE)
    _verify(pieces, 0, subject)
    if len(rest):
        if len(rest) <= _CHECKSUM:
            raise ObjectDamaged(f"the last piece on disk has {len(rest)} bytes", subject=subject)
        _verify(rest.reshape(1, -1), whole, subject)
    content = np.concatenate([pieces[:, _CHECKSUM:].reshape(-1), rest[_CHECKSUM:]])
    return pa.py_buffer(content)


def _verify(pieces: np.ndarray, first: int, subject: str) -> None:
    stored = np.ascontiguousarray(pieces[:, :_CHECKSUM]).view("<u4").reshape(-1)
    wrong = np.flatnonzero(crc32c(pieces[:, _CHECKSUM:]) != stored)
    if wrong.size:
        raise ObjectDamaged(f"the checksum of piece {first + int(wrong[0])} on disk does not agree", subject=subject)
