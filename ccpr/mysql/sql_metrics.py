"""What the port for MySQL clients has done, counted, and as Prometheus reads it. Names and labels are an interface and
stay (docs/how-to/monitor.md)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.matrixone.server.answers import Answer, FramedRows, StatementError
from ccpr.relay.client_port import ClientPort
from ccpr.serve.metrics import metrics_of_port

_NOT_SUPPORTED = 1235
RESULTS = "done", "refused", "failed"


class StatementCounts:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.results: Counter[str] = Counter()
        self.seconds, self.bytes = 0.0, 0

    def counted(self, answer: Callable[[], Answer | None]) -> Answer | None:
        """A statement, until its last row is sent."""
        began = time.monotonic()
        try:
            found = answer()
        except StatementError as error:
            self._end(began, "refused" if error.number == _NOT_SUPPORTED else "failed")
            raise
        if isinstance(found, FramedRows):
            return replace(found, frames=partial(self._sent, found, began))
        self._end(began, "done")
        return found

    def _sent(self, rows: FramedRows, began: float, sequence: int) -> Iterator[tuple[memoryview, int]]:
        result = "failed"
        try:
            for content, following in rows.frames(sequence):
                with self._lock:
                    self.bytes += len(content)
                yield content, following
            result = "done"
        finally:
            self._end(began, result)

    def _end(self, began: float, result: str) -> None:
        with self._lock:
            self.results[result] += 1
            self.seconds += time.monotonic() - began


class SqlMetrics(Collector):
    """Computed when they are asked for."""

    def __init__(self, port: ClientPort, counts: StatementCounts) -> None:
        self._port, self._counts = port, counts

    def collect(self) -> Iterable[Metric]:
        statements = CounterMetricFamily(
            "ccpr_sql_statements", "Statements; result is done, refused (1235) or failed.", labels=["result"]
        )
        for result in RESULTS:
            statements.add_metric([result], self._counts.results[result])
        yield statements
        yield CounterMetricFamily("ccpr_sql_seconds", "Duration of all statements.", self._counts.seconds)
        yield CounterMetricFamily("ccpr_sql_bytes", "Bytes of rows that were sent.", self._counts.bytes)
        yield from metrics_of_port("ccpr_sql", self._port)
