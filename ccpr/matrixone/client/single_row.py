"""An answer of one row that may be very large, read from the wire into one buffer; its cells are views of the buffer.

PyMySQL keeps such an answer in memory three times: as frames of 16 MiB, joined to a packet, split into cells. Here the
bytes are copied once, by the kernel. Source: docs/upstream.md 5.8 (an object's chunk of 100 MiB is one cell); the MySQL
text protocol.
"""

from io import BufferedReader
from typing import NoReturn

from ccpr.matrixone.client.answer_packets import EOF, EOF_SIZES, Frames, check_end, read_cell, read_names
from ccpr.matrixone.client.errors import BadAnswer

Cells = dict[str, memoryview | None]  # by the names of the columns


def read_single_row(stream: BufferedReader, longest: int) -> Cells:
    """The cells of the only row of the next answer.

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
