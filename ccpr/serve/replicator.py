"""The executor of a service: runs the iterations of all subscriptions when they are due, and syncs their targets on
threads of their own.

One thread decides (`ccpr.serve.schedule`); each iteration and each sync is a thread of a pool. Nothing is kept
that a restart would need: what is due, open or unfinished is in the state database (docs/requirements.md N2).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from ccpr.base.errors import Failure, UnexpectedError
from ccpr.base.loops import Loop, unexpected
from ccpr.base.progress import Progress
from ccpr.matrixone.client.malloc import return_free_memory, stay_small
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.driver import drive
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.options import IterationOptions
from ccpr.pipeline.spark.choice import CopierChoice
from ccpr.pipeline.spark.engine import Copier
from ccpr.serve.holding import Holding, KeptSessions
from ccpr.serve.listening import Listener, Listeners
from ccpr.serve.schedule import Schedule
from ccpr.service.target_sync import TargetOutcome, pin_points, sync_target
from ccpr.service.workspace import Workspace
from ccpr.state.errors import (
    LeaseLost,
    StateUnavailable,
    StateUnreadable,
    SubscriptionBusy,
    SubscriptionMissing,
    SubscriptionPaused,
)
from ccpr.state.log_rows import LogRow, WatchedRows
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.targets import may_be_restored, targets_to_verify, tasks_to_try_again

POLL_SECONDS = 1.0  # between two looks at all subscriptions' rows
MEMORY_SECONDS = 60.0  # between two times that free memory is returned
DATABASE_SECONDS = 1.0  # between two attempts to reach a state database that does not answer
HEALTHY_SECONDS = 30.0  # in which the deciding thread goes through its loop
MOST_TARGETS = 64  # synced at once
MOST_KNOWN_TABLES = 50_000  # of all subscriptions together, that are kept in memory between iterations
_NOT_FAILED = (SubscriptionBusy, SubscriptionPaused, SubscriptionMissing, LeaseLost)
_log = logging.getLogger(__name__)


class Stopping(BaseException):
    """The service ends: raised between two steps, and while objects are copied. The iteration stays open. It is no
    error, as KeyboardInterrupt is none."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an iteration ended. `row`: the subscription's afterwards; None if it could not be read. `elsewhere`: another
    executor has the subscription."""

    row: LogRow | None
    failed: bool = False
    elsewhere: bool = False


class Replicator:
    """A component of a service (`ccpr.serve.listening.Component`).

    Parameters
    ----------
    workers : iterations at once, see `ccpr.serve.schedule`.
    copier : what copies; the process itself if not given.
    stop_seconds : how long `stop` waits for iterations and syncs to come to an end.
    on_end : called when the thread that decides has ended; `defect` says whether by a defect of this program.
    """

    def __init__(
        self,
        workspace: Workspace,
        listeners: Sequence[Listener] = (),
        *,
        workers: int = 8,
        copier: Copier | None = None,
        stop_seconds: float = 20.0,
        on_end: Callable[[], None] = lambda: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace, self._steady = workspace, steady
        self.listeners = Listeners(listeners)
        self._copier = copier or Copier(workspace.home, "process")
        self._stop_seconds, self._on_end = stop_seconds, on_end
        self._schedule = Schedule(workers, workspace.clock, steady, self._is_open_to_us)
        self._options = IterationOptions(progress=Progress(on_bytes=self._on_bytes), sleep=self._sleep)
        self.loop = Loop("serve", self._run, stuck_seconds=HEALTHY_SECONDS, steady=steady)
        self._stopping, self._wake, self._ended = self.loop.ending, threading.Event(), threading.Event()
        self._iterations = ThreadPoolExecutor(self._schedule.most_at_once, "iteration")
        self._syncs = ThreadPoolExecutor(MOST_TARGETS, "target")
        self._watched = WatchedRows(workspace.log.engine, steady)
        self._unread = True  # the listeners know of no subscription yet
        self._sessions = KeptSessions(steady)
        self._holdings: dict[str, Holding] = {}
        self._gone: set[str] = set()  # task ids of subscriptions that are forgotten when nothing of them runs
        self._running: dict[str, Future[_Ended]] = {}
        self._syncing: dict[tuple[str, str], Future[bool]] = {}
        self._known, self._known_tables = dict[str, int](), 0  # tables by task id, and of all
        self._lock = threading.Lock()  # of `_syncing` and `_known`
        self._polled, self._returned, self._beat = float("-inf"), steady(), 0.0
        self._database: CcprError | None = None

    def start(self) -> None:
        stay_small()
        self._beat = self._steady()
        self.loop.start()

    def stop(self) -> None:
        """End between steps. What does not end in time is cut off with the process, as `kill -9` would; the next start
        goes on with it."""
        self.ask_to_stop()
        end = self._steady() + self._stop_seconds
        self.loop.stop(self._stop_seconds)
        while self.unfinished and self._steady() < end:
            time.sleep(0.02)
        if left := self.unfinished:
            _log.warning("cut off: %s did not end in time, and goes on with the next start", ", ".join(left))
        self._iterations.shutdown(wait=False, cancel_futures=True)
        self._syncs.shutdown(wait=False, cancel_futures=True)
        self._sessions.close()

    def ask_to_stop(self) -> None:
        """No iteration begins any more, and those that run end after their step."""
        self._stopping.set()
        self._wake.set()

    @property
    def unfinished(self) -> list[str]:
        """Names of subscriptions, and of targets as `subscription/target`, that are worked on."""
        with self._lock:
            syncs = [f"{name}/{target}" for (name, target), future in self._syncing.items() if not future.done()]
        running = [task_id for task_id, future in list(self._running.items()) if not future.done()]
        return [self._holdings[task_id].name for task_id in running] + syncs

    @property
    def seconds_since_beat(self) -> float:
        """How long ago the deciding thread last went through its loop without an error that nothing expects."""
        return self._steady() - self._beat

    @property
    def database_error(self) -> CcprError | None:
        """Why the state database cannot be read now; None if it can."""
        return self._database

    # ---- the thread that decides

    @property
    def defect(self) -> bool:
        """Whether the deciding thread has ended without being asked to."""
        return self._ended.is_set() and not self._stopping.is_set()

    def _run(self) -> None:
        try:
            self._decide()
        finally:
            self._ended.set()
            self._on_end()

    def _decide(self) -> None:
        while not self._stopping.is_set():
            if self.loop.attempt("what is due cannot be decided", self._round) is None:
                self._beat = self._steady()
            else:
                self._stopping.wait(DATABASE_SECONDS)

    def _round(self) -> None:
        self._wake.clear()
        self._collect()
        if self._steady() - self._polled >= POLL_SECONDS:
            if not self._poll():
                self._stopping.wait(DATABASE_SECONDS)
                return
            self._polled = self._steady()
        if self._steady() - self._returned >= MEMORY_SECONDS:
            return_free_memory()
            self._sessions.close_old()
            self._returned = self._steady()
        for row in self._schedule.due():
            name = row.subscription_name
            if self.loop.attempt(f"subscription {name} cannot be begun", partial(self._begin, row)) is not None:
                self._schedule.ended(row.task_id, None, failed=True)
        wait = self._schedule.wait_seconds()
        left = POLL_SECONDS - (self._steady() - self._polled)
        self.rest(max(0.0, min(left, POLL_SECONDS if wait is None else wait)))

    def rest(self, seconds: float) -> None:
        """Wait until so much time has passed, or something has ended."""
        self._wake.wait(seconds)

    def _is_open_to_us(self, owner: str) -> bool:
        """Whether a lease of that owner does not keep us out: a sync of ours may hold it between two iterations. The
        lease of one of whom nothing can be said is waited for; it must not end the service."""
        try:
            return owner == self._workspace.executor.id or self._workspace.executor.is_dead(owner)
        except StateUnreadable:
            return False

    def _poll(self) -> bool:
        """Read which rows have changed. False if the state database cannot be read: then nothing begins until it
        can."""
        try:
            changes = self._watched.read()
        except (StateUnavailable, StateUnreadable) as error:
            if self._database is None:
                _log.error("the state database cannot be read, waiting for it: %s", error)
            self._database = lost = error
            self.listeners.tell(lambda listener: listener.database_lost(lost))
            return False
        if self._database is not None:
            self._database = None
            self.listeners.tell(lambda listener: listener.database_lost(None))
        for row in changes.bad:
            _log.error("subscription %s is not run: %s", row.subscription_name, row.error)
        self._schedule.update(changes.rows, changes.gone)
        self._try_targets_again()
        self._gone.update(changes.gone)
        self._gone.difference_update(row.task_id for row in changes.rows)
        for task_id in self._gone - self._running.keys():
            self._gone.remove(task_id)
            self._holdings.pop(task_id, None)
            with self._lock:
                self._known_tables -= self._known.pop(task_id, 0)
        if changes or self._unread:
            self._unread, rows = False, list(self._watched.rows.values())
            self.listeners.tell(lambda listener: listener.subscriptions_read(rows))
        return True

    def _holding(self, row: LogRow) -> Holding:
        holding = self._holdings.get(row.task_id)
        if holding is None:
            holding = self._holdings[row.task_id] = Holding(self._workspace, row, self._sessions)
        return holding

    def _begin(self, row: LogRow) -> None:
        late = self._schedule.lateness(row)
        holding = self._holding(row)
        self._schedule.began(row.task_id)
        self.listeners.tell(lambda listener: listener.iteration_began(row, late))
        future = self._iterations.submit(self._iterate, row, holding)
        self._running[row.task_id] = future
        future.add_done_callback(lambda _: self._wake.set())

    def _collect(self) -> None:
        for task_id, future in list(self._running.items()):
            if future.done():
                del self._running[task_id]
                what = f"the end of an iteration of {self._holdings[task_id].name}"
                self.loop.attempt(what, partial(self._collected, task_id, future))

    def _collected(self, task_id: str, future: Future[_Ended]) -> None:
        if isinstance(future.exception(), Stopping):
            self._schedule.ended(task_id, None, failed=True)
            return
        try:
            ended = future.result()
        except BaseException:
            self._schedule.ended(task_id, None, failed=True)
            raise
        self._schedule.ended(task_id, ended.row, failed=ended.failed, later=ended.elsewhere)

    # ---- an iteration

    def _iterate(self, row: LogRow, holding: Holding) -> _Ended:
        began, name = self._steady(), row.subscription_name
        try:
            with unexpected(), holding.iteration(row) as (lease, known):
                subscription = Subscription.from_row(lease.claim.row)
                session = partial(holding.session, subscription)
                under = self._workspace.iteration_under(lease, self._options, session=session, known=known)
                with under as iteration, unexpected():
                    iteration.carry = self._copier.carry
                    engine = self._copier.reporting(self._on_bytes, partial(_chosen, iteration))
                    record = drive(iteration, engine, between=self._check)
                    ask = not holding.asked or may_be_restored(
                        iteration.pause_seconds, subscription.settings.sync_interval
                    )
                    behind = self._pinned(row, ask=ask)
                self._keep(holding, iteration)
        except _NOT_FAILED as error:
            _log.info("subscription %s is not run: %s", name, error)
            self.listeners.tell(lambda listener: listener.iteration_left(row))
            return _Ended(self._row(name), elsewhere=True)
        except Stopping:
            self.listeners.tell(lambda listener: listener.iteration_left(row))
            raise
        except CcprError as error:
            after, seconds = self._row(name), self._steady() - began
            self._log_failure(f"subscription {name} failed", error)
            failure = Failure.of(error)
            self.listeners.tell(lambda listener: listener.iteration_failed(after or row, failure, seconds))
            return _Ended(after, failed=True)
        self.loop.succeeded(f"subscription {name} failed")
        seconds, mirror = self._steady() - began, iteration.mirror
        self.listeners.tell(lambda listener: listener.iteration_ended(record, mirror, seconds))
        holding.asked = True
        self._soon(row, holding, behind, partial(self._sync, ask=ask))
        return _Ended(lease.left or self._row(name))  # a sync may hold the lease further on

    def _log_failure(self, what: str, error: CcprError) -> None:
        """A failure of a known kind is no error of the service's."""
        if isinstance(error, UnexpectedError):
            self.loop.failed(what, error)
        else:
            _log.warning("%s: %s", what, error)

    def _keep(self, holding: Holding, iteration: Iteration) -> None:
        """Keep the last point for the next iteration, unless there are too many tables in all of them."""
        last, task_id = iteration.last_read, iteration.subscription.task_id
        with self._lock:
            self._known_tables -= self._known.pop(task_id, 0)
            if last is not None and self._known_tables + len(last.tables) <= MOST_KNOWN_TABLES:
                holding.last, self._known[task_id] = last, len(last.tables)
                self._known_tables += len(last.tables)

    def _pinned(self, row: LogRow, *, ask: bool) -> list[str]:
        """The targets to sync; all of them, to `ask` where they are. Retention keeps the points that they need from now
        on: nothing of them can expire, as the lease is ours."""
        names = self._lagging(row, ask=ask)
        if names:
            records = self._workspace.of(row)
            newest = records.history.newest()
            if newest is not None:
                pin_points(records.targets, newest.lsn)
        return names

    def _row(self, name: str) -> LogRow | None:
        try:
            return self._workspace.log.row(name)
        except CcprError:
            return None

    def _check(self) -> None:
        if self._stopping.is_set():
            raise Stopping

    def _on_bytes(self, size: int) -> None:
        self._check()

    def _sleep(self, seconds: float) -> None:
        self._stopping.wait(seconds)
        self._check()

    # ---- targets

    def _try_targets_again(self) -> None:
        """Sync those whose wait after a failure is over, and ask those that have nothing to do where they are: an
        iteration, after which they are synced in any case, may be far away, or fail."""
        now = self._workspace.clock()
        try:
            failed = tasks_to_try_again(self._workspace.log.engine)
            quiet = targets_to_verify(self._workspace.log.engine, datetime.fromtimestamp(now, UTC))
        except (StateUnavailable, StateUnreadable) as error:
            _log.warning("targets are not tried again now: %s", error)
            return
        rows = self._watched.rows
        for row in [rows[task_id] for task_id in failed | quiet.keys() if task_id in rows]:
            again = row.task_id in failed and row.task_id not in self._running
            if not again and row.task_id not in quiet:
                continue
            if row.state != State.RUNNING or (row.is_held(now) and row.cn_uuid != self._workspace.executor.id):
                continue
            holding = self._holding(row)
            try:
                self._soon(row, holding, self._lagging(row) if again else (), self._sync)
                self._soon(row, holding, quiet.get(row.task_id, ()), self._verify)
            except (StateUnavailable, StateUnreadable) as error:
                _log.warning("subscription %s: targets are not tried again now: %s", row.subscription_name, error)

    def _soon(
        self, row: LogRow, holding: Holding, names: Sequence[str], work: Callable[[LogRow, Holding, str], bool]
    ) -> None:
        """Begin work on targets, but for those that are worked on: these look again at their end."""
        for target in names:
            key = (row.subscription_name, target)
            with self._lock:
                if self._stopping.is_set() or key in self._syncing:
                    continue
                future = self._syncs.submit(work, row, holding, target)
                self._syncing[key] = future
            future.add_done_callback(partial(self._synced, row, holding, target))

    def _lagging(self, row: LogRow, *, ask: bool = False) -> list[str]:
        interval = Subscription.from_row(row).settings.sync_interval
        return self._workspace.of(row).targets.lagging(self._workspace.now(), interval, ask=ask)

    def _verify(self, row: LogRow, holding: Holding, name: str) -> bool:
        """Whether it may be behind: points may have been made meanwhile."""
        from ccpr.service.targets import verify_target  # which a service without targets does not need

        began = self._steady()
        with holding.sync() as right:
            target = self._workspace.of(row).targets.any(name)
            if not target.is_quiet:
                return True
            failure = verify_target(self._workspace, right.subscription, target)
        if failure is not None:
            outcome = TargetOutcome(name, None, failure, self._steady() - began)
            self.listeners.tell(lambda listener: listener.target_synced(row, outcome))
        return failure is None

    def _sync(self, row: LogRow, holding: Holding, name: str, *, ask: bool = False) -> bool:
        """Whether it may be behind again: points may have been made meanwhile."""
        progress = Progress(on_rows=lambda rows, size: self._check(), on_target=lambda target: self._check())
        with holding.sync() as right:
            target = self._workspace.of(row).targets.any(name)
            if target.needed_lsn is None:
                return False  # added since the iteration: the next one lets retention keep a point for it
            how = {"ask": ask, "progress": progress, "carry": self._copier.carry}
            outcome = sync_target(self._workspace, right, target, **how)
        if outcome is not None:
            self.listeners.tell(lambda listener: listener.target_synced(row, outcome))
        return outcome is not None and outcome.failure is None

    def _synced(self, row: LogRow, holding: Holding, target: str, future: Future[bool]) -> None:
        with self._lock:
            self._syncing.pop((row.subscription_name, target), None)
        if future.cancelled() or isinstance(future.exception(), Stopping):
            return
        try:
            with unexpected():
                if future.result() and target in self._lagging(row):
                    self._soon(row, holding, [target], self._sync)
        except UnexpectedError as error:
            self.loop.failed(f"subscription {row.subscription_name}: target {target} is not synced", error)
        except CcprError as error:
            _log.info("subscription %s: target %s is not synced: %s", row.subscription_name, target, error)


def _chosen(iteration: Iteration, choice: CopierChoice) -> None:
    _log.info("subscription %s: copying %d bytes: %s", iteration.subscription.name, choice.size, choice.text)
    iteration.note_copier(choice.text)
