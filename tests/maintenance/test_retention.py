"""Retention, against a model: what a point that stays, a reader within the grace period, or a target needs is never
deleted."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.maintenance import retention
from ccpr.maintenance.retention import Retention, Swept
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.head import Head
from ccpr.mirror.layout import LEDGER_SCHEMA, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff, with_checksums
from ccpr.mirror.points import LaggingTable, Point
from ccpr.pipeline.applying import write_table
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint, PointHistory, TablePoint
from ccpr.state.ledger import Ledger
from ccpr.state.migrations import open_database
from ccpr.state.quarantine import Quarantine
from ccpr.state.settings import GRACE_SECONDS
from tests.support.object_lists import listed, live
from tests.support.values import NOW, a_table

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600
Tables = dict[int, frozenset[int]]  # table id -> the numbers of its objects
TASKS = itertools.count()
NOTHING = LISTED_SCHEMA.empty_table()

# A point: which objects each of three tables has (CLONE lets tables share them); a table that is not named is gone.
POINTS = st.dictionaries(st.integers(1, 3), st.frozensets(st.integers(1, 8), max_size=5), max_size=3)
EVENTS = st.one_of(POINTS, st.integers(1, 90).map(lambda minutes: minutes * 60), st.just("sweep"))


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
        task_id = f"task-{next(TASKS)}"
        self.history, self.ledger, self.quarantine = (
            PointHistory(engine, task_id),
            Ledger(engine, task_id),
            Quarantine(engine, task_id),
        )
        self.engine, self.now, self.lsn = engine, START, 0
        self.tables: dict[int, TablePoint] = {}
        self.objects: Tables = {}
        self.contents: dict[int, Tables] = {}  # of all points that there ever were
        self.committed: dict[int, datetime] = {}
        self.dropped: dict[int, datetime] = {}  # when a point went

    def commit(self, wanted: Tables, behind: set[int]) -> None:
        changed = {table_id: objects for table_id, objects in wanted.items() if self.objects.get(table_id) != objects}
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
        path = self.mirror.write_ledger(copied, self.lsn, 1) if numbers else ""
        points = []
        for table_id, objects in changed.items():
            table = a_table(table_id, f"t{table_id}")
            points.append(
                write_table(
                    self.mirror,
                    self.lsn,
                    1,
                    table,
                    with_checksums(rows_of({(table_id, number) for number in objects}), copied),
                )
            )
        points += [TablePoint(self.tables[table_id].table, None, self.lsn) for table_id in gone]
        at = Timestamp(self.watermark + self.lsn)
        late = {
            table_id: LaggingTable("db", f"t{table_id}", max(self.contents, default=None))
            for table_id in behind & self.tables.keys() - gone
        }
        tables = {**self.tables, **{point.table.id: point for point in points}}
        refs = {table_id: shown.ref for table_id, shown in tables.items() if shown.ref is not None}
        point = Point(self.lsn, at, f"xr_{self.lsn}", self.now, path, refs)
        changed = {shown.table.id: shown.ref for shown in points}
        file = self.mirror.write_point(point, changed, self.history.files())
        with transaction(self.engine) as connection:
            self.ledger.record(
                connection, self.lsn, copied, ObjectDiff(rows_of(added), rows_of(removed)), wanted.keys(), gone
            )
            self.quarantine.write_behind(connection, self.lsn, late)
            self.history.write(
                connection, GlobalPoint(self.lsn, at, f"xr_{self.lsn}", self.now, path, len(points), 0, 0, file), points
            )
        self.tables = {table_id: shown for table_id, shown in tables.items() if shown.ref is not None}
        self.objects, self.contents[self.lsn], self.committed[self.lsn] = wanted, dict(wanted), self.now
        self.lsn += 1
        self.publish_head()

    def publish_head(self) -> None:
        kept = [point.lsn for point in self.history.global_points()]
        file = self.history.files()[0].path
        self.mirror.publish_head(Head(min(kept), max(kept), self.lsn, self.watermark + self.lsn, file))

    @property
    def watermark(self) -> int:
        """The upstream's clock, nanoseconds."""
        return int(self.now.timestamp()) * 10**9

    def sweep(self, rule: Retention, needed: list[int]) -> Swept:
        with (
            patch.object(retention, "needed_points", lambda *_: needed),
            patch.object(self.history, "watermark", lambda: self.watermark + self.lsn),
        ):
            swept = retention.sweep(
                self.history,
                self.ledger,
                self.quarantine,
                self.mirror,
                rule,
                0.0,
                confirm=lambda: None,
                grace_seconds=GRACE_SECONDS,
            )
        for lsn in self.contents.keys() - {point.lsn for point in self.history.global_points()}:
            self.dropped.setdefault(lsn, self.now)
        if self.contents:
            self.publish_head()
        return swept

    def must_stay(self, rule: Retention, needed: list[int]) -> set[int]:
        """Points, by what the options promise."""
        present = sorted(self.contents.keys() - self.dropped.keys())
        if not present or not (rule.points or rule.seconds):
            return set(present)
        late = self.quarantine.behind(present[-1]).values()
        start = self.now - timedelta(seconds=rule.seconds)
        ends = {
            lsn: self.committed[later] for lsn, later in itertools.pairwise(present)
        }  # until when a point was the newest
        return {
            lsn
            for place, lsn in enumerate(reversed(present))
            if place < max(rule.points, 1)
            or (rule.seconds and (lsn not in ends or ends[lsn] > start))
            or any(lsn >= other for other in [*needed, *(entry.lsn for entry in late if entry.lsn is not None)])
        }

    def check(self) -> None:
        """All that is readable is there; and so are the files of points that readers may still have open."""
        kept = {lsn for lsn in self.contents if lsn not in self.dropped}
        for lsn in kept:
            point = self.mirror.point(lsn)
            assert point.lsn == lsn
            shown = {ref.table_id: self.mirror.manifest(ref) for ref in point.tables.values()}
            assert {
                key: {entry.stats.name for entry in manifest.listed_objects()} for key, manifest in shown.items()
            } == {key: set(map(name_of, objects)) for key, objects in self.contents[lsn].items()}
        graced = {lsn for lsn, when in self.dropped.items() if (self.now - when).total_seconds() < GRACE_SECONDS}
        files = self.files("objects")
        for lsn in kept | graced:
            assert {name_of(number) for objects in self.contents[lsn].values() for number in objects} <= files

    def files(self, folder: str) -> set[str]:
        return {name.rpartition("/")[2] for name in self.mirror.store.names(folder)}

    def check_no_leak(self) -> None:
        """After all grace: nothing but what points that stay need."""
        kept = {lsn for lsn in self.contents if lsn not in self.dropped}
        assert self.files("objects") == {
            name_of(n) for lsn in kept for objects in self.contents[lsn].values() for n in objects
        }
        refs = {ref.manifest for lsn in kept for ref in self.mirror.point(lsn).tables.values()}
        assert set(self.mirror.store.names("manifests")) == refs
        assert self.ledger.garbage() == set()
        assert {stored.name for stored in self.ledger.stored_objects()} == self.files("objects")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> sa.Engine:
    return open_database(f"sqlite:///{tmp_path_factory.mktemp('catalog')}/catalog.db")


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    events=st.lists(EVENTS, min_size=3, max_size=18),
    rule=st.builds(Retention, st.integers(0, 4), st.sampled_from([0, HOUR // 2, 3 * HOUR])),
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
    for event in events:
        if isinstance(event, dict):
            replica.commit(event, behind if data.draw(st.booleans()) else set())
        elif isinstance(event, int):
            replica.now += timedelta(seconds=event)
        else:
            present = sorted(replica.contents.keys() - replica.dropped.keys())
            needed = data.draw(st.lists(st.sampled_from(present), max_size=1)) if present else []
            stays = replica.must_stay(rule, needed)
            replica.sweep(rule, needed)
            assert stays == replica.contents.keys() - replica.dropped.keys()
        replica.check()
    for hours in (0, 2):
        replica.now += timedelta(hours=hours)
        replica.sweep(rule, [])
        replica.check()
    if replica.contents:
        replica.sweep(rule, [])
        replica.now += timedelta(hours=2)
        replica.sweep(Retention(), [])
        replica.check_no_leak()


def point(lsn: int) -> GlobalPoint:
    return GlobalPoint(lsn, Timestamp(lsn), f"xr_{lsn}", NOW + timedelta(minutes=lsn), "", 0, 0, 0)


def test_retention_keeps_the_newest_point_that_shows_a_table_which_is_behind() -> None:
    points = [point(lsn) for lsn in range(10)]
    rule = Retention(points=2)
    assert rule.oldest_kept(points, 0) == 8
    assert (
        rule.oldest_kept(
            points, 0, [LaggingTable("db", "t", 5), LaggingTable("db", "u", 9), LaggingTable("db", "new", None)]
        )
        == 5
    )
    assert Retention().oldest_kept(points, 0, [LaggingTable("db", "t", 5)]) is None
