"""Fields of the protobuf messages that some cells of the catalog are."""

_VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """A number of protobuf."""
    low = number & 0x7F
    return bytes((low,)) if number == low else bytes((low | 0x80,)) + varint(number >> 7)


def bytes_field(message: bytes, wanted: int) -> bytes | None:
    """The content of a message's field of bytes; the last one counts. None if there is none, or the message ends too
    early."""
    found = _field(message, wanted, BYTES)
    return found if isinstance(found, bytes) else None


def number_field(message: bytes, wanted: int) -> int:
    """A field that is a number; 0 if there is none, or the message ends too early."""
    found = _field(message, wanted, _VARINT)
    return found if isinstance(found, int) else 0


def _field(message: bytes, wanted: int, wanted_kind: int) -> bytes | int | None:
    place, found = 0, None
    while place < len(message):
        tag, place = _varint(message, place)
        kind, value = tag & 7, None
        if kind == _VARINT:
            value, place = _varint(message, place)
        elif kind == BYTES:
            size, place = _varint(message, place)
            value = message[place : place + size]
            place += size
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            return None
        if (tag >> 3, kind) == (wanted, wanted_kind):
            found = value
    return found if place == len(message) else None


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and where it ends; a place beyond the message if it has no end."""
    number = 0
    for shift, byte in enumerate(message[place : place + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    return 0, len(message) + 1
