"""The disasters of `tests.histories.disasters` for a subscription with keep rules, held points and pins, while clocks
jump: no point is lost that anything needs, and none stays that nothing keeps.

What must stay is computed here a second time, of the points that were there before an iteration and of the one that it
made. Source: decisions keep-rules, kept-points-are-listed, files-go-an-hour-later.
"""

import itertools
import shutil
from collections.abc import Iterable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from ccpr.maintenance.errors import CopyDiverged
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.errors import HoldMissing, PointGone
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.layout import object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.service import held_points
from ccpr.service.copies import copy
from ccpr.service.verifying import verifier_of
from ccpr.service.workspace import Workspace
from ccpr.state.errors import MirrorDisagrees, PointsNeeded
from ccpr.state.history import PointHistory
from ccpr.state.kept_records import KeptRecords
from ccpr.state.pins import Pin, Pins
from tests.histories.disasters import Disasters, Killed
from tests.histories.replicating import NAME

SECOND, HOUR, DAY = 10**9, 3600, 86400
SPAN = 2 * HOUR
PERIODS = {"hourly": ("%Y-%m-%d %H", 3), "daily": ("%Y-%m-%d", 2), "weekly": ("%G-%V", 2), "monthly": ("%Y-%m", 1)}
HOURS = st.sampled_from((1, 3, 30, 24 * 9, 24 * 40))
FILES = ("objects", "manifests", "ledger", "definitions", "kept")
At = tuple[int, int]  # lsn and time of a point: a number comes twice where a mirror was restored


@dataclass(frozen=True, slots=True)
class Records:
    """What the catalog database says of the subscription."""

    points: list[At]
    watermark: int
    holds: list[Hold]
    pinned: list[int]

    @classmethod
    def of(cls, workspace: Workspace) -> "Records":
        engine, task_id = workspace.log.engine, workspace.log.row(NAME).task_id
        history = PointHistory(engine, task_id)
        points = [(point.lsn, point.at.physical) for point in history.global_points()]
        pinned = [pin.lsn for pin in Pins(engine, task_id).all()]
        return cls(points, history.watermark(), KeptRecords(engine, task_id).holds(), pinned)


class DisastersOfKept(Disasters):
    """See the module.

    Attributes
    ----------
    held : what must be readable by name: lsn, time, and until when.
    ends : when a point was followed by the next, by the upstream's clock; of the history that the mirror has.
    ours : by how much our clock is wrong, seconds.
    """

    keep = f"all:{SPAN}s," + ",".join(f"{name}:{count}" for name, (_, count) in PERIODS.items())

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, tuple[int, Timestamp, int | None]] = {}
        self.ends: dict[At, int] = {}
        self.copied_ends: list[dict[At, int]] = []
        self.names = itertools.count()
        self.ours = 0.0

    def workspace(self, ahead: float = 0.0) -> Workspace:
        return super().workspace(ahead + self.ours)

    @initialize(seed=st.integers(1, 10**6), passing=st.lists(HOURS, min_size=2, max_size=4))
    def begin(self, seed: int, passing: list[int]) -> None:
        super().begin(seed)
        self.goes_on(passing)

    # ---- time

    @rule(passing=st.lists(HOURS, min_size=2, max_size=5))
    def goes_on(self, passing: list[int]) -> None:
        """Points come, some time after each other."""
        for hours in passing:
            self.pass_time(hours)
            self.write(2)
            self.iterate()

    @rule(hours=HOURS)
    def pass_time(self, hours: int) -> None:
        self.history.ticking.at += hours * HOUR * SECOND

    @rule(days=st.sampled_from((-400, -1, 1, 400)))
    def our_clock_jumps(self, days: int) -> None:
        self.ours += days * DAY

    # ---- iterations: what stays

    def run(self, workspace: Workspace) -> None:
        """And exactly what must stay is there."""
        before = self.note(workspace)
        super().run(workspace)
        after = Records.of(workspace)
        made = [point for point in after.points if point[0] > max((lsn for lsn, _ in before.points), default=-1)]
        candidates = before.points + made
        self.note_ends(candidates)
        assert after.points == [point for point in candidates if self.must_stay(point, candidates, after)]
        now = after.watermark
        self.held = {name: held for name, held in self.held.items() if held[2] is None or held[2] > now}
        assert self.held.keys() <= {hold.name for hold in after.holds}
        assert all(hold.until is None or hold.until > now for hold in after.holds)

    def note(self, workspace: Workspace) -> Records:
        """Before any point goes. Raises MirrorDisagrees."""
        workspace.mirror(NAME)
        found = Records.of(workspace)
        self.note_ends(found.points)
        return found

    def note_ends(self, points: list[At]) -> None:
        """All points that came since the last time are still there."""
        for one, later in itertools.pairwise(points):
            self.ends.setdefault(one, later[1])

    def must_stay(self, point: At, points: list[At], now: Records) -> bool:
        lsn, _ = point
        floor = min(now.pinned, default=None)
        return (
            point == points[-1]
            or self.ends[point] > now.watermark - SPAN * SECOND
            or point in by_calendar(points)
            or any(hold.lsn == lsn and (hold.until is None or hold.until > now.watermark) for hold in now.holds)
            or (floor is not None and lsn >= floor)
        )

    # ---- what operators and others do

    @rule(
        place=st.integers(0, 9),
        hours=st.sampled_from((None, 3, 24 * 20)),
        killed=st.booleans(),
        passing=st.lists(HOURS, max_size=3),
    )
    def hold_and_go_on(self, place: int, hours: int | None, killed: bool, passing: list[int]) -> None:
        self.hold(place, hours, killed)
        self.goes_on(passing)

    def hold(self, place: int, hours: int | None, killed: bool) -> None:
        """Killed before the head is published, it is published by the next command."""
        with self.way_out(), suppress(Killed), closing(self.workspace()) as workspace:
            point = self.chosen(workspace, place)
            if point is None:
                return
            name, now = f"h{next(self.names)}", Records.of(workspace).watermark // SECOND
            until = None if hours is None else datetime.fromtimestamp(now + hours * HOUR, UTC)
            end = None if until is None else round(until.timestamp()) * SECOND
            self.held[name] = point.lsn, point.at, end
            try:
                with patch.object(Mirror, "publish_head", side_effect=Killed) if killed else nullcontext():
                    held_points.hold(workspace, NAME, point.lsn, name, until)
            except CcprError:
                del self.held[name]
                raise

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0, 9))
    def release(self, place: int) -> None:
        with self.way_out(), closing(self.workspace()) as workspace:
            name = sorted(self.held)[place % len(self.held)]
            with suppress(HoldMissing):
                held_points.release(workspace, NAME, name)
            del self.held[name]

    @rule(place=st.integers(0, 9))
    def drop_point(self, place: int) -> None:
        with self.way_out(), closing(self.workspace()) as workspace:
            point = self.chosen(workspace, place)
            if point is None:
                return
            before = self.note(workspace)
            needed = min(before.pinned, default=None)
            stays = point.lsn == before.points[-1][0] or (needed is not None and point.lsn >= needed)
            stays |= any(hold.lsn == point.lsn and not hold.has_ended(before.watermark) for hold in before.holds)
            try:
                held_points.drop(workspace, NAME, {point.lsn})
            except PointsNeeded:
                assert stays
                return
            assert not stays
            assert Records.of(workspace).points == [one for one in before.points if one[0] != point.lsn]

    @rule(place=st.integers(0, 9), passing=st.lists(HOURS, max_size=3))
    def pin_and_go_on(self, place: int, passing: list[int]) -> None:
        self.pin(place)
        self.goes_on(passing)

    def pin(self, place: int) -> None:
        """As the relay does for the snapshot of another cluster."""
        with self.way_out(), closing(self.workspace()) as workspace:
            point = self.chosen(workspace, place)
            if point is not None:
                made = datetime.fromtimestamp(workspace.clock(), UTC)
                pin = Pin(f"p{next(self.names)}", point.lsn, point.at.physical, None, made, made)
                Pins(workspace.log.engine, workspace.log.row(NAME).task_id).add(pin)

    @rule(place=st.integers(0, 9))
    def unpin(self, place: int) -> None:
        with closing(self.workspace()) as workspace:
            pins = Pins(workspace.log.engine, workspace.log.row(NAME).task_id)
            if found := pins.all():
                pins.drop(found[place % len(found)].name)

    def chosen(self, workspace: Workspace, place: int) -> Point | None:
        points = workspace.mirror(NAME).points()
        return points[place % len(points)] if points else None

    @rule()
    def copy_to_a_second_place(self) -> None:
        """It reads as the mirror does. Where the mirror was restored to an older copy meanwhile, another place is."""
        second = self.folder / "second"
        with self.way_out(), closing(self.workspace()) as workspace:
            if not workspace.mirror(NAME).points():
                return
            try:
                copy(workspace, NAME, str(second), "")
            except CopyDiverged:
                shutil.rmtree(second)
                copy(workspace, NAME, str(second), "")
            mirror, copied = workspace.mirror(NAME), Mirror(LocalStore(second))
            assert copied.points() == mirror.points()
            assert copied.kept() == mirror.kept()
            self.compare(copied)

    # ---- copies of the mirror

    @precondition(lambda self: self.place.exists())
    @rule()
    def copy_mirror(self) -> None:
        super().copy_mirror()
        self.copied_ends.append(dict(self.ends))

    @precondition(lambda self: self.mirrors)
    @rule(age=st.integers(0, 9))
    def restore_mirror(self, age: int) -> None:
        """What was held later may be lost, if the mirror's history is then taken for the true one."""
        place = -1 - age % len(self.mirrors)
        copied = Mirror(LocalStore(self.mirrors[place]))
        known = {hold.name for hold in copied.kept().holds}
        self.held = {name: held for name, held in self.held.items() if name in known}
        self.ends = dict(self.copied_ends[place])
        for newest in copied.points()[-1:]:
            self.ends.pop((newest.lsn, newest.at.physical), None)  # the next had been committed, and not published
        super().restore_mirror(age)

    @precondition(lambda self: self.mirrors)
    @rule()
    def lose_mirror(self) -> None:
        self.held = {}
        super().lose_mirror()

    # ---- what holds at any time

    @invariant()
    def what_is_held_is_there(self) -> None:
        """For readers with the database; an error names the way out, after which it is there again."""
        if not hasattr(self, "place"):
            return
        with closing(self.workspace()) as workspace:
            try:
                mirror = workspace.mirror(NAME)
            except MirrorDisagrees:
                return
            for name, (lsn, at, _) in self.held.items():
                found = mirror.point(name)
                assert (found.lsn, found.at) == (lsn, at), name

    @invariant()
    def no_time_is_read_as_another(self) -> None:
        """Of each number up to the newest there is the point that showed it, or none."""
        if not hasattr(self, "place") or not self.place.exists():
            return
        mirror = Mirror(LocalStore(self.place))
        points = mirror.points()
        for one, later in itertools.pairwise(points):
            for lsn in range(one.lsn + 1, later.lsn):
                with suppress(PointGone):
                    assert mirror.point(lsn).lsn == one.lsn

    @rule()
    def everything_else_goes(self) -> None:
        """When all grace is over, there are the files of points that stay, and no others."""
        with self.way_out(), closing(self.workspace()) as workspace:
            for verify in (True, False, False):
                self.run(workspace)
                self.disagreement = None
                if verify:
                    self.verify(workspace)
                self.pass_time(5)
            mirror = workspace.mirror(NAME)
            assert {path for folder in FILES for path in mirror.store.names(folder)} == set(named_by(mirror))

    def verify(self, workspace: Workspace) -> None:
        """Also the files of attempts and of histories that were given up are recorded for deletion."""
        found = verifier_of(workspace, workspace.log.row(NAME), repair=True).run()
        assert found.sound


def by_calendar(points: list[At]) -> set[At]:
    kept: set[At] = set()
    for shape, count in PERIODS.values():
        newest = {datetime.fromtimestamp(at // SECOND, UTC).strftime(shape): (lsn, at) for lsn, at in points}
        kept |= set(sorted(newest.values())[-count:])
    return kept


def named_by(mirror: Mirror) -> Iterable[str]:
    """The files that the points of a mirror name."""
    head = mirror.published_head()
    if head is not None and head.kept:
        yield head.kept
    for point in mirror.points():
        yield from (name for name in (point.ledger, point.definitions) if name)
        for ref in point.tables.values():
            yield ref.manifest
            manifest = mirror.manifest(ref)
            sums = manifest.objects.column("sha256").to_pylist()  # without one: of an index table, which is not copied
            for one, checksum in zip(manifest.listed_objects(), sums, strict=True):
                if checksum is not None:
                    yield object_path(one.stats.name)
