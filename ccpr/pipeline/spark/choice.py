"""Which engine copies: the process itself, or Spark, and where. One function for the command line, Dagster
and the service (decision engine-by-rates)."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from ccpr.base.wording import size_text
from ccpr.pipeline.spark.rates import Rates
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.tasks import is_here
from ccpr.state.errors import BadSetting

ENGINES: Final = ("auto", "process", "spark")


class CopiedBy(StrEnum):
    """Who copies."""

    PROCESS = "process"
    COLD = "cold Spark"  # a session on this machine, which is started for it
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class CopierChoice:
    """What was chosen, and why.

    Attributes
    ----------
    size : bytes that are to be copied.
    usual : what needs no telling: the process itself copies, and nobody has named a master or a server of Spark.
    """

    place: CopiedBy
    why: str
    size: int = 0
    usual: bool = False

    @property
    def text(self) -> str:
        return f"{_NAMES[self.place]}: {self.why}"


_NAMES = {
    CopiedBy.PROCESS: "the process itself copies",
    CopiedBy.COLD: "a Spark session that is started for it copies",
    CopiedBy.CLUSTER: "Spark copies",
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
    upstream: str,
    *,
    installed: bool = True,
) -> CopierChoice:
    """Who copies `size` bytes.

    Parameters
    ----------
    asked : one of ENGINES.
    store_url : where to; the executors of a cluster do not have a folder of this machine.
    upstream : ``host:port``, for which rates were measured.
    installed : the extra `spark` is. Without it ``spark`` is chosen nevertheless, and its session says what is missing.
    """
    chosen = partial(CopierChoice, size=size)
    if asked == "process":
        return chosen(CopiedBy.PROCESS, "it was asked for")
    if asked == "auto" and not installed:
        return chosen(CopiedBy.PROCESS, "Spark is not installed", usual=not settings.is_elsewhere)
    shared = not store_url.startswith("file:") or (settings.remote is None and is_here(settings.master))
    if settings.is_elsewhere and (asked == "spark" or shared or settings.remote is not None):
        return chosen(CopiedBy.CLUSTER, f"it runs on {settings.place}")
    if asked == "spark":
        return chosen(CopiedBy.COLD, "it was asked for")
    if settings.is_elsewhere:
        return chosen(CopiedBy.PROCESS, f"the mirror is a folder of this machine, which {settings.place} does not have")
    process = size / rates.copy_rate("process", upstream)
    spark = rates.start_seconds() + size / rates.copy_rate("spark", upstream)
    shown = f"{size_text(size)} take it about"
    if process <= spark:
        return chosen(
            CopiedBy.PROCESS, f"{shown} {_seconds(process)}, Spark with its start {_seconds(spark)}", usual=True
        )
    return chosen(CopiedBy.COLD, f"{shown} {_seconds(spark)}, the process itself {_seconds(process)}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
