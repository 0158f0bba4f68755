"""Deletion vectors of Delta Lake: the numbers of the rows of a file that do not exist, as a Roaring bitmap.

Those of a commit are together in one file, each with its size before and its CRC-32 behind it. Former releases wrote
small ones into the log, Z85 encoded, which Trino does not read; they are read. Source: the protocol of Delta Lake,
"Deletion Vector Format"; decision lake-protocol.
"""

import hashlib
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Reader: TypeAlias = Callable[[str, int, int], bytes]  # so many bytes of a file below the table, from an offset
_MAGIC = struct.pack("<I", 1681511377)
_FILE_LETTERS = 20  # of a UUID in Z85
_FORMAT = b"\x01"
_SIZE = struct.Struct(">I")  # of the size and of the checksum
_Z85 = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#", np.uint8)
_DIGITS = np.full(256, -1, np.int64)
_DIGITS[_Z85] = np.arange(85)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.int64)
_NAMES = uuid.UUID("4d1f65b2-3a50-4f6d-9f0c-6a5b8c0d7e11")  # of the names of files, which their content decides


def digest_of_rows(rows: np.ndarray) -> str:
    """What identifies a set of rows: how many, and a hash. `rows` is sorted, int64."""
    return f"{len(rows)}-{hashlib.sha256(rows.astype('<i8').tobytes()).hexdigest()[:16]}"


def serialized(rows: np.ndarray) -> bytes:
    """A vector as a file or the log holds it. `rows` is sorted."""
    from pyroaring import BitMap64

    bitmap = BitMap64(rows.astype(np.uint64))
    bitmap.run_optimize()
    return _MAGIC + bitmap.serialize()


def z85(data: bytes) -> str:
    """Z85; the data is filled up with zeros to a multiple of 4 bytes."""
    words = np.frombuffer(data + b"\0" * (-len(data) % 4), ">u4").astype(np.int64)
    digits = words[:, None] // _POWERS % 85
    return _Z85[digits].tobytes().decode()


@dataclass
class CommitVectors:
    """The vectors of one commit."""

    _content: bytearray = field(default_factory=lambda: bytearray(_FORMAT))
    _added: list[dict[str, Any]] = field(default_factory=list)

    def add(self, rows: np.ndarray) -> dict[str, Any] | None:
        """What the log says of a vector; None for one without rows. `name_file` completes it."""
        if not len(rows):
            return None
        data = serialized(rows)
        where = {"storageType": "u", "pathOrInlineDv": "", "offset": len(self._content)}
        self._content += _SIZE.pack(len(data)) + data + _SIZE.pack(zlib.crc32(data))
        self._added.append({**where, "sizeInBytes": len(data), "cardinality": len(rows)})
        return self._added[-1]

    def name_file(self) -> tuple[str, bytes] | None:
        """The file's name below the table, and its content; None if there are no vectors. The same vectors have the
        same name, so that a commit that is tried again finds its file."""
        if not self._added:
            return None
        content = bytes(self._content)
        number = uuid.uuid5(_NAMES, hashlib.sha256(content).hexdigest())
        for one in self._added:
            one["pathOrInlineDv"] = z85(number.bytes)
        return vector_file(number), content


def vector_file(number: uuid.UUID) -> str:
    return f"deletion_vector_{number}.bin"


def file_of(vector: Mapping[str, Any] | None) -> str | None:
    """The file of a vector, below the table; None if it is inside the log. Raises ValueError for what is not written
    here."""
    if vector is None or is_in_log(vector):
        return None
    if vector["storageType"] != "u" or len(vector["pathOrInlineDv"]) != _FILE_LETTERS:
        raise ValueError(f"a deletion vector of kind {vector['storageType']!r:.20}")
    return vector_file(uuid.UUID(bytes=unz85(vector["pathOrInlineDv"])))


def is_in_log(vector: Mapping[str, Any]) -> bool:
    """Whether a former release wrote it."""
    return vector["storageType"] == "i"


def unz85(text: str) -> bytes:
    """Raises ValueError for what is not Z85."""
    letters = np.frombuffer(text.encode(), np.uint8)
    digits = _DIGITS[letters]
    if len(letters) % 5 or (digits < 0).any():
        raise ValueError("not Z85")
    words = (digits.reshape(-1, 5) * _POWERS).sum(axis=1)
    if (words >= 2**32).any():
        raise ValueError("not Z85")
    return words.astype(">u4").tobytes()


def rows_of(vector: Mapping[str, Any] | None, read: Reader) -> np.ndarray:
    """The rows of a vector in the log; sorted, int64. Raises ValueError for what is not as it was written."""
    from pyroaring import BitMap64

    if vector is None:
        return np.empty(0, np.int64)
    rows = np.array(BitMap64.deserialize(serialized_of(vector, read)[len(_MAGIC) :]).to_array(), np.int64)
    if len(rows) != int(vector["cardinality"]):
        raise ValueError("a deletion vector with another number of rows")
    return rows


def serialized_of(vector: Mapping[str, Any], read: Reader) -> bytes:
    """A vector in the log, as `serialized` made it. Raises ValueError for what is not as it was written."""
    size, name = int(vector["sizeInBytes"]), file_of(vector)
    if name is None:
        data = unz85(vector["pathOrInlineDv"])[:size]
    else:
        framed = read(name, int(vector["offset"]), size + 2 * _SIZE.size)
        data = framed[_SIZE.size : -_SIZE.size]
        if framed[: _SIZE.size] != _SIZE.pack(size) or framed[-_SIZE.size :] != _SIZE.pack(zlib.crc32(data)):
            raise ValueError(f"a deletion vector that is damaged, in {name}")
    if len(data) != size or data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("a deletion vector of another format")
    return data


def unique_id(vector: Mapping[str, Any] | None) -> str:
    """As the protocol identifies the vector of a file; empty without one."""
    if vector is None:
        return ""
    offset = vector.get("offset")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}" + (f"@{offset}" if offset is not None else "")
