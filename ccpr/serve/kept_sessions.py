"""Sessions that stay connected between iterations, shared by all subscriptions of one login: an upstream has as many as
iterations ran at once, however many subscriptions there are."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.upstream_session import Session

MOST_IDLE: Final = 256  # of all upstreams together
IDLE_SECONDS: Final = 600.0  # after which one that nobody has used is closed


@dataclass(frozen=True, slots=True)
class KeptLogin:
    """What a session is of."""

    endpoint: Endpoint
    password: str | None

    def __repr__(self) -> str:
        return f"Login({self.endpoint.masked()})"


@dataclass(frozen=True, slots=True)
class _Idle:
    login: KeptLogin
    session: Session
    since: float


class KeptSessions:
    """Threads share it; a session is one thread's from `take` to `give`."""

    def __init__(self, steady: Callable[[], float] = time.monotonic, most: int = MOST_IDLE) -> None:
        self._steady, self._most = steady, most
        self._idle: OrderedDict[int, _Idle] = OrderedDict()  # the longest idle first
        self._of: dict[KeptLogin, list[int]] = {}
        self._ended = False
        self._lock = threading.Lock()

    @property
    def idle(self) -> int:
        return len(self._idle)

    def take(self, login: KeptLogin, connect: Callable[[], Session]) -> Session:
        """One that is connected: the one of this login that was used last, else a new one. Raises what `connect`
        does."""
        with self._lock:
            found = self._of.get(login)
            idle = self._remove(found[-1]) if found else None
        if idle is None:
            return connect()
        try:
            idle.session.wake()
        except BaseException:
            idle.session.close()
            raise
        return idle.session

    def give(self, login: KeptLogin, session: Session) -> None:
        """Somebody may take it. The longest idle is closed where there are too many."""
        with self._lock:
            self._idle[id(session)] = _Idle(login, session, self._steady())
            self._of.setdefault(login, []).append(id(session))
            closed = self._oldest(lambda idle: self._ended or len(self._idle) > self._most)
        _close(closed)

    def close_old(self) -> None:
        """Those that have been idle for long, also of logins that no subscription has any more."""
        since = self._steady() - IDLE_SECONDS
        with self._lock:
            closed = self._oldest(lambda idle: idle.since <= since)
        _close(closed)

    def close(self) -> None:
        """All that are idle, and from now on each when it is given."""
        with self._lock:
            self._ended = True
            closed = self._oldest(lambda idle: True)
        _close(closed)

    def _oldest(self, is_one: Callable[[_Idle], bool]) -> list[_Idle]:
        """Remove the longest idle for as long as that holds of them."""
        found = list[_Idle]()
        while self._idle and is_one(next(iter(self._idle.values()))):
            found.append(self._remove(next(iter(self._idle))))
        return found

    def _remove(self, key: int) -> _Idle:
        idle = self._idle.pop(key)
        places = self._of[idle.login]
        places.remove(key)
        if not places:
            del self._of[idle.login]
        return idle


def _close(closed: list[_Idle]) -> None:
    for idle in closed:
        idle.session.close()
