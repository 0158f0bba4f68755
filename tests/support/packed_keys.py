"""A reader of packed keys, one key at a time, against which the tests compare the writer: docs/format/object-file.md 8.

The product itself never unpacks a key: packed values compare bytewise as their tuples do.
"""

import struct
import uuid
from dataclasses import dataclass

from ccpr.matrixone.objects.errors import ObjectDamaged

NULL, FALSE, TRUE = 0x00, 0x26, 0x27
FLOAT32, FLOAT64 = 0x20, 0x21
# int8..int64, date, datetime, timestamp, time, year
SIGNED = frozenset((0x28, 0x29, 0x3A, 0x3B, 0x41, 0x42, 0x43, 0x47, 0x54))
UNSIGNED = frozenset((0x3C, 0x3D, 0x3E, 0x40, 0x51))  # uint8..uint64, bit
UINT16 = 0x3D
DECIMAL64, DECIMAL128, DECIMAL256 = 0x44, 0x45, 0x48
STRING, ENUM, UUID, OBJECT_ID = 0x46, 0x50, 0x52, 0x53

_STRING_START = 0x01
_ZERO = 0x14  # a varint of no bytes; 0x14 + k precedes k bytes of a positive number, 0x14 - k those of a negative one
_VARINT_MAX = 8
_FIXED = {DECIMAL64: 8, DECIMAL128: 16, DECIMAL256: 32, FLOAT32: 4, FLOAT64: 8, UUID: 16}


@dataclass(frozen=True, slots=True)
class Element:
    """One component of a packed key.

    Attributes
    ----------
    code : its type code.
    value : None, bool, int, float, bytes (any string or binary type), UUID, or (segment UUID, file number) of an object
        id. Dates and times are the column's integers, decimals unscaled (the scale is not in the key), an enum is the
        number of its label.
    """

    code: int
    value: bool | int | float | bytes | uuid.UUID | tuple[uuid.UUID, int] | None


def unpack_key(raw: bytes, *, subject: str = "packed key") -> tuple[Element, ...]:
    """The components of a packed key; raises `ObjectDamaged` if the bytes are not a packed key."""
    elements, at = [], 0
    while at < len(raw):
        element, at = _element(raw, at, subject)
        elements.append(element)
    return tuple(elements)


def _element(raw: bytes, at: int, subject: str) -> tuple[Element, int]:
    code = raw[at]
    at += 1
    if code == NULL:
        return Element(code, None), at
    if code in (FALSE, TRUE):
        return Element(code, code == TRUE), at
    if code in SIGNED or code in UNSIGNED:
        value, at = _varint(raw, at, subject)
        if code in UNSIGNED and value < 0:
            raise ObjectDamaged(f"a negative number under the unsigned code {code:#x}", subject=subject)
        return Element(code, value), at
    if code == STRING:
        return _string(raw, at, subject)
    if code == ENUM:
        _take(raw, at, 1, subject)
        if raw[at] != UINT16:
            raise ObjectDamaged("an enum without its number", subject=subject)
        value, at = _varint(raw, at + 1, subject)
        return Element(code, value), at
    if code == OBJECT_ID:
        segment = uuid.UUID(bytes=_take(raw, at, 16, subject))
        number, at = _varint(raw, at + 16, subject)
        return Element(code, (segment, number)), at
    if code not in _FIXED:
        raise ObjectDamaged(f"unknown type code {code:#x}", subject=subject)
    body = _take(raw, at, _FIXED[code], subject)
    return Element(code, _fixed(code, body)), at + len(body)


def _fixed(code: int, body: bytes) -> int | float | uuid.UUID:
    if code == UUID:
        return uuid.UUID(bytes=body)
    number, bits = int.from_bytes(body, "big"), 8 * len(body)
    top = 1 << bits - 1
    if code in (DECIMAL64, DECIMAL128, DECIMAL256):
        return number - top  # the sign bit was flipped, so that bytes order as numbers
    number = number ^ top if number & top else ~number & ((1 << bits) - 1)
    return struct.unpack(">f" if code == FLOAT32 else ">d", number.to_bytes(len(body), "big"))[0]


def _varint(raw: bytes, at: int, subject: str) -> tuple[int, int]:
    _take(raw, at, 1, subject)
    size = raw[at] - _ZERO
    at += 1
    if abs(size) > _VARINT_MAX:
        raise ObjectDamaged(f"a number of {abs(size)} bytes", subject=subject)
    value = int.from_bytes(_take(raw, at, abs(size), subject), "big")
    if size < 0:
        value -= 256**-size - 1
    return value, at + abs(size)


def _string(raw: bytes, at: int, subject: str) -> tuple[Element, int]:
    """A zero byte of the value is followed by 0xFF; a zero byte that is not followed by it ends the value."""
    if _take(raw, at, 1, subject)[0] != _STRING_START:
        raise ObjectDamaged("a string that does not start as one", subject=subject)
    at += 1
    end = raw.find(0, at)
    while end >= 0 and raw[end + 1 : end + 2] == b"\xff":
        end = raw.find(0, end + 2)
    if end < 0:
        raise ObjectDamaged("a string without an end", subject=subject)
    return Element(STRING, raw[at:end].replace(b"\x00\xff", b"\x00")), end + 1


def _take(raw: bytes, at: int, length: int, subject: str) -> bytes:
    if at + length > len(raw):
        raise ObjectDamaged(f"the key ends at {len(raw)}, but {length} bytes are to be read at {at}", subject=subject)
    return raw[at : at + length]
