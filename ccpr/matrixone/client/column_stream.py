"""An answer of many rows, read from the wire into columns, block by block.

PyMySQL makes a packet and a tuple of each row and a bytes object of each cell. Here a block of the socket's bytes
becomes one Arrow array a column, and only one block is in memory. Source: the MySQL text protocol.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader

import numpy as np
import pyarrow as pa

from ccpr.matrixone.client.answer_packets import (
    EOF,
    EOF_SIZES,
    ERROR,
    FULL_FRAME,
    HEADER,
    Frames,
    check_end,
    check_error,
    lost,
    packet_starts,
    read_names,
    split_cells,
    too_long,
)
from ccpr.matrixone.client.errors import BadAnswer

BLOCK_BYTES = 2 << 20  # some 9,000 rows of an object list
_LONGEST_ROW = 1 << 30  # bytes; the server takes values of 64 MiB
_NONE = np.empty((2, 0), np.int64)


@dataclass(frozen=True, slots=True)
class AnswerColumns:
    """Some rows of a result set.

    Attributes
    ----------
    names : of the columns, in the order of the answer.
    arrays : one a column, of equal lengths: cells as the bytes of the text protocol, null for NULL.
    """

    names: tuple[str, ...]
    arrays: tuple[pa.BinaryArray, ...]

    @property
    def rows(self) -> int:
        return len(self.arrays[0])

    def select(self, *names: str) -> list[pa.BinaryArray]:
        """The columns of these names, as `column_places`."""
        return [self.arrays[place] for place in column_places(self.names, names)]


def column_places(columns: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """The positions of some columns; the letter case of names does not matter, as everywhere in MySQL. Raises BadAnswer
    for a missing column; additional columns are allowed."""
    found = {name.lower(): place for place, name in reversed(list(enumerate(columns)))}
    missing = [name for name in names if name.lower() not in found]
    if missing:
        message = f"the answer has no column {', '.join(missing)}"
        raise BadAnswer(message, subject=f"answer with columns {', '.join(columns)}")
    return tuple(found[name.lower()] for name in names)


def read_columns(stream: BufferedReader, longest: int, block_bytes: int = BLOCK_BYTES) -> Iterator[AnswerColumns]:
    """The rows of the next answer, about `block_bytes` at a time. An empty answer is one block without rows.

    Raises AnswerTooLong for more than `longest` bytes; PyMySQL's error if the server reports one, also after some rows,
    or hangs up; ValueError for bytes that are not a result set, and for a row of 1 GiB. After any error that the
    server did not report itself the stream is out of step.
    """
    frames = Frames(stream, longest)
    names = tuple(read_names(frames))
    blocks = _Blocks(stream, frames, block_bytes)
    is_first = True
    while not blocks.ended:
        data, begins, ends = blocks.read()
        if len(begins) or (is_first and blocks.ended):
            yield AnswerColumns(names, tuple(split_cells(data, begins, ends, len(names))))
            is_first = False


class _Blocks:
    """The rows of an answer behind its head, a block at a time; what is left of a block begins the next one."""

    def __init__(self, stream: BufferedReader, frames: Frames, block_bytes: int) -> None:
        # What was read ahead is taken first; from then on the stream itself is read, as a buffered one may wait for
        # more than what it has.
        ahead = stream.read1()
        self._raw, self._left, self._number = stream.raw, frames.left, frames.number
        self._usual = max(block_bytes, len(ahead))
        self._data = np.empty(self._usual, np.uint8)
        self._data[: len(ahead)] = np.frombuffer(ahead, np.uint8)
        self._filled = self._at = 0  # bytes that have come, and those of them that are of whole packets
        self.ended = False
        self._count(len(ahead))

    def read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bytes that are valid until the next call, and where in them the payloads of rows begin and end. The last
        block of an answer may have none."""
        rest = self._data[self._at : self._filled]
        if len(self._data) > self._usual >= len(rest):  # behind a long row
            self._data = np.empty(self._usual, np.uint8)
        self._data[: len(rest)] = rest
        self._filled, self._at = len(rest), 0
        found = [_NONE]
        while True:
            starts, after = packet_starts(self._data[: self._filled].data, self._at)
            if len(starts):
                bounds = np.append(starts, after)
                self._at = after
                found.append(self._rows(np.stack([bounds[:-1] + HEADER, bounds[1:]])))
            if self.ended or (self._filled == len(self._data) and len(found) > 1):
                break
            if self._filled - self._at >= HEADER and self._length() == FULL_FRAME:
                if len(found) > 1:
                    break
                return self._long_row()
            self._fill()
        begins, ends = np.concatenate(found, axis=1)
        return self._data, begins, ends

    def _length(self) -> int:
        """Of the next frame."""
        return int.from_bytes(self._data[self._at : self._at + 3].tobytes(), "little")

    def _long_row(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The next row, of 16 MiB or more, as `read`: its frames without their headers."""
        parts, length, size = [], FULL_FRAME, 0
        while length == FULL_FRAME:
            while self._filled - self._at < HEADER or self._filled - self._at < HEADER + self._length():
                self._fill()
            length, begin = self._length(), self._at + HEADER
            self._check_numbers(self._data[begin - 1 : begin])
            parts.append(self._data[begin : begin + length].copy())
            self._at, size = begin + length, size + length
            if size > _LONGEST_ROW:
                raise ValueError("a row of more than 1 GiB")
            rest = self._data[self._at : self._filled].copy()
            self._data[: len(rest)] = rest
            self._at, self._filled = 0, len(rest)
        return np.concatenate(parts), np.zeros(1, np.int64), np.array([size])

    def _fill(self) -> None:
        """Read what has come, a byte at least."""
        if self._filled == len(self._data):  # a frame that is longer than the block
            self._data = np.concatenate([self._data, np.empty_like(self._data)])
        if not self._left:
            too_long()
        self._count(self._raw.readinto(self._data[self._filled : self._filled + self._left].data) or 0)

    def _count(self, size: int) -> None:
        """So many bytes have come."""
        if not size:
            lost()
        self._filled += size
        self._left -= size
        if self._left < 0:
            too_long()

    def _check_numbers(self, numbers: np.ndarray) -> None:
        """Of the next frames."""
        wrong = numbers[numbers != (self._number + np.arange(len(numbers))) & 0xFF]
        if len(wrong):
            if not wrong[0]:  # the error of a server that shuts down
                lost()
            raise ValueError("packets are out of step")
        self._number = (self._number + len(numbers)) & 0xFF

    def _rows(self, payloads: np.ndarray) -> np.ndarray:
        """Those payloads that are rows: all but the one that ends the answer. Two rows of numbers: begins, ends."""
        begins, ends = payloads
        self._check_numbers(self._data[begins - 1])
        if (begins == ends).any():
            raise ValueError("a packet ends before its values do")
        marks = self._data[begins]
        last = np.flatnonzero((marks == ERROR) | ((marks == EOF) & (ends - begins < EOF_SIZES.stop)))
        if not len(last):
            return payloads
        final = self._data[begins[last[0]] : ends[last[0]]].data
        check_error(final)
        check_end(final)
        if ends[last[0]] != self._filled:
            raise ValueError("more follows the end of an answer")
        self.ended = True
        return payloads[:, :-1]
