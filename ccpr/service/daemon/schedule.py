"""Which subscriptions a service starts now: decided from their rows, the time and what runs, without doing anything.

When one is due says `ccpr.pipeline.due`, as for the sensor. Two kinds of iterations must not keep others
waiting: those of subscriptions that are failing, which may hang until a timeout, and those that take long. They do not
count against the workers, up to a number of their own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.pipeline.due import back_off, due_at
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import Failures, LogRow
from ccpr.state.states import IterationState, State

LONG_SECONDS = 5.0  # an iteration that has run for so long does not count against the workers any more
LONG_PER_WORKER = 4


@dataclass(slots=True)
class _Entry:
    """
    Attributes
    ----------
    due : seconds since 1970; None if it requires operator action, or its row cannot be read.
    failures : attempts in a row that the row may not know.
    not_before : on the steady clock.
    began : on the steady clock, of the iteration that runs; None if none does.
    """

    row: LogRow
    due: float | None
    failures: int = 0
    not_before: float = 0.0
    began: float | None = None


class Schedule:
    """One thread uses it.

    Parameters
    ----------
    workers : iterations at once, but for failing and long ones.
    clock : seconds since 1970, as rows have it; may jump.
    steady : seconds since some moment, never set.
    is_open : whether a lease that this executor holds does not keep us out: it is ours, or its owner has ended.
    """

    def __init__(
        self,
        workers: int,
        clock: Callable[[], float],
        steady: Callable[[], float],
        is_open: Callable[[str], bool] = lambda owner: False,
    ) -> None:
        self._workers, self._clock, self._steady, self._is_open = workers, clock, steady, is_open
        self._entries: dict[str, _Entry] = {}
        self._first = True

    @property
    def most_at_once(self) -> int:
        return self._workers * (1 + LONG_PER_WORKER)

    def update(self, rows: Iterable[LogRow]) -> None:
        """All subscriptions as they are now. Those that are not among them are gone."""
        found = {row.task_id: row for row in rows}
        for task_id in [task_id for task_id in self._entries if task_id not in found]:
            if self._entries[task_id].began is None:
                del self._entries[task_id]
        for row in found.values():
            self._put(row)
        self._first = False

    def began(self, task_id: str) -> None:
        self._entries[task_id].began = self._steady()

    def ended(self, task_id: str, row: LogRow | None, *, failed: bool, later: bool = False) -> None:
        """The iteration has ended. `row` is how it left the subscription's, None if that could not be read. `later`:
        another executor has the subscription."""
        entry = self._entries.get(task_id)
        if entry is None:
            return
        entry.began = None
        entry.failures = entry.failures + 1 if failed else 0
        if failed:  # not every failure reaches the row: this one of ours keeps it from being tried in a circle
            entry.not_before = self._steady() + back_off(entry.row, entry.failures)
        elif later:
            entry.not_before = self._steady() + 1.0
        else:
            entry.not_before = 0.0
        if row is not None:
            self._put(row)

    def due(self) -> list[LogRow]:
        """Those to start now, the longest due first; no more than may run at once."""
        now, steady = self._clock(), self._steady()
        ready = [
            entry
            for entry in self._entries.values()
            if entry.began is None and entry.due is not None and entry.due <= now and entry.not_before <= steady
        ]
        ready.sort(key=lambda entry: (entry.due, entry.row.task_id))
        apart = [entry for entry in self._running() if self._is_apart(entry, steady)]
        counted = len(self._running()) - len(apart)
        apart_left = self._workers * LONG_PER_WORKER - len(apart)
        free = self._workers - counted + min(apart_left, 0)
        found = []
        for entry in ready:
            if self._is_held(entry.row, now):
                continue
            if _is_failing(entry):
                if apart_left <= 0:
                    continue
                apart_left -= 1
            elif free <= 0:
                continue
            else:
                free -= 1
            found.append(entry.row)
        return found

    def wait_seconds(self) -> float | None:
        """Until the next one is due, or an iteration no longer counts against the workers; None if nothing is known to
        happen. Never negative."""
        now, steady = self._clock(), self._steady()
        waits = []
        for entry in self._entries.values():
            if entry.began is not None:
                left = entry.began + LONG_SECONDS - steady
                if left > 0:
                    waits.append(left)
            elif entry.due is not None:
                left = max(entry.due - now, entry.not_before - steady)
                if left > 0:  # one that is due and was not started waits for another to end
                    waits.append(left)
        return min(waits, default=None)

    def lateness(self, row: LogRow) -> float:
        """By how many seconds it begins later than it was due; 0 for the first iteration, which is due at any time."""
        due = self._entries[row.task_id].due
        return max(0.0, self._clock() - due) if due else 0.0

    # ----

    def _put(self, row: LogRow) -> None:
        entry = self._entries.get(row.task_id)
        if entry is None:
            self._entries[row.task_id] = _Entry(row, self._due_at(row))
        elif entry.row != row:
            if entry.row.error_message and not row.error_message:
                entry.failures, entry.not_before = 0, 0.0  # resumed, or run by another executor
            entry.row, entry.due = row, self._due_at(row)

    def _due_at(self, row: LogRow) -> float | None:
        if row.state != State.RUNNING:
            return None
        interrupted = row.iteration_state == IterationState.RUNNING and not row.error_message
        if self._first and interrupted:
            return 0.0  # by the end of this service's last run: it goes on where it stopped
        try:
            with unexpected():
                return due_at(row, self._clock())
        except (StateUnreadable, UnexpectedError):  # its status says so; the others are run
            return None

    def _is_held(self, row: LogRow, now: float) -> bool:
        """By a living executor elsewhere, or by a command."""
        return row.is_held(now) and row.cn_uuid is not None and not self._is_open(row.cn_uuid)

    def _running(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if entry.began is not None]

    def _is_apart(self, entry: _Entry, steady: float) -> bool:
        return _is_failing(entry) or (entry.began is not None and steady - entry.began >= LONG_SECONDS)


def _is_failing(entry: _Entry) -> bool:
    return bool(entry.failures) or Failures.of(entry.row.error_message) is not None
