"""How old the replica is, whatever the clocks do."""

from dataclasses import replace

import pytest

from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.pipeline.lag import Lag, LagMeter, clock_skew, taken_at
from ccpr.state.context import Context

NOON = 1_000_000.0
TAKEN = SnapshotRef("xr_a_0_0", 0, 0, physical=round((NOON - 0.2) * 1e9), taken_at=NOON)


class Clocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.wall, self.steady = NOON, 50.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def meter(self) -> LagMeter:
        return LagMeter(lambda: self.wall, lambda: self.steady)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_it_is_the_time_since_the_last_snapshot_was_taken_and_grows_in_silence(clocks: Clocks) -> None:
    meter = clocks.meter()
    for waited in (0.0, 30.0, 30.0, 86_400.0):
        clocks.pass_by(waited)
        lag = meter.read("task", Context(current=TAKEN))
        assert lag.seconds == pytest.approx(clocks.wall - NOON)
    assert lag.skew_seconds == pytest.approx(0.2, abs=1e-3)
    assert not lag.warnings()


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_clock_that_is_set_changes_nothing_within_a_process(step: float, clocks: Clocks) -> None:
    meter = clocks.meter()
    clocks.pass_by(10)
    assert meter.read("task", Context(current=TAKEN)).seconds == pytest.approx(10)
    clocks.wall += step
    clocks.pass_by(5)
    assert meter.read("task", Context(current=TAKEN)) == Lag(pytest.approx(15), pytest.approx(0.2, abs=1e-3))
    again = replace(TAKEN, name="xr_a_1_0", taken_at=clocks.wall, physical=round(clocks.wall * 1e9))
    clocks.pass_by(1)
    assert meter.read("task", Context(current=again)).seconds == pytest.approx(1), (
        "a new snapshot was taken by the new time"
    )


def test_a_clock_that_was_set_back_between_processes_is_told(clocks: Clocks) -> None:
    clocks.wall -= 3600
    meter = clocks.meter()
    lag = meter.read("task", Context(current=TAKEN))
    assert (lag.seconds, lag.clock_set_back) == (0.0, True)
    assert "set back" in lag.warnings()[0]
    clocks.pass_by(3)
    assert meter.read("task", Context(current=TAKEN)) == Lag(pytest.approx(3), lag.skew_seconds, True)


def test_each_subscription_has_its_own(clocks: Clocks) -> None:
    meter = clocks.meter()
    assert meter.read("one", Context(current=TAKEN)).seconds == 0
    clocks.pass_by(10)
    assert meter.read("two", Context(current=replace(TAKEN, taken_at=NOON + 4))).seconds == pytest.approx(6)
    assert meter.read("one", Context(current=TAKEN)).seconds == pytest.approx(10)


def test_before_the_first_point_there_is_none(clocks: Clocks) -> None:
    assert clocks.meter().read("task", Context()) == Lag(None)
    assert clocks.meter().read("task", Context(open=TAKEN)) == Lag(None), "an open iteration has verified nothing"


@pytest.mark.parametrize(
    ("ours", "told"), [(0.9, None), (-0.9, None), (2.5, "2.5 s behind ours"), (-90.0, "90.0 s ahead of ours")]
)
def test_clocks_that_differ_by_more_than_a_second_are_told(ours: float, told: str | None, clocks: Clocks) -> None:
    ref = replace(TAKEN, physical=round((NOON - ours) * 1e9))
    lag = clocks.meter().read("task", Context(current=ref))
    assert lag.skewed == (told is not None)
    assert lag.warnings() == ([f"the upstream's clock is {told}"] if told else [])


def test_a_snapshot_that_a_run_before_left_is_as_old_as_the_known_offset_says() -> None:
    made = round((NOON + 59.8) * 1e9)
    now = NOON + 3660
    assert taken_at(made, now, TAKEN, made_now=True) == now
    assert taken_at(made, now, TAKEN, made_now=False) == pytest.approx(NOON + 60)
    assert taken_at(made, now, None, made_now=False) == now, "nothing is known of the upstream's clock yet"
    assert taken_at(round((now + 500) * 1e9), now, TAKEN, made_now=False) == now, "never in the future"
    assert clock_skew(None) is None
