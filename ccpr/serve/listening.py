"""The parts of a service: whom it calls with what has happened (metrics, notifications, Dagster), and what it starts
and ends."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

from ccpr.base.failure import Failure
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
