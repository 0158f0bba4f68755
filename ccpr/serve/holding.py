"""A subscription as one process holds it: its iterations and the syncs of its targets share one lease.

A sync may outlast the iteration after which it began, and the next iteration begins meanwhile. It claims the
subscription again, as its owner may; the sync's right goes on as long as no other executor had the lease in between, as
the fences show: each claim raises the fence by one (decision one-lease-for-targets).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.upstream_session import Session
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.committing import Last
from ccpr.service.workspace import Workspace
from ccpr.state.errors import LeaseLost
from ccpr.state.lease import TTL_SECONDS, Lease
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription

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
    """Sessions that stay connected between iterations, shared by all subscriptions of one login: an upstream has as
    many as iterations ran at once, however many subscriptions there are. Threads share it; a session is one thread's
    from `take` to `give`."""

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


class SyncRight:
    """The right to sync a target, while an iteration may run (`ccpr.service.workspace.SyncedUnder`)."""

    def __init__(self, holding: "Holding", subscription: Subscription, mirror: Mirror, chain: int) -> None:
        self.subscription, self.mirror = subscription, mirror
        self._holding, self._chain = holding, chain

    def confirm(self) -> None:
        """Raises LeaseLost."""
        self._holding.confirm(self._chain)


class Holding:
    """One subscription's lease, session and last point within one process. Several threads use it."""

    def __init__(self, workspace: Workspace, row: LogRow, sessions: KeptSessions) -> None:
        self.name, self._task_id = row.subscription_name, row.task_id
        self.last: Last | None = None
        self.asked = False  # whether this process has asked the targets where they are
        self._workspace, self._sessions = workspace, sessions
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._users = 0
        self._fence = 0  # of our last claim
        self._chain = 0  # raised when another executor has had the lease
        self._login: tuple[object, KeptLogin] | None = None
        self._session: tuple[KeptLogin, Session] | None = None

    @contextmanager
    def iteration(self, row: LogRow | None = None) -> Iterator[tuple[Lease, Last | None]]:
        """A claim of one's own, for the iteration that is due by the row, and the last point if it is known.

        After the block others may take the session; after an error it is closed: what its next answer would be is not
        known. Raises SubscriptionBusy, SubscriptionPaused, SubscriptionMissing.
        """
        with self._lock:
            lease = self._claim(row)
            known = self.last
            self.last = None
            self._users += 1
        try:
            yield lease, known
            self._give_session()
        finally:
            self._drop_session()
            self._leave()

    @contextmanager
    def sync(self) -> Iterator[SyncRight]:
        """For the sync of a target, under the lease that is held, or a claim of one's own. Raises as `iteration`, and
        LeaseLost."""
        with self._lock:
            lease = self._lease or self._claim()
            lease.check()
            chain = self._chain
            self._users += 1
        try:
            subscription = Subscription.from_row(lease.claim.row)
            yield SyncRight(self, subscription, self._workspace.mirror_of(subscription), chain)
        finally:
            self._leave()

    def confirm(self, chain: int) -> None:
        with self._lock:
            if self._lease is None or self._chain != chain:
                raise LeaseLost("another executor has had it meanwhile", subject=f"subscription {self.name}")
            self._lease.confirm()

    def session(self, subscription: Subscription) -> Session:
        """A session with the upstream, connected, until the end of the iteration. Only the iteration uses it."""
        if self._session is None:
            login = self._login_of(subscription)
            self._session = login, self._sessions.take(login, partial(self._workspace.connect, subscription))
        return self._session[1]

    def _login_of(self, subscription: Subscription) -> KeptLogin:
        """It is unsealed once."""
        address = subscription.endpoint, subscription.sealed_password
        if self._login is None or self._login[0] != address:
            self._login = address, KeptLogin(subscription.endpoint, self._workspace.password_of(subscription))
        return self._login[1]

    def _give_session(self) -> None:
        if self._session is not None:
            (login, session), self._session = self._session, None
            self._sessions.give(login, session)

    def _drop_session(self) -> None:
        if self._session is not None:
            (_, session), self._session = self._session, None
            session.close()

    def _claim(self, row: LogRow | None = None) -> Lease:
        log, executor = self._workspace.log, self._workspace.executor
        claim = log.claim(self.name, executor.id, TTL_SECONDS, executor.is_dead, task_id=self._task_id, known=row)
        if claim.fence != self._fence + 1:
            self._chain += 1
            self.last = None
        self._fence = claim.fence
        before, self._lease = self._lease, executor.begin(log, claim)
        if before is not None:
            before.end()
        return self._lease

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._lease is not None:
                lease, self._lease = self._lease, None
                self._workspace.executor.finish(lease)
