"""How fast this machine worked, and how long Spark took to start: what `auto` compares (decision engine-by-rates).

A file of the state folder has the newest few measurements of each kind. It is only a hint: what is damaged, missing or
of another machine is replaced by the next measurements.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ccpr.base.file_modes import make_folder, replace_file

FOLDER, FILE = "spark", "rates.json"  # in the state folder
_KEPT = 5  # of a kind, and the best counts: one that was slow because of something else does no harm
_LEAST_BYTES = 8_000_000  # less work measures latencies, not a rate
_MOST_KINDS = 200
PROCESS_RATE = 60e6  # bytes/s, before anything was measured
_TIMES = {"cluster": 4}  # of the process's rate, before it was measured; of others 1
START_SECONDS = 15.0
START = "start"


@dataclass(frozen=True, slots=True)
class Rates:
    """Measurements by kind: seconds for START, bytes a second for ``<work> <engine> <place>``."""

    path: Path
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Rates":
        path = folder / FILE
        try:
            read = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return cls(path)
        if not isinstance(read, dict):
            return cls(path)
        values = {kind: tuple(filter(_is_measure, found)) for kind, found in read.items() if isinstance(found, list)}
        return cls(path, {kind: found[-_KEPT:] for kind, found in values.items() if found})

    def start_seconds(self) -> float:
        """Of a session of this process, until it could send a job."""
        return min(self.values.get(START, (START_SECONDS,)))

    def rate(self, work: str, engine: str, place: str) -> float:
        """Bytes a second of an engine, from or to this place, else any."""
        if here := self.values.get(f"{work} {engine} {place}"):
            return max(here)
        begun = f"{work} {engine} "
        if anywhere := [max(found) for kind, found in self.values.items() if kind.startswith(begun)]:
            return max(anywhere)
        return PROCESS_RATE if engine == "process" else self.rate(work, "process", place) * _TIMES.get(engine, 1)

    def with_rate(self, work: str, engine: str, place: str, size: int, seconds: float) -> "Rates":
        if size < _LEAST_BYTES or seconds <= 0:
            return self
        return self.with_value(f"{work} {engine} {place}", size / seconds)

    def with_value(self, kind: str, value: float) -> "Rates":
        if not _is_measure(value):
            return self
        others = {name: found for name, found in self.values.items() if name != kind}
        newest = dict(list(others.items())[-(_MOST_KINDS - 1) :])
        return Rates(self.path, newest | {kind: (*self.values.get(kind, ()), value)[-_KEPT:]})

    def keep(self) -> None:
        """Write them, if it is possible: nothing depends on it."""
        with suppress(OSError):
            make_folder(self.path.parent)
            replace_file(self.path, json.dumps(self.values))


def _is_measure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value < 1e15
