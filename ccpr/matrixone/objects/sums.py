"""Checksums of what is read of an object's file at a time: its header, its metadata, each stored column of each block.

They are made where the file is copied and kept beside its entry in the manifest, so that a bit that flips later is
found by the read that meets it, before anything is decoded. Source: docs/format/mirror.md, "Manifests"; decision
reads-prove-themselves.

The sums of a file are 4 bytes each, little-endian, the lower half of XXH3: header, metadata, then those of the blocks,
one after another, each with one for every column meta; 0 where no column is stored.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from ccpr.matrixone.objects.errors import ObjectChanged

HEADER, METADATA, BLOCKS = 0, 1, 2  # places of the sums; those of the blocks begin there
_LOWER = 0xFFFFFFFF


def sum_of(stored: pa.Buffer) -> int:
    return xxh3_64_intdigest(stored) & _LOWER


def packed(sums: Sequence[int]) -> bytes:
    return np.array(sums, "<u4").tobytes()


def unpacked(sums: bytes, subject: str) -> memoryview:
    """Numbers. Raises ObjectChanged if there are not even those of header and metadata."""
    if len(sums) % 4 or len(sums) < 4 * BLOCKS:
        raise ObjectChanged(f"{len(sums)} bytes are no checksums of an object", subject=subject)
    return np.frombuffer(sums, "<u4").astype(np.uint32).data


def check_sum(stored: pa.Buffer, sums: memoryview | None, place: int, what: str, subject: str) -> None:
    """Raises ObjectChanged unless the bytes are those that were copied; `sums` None = that is not known."""
    if sums is not None and sum_of(stored) != sums[place]:
        raise changed(what, subject)


def changed(what: str, subject: str) -> ObjectChanged:
    return ObjectChanged(f"{what} is not what was copied: its checksum differs", subject=subject)
