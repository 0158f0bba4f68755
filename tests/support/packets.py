"""Answers of a server as bytes, in the MySQL text protocol."""

from ccpr.matrixone.server.packets import MAX_FRAME, length_prefix, prefixed

EOF = b"\xfe\0\0\2\0"
MORE = b"\xfe\0\0\x0a\0"
GONE = b"\xff\xd5\x4f#HY000file is not found"


def column(name: str) -> bytes:
    return prefixed(b"def") + b"\0\0\0" + prefixed(name.encode()) * 2 + b"\x0c" + bytes(12)


def row(*cells: bytes | None) -> bytes:
    return b"".join(b"\xfb" if cell is None else prefixed(cell) for cell in cells)


def wire(*payloads: bytes) -> bytes:
    """The payloads in numbered frames."""
    frames, number = [], 1
    for payload in payloads:
        for at in range(0, len(payload) + 1, MAX_FRAME):
            part = payload[at : at + MAX_FRAME]
            frames.append(len(part).to_bytes(3, "little") + bytes((number & 0xFF,)) + part)
            number += 1
    return b"".join(frames)


def answer(names: list[str], *rows: bytes) -> bytes:
    return wire(length_prefix(len(names)), *map(column, names), EOF, *rows, EOF)
