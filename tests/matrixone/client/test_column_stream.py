"""Rows as columns, read from bytes as a server would send them, in pieces of any length."""

import io
from typing import Any

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.connections import Connection, MySQLResult

from ccpr.matrixone.client.column_stream import AnswerColumns, read_columns
from ccpr.matrixone.client.errors import AnswerTooLong, BadAnswer
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.packets import MAX_FRAME, length_prefix
from tests.support.packets import EOF, GONE, MORE, answer, column, row, wire
from tests.support.traced_memory import memory_below

ENOUGH = 1 << 27
BLOCK = 1000
Cells = tuple[bytes | None, ...]


class Pieces(io.RawIOBase):
    """Bytes that come as they were cut."""

    def __init__(self, content: bytes, cuts: list[int]) -> None:
        self._content, self._at = memoryview(content), 0
        self._ends = [*sorted(cuts), len(content)]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._ends[0] <= self._at and len(self._ends) > 1:
            self._ends.pop(0)
        taken = self._content[self._at : min(self._ends[0], self._at + len(buffer))]
        buffer[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)


def stream(content: bytes, cuts: list[int]) -> io.BufferedReader:
    return io.BufferedReader(Pieces(content, cuts), 1 << 8)


def read(
    content: bytes, cuts: list[int] | None = None, longest: int = ENOUGH, block: int = BLOCK
) -> list[AnswerColumns]:
    return list(read_columns(stream(content, cuts or []), longest, block))


def rows_of(found: list[AnswerColumns]) -> list[Cells]:
    return [cells for columns in found for cells in zip(*(array.to_pylist() for array in columns.arrays), strict=True)]


def rows_of_pymysql(content: bytes) -> list[Cells]:
    """What PyMySQL makes of the same bytes."""
    connection: Any = Connection(defer_connect=True, use_unicode=False, conv={}, charset="utf8mb4")
    connection._rfile = io.BytesIO(content)
    connection._current_timeout = connection._read_timeout = None
    connection._next_seq_id = 1
    result: Any = MySQLResult(connection)
    result.read()
    return list(result.rows)


def cells_of(width: int) -> st.SearchStrategy[list[Cells]]:
    """Rows of short and long cells, often of one shape, as lists have them."""
    short = st.one_of(st.none(), st.binary(max_size=20), st.just(b"x" * 154))
    long = st.sampled_from([250, 251, 255, 256, 70_000]).map(lambda size: b"\xfe" * size)
    one = st.tuples(*[short | long] * width).map(lambda cells: [cells])
    alike = st.tuples(st.tuples(*[short] * width), st.integers(1, 30)).map(lambda drawn: [drawn[0]] * drawn[1])
    return st.lists(one | alike, max_size=6).map(lambda runs: [cells for run in runs for cells in run])


@given(st.data())
def test_any_rows_in_any_cut_are_what_pymysql_reads(data: st.DataObject):
    width = data.draw(st.integers(1, 6))
    names = [f"column {number}" for number in range(width)]
    rows = data.draw(cells_of(width))
    content = answer(names, *(row(*cells) for cells in rows))
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=20))
    found = read(content, cuts, block=data.draw(st.sampled_from([16, 300, 1000, 1 << 16])))
    assert rows_of(found) == rows == rows_of_pymysql(content)
    assert all(list(columns.names) == names for columns in found)
    assert [columns.rows > 0 for columns in found] == ([False] if not rows else [True] * len(found))


def test_a_block_has_as_many_rows_as_fit_in():
    found = read(answer(["a"], *[row(b"x" * 95)] * 100))
    assert [columns.rows for columns in found] == [10] * 10
    assert rows_of(found) == [(b"x" * 95,)] * 100


def test_more_rows_than_a_number_of_packets_can_count():
    rows = [(str(number).encode(), None) for number in range(1000)]
    assert rows_of(read(answer(["a", "b"], *(row(*cells) for cells in rows)))) == rows


def test_memory_is_that_of_a_block_whatever_the_answer():
    content = answer(["a", "b"], *[row(b"x" * 154, b"y" * 20)] * 50_000)
    source = stream(content, [])
    with memory_below(len(content) // 4):
        assert sum(columns.rows for columns in read_columns(source, ENOUGH, 1 << 16)) == 50_000


def test_a_row_longer_than_a_block_is_read():
    long = b"x" * 100_000
    content = answer(["a"], row(b"1"), row(long), row(b"2"))
    assert rows_of(read(content)) == [(b"1",), (long,), (b"2",)]


@pytest.mark.parametrize("size", [MAX_FRAME - 5, MAX_FRAME - 4, MAX_FRAME, 2 * MAX_FRAME + 3])
def test_a_row_of_many_frames_is_read(size: int):
    long = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    content = answer(["a", "b"], row(b"1", b"2"), row(long, None), row(b"3", b"4"), row(b"5", long))
    assert rows_of(read(content, [1000, size, size + 10])) == [(b"1", b"2"), (long, None), (b"3", b"4"), (b"5", long)]


def test_a_row_of_many_frames_that_ends_early_is_a_lost_connection():
    whole = answer(["a"], row(b"1"), row(b"x" * MAX_FRAME))
    for size in (len(whole) - 10, len(whole) - 100, len(whole) - MAX_FRAME):
        with pytest.raises(pymysql.err.OperationalError, match="2013"):
            read(whole[:size])
    with pytest.raises(AnswerTooLong):
        read(whole, longest=MAX_FRAME)


def test_the_columns_are_chosen_by_name_whatever_their_case():
    (found,) = read(answer(["DB Name", "a", "A"], row(b"1", b"2", b"3")))
    assert [array.to_pylist() for array in found.select("a", "db name")] == [[b"2"], [b"1"]]
    with pytest.raises(BadAnswer, match="no column b"):
        found.select("a", "b")


def test_an_error_of_the_server_is_raised_wherever_it_occurs():
    packets = [length_prefix(2), column("a"), column("b"), EOF, *[row(b"1", b"2")] * 500, EOF]
    for place in (0, 1, 2, 3, 4, 5, 100, 503):
        with pytest.raises(pymysql.err.MySQLError, match="file is not found"):
            read(wire(*packets[:place], GONE))


def test_an_answer_that_ends_early_is_a_lost_connection():
    whole = answer(["a", "b"], row(b"1", b"x" * 300), row(None, b"y"))
    for size in range(len(whole)):
        with pytest.raises(pymysql.err.OperationalError, match="2013"):
            read(whole[:size])


def test_a_server_that_shuts_down_is_a_lost_connection():
    whole = wire(b"\1", column("a"), EOF, row(b"1"))
    last_words = len(GONE).to_bytes(3, "little") + b"\0" + GONE
    with pytest.raises(pymysql.err.OperationalError, match="2013"):
        read(whole + last_words)


@pytest.mark.parametrize(
    "content",
    [
        wire(b"\0\0\0\2\0\0\0"),  # OK, without rows
        wire(b"\xfb/etc/passwd"),  # asks for a file of ours
        wire(b"\1", column("a"), row(b"1"), row(b"1"), EOF),  # columns without an end
        wire(b"\1", column("a"), EOF, row(b"1"), MORE),
        wire(b"\1", column("a"), EOF, row(b"1", b"2"), EOF),
        wire(b"\2", column("a"), column("b"), EOF, row(b"1", b"2"), row(b"1"), EOF),
        wire(b"\1", column("a"), EOF, row(b"1"), b"\xfc\xff\xffabc", EOF),
        wire(b"\1", column("a"), EOF, row(b"1"), b"\xfc\xff", EOF),
        wire(b"\1", column("a"), EOF, row(b"1"), b"\xfe" + b"\xff" * 8 + b"abc", EOF),
        wire(b"\2", column("a"), column("b"), EOF, b"\1x\xff", EOF),
        wire(b"\1", column("a"), EOF, row(b"1"), b"", EOF),
        wire(b"\1", column("a"), EOF, row(b"1"), b"\xfe", EOF),  # an end that is too short
        wire(b"\1", column("a"), EOF, row(b"1"), b"\xff\1"),  # an error without a number
        wire(b"\1", column("a"), EOF, row(b"1"), EOF, row(b"1")),
        wire(b"\1", column("a"), EOF, row(b"1")) + b"\xff\xff\xff\5" + bytes(MAX_FRAME) + b"\0\0\0\7",
        wire(b"\1", column("a"), EOF, row(b"1")) + b"\1\0\0\7x",  # numbered 7
    ],
)
def test_what_is_not_a_result_set_is_refused(content: bytes):
    with pytest.raises(ValueError, match=r"packet|result|list|answer|cell|length|column|error"):
        read(content)


def test_an_answer_beyond_its_allowance_is_not_read_to_its_end():
    content = answer(["a"], *[row(b"x" * 95)] * 100)
    assert len(rows_of(read(content, longest=len(content)))) == 100
    for longest in (10, 50, 5000, len(content) - 1):
        with pytest.raises(AnswerTooLong):
            read(content, longest=longest)
    claimed = wire(b"\1", column("a"), EOF) + (MAX_FRAME - 1).to_bytes(3, "little") + b"\4" + bytes(3000)
    with memory_below(1 << 20), pytest.raises(AnswerTooLong):
        read(claimed, longest=2000)


@given(st.data())
def test_whatever_comes_is_read_or_refused(data: st.DataObject):
    content = bytearray(answer(["a", "b", "c"], *[row(b"x" * 300, None, b"1")] * 5))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(content), longest=3000)
    except (pymysql.err.MySQLError, CcprError, ValueError):
        return
    assert sum(columns.rows for columns in found) <= 5
    for columns in found:
        for array in columns.arrays:
            array.validate(full=True)
