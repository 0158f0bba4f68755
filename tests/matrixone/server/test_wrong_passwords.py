"""Wrong passwords are answered more and more slowly, right ones at once; neither memory nor threads grow with them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pymysql
import pytest

from ccpr.matrixone.server import wrong_passwords as module
from ccpr.matrixone.server.wrong_passwords import (
    FORGET_SECONDS,
    FREE,
    LONGEST_SECONDS,
    MOST_KNOWN,
    Guesses,
    password_digest,
)
from tests.matrixone.server.test_server import serving
from tests.support.wire_client import Connect

pytestmark = pytest.mark.integration

GENEROUS = 60.0


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def test_each_wrong_password_waits_longer_up_to_an_end() -> None:
    guesses = Guesses(Clock())
    waits = [guesses.wrong("mo", "a") for _ in range(FREE + 100)]
    assert waits[:FREE] == [0.0] * FREE
    assert waits[FREE : FREE + 3] == [0.5, 1.0, 2.0]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_SECONDS
    assert guesses.wrong_passwords == FREE + 100


def test_other_logins_and_other_addresses_do_not_wait() -> None:
    guesses = Guesses(Clock())
    for _ in range(20):
        guesses.wrong("mo", "a")
    assert guesses.wrong("mo", "b") == guesses.wrong("jo", "a") == 0.0
    assert guesses.wrong("mo", "a") == LONGEST_SECONDS


def test_a_right_password_and_time_end_the_row() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    for end in (lambda: guesses.right("mo", "a"), lambda: setattr(clock, "at", clock.at + FORGET_SECONDS + 1)):
        for _ in range(20):
            guesses.wrong("mo", "a")
        end()
        assert guesses.wrong("mo", "a") == 0.0


def test_memory_does_not_grow_with_what_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 50)
    guesses = Guesses(Clock())
    for number in range(500):
        guesses.wrong(f"{number}" + "x" * 10_000, "a")
    assert len(guesses._rows) == 50 < MOST_KNOWN
    assert max(len(login) for login, _ in guesses._rows) <= 64


class Slow(Guesses):
    """Each wrong password waits for an hour."""

    def wrong(self, login: str, address: str) -> float:
        super().wrong(login, address)
        return 3600.0


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + GENEROUS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_right_password_is_answered_at_once_while_wrong_ones_wait(connect: Connect) -> None:
    guesses, digests = Slow(), {"mo": password_digest("right")}.get
    with ThreadPoolExecutor(8) as pool:
        with serving(digests=digests, guesses=guesses, max_logins=4) as (server, engine):

            def guess(_: int) -> int:
                with pytest.raises(pymysql.MySQLError) as caught:
                    pymysql.connect(host="127.0.0.1", port=server.port, user="mo", password="wrong")
                return caught.value.args[0]

            waiting = [pool.submit(guess, number) for number in range(3)]
            eventually(lambda: guesses.wrong_passwords == 3)
            assert connect(server.port, user="mo", password="right").one("length") == b"6", "from the same address, too"
            waiting += [pool.submit(guess, number) for number in range(3)]
            eventually(lambda: server.refused == 2)
            assert guesses.wrong_passwords == 4, "no more wait than the address may have"
            owner = connect(server.port, user="mo", password="right", bind_address="127.0.0.2")
            assert owner.one("length") == b"6"
            assert sum(thread.name.startswith("wire-") for thread in threading.enumerate()) < 20
            assert engine.users == ["mo", "mo"]
            assert [one.done() for one in waiting[:3]] == [False] * 3
        # To stop the server has ended the pauses.
        assert {one.result(GENEROUS) for one in waiting} <= {0, 1040, 1045, 2003, 2013}
