"""Whether a service works: its state database answers, and each of its threads does what it is there for."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.loops import Guard, Loop
from ccpr.serve.descriptors import Descriptors
from ccpr.serve.pages import Page
from ccpr.serve.replicator import HEALTHY_SECONDS, Replicator


class ServiceHealth(Collector):
    """The page /healthz, and the figures of the loops for /metrics; these names stay (docs/how-to/monitor.md).

    Parameters
    ----------
    guards : what survives errors in the service, the loops among them.
    others : what else may have come to an end, by name; each says what is wrong, or None.
    also : what else is shown, by name, and does not make it unhealthy.
    """

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
