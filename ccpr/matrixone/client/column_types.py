"""What `mo_columns` says of a column: `atttyp`, its type, and `att_default`, its DEFAULT.

The type is 20 bytes, big endian: oid, charset (1 = binary), not-null and a spare byte, each widened to 16 bits; then
the size of a slot, width and scale as zig-zag numbers (0, -1, 1, -2, … are written 0, 1, 2, 3, …). Derived from
recordings of all types and checked against object files.

The DEFAULT is a protobuf message, `Default { Expr expr = 1 }`; `Expr { Literal lit = 2 }` where the server has computed
the value; `Literal { string sval = 11 }` for a text. Source: docs/upstream.md, "Checked on live clusters".
"""

import struct

from ccpr.matrixone.client.errors import BadCatalog
from ccpr.matrixone.objects.types import BINARY_CHARSET, SLOT_SIZES
from ccpr.matrixone.protobuf import BYTES, NotProtobuf, ProtobufMessage, varint
from ccpr.matrixone.schema import SqlType

_TYPE = struct.Struct(">HHHHIII")
_EXPRESSION, _LITERAL, _TEXT = 1, 2, 11


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


def default_text(cell: bytes | None) -> str | None:
    """The text that a text column's DEFAULT is, unquoted; None if it has none, or one that is not a text, or if the
    message cannot be read."""
    found = [cell or b""]
    try:
        for field in (_EXPRESSION, _LITERAL, _TEXT):
            found = [value for message in found for value in ProtobufMessage(message).all(field)[-1:]]
        return found[0].decode() if found else None
    except (NotProtobuf, UnicodeDecodeError):
        return None


def default_cell(text: str | None) -> bytes:
    """A message whose `default_text` is this text."""
    if text is None:
        return b""
    message = text.encode()
    for field in (_TEXT, _LITERAL, _EXPRESSION):
        message = bytes((field << 3 | BYTES,)) + varint(len(message)) + message
    return message
