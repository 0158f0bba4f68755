"""Which subscriptions a service starts now: decided from their rows, the time and what runs, without doing anything.

When one is due says `ccpr.pipeline.due`, as for the sensor. Two kinds of iterations must not keep others
waiting: those of subscriptions that are failing, which may hang until a timeout, and those that take long. They do not
count against the workers, up to a number of their own.

What is due is found in heaps: a look costs what is due, not what there is.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ccpr.base.clock import Clock
from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.pipeline.due import back_off, due_at
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import Failures, LogRow
from ccpr.state.states import IterationState, State

LONG_SECONDS = 5.0  # an iteration that has run for so long does not count against the workers any more
LONG_PER_WORKER = 4
_MOST_PASSED_OVER = 1000  # places of entries that are elsewhere, besides as many as there are entries


@dataclass(slots=True)
class _Entry:
    """
    Attributes
    ----------
    due : seconds since 1970; None if it requires operator action, or its row cannot be read.
    failures : attempts in a row that the row may not know.
    not_before : on the steady clock.
    began : on the steady clock, of the iteration that runs; None if none does.
    ticket : of its place in a queue; a place with another ticket is no longer its own.
    """

    row: LogRow
    due: float | None
    failures: int = 0
    not_before: float = 0.0
    began: float | None = None
    ticket: int = 0

    @property
    def is_failing(self) -> bool:
        return bool(self.failures) or Failures.of(self.row.error_message) is not None


_Place = tuple[float, str, int]  # a time, the task id, the ticket


class _Queue:
    """Entries by time, the first first. Those whose time has come are in a heap of their own: what comes next is found
    without a look at them. An entry that has been put elsewhere since is passed over."""

    def __init__(self, entries: dict[str, _Entry]) -> None:
        self._entries, self._now = entries, float("-inf")
        self._due, self._coming = list[_Place](), list[_Place]()

    def __len__(self) -> int:
        return len(self._due) + len(self._coming)

    def put(self, when: float, task_id: str, ticket: int) -> None:
        heapq.heappush(self._due if when <= self._now else self._coming, (when, task_id, ticket))
        if len(self) > 2 * len(self._entries) + _MOST_PASSED_OVER:
            for places in (self._due, self._coming):
                places[:] = [place for place in places if self._entry(place) is not None]
                heapq.heapify(places)

    def is_due(self, now: float) -> bool:
        """Whether the time of one has come."""
        self._go_to(now)
        return self._first(self._due) is not None

    def take(self) -> _Entry:
        """The first of those that are due."""
        return self._entries[heapq.heappop(self._due)[1]]

    def next_after(self, now: float) -> float | None:
        """The first time after now."""
        self._go_to(now)
        first = self._first(self._coming)
        return None if first is None else first[0]

    def _go_to(self, now: float) -> None:
        if now < self._now:  # the clock was set back
            self._coming += self._due
            self._due.clear()
            heapq.heapify(self._coming)
        self._now = now
        while self._coming and self._coming[0][0] <= now:
            heapq.heappush(self._due, heapq.heappop(self._coming))

    def _first(self, places: list[_Place]) -> _Place | None:
        while places and self._entry(places[0]) is None:
            heapq.heappop(places)
        return places[0] if places else None

    def _entry(self, place: _Place) -> _Entry | None:
        entry = self._entries.get(place[1])
        return entry if entry is not None and entry.ticket == place[2] else None


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
        clock: Clock,
        steady: Callable[[], float],
        is_open: Callable[[str], bool] = lambda owner: False,
    ) -> None:
        self._workers, self._clock, self._steady, self._is_open = workers, clock, steady, is_open
        self._entries: dict[str, _Entry] = {}
        self._running: dict[str, _Entry] = {}
        self._gone: set[str] = set()  # those that run, and are forgotten at their end
        self._sound, self._failing = _Queue(self._entries), _Queue(self._entries)  # by the clock
        self._resting = _Queue(self._entries)  # by the steady clock: until `not_before`
        self._tickets = 0
        self._first = True

    @property
    def most_at_once(self) -> int:
        return self._workers * (1 + LONG_PER_WORKER)

    def update(self, rows: Iterable[LogRow], gone: Iterable[str] = ()) -> None:
        """Subscriptions that are new or have changed, and task ids of those that are gone."""
        for task_id in gone:
            if task_id in self._running:
                self._gone.add(task_id)
            else:
                self._entries.pop(task_id, None)
        for row in rows:
            self._gone.discard(row.task_id)
            self._put(row)
        self._first = False

    def began(self, task_id: str) -> None:
        entry = self._running[task_id] = self._entries[task_id]
        entry.began = self._steady()
        entry.ticket = self._ticket()

    def ended(self, task_id: str, row: LogRow | None, *, failed: bool, later: bool = False) -> None:
        """The iteration has ended. `row` is how it left the subscription's, None if that could not be read. `later`:
        another executor has the subscription."""
        entry = self._entries.get(task_id)
        self._running.pop(task_id, None)
        if entry is None:
            return
        if task_id in self._gone:
            self._gone.remove(task_id)
            del self._entries[task_id]
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
        self._line_up(entry)

    def due(self) -> list[LogRow]:
        """Those to start now, the longest due first; no more than may run at once."""
        steady = self._steady()
        while self._resting.is_due(steady):
            self._line_up(self._resting.take())
        free, apart_left = self._room(steady)
        found = self._startable(self._sound, free) + self._startable(self._failing, apart_left)
        found.sort(key=lambda entry: (entry.due, entry.row.task_id))
        return [entry.row for entry in found]

    def wait_seconds(self) -> float | None:
        """Until the next one is due, or an iteration no longer counts against the workers; None if nothing is known to
        happen. Never negative."""
        now, steady = self._clock(), self._steady()
        waits = [entry.began + LONG_SECONDS - steady for entry in self._running.values() if entry.began is not None]
        if (rested := self._resting.next_after(steady)) is not None:
            waits.append(rested - steady)
        free, apart_left = self._room(steady)
        # One that is due and was not started waits for another to end, or for its holder.
        for queue, room in ((self._sound, free), (self._failing, apart_left)):
            if room > 0 and (due := queue.next_after(now)) is not None:
                waits.append(due - now)
        return min((wait for wait in waits if wait > 0), default=None)

    def lateness(self, row: LogRow) -> float:
        """By how many seconds it begins later than it was due; 0 for the first iteration, which is due at any time."""
        due = self._entries[row.task_id].due
        return max(0.0, self._clock() - due) if due else 0.0

    # ----

    def _put(self, row: LogRow) -> None:
        entry = self._entries.get(row.task_id)
        if entry is None:
            entry = self._entries[row.task_id] = _Entry(row, self._due_at(row))
        elif entry.row == row:
            return
        else:
            if entry.row.error_message and not row.error_message:
                entry.failures, entry.not_before = 0, 0.0  # resumed, or run by another executor
            entry.row, entry.due = row, self._due_at(row)
        self._line_up(entry)

    def _line_up(self, entry: _Entry) -> None:
        """Put it where its time comes. One that runs, or requires operator action, is in no queue."""
        entry.ticket = self._ticket()
        if entry.began is not None or entry.due is None:
            return
        rest = entry.not_before - self._steady()
        if rest > 0 and rest >= entry.due - self._clock():
            self._resting.put(entry.not_before, entry.row.task_id, entry.ticket)
        else:
            queue = self._failing if entry.is_failing else self._sound
            queue.put(entry.due, entry.row.task_id, entry.ticket)

    def _startable(self, queue: _Queue, most: int) -> list[_Entry]:
        """The first that are due and that nobody else holds. All stay in the queue until they begin: those that are
        held are looked at again."""
        now, steady = self._clock(), self._steady()
        found, seen = list[_Entry](), list[_Entry]()
        while len(found) < most and queue.is_due(now):
            entry = queue.take()
            seen.append(entry)
            if entry.not_before <= steady and not self._is_held(entry.row, now):
                found.append(entry)
        for entry in seen:
            self._line_up(entry)
        return found

    def _room(self, steady: float) -> tuple[int, int]:
        """How many more may begin: that count against the workers, and that do not."""
        apart = sum(self._is_apart(entry, steady) for entry in self._running.values())
        apart_left = self._workers * LONG_PER_WORKER - apart
        return self._workers - (len(self._running) - apart) + min(apart_left, 0), apart_left

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

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

    def _is_apart(self, entry: _Entry, steady: float) -> bool:
        return entry.is_failing or (entry.began is not None and steady - entry.began >= LONG_SECONDS)
