"""What `att_default` of `mo_columns` says about a column's DEFAULT.

It is a protobuf message, `Default { Expr expr = 1 }`; `Expr { Literal lit = 2 }` where the server has computed the
value; `Literal { string sval = 11 }` for a text. Source: docs/upstream.md, "Checked on live clusters".
"""

from ccpr.matrixone.protobuf import BYTES, NotProtobuf, ProtobufMessage, varint

_EXPRESSION, _LITERAL, _TEXT = 1, 2, 11


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
