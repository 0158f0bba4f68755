"""When an iteration is due, by the row alone."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ccpr.matrixone.client.retry import BACK_OFF
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.pipeline.due import due_at
from ccpr.state.context import Context
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.states import IterationState
from tests.support.values import a_subscription

CREATED = 1_000_000.0
ZERO, HALF = (
    "00000000-0000-4000-8000-000000000000",
    "80000000-0000-4000-8000-000000000000",
)  # task ids: their share of spread and jitter


def a_row(began: float | None = None, task_id: str = ZERO, **columns: object) -> LogRow:
    """Created at CREATED, 60 s; its last iteration began that many seconds later."""
    row = a_subscription().to_row(datetime.fromtimestamp(CREATED, UTC))
    if began is not None:
        current = SnapshotRef("xr_a_0_0", 0, 0, physical=7, taken_at=CREATED + began)
        columns = {"watermark": 7, "context": Context(current=current).to_text(), **columns}
    return replace(row, task_id=task_id, **columns)


def after(seconds: float) -> datetime:
    return datetime.fromtimestamp(CREATED + seconds, UTC)


def test_what_has_never_run_is_due_at_once() -> None:
    assert due_at(a_row()) == 0


@pytest.mark.parametrize(
    ("began", "due"),
    [
        pytest.param(0.0, 60.0, id="in time"),
        pytest.param(59.9, 60.0, id="just before a due time, by hand"),
        pytest.param(60.0, 120.0, id="on it"),
        pytest.param(69.0, 120.0, id="a late tick does not delay the next iteration"),
        pytest.param(215.0, 240.0, id="what was missed comes once"),
        pytest.param(-5.0, 0.0, id="a clock that was set back"),
    ],
)
def test_due_times_are_whole_intervals_from_the_creation(began: float, due: float) -> None:
    assert due_at(a_row(began)) == CREATED + due


def test_subscriptions_made_at_once_are_spread_over_a_minute() -> None:
    assert due_at(a_row(0.0, HALF)) == pytest.approx(CREATED + 30, abs=0.01)
    assert due_at(a_row(31.0, HALF)) == pytest.approx(CREATED + 90, abs=0.01)


@pytest.mark.parametrize(("count", "wait"), [(1, 60), (2, 120), (3, 240), (4, 300), (50, 300), (10**9, 300)])
def test_after_failures_the_wait_doubles_up_to_five_minutes(count: int, wait: float) -> None:
    message = f"R:{count}:1000000:1000500:CONNECTION_LOST: line down"
    assert due_at(a_row(0.0, error_message=message)) == 1000500 + wait
    assert due_at(a_row(error_message=message)) == 1000500 + wait, "also if it has never run"


def test_a_back_off_differs_by_subscription_and_stays_the_same() -> None:
    row = a_row(0.0, HALF, error_message="R:9:1000000:1000500:CONNECTION_LOST: line down")
    assert due_at(row) == due_at(row) == pytest.approx(1000500 + BACK_OFF.longest * 1.05, abs=0.01)


def test_what_a_killed_process_left_running_is_due_an_interval_after_its_last_sign_of_life() -> None:
    row = a_row(0.0, iteration_state=IterationState.RUNNING, updated_at=after(50))
    assert due_at(row) == CREATED + 110


def test_after_an_error_that_a_person_has_mended_it_goes_on_as_ever() -> None:
    assert due_at(a_row(0.0, error_message="N:1000030:SCOPE_CONFLICT: gone")) == CREATED + 60


@pytest.mark.parametrize("columns", [{"sync_config": "{"}, {"context": "["}])
def test_a_row_that_cannot_be_read_says_so(columns: dict[str, str]) -> None:
    with pytest.raises(StateUnreadable):
        due_at(a_row(0.0, **columns))
