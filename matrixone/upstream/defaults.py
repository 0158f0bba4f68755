"""What `att_default` of `mo_columns` says about a column's DEFAULT.

It is a protobuf message, `Default { Expr expr = 1 }`; `Expr { Literal lit = 2 }` where the server has computed the
value; `Literal { string sval = 11 }` for a text. Source: docs/upstream.md, "Checked on live clusters".
"""

_EXPRESSION, _LITERAL, _TEXT = 1, 2, 11
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def default_text(cell: bytes | None) -> str | None:
    """The text that a text column's DEFAULT is, unquoted; None if it has none, or one that is not a text, or if the
    message cannot be read."""
    found = cell
    for field in (_EXPRESSION, _LITERAL, _TEXT):
        if found is None:
            return None
        found = _bytes_field(found, field)
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError:
        return None


def default_cell(text: str | None) -> bytes:
    """A message of which `default_text` is this text."""
    if text is None:
        return b""
    message = text.encode()
    for field in (_TEXT, _LITERAL, _EXPRESSION):
        message = bytes((field << 3 | _BYTES,)) + varint(len(message)) + message
    return message


def varint(number: int) -> bytes:
    """A number of protobuf."""
    low = number & 0x7F
    return bytes((low,)) if number == low else bytes((low | 0x80,)) + varint(number >> 7)


def _bytes_field(message: bytes, wanted: int) -> bytes | None:
    """The content of a message's field of bytes; the last one counts. None if there is none, or the message ends too
    early."""
    place, found = 0, None
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            _, place = _varint(message, place)
        elif kind == _BYTES:
            size, place = _varint(message, place)
            if tag >> 3 == wanted:
                found = message[place : place + size]
            place += size
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            return None
    return found if place == len(message) else None


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and where it ends; a place beyond the message if it has no end."""
    number = 0
    for shift, byte in enumerate(message[place : place + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    return 0, len(message) + 1
