"""Zone maps, 64 bytes with the least and the greatest value: docs/format/object-file.md 1.2."""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.timestamp import Timestamp

ZONEMAP_SIZE = 64
_HALF = 30
_MAX_AT, _MAX_LENGTH_AT, _FLAGS_AT, _OID_AT = 31, 61, 62, 63
_LENGTH_MASK, _UNBOUNDED, _INITIALISED = 0x1F, 0x80, 0x80


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """Bounds of the non-null values of a column.

    Attributes
    ----------
    oid : type of the column.
    minimum, maximum : every value lies between them, ends included. Numbers are the stored ones: decimals unscaled,
        dates in days and times in microseconds since 0001-01-01. Texts are prefixes as bytes; a truncated maximum was
        increased, so that it is still a bound. Rowids and block ids are bytes in the order of 7.2. None: no maximum.
    """

    oid: int
    minimum: Any
    maximum: Any


def parse_zonemap(raw: bytes) -> ZoneMap | None:
    """None where the bytes bound nothing: not initialised, bool (the server stores the AND of the values), an unknown
    type, NaN, or another length.
    """
    if len(raw) != ZONEMAP_SIZE or not raw[_FLAGS_AT] & _INITIALISED:
        return None
    oid = raw[_OID_AT]
    if oid in types.VARLENA_TYPES:
        low, high = raw[_HALF] & _LENGTH_MASK, raw[_MAX_LENGTH_AT] & _LENGTH_MASK
        if max(low, high) > _HALF:
            return None
        maximum = None if raw[_MAX_LENGTH_AT] & _UNBOUNDED else raw[_MAX_AT : _MAX_AT + high]
        return ZoneMap(oid, raw[:low], maximum)
    if oid not in _DECODERS:
        return None
    size = types.SLOT_SIZES[oid]
    minimum, maximum = _DECODERS[oid](raw[:size]), _DECODERS[oid](raw[_MAX_AT : _MAX_AT + size])
    if minimum != minimum or maximum != maximum:
        return None
    return ZoneMap(oid, minimum, maximum)


def rowid_range(raw: bytes) -> tuple[bytes, bytes] | None:
    """Least and greatest rowid, 24 bytes each; None if the zone map does not have them."""
    parsed = parse_zonemap(raw)
    return None if parsed is None or parsed.oid != types.ROWID else (parsed.minimum, parsed.maximum)


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _timestamp(raw: bytes) -> Timestamp:
    logical, physical = struct.unpack("<Iq", raw)
    return Timestamp(physical, logical)


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    **dict.fromkeys((*types.SIGNED, types.DECIMAL128), _signed),
    **dict.fromkeys(types.UNSIGNED, _unsigned),
    types.FLOAT32: lambda raw: struct.unpack("<f", raw)[0],
    types.FLOAT64: lambda raw: struct.unpack("<d", raw)[0],
    types.UUID: lambda raw: uuid.UUID(bytes=raw),
    types.TS: _timestamp,
    **dict.fromkeys((types.ROWID, types.BLOCK_ID), bytes),
}
