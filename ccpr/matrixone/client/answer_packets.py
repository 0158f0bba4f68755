"""The packets of an answer, as they come from the socket: the MySQL text protocol.

`Frames` reads them one by one: the few at the head of an answer, and a row of 100 MiB (`read_single_row`). PyMySQL
would keep three copies of such a row: as frames of 16 MiB, as a packet, as cells. `packet_starts` and `split_cells`
take a block of many rows apart, with one step for each column.
"""

from functools import lru_cache
from io import BufferedReader
from struct import Struct
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.constants import CR

from ccpr.matrixone.client.errors import AnswerTooLong, BadAnswer

FULL_FRAME = 0xFFFFFF  # a frame of this length is continued by the next frame
HEADER = 4  # bytes: the length of a frame in three, its number in one
EOF, ERROR = 0xFE, 0xFF
EOF_SIZES = range(5, 9)
_LENGTH_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_NULL = 0xFB
_SHORTEST_ERROR = 3
_MORE_RESULTS = 8
_NAME_PLACE = 4  # in a column definition: catalog, schema, table, original table, name
_HEADER = Struct("<I")
Cells = dict[str, memoryview | None]  # by the names of the columns


class Frames:
    """The frames of one answer; they are numbered from 1.

    Attributes
    ----------
    left : bytes that may still be read.
    number : of the next frame, modulo 256.
    """

    def __init__(self, stream: BufferedReader, longest: int) -> None:
        self._stream, self.left = stream, longest
        self.number = 1

    def packet(self) -> bytes:
        """A payload of one frame. Raises the server's error if the payload is one."""
        length = self._header()
        if length == FULL_FRAME:
            raise ValueError("a packet of 16 MiB where only a short one is possible")
        payload = self._stream.read(length)
        if len(payload) < length:
            lost()
        check_error(payload)
        return payload

    def payload(self) -> memoryview:
        """A payload of any number of frames. Raises the server's error if the payload is one."""
        length = self._header()
        if length < FULL_FRAME:
            payload = memoryview(self._stream.read(length))
            if len(payload) < length:
                lost()
        else:
            whole = np.empty(length + self.left, np.uint8).data  # the kernel allocates its pages as they are filled
            done = 0
            while True:
                if self._stream.readinto(whole[done : done + length]) < length:
                    lost()
                done += length
                if length < FULL_FRAME:
                    break
                length = self._header()
            payload = whole[:done]
        check_error(payload)
        return payload

    def _header(self) -> int:
        """The length of the next frame. Raises AnswerTooLong if it exceeds what may still be read."""
        header = self._stream.read(HEADER)
        if len(header) < HEADER or (header[3] == 0 and self.number):  # number 0: the error of a server that shuts down
            lost()
        if header[3] != self.number:
            raise ValueError("packets are out of step")
        self.number = (self.number + 1) & 0xFF
        length = int.from_bytes(header[:3], "little")
        self.left -= HEADER + length
        if self.left < 0:
            too_long()
        return length


def read_names(frames: Frames) -> list[str]:
    """The head of a result set: the names of its columns."""
    head = frames.packet()
    count, end = _number(memoryview(head), 0)
    if not count or end != len(head):  # 0: a statement without rows; None: the server asks for a local file
        raise ValueError("not a result set")
    names = [_column_name(frames.packet()) for _ in range(count)]
    check_end(frames.packet())
    return names


def check_error(payload: bytes | memoryview) -> None:
    """Raises the server's error if the payload is one."""
    if len(payload) and payload[0] == ERROR:
        if len(payload) < _SHORTEST_ERROR:
            raise ValueError("an error without a number")
        pymysql.err.raise_mysql_exception(bytes(payload))


def check_end(packet: bytes | memoryview) -> None:
    """Checks that the packet ends a list of columns or rows, and that no other answer follows."""
    if len(packet) not in EOF_SIZES or packet[0] != EOF:
        raise ValueError("a list of columns or rows has no end")
    if packet[3] & _MORE_RESULTS:
        raise ValueError("another answer follows")


def lost() -> NoReturn:
    raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")


def too_long() -> NoReturn:
    raise AnswerTooLong("the answer is longer than it can be", subject="answer of the upstream")


def read_cell(payload: memoryview, at: int) -> tuple[memoryview | None, int]:
    """The cell that starts at `at`, and where the next one starts."""
    length, at = _number(payload, at)
    if length is None:
        return None, at
    if at + length > len(payload):
        raise ValueError("a cell is longer than its row")
    return payload[at : at + length], at + length


@lru_cache(64)  # the definitions of repeated statements are the same bytes
def _column_name(definition: bytes) -> str:
    view, at, name = memoryview(definition), 0, None
    for _ in range(_NAME_PLACE + 1):
        name, at = read_cell(view, at)
    if name is None:
        raise ValueError("a column without a name")
    return bytes(name).decode()


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


def packet_starts(block: memoryview, at: int) -> tuple[np.ndarray, int]:
    """Where in a block the packets of one frame begin that are in it as a whole, the first one at `at`, and where the
    next one begins.

    Each header says where the next one is, so this is the one step that is taken for each packet, and not for all at
    once: 0.15 s for a million.
    """
    starts: list[int] = []
    header, found = _HEADER.unpack_from, starts.append
    last = len(block) - HEADER
    while at <= last:
        length = header(block, at)[0] & FULL_FRAME
        after = at + HEADER + length
        if after > len(block) or length == FULL_FRAME:
            break
        found(at)
        at = after
    return np.array(starts, np.int64), at


def split_cells(data: np.ndarray, begins: np.ndarray, ends: np.ndarray, width: int) -> list[pa.BinaryArray]:
    """The cells of rows, one array a column.

    Parameters
    ----------
    data : uint8; the payload of each row is from its `begins` (int64) to its `ends`, in rising order.
    width : cells of a row.

    Raises ValueError for a row that has other cells, or a length that does not fit in.
    """
    columns = []
    for _ in range(width):
        first, after, is_null = _cell_bounds(data, begins, ends)
        columns.append(_gathered(data, first, after, is_null))
        begins = after
    if not np.array_equal(begins, ends):
        raise ValueError("a row is longer than its cells")
    return columns


def _cell_bounds(
    data: np.ndarray, begins: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Where the cells that are encoded at `begins` have their first byte and end, and which are NULL (None: none)."""
    if (begins >= ends).any():
        raise ValueError("a packet ends before its values do")
    marks = data[begins]
    first, lengths, is_null = begins + 1, marks.astype(np.int64), None
    if (marks >= _NULL).any():
        is_null = marks == _NULL
        lengths[is_null] = 0
        if (marks == ERROR).any():
            raise ValueError("a length in a packet is malformed")
        for mark, size in _LENGTH_SIZES.items():
            rows = np.flatnonzero(marks == mark)
            if rows.size:
                lengths[rows] = _long_lengths(data, first[rows], ends[rows], size)
                first[rows] += size
    after = first + lengths
    if (after > ends).any():
        raise ValueError("a cell is longer than its row")
    return first, after, is_null


def _long_lengths(data: np.ndarray, at: np.ndarray, ends: np.ndarray, size: int) -> np.ndarray:
    """Lengths of `size` bytes each."""
    if (at + size > ends).any():
        raise ValueError("a length in a packet is malformed")
    numbers = np.zeros((len(at), 8), np.uint8)
    numbers[:, :size] = data[at[:, None] + np.arange(size)]
    found = numbers.view("<u8")[:, 0]
    return np.minimum(found, len(data) + 1).astype(np.int64)  # one that does not fit in stays too long


def _gathered(data: np.ndarray, first: np.ndarray, after: np.ndarray, is_null: np.ndarray | None) -> pa.BinaryArray:
    """The cells from `first` to `after`, copied out of the data: every second one of an array in which cells and what
    is between them take turns."""
    if not len(first):
        return pa.array([], pa.binary())
    bounds = np.empty((len(first), 2), np.int32)
    bounds[:, 0], bounds[:, 1] = first, after
    turns = pa.Array.from_buffers(pa.binary(), 2 * len(first) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    chosen = pa.py_buffer(np.arange(0, 2 * len(first), 2))
    valid = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return turns.take(pa.Array.from_buffers(pa.int64(), len(first), [valid, chosen]))


def read_single_row(stream: BufferedReader, longest: int) -> Cells:
    """The cells of the only row of the next answer, as views of one buffer, into which the kernel copies the bytes.

    Raises AnswerTooLong for more than `longest` bytes, before they are read or memory is allocated for them; PyMySQL's
    error if the server reports one or hangs up; BadAnswer for another number of rows than one; ValueError for bytes
    that are not a result set. After any error that the server did not report itself the stream is out of step.
    """
    frames = Frames(stream, longest)
    names = read_names(frames)
    row = frames.payload()
    if len(row) in EOF_SIZES and row[0] == EOF:
        _not_one("none")
    cells: Cells = {}
    at = 0
    for name in names:
        cells[name], at = read_cell(row, at)
    if at != len(row):
        raise ValueError("a row is longer than its cells")
    tail = frames.packet()
    if len(tail) not in EOF_SIZES or tail[0] != EOF:
        _not_one("more")
    check_end(tail)
    return cells


def _not_one(number: str) -> NoReturn:
    raise BadAnswer(f"one row was asked for, {number} came", subject="answer of the upstream")
