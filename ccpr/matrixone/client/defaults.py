"""What `att_default` of `mo_columns` says about a column's DEFAULT.

It is a protobuf message, `Default { Expr expr = 1 }`; `Expr { Literal lit = 2 }` where the server has computed the
value; `Literal { string sval = 11 }` for a text. Source: docs/upstream.md, "Checked on live clusters".
"""

from ccpr.matrixone.client.messages import BYTES, bytes_field, varint

_EXPRESSION, _LITERAL, _TEXT = 1, 2, 11


def default_text(cell: bytes | None) -> str | None:
    """The text that a text column's DEFAULT is, unquoted; None if it has none, or one that is not a text, or if the
    message cannot be read."""
    found = cell
    for field in (_EXPRESSION, _LITERAL, _TEXT):
        if found is None:
            return None
        found = bytes_field(found, field)
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError:
        return None


def default_cell(text: str | None) -> bytes:
    """A message whose `default_text` is this text."""
    if text is None:
        return b""
    message = text.encode()
    for field in (_TEXT, _LITERAL, _EXPRESSION):
        message = bytes((field << 3 | BYTES,)) + varint(len(message)) + message
    return message
