"""Points that stay though points between them and the newest have gone, and points that are held by name: one small
file, which the head names. Source: docs/format/mirror.md, "Kept points"; decision kept-points-are-listed.

The points from `head.oldest_point` on are a chain, each file of which names the one before. An earlier point has a
complete file of its own, and is listed here with the point that came directly after it: up to then it shows what was
there, and afterwards nothing does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
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


@dataclass(frozen=True, slots=True)
class KeptPoint:
    """A point before the chain.

    Attributes
    ----------
    path : of its file, which is complete.
    lsn, at : its number, and its time on the upstream's clock in nanoseconds.
    next_lsn, next_at : those of the point that came directly after it, which may have gone.
    """

    path: str
    lsn: int
    at: int
    next_lsn: int
    next_at: int


@dataclass(frozen=True, slots=True)
class KeptPoints:
    """The content of the file: the points, oldest first, and the holds, by name."""

    points: tuple[KeptPoint, ...] = ()
    holds: tuple[Hold, ...] = ()

    def hold(self, name: str) -> Hold | None:
        return next((hold for hold in self.holds if hold.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "points": [[one.path, one.lsn, one.at, one.next_lsn, one.next_at] for one in self.points],
            "holds": [hold.to_json() for hold in self.holds],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], oldest: int | None) -> "KeptPoints":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written; `oldest` is the first
        point of the chain."""
        from ccpr.mirror.layout import lsn_of_point  # it imports Arrow, which who asks for a status does not need

        points = tuple(
            KeptPoint(text_of(path), *(integer_of(number) for number in numbers)) for path, *numbers in value["points"]
        )
        order = [number for one in points for number in (one.lsn, one.next_lsn)]
        order += [] if oldest is None else [oldest]
        if any(one.lsn >= one.next_lsn or lsn_of_point(one.path) != one.lsn for one in points):
            raise ValueError("a kept point contradicts itself")
        if any(before > after for before, after in pairwise(order)):
            raise ValueError("the kept points are not in order")
        holds = tuple(map(Hold.from_json, value["holds"]))
        if len({hold.name for hold in holds}) != len(holds):
            raise ValueError("a name is held twice")
        return cls(points, holds)
