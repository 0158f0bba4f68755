"""How restores were tried and files read again, as Prometheus reads it. Names and labels are an interface and stay
(docs/how-to/run-as-a-service.md)."""

from collections.abc import Iterable
from datetime import UTC

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.loops import unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.service.care_status import DrillStatus, ScrubStatus, drill_status, scrub_status
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription

_NAMES = ["subscription"]


class CareFigures(Collector):
    """Computed when they are asked for."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def collect(self) -> Iterable[Metric]:
        good = GaugeMetricFamily("ccpr_drill_good", "1 if the last drill found all as it should be.", labels=_NAMES)
        age = GaugeMetricFamily("ccpr_drill_age_seconds", "Since the last good drill.", labels=_NAMES)
        seconds = GaugeMetricFamily("ccpr_drill_seconds", "How long the last good drill took.", labels=_NAMES)
        damaged = GaugeMetricFamily("ccpr_damaged_files", "Files that are damaged and not repaired.", labels=_NAMES)
        read = GaugeMetricFamily("ccpr_verify_age_seconds", "Since all files were read again.", labels=_NAMES)
        for row in self._rows():
            name = [row.subscription_name]
            drill, scrub = self._status(row)
            if drill is not None and drill.last is not None:
                good.add_metric(name, 1.0 if drill.last.good else 0.0)
            if drill is not None and drill.last_good is not None:
                age.add_metric(name, drill.age_seconds)
                seconds.add_metric(name, drill.last_good.seconds)
            if scrub is not None:
                damaged.add_metric(name, 0 if scrub.scrub is None else len(scrub.scrub.damaged))
                read.add_metric(name, scrub.age_seconds)
        return [good, age, seconds, damaged, read]

    def _rows(self) -> Iterable[LogRow]:
        """None while the state database does not answer, which has a figure of its own."""
        try:
            return self._workspace.log.all_rows()[0]
        except CcprError:
            return []

    def _status(self, row: LogRow) -> tuple[DrillStatus | None, ScrubStatus | None]:
        """None for what cannot be read, which hides nothing of the others."""
        try:
            with unexpected():
                subscription = Subscription.from_row(row)
                made = row.created_at.replace(tzinfo=UTC).timestamp()
                drill = drill_status(self._workspace, subscription, made)
                return drill, scrub_status(self._workspace, subscription, made)
        except CcprError:
            return None, None
