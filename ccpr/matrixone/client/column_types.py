"""`atttyp` of `mo_columns`: a column's type.

20 bytes, big endian: oid, charset (1 = binary), not-null and a spare byte, each widened to 16 bits; then the size of a
slot, width and scale as zig-zag numbers (0, -1, 1, -2, … are written 0, 1, 2, 3, …). Derived from recordings of all
types and checked against object files.
"""

import struct

from ccpr.matrixone.client.errors import BadCatalog
from ccpr.matrixone.objects.types import BINARY_CHARSET, SLOT_SIZES
from ccpr.matrixone.schema import SqlType

_TYPE = struct.Struct(">HHHHIII")


def decode_type(cell: bytes | None, what: str) -> SqlType:
    """A column's type from its `atttyp`. Raises BadCatalog."""
    if cell is None or len(cell) != _TYPE.size:
        raise BadCatalog(f"the type is not {_TYPE.size} bytes long", subject=what)
    oid, _charset, _not_null, _spare, _size, width, scale = _TYPE.unpack(cell)
    if not 0 < oid < 256:
        raise BadCatalog(f"the type's number is {oid}", subject=what)
    return SqlType(oid, _signed(width), _signed(scale))


def encode_type(type_: SqlType) -> bytes:
    """The `atttyp` of a type; of one that is not known the slots have no size."""
    numbers = (SLOT_SIZES.get(type_.oid, 0), type_.width, type_.scale)
    return _TYPE.pack(type_.oid, int(type_.oid in BINARY_CHARSET), 0, 0, *map(_zigzag, numbers))


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1
