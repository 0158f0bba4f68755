"""Who keeps the warm session of a state folder: `ccpr serve`, `ccpr spark keep` and with it `make ui`.

A keeper holds a lock as long as it runs, by which copies know that a session that they start will be ended (decision
warm-on-demand). Of several on one folder one holds it, and the next takes over.
"""

import logging
import time
from contextlib import ExitStack
from typing import Self

from ccpr.base.file_modes import make_folder
from ccpr.base.loops import Loop
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.spark.locks import held, is_held, is_shared, shared
from ccpr.pipeline.spark.server import WarmSpark

UNUSED_SECONDS = 600.0  # after the last copy, until a session that was started for one is ended
_LOOK_SECONDS = 1.0
_BACK_OFF = (1.0, 5.0, 15.0, 60.0, 300.0)  # seconds between the starts of a server that keeps dying
_STUCK_SECONDS = 900.0  # a start may wait six minutes for another one's, and five for the server
_log = logging.getLogger(__name__)


class Supervisor:
    """Keeps a warm session, on a thread of its own; a context manager. It ends with the supervisor unless another
    process had started it.

    Parameters
    ----------
    on_demand : the copies start it, and it is ended when none has used it for `unused_seconds`. Otherwise it is started
        at once, and again when it dies.
    """

    def __init__(self, warm: WarmSpark, *, on_demand: bool = False, unused_seconds: float = UNUSED_SECONDS) -> None:
        self._warm, self._on_demand, self._unused_seconds = warm, on_demand, unused_seconds
        self._locks = ExitStack()
        self._is_keeper = False
        keep = self._end_unused if on_demand else self._keep_running
        self.loop = Loop("warm-spark", keep, stuck_seconds=_STUCK_SECONDS)
        self._ended, self._used = self.loop.ending, 0.0
        self.failure: CcprError | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Raises OSError where the folder cannot be written."""
        if self._warm.settings.remote is None:  # else others keep a server
            make_folder(self._warm.folder)
            self._take_over()
            if not self._on_demand:
                self._locks.enter_context(shared(self._warm.used))
            self.loop.start()

    def stop(self) -> None:
        """End the thread, and the server if it was started for us. What cannot be ended is logged."""
        self.loop.stop()
        if self.loop.started:
            self._end()
        self._locks.close()

    def state(self) -> str:
        """A word for people: that of `WarmSpark.look`, or ``failing``."""
        return "failing" if self.failure is not None else self._warm.look().state.value

    def _take_over(self) -> None:
        """Become the keeper, if there is none."""
        if not self._is_keeper:
            with ExitStack() as trying:
                if trying.enter_context(held(self._warm.keeper)) is not None:
                    self._is_keeper = True
                    self._locks.push(trying.pop_all())

    def _keep_running(self) -> None:
        failed = 0
        while not self._ended.is_set():
            began = time.monotonic()
            self.failure = self.loop.attempt("the warm session does not start", self._keep_one)
            failed = 0 if self.failure is None and time.monotonic() - began > _BACK_OFF[-1] else failed + 1
            if failed:
                self._ended.wait(_BACK_OFF[min(failed, len(_BACK_OFF)) - 1])

    def _keep_one(self) -> None:
        """Until it dies, or is not used any more."""
        try:
            self._warm.start(warm_up=True, supervised=True, cancelled=self._ended)
        except CcprError:
            if self._ended.is_set():
                return
            raise
        self.failure, self.starts = None, self.starts + 1
        while is_held(self._warm.alive) and not self._ended.wait(_LOOK_SECONDS):
            self.loop.beat()
            self._take_over()

    def _end_unused(self) -> None:
        self._used = time.monotonic()
        while not self._ended.wait(_LOOK_SECONDS):
            self.loop.attempt("the warm session cannot be looked after", self._look)

    def _look(self) -> None:
        self._take_over()
        now = time.monotonic()
        if is_shared(self._warm.used):
            self._used = now
        elif now - self._used > self._unused_seconds:
            self._end()
            self._used = now

    def _end(self) -> None:
        """End a server that was started for copies or by a supervisor, unless another one keeps it."""
        try:
            server = self._warm.look().server
            if self._is_keeper and server is not None and server.supervised:
                self._warm.stop()
        except CcprError as error:
            _log.warning("the warm session was left running: %s: %s", error.code, error.message)
