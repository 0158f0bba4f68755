"""A database as a destination: the contract, and what only a database does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from ccpr.state.checkpoint.checkpoint_store import NOWHERE, Location
from ccpr.targets.base import Applied, LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import (
    TargetBusy,
    TargetDenied,
    TargetTableUnknown,
)
from tests.targets.contract import Contract, Interrupted, Row, state_at
from tests.targets.history import FIRST, Statements, keys, rows
from tests.targets.target_database import Part, Place, load_part

pytestmark = pytest.mark.integration


class DatabaseScene:
    table_id = 1
    reads_old_points = False
    shares_its_place = True
    locks_out_others = True
    stride = 1

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lock_seconds = 0.2

    def session(self) -> DatabaseTarget:
        return self.place.target(lock_seconds=self.lock_seconds)

    @contextmanager
    def breaking(self, number: int, *, after: bool) -> Iterator[Callable[[], bool]]:
        self.lock_seconds = 10.0  # the server may be a moment behind
        with Statements(number, after=after, lost=True) as statements:
            yield lambda: statements.count > number

    def bring(self, destination: DatabaseTarget, lsn: int, *, cut: bool = False) -> bool:
        reached = destination.points().get(self.table_id)
        before = state_at(reached.lsn) if reached is not None else {}
        after = state_at(lsn)
        changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
        part = Part(rows(list(changed), list(changed.values())), keys(*(key for key in before if key not in after)))

        def parts() -> Iterator[Part]:
            yield part
            if cut:
                raise Interrupted

        if self.table_id not in destination.points():
            loads = [LoadPart("all", lambda: (one.upserts for one in parts()))]
            done = destination.create(self.place.table(FIRST), loads, self.location(lsn))
        else:
            done = destination.apply(self.table_id, parts(), self.location(lsn))
        return not done.skipped

    def bring_older(self, destination: DatabaseTarget, lsn: int) -> None:
        self.bring(destination, lsn)

    def location(self, lsn: int) -> Location:
        return Location(lsn, 1000 * (lsn + 1))

    def rows(self, lsn: int | None = None) -> list[Row]:
        if lsn is not None:
            raise NotImplementedError("a database has the newest rows only")
        return sorted(self.place.rows("t"))

    def bystander(self) -> Callable[[], bool]:
        self.place.query("CREATE TABLE t (theirs int)")
        self.place.query("INSERT INTO t VALUES (1)")
        self.place.query("COMMIT")
        return lambda: self.place.rows("t") == [(1,)]


class TestDatabase(Contract):
    @pytest.fixture
    def scene(self, place: Place) -> DatabaseScene:
        return DatabaseScene(place)


def test_the_programs_tables_compare_names_byte_for_byte_whatever_the_database_does(place: Place) -> None:
    place.query("ALTER DATABASE CHARACTER SET latin1")
    place.target().open()
    found = place.query(
        "SELECT table_name, engine, table_collation FROM information_schema.tables WHERE table_schema = DATABASE()"
    )
    assert {name for name, *_ in found} == {
        "ccpr_checkpoints", "ccpr_intents", "ccpr_load_parts", "ccpr_loads", "ccpr_registry",
    }  # fmt: skip
    assert {tuple(rest) for _, *rest in found} == {("InnoDB", "utf8mb4_bin")}


def test_missing_rows_are_reported_but_not_in_safe_mode(place: Place, live: DatabaseTarget):
    assert live.apply(1, [Part(rows([], []), keys(2, 77))], Location(1, 20)) == Applied(deleted=2, missing=1)
    live.begin(Location(2, 30))
    live.close()  # without advance: unclean
    live.open()
    assert live.safe_mode_until() == Location(2, 30)
    assert live.apply(1, [Part(rows([], []), keys(78))], Location(2, 30)) == Applied(deleted=1)
    live.advance(Location(2, 30))
    assert live.safe_mode_until() is None
    live.close()
    live.open()
    assert live.apply(1, [Part(rows([], []), keys(79))], Location(3, 40)).missing == 1


def test_tables_behind_hold_the_global_point_back(place: Place, live: DatabaseTarget):
    live.create(place.table(FIRST.replace("`t`", "`s`"), 2), [], Location(0, 10))
    assert live.advance(Location(0, 10)) == Location(0, 10)
    live.apply(1, [], Location(1, 20))
    assert live.advance(Location(1, 20), behind=[2]) == Location(0, 10)
    live.close()
    live.open()
    assert live.points() == {1: Location(1, 20), 2: Location(0, 10)}
    live.apply(2, [], Location(1, 20))
    assert live.advance(Location(1, 20)) == Location(1, 20)


def test_an_interrupted_load_goes_on_with_the_missing_pieces(place: Place):
    read: list[str] = []

    def piece(key: str, problem: bool = False) -> LoadPart:
        def give() -> Iterator[pa.Table]:
            read.append(key)
            yield rows([int(key)], [key])
            if problem:
                raise Interrupted

        return LoadPart(key, give)

    with place.target(connections=1) as target:
        with pytest.raises(Interrupted):
            target.create(place.table(FIRST), [piece("1"), piece("2", True), piece("3")], Location(0, 10))
        assert target.tables()[1].loading == Location(0, 10)
        assert place.query("SHOW TABLES LIKE 't'") == []
        done = target.create(place.table(FIRST), [piece("1"), piece("2"), piece("3")], Location(0, 10))
        assert (done.upserted, done.parts, done.parts_skipped) == (2, 2, 1)
        assert read == ["1", "2", "2", "3"]
        assert place.rows("t") == [(1, "1"), (2, "2"), (3, "3")]
        with pytest.raises(Interrupted):
            target.create(place.table(FIRST, 2), [piece("4"), piece("5", True)], Location(1, 20), replaces=[1])
        assert place.rows("t") == [(1, "1"), (2, "2"), (3, "3")]
        # Another point: from the start.
        done = target.create(place.table(FIRST, 2), [piece("6")], Location(2, 30), replaces=[1])
        assert place.rows("t") == [(6, "6")]
        assert target.points() == {2: Location(2, 30)}


def test_a_table_without_key_has_its_hidden_one(place: Place):
    key = pa.decimal128(20, 0)
    with place.target() as target:
        table = place.table("CREATE TABLE `k` (`a` int DEFAULT NULL)")
        made = pa.table({"a": pa.array([1, 1, None], pa.int32()), "__mo_fake_pk_col": pa.array([1, 2, 3], key)})
        target.create(table, [LoadPart("all", lambda: [made])], Location(0, 10))
        assert place.rows("k") == [(1,), (1,), (None,)]
        gone = pa.table({"__mo_fake_pk_col": pa.array([2], key)})
        assert target.apply(1, [Part(made.slice(0, 0), gone)], Location(1, 20)).missing == 0
        assert place.rows("k") == [(1,), (None,)]


def test_a_released_table_is_ordinary_and_not_touched(place: Place, live: DatabaseTarget):
    assert live.release(1) == ()
    assert "is_being_synced" not in place.query("SHOW CREATE TABLE t")[0][1]
    with pytest.raises(TargetTableUnknown):
        live.apply(1, [], Location(1, 20))
    live.drop([1])
    assert place.rows("t") == [(1, "a"), (2, None)]
    assert live.tables() == {}


def test_another_subscription_writes_to_the_same_database(place: Place, live: DatabaseTarget):
    with place.target("other", lock_seconds=0.2) as other:
        other.create(place.table(FIRST.replace("`t`", "`u`")), [load_part([5], ["x"])], Location(7, 70))
        assert other.points() == {1: Location(7, 70)}
        with pytest.raises(TargetBusy):
            place.target("other", lock_seconds=0.1).open()
    assert live.points() == {1: Location(0, 10)}
    assert live.global_point() == NOWHERE


def test_a_wrong_password_is_an_error_without_it(place: Place):
    with pytest.raises(TargetDenied) as caught:
        DatabaseTarget(place.address, "secret-word", "task").open()
    assert "secret-word" not in str(caught.value)


def test_a_load_that_is_split_into_other_pieces_starts_again(place: Place) -> None:
    def fail() -> list[pa.Table]:
        raise RuntimeError("the power went")

    with place.target(connections=1) as target, pytest.raises(RuntimeError, match="power"):
        target.create(
            place.table(FIRST), [load_part([1, 2], ["a", "b"], "one"), LoadPart("other", fail)], Location(0, 10)
        )
    assert place.query("SELECT part, row_count FROM ccpr_load_parts") == [("one", 2)]
    with place.target() as target:
        done = target.create(
            place.table(FIRST),
            [load_part([1], ["a"], "first"), load_part([2, 3], ["b", "c"], "second")],
            Location(0, 10),
        )
    assert (done.parts, done.parts_skipped) == (2, 0)
    assert [row[0] for row in place.rows("t")] == [1, 2, 3]
