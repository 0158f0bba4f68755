"""The figures of followers and of the relay as Prometheus reads them, beside those of `ccpr.serve.metrics`.
Names and labels are an interface and stay (docs/how-to/monitor.md)."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.loops import unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.lag import LagMeter
from ccpr.relay.relay_server import RelayService
from ccpr.serve.metrics import metrics_of_port
from ccpr.service.follower_status import FollowerStatus, follower_status
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.followers import Follower, all_followers
from ccpr.state.log_rows import LogRow


class RelayMetrics(Collector):
    """Computed when they are asked for. `relay` is None where none serves in this process."""

    def __init__(self, workspace: Workspace, relay: RelayService | None) -> None:
        self._workspace, self._relay, self._meter = workspace, relay, LagMeter(workspace.clock)

    def collect(self) -> Iterable[Metric]:
        labels = ["subscription", "follower"]
        lag = GaugeMetricFamily("ccpr_follower_lag_seconds", "Age of the point that it shows.", labels=labels)
        failing = GaugeMetricFamily("ccpr_follower_failing", "1 if it has an error, or does not answer.", labels=labels)
        for row, follower in self._followers():
            names = [row.subscription_name, follower.name]
            failing.add_metric(names, 0 if follower.ok else 1)
            if follower.lag_seconds is not None:
                lag.add_metric(names, follower.lag_seconds)
        return [lag, failing, *self._of_relay()]

    def _followers(self) -> Iterable[tuple[LogRow, FollowerStatus]]:
        """None while the state database does not answer, which has a figure of its own."""
        log = self._workspace.log
        try:
            found, _ = all_followers(log.engine)
            rows = {row.task_id: row for row in log.all_rows()[0]} if found else {}
        except CcprError:
            return []
        shown = ((row, self._status(row, one)) for one in found if (row := rows.get(one.task_id)))
        return [(row, status) for row, status in shown if status is not None]

    def _status(self, row: LogRow, follower: Follower) -> FollowerStatus | None:
        """None if it cannot be computed, which hides none of the others."""
        try:
            with unexpected():
                history = self._workspace.of(row).history
                lag = self._meter.read(row.task_id, Context.from_text(row.context))
                return follower_status(follower, history, history.newest(), row, lag)
        except CcprError:
            return None

    def _of_relay(self) -> Iterable[Metric]:
        if self._relay is None:
            return
        counted = self._relay.status()
        yield CounterMetricFamily("ccpr_relay_statements", "Statements.", sum(counted.statements.values()))
        yield CounterMetricFamily("ccpr_relay_errors", "Statements answered with an error.", counted.errors)
        left_out = len(self._relay.left_out_now())
        yield GaugeMetricFamily("ccpr_relay_left_out", "Subscriptions whose mirrors cannot be served.", left_out)
        yield CounterMetricFamily("ccpr_relay_bytes", "Bytes of objects that were served.", counted.object_bytes)
        yield from metrics_of_port("ccpr_relay", self._relay)
