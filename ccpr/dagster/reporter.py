"""Iterations without a run, as `ccpr serve` makes them, reported to a Dagster instance: the same events as a run's
(`ccpr.dagster.events`).

Reporting has a thread of its own and a queue of limited length: if the instance is slow or away, the oldest reports are
dropped, and replication goes on. A newer report says all that an older one would.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import dagster as dg

from ccpr.base.errors import Failure
from ccpr.base.loops import Loop
from ccpr.dagster import events
from ccpr.dagster.followers import follower_events
from ccpr.dagster.keys import Runless
from ccpr.dagster.partitions import add_partitions
from ccpr.dagster.present import present_events
from ccpr.dagster.replica_health import health_of
from ccpr.dagster.reporting import changed, health_events
from ccpr.dagster.reporting import report as publish
from ccpr.dagster.tables import newest_reported, report_tables
from ccpr.dagster.target_health import read_targets, target_databases_event, target_events
from ccpr.dagster.target_tables import report_target_tables
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.iteration import IterationRecord
from ccpr.serve.listening import Listener
from ccpr.service.target_sync import TargetOutcome
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower
from ccpr.state.log_rows import LogRow

MOST_WAITING = 500
MOST_ROWS_WAITING = 2_000_000  # of object lists; those of a first iteration may be long
_RETRY_SECONDS = 5.0
_STOP_SECONDS = 10.0
Report = Callable[[], Iterable[Runless]]


class DagsterReporter(Listener):
    """A listener, and a component with a thread. `workspace`: whose subscriptions' health is reported after each
    iteration, failed ones too. `open_instance`: called by the thread, again after it failed. The one of DAGSTER_HOME if
    not given."""

    def __init__(
        self, workspace: Workspace, open_instance: Callable[[], dg.DagsterInstance] = dg.DagsterInstance.get
    ) -> None:
        self._workspace, self._open = workspace, open_instance
        self._waiting: deque[tuple[int, Report]] = deque()
        self._rows = 0
        self._names: set[str] | None = None  # None: nothing was read since the last sync
        self._changed = threading.Condition()
        self._busy = False
        self._followers_wait = False
        self.loop = Loop("dagster", self._run)
        self._opened: dg.DagsterInstance | None = None
        self.dropped = 0
        self.reported = 0

    def start(self) -> None:
        self.loop.start()

    def stop(self) -> None:
        """What is waiting is still reported, for some seconds."""
        self.loop.ending.set()
        with self._changed:
            self._changed.notify_all()
        self.loop.stop(_STOP_SECONDS)

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is waiting. False if that took too long."""
        end = time.monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, end - time.monotonic())

    # ---- what happens

    def iteration_ended(self, record: IterationRecord, mirror: Mirror, seconds: float) -> None:
        assert record.listed is not None  # it has ended
        rows = record.listed.diff.added.num_rows + record.listed.diff.removed.num_rows
        self._put(rows, lambda: self._ended(record, mirror))
        self._put(0, lambda: self._state_of(record.subscription))

    def target_synced(self, row: LogRow, outcome: TargetOutcome) -> None:
        self._put(0, lambda: self._targets_of(row, outcome))

    def follower_asked(self, row: LogRow, follower: Follower) -> None:
        if not self._followers_wait:  # one report is of all of them
            self._followers_wait = True
            self._put(0, self._followers)

    def iteration_failed(self, row: LogRow, failure: Failure, seconds: float) -> None:
        self._put(0, lambda: self._state_of(row.subscription_name))

    def subscriptions_read(self, rows: list[LogRow]) -> None:
        names = {row.subscription_name for row in rows}
        with self._changed:
            if names != self._names:
                self._names = names
                self._waiting.append((0, lambda: self._sync_partitions(names)))
                self._changed.notify_all()

    def _put(self, rows: int, report: Report) -> None:
        with self._changed:
            self._waiting.append((rows, report))
            self._rows += rows
            while len(self._waiting) > MOST_WAITING or (self._rows > MOST_ROWS_WAITING and len(self._waiting) > 1):
                dropped, lost = self._waiting.popleft()
                if lost == self._followers:
                    self._followers_wait = False
                self._rows -= dropped
                self.dropped += 1
            self._changed.notify_all()

    # ---- the thread

    def _run(self) -> None:
        while (report := self._next()) is not None:
            failure = self.loop.attempt("not reported to Dagster", partial(self._report, report))
            if failure is not None:
                self.dropped += 1
                self._names = None  # what was to be reported of them may be lost
                self._pause()
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        if self._opened is not None:
            self._opened.dispose()

    def _report(self, report: Report) -> None:
        """Whatever Dagster or its storage raises: replication goes on."""
        self._opened = self._opened or self._open()
        found = list(report())
        publish(self._instance, found)
        self.reported += len(found)

    @property
    def _instance(self) -> dg.DagsterInstance:
        assert self._opened is not None
        return self._opened

    def _next(self) -> Report | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.loop.ending.is_set())
            if not self._waiting:
                return None
            rows, report = self._waiting.popleft()
            self._rows -= rows
            self._busy = True
            if report == self._followers:
                self._followers_wait = False
            return report

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(self.loop.ending.is_set, _RETRY_SECONDS)
            if self.loop.ending.is_set():
                self._waiting.clear()

    def _ended(self, record: IterationRecord, mirror: Mirror) -> Iterable[Runless]:
        """Of an idle iteration what made its point, too, if that was not reported: it ran before."""
        name = record.subscription
        if record.copied is None:
            with suppress(CcprError):
                row = self._workspace.log.row(name)
                if newest_reported(self._instance, [row.task_id]).get(row.task_id) != record.ended.newest_point:
                    yield from present_events(self._workspace, row)
        for step in events.events_of(record, mirror):
            yield from step.runless(name)

    def _state_of(self, subscription: str) -> Iterable[Runless]:
        """How the subscription is, and its tables; nothing where the state cannot be read now."""
        with suppress(CcprError):
            yield from health_events(self._instance, self._workspace, [subscription])
            yield from target_events(self._instance, self._workspace, [self._workspace.log.row(subscription)])
        with suppress(CcprError):
            self._report_tables(subscription)

    def _followers(self) -> Iterable[Runless]:
        with suppress(CcprError):
            return follower_events(self._instance, self._workspace)
        return ()

    def _targets_of(self, row: LogRow, outcome: TargetOutcome) -> Iterable[Runless]:
        """What was synced; and how the target and its subscription are, if this has changed that."""
        name, found = row.subscription_name, list[Runless]()
        with suppress(CcprError):
            self._report_tables(name)
            targets = read_targets(self._workspace, row)
            if outcome.result is not None and not any(one.is_failing for one in targets):
                found += target_databases_event(name, targets, [outcome]).runless(name)
            found += target_events(self._instance, self._workspace, [row])
            health = health_of(self._workspace, self._workspace.log.row(name))
            if changed(self._instance, {name: health.verdict}):
                found += health_events(self._instance, self._workspace, [name])
        return found

    def _report_tables(self, subscription: str) -> None:
        report_tables(self._instance, self._workspace, subscription)
        report_target_tables(self._instance, self._workspace, subscription)

    def _sync_partitions(self, names: set[str]) -> Iterable[Runless]:
        """Bring the partitions in step, as the sensor does. Those of dropped subscriptions are the sensor's to take
        away: a run may need them."""
        add_partitions(self._instance, names)
        return ()
