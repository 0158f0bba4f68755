"""How old the replica is: one computation for command line, Dagster's metadata and scripts
(docs/requirements.md B8, decision lag-is-age).

The lag is the age of the last verified point: the time since the last iteration's snapshot was taken, by our clock; an
idle one counts. So it grows while the upstream is silent, and needs no answer of the upstream; a relay adds how old
what it serves is. Within one process it
grows by a monotonic clock; between processes the wall clock is all there is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ccpr.base.clock import Clock, steady_clock, wall_clock
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.state.context import Context

SHOWN_SKEW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Lag:
    """
    Attributes
    ----------
    seconds : age of the replica's state; None before the first point.
    skew_seconds : our clock less the upstream's when the last snapshot was taken, the time of one answer included;
        None if not known.
    clock_set_back : our clock stands before that moment: it was set back, and the lag is more than is shown.
    """

    seconds: float | None
    skew_seconds: float | None = None
    clock_set_back: bool = False

    @property
    def skewed(self) -> bool:
        """Do the clocks differ by so much that readers must know?"""
        return self.skew_seconds is not None and abs(self.skew_seconds) > SHOWN_SKEW_SECONDS

    def of_older(self, at: int, watermark: int) -> float | None:
        """Age of what shows the upstream as it was at a time, where the replica shows it as it was at its watermark;
        both in nanoseconds by the upstream's clock."""
        return None if self.seconds is None else self.seconds + max(0.0, (watermark - at) / 1e9)

    def warnings(self) -> list[str]:
        """What readers must know about the number."""
        found = []
        if self.skewed and self.skew_seconds is not None:
            ahead = "behind" if self.skew_seconds > 0 else "ahead of"
            found.append(f"the upstream's clock is {abs(self.skew_seconds):.1f} s {ahead} ours")
        if self.clock_set_back:
            found.append("our clock was set back after the last snapshot: the lag is more than is shown")
        return found


class LagMeter:
    """Reads lags of any number of subscriptions; it remembers the last snapshot of each.

    Parameters
    ----------
    clock : seconds since 1970.
    steady : seconds since some moment, never set.
    """

    def __init__(self, clock: Clock = wall_clock, steady: Callable[[], float] = steady_clock) -> None:
        self._clock, self._steady = clock, steady
        self._seen: dict[str, tuple[str, float, float]] = {}

    def read(self, task_id: str, context: Context) -> Lag:
        """The lag of the subscription whose context this is."""
        return self.since(task_id, context.current)

    def since(self, task_id: str, ref: SnapshotRef | None) -> Lag:
        """The age of what was seen in one snapshot."""
        if ref is None or ref.physical is None or ref.taken_at is None:
            return Lag(None)
        name, age, then = self._seen.get(task_id, ("", 0.0, 0.0))
        if name != ref.name:
            age, then = self._clock() - ref.taken_at, self._steady()
            self._seen[task_id] = ref.name, age, then
        return Lag(max(0.0, age) + (ref.age or 0.0) + self._steady() - then, clock_skew(ref), age < 0)


def clock_skew(ref: SnapshotRef | None) -> float | None:
    """Our clock less the upstream's, in seconds, as that snapshot showed it. One of a relay shows nothing: its data is
    older than it."""
    if ref is None or ref.physical is None or ref.taken_at is None or ref.age is not None:
        return None
    return ref.taken_at - ref.physical / 1e9


def taken_at(physical: int, now: float, last: SnapshotRef | None, *, made_now: bool) -> float:
    """When a snapshot was taken, by our clock.

    Usually it is now. One that an earlier run left, its time not read yet, may be hours old: then the offset that
    the last snapshot showed is used, and it is never later than now.
    """
    skew = clock_skew(last)
    return now if made_now or skew is None else min(now, physical / 1e9 + skew)
