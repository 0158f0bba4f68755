"""What is said of a copy that takes long."""

from ccpr.base.progress import LOG_SECONDS, CopyLog, CopyMeter


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_estimate_are_of_the_last_minute() -> None:
    clock = Clock()
    meter = CopyMeter(10_000_000_000, clock)
    assert meter.describe() == "0 B of 10.0 GB copied (0 %)"
    for _ in range(100):
        clock.now += 1
        meter.add(50_000_000)
    assert meter.describe() == "5.0 GB of 10.0 GB copied (50 %), 50.0 MB/s, 100 s left"
    for _ in range(100):
        clock.now += 1
        meter.add(1_000_000)
    assert 1_000_000 <= meter.rate < 2_000_000, "it has become slow"
    clock.now += 100_000
    assert meter.rate < 10_000, "it stalls"


def test_what_was_there_at_the_start_is_no_rate() -> None:
    clock = Clock()
    meter = CopyMeter(100, clock, done=90)
    meter.reached(90)
    assert meter.seconds_left is None
    clock.now += 5
    meter.reached(95)
    assert (meter.rate, meter.seconds_left) == (1.0, 5.0)


def test_nothing_to_copy_is_no_division_by_zero() -> None:
    assert CopyMeter(0).describe() == "0 B of 0 B copied"


def test_a_line_comes_every_quarter_of_a_minute_and_none_of_a_short_copy() -> None:
    clock, lines = Clock(), []
    log = CopyLog(100, lines.append, clock)
    for _ in range(60):
        clock.now += 1
        log.add(1)
    assert len(lines) == 60 / LOG_SECONDS
    assert lines[0] == "15 B of 100 B copied (15 %), 1 B/s, 85 s left"
