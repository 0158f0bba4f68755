"""MatrixOne's transaction timestamp: docs/format/object-file.md 4.7."""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"(\d{1,19})-(\d{1,10})")


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

    @classmethod
    def parse(cls, text: str) -> "Timestamp | None":
        """`physical-logical` as object lists print it; `0-0` means none. Raises ValueError on any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a timestamp: {text[:40]!r}")
        physical, logical = int(match[1]), int(match[2])
        return cls(physical, logical) if physical or logical else None

    def __str__(self) -> str:
        return f"{self.physical}-{self.logical}"
