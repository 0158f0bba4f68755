"""How long a restore takes, by how fast the last ones were: bytes of the mirror a second, by where they went. A file of
the state folder has the measurements (`ccpr.pipeline.spark.choice`)."""

from pathlib import Path

from ccpr.pipeline.spark.choice import Rates

_LEAST_BYTES = 1_000_000  # a smaller one measures latencies, not a rate


def expected_seconds(home: Path, kind: str, size: int) -> float | None:
    """None if nothing of this kind was measured yet."""
    measured = Rates.of(home).values.get(_of(kind))
    return size / (sum(measured) / len(measured)) if measured else None


def record(home: Path, kind: str, size: int, seconds: float) -> None:
    if size >= _LEAST_BYTES and seconds > 0:
        Rates.of(home).with_value(_of(kind), size / seconds).keep()


def _of(kind: str) -> str:
    return f"restore {kind}"
