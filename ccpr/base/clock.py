"""What time it is: the one place that asks the machine. Who needs the time gets a clock as a parameter, so that tests
can set it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]  # seconds since 1970

wall_clock: Clock = time.time
# On Linux this one goes on while the machine sleeps, as CLOCK_MONOTONIC does not.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", None)


def utc_now(clock: Clock = wall_clock) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)


def steady_clock() -> float:
    """Seconds since some moment. It is never set."""
    return time.monotonic() if _SLEEPLESS is None else time.clock_gettime(_SLEEPLESS)
