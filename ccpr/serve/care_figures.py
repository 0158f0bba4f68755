"""How far second copies are, how restores were tried and files read again, as Prometheus reads it. Names and labels are
an interface and stay (docs/how-to/monitor.md)."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.loops import unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.service.care_status import Care, care_of
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow

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
        both = [*_NAMES, "place"]
        lag = GaugeMetricFamily("ccpr_copy_lag_seconds", "How much older than the mirror a copy is.", labels=both)
        copied = GaugeMetricFamily("ccpr_copy_age_seconds", "Since it was last brought up to date.", labels=both)
        failed = GaugeMetricFamily("ccpr_copy_failed_attempts", "That failed since.", labels=both)
        for row in self._rows():
            name = [row.subscription_name]
            care = self._care(row)
            drill, scrub = care.drill, care.scrub
            for one in care.copies:
                where = [*name, one.copy.place]
                if one.lag_seconds is not None:
                    lag.add_metric(where, one.lag_seconds)
                copied.add_metric(where, one.age_seconds)
                failed.add_metric(where, one.copy.attempts)
            if drill is not None and drill.last is not None:
                good.add_metric(name, 1.0 if drill.last.good else 0.0)
            if drill is not None and drill.last_good is not None:
                age.add_metric(name, drill.age_seconds)
                seconds.add_metric(name, drill.last_good.seconds)
            if scrub is not None:
                damaged.add_metric(name, 0 if scrub.scrub is None else len(scrub.scrub.damaged))
                read.add_metric(name, scrub.age_seconds)
        return [good, age, seconds, damaged, read, lag, copied, failed]

    def _rows(self) -> Iterable[LogRow]:
        """None while the state database does not answer, which has a figure of its own."""
        try:
            return self._workspace.log.all_rows()[0]
        except CcprError:
            return []

    def _care(self, row: LogRow) -> Care:
        """Nothing of what cannot be read, which hides nothing of the others."""
        try:
            with unexpected():
                return care_of(self._workspace, row)
        except CcprError:
            return Care()
