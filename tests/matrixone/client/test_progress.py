"""How slowly an answer may come, by a clock that the test sets."""

import io

import pytest

from ccpr.matrixone.client.errors import BadLimit
from ccpr.matrixone.client.limits import ListLimit, Stalled, StallLimit, WatchedReader, list_limit, stall_limit

DAY = 86_400.0


class Line(io.RawIOBase):
    """Yields `size` bytes with each read, each after `seconds` of its clock."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds, self.now, self.closed_ = size, seconds, 0.0, False

    def clock(self) -> float:
        return self.now

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.now += self.seconds
        return min(self.size, len(buffer))


def read(reader: WatchedReader, times: int, size: int = 1 << 20) -> None:
    for _ in range(times):
        assert reader.readinto(bytearray(size))


def test_a_chunk_of_a_hundred_megabytes_over_a_slow_line_arrives_however_long_it_takes():
    line = Line(size=1400, seconds=1.0)  # 1.4 kB a second: 21 hours
    reader = WatchedReader(line, StallLimit(), line.clock)
    read(reader, (100 << 20) // 1400)
    assert line.now > 20 * 3600


def test_a_byte_now_and_then_is_given_up_after_the_time():
    line = Line(size=1, seconds=0.4)
    reader = WatchedReader(line, StallLimit(), line.clock)
    with pytest.raises(Stalled):
        read(reader, 1_000_000)
    assert line.now < 125


def test_the_wait_for_the_first_byte_and_the_time_of_the_caller_do_not_count():
    line = Line(size=100, seconds=0.0)
    reader = WatchedReader(line, StallLimit(), line.clock)
    for _ in range(10):
        reader.begin(StallLimit())
        line.seconds = 119.0
        read(reader, 1)
        line.seconds = 0.0
        for _ in range(5):
            line.now += DAY  # between two reads
            read(reader, 1)


def test_a_pause_before_much_is_not_a_stall():
    line = Line(size=1 << 20, seconds=119.0)
    reader = WatchedReader(line, StallLimit(), line.clock)
    read(reader, 1000)


def test_the_environment_sets_the_limits(monkeypatch: pytest.MonkeyPatch):
    assert (stall_limit(), list_limit()) == (StallLimit(), ListLimit())
    monkeypatch.setenv("CCPR_STALL_SECONDS", "7")
    monkeypatch.setenv("CCPR_STALL_BYTES", "8")
    monkeypatch.setenv("CCPR_OBJECT_LIST_ROWS", "9")
    monkeypatch.setenv("CCPR_OBJECT_LIST_BYTES", " 10 ")
    assert (stall_limit(), list_limit()) == (StallLimit(8, 7.0), ListLimit(9, 10))


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "9" * 30, "١"])
def test_a_limit_that_is_not_a_number_is_an_error_that_names_the_variable(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CCPR_OBJECT_LIST_ROWS", text)
    with pytest.raises(BadLimit) as raised:
        list_limit()
    assert raised.value.subject == "CCPR_OBJECT_LIST_ROWS"
