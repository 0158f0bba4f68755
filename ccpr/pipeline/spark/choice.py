"""Which engine copies, loads, changes and publishes: the process itself, or Spark, and where. One function for the
command line, Dagster and the service (decision engine-by-rates)."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from ccpr.base.carrying import WorkKind
from ccpr.base.file_modes import make_folder, replace_file
from ccpr.base.wording import size_text
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.tasks import is_here
from ccpr.state.errors import BadSetting

# ---- how fast this machine worked, and how long Spark took to start
#
# A file of the state folder has the newest few measurements of each kind. It is only a hint: what is damaged, missing
# or of another machine is replaced by the next measurements.

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


ENGINES: Final = ("auto", "process", "spark")
JOB_SECONDS: Final = 1.0  # of a job, however little it does


class CopiedBy(StrEnum):
    """Who does the work."""

    PROCESS = "process"
    COLD = "cold Spark"  # a session on this machine, which is started for it
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class CopierChoice:
    """What was chosen, and why.

    Attributes
    ----------
    size : stored bytes of it.
    usual : what needs no telling: the process itself does it, and nobody has named a master or a server of Spark.
    """

    place: CopiedBy
    why: str
    size: int = 0
    usual: bool = False
    work: WorkKind = WorkKind.COPY

    @property
    def text(self) -> str:
        return f"{_NAMES[self.place]} {_VERBS[self.work]}: {self.why}"


_NAMES = {
    CopiedBy.PROCESS: "the process itself",
    CopiedBy.COLD: "a Spark session that is started for it",
    CopiedBy.CLUSTER: "Spark",
}
_VERBS = {
    WorkKind.COPY: "copies",
    WorkKind.READ: "reads",
    WorkKind.LOAD: "loads",
    WorkKind.CHANGE: "applies the change",
    WorkKind.PUBLISH: "publishes",
}


def check_engine(asked: str) -> str:
    """Raises BadSetting."""
    if asked not in ENGINES:
        raise BadSetting(f"there is no engine {asked[:40]!r}", subject="engine", remedy=f"One of {', '.join(ENGINES)}.")
    return asked


def choose(
    asked: str,
    size: int,
    store_url: str,
    settings: SparkSettings,
    rates: Rates,
    where: str,
    work: WorkKind = WorkKind.COPY,
    *,
    installed: bool = True,
    started: bool = False,
) -> CopierChoice:
    """Who copies, reads, loads, changes or publishes `size` bytes. A cluster copies and reads whatever there is; other
    work, which does not wait for an upstream, it gets where it is through sooner.

    Parameters
    ----------
    asked : one of ENGINES.
    store_url : of the mirror; the executors of a cluster do not have a folder of this machine.
    where : from or to which the bytes go: ``host:port`` or a URL, for which rates were measured.
    installed : the extra `spark` is. Without it ``spark`` is chosen nevertheless, and its session says what is missing.
    """
    chosen = partial(CopierChoice, size=size, work=work)
    if asked == "process":
        return chosen(CopiedBy.PROCESS, "it was asked for")
    if asked == "auto" and not installed:
        return chosen(CopiedBy.PROCESS, "Spark is not installed", usual=not settings.is_elsewhere)
    shared = not store_url.startswith("file:") or (settings.remote is None and is_here(settings.master))
    spark = CopiedBy.CLUSTER if settings.is_elsewhere else CopiedBy.COLD
    runs_there = f"it runs on {settings.place}"
    if asked == "spark":
        return chosen(spark, runs_there if settings.is_elsewhere else "it was asked for")
    if settings.is_elsewhere and settings.remote is None and not shared:
        return chosen(CopiedBy.PROCESS, f"the mirror is a folder of this machine, which {settings.place} does not have")
    if settings.is_elsewhere and work in (WorkKind.COPY, WorkKind.READ):
        return chosen(spark, runs_there)
    here = size / rates.rate(work, "process", where)
    start = 0.0 if started else rates.start_seconds()
    engine = "cluster" if settings.is_elsewhere and work is not WorkKind.COPY else "spark"
    there = start + (0.0 if work is WorkKind.COPY else JOB_SECONDS) + size / rates.rate(work, engine, where)
    shown = f"{size_text(size)} take it about"
    if here <= there:
        why = f"{shown} {_seconds(here)}, Spark with its start {_seconds(there)}"
        return chosen(CopiedBy.PROCESS, why, usual=not settings.is_elsewhere)
    return chosen(spark, f"{shown} {_seconds(there)}, the process itself {_seconds(here)}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
