"""MatrixOne's transaction timestamp: docs/format/object-file.md 4.7."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point on the upstream's clock.

    Attributes
    ----------
    physical : nanoseconds since the Unix epoch, UTC.
    logical : tie-breaker among equal physical times; 0 for snapshots.
    """

    physical: int
    logical: int = 0

    def __str__(self) -> str:
        return f"{self.physical}-{self.logical}"
