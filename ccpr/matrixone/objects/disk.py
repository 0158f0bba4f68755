"""Files of MatrixOne's DISK file service: blocks of 2,048 bytes, each a CRC32C and up to 2,044 bytes of content.
docs/format/object-file.md 10.1.

Snappy's stream format has the same checksum, masked, before each of its pieces, and pieces that are stored as they are.
So the blocks get the headers of such pieces, by NumPy, and the library checks and joins them: at memory's speed, and
without the interpreter's lock.
"""

import cramjam
import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.errors import ObjectDamaged
from ccpr.matrixone.objects.object_layout import MAGIC, ObjectBytes

BLOCK_BYTES, CONTENT_BYTES = 2048, 2044
_CRC_BYTES = BLOCK_BYTES - CONTENT_BYTES
_STREAM = np.frombuffer(b"\xff\x06\x00\x00sNaPpY", np.uint8)
_STORED, _HEAD_BYTES = 1, 4  # of a piece: its kind and its length, which counts the checksum that follows
_MASK = np.uint32(0xA282EAD8)


def framed_size(size: int) -> int:
    """Bytes of the file with `size` bytes of content."""
    return size + _CRC_BYTES * -(-size // CONTENT_BYTES)


def is_framed(file: ObjectBytes) -> bool:
    """Whether the magic number follows a checksum instead of being at the start."""
    return (
        file.size >= _CRC_BYTES + len(MAGIC)
        and bytes(file.slice(_CRC_BYTES, len(MAGIC))) == MAGIC
        and bytes(file.slice(0, len(MAGIC))) != MAGIC
    )


def unframe(framed: bytes | pa.Buffer, *, at: int, subject: str) -> memoryview:
    """The content of whole blocks; the last may be shorter. Raises ObjectDamaged, with the place of the first
    block that is not as its checksum says.

    Parameters
    ----------
    at : where the blocks begin in the file.
    """
    blocks, rest = divmod(len(framed), BLOCK_BYTES)
    content = _checked(np.frombuffer(framed, np.uint8), blocks, rest)
    if content is None:
        framed = bytes(framed)
        parts = (framed[place : place + BLOCK_BYTES] for place in range(0, len(framed), BLOCK_BYTES))
        pairs = ((number, np.frombuffer(part, np.uint8)) for number, part in enumerate(parts))
        bad = next(number for number, part in pairs if _checked(part, *divmod(len(part), BLOCK_BYTES)) is None)
        place = at + bad * BLOCK_BYTES
        raise ObjectDamaged(f"the block at byte {place} of its file does not have its CRC32C", subject=subject)
    return content


def _checked(framed: np.ndarray, blocks: int, rest: int) -> memoryview | None:
    """None if a checksum is wrong, or the last block has no content."""
    if 0 < rest <= _CRC_BYTES:
        return None
    whole = len(_STREAM) + blocks * (_HEAD_BYTES + BLOCK_BYTES)
    stream = np.empty(whole + (_HEAD_BYTES + rest if rest else 0), np.uint8)
    stream[: len(_STREAM)] = _STREAM
    _write_pieces(framed[: blocks * BLOCK_BYTES].reshape(blocks, BLOCK_BYTES), stream[len(_STREAM) : whole])
    if rest:
        _write_pieces(framed[blocks * BLOCK_BYTES :].reshape(1, rest), stream[whole:])
    content = np.empty(len(framed) - _CRC_BYTES * (blocks + bool(rest)), np.uint8)
    try:
        size = cramjam.snappy.decompress_into(stream.data, content.data)
    except cramjam.DecompressionError:
        return None
    return content.data if size == len(content) else None


def _write_pieces(blocks: np.ndarray, stream: np.ndarray) -> None:
    """Blocks of one length as a part of the stream."""
    number, length = blocks.shape
    pieces = stream.reshape(number, _HEAD_BYTES + length)
    checksum = np.ascontiguousarray(blocks[:, :_CRC_BYTES]).view("<u4")
    masked = ((checksum >> 15) | (checksum << 17)) + _MASK  # unsigned: it wraps, as it should
    pieces[:, :_HEAD_BYTES] = np.frombuffer(bytes([_STORED]) + length.to_bytes(3, "little"), np.uint8)
    pieces[:, _HEAD_BYTES : 2 * _HEAD_BYTES] = masked.view(np.uint8)
    pieces[:, 2 * _HEAD_BYTES :] = blocks[:, _CRC_BYTES:]
