"""Messages of protobuf without their schemas: cells of the catalog, and expressions of Arrow. Source:
https://protobuf.dev/programming-guides/encoding."""

from collections import defaultdict
from collections.abc import Sequence

BYTES = 2  # the kind of a field


def varint(number: int) -> bytes:
    """A number as a message has it."""
    low = number & 0x7F
    return bytes((low,)) if number == low else bytes((low | 0x80,)) + varint(number >> 7)


class NotProtobuf(ValueError):
    """Not a message, or not one with the fields that are asked for."""


class ProtobufMessage:
    """A message by the numbers of its fields. Reading it raises NotProtobuf."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = defaultdict(list)
        place = 0
        while place < len(data):
            key, place = _varint_at(data, place)
            number, kind = key >> 3, key & 7
            if kind == 0:
                value, place = _varint_at(data, place)
            elif kind in (1, 2, 5):
                length, place = _varint_at(data, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
                value, place = data[place : place + length], place + length
            else:
                raise NotProtobuf
            self._fields[number].append(value)
        if place != len(data):
            raise NotProtobuf

    @property
    def numbers(self) -> set[int]:
        """Of the fields that are there."""
        return set(self._fields)

    def all(self, number: int) -> Sequence[bytes]:
        found = [value for value in self._fields.get(number, ()) if isinstance(value, bytes)]
        if len(found) != len(self._fields.get(number, ())):
            raise NotProtobuf
        return found

    def raw(self, number: int) -> bytes:
        """Empty if the field is not there."""
        found = self.all(number)
        if len(found) > 1:
            raise NotProtobuf
        return found[0] if found else b""

    def message(self, number: int) -> "ProtobufMessage":
        return ProtobufMessage(self.raw(number))

    def number(self, number: int) -> int:
        """Without a sign; 0 if the field is not there."""
        found = self._fields.get(number, [0])
        if len(found) != 1 or not isinstance(found[0], int):
            raise NotProtobuf
        return found[0]

    def signed(self, number: int) -> int:
        value = self.number(number)
        return value - (1 << 64) if value >> 63 else value


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise NotProtobuf
