"""The simulated upstream's clock: every event has a tick, 1, 2, 3 …, and each tick a timestamp. Both always increase.

Inside the engine time is counted in ticks, which compare as plain integers; files and answers show timestamps.
"""

import time
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.timestamp import Timestamp

_FIRST = 1024


class Clock:
    """Timestamps of ticks. Not thread-safe: the engine's lock protects it.

    `now` returns nanoseconds since 1970. If it has not advanced since the last event, the logical part increases.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._times = [Timestamp(0, 0)]
        self._stored = np.zeros(_FIRST, TIMESTAMP_DTYPE)

    @property
    def last(self) -> int:
        """The tick of the newest event; 0 before the first."""
        return len(self._times) - 1

    def next(self, *, whole: bool = False) -> int:
        """A new tick; with `whole` its logical part is 0, as that of snapshots."""
        last, physical = self._times[-1], self._now()
        if physical > last.physical:
            at = Timestamp(physical)
        else:
            at = Timestamp(last.physical + 1) if whole else Timestamp(last.physical, last.logical + 1)
        self._times.append(at)
        tick = self.last
        if tick == len(self._stored):
            self._stored = np.concatenate([self._stored, np.zeros_like(self._stored)])
        self._stored[tick] = (at.logical, at.physical)
        return tick

    def time(self, tick: int) -> Timestamp:
        return self._times[tick]

    def times(self, ticks: np.ndarray) -> np.ndarray:
        """TIMESTAMP_DTYPE, one a tick."""
        return self._stored[ticks]

    def tick(self, at: Timestamp) -> int:
        """The latest tick at or before a time."""
        return bisect_right(self._times, at) - 1
