"""Files as MatrixOne's DISK file service writes them: a CRC32C before each 2,044 bytes. None of the reader's code is
used."""

import struct
from pathlib import Path

import numpy as np

_CONTENT = 2044
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed


def _table() -> np.ndarray:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(_POLYNOMIAL), values >> 1)
    return values


_TABLE = _table()


def crc32c(blocks: np.ndarray) -> np.ndarray:
    """Of each row."""
    crc = np.full(len(blocks), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(blocks.T):
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return ~crc


def framed(content: bytes) -> bytes:
    whole = len(content) // _CONTENT
    blocks = np.frombuffer(content[: whole * _CONTENT], np.uint8).reshape(whole, _CONTENT)
    checksums = crc32c(blocks).astype("<u4").view(np.uint8).reshape(whole, 4)
    file = np.concatenate([checksums, blocks], axis=1).tobytes()
    rest = content[whole * _CONTENT :]
    if rest:
        (checksum,) = crc32c(np.frombuffer(rest, np.uint8).reshape(1, -1))
        file += struct.pack("<I", checksum) + rest
    return file


def write_storage(objects: Path, folder: Path, *, disk: bool) -> Path:
    """A folder with the objects of another one, as the DISK file service keeps them or bare."""
    folder.mkdir(parents=True)
    for path in objects.iterdir():
        content = path.read_bytes()
        (folder / path.name).write_bytes(framed(content) if disk else content)
    return folder
