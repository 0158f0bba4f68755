"""Held points: what no rule lets go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ccpr.matrixone.schema import integer_of, text_of

HOLD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")  # neither a number nor a time begins with a letter


@dataclass(frozen=True, slots=True)
class Hold:
    """A point that no rule lets go.

    Attributes
    ----------
    name : by which it is read, too; letter case counts.
    until : when it ends, by the upstream's clock in nanoseconds; None = when it is released.
    created_at : by our clock, UTC.
    """

    name: str
    lsn: int
    until: int | None
    created_at: datetime

    def has_ended(self, watermark: int) -> bool:
        return self.until is not None and self.until <= watermark

    def to_json(self) -> dict[str, Any]:
        created = self.created_at.astimezone(UTC).isoformat()
        return {"name": self.name, "lsn": self.lsn, "until": self.until, "created_at": created}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Hold":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        name, until = text_of(value["name"]), value["until"]
        if not HOLD_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} is not the name of a held point")
        created = datetime.fromisoformat(text_of(value["created_at"]))
        return cls(name, integer_of(value["lsn"]), None if until is None else integer_of(until), created)
