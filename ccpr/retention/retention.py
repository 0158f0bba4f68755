"""Which points stay readable, and why. Read from the catalog database alone (`ccpr.retention.sweeping` drops the
others).

All times are the upstream's: those of its snapshots, which are in the order of the iterations. Our clock may jump, and
nothing expires by it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Protocol

from ccpr.base.wording import first_names
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.points import LaggingTable, instant_text
from ccpr.state.database import repeatable, together
from ccpr.state.errors import PointsNeeded
from ccpr.state.history import GlobalPoint
from ccpr.state.keep_rules import KeepRules
from ccpr.state.kept_records import KeptState
from ccpr.state.log import SubscriptionRecords
from ccpr.state.settings import Settings

_SECOND = 10**9  # nanoseconds
EVERYTHING, NEWEST, COUNT, SPAN, HELD, NEEDED = "all points", "newest", "--retain", "--retain-for", "held", "needed"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why points stay whatever the rules of the subscription say.

    Attributes
    ----------
    lsn : the point that stays.
    who : the name by which it is held, or who needs it.
    until : when that ends, by the upstream's clock in nanoseconds; None = when it is given up.
    onward : all later points stay, too.
    """

    lsn: int
    who: str
    until: int | None = None
    onward: bool = True

    def __str__(self) -> str:
        return f"{self.lsn} as {self.who}" + ("" if self.until is None else f" until {instant_text(self.until)}")


@dataclass(frozen=True, slots=True)
class PointInventory:
    """What decides which points stay.

    Attributes
    ----------
    points : all of the subscription, oldest first.
    watermark : up to which time the replica is complete; the upstream's clock, nanoseconds.
    behind : the tables that the newest point does not show.
    needed : lsn of points that targets and lakes need, or a relay has pinned.
    kept : what is held, and what stays outside the chain.
    """

    points: Sequence[GlobalPoint]
    watermark: int
    behind: Collection[LaggingTable] = ()
    needed: Iterable[int] = ()
    kept: KeptState = field(default_factory=KeptState)

    def after(self, lsn: int, at: Timestamp, *, point: bool) -> "PointInventory":
        """What it will be after the iteration of this number and time; `point`: that it makes a point."""
        made = [GlobalPoint(lsn, at, "", datetime.fromtimestamp(0, UTC), "", 0, 0, 0)] if point else []
        return replace(self, points=[*self.points, *made], watermark=at.physical)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Those that have not ended."""
        return tuple(hold for hold in self.kept.holds if not hold.has_ended(self.watermark))

    @property
    def reasons(self) -> list[Reason]:
        held = [Reason(hold.lsn, hold.name, hold.until, onward=False) for hold in self.holds]
        late = [
            Reason(table.lsn, f"table {table.qualified_name} in quarantine")
            for table in self.behind
            if table.lsn is not None
        ]
        return [*held, *late, *(Reason(lsn, "a target, a lake or a relay") for lsn in self.needed)]

    @property
    def start(self) -> Reason | None:
        """By which all points from its own on stay; None if there is none."""
        return min((reason for reason in self.reasons if reason.onward), key=lambda reason: reason.lsn, default=None)

    def check_droppable(self, lsns: Collection[int]) -> None:
        """Raises PointsNeeded, which says by what. `lsns`: one point at least."""
        last, newest, start = max(lsns), self.points[-1].lsn, self.start
        subject = f"point {last}" if len(lsns) == 1 else f"points up to {last}"
        if last == newest:
            raise PointsNeeded(f"point {newest} is the newest, and stays", subject=subject)
        if held := [reason for reason in self.reasons if not reason.onward and reason.lsn in lsns]:
            names = first_names(str(reason) for reason in sorted(held, key=lambda reason: (reason.lsn, reason.who)))
            raise PointsNeeded(f"point {names} is held", subject=subject)
        if start is not None and start.lsn <= last:
            raise PointsNeeded(f"{start.who} needs all points from {start.lsn} on", subject=subject)


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
    newest point stays, and all for which there is a `Reason`. `points`, `seconds`: 0 = no point stays by this rule.
    `rules`: what stays by the calendar. If there is no rule at all, all points stay.
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

    def kept_by(self, inventory: PointInventory) -> dict[int, list[str]]:
        """By what each point stays, by lsn; one that nothing keeps goes."""
        names: dict[int, list[str]] = {}
        for reason in inventory.reasons:
            if not reason.onward:
                names.setdefault(reason.lsn, []).append(reason.who)
        held = {lsn: [f"{HELD}: {', '.join(sorted(who))}"] for lsn, who in names.items()}
        if not self:
            return {point.lsn: [EVERYTHING, *held.get(point.lsn, [])] for point in inventory.points}
        start, by_rule = inventory.start, self._by_rule(inventory.points, inventory.watermark, inventory.kept)
        return {
            lsn: by_rule[lsn] + held.get(lsn, []) + ([NEEDED] if start is not None and lsn >= start.lsn else [])
            for lsn in by_rule
        }

    def _by_rule(self, points: Sequence[GlobalPoint], watermark: int, kept: KeptState) -> dict[int, list[str]]:
        counted = {point.lsn for point in points[-self.points :]} if self.points else set()
        spans = {SPAN: self.seconds, f"all:{self.rules.span}s": self.rules.span}
        starts = {name: watermark - seconds * _SECOND for name, seconds in spans.items() if seconds}
        ends = {lsn: at for lsn, (_, at) in kept.ends(points).items()} if starts else {}
        by_calendar = self.rules.kept([(point.lsn, point.at.physical) for point in points])
        return {
            point.lsn: [
                *([NEWEST] if point is points[-1] else []),
                *([COUNT] if point.lsn in counted else []),
                *(name for name, start in starts.items() if point.lsn not in ends or ends[point.lsn] > start),
                *by_calendar.get(point.lsn, []),
            ]
            for point in points
        }

    def expired(self, inventory: PointInventory) -> list[int]:
        """The points that go, by lsn, oldest first."""
        return [lsn for lsn, why in self.kept_by(inventory).items() if not why]


@repeatable
def take_inventory(records: SubscriptionRecords) -> PointInventory:
    """As it is now."""
    with together(records.engine):
        return read_inventory(records)


def read_inventory(records: SubscriptionRecords) -> PointInventory:
    """The same, in the transaction of the caller."""
    points, watermark = records.history.global_points(), records.history.watermark()
    behind = records.quarantine.behind(points[-1].lsn).values() if points else ()
    needed = records.targets.needed_points() + records.pins.needed_points()
    return PointInventory(points, watermark, behind, needed, records.kept.state())
