"""MySQL packets on a socket: framing, sequence numbers, and the values inside a payload.

A payload of 0xFFFFFF bytes or more is sent in several frames; one of exactly n * 0xFFFFFF bytes ends with an empty
frame. Sequence numbers count frames, modulo 256, and start at 0 with every command.
"""

import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

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

MAX_FRAME = 0xFFFFFF
FLUSH_BYTES = 256 * 1024
JOIN_BYTES = 1024 * 1024
RECEIVE_BYTES = 1024 * 1024
MAX_VECTOR = 512

Buffer: TypeAlias = bytes | bytearray | memoryview
IN_TRANSACTION: Final = 1
AUTOCOMMIT: Final = 2
MORE_RESULTS: Final = 8
OK: Final = b"\x00\x00\x00" + AUTOCOMMIT.to_bytes(2, "little") + b"\x00\x00"
EOF: Final = b"\xfe\x00\x00" + AUTOCOMMIT.to_bytes(2, "little")
_DECIMAL = 246
_DISPLAY_LENGTH = {_DECIMAL: 39, TINY: 4, SMALL: 6, INT: 11, TIMESTAMP: 26, BIGINT: 20, BLOB_TEXT: 0xFFFFFFFF}


class Hangup(ConnectionError):
    """The peer closed the connection, between two packets or inside one."""


class ProtocolError(Exception):
    """The peer's bytes are not the MySQL protocol, or more than is accepted. `number` and `state` are sent to the peer,
    then the connection ends."""

    state = "08S01"

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number, self.text = number, text


@dataclass
class Channel:
    """Packets over one socket. Used by one thread.

    Attributes
    ----------
    sock : the connected socket, plain or TLS.
    vectored : whether `sendmsg` may be used (TLS sockets have none).
    pending, pending_bytes : what `flush` will send.
    deadline : by the monotonic clock, when all that is received and sent has to be done, in however many pieces: then
        it is a TimeoutError. None = none but the socket's own timeout, which is one of each piece.
    """

    sock: socket.socket
    vectored: bool = True
    sequence: int = 0
    deadline: float | None = None
    pending: list[Buffer] = field(default_factory=list)
    pending_bytes: int = 0

    def read(self, limit: int) -> bytes:
        """The next payload, its frames joined. More than `limit` bytes are a `ProtocolError`, which is raised before
        they are received."""
        payload = bytearray()
        while True:
            header = self._receive(4)
            length = int.from_bytes(header[:3], "little")
            if header[3] != self.sequence:
                raise ProtocolError(1156, f"packet number {header[3]} came where {self.sequence} was due")
            self.sequence = (self.sequence + 1) & 0xFF
            if len(payload) + length > limit:
                raise ProtocolError(1153, f"a packet of more than {limit} bytes is not taken")
            if length < MAX_FRAME and not payload:
                return self._receive(length)
            payload += self._receive(length)
            if length < MAX_FRAME:
                return bytes(payload)

    def hurry(self) -> None:
        """Let the next operation on the socket take until the deadline at most. Raises TimeoutError after it."""
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the peer is too slow")
            self.sock.settimeout(left)

    def _receive(self, size: int) -> bytes:
        # Memory grows with the bytes that arrive, never with the length in a header.
        self.hurry()
        first = self.sock.recv(min(size, RECEIVE_BYTES)) if size else b""
        if len(first) == size:
            return first
        received = bytearray(first)
        while len(received) < size:
            if not first:
                raise Hangup("the peer closed the connection")
            self.hurry()
            first = self.sock.recv(min(size - len(received), RECEIVE_BYTES))
            received += first
        return bytes(received)

    def write(self, *parts: Buffer | Streamed) -> None:
        """Queue one payload, in parts that are not copied; those that are streamed are read as they are
        sent. It is sent by `flush`, or earlier if much is queued."""
        size = sum(len(part) for part in parts)
        views = (view for part in parts for view in (part.pieces() if isinstance(part, Streamed) else (part,)))
        if size < MAX_FRAME:
            self._frame(size, views)
            return
        rest = Views(map(memoryview, views))
        while True:
            length = min(size, MAX_FRAME)
            self._frame(length, rest.take(length))
            size -= length
            if length < MAX_FRAME:
                return

    def write_frames(self, frames: memoryview, following: int) -> None:
        """Queue packets that have their headers; `following` is the number of the packet behind them."""
        self.sequence = following
        self._queue(frames)

    def _frame(self, length: int, parts: Iterable[Buffer]) -> None:
        self._queue(length.to_bytes(3, "little") + bytes((self.sequence,)))
        self.sequence = (self.sequence + 1) & 0xFF
        for part in parts:
            self._queue(part)

    def _queue(self, part: Buffer) -> None:
        self.pending.append(part)
        self.pending_bytes += len(part)
        if self.pending_bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        parts, size = self.pending, self.pending_bytes
        self.pending, self.pending_bytes = [], 0
        if size < JOIN_BYTES:
            self.send([b"".join(parts)])
        else:
            self.send(parts)

    def send(self, parts: list[Buffer]) -> None:
        self.hurry()
        if not self.vectored:
            for part in parts:
                self.sock.sendall(part)
            return
        if len(parts) == 1:
            self.sock.sendall(parts[0])
            return
        views = deque(memoryview(part) for part in parts if len(part))
        while views:
            sent = self.sock.sendmsg(list(islice(views, MAX_VECTOR)))
            while sent:
                if sent < len(views[0]):
                    views[0] = views[0][sent:]
                    break
                sent -= len(views.popleft())


class Views:
    """Bytes one after the other, taken as they are asked for."""

    def __init__(self, views: Iterator[memoryview]) -> None:
        self._views, self._left = views, memoryview(b"")

    def take(self, size: int) -> Iterator[memoryview]:
        """The next `size` bytes, or fewer at the end."""
        while size and (view := self._left or next(self._views, None)) is not None:
            taken, self._left = view[:size], view[size:]
            size -= len(taken)
            yield taken


class Fields:
    """Reads the values of a payload one after the other. Raises `ProtocolError` for a length beyond its end."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.payload) - self.position

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise ProtocolError(1043, "a packet ends before its values do")
        self.position += size
        return self.payload[self.position - size : self.position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def until_zero(self) -> bytes:
        end = self.payload.find(b"\0", self.position)
        if end < 0:
            raise ProtocolError(1043, "a text in a packet has no end")
        value = self.payload[self.position : end]
        self.position = end + 1
        return value

    def length_encoded(self) -> bytes:
        size = self.number(1)
        if size >= 0xFB:
            if size not in (0xFC, 0xFD, 0xFE):
                raise ProtocolError(1043, "a length in a packet is malformed")
            size = self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}[size])
        return self.take(size)


def length_prefix(size: int) -> bytes:
    """A length-encoded integer."""
    if size < 0xFB:
        return bytes((size,))
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little")
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little")
    return b"\xfe" + struct.pack("<Q", size)


def prefixed(value: bytes) -> bytes:
    return length_prefix(len(value)) + value


def encoded(text: str) -> bytes:
    """As it came: what was no UTF-8 in a statement is none in its answer."""
    return text.encode("utf-8", "surrogateescape")


def error_of(number: int, state: str, text: str) -> bytes:
    return b"\xff" + number.to_bytes(2, "little") + b"#" + state.encode().ljust(5)[:5] + text.encode("utf-8", "replace")


def ok_of(done: Done, *, has_more: bool) -> bytes:
    numbers = length_prefix(done.affected) + length_prefix(done.insert_id)
    return b"\x00" + numbers + _state_of(done, has_more) + done.warnings.to_bytes(2, "little")


def eof_of(last: Done, *, has_more: bool) -> bytes:
    """The end of columns or rows; the session's state is still that after its last statement without rows."""
    return b"\xfe\x00\x00" + _state_of(last, has_more)


def _state_of(done: Done, has_more: bool) -> bytes:
    state = AUTOCOMMIT * done.autocommit | IN_TRANSACTION * done.in_transaction | MORE_RESULTS * has_more
    return state.to_bytes(2, "little")


def column_definition(column: ResultColumn) -> bytes:
    name = column.name.encode("utf-8", "replace")  # clients decode it
    length = _DISPLAY_LENGTH.get(column.type, 65535)
    if column.type == _DECIMAL and column.decimals:  # clients compute its digits from this: 38, a sign, and a point
        length += 1
    tail = column.charset.to_bytes(2, "little") + length.to_bytes(4, "little") + bytes((column.type,))
    tail += column.flags.to_bytes(2, "little") + bytes((column.decimals, 0, 0))
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
