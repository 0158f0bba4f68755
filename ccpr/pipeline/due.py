"""When a subscription's next iteration is due, by its row of `mo_ccpr_log` alone."""

import math

from ccpr.matrixone.client.retry import BACK_OFF, doubled
from ccpr.state.context import Context
from ccpr.state.log_rows import Failures, LogRow
from ccpr.state.states import IterationState
from ccpr.state.subscription import Subscription

_SPREAD_SECONDS = 60.0  # over which subscriptions made at once are spread
_CLOCKS_APART_SECONDS = 5.0  # of machines with one catalog database


def due_at(row: LogRow, now: float | None = None) -> float:
    """Seconds since 1970 by our clock. Raises StateUnreadable.

    A last attempt that is later than `now` was written before our clock was set back: the next one is due at once.

    Due times are the row's creation plus whole intervals, whenever the last iteration really began: a tick or a run
    that comes late delays its own iteration and not all that follow. What was missed meanwhile is one iteration, not
    several.
    """
    interval = Subscription.from_row(row).settings.sync_interval
    if failures := Failures.of(row.error_message):
        return 0.0 if _is_later(failures.last, now) else failures.last + back_off(row, failures.count)
    if row.iteration_state == IterationState.RUNNING:  # and the lease is free: left by a process that was killed
        return 0.0 if _is_later(row.updated_at.timestamp(), now) else row.updated_at.timestamp() + interval
    last = Context.from_text(row.context).current
    if last is None:
        return 0.0
    began = row.updated_at.timestamp() if last.taken_at is None else last.taken_at
    if _is_later(began, now):
        return 0.0
    first = row.created_at.timestamp() + _share(row) * min(interval, _SPREAD_SECONDS)
    return first + (math.floor((began - first) / interval) + 1) * interval


def back_off(row: LogRow, failures: int) -> float:
    """Seconds to wait after so many failures in a row: the interval, doubled each time, with a little more that
    differs by subscription."""
    interval = Subscription.from_row(row).settings.sync_interval
    return doubled(interval, failures - 1, BACK_OFF.longest) * (1 + BACK_OFF.jitter * _share(row))


def _is_later(when: float, now: float | None) -> bool:
    return now is not None and when > now + _CLOCKS_APART_SECONDS


def _share(row: LogRow) -> float:
    """A number from 0 to 1 that stays the subscription's: its task id is random."""
    return int(row.task_id.replace("-", "")[:8], 16) / 0xFFFFFFFF
