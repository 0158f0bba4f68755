"""What the server side of the MySQL protocol sends, as bytes: errors, counts, columns and rows."""

from collections.abc import Sequence
from typing import Final

from ccpr.matrixone.server.answers import (
    BIGINT,
    BLOB_TEXT,
    INT,
    SMALL,
    TIMESTAMP,
    TINY,
    Cell,
    Done,
    ResultColumn,
    Streamed,
)
from ccpr.matrixone.server.packets import Buffer, length_prefix, prefixed

IN_TRANSACTION: Final = 1
AUTOCOMMIT: Final = 2
MORE_RESULTS: Final = 8
OK: Final = b"\x00\x00\x00" + AUTOCOMMIT.to_bytes(2, "little") + b"\x00\x00"
EOF: Final = b"\xfe\x00\x00" + AUTOCOMMIT.to_bytes(2, "little")
EOF_WITH_MORE: Final = b"\xfe\x00\x00" + (AUTOCOMMIT | MORE_RESULTS).to_bytes(2, "little")

_DISPLAY_LENGTH = {TINY: 4, SMALL: 6, INT: 11, TIMESTAMP: 26, BIGINT: 20, BLOB_TEXT: 0xFFFFFFFF}


def encoded(text: str) -> bytes:
    """As it came: what was no UTF-8 in a statement is none in its answer."""
    return text.encode("utf-8", "surrogateescape")


def error_of(number: int, state: str, text: str) -> bytes:
    return b"\xff" + number.to_bytes(2, "little") + b"#" + state.encode().ljust(5)[:5] + text.encode("utf-8", "replace")


def ok_of(done: Done, *, has_more: bool) -> bytes:
    state = AUTOCOMMIT * done.autocommit | IN_TRANSACTION * done.in_transaction | MORE_RESULTS * has_more
    numbers = length_prefix(done.affected) + length_prefix(done.insert_id)
    return b"\x00" + numbers + state.to_bytes(2, "little") + b"\x00\x00"


def column_definition(column: ResultColumn) -> bytes:
    name = column.name.encode("utf-8", "replace")  # clients decode it
    length = _DISPLAY_LENGTH.get(column.type, 65535)
    tail = column.charset.to_bytes(2, "little") + length.to_bytes(4, "little") + bytes((column.type,)) + bytes(5)
    return prefixed(b"def") + b"\0\0\0" + prefixed(name) + prefixed(name) + b"\x0c" + tail


def row_of(cells: Sequence[Cell]) -> list[Buffer | Streamed]:
    parts: list[Buffer | Streamed] = []
    for cell in cells:
        if cell is None:
            parts.append(b"\xfb")
            continue
        value = cell if isinstance(cell, bytes | memoryview | Streamed) else encoded(str(cell))
        parts.append(length_prefix(len(value)))
        parts.append(value)
    return parts
