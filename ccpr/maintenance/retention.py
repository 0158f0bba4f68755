"""Which points stay readable. Read from the catalog database alone (`ccpr.maintenance.sweeping` drops the others).

All times are the upstream's: those of its snapshots, which are in the order of the iterations. Our clock may jump, and
nothing expires by it (decision files-go-an-hour-later).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Protocol

import sqlalchemy as sa

from ccpr.base.wording import first_names
from ccpr.maintenance.errors import PointsNeeded
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.holds import Hold
from ccpr.mirror.points import LaggingTable
from ccpr.state.database import repeatable, together
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.keep_rules import KeepRules
from ccpr.state.kept import KeptRecords, KeptState
from ccpr.state.pins import needed_by_pins
from ccpr.state.quarantine import Quarantine
from ccpr.state.settings import Settings
from ccpr.state.targets import needed_points

_SECOND = 10**9  # nanoseconds
EVERYTHING, NEWEST, COUNT, SPAN, HELD, NEEDED = "all points", "newest", "--retain", "--retain-for", "held", "needed"


@dataclass(frozen=True, slots=True)
class Found:
    """What decides which points stay.

    Attributes
    ----------
    points : all of the subscription, oldest first.
    watermark : up to which time the replica is complete; the upstream's clock, nanoseconds.
    behind : the tables that the newest point does not show.
    needed : lsn of points that targets need, or a relay has pinned.
    kept : what is held, and what stays by itself.
    """

    points: Sequence[GlobalPoint]
    watermark: int
    behind: Collection[LaggingTable] = ()
    needed: Iterable[int] = ()
    kept: KeptState = field(default_factory=KeptState)

    def after(self, lsn: int, at: Timestamp, *, point: bool) -> "Found":
        """What it will be after the iteration of this number and time; `point`: that it makes a point."""
        made = [GlobalPoint(lsn, at, "", datetime.fromtimestamp(0, UTC), "", 0, 0, 0)] if point else []
        return replace(self, points=[*self.points, *made], watermark=at.physical)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Those that have not ended."""
        return tuple(hold for hold in self.kept.holds if not hold.has_ended(self.watermark))

    @property
    def held(self) -> dict[int, list[str]]:
        """The names of holds by lsn."""
        names: dict[int, list[str]] = {}
        for hold in self.holds:
            names.setdefault(hold.lsn, []).append(hold.name)
        return names

    @property
    def floor(self) -> int | None:
        """The oldest point that is needed as a start: from there on all stay. None if none is."""
        shown = [late.lsn for late in self.behind if late.lsn is not None]
        return min([*shown, *self.needed], default=None)


class Dated(Protocol):
    """A point, as far as retention of a lake needs it."""

    @property
    def lsn(self) -> int: ...

    @property
    def at(self) -> Timestamp: ...


@dataclass(frozen=True, slots=True)
class Retention:
    """Which points stay.

    A point stays if it is among the newest `points`, or was the newest point at some time during the last `seconds`
    before the watermark, or a rule keeps it; so the newest of the older ones stays, too. Whatever the rules say, the
    newest point stays, those that are held do, and all points since the newest one that shows a table which lags,
    or since one that a target needs or a relay has pinned.

    Attributes
    ----------
    points, seconds : 0 = no point stays by this rule.
    rules : what stays by the calendar. If there is no rule at all, all points stay.
    """

    points: int = 0
    seconds: int = 0
    rules: KeepRules = field(default_factory=KeepRules)

    def __bool__(self) -> bool:
        return bool(self.points or self.seconds or self.rules)

    @classmethod
    def of(cls, settings: Settings) -> "Retention":
        return cls(settings.retain, settings.retain_for, settings.keep_rules)

    def oldest_kept(self, points: Sequence[Dated], watermark: int) -> int | None:
        """The lsn of the point from which on all stay where points can go from the oldest on only, as in a lake: there
        none stays by the calendar. None if all stay. `points`: oldest first."""
        if not points or not self:
            return None
        kept = [points[-max(self.points, 1) :][0].lsn]
        if seconds := max(self.seconds, self.rules.span):
            start = watermark - seconds * _SECOND
            kept += [point.lsn for point, later in pairwise(points) if later.at.physical > start][:1]
        return min(kept)

    def reasons(self, found: Found) -> dict[int, list[str]]:
        """Why each point stays, by lsn; without reasons it goes."""
        points, floor, held = found.points, found.floor, found.held
        if not self:
            return {point.lsn: [EVERYTHING, *_held(held.get(point.lsn, []))] for point in points}
        newest = {point.lsn for point in points[-max(self.points, 1) :]}
        spans = {SPAN: self.seconds, f"all:{self.rules.span}s": self.rules.span}
        starts = {name: found.watermark - seconds * _SECOND for name, seconds in spans.items() if seconds}
        ends = {lsn: at for lsn, (_, at) in found.kept.ends(points).items()} if starts else {}
        rules = self.rules.kept([(point.lsn, point.at.physical) for point in points])
        reasons: dict[int, list[str]] = {}
        for point in points:
            lsn = point.lsn
            why = [NEWEST] if point is points[-1] else []
            why += [COUNT] if self.points and lsn in newest else []
            why += [name for name, start in starts.items() if lsn not in ends or ends[lsn] > start]
            why += rules.get(lsn, [])
            why += _held(held.get(lsn, []))
            why += [NEEDED] if floor is not None and lsn >= floor else []
            reasons[lsn] = why
        return reasons

    def expired(self, found: Found) -> list[int]:
        """The points that go, by lsn, oldest first."""
        return [lsn for lsn, why in self.reasons(found).items() if not why]


def _held(names: Sequence[str]) -> list[str]:
    return [f"{HELD}: {', '.join(sorted(names))}"] if names else []


@repeatable
def look(engine: sa.Engine, task_id: str) -> Found:
    """What decides which points stay, as it is now."""
    with together(engine):
        return read_found(PointHistory(engine, task_id), Quarantine(engine, task_id), KeptRecords(engine, task_id))


def read_found(history: PointHistory, quarantine: Quarantine, kept: KeptRecords) -> Found:
    """As `look`, in the transaction of the caller."""
    points = history.global_points()
    behind = quarantine.behind(points[-1].lsn).values() if points else ()
    needed = needed_points(history.engine, history.task_id) + needed_by_pins(history.engine, history.task_id)
    return Found(points, history.watermark(), behind, needed, kept.state())


def check_droppable(found: Found, lsns: Collection[int]) -> None:
    """Raises PointsNeeded, which says by what. `lsns`: one point at least."""
    last, newest = max(lsns), found.points[-1].lsn
    subject = f"point {last}" if len(lsns) == 1 else f"points up to {last}"
    if last == newest:
        raise PointsNeeded(f"point {newest} is the newest, and stays", subject=subject)
    if held := [f"{lsn} as {first_names(found.held[lsn])}" for lsn in sorted(lsns) if lsn in found.held]:
        raise PointsNeeded(f"point {first_names(held)} is held", subject=subject)
    if found.floor is not None and found.floor <= last:
        late = [one.qualified_name for one in found.behind if one.lsn == found.floor]
        who = f"table {first_names(late)} in quarantine" if late else "a target, a lake or a relay"
        raise PointsNeeded(f"{who} needs all points from {found.floor} on", subject=subject)
