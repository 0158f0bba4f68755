"""Retention, against a model: what a point that stays, a reader within the grace period, or a target needs is never
deleted, no point stays that nothing keeps, and no time reads as a point that did not show it."""

import itertools
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.errors import PointGone
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.layout import LEDGER_SCHEMA, Head, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff, with_checksums
from ccpr.mirror.points import LaggingTable, TableRef
from ccpr.pipeline.applying import write_table
from ccpr.retention import sweeping
from ccpr.retention.dropping import Replica as Parts
from ccpr.retention.dropping import drop_points
from ccpr.retention.retention import PointInventory, Retention, take_inventory
from ccpr.retention.sweeping import Swept
from ccpr.state import ledger
from ccpr.state.database import transaction
from ccpr.state.errors import PointsNeeded
from ccpr.state.history import GlobalPoint, PointHistory, as_mirror_point
from ccpr.state.keep_rules import KeepRules
from ccpr.state.kept_records import KeptState
from ccpr.state.migrations import open_database
from ccpr.state.point_rows import TablePoint
from ccpr.state.publishing import write_point
from ccpr.state.settings import GRACE_SECONDS
from ccpr.state.targets import TargetRecords
from tests.support.manifest_parts import divided
from tests.support.object_lists import listed, live
from tests.support.values import NOW, a_table

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600
DAY = 24 * HOUR
PERIODS = {"hourly": "%Y-%m-%d %H", "daily": "%Y-%m-%d", "weekly": "%G-%V", "monthly": "%Y-%m", "yearly": "%Y"}
Tables = dict[int, frozenset[int]]  # table id -> the numbers of its objects
TASKS = itertools.count()
NOTHING = LISTED_SCHEMA.empty_table()

# A point: which objects each of three tables has (CLONE lets tables share them); a table that is not named is gone.
POINTS = st.dictionaries(st.integers(1, 3), st.frozensets(st.integers(1, 8), max_size=5), max_size=3)
PASSES = st.one_of(
    st.integers(1, 90).map(lambda minutes: minutes * 60), st.integers(1, 60).map(lambda days: days * DAY)
)
CHANGES = st.tuples(st.integers(1, 3), st.integers(1, 8))  # an object of a table comes, or goes
EVENTS = st.one_of(
    POINTS,
    CHANGES,
    CHANGES,
    PASSES,
    st.just("sweep"),
    st.just("sweep"),
    st.sampled_from(("hold", "hold until", "release", "drop")),
)
RULES = st.lists(
    st.one_of(
        st.sampled_from(("all:30m", "all:3h", "all:40d")),
        st.builds(lambda name, count: f"{name}:{count}", st.sampled_from(sorted(PERIODS)), st.integers(1, 3)),
    ),
    max_size=3,
    unique_by=lambda text: text.partition(":")[0],
).map(lambda parts: KeepRules.parse(",".join(parts)))


def rows_of(pairs: set[tuple[int, int]]) -> pa.Table:
    """LISTED_SCHEMA of (table id, object number) pairs."""
    if not pairs:
        return NOTHING
    parts = []
    for table_id in {table_id for table_id, _ in pairs}:
        part = listed([live(number) for owner, number in sorted(pairs) if owner == table_id])
        parts.append(part.set_column(0, "table_id", pa.array([table_id] * part.num_rows, pa.int64())))
    return pa.concat_tables(parts)


def name_of(number: int) -> str:
    return listed([live(number)]).column("name")[0].as_py()


class Replica:
    """A mirror and its rows in the catalog database, with points as an iteration makes them; and a model of what has
    to be there."""

    def __init__(self, folder: Path, engine: sa.Engine) -> None:
        self.mirror = Mirror(LocalStore(folder))
        self.parts = Parts(engine, f"task-{next(TASKS)}", self.mirror)
        self.history, self.ledger, self.quarantine = self.parts.history, self.parts.ledger, self.parts.quarantine
        self.engine, self.now, self.lsn = engine, START, 0
        self.tables: dict[int, TablePoint] = {}
        self.objects: Tables = {}
        self.late: dict[int, LaggingTable] = {}  # what the newest point does not show
        self.contents: dict[int, Tables] = {}  # what all points showed that there ever were
        self.had: dict[int, dict[int, TableRef]] = {}  # and what they had, with tables that lagged
        self.committed: dict[int, datetime] = {}
        self.shown: dict[int, set[str]] = {}  # the files of its manifests
        self.times: dict[int, int] = {}  # on the upstream's clock
        self.dropped: dict[int, datetime] = {}  # when a point went
        self.by_hand: set[int] = set()
        self.held: dict[str, tuple[int, int | None]] = {}

    def commit(self, upstream: Tables, failing: Collection[int] = ()) -> None:
        """`failing`: tables that cannot be moved. They stay as they are, and the point does not show them."""
        failing = set(failing) & upstream.keys()
        newest = max(self.contents, default=None)
        late = {
            number: self.late.get(number)
            or LaggingTable("db", f"t{number}", newest if number in self.objects else None)
            for number in failing
        }
        wanted = {number: objects for number, objects in upstream.items() if number not in failing}
        wanted |= {number: self.objects[number] for number in failing & self.objects.keys()}
        caught_up = self.late.keys() & wanted.keys() - failing
        moved = {number for number in wanted if self.objects.get(number) != wanted[number]} | caught_up
        gone = self.objects.keys() - wanted.keys()
        now = {(table_id, number) for table_id, objects in wanted.items() for number in objects}
        before = {(table_id, number) for table_id, objects in self.objects.items() for number in objects}
        added, removed = now - before, {pair for pair in before - now if pair[0] in wanted}
        numbers = sorted({number for _, number in added})
        for number in numbers:
            self.mirror.store.put(object_path(name_of(number)), [b"object"])
        copied = pa.table(
            [list(map(name_of, numbers)), [6] * len(numbers), [bytes(32)] * len(numbers)], schema=LEDGER_SCHEMA
        )
        unsummed = copied.append_column("sums", pa.nulls(copied.num_rows, pa.binary()))
        path = self.mirror.write_ledger(copied, self.lsn, 1) if numbers else ""
        points = []
        for table_id in sorted(moved):
            table = a_table(table_id, f"t{table_id}")
            objects, last = wanted[table_id], self.objects.get(table_id, frozenset())
            came = with_checksums(rows_of({(table_id, number) for number in objects - last}), unsummed)
            went = rows_of({(table_id, number) for number in last - objects})
            points.append(write_table(self.mirror, self.lsn, 1, table, self.tables.get(table_id), came, went))
        points += [TablePoint(self.tables[table_id].table, None, self.lsn) for table_id in gone]
        changed = {shown.table.id: shown for shown in points}
        tables = {number: shown for number, shown in {**self.tables, **changed}.items() if shown.ref is not None}
        at = Timestamp(self.watermark + self.lsn)
        point = GlobalPoint(self.lsn, at, f"xr_{self.lsn}", self.now, path, len(points), 0, 0)
        refs = {number: shown.ref for number, shown in tables.items() if shown.ref is not None}
        file = write_point(self.mirror, as_mirror_point(point, refs, late), changed, self.history.chain())
        with transaction(self.engine) as connection:
            self.ledger.record(
                connection, self.lsn, copied, ObjectDiff(rows_of(added), rows_of(removed)), wanted.keys(), gone
            )
            self.quarantine.write_behind(connection, self.lsn, late)
            self.history.write(connection, replace(point, file=file), points)
        self.tables, self.objects, self.late = tables, wanted, late
        self.contents[self.lsn] = {number: objects for number, objects in wanted.items() if number not in late}
        self.had[self.lsn] = refs
        self.committed[self.lsn], self.times[self.lsn] = self.now, at.physical
        self.lsn += 1
        self.publish_head()

    def publish_head(self) -> None:
        chain = self.history.chain()
        watermark, file = self.watermark + self.lsn, self.parts.kept.state().file
        self.mirror.publish_head(Head(chain[-1].lsn, chain[0].lsn, self.lsn, watermark, chain[0].path, (), file))

    def hold(self, name: str, lsn: int, until: int | None) -> None:
        self.held[name] = lsn, until
        self.change_holds()

    def release(self, name: str) -> None:
        del self.held[name]
        self.change_holds()

    def change_holds(self) -> None:
        holds = tuple(Hold(name, lsn, until, NOW) for name, (lsn, until) in sorted(self.held.items()))
        drop_points(self.parts, self.inventory(), (), holds, 0)
        self.publish_head()

    def drop(self, lsn: int) -> None:
        """By an operator, who does not drop what is needed."""
        inventory = self.inventory()
        due = int(self.now.timestamp()) + GRACE_SECONDS
        drop_points(self.parts, inventory, {lsn}, inventory.kept.holds, due)
        self.dropped[lsn] = self.now
        self.by_hand.add(lsn)
        self.publish_head()

    def inventory(self) -> PointInventory:
        return take_inventory(self.parts)

    @property
    def watermark(self) -> int:
        """The upstream's clock, nanoseconds."""
        return int(self.now.timestamp()) * 10**9

    def sweep(self, rule: Retention, needed: list[int]) -> Swept:
        with (
            patch.object(TargetRecords, "needed_points", lambda _: needed),
            patch.object(PointHistory, "watermark", lambda _: self.watermark + self.lsn),
            patch.object(ledger, "_ROWS", 2),  # several pages of garbage
        ):
            swept = sweeping.sweep(
                self.parts,
                rule,
                0.0,
                confirm=lambda: None,
                grace_seconds=GRACE_SECONDS,
            )
        for lsn in self.contents.keys() - {point.lsn for point in self.history.global_points()}:
            self.dropped.setdefault(lsn, self.now)
        now = self.watermark + self.lsn
        self.held = {name: held for name, held in self.held.items() if held[1] is None or held[1] > now}
        assert {hold.name for hold in self.parts.kept.holds()} == self.held.keys()
        if self.contents:
            self.publish_head()
        return swept

    def must_stay(self, rule: Retention, needed: list[int]) -> set[int]:
        """Points, by what the options promise."""
        present = sorted(self.contents.keys() - self.dropped.keys())
        if not present or not (rule.points or rule.seconds or rule.rules):
            return set(present)
        ends = {
            lsn: self.committed[later] for lsn, later in itertools.pairwise(sorted(self.contents))
        }  # until when a point was the newest
        now = self.watermark + self.lsn
        held = {lsn for lsn, until in self.held.values() if until is None or until > now}
        spans = [self.now - timedelta(seconds=seconds) for seconds in (rule.seconds, rule.rules.span) if seconds]
        return {
            lsn
            for place, lsn in enumerate(reversed(present))
            if place < max(rule.points, 1)
            or any(lsn not in ends or ends[lsn] > start for start in spans)
            or any(lsn >= other for other in [*needed, *self.shown_last()])
            or lsn in held
        } | (self.by_calendar(rule.rules) & set(present))

    def shown_last(self) -> list[int]:
        """For each table that lags, the newest point that shows it."""
        return [table.lsn for table in self.late.values() if table.lsn is not None]

    def by_calendar(self, rules: KeepRules) -> set[int]:
        """Of all points that there ever were, but for those that an operator has dropped."""
        kept: set[int] = set()
        for name, count in rules.periods:
            newest: dict[str, int] = {}
            for lsn in sorted(self.contents.keys() - self.by_hand):
                made = datetime.fromtimestamp(self.times[lsn] // 10**9, UTC)
                newest[made.strftime(PERIODS[name])] = lsn
            kept |= set(sorted(newest.values())[-count:])
        return kept

    def check(self) -> None:
        """All that is readable is there; and so are the files of points that readers may still have open."""
        kept = {lsn for lsn in self.contents if lsn not in self.dropped}
        self.check_times(kept)
        for lsn in kept:
            point = self.mirror.point(lsn)
            assert point.lsn == lsn
            shown = {ref.table_id: self.mirror.manifest(ref) for ref in point.tables.values()}
            assert {
                key: {entry.stats.name for entry in manifest.listed_objects()} for key, manifest in shown.items()
            } == {key: set(map(name_of, objects)) for key, objects in self.contents[lsn].items()}
            self.shown[lsn] = {path for ref in point.tables.values() for path in ref.files}
        graced = {lsn for lsn, when in self.dropped.items() if (self.now - when).total_seconds() < GRACE_SECONDS}
        files, manifests = self.files("objects"), set(self.mirror.store.names("manifests"))
        for lsn in kept | graced:
            assert self.shown[lsn] <= manifests
            assert {name_of(number) for objects in self.contents[lsn].values() for number in objects} <= files

    def check_times(self, kept: Collection[int]) -> None:
        """A number or a time reads as the point that showed it, or not at all."""
        if self.contents:
            assert [point.lsn for point in self.mirror.points()] == sorted(kept)
        for name, (lsn, _) in self.held.items():
            assert self.mirror.point(name).lsn == lsn
        for lsn, at in self.times.items():
            for asked in (lsn, at):
                if lsn in kept:
                    assert self.mirror.point(asked).lsn == lsn
                else:
                    with pytest.raises(PointGone):
                        self.mirror.point(asked)

    def files(self, folder: str) -> set[str]:
        return {name.rpartition("/")[2] for name in self.mirror.store.names(folder)}

    def check_no_leak(self) -> None:
        """After all grace: nothing but what points that stay need, and the tables that lag at them."""
        kept = {lsn for lsn in self.contents if lsn not in self.dropped}
        refs = [ref for lsn in kept for ref in self.had[lsn].values()]
        assert self.files("objects") == {
            entry.stats.name for ref in refs for entry in self.mirror.manifest(ref).listed_objects()
        }
        assert set(self.mirror.store.names("manifests")) == {path for ref in refs for path in ref.files}
        alone = {point.path for point in self.mirror.kept().points}
        oldest = self.history.chain()[-1].lsn
        needed = {*alone, *self.mirror.point_files().read_from(oldest)}
        assert {path for path in self.mirror.store.names("points") if int(path[7:19]) < oldest} <= needed
        assert self.files("kept") == {self.parts.kept.state().file.rpartition("/")[2]} - {""}
        assert self.ledger.waiting()[0] == 0
        assert {stored.name for stored in self.ledger.stored_objects()} == self.files("objects")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> sa.Engine:
    return open_database(f"sqlite:///{tmp_path_factory.mktemp('catalog')}/catalog.db")


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    events=st.lists(EVENTS, min_size=3, max_size=18),
    rule=st.builds(Retention, st.sampled_from([0, 0, 1, 3]), st.sampled_from([0, 0, HOUR // 2, 3 * HOUR]), RULES),
    behind=st.sets(st.integers(1, 3), max_size=1),
    data=st.data(),
)
def test_nothing_that_is_needed_is_deleted_and_nothing_else_stays(
    events: list,
    rule: Retention,
    behind: set[int],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    engine: sa.Engine,
) -> None:
    replica = Replica(tmp_path_factory.mktemp("mirror"), engine)
    with divided(data.draw(st.sampled_from([0, 0, 3, 100])), data.draw(st.sampled_from([0, 1, 4]))):
        live_through(events, replica, rule, behind, data)


def live_through(events: list, replica: Replica, rule: Retention, behind: set[int], data: st.DataObject) -> None:
    for event in events:
        if isinstance(event, dict):
            replica.commit(event, behind if data.draw(st.booleans()) else ())
        elif isinstance(event, tuple):
            table_id, number = event
            changed = replica.objects.get(table_id, frozenset()) ^ {number}
            replica.commit({**replica.objects, table_id: changed}, behind if data.draw(st.booleans()) else ())
        elif isinstance(event, int):
            replica.now += timedelta(seconds=event)
        else:
            act(replica, event, rule, data)
        replica.check()
    for hours in (0, 2):
        replica.now += timedelta(hours=hours)
        replica.sweep(rule, [])
        replica.check()
    if replica.contents:
        replica.sweep(rule, [])
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(), [])
        replica.check()
        replica.check_no_leak()


def act(replica: Replica, event: str, rule: Retention, data: st.DataObject) -> None:
    present = sorted(replica.contents.keys() - replica.dropped.keys())
    if event == "sweep":
        needed = data.draw(st.lists(st.sampled_from(present), max_size=1)) if present else []
        stays = replica.must_stay(rule, needed)
        replica.sweep(rule, needed)
        assert stays == replica.contents.keys() - replica.dropped.keys()
    elif event.startswith("hold") and present:
        until = replica.watermark + data.draw(PASSES) * 10**9 if event == "hold until" else None
        replica.hold(data.draw(st.sampled_from(("a", "b", "c"))), data.draw(st.sampled_from(present)), until)
    elif event == "release" and replica.held:
        replica.release(data.draw(st.sampled_from(sorted(replica.held))))
    elif event == "drop":
        free = sorted(set(present[:-1]) - {lsn for lsn, _ in replica.held.values()})
        free = [lsn for lsn in free if lsn < min(replica.shown_last(), default=10**9)]
        if free:
            replica.drop(data.draw(st.sampled_from(free)))


def point(lsn: int) -> GlobalPoint:
    return GlobalPoint(lsn, Timestamp(lsn), f"xr_{lsn}", NOW + timedelta(minutes=lsn), "", 0, 0, 0)


@pytest.mark.parametrize(
    ("behind", "needed", "held_until", "lsns", "says"),
    [
        ((), (), None, {9}, "point 9 is the newest, and stays"),
        ((), (), None, {2, 3}, "point 3 as a is held"),
        ((LaggingTable("db", "t", 5),), (), None, {7}, "table db.t in quarantine needs all points from 5 on"),
        ((LaggingTable("db", "t", 5),), (4,), None, {1, 4}, "a target, a lake or a relay needs all points from 4 on"),
        ((LaggingTable("db", "new", None),), (8,), None, {1, 2, 7}, ""),
        ((), (), 10, {3}, ""),
    ],
)
def test_what_must_stay_is_not_dropped_and_the_error_says_why(
    behind: tuple[LaggingTable, ...], needed: tuple[int, ...], held_until: int | None, lsns: set[int], says: str
) -> None:
    held = KeptState(holds=(Hold("a", 3, held_until, NOW),))
    inventory = PointInventory([point(lsn) for lsn in range(10)], 10, behind, needed, held)
    if not says:
        inventory.check_droppable(lsns)
        return
    with pytest.raises(PointsNeeded, match=says):
        inventory.check_droppable(lsns)


def test_retention_keeps_the_newest_point_that_shows_a_lagging_table() -> None:
    points = [point(lsn) for lsn in range(10)]
    rule = Retention(points=2)
    assert rule.expired(PointInventory(points, 0)) == list(range(8))
    late = [LaggingTable("db", "t", 5), LaggingTable("db", "u", 9), LaggingTable("db", "new", None)]
    assert rule.expired(PointInventory(points, 0, late)) == list(range(5))
    assert Retention().expired(PointInventory(points, 0, [LaggingTable("db", "t", 5)])) == []


def test_each_point_says_by_what_it_stays() -> None:
    points = [GlobalPoint(lsn, Timestamp((lsn + 1) * HOUR * 10**9), "", NOW, "", 0, 0, 0) for lsn in range(60)]
    held = KeptState(holds=(Hold("migration", 3, None, NOW),))
    rule = Retention(points=2, rules=KeepRules.parse("all:3h,hourly:5,daily:2"))
    reasons = rule.kept_by(PointInventory(points, 60 * HOUR * 10**9, (), [58], held))
    stays = {lsn: why for lsn, why in reasons.items() if why}
    assert stays == {
        3: ["held: migration"],
        46: ["daily"],
        55: ["hourly"],
        56: ["all:10800s", "hourly"],
        57: ["all:10800s", "hourly"],
        58: ["--retain", "all:10800s", "hourly", "needed"],
        59: ["newest", "--retain", "all:10800s", "hourly", "daily", "needed"],
    }


def test_a_file_stays_while_a_later_manifest_goes_on_from_it(tmp_path: Path, engine: sa.Engine) -> None:
    replica = Replica(tmp_path, engine)
    with divided():
        for most in range(3, 8):
            replica.commit({1: frozenset(range(1, most))})
    for lsn in range(4):
        replica.drop(lsn)
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(), [])
        replica.check()
    replica.check_no_leak()
    assert len(set(replica.mirror.store.names("manifests"))) == 5


def test_a_file_of_a_dropped_point_stays_with_the_point_that_wrote_it(tmp_path: Path, engine: sa.Engine) -> None:
    replica = Replica(tmp_path, engine)
    with divided():
        for most in range(3, 6):
            replica.commit({1: frozenset(range(1, most))})
    replica.commit({1: frozenset({7})})
    replica.hold("first", 0, None)
    for lsn in (1, 2):
        replica.drop(lsn)
    replica.now += timedelta(hours=2)
    replica.sweep(Retention(), [])
    replica.check()
    replica.check_no_leak()
    assert len(set(replica.mirror.store.names("manifests"))) == 2


def test_a_point_that_leaves_the_chain_shows_its_tables_and_none_that_lagged(tmp_path: Path, engine: sa.Engine) -> None:
    replica = Replica(tmp_path, engine)
    with divided(3):
        replica.commit({1: frozenset({1}), 2: frozenset({2}), 3: frozenset()})
        replica.commit({1: frozenset({1, 4}), 3: frozenset({5})}, {3})
        replica.hold("late", 1, None)
        replica.hold("first", 0, None)
        for objects in ({5}, {5, 6}):
            replica.commit({1: frozenset({1, 4}), 2: frozenset({2}), 3: frozenset(objects)})
            replica.check()
        replica.drop(2)
        replica.check()
        assert [file.lsn for file in replica.mirror.point_files().listed()] == [0, 1]
        replica.commit({3: frozenset({7})}, {3})  # it lags again, and is shown by the point before
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(points=1), [])
        replica.check()
        assert replica.mirror.lsns() == [0, 1, 3, 4]
        for name in ("late", "first"):
            replica.release(name)
        replica.commit({3: frozenset({7})})
        replica.check()
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(points=1), [])
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(points=1), [])
        replica.check()
        replica.check_no_leak()
    assert replica.mirror.lsns() == [5]


def test_a_table_that_was_empty_when_it_began_to_lag_is_there_again_with_its_point(
    tmp_path: Path, engine: sa.Engine
) -> None:
    replica = Replica(tmp_path, engine)
    everything = {1: frozenset({1, 2, 3}), 2: frozenset({1}), 3: frozenset[int]()}
    with divided(3):
        replica.commit(everything)
        replica.commit({}, {3})
        replica.commit(everything)
        replica.commit({3: frozenset()}, {3})
        replica.check()
        replica.drop(0)
        replica.commit(everything)
        replica.hold("late", 3, None)
        replica.now += timedelta(days=1)
        replica.commit({3: frozenset()})
        replica.check()
        replica.drop(4)
        replica.check()
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(), [])
        replica.check()
        replica.check_no_leak()
