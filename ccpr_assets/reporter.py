"""Iterations without a run, as `ccpr serve` makes them, reported to a Dagster instance: the same events as a run's
(`ccpr_assets.events`).

Reporting has a thread of its own and a queue of limited length: if the instance is slow or away, the oldest reports are
dropped, and replication goes on. A newer report says all that an older one would.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import dagster as dg

from ccpr_assets import events
from ccpr_assets.followers import follower_events
from ccpr_assets.partitions import SUBSCRIPTIONS
from ccpr_assets.reporting import health_events
from ccpr_assets.tables import report_tables
from ccpr_assets.target_tables import report_target_tables
from matrixone.errors import CcprError
from replication.daemon.listening import Ignoring
from replication.failure import Failure
from replication.mirror.mirror import Mirror
from replication.service.target_sync import TargetOutcome
from replication.service.whole_iteration import IterationRecord
from replication.service.workspace import Workspace
from replication.state.followers import Follower
from replication.state.log_rows import LogRow

MOST_WAITING = 500
MOST_ROWS_WAITING = 2_000_000  # of object lists; those of a first iteration may be long
_RETRY_SECONDS = 5.0
_STOP_SECONDS = 10.0
_log = logging.getLogger(__name__)
Report = Callable[[], Iterable[events.Runless]]


class DagsterReporter(Ignoring):
    """A listener, and a component with a thread.

    Parameters
    ----------
    workspace : whose subscriptions' health is reported after each iteration, failed ones too.
    open_instance : called by the thread, again after it failed. The one of DAGSTER_HOME if not given.
    """

    def __init__(
        self, workspace: Workspace, open_instance: Callable[[], dg.DagsterInstance] = dg.DagsterInstance.get
    ) -> None:
        self._workspace, self._open = workspace, open_instance
        self._waiting: deque[tuple[int, Report]] = deque()
        self._rows = 0
        self._names: set[str] | None = None  # None: nothing was read since the last sync
        self._changed = threading.Condition()
        self._stopping = False
        self._busy = False
        self._followers_wait = False
        self._thread = threading.Thread(target=self._run, name="dagster", daemon=True)
        self.dropped = 0
        self.reported = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is waiting is still reported, for some seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is waiting. False if that took too long."""
        end = time.monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, end - time.monotonic())

    # ---- what happens

    def iteration_ended(self, record: IterationRecord, mirror: Mirror, seconds: float) -> None:
        rows = record.listed.added.num_rows + record.listed.removed.num_rows
        self._put(rows, lambda: _runless(events.events_of(record, mirror), record.subscription))
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
        instance: dg.DagsterInstance | None = None
        warned = False
        while (report := self._next()) is not None:
            try:
                instance = instance or self._open()
                self._instance = instance
                for event in report():
                    instance.report_runless_asset_event(event)
                    self.reported += 1
                warned = False
            except Exception as error:  # noqa: BLE001 - whatever Dagster or its storage raises: replication goes on
                self.dropped += 1
                if not warned:
                    _log.warning("not reported to Dagster: %s: %.300s", type(error).__name__, error)
                warned = True
                self._pause()
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
        if instance is not None:
            instance.dispose()

    def _next(self) -> Report | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            if not self._waiting:
                return None
            rows, report = self._waiting.popleft()
            self._rows -= rows
            self._busy = True
            return report

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, _RETRY_SECONDS)
            if self._stopping:
                self._waiting.clear()

    def _state_of(self, subscription: str) -> Iterable[events.Runless]:
        """How the subscription is, and its tables; nothing where the state cannot be read now."""
        with suppress(CcprError):
            self._report_tables(subscription)
            return health_events(self._instance, self._workspace, [subscription])
        return ()

    def _followers(self) -> Iterable[events.Runless]:
        self._followers_wait = False
        with suppress(CcprError):
            return follower_events(self._instance, self._workspace)
        return ()

    def _targets_of(self, row: LogRow, outcome: TargetOutcome) -> Iterable[events.Runless]:
        with suppress(CcprError):
            self._report_tables(row.subscription_name)
        return _runless(events.target_synced(outcome), row.subscription_name)

    def _report_tables(self, subscription: str) -> None:
        report_tables(self._instance, self._workspace, subscription)
        report_target_tables(self._instance, self._workspace, subscription)

    def _sync_partitions(self, names: set[str]) -> Iterable[events.Runless]:
        """Bring the partitions in step, as the sensor does. Those of dropped subscriptions are the sensor's to take
        away: a run may need them."""
        assert SUBSCRIPTIONS.name is not None
        present = set(self._instance.get_dynamic_partitions(SUBSCRIPTIONS.name))
        if new := sorted(names - present):
            self._instance.add_dynamic_partitions(SUBSCRIPTIONS.name, new)
        return ()


def _runless(shown: Iterable[events.StepEvent], subscription: str) -> Iterable[events.Runless]:
    return [event for step in shown for event in step.runless(subscription)]
