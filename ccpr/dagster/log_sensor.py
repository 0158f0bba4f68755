"""From `mo_ccpr_log` to runs: what is due and has changed gets a run, what is due and has not is finished by the tick
itself.

A run costs seconds before its first statement, and most iterations find nothing. The steps of an iteration can be
taken up by any process, so the tick takes the cheap ones (snapshot, catalog, object list). It ends the iteration if it
is idle, without a run; else it leaves it open, and the run that it asks for goes on with the same
snapshot.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.base.wording import filled, first_names
from ccpr.dagster.checks import check_by_schema
from ccpr.dagster.events import idle
from ccpr.dagster.followers import follower_events
from ccpr.dagster.health_sensor import no_subscription, read_verdicts
from ccpr.dagster.keys import Runless, remember_keys, translated
from ccpr.dagster.metadata import ATTEMPT_TAG, ITERATION_TAG, LOG_SENSOR, SUBSCRIPTION_TAG, SYNC_JOB, WHY_TAG
from ccpr.dagster.partitions import SUBSCRIPTIONS, present_partitions
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import changed, health_events
from ccpr.dagster.step import iteration_tag
from ccpr.dagster.target_health import target_events
from ccpr.matrixone.client.errors import HistoryUnreadable, NotFlushedYet, StaleRead
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.driver import drive
from ccpr.pipeline.due import back_off, due_at
from ccpr.pipeline.options import IterationOptions, Timeouts
from ccpr.pipeline.step_names import Stage
from ccpr.service.running import is_served
from ccpr.service.targets import is_still_away, verify_targets
from ccpr.service.workspace import Workspace
from ccpr.state.errors import (
    StateUnavailable,
    StateUnreadable,
    SubscriptionBusy,
    SubscriptionMissing,
    SubscriptionPaused,
)
from ccpr.state.log_rows import BadRow, Failures, LogRow
from ccpr.state.settings import SENSOR_SECONDS
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.targets import may_be_restored, targets_to_verify

RUNS_PER_TICK = 8
FAILURES_PER_TICK = 100  # newly failed ones; recording each in Dagster takes a tenth of a second
NEWS_PER_TICK = 10  # of subscriptions that this tick did not serve; the next one reports the rest
# Of a tick's 60; one subscription that began within them may take what SHORT_TIMEOUTS allows on top.
TICK_SECONDS = 20.0
# The next attempt is another tick's; a stale read is asked again by a run, which has the time for it.
SHORT_TIMEOUTS = Timeouts(connect=5.0, read=10.0, flush=3.0, retry=NO_RETRY, stale_read=None)
_NAMED_AT_ONCE = 500  # iterations in one query
_IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_PARTITION_TAG = "dagster/partition"  # of runs that an operator started


def build_log_sensor(*, is_on: bool = True, seconds: int = SENSOR_SECONDS) -> dg.SensorDefinition:
    """The sensor that polls `mo_ccpr_log` and asks for runs of the job, one iteration of one subscription each.
    `is_on`: at first; who switches it in the UI decides. `seconds`: between two ticks, at least."""

    @dg.sensor(
        name=LOG_SENSOR,
        job_name=SYNC_JOB,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED,
        description="Starts the iteration of each subscription whose interval is over, at most one run of a "
        "subscription at a time. An iteration that finds nothing new is finished by the tick, without a run; of one "
        "that fails in it the tick says what happened and what to do, and the others go on. Where `ccpr serve` runs on "
        "the same state folder, the tick says so and starts nothing.",
    )
    def sensor(context: dg.SensorEvaluationContext, replication: Replication) -> dg.SensorResult:
        return _tick(context, replication)

    return sensor


def _tick(context: dg.SensorEvaluationContext, replication: Replication) -> dg.SensorResult:
    if not replication.workspace.has_catalog:
        return dg.SensorResult(skip_reason=no_subscription(replication.workspace))
    end = time.monotonic() + TICK_SECONDS
    remember_keys(context, replication.key_prefix)
    rows, bad = replication.workspace.log.all_rows()
    in_flight = _in_flight(context.instance)
    tick = _Tick(failed={row.subscription_name: row.error for row in bad})
    tick.served_elsewhere = is_served(replication.workspace.home)
    due = [] if tick.served_elsewhere else _due(rows, in_flight, replication.workspace.clock(), tick)
    last_runs = _last_runs(context.instance, due)
    most_failed = len(tick.failed) + FAILURES_PER_TICK
    for row in sorted(due, key=lambda row: (row.watermark, row.subscription_name)):
        is_full = len(tick.requests) == RUNS_PER_TICK or len(tick.failed) == most_failed
        if is_full or time.monotonic() >= end:
            tick.left += 1
        else:
            _serve(replication.workspace, row, last_runs.get(iteration_tag(row)), end, tick)
    if not tick.served_elsewhere:
        _verify_targets(replication.workspace, rows, in_flight, end, tick)
    partitions = _partition_requests(context.instance, {row.subscription_name for row in (*rows, *bad)}, in_flight)
    _report_health(context.instance, replication.workspace, rows, bad, tick)
    if tick.requests:
        context.log.info(printable(tick.describe()))
    return dg.SensorResult(
        run_requests=tick.requests,
        asset_events=translated(context.instance, tick.events),
        skip_reason=None if tick.requests else printable(tick.describe()),
        dynamic_partitions_requests=partitions,
    )


def _report_health(
    instance: dg.DagsterInstance, workspace: Workspace, rows: Sequence[LogRow], bad: Sequence[BadRow], tick: "_Tick"
) -> None:
    """Add the events of the subscriptions that this tick served, and of those that are no longer what was reported
    last."""
    verdicts = read_verdicts(workspace, [*rows, *bad])
    news = changed(instance, verdicts).union(tick.served)
    requested = {request.partition_key for request in tick.requests}
    with suppress(SubscriptionMissing, StateUnavailable):  # dropped meanwhile; the next tick looks again
        others = sorted(news - requested - set(tick.served))  # theirs comes with their runs
        if shown := [*tick.served, *others[:NEWS_PER_TICK]]:
            tick.events.extend(health_events(instance, workspace, shown, all_too=bool(tick.served)))
        tick.events.extend(
            target_events(instance, workspace, [row for row in rows if row.subscription_name not in requested])
        )
        tick.events.extend(follower_events(instance, workspace))


@dataclass
class _Tick:
    """What a tick has found and done."""

    requests: list[dg.RunRequest] = field(default_factory=list)
    events: list[Runless] = field(default_factory=list)
    served: list[str] = field(default_factory=list)  # their iteration was tried, and ended here
    idle: int = 0
    running: list[str] = field(default_factory=list)
    paused: int = 0
    stopped: list[str] = field(default_factory=list)  # by an error that requires operator action
    failed: dict[str, CcprError] = field(default_factory=dict)
    failing: dict[str, Failures] = field(default_factory=dict)  # of those that wait: how the last attempts ended
    waiting: dict[str, float] = field(default_factory=dict)  # seconds until due
    left: int = 0  # due ones for which there was no time
    served_elsewhere: bool = False  # `ccpr serve` runs them

    def describe(self) -> str:
        counts = {
            "to run": len(self.requests),
            "idle": self.idle,
            "running": len(self.running),
            "paused": self.paused,
            "due left for the next tick": self.left,
        }
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        if self.failed:
            texts = (f"{name} ({filled(str(error), {'NAME': name})})" for name, error in self.failed.items())
            parts.insert(0, f"{len(self.failed)} failed: " + first_names(texts))
        if self.failing:
            parts.append(
                f"{len(self.failing)} failing: " + first_names(self._describe_failing(name) for name in self.failing)
            )
        if self.waiting:
            name, seconds = min(self.waiting.items(), key=lambda item: item[1])
            parts.append(f"{len(self.waiting)} waiting, next {name} in {seconds:.0f} s")
        if self.stopped:
            parts.append(
                f"{len(self.stopped)} stopped by an error, repair and run: "
                + first_names(f"ccpr run {name}" for name in self.stopped)
            )
        if self.served_elsewhere:
            parts.insert(0, "`ccpr serve` runs the subscriptions of this state folder, the sensor only looks")
        return (
            ("" if self.requests else "no run to start: ") + "; ".join(parts) if parts else "there is no subscription"
        )

    def _describe_failing(self, name: str) -> str:
        failures = self.failing[name]
        since = datetime.fromtimestamp(failures.first, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
        code = failures.text.partition(":")[0]
        return f"{name} ({code}, {failures.count} in a row since {since}Z, again after {self.waiting[name]:.0f} s)"


def _due(rows: Iterable[LogRow], in_flight: Collection[str], now: float, tick: _Tick) -> list[LogRow]:
    """The rows to serve now; `tick` says what became of the others."""
    due = []
    for row in rows:
        name = row.subscription_name
        if row.state == State.PAUSED:
            tick.paused += 1
        elif name in in_flight or row.is_held(now):  # held: it is run outside Dagster, as by `ccpr run`
            tick.running.append(name)
        elif row.state == State.ERROR:
            tick.stopped.append(name)
        else:
            try:
                with unexpected():
                    seconds = due_at(row, now) - now
            except (StateUnreadable, UnexpectedError) as error:
                tick.failed[name] = error
                continue
            if seconds <= 0:
                due.append(row)
            else:
                tick.waiting[name] = seconds
                if failures := Failures.of(row.error_message):
                    tick.failing[name] = failures
    return due


def _serve(workspace: Workspace, row: LogRow, last_run: dg.RunRecord | None, end: float, tick: _Tick) -> None:
    """Finish the row's iteration if it is idle, else ask for a run. A failure is this subscription's alone: it stands
    in its row."""
    name = row.subscription_name
    attempt, wait = _next_attempt(last_run, row, workspace.clock())
    if wait > 0:
        tick.waiting[name] = wait
        return
    try:
        with unexpected():
            outcome = _finish_if_idle(workspace, row, end)
    except SubscriptionBusy:
        tick.running.append(name)
    except SubscriptionPaused:
        tick.paused += 1
    except SubscriptionMissing:
        return  # dropped meanwhile; the next tick takes its partition away
    except CcprError as error:
        tick.failed[name] = error
        tick.served.append(name)
    else:
        if outcome is None:
            tick.requests.append(_request(row, attempt))
        else:
            tick.idle += 1
            tick.served.append(name)
            tick.events.extend(idle(outcome).runless(name))


def _finish_if_idle(workspace: Workspace, row: LogRow, end: float) -> IterationOutcome | None:
    """None if there is work for a run: rows have changed, or finding out takes more time than a tick has."""
    if not row.watermark:
        return None  # the first iteration lists and copies everything
    options = IterationOptions(timeouts=SHORT_TIMEOUTS, check_list=check_by_schema)

    def check_time() -> None:
        if time.monotonic() >= end:
            raise _OutOfTime

    def may_end() -> bool:
        """Nothing may have changed, and a target has still to be synced."""
        interval = iteration.subscription.settings.sync_interval
        now, ask = workspace.now(), may_be_restored(iteration.pause_seconds, interval)
        if time.monotonic() >= end:
            return False
        targets = workspace.of(row).targets
        lagging = targets.lagging(now, interval, ask=ask)
        return all(is_still_away(workspace, iteration.subscription, targets.any(name)) for name in lagging)

    with workspace.iteration(row.subscription_name, options) as iteration, unexpected():
        try:
            return drive(iteration, until=Stage.OBJECT_LIST, between=check_time, may_end_idle=may_end).outcome
        except (NotFlushedYet, StaleRead, HistoryUnreadable, _OutOfTime):
            return None


def _verify_targets(
    workspace: Workspace, rows: Iterable[LogRow], in_flight: Collection[str], end: float, tick: _Tick
) -> None:
    """Ask targets that have nothing to do where they are, whether or not an iteration was due. What there is no time
    for is the next tick's."""
    requested = {request.partition_key for request in tick.requests}
    try:
        quiet = targets_to_verify(workspace.log.engine, workspace.now())
    except (StateUnavailable, StateUnreadable):
        return  # the next tick looks again
    for row in rows:
        name = row.subscription_name
        served = name in in_flight or name in requested or row.state != State.RUNNING
        if row.task_id in quiet and not served and time.monotonic() < end:
            with suppress(CcprError), unexpected():  # its `target_current` says so
                verify_targets(workspace, name, quiet[row.task_id])


class _OutOfTime(Exception):
    """The tick has no more time for this subscription."""


def _in_flight(instance: dg.DagsterInstance) -> set[str]:
    """Subscriptions of runs that have not ended, no matter who started them: one query for all."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_IN_FLIGHT))
    return {name for run in runs if (name := run.tags.get(SUBSCRIPTION_TAG) or run.tags.get(_PARTITION_TAG))}


def _last_runs(instance: dg.DagsterInstance, rows: Sequence[LogRow]) -> dict[str, dg.RunRecord]:
    """By `iteration_tag`, the last run of each row's iteration that a tick asked for. A query for all, since each takes
    milliseconds.

    A run that ended before it reached the log (its process was killed, or could not start) is known to Dagster only;
    without this it would be asked for again with every tick.
    """
    last: dict[str, dg.RunRecord] = {}
    iterations = [iteration_tag(row) for row in rows]
    for start in range(0, len(iterations), _NAMED_AT_ONCE):
        runs = dg.RunsFilter(tags={ITERATION_TAG: iterations[start : start + _NAMED_AT_ONCE]})
        for record in instance.get_run_records(runs, ascending=True):
            tags = record.dagster_run.tags
            if ATTEMPT_TAG in tags:  # else an operator asked for it
                last[tags[ITERATION_TAG]] = record
    return last


def _next_attempt(last: dg.RunRecord | None, row: LogRow, now: float) -> tuple[int, float]:
    """The number of the next attempt at the row's iteration after its last run, and the seconds to wait for it."""
    if last is None:
        return 0, 0.0
    attempt = int(last.dagster_run.tags[ATTEMPT_TAG]) + 1
    return attempt, last.create_timestamp.timestamp() + back_off(row, attempt) - now


def _request(row: LogRow, attempt: int) -> dg.RunRequest:
    """Dagster never runs a key twice, not even after a failure: each attempt at an iteration needs one of its own."""
    name = row.subscription_name
    return dg.RunRequest(
        run_key=f"{Subscription.from_row(row).uid}:{row.iteration_lsn}/{attempt}",
        partition_key=name,
        tags={
            SUBSCRIPTION_TAG: name,
            ITERATION_TAG: iteration_tag(row),
            ATTEMPT_TAG: str(attempt),
            WHY_TAG: _why(row),
        },
    )


def _why(row: LogRow) -> str:
    if failures := Failures.of(row.error_message):
        return f"again after {failures.text.partition(':')[0]}, {failures.count} failed in a row"
    return "something has changed, or a target is behind" if row.watermark else "the first copy"


def _partition_requests(
    instance: dg.DagsterInstance, names: set[str], in_flight: set[str]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """New subscriptions get their partition before their run; the partition of a dropped one goes when no run of it is
    left."""
    present = present_partitions(instance)
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if new := sorted(names - present):
        requests.append(SUBSCRIPTIONS.build_add_request(new))
    if gone := sorted(present - names - in_flight):
        requests.append(SUBSCRIPTIONS.build_delete_request(gone))
    return requests
