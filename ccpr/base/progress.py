"""What an iteration, its copying and its targets report while they work: a value of callbacks, handed in once; and how
a copy gets on, in words: bytes, rate, estimate."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from ccpr.base.wording import seconds_text, size_text


class StartedStep(Protocol):
    """A step of an iteration (`ccpr.pipeline.step_names.Step`), as far as progress needs it."""

    @property
    def label(self) -> str: ...

    @property
    def title(self) -> str: ...


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Progress:
    """Callbacks; each does nothing unless it is given. An error raised in one of them ends the work that called it.

    Attributes
    ----------
    on_step : called with each step of the iteration when it begins.
    on_target : called with a target's name before the target is synced.
    on_rows : called with the rows and bytes that were read for a target since the last call; from several threads.
    on_copy : called with the bytes of all objects that are to be copied, before the first.
    on_bytes : called with the bytes of objects that were copied since the last call.
    """

    on_step: Callable[[StartedStep], None] = _ignore
    on_target: Callable[[str], None] = _ignore
    on_rows: Callable[[int, int], None] = _ignore
    on_copy: Callable[[int], None] = _ignore
    on_bytes: Callable[[int], None] = _ignore


SILENT = Progress()


LOG_SECONDS = 15.0
_WINDOW_SECONDS = 60.0  # the rate is that of the last minute: an average from the start would hide that it stalls


class CopyMeter:
    """
    Parameters
    ----------
    total : bytes that are to be copied.
    done : bytes that were there at the start.
    clock : seconds, never set back.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic, done: int = 0) -> None:
        self._total, self._clock, self._lock = total, clock, Lock()
        self._done = done
        self._seen: deque[tuple[float, int]] = deque([(clock(), done)])

    def add(self, size: int) -> None:
        """So many bytes have been copied since the last call; from any thread."""
        with self._lock:
            self._note(self._done + size)

    def reached(self, done: int) -> None:
        """So many bytes have been copied altogether."""
        with self._lock:
            self._note(done)

    def _note(self, done: int) -> None:
        self._done, now = done, self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def rate(self) -> float:
        """Bytes a second in the last minute; 0 as long as none is known."""
        with self._lock:
            since, then = self._seen[0]
            passed = self._clock() - since
            return max(0.0, (self._done - then) / passed) if passed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """None as long as no rate is known."""
        rate = self.rate
        return max(0, self._total - self._done) / rate if rate > 0 else None

    def describe(self) -> str:
        """For example `1.2 GB of 4.0 GB copied (30 %), 25.0 MB/s, 1 min 52 s left`."""
        share = f" ({100 * self._done // self._total} %)" if self._total else ""
        text = f"{size_text(self._done)} of {size_text(self._total)} copied{share}"
        left = self.seconds_left
        return text if left is None else f"{text}, {size_text(self.rate)}/s, {seconds_text(left)} left"


class CopyLog:
    """`say` gets a line about a copy every LOG_SECONDS, while bytes arrive. A short copy says nothing."""

    def __init__(self, total: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._say, self._clock, self._last = CopyMeter(total, clock), say, clock, clock()
        self._lock = Lock()

    def add(self, size: int) -> None:
        """As `CopyMeter.add`."""
        self._meter.add(size)
        with self._lock:
            due = self._clock() - self._last >= LOG_SECONDS
            if due:
                self._last = self._clock()
        if due:
            self._say(self._meter.describe())
