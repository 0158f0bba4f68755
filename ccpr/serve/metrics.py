"""The figures of a service as Prometheus reads them. Names and labels are an interface and stay
(docs/how-to/monitor.md)."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from types import MappingProxyType
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.clock import Clock
from ccpr.base.errors import Failure
from ccpr.base.http_server import Page
from ccpr.base.loops import Guard, Loop
from ccpr.lake.lake_sync import LakeResult
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.iteration import IterationRecord
from ccpr.pipeline.lag import LagMeter
from ccpr.serve.listening import Descriptors, Listener
from ccpr.serve.replicator import HEALTHY_SECONDS, Replicator
from ccpr.service.status import next_attempt
from ccpr.service.target_sync import TargetOutcome
from ccpr.state.context import Context
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import Failures, LogRow
from ccpr.state.states import Shown, shown

_SECONDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


class Metrics(Listener, Collector):
    """A listener that counts, and the collector of what grows while nothing happens."""

    def __init__(self, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        self._meter, self._clock = LagMeter(clock), clock
        self._rows: dict[str, LogRow] = {}
        self._running: set[str] = set()
        self._targets: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        names, both = ["subscription"], ["subscription", "target"]
        here = self.registry
        self.iterations = Counter(
            "ccpr_iterations", "Iterations that ended; result is point or idle.", [*names, "result"], registry=here
        )
        self.failures = Counter("ccpr_iteration_failures", "Iterations that failed.", names, registry=here)
        self.objects = Counter("ccpr_copied_objects", "Objects copied into the mirror.", names, registry=here)
        self.bytes = Counter("ccpr_copied_bytes", "Bytes of objects copied into the mirror.", names, registry=here)
        self.seconds = Histogram(
            "ccpr_iteration_seconds",
            "Duration of an iteration.",
            names,
            buckets=_SECONDS,
            registry=here,
        )
        self.late = Histogram(
            "ccpr_iteration_start_delay_seconds", "How late iterations begin.", buckets=_SECONDS, registry=here
        )
        self.syncs = Counter("ccpr_target_syncs", "Syncs; result is done or failed.", [*both, "result"], registry=here)
        self.failing = Gauge("ccpr_target_failing", "1 if its last sync failed as a whole.", both, registry=here)
        self.behind = Gauge("ccpr_target_tables_behind", "Tables of a target that wait or failed.", both, registry=here)
        self.rows_written = Counter("ccpr_target_rows_written", "Rows written to a target.", both, registry=here)
        self.lake_points = Counter("ccpr_lake_points", "Points published to a lake.", both, registry=here)
        self.lake_bytes = Counter("ccpr_lake_bytes_written", "Bytes written to a lake.", both, registry=here)
        self.database = Gauge("ccpr_state_database_up", "1 if the state database answers.", registry=here)
        self.database.set(1)
        self.registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def iteration_began(self, row: LogRow, late_seconds: float) -> None:
        self.late.observe(late_seconds)
        with self._lock:
            self._running.add(row.subscription_name)

    def iteration_ended(self, record: IterationRecord, mirror: Mirror, seconds: float) -> None:
        name, outcome = record.subscription, record.ended
        self.iterations.labels(name, "point" if outcome.point else "idle").inc()
        self.objects.labels(name).inc(outcome.objects_copied)
        self.bytes.labels(name).inc(outcome.bytes_copied)
        self.seconds.labels(name).observe(seconds)
        with self._lock:
            self._running.discard(name)

    def iteration_failed(self, row: LogRow, failure: Failure, seconds: float) -> None:
        self.failures.labels(row.subscription_name).inc()
        with self._lock:
            self._running.discard(row.subscription_name)

    def iteration_left(self, row: LogRow) -> None:
        with self._lock:
            self._running.discard(row.subscription_name)

    def target_synced(self, row: LogRow, outcome: TargetOutcome) -> None:
        labels = row.subscription_name, outcome.target
        self.syncs.labels(*labels, "done" if outcome.failure is None else "failed").inc()
        self.failing.labels(*labels).set(0 if outcome.failure is None else 1)
        if outcome.result is not None:
            self.behind.labels(*labels).set(len(outcome.result.behind))
            self.rows_written.labels(*labels).inc(sum(table.upserted for table in outcome.result.tables))
            if isinstance(outcome.result, LakeResult):
                self.lake_points.labels(*labels).inc(outcome.result.points)
                self.lake_bytes.labels(*labels).inc(sum(table.bytes_written for table in outcome.result.tables))
        with self._lock:
            self._targets.add(labels)

    def subscriptions_read(self, rows: list[LogRow]) -> None:
        """Figures of those that are gone go, too."""
        with self._lock:
            now = {row.subscription_name: row for row in rows}
            gone, self._rows = self._rows.keys() - now.keys(), now
            self._running -= gone
            targets = [labels for labels in self._targets if labels[0] in gone]
            self._targets.difference_update(targets)
        for name in gone:
            for family in (self.failures, self.objects, self.bytes, self.seconds):
                _forget(family, name)
            for result in ("point", "idle"):
                _forget(self.iterations, name, result)
        for labels in targets:
            for family in (self.failing, self.behind, self.rows_written, self.lake_points, self.lake_bytes):
                _forget(family, *labels)
            for result in ("done", "failed"):
                _forget(self.syncs, *labels, result)

    def database_lost(self, error: CcprError | None) -> None:
        self.database.set(1 if error is None else 0)

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            rows, running = list(self._rows.values()), set(self._running)
        lag = GaugeMetricFamily("ccpr_lag_seconds", "Age of the replica's state.", labels=["subscription"])
        state = GaugeMetricFamily(
            "ccpr_subscription_state", "1 for the present state.", labels=["subscription", "state"]
        )
        attempts = GaugeMetricFamily("ccpr_failures_in_a_row", "Attempts that failed.", labels=["subscription"])
        upcoming = GaugeMetricFamily(
            "ccpr_next_attempt_timestamp_seconds", "When it is run next, since 1970.", labels=["subscription"]
        )
        for row in rows:
            name = row.subscription_name
            try:
                seconds = self._meter.read(row.task_id, Context.from_text(row.context)).seconds
            except StateUnreadable:
                seconds = None
            if seconds is not None:
                lag.add_metric([name], seconds)
            failures = Failures.of(row.error_message)
            attempts.add_metric([name], 0 if failures is None else failures.count)
            due = next_attempt(row, self._clock(), held=name in running)
            if due is not None:
                upcoming.add_metric([name], due)
            found = shown(row.state, held=name in running, failing=failures is not None)
            for known in Shown:
                state.add_metric([name, known], 1.0 if known == found else 0.0)
        return [lag, state, attempts, upcoming]


def _forget(family: Counter | Gauge | Histogram, *labels: str) -> None:
    with suppress(KeyError):
        family.remove(*labels)


class ServiceHealth(Collector):
    """The page /healthz, and the figures of the loops for /metrics; these names stay (docs/how-to/monitor.md).
    `guards`: what survives errors in the service, the loops among them. `others`: what else may have come to an end, by
    name; each says what is wrong, or None. `also`: what else is shown, by name, and does not make it unhealthy."""

    def __init__(
        self,
        replicator: Replicator,
        guards: Sequence[Guard],
        others: Mapping[str, Callable[[], str | None]],
        also: Mapping[str, Callable[[], object]] = MappingProxyType({}),
    ) -> None:
        self._replicator, self._guards, self._others, self._also = replicator, guards, others, also

    def page(self) -> Page:
        """200 if the service works; a subscription that fails, or a notice that is not sent, does not make it
        unhealthy: a restart would not help."""
        error, silent = self._replicator.database_error, self._replicator.seconds_since_beat
        troubles, descriptors = self._troubles(), Descriptors.now()
        ok = error is None and silent < HEALTHY_SECONDS and not any(troubles.values()) and not descriptors.are_few
        shown = {
            "ok": ok,
            "state_database": "up" if error is None else error.code,
            "seconds_since_beat": round(silent, 1),
            "descriptors": asdict(descriptors),
            "threads": {name: trouble or "up" for name, trouble in troubles.items()},
            "survived_errors": {guard.name: guard.errors for guard in self._guards if guard.errors},
            "failing": {what: str(error) for guard in self._guards for what, error in guard.failing().items()},
            **{name: value() for name, value in self._also.items()},
        }
        content = json.dumps(shown).encode()
        return Page(content + b"\n", status=200 if ok else 503)

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("ccpr_thread_up", "0 if the thread has ended or is stuck.", labels=["thread"])
        for name, trouble in self._troubles().items():
            up.add_metric([name], 0 if trouble else 1)
        errors = CounterMetricFamily("ccpr_survived_errors", "Errors that ended one item of a loop.", labels=["loop"])
        for guard in self._guards:
            errors.add_metric([guard.name], guard.errors)
        return [up, errors]

    def _troubles(self) -> dict[str, str | None]:
        threads = {guard.name: guard.trouble() for guard in self._guards if isinstance(guard, Loop)}
        return threads | {name: trouble() for name, trouble in self._others.items()}


class CountedPort(Protocol):
    """Where strangers log in."""

    @property
    def sessions(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def wrong_passwords(self) -> int: ...


def metrics_of_port(prefix: str, port: CountedPort) -> Iterable[Metric]:
    yield GaugeMetricFamily(f"{prefix}_sessions", "Sessions that others have open.", port.sessions)
    yield CounterMetricFamily(f"{prefix}_refused", "Connections beyond its limits.", port.refused)
    yield CounterMetricFamily(f"{prefix}_wrong_passwords", "Logins with a wrong password.", port.wrong_passwords)
