"""Object ids, rowids and their texts: docs/format/object-file.md 1, 7."""

import numpy as np
import pyarrow as pa

OBJECT_ID_SIZE = 18
ROWID_SIZE = 24
ROWID_DTYPE = np.dtype([("object", "V18"), ("block", "<u2"), ("row", "<u4")])

NAME_SIZE = 42
UUID_NOISE = 74
UUID_TEXT_SIZE = 36
UUID_DASHES = np.array([8, 13, 18, 23])
UUID_DIGITS = np.delete(np.arange(UUID_TEXT_SIZE), UUID_DASHES)  # setdiff1d imports NumPy's masked arrays
_HEX_PAIRS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
_GROUPS = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)]  # digits of a UUID; a dash follows each but the last


def uuid7(milliseconds: int, noise: int) -> bytes:
    """A UUID of version 7, in its 16 bytes. `noise`: UUID_NOISE random bits."""
    value = (milliseconds & (1 << 48) - 1) << 80 | 7 << 76 | (noise >> 62) << 64 | 2 << 62 | noise & (1 << 62) - 1
    return value.to_bytes(16, "big")


def uuid_text(raw: np.ndarray) -> np.ndarray:
    """Canonical lower-case text of UUIDs: uint8 of shape (n, 16) to uint8 of shape (n, 36)."""
    text = np.empty((len(raw), UUID_TEXT_SIZE), np.uint8)
    text[:, UUID_DASHES] = ord("-")
    digits = _HEX_PAIRS[raw].view(np.uint8)
    for dashes, (first, end) in enumerate(_GROUPS):
        text[:, first + dashes : end + dashes] = digits[:, first:end]
    return text


def name_text(object_ids: np.ndarray) -> np.ndarray:
    """File names of object ids: uint8 of shape (n, 18) to uint8 of shape (n, 42), `<uuid>_<five digits>`."""
    text = np.empty((len(object_ids), NAME_SIZE), np.uint8)
    text[:, :UUID_TEXT_SIZE] = uuid_text(object_ids[:, :16])
    text[:, UUID_TEXT_SIZE] = ord("_")
    number = object_ids[:, 16].astype(np.uint32) | object_ids[:, 17].astype(np.uint32) << 8
    for place in range(NAME_SIZE - 1, UUID_TEXT_SIZE, -1):
        number, digit = np.divmod(number, 10)
        text[:, place] = digit + ord("0")
    return text


def object_name(object_id: bytes) -> str:
    """The file name of one object id of 18 bytes."""
    digits = object_id[:16].hex()
    number = int.from_bytes(object_id[16:OBJECT_ID_SIZE], "little")
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}_{number:05d}"


def rowid_order(object_id: bytes) -> tuple[bytes, int]:
    """The sort key of an object in the order of rowids: bytes of the segment, then the file *number* (7.2)."""
    return object_id[:16], int.from_bytes(object_id[16:18], "little")


def fixed_text_array(text: np.ndarray) -> pa.StringArray:
    """ASCII texts of one length, uint8 of shape (n, length), as an Arrow string array without nulls."""
    return pa.StringArray.from_buffers(
        len(text), fixed_offsets(len(text), text.shape[1]), pa.py_buffer(np.ascontiguousarray(text))
    )


def fixed_offsets(count: int, length: int) -> pa.Buffer:
    """Offsets of `count` values of `length` bytes; the caller makes sure that `count * length` is below 2**31."""
    return pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(length))
