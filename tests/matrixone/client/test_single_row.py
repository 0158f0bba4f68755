"""An answer of one row, read from bytes as a server would send them."""

import io

import pymysql
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpr.matrixone.client.answer_packets import Cells, read_single_row
from ccpr.matrixone.client.errors import AnswerTooLong, BadAnswer
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.packets import MAX_FRAME, length_prefix
from tests.support.packets import EOF, GONE, MORE, answer, column, row, wire
from tests.support.traced_memory import memory_below

ENOUGH = 1 << 26


def read(content: bytes, longest: int = ENOUGH) -> Cells:
    return read_single_row(io.BufferedReader(io.BytesIO(content)), longest)  # pyright: ignore[reportArgumentType]


@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.none() | st.binary(max_size=70_000), min_size=1, max_size=8)
)
@example({"data": b"", "n": None})
def test_the_cells_come_by_their_columns_names(cells: dict[str, bytes | None]):
    found = read(answer(list(cells), row(*cells.values())))
    assert {name: None if cell is None else bytes(cell) for name, cell in found.items()} == cells


@pytest.mark.parametrize(
    "size", [MAX_FRAME - 10, MAX_FRAME - 4 - 2, MAX_FRAME - 4 - 1, MAX_FRAME, 2 * MAX_FRAME - 9 - 2, 2 * MAX_FRAME + 5]
)
def test_a_cell_in_several_frames_is_held_once(size: int):
    data = bytes(range(251)) * (size // 251 + 1)
    content = answer(["data", "n"], row(data[:size], b"7"))
    with memory_below(len(content) + 100_000):
        found = read(content, len(content))
    cell = found["data"]
    assert cell is not None
    assert cell == data[:size]
    assert bytes(found["n"] or b"") == b"7"


def test_an_error_of_the_server_is_raised_wherever_it_occurs():
    names = ["a", "b"]
    for place in range(5):
        packets = [length_prefix(2), *map(column, names), EOF, row(b"1", b"2"), EOF]
        with pytest.raises(pymysql.err.MySQLError, match="file is not found"):
            read(wire(*packets[:place], GONE))


@pytest.mark.parametrize("rows", [[], [row(b"1")] * 2])
def test_another_number_of_rows_than_one_is_refused(rows: list[bytes]):
    with pytest.raises(BadAnswer, match="one row was asked for"):
        read(answer(["a"], *rows))


def test_an_answer_that_ends_early_is_a_lost_connection():
    whole = answer(["a", "b"], row(b"1", b"x" * 300))
    for size in range(len(whole)):
        with pytest.raises(pymysql.err.OperationalError, match="2013"):
            read(whole[:size])


def test_a_large_answer_that_ends_early_is_a_lost_connection():
    whole = answer(["a"], row(bytes(MAX_FRAME + 100)))
    for size in (1000, MAX_FRAME, MAX_FRAME + 90, len(whole) - 1):
        with pytest.raises(pymysql.err.OperationalError, match="2013"):
            read(whole[:size])


@pytest.mark.parametrize(
    "content",
    [
        wire(b"\0\0\0\2\0\0\0"),  # OK, without rows
        wire(b"\xfb/etc/passwd"),  # asks for a file of ours
        wire(b"\xfb"),
        wire(b""),
        wire(b"\xff\1"),  # an error without a number
        wire(b"\1\1", column("a"), EOF, row(b"1"), EOF),
        wire(b"\xfd\1", column("a")),
        wire(b"\1", b"", EOF, row(b"1"), EOF),
        wire(b"\1", column("a"), row(b"1"), row(b"1"), EOF),  # columns without an end
        wire(b"\1", column("a"), MORE, row(b"1"), EOF),
        wire(b"\1", column("a"), EOF, row(b"1"), MORE),
        wire(b"\1", column("a"), EOF, row(b"1", b"2"), EOF),
        wire(b"\2", column("a"), column("b"), EOF, row(b"1"), EOF),
        wire(b"\1", column("a"), EOF, b"\xfc\xff\xffabc", EOF),
        wire(b"\1", column("a"), EOF, b"\xfe" + b"\xff" * 8 + b"abc", EOF),
        wire(b"\1", column("a"), EOF, b"", EOF),
        wire(b"\1", b"\3def\0\0\0\xfb", EOF, row(b"1"), EOF),  # a column named NULL
        b"\xff\xff\xff\1" + bytes(MAX_FRAME) + wire(EOF),
        wire(b"\1")[:3] + b"\2" + b"\1",  # numbered 2
    ],
)
def test_what_is_not_a_result_set_is_refused(content: bytes):
    with pytest.raises(ValueError, match=r"packet|result|list|answer|cell|length|column|error"):
        read(content)


def test_an_answer_beyond_its_allowance_is_refused_before_it_has_a_place():
    with memory_below(1 << 20):
        for claimed in (1000, MAX_FRAME):
            head = wire(b"\1", column("a"), EOF)
            with pytest.raises(AnswerTooLong):
                read(head + claimed.to_bytes(3, "little") + b"\4" + bytes(10), len(head) + 500)
        with pytest.raises(AnswerTooLong):  # columns without end
            read(wire(b"\xfe" + b"\xff" * 8, *[column(f"c{number}") for number in range(100)]), 2000)


@given(st.data())
def test_whatever_comes_is_read_or_refused(data: st.DataObject):
    content = bytearray(answer(["data", "n"], row(b"x" * 300, None)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        cells = read(bytes(content), 2000)
    except (pymysql.err.MySQLError, CcprError, ValueError):
        return
    assert all(cell is None or len(cell) <= 300 + 5 for cell in cells.values())
