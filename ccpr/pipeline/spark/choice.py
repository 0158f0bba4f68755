"""Which engine copies: the process itself, or Spark, and in which session. One function for the command line, Dagster
and the service (decision engine-by-rates)."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from ccpr.base.wording import size_text
from ccpr.pipeline.spark.rates import Rates
from ccpr.pipeline.spark.server_record import Found
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.tasks import is_here
from ccpr.state.errors import BadSetting

ENGINES: Final = ("auto", "process", "spark")
_SLOWER = 1.1  # what Spark may take longer than the process, by the rates, before `auto` leaves it out


class Place(StrEnum):
    """Who copies."""

    PROCESS = "process"
    WARM = "warm Spark"
    COLD = "cold Spark"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why.

    Attributes
    ----------
    size : bytes that are to be copied.
    """

    place: Place
    why: str
    size: int = 0

    @property
    def text(self) -> str:
        return f"{_NAMES[self.place]}: {self.why}"


_NAMES = {
    Place.PROCESS: "the process itself copies",
    Place.WARM: "the warm Spark session copies",
    Place.COLD: "a Spark session that is started for it copies",
    Place.CLUSTER: "Spark copies",
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
    warm: Found,
    rates: Rates,
    upstream: str,
    *,
    connected: bool = False,
    installed: bool = True,
) -> Choice:
    """Who copies `size` bytes.

    Parameters
    ----------
    asked : one of ENGINES.
    store_url : where to; the executors of a cluster do not have a folder of this machine.
    warm : what `WarmSpark.look` found.
    upstream : ``host:port``, for which rates were measured.
    connected : this process has a session of the warm one already.
    installed : the extra `spark` is. Without it ``spark`` is chosen nevertheless, and its session says what is missing.
    """
    chosen = partial(Choice, size=size)
    if asked == "process":
        return chosen(Place.PROCESS, "it was asked for")
    if asked == "auto" and not installed:
        return chosen(Place.PROCESS, "Spark is not installed")
    shared = not store_url.startswith("file:") or (settings.remote is None and is_here(settings.master))
    if settings.is_elsewhere and (asked == "spark" or shared or settings.remote is not None):
        place = Place.WARM if warm.usable and settings.remote is None else Place.CLUSTER
        return chosen(place, f"it runs on {settings.place}")
    if asked == "spark":
        return chosen(Place.WARM if warm.usable else Place.COLD, f"it was asked for; a warm one is {warm.state.value}")
    if settings.is_elsewhere:
        return chosen(Place.PROCESS, f"the mirror is a folder of this machine, which {settings.place} does not have")
    process = size / rates.copy_rate("process", upstream)
    shown = f"{size_text(size)} take it about {_seconds(process)}"
    if warm.usable:
        spark = rates.job_seconds() + size / rates.copy_rate("spark", upstream)
        spark += 0.0 if connected else rates.connect_seconds()
        if spark > _SLOWER * process:
            return chosen(Place.PROCESS, f"{shown}, the warm Spark session {_seconds(spark)}")
        return chosen(Place.WARM, f"it is there; {size_text(size)} take it about {_seconds(spark)}")
    start = rates.start_seconds()
    if process <= start:
        why = f"{shown}, a start of Spark {_seconds(start)}; a warm session is {warm.state.value}"
        return chosen(Place.PROCESS, why)
    return chosen(Place.COLD, f"{size_text(size)} would take the process itself about {_seconds(process)}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
