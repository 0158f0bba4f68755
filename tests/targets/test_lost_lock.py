"""A session that loses the connection with the lock ends by itself, and writes nothing to tables of the next one."""

import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets import initial_load
from ccpr.targets.base import LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import TargetBusy, TargetUnavailable
from tests.targets.history import FIRST, keys, rows
from tests.targets.target_database import Part, Place

pytestmark = pytest.mark.integration

RETRY_SECONDS = 60.0


def holder(place: Place) -> int:
    with pytest.raises(TargetBusy) as caught, place.target(lock_seconds=0):
        pass
    return int(str(caught.value).partition("connection ")[2].split()[0])


def end_session(place: Place) -> None:
    """Kill the connection with the lock. The error of a session that does not get the lock names it."""
    place.query(f"KILL {holder(place)}")


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + RETRY_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_load_without_the_lock_puts_nothing_into_the_table_of_another_session(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, filling = threading.Event(), threading.Event(), threading.Event()
    piece = initial_load.InitialLoad._piece

    def later(load: initial_load.InitialLoad, connection: object, part: LoadPart) -> int:
        assert part.key != "late" or filling.wait(RETRY_SECONDS)
        return piece(load, connection, part)

    monkeypatch.setattr(initial_load.InitialLoad, "_piece", later)
    ended: list[CcprError] = []

    def slow() -> Iterator[pa.Table]:
        begun.set()
        assert go_on.wait(RETRY_SECONDS)
        yield rows([1], ["old"])

    first = place.target(connections=1)
    first.open()

    def load() -> None:
        parts = [LoadPart("slow", slow), LoadPart("late", lambda: [rows([99], ["late"])])]
        try:
            first.create(place.table(FIRST), parts, Location(0, 10))
        except CcprError as error:
            ended.append(error)

    old = threading.Thread(target=load)
    old.start()
    assert begun.wait(RETRY_SECONDS)
    end_session(place)
    second = place.target(lock_seconds=RETRY_SECONDS)
    second.open()

    def fill() -> Iterator[pa.Table]:
        filling.set()
        old.join(RETRY_SECONDS)
        yield rows([2], ["new"])

    new = threading.Thread(target=second.create, args=(place.table(FIRST), [LoadPart("new", fill)], Location(1, 20)))
    new.start()
    waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    wait_until(lambda: place.query(waiting)[0][0] > 0)  # for the piece that is being written
    go_on.set()
    old.join(RETRY_SECONDS)
    new.join(RETRY_SECONDS)
    assert [type(error) for error in ended] == [TargetUnavailable]
    assert place.rows("t") == [(2, "new")]
    assert second.points() == {1: Location(1, 20)}
    second.close()
    first.close()


def test_a_load_ends_when_the_lock_is_lost_and_is_continued(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_load, "_BEAT_SECONDS", 0.02)

    def endless() -> Iterator[pa.Table]:
        end_session(place)
        end = time.monotonic() + RETRY_SECONDS
        while time.monotonic() < end:
            yield rows([], [])

    with place.target(connections=1) as target, pytest.raises(TargetUnavailable):
        target.create(
            place.table(FIRST), [LoadPart("1", lambda: [rows([1], ["a"])]), LoadPart("2", endless)], Location(0, 10)
        )
    with place.target() as target:
        done = target.create(
            place.table(FIRST), [LoadPart("1", lambda: []), LoadPart("2", lambda: [rows([2], ["b"])])], Location(0, 10)
        )
        assert (done.parts, done.parts_skipped) == (1, 1)
    assert place.rows("t") == [(1, "a"), (2, "b")]


def test_a_change_whose_session_loses_the_lock_leaves_nothing(place: Place) -> None:
    def parts() -> Iterator[Part]:
        yield Part(rows([1, 3], ["x", "c"]), keys(2))
        end_session(place)
        yield Part(rows([4], ["d"]), keys())

    with place.target() as target:
        target.create(place.table(FIRST), [LoadPart("all", lambda: [rows([1, 2], ["a", "b"])])], Location(0, 10))
        with pytest.raises(TargetUnavailable):
            target.apply(1, parts(), Location(1, 20))
        with pytest.raises(TargetUnavailable):
            target.drop([1])
    assert place.rows("t") == [(1, "a"), (2, "b")]
    with place.target() as target:
        assert target.points() == {1: Location(0, 10)}


def test_many_subscriptions_make_the_registry_at_the_same_time(place: Place) -> None:
    errors: list[BaseException] = []

    def opened(number: int) -> None:
        try:
            with DatabaseTarget(place.address, place.server.password, f"task{number}"):
                pass
        except CcprError as error:
            errors.append(error)

    threads = [threading.Thread(target=opened, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(RETRY_SECONDS)
    assert errors == []
