"""A loop survives what one item raises, counts it, and says when it has ended or is stuck."""

import logging
import threading
from collections.abc import Callable

import pytest

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import Guard, Loop, unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.state.errors import StateUnavailable

LIMIT_SECONDS = 60.0


def broken() -> None:
    raise OverflowError("a number of 20 digits")


def away() -> None:
    raise StateUnavailable("it does not answer", subject="state database")


def test_what_nothing_expects_becomes_an_error_with_a_code_and_a_place() -> None:
    with pytest.raises(UnexpectedError, match="OverflowError: a number of 20 digits") as raised, unexpected():
        broken()
    assert "test_loops.py:" in raised.value.subject
    with pytest.raises(StateUnavailable), unexpected():
        away()
    with pytest.raises(KeyboardInterrupt), unexpected():
        raise KeyboardInterrupt


def test_each_error_is_counted_and_the_same_one_is_logged_once_until_it_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = Guard("things")
    for work in (broken, broken, away, away, lambda: None, broken):
        guard.attempt("thing one", work)
    assert guard.attempt("thing two", lambda: None) is None
    assert guard.errors == 5
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, True]
    assert {what: error.code for what, error in guard.failing().items()} == {"thing one": "UNEXPECTED"}
    guard.attempt("thing one", lambda: None)
    assert guard.failing() == {}


def running(work: Callable[[], object]) -> tuple[Loop, threading.Event]:
    """A loop that does the work again and again, and what says that it has done it ten times."""
    often = threading.Event()

    def run() -> None:
        for number in range(1_000_000):
            if loop.ending.wait(0.001):
                return
            loop.attempt("work", work)
            if number == 10:
                often.set()

    loop = Loop("worker", run, stuck_seconds=100.0)
    return loop, often


def test_a_loop_goes_on_whatever_an_item_raises() -> None:
    loop, often = running(broken)
    assert loop.trouble() is None, "it has not been started"
    loop.start()
    assert often.wait(LIMIT_SECONDS)
    assert (loop.trouble(), loop.errors > 5) == (None, True)
    loop.stop(LIMIT_SECONDS)
    assert loop.trouble() is None, "it was asked to end"


def test_a_loop_that_has_ended_says_so(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop("worker", lambda: None)
    loop.start()
    loop._thread.join(LIMIT_SECONDS)
    assert loop.trouble() == "its thread has ended"
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_a_loop_whose_item_does_not_end_is_stuck_and_one_that_goes_on_is_not() -> None:
    now, step, stepped = [0.0], threading.Semaphore(0), threading.Semaphore(0)

    def item() -> None:
        stepped.release()
        step.acquire()
        loop.attempt("a part of it", lambda: None)
        stepped.release()
        step.acquire()

    loop = Loop("worker", lambda: loop.attempt("item", item) and None, stuck_seconds=60.0, steady=lambda: now[0])
    loop.start()
    stepped.acquire()
    now[0] = 59.0
    assert loop.trouble() is None
    now[0] = 61.0
    assert loop.trouble() == "it has been busy with one thing for 61 s"
    step.release()
    stepped.acquire()
    assert loop.trouble() is None, "a part of it has ended"
    loop.ending.set()
    step.release()
    loop.stop(LIMIT_SECONDS)


def test_an_error_comes_back_to_the_caller_that_pauses() -> None:
    error = Guard("things").attempt("thing", broken)
    assert isinstance(error, CcprError)
    assert error.code == "UNEXPECTED"
