"""What a status says, as Prometheus reads it: targets, followers, checks, how much room there is, and how copies,
drills and files are looked after. Names and labels are an interface (docs/how-to/monitor.md) and stay.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.loops import unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.lag import LagMeter
from ccpr.service.free_space import FreeSpace, mirror_space
from ccpr.service.status import SubscriptionStatus, read_all
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription
from ccpr.state.targets import TargetState

_OK, _TROUBLES = "ok", ("failing", "behind")
_TARGET_STATES = (_OK, *_TROUBLES, *(state.value for state in TargetState if state is not TargetState.ACTIVE))


class StatusMetrics(Collector):
    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._meter = workspace, LagMeter(workspace.clock)

    def collect(self) -> Iterable[Metric]:
        """Nothing of subscriptions while the state database does not answer, which has a figure of its own."""
        try:
            found = read_all(self._workspace, self._meter)
        except CcprError:
            found = []
        return [
            *self._targets(found),
            *self._followers(found),
            self._checks(found),
            *self._rooms(),
            *self._cares(found),
        ]

    def _targets(self, found: Iterable[SubscriptionStatus]) -> Iterator[Metric]:
        labels = ["subscription", "target"]
        lag = GaugeMetricFamily("ccpr_target_lag_seconds", "Age of the point that it shows.", labels=labels)
        asked = GaugeMetricFamily("ccpr_target_verified_age_seconds", "Since it last said where it is.", labels=labels)
        state = GaugeMetricFamily("ccpr_target_state", "1 for the present state.", labels=[*labels, "state"])
        for status in found:
            for target in status.targets:
                names = [status.name, target.name]
                if target.verified_at is not None:
                    asked.add_metric(names, max(0.0, self._workspace.clock() - target.verified_at))
                if target.lag_seconds is not None:
                    lag.add_metric(names, target.lag_seconds)
                present = target.trouble or (_OK if target.state == TargetState.ACTIVE.value else target.state)
                for known in _TARGET_STATES:
                    state.add_metric([*names, known], 1.0 if known == present else 0.0)
        yield from (lag, asked, state)

    def _followers(self, found: Iterable[SubscriptionStatus]) -> Iterator[Metric]:
        labels = ["subscription", "follower", "state"]
        state = GaugeMetricFamily("ccpr_follower_state", "1 for the present state.", labels=labels)
        for status in found:
            for follower in status.followers:
                state.add_metric([status.name, follower.name, follower.state], 1.0)
        yield state

    def _checks(self, found: Iterable[SubscriptionStatus]) -> Metric:
        """As the exit code of `ccpr status`, for each part of it."""
        checks = GaugeMetricFamily("ccpr_check_ok", "1 if it is as it should be.", labels=["subscription", "check"])
        for status in found:
            parts = {
                "replica": status.last_error is None and status.state != "stopped",
                "tables": not status.quarantined,
                "targets": all(one.ok for one in status.targets),
                "followers": all(one.ok for one in status.followers),
                "warnings": not status.warnings,
            }
            for check, ok in parts.items():
                checks.add_metric([status.name, check], 1.0 if ok else 0.0)
        return checks

    def _rooms(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("ccpr_mirror_bytes", "Bytes of objects in the mirror.", labels=["subscription"])
        free = GaugeMetricFamily("ccpr_mirror_free_bytes", "Free where the mirror is.", labels=["subscription"])
        for subscription, stored in self._stored():
            size.add_metric([subscription.name], stored)
            if (space := mirror_space(self._workspace, subscription)) is not None:
                free.add_metric([subscription.name], space.free)
        yield from (size, free)
        yield GaugeMetricFamily("ccpr_state_bytes", "Bytes of the catalog database.", _size(self._workspace.home))
        if (space := FreeSpace.of(self._workspace.home)) is not None:
            yield GaugeMetricFamily("ccpr_state_free_bytes", "Free where the state folder is.", space.free)

    def _cares(self, found: Iterable[SubscriptionStatus]) -> Iterable[Metric]:
        """How far second copies are, how restores were tried and files read again."""
        names = ["subscription"]
        good = GaugeMetricFamily("ccpr_drill_good", "1 if the last drill found all as it should be.", labels=names)
        age = GaugeMetricFamily("ccpr_drill_age_seconds", "Since the last good drill.", labels=names)
        seconds = GaugeMetricFamily("ccpr_drill_seconds", "How long the last good drill took.", labels=names)
        damaged = GaugeMetricFamily("ccpr_damaged_files", "Files that are damaged and not repaired.", labels=names)
        read = GaugeMetricFamily("ccpr_verify_age_seconds", "Since all files were read again.", labels=names)
        both = [*names, "place"]
        lag = GaugeMetricFamily("ccpr_copy_lag_seconds", "How much older than the mirror a copy is.", labels=both)
        copied = GaugeMetricFamily("ccpr_copy_age_seconds", "Since it was last brought up to date.", labels=both)
        failed = GaugeMetricFamily("ccpr_copy_failed_attempts", "That failed since.", labels=both)
        for status in found:
            name, drill, scrub = [status.name], status.care.drill, status.care.scrub
            for copy in status.care.copies:
                where = [*name, copy.copy.place]
                if copy.lag_seconds is not None:
                    lag.add_metric(where, copy.lag_seconds)
                copied.add_metric(where, copy.age_seconds)
                failed.add_metric(where, copy.copy.attempts)
            if drill is not None and drill.last is not None:
                good.add_metric(name, 1.0 if drill.last.good else 0.0)
            if drill is not None and drill.last_good is not None:
                age.add_metric(name, drill.age_seconds)
                seconds.add_metric(name, drill.last_good.seconds)
            if scrub is not None:
                damaged.add_metric(name, 0 if scrub.scrub is None else len(scrub.scrub.damaged))
                read.add_metric(name, scrub.age_seconds)
        return [good, age, seconds, damaged, read, lag, copied, failed]

    def _stored(self) -> Iterator[tuple[Subscription, int]]:
        """What can be read of it; a bad row hides none of the others."""
        rows = list[LogRow]()
        with suppress(CcprError):  # the state database does not answer, which has a figure of its own
            rows = self._workspace.log.rows()
        for row in rows:
            try:
                with unexpected():
                    found = Subscription.from_row(row), self._workspace.of(row).ledger.stored_bytes()
            except CcprError:
                continue
            yield found


def _size(home: Path) -> int:
    """Of SQLite's file and its log; 0 where the catalog is elsewhere."""
    total = 0
    for file in home.glob("catalog.db*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # the log goes with its last reader
            continue
    return total
