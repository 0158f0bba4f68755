"""An answer of one row that may be very large, read from the wire into one buffer; its cells are views of the buffer.

PyMySQL keeps such an answer in memory three times: as frames of 16 MiB, joined to a packet, split into cells. Here the
bytes are copied once, by the kernel. Source: docs/upstream.md 5.8 (an object's chunk of 100 MiB is one cell); the MySQL
text protocol.
"""

from functools import lru_cache
from io import BufferedReader
from typing import NoReturn

import numpy as np
import pymysql
from pymysql.constants import CR

from ccpr.matrixone.client.errors import AnswerTooLong, BadAnswer

Cells = dict[str, memoryview | None]  # by the names of the columns

_FULL_FRAME = 0xFFFFFF  # a frame of this length is continued by the next frame
_LENGTH_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_NULL, _EOF, _ERROR = 0xFB, 0xFE, 0xFF
_SHORTEST_ERROR = 3
_EOF_SIZES = range(5, 9)
_MORE_RESULTS = 8
_NAME_PLACE = 4  # in a column definition: catalog, schema, table, original table, name


def read_single_row(stream: BufferedReader, longest: int) -> Cells:
    """The cells of the only row of the next answer.

    Raises AnswerTooLong for more than `longest` bytes, before they are read or memory is allocated for them; PyMySQL's
    error if the server reports one or hangs up; BadAnswer for another number of rows than one; ValueError for bytes
    that are not a result set. After any error that the server did not report itself the stream is out of step.
    """
    frames = _Frames(stream, longest)
    head = frames.packet()
    count, end = _number(memoryview(head), 0)
    if not count or end != len(head):  # 0: a statement without rows; None: the server asks for a local file
        raise ValueError("not a result set")
    names = [_column_name(frames.packet()) for _ in range(count)]
    _end(frames.packet())
    row = frames.payload()
    if len(row) in _EOF_SIZES and row[0] == _EOF:
        _not_one("none")
    cells: Cells = {}
    at = 0
    for name in names:
        cells[name], at = _cell(row, at)
    if at != len(row):
        raise ValueError("a row is longer than its cells")
    tail = frames.packet()
    if len(tail) not in _EOF_SIZES or tail[0] != _EOF:
        _not_one("more")
    _end(tail)
    return cells


class _Frames:
    """The frames of one answer; they are numbered from 1."""

    def __init__(self, stream: BufferedReader, longest: int) -> None:
        self._stream, self._left = stream, longest
        self._number = 1

    def packet(self) -> bytes:
        """A payload of one frame. Raises the server's error if the payload is one."""
        length = self._header()
        if length == _FULL_FRAME:
            raise ValueError("a packet of 16 MiB where only a short one is possible")
        payload = self._stream.read(length)
        if len(payload) < length:
            _lost()
        _check_error(payload)
        return payload

    def payload(self) -> memoryview:
        """A payload of any number of frames. Raises the server's error if the payload is one."""
        length = self._header()
        if length < _FULL_FRAME:
            payload = memoryview(self._stream.read(length))
            if len(payload) < length:
                _lost()
        else:
            whole = np.empty(length + self._left, np.uint8).data  # the kernel allocates its pages as they are filled
            done = 0
            while True:
                if self._stream.readinto(whole[done : done + length]) < length:
                    _lost()
                done += length
                if length < _FULL_FRAME:
                    break
                length = self._header()
            payload = whole[:done]
        _check_error(payload)
        return payload

    def _header(self) -> int:
        """The length of the next frame. Raises AnswerTooLong if it exceeds what may still be read."""
        header = self._stream.read(4)
        if len(header) < 4 or (header[3] == 0 and self._number):  # number 0: the error of a server that shuts down
            _lost()
        if header[3] != self._number:
            raise ValueError("packets are out of step")
        self._number = (self._number + 1) & 0xFF
        length = int.from_bytes(header[:3], "little")
        self._left -= 4 + length
        if self._left < 0:
            raise AnswerTooLong("the answer is longer than it can be", subject="answer of the upstream")
        return length


def _check_error(payload: bytes | memoryview) -> None:
    """Raises the server's error if the payload is one."""
    if len(payload) and payload[0] == _ERROR:
        if len(payload) < _SHORTEST_ERROR:
            raise ValueError("an error without a number")
        pymysql.err.raise_mysql_exception(bytes(payload))


def _lost() -> NoReturn:
    raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")


def _not_one(number: str) -> NoReturn:
    raise BadAnswer(f"one row was asked for, {number} came", subject="answer of the upstream")


def _end(packet: bytes) -> None:
    """Checks that the packet ends a list of columns or rows, and that no other answer follows."""
    if len(packet) not in _EOF_SIZES or packet[0] != _EOF:
        raise ValueError("a list of columns or rows has no end")
    if packet[3] & _MORE_RESULTS:
        raise ValueError("another answer follows")


@lru_cache(64)  # the definitions of repeated statements are the same bytes
def _column_name(definition: bytes) -> str:
    view, at, name = memoryview(definition), 0, None
    for _ in range(_NAME_PLACE + 1):
        name, at = _cell(view, at)
    if name is None:
        raise ValueError("a column without a name")
    return bytes(name).decode()


def _cell(payload: memoryview, at: int) -> tuple[memoryview | None, int]:
    """The cell that starts at `at`, and where the next one starts."""
    length, at = _number(payload, at)
    if length is None:
        return None, at
    if at + length > len(payload):
        raise ValueError("a cell is longer than its row")
    return payload[at : at + length], at + length


def _number(payload: memoryview, at: int) -> tuple[int | None, int]:
    """The length-encoded number at `at` (None for NULL), and where it ends."""
    if at >= len(payload):
        raise ValueError("a packet ends before its values do")
    first = payload[at]
    if first < _NULL:
        return first, at + 1
    if first == _NULL:
        return None, at + 1
    size = _LENGTH_SIZES.get(first, 0)
    if not size or at + 1 + size > len(payload):
        raise ValueError("a length in a packet is malformed")
    return int.from_bytes(payload[at + 1 : at + 1 + size], "little"), at + 1 + size
