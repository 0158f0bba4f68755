"""What a service does again and again, for as long as it runs: it survives whatever one item of its work raises, counts
it, and shows it (decision loops-survive-an-item).

`unexpected` is the one place that catches every exception, so that no loop has to. `Ending` tells it to end.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Self

from ccpr.base.errors import UnexpectedError
from ccpr.matrixone.errors import CcprError

STUCK_SECONDS = 600.0
_log = logging.getLogger(__name__)


@contextmanager
def unexpected() -> Iterator[None]:
    """What the block raises, and nothing expects there, becomes `UnexpectedError`."""
    try:
        yield
    except CcprError:
        raise
    except Exception as error:  # a defect in one item must not end the care of all others
        raise UnexpectedError.of(error) from error


class Guard:
    """Survives what items raise. Threads may share it.

    Attributes
    ----------
    errors : how many items have raised something.
    """

    def __init__(self, name: str) -> None:
        self.name, self.errors = name, 0
        self._failing: dict[str, CcprError] = {}
        self._lock = threading.Lock()

    def attempt(self, what: str, work: Callable[[], object]) -> CcprError | None:
        """Do the work. What it raises is counted, logged, and returned. The log has the same error of the same `what`
        once until it succeeds; there are few different ones."""
        try:
            with unexpected():
                work()
        except CcprError as error:
            self.failed(what, error)
            return error
        self.succeeded(what)
        return None

    def succeeded(self, what: str) -> None:
        """Of what may have failed before."""
        if self._failing:
            with self._lock:
                self._failing.pop(what, None)

    def failed(self, what: str, error: CcprError) -> None:
        """Count and log what was raised elsewhere."""
        with self._lock:
            before = self._failing.get(what)
            self.errors += 1
            self._failing[what] = error
        again = before is not None and (before.code, before.message) == (error.code, error.message)
        level = logging.DEBUG if again else logging.WARNING
        cause = error.__cause__ if isinstance(error, UnexpectedError) else None
        _log.log(level, "%s: %s", what, error, exc_info=cause)

    def failing(self) -> dict[str, CcprError]:
        """How each `what` failed that has not succeeded since."""
        with self._lock:
            return dict(self._failing)


class Loop(Guard):
    """A guard with a thread of its own, which is to last until it is asked to end.

    Parameters
    ----------
    name : of the thread; /healthz and /metrics show it.
    run : what the thread does; its items are each an `attempt` of this thread. It ends when `ending` is set.
    stuck_seconds : an item that has taken so long is stuck.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        *,
        stuck_seconds: float = STUCK_SECONDS,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name)
        self.ending = threading.Event()
        self._run, self._stuck_seconds, self._steady = run, stuck_seconds, steady
        self._thread = threading.Thread(target=self._last, name=name, daemon=True)
        self._began: float | None = None

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float | None = None) -> None:
        """Ask it to end, and wait so long for it; None: however long it takes."""
        self.ending.set()
        if self.started:
            self._thread.join(seconds)

    def attempt(self, what: str, work: Callable[[], object]) -> CcprError | None:
        outer = self._began
        self.beat()
        try:
            return super().attempt(what, work)
        finally:
            self._began = None if outer is None else self._steady()

    def beat(self) -> None:
        """The item is long, and goes on."""
        self._began = self._steady()

    def trouble(self) -> str | None:
        """Why nothing more is done; None if the thread works, has not been started, or was asked to end."""
        if not self.started or self.ending.is_set():
            return None
        if not self._thread.is_alive():
            return "its thread has ended"
        began = self._began
        silent = 0.0 if began is None else self._steady() - began
        return f"it has been busy with one thing for {silent:.0f} s" if silent >= self._stuck_seconds else None

    def _last(self) -> None:
        try:
            self._run()
        finally:
            if not self.ending.is_set():
                _log.critical("the thread %s has ended without being asked to: restart the service", self.name)


class Ending:
    """Whether the program is to end. A context manager, of the main thread: within the block these signals say so, and
    a second one ends the process at once.

    The kernel may hand a signal to any thread, and does so to one that is just starting another. Python runs the
    handler in the main thread, when that executes: while it waits for a lock, as in `threading.Event.wait`, it does
    not. And a handler that sets the event for which the main thread waits may wait for the event's own lock for ever.
    So the main thread waits for a byte, which Python writes at each signal, whichever thread has it.

    Attributes
    ----------
    event : for the other threads, which may wait for it.
    """

    def __init__(self, *signals: int) -> None:
        self.event = threading.Event()
        self._signals, self._signaled = signals, False
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._after = ExitStack()

    def __enter__(self) -> Self:
        for part in (self._read, self._written):
            self._after.callback(part.close)
        self._after.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._written.fileno()))
        for number in self._signals:
            self._after.callback(signal.signal, number, signal.signal(number, self._signal))
        return self

    def __exit__(self, *_: object) -> None:
        self._after.close()

    def set(self) -> None:
        """From any thread, but from no handler of a signal."""
        self.event.set()
        with suppress(OSError):  # it has ended, or there are bytes enough
            self._written.send(b"x")

    def wait(self) -> None:
        """In the main thread, until the program is to end."""
        while not (self._signaled or self.event.is_set()):
            self._read.recv(1)
        self.event.set()

    def _signal(self, number: int, _: FrameType | None) -> None:
        if self._signaled:
            os._exit(128 + number)
        self._signaled = True
