"""A model of what cannot be measured on one machine: each cost is a constant and a part in proportion to the size, both
from the two ends of a measured curve.

    predicted = constant + part * size

It says nothing of what no curve has: a disk that is full, a network that is shared.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from benchmarks.shared.curves import Curve
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.serve.schedule import Schedule
from ccpr.state.context import Context
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription

PETABYTE = 1e15
OBJECT_BYTES = 100e6  # of a large table's object, as an upstream merges them


@dataclass(frozen=True, slots=True)
class Line:
    """What a cost is by its size."""

    constant: float
    part: float

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> "Line":
        """The ends of a curve; of one point the constant."""
        (small, cost), (large, most) = points[0], points[-1]
        part = max(0.0, (most - cost) / (large - small)) if large > small else 0.0
        return cls(max(0.0, cost - part * small), part)

    def at(self, size: float) -> float:
        return self.constant + self.part * size


@dataclass(frozen=True, slots=True)
class Prediction:
    what: str
    figure: str
    predicted: float


class Model:
    """The lines of the measured curves."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self._lines = {
            (curve.dimension.name, name): Line.through(curve.values(name)) for curve in curves for name in curve.names
        }

    def line(self, dimension: str, figure: str) -> Line | None:
        return self._lines.get((dimension, figure))

    def predictions(self, asked: Sequence[tuple[str, str, str, float]]) -> list[Prediction]:
        """Of (what, dimension, figure, size); what was not measured is left out."""
        found = []
        for what, dimension, figure, size in asked:
            if (line := self.line(dimension, figure)) is not None:
                found.append(Prediction(what, figure, line.at(size)))
        return found


ASKED = (
    ("100,000 tables, idle", "tables", "idle_s", 100_000),
    ("100,000 tables, idle", "tables", "idle_mb", 100_000),
    ("100,000 tables, one changed", "tables", "changed_s", 100_000),
    ("10 million objects, the full list", "objects", "list_s", 10_000_000),
    ("1 PB, the full list of its objects", "objects", "list_s", PETABYTE / OBJECT_BYTES),
    ("1 PB, the list of appendable ones", "objects", "appendable_s", PETABYTE / OBJECT_BYTES),
    ("10,000 subscriptions, deciding, of each iteration", "schedule", "decide_ms", 10_000),
    ("10,000 subscriptions, memory", "subscriptions", "memory_mb", 10_000),
    ("a table of 100 million rows, 1 % changed, the delta", "table rows, 1 % changed", "delta_s", 100_000_000),
)


def decide_ms(subscriptions: int, seconds: float = 60.0, interval: int = 60) -> float:
    """Milliseconds that the deciding thread spends on an iteration, of so many subscriptions in fast motion: the clock
    goes to where something is due, and iterations begin a millisecond later and take no time."""
    now = [1_700_000_000.0]
    schedule = Schedule(8, lambda: now[0], lambda: now[0])
    schedule.update(_rows(subscriptions, interval, now[0]))
    end, begun, spent = now[0] + seconds, 0, 0.0
    while now[0] < end:
        started = time.perf_counter()
        due = schedule.due()
        for row in due:
            schedule.began(row.task_id)
        spent += time.perf_counter() - started
        ended = [(row, _ran(row, now[0] + 0.001)) for row in due]
        started = time.perf_counter()
        for row, left in ended:
            schedule.ended(row.task_id, left, failed=False)
        wait = schedule.wait_seconds()
        spent += time.perf_counter() - started
        begun += len(due)
        if not due:
            now[0] += wait or seconds
    return spent / max(1, begun) * 1000


def _rows(count: int, interval: int, now: float) -> list[LogRow]:
    publication, endpoint = Publication("p", "sys", 0), Endpoint("127.0.0.1", 6001, "sys", "dump")
    new = Subscription("0", "s", endpoint, "", publication, "d", None, Settings(sync_interval=interval))
    row = _ran(new.to_row(datetime.fromtimestamp(now - interval, UTC)), now - interval)
    step = 0xFFFFFFFF // count
    return [
        replace(row, task_id=f"{number * step:08x}-0000-0000-0000-{number:012x}", subscription_name=f"s{number}")
        for number in range(count)
    ]


def _ran(row: LogRow, when: float) -> LogRow:
    """As an iteration that began then leaves it."""
    ref = SnapshotRef(f"xr_0_{row.iteration_lsn}_0", row.iteration_lsn, 0, round(when * 1e9), when)
    return replace(row, context=Context(current=ref).to_text(), iteration_lsn=row.iteration_lsn + 1)
