"""The parts of a service: whom it calls with what has happened (metrics, notifications, Dagster), and what it starts
and ends; and how many descriptors, which are open files and connections, the process may have and has.

A process without a free one can neither open a file of its mirrors nor answer a client. So a service takes as many as
the system gives, strangers get a part of them only, and health says when there are few left.
"""

import resource
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from ccpr.base.errors import Failure
from ccpr.base.loops import Guard
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.iteration import IterationRecord
from ccpr.service.target_sync import TargetOutcome
from ccpr.state.followers import Follower
from ccpr.state.log_rows import LogRow


class Listener:
    """Called from several threads; does nothing, others override what they need. A call returns at once and raises
    nothing: what takes time is the listener's own thread's work."""

    def iteration_began(self, row: LogRow, late_seconds: float) -> None:
        pass

    def iteration_ended(self, record: IterationRecord, mirror: Mirror, seconds: float) -> None:
        pass

    def iteration_failed(self, row: LogRow, failure: Failure, seconds: float) -> None:
        """`row` is the subscription's after the failure."""

    def iteration_left(self, row: LogRow) -> None:
        """It has not been run after all: another executor has the subscription, it was paused, or the service ends."""

    def target_synced(self, row: LogRow, outcome: TargetOutcome) -> None:
        """Also called if the sync failed."""

    def follower_asked(self, row: LogRow, follower: Follower) -> None:
        """A follower's cluster was asked, or could not be; `follower` says how it is."""

    def subscriptions_read(self, rows: list[LogRow]) -> None:
        """All of them, whenever the service has read them."""

    def database_lost(self, error: CcprError | None) -> None:
        """The state database does not answer; None: it does again."""


class Listeners(Guard):
    """All listeners of a service: what one of them raises is survived, and the others are called."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        super().__init__("listeners")
        self._listeners = listeners

    def tell(self, call: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            self.attempt(f"{type(listener).__name__} cannot take what has happened", partial(call, listener))


class Component(Protocol):
    """A part of the service with a life of its own."""

    def start(self) -> None:
        """Raises CcprError or OSError if it cannot work; nothing else starts then."""
        ...

    def stop(self) -> None:
        """End. Called also where `start` was not, and waits some seconds at most."""
        ...


def serve(
    components: Sequence[Component],
    wait: Callable[[], None],
    ready: Callable[[], None] = lambda: None,
    failed: Callable[[], bool] = lambda: False,
) -> bool:
    """Until `wait` returns. What a component raises when it starts ends those that were started before. Returns what
    `failed` said then. `ready`: called when all have started."""
    with ExitStack() as started:
        for component in components:
            component.start()
            started.callback(component.stop)
        ready()
        wait()
        return failed()


MOST: Final = 65_536  # more are of no use here
FEW: Final = 32
_FOLDERS = ("/proc/self/fd", "/dev/fd")


def raise_limit() -> int:
    """Take as many as the system gives, up to MOST. Returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the system gives fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return _most()


def for_strangers(wanted: int) -> int:
    """How many of `wanted` connections others may have at once: at most half of all descriptors, at least one."""
    return max(1, min(wanted, _most() // 2))


@dataclass(frozen=True, slots=True)
class Descriptors:
    """How many are open, and how many there may be."""

    open: int
    most: int

    @classmethod
    def now(cls) -> "Descriptors":
        """Where the system does not show them, none are open; where there is none left to look with, all are."""
        most = _most()
        for folder in _FOLDERS:
            try:
                return cls(sum(1 for _ in Path(folder).iterdir()) - 1, most)
            except FileNotFoundError:
                continue
            except OSError:
                return cls(most, most)
        return cls(0, most)

    @property
    def are_few(self) -> bool:
        """Whether the next thing to open may be refused."""
        return self.most - self.open < FEW


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft
