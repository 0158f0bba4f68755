"""Sessions between iterations: shared by a login, few, and one thread's at a time."""

import random
import threading
import time
from typing import Any

import pytest

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.serve.holding import IDLE_SECONDS, KeptLogin, KeptSessions

A, B = (KeptLogin(Endpoint(host, 6001, "sys", "dump"), "secret") for host in ("a", "b"))


class Fake:
    """A session as far as they are kept."""

    def __init__(self, broken: bool = False) -> None:
        self.woken, self.closed, self.users, self._broken = 0, 0, 0, broken

    def wake(self) -> None:
        self.woken += 1
        if self._broken:
            raise ConnectionError

    def close(self) -> None:
        self.closed += 1


class Server:
    def __init__(self) -> None:
        self.sessions: list[Fake] = []

    def connect(self) -> Any:
        self.sessions.append(Fake())
        return self.sessions[-1]


def test_one_is_taken_again_by_its_login_only() -> None:
    kept, server = KeptSessions(), Server()
    first = kept.take(A, server.connect)
    second = kept.take(A, server.connect)
    kept.give(A, first)
    kept.give(A, second)
    assert kept.take(A, server.connect) is second, "the one that was used last"
    assert kept.take(B, server.connect) not in (first, second)
    assert kept.take(A, server.connect) is first
    assert kept.take(KeptLogin(A.endpoint, "another"), server.connect) not in (first, second)
    assert [one.woken for one in server.sessions] == [1, 1, 0, 0]
    assert kept.idle == 0


def test_the_longest_idle_is_closed_where_there_are_too_many() -> None:
    kept, server = KeptSessions(most=2), Server()
    sessions = [kept.take(login, server.connect) for login in (A, B, A)]
    for login, session in zip((A, B, A), sessions, strict=True):
        kept.give(login, session)
    assert [one.closed for one in server.sessions] == [1, 0, 0]
    assert kept.idle == 2


def test_one_that_nobody_has_used_for_long_is_closed() -> None:
    now = [0.0]
    kept, server = KeptSessions(lambda: now[0]), Server()
    first, second = kept.take(A, server.connect), kept.take(A, server.connect)
    kept.give(A, first)
    now[0] = 10.0
    kept.give(A, second)
    now[0] = IDLE_SECONDS
    kept.close_old()
    assert [one.closed for one in server.sessions] == [1, 0]
    kept.close()
    assert [one.closed for one in server.sessions] == [1, 1]


def test_one_that_comes_back_after_the_end_is_closed() -> None:
    kept, server = KeptSessions(), Server()
    session = kept.take(A, server.connect)
    kept.close()
    kept.give(A, session)
    assert (server.sessions[0].closed, kept.idle) == (1, 0)


def test_one_that_cannot_be_woken_is_closed_and_the_error_is_raised() -> None:
    kept = KeptSessions()
    broken: Any = Fake(broken=True)
    kept.give(A, broken)
    with pytest.raises(ConnectionError):
        kept.take(A, Server().connect)
    assert (broken.closed, kept.idle) == (1, 0)


def test_no_two_threads_have_one_at_once() -> None:
    kept, server = KeptSessions(most=3), Server()
    twice: list[Fake] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            login = chance.choice((A, B))
            session: Any = kept.take(login, server.connect)
            session.users += 1
            if session.users > 1 or session.closed:
                twice.append(session)
            if chance.random() < 0.05:
                time.sleep(0.0001)
            session.users -= 1
            kept.give(login, session)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.close()
    assert not twice
    assert all(one.closed == 1 for one in server.sessions)
