"""Checkpoints, rule by rule of docs/requirements.md C1 to C10; random histories: `test_checkpoint_histories`."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ccpr.matrixone.schema import Table
from ccpr.state.checkpoint.checkpoint import Checkpoint, DescribedTable
from ccpr.state.checkpoint.checkpoint_store import NOWHERE, Location
from ccpr.state.database import create_engine
from ccpr.state.errors import (
    CheckpointNotLoaded,
    CheckpointSnapshotMissing,
    CheckpointUnknown,
    PointTooOld,
    StateUnavailable,
    StateUnreadable,
)
from ccpr.state.tables import checkpoints
from tests.support.mariadb import MariaDb
from tests.support.values import a_table

pytestmark = pytest.mark.integration

ID = "00000000-0000-4000-8000-000000000001"
A, B, C = 11, 12, 13


def at(lsn: int) -> Location:
    return Location(lsn, 1_000 * (lsn + 1))


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/target.db")
    checkpoints.create(engine, checkfirst=True)
    yield engine
    engine.dispose()


@pytest.fixture
def fresh(engine: sa.Engine, clock: Clock) -> Callable[[], Checkpoint]:
    """A checkpoint as a new process has it."""

    def load() -> Checkpoint:
        checkpoint = Checkpoint(engine, ID, clock)
        checkpoint.load()
        return checkpoint

    return load


@pytest.fixture
def checkpoint(fresh: Callable[[], Checkpoint]) -> Checkpoint:
    return fresh()


def save(checkpoint: Checkpoint, lsn: int, *table_ids: int) -> None:
    """What an iteration says before it works: the tables that change, and all together."""
    for table_id in table_ids:
        save_table(checkpoint, lsn, table_id)
    checkpoint.save_global_point(at(lsn))


def save_table(checkpoint: Checkpoint, lsn: int, table_id: int, name: str = "") -> None:
    checkpoint.save_table_point(table_id, at(lsn), schema="db", name=name or f"t{table_id}", info={"of": lsn})


def flush(checkpoint: Checkpoint, *acks: int, **options) -> Location:
    frozen = checkpoint.snapshot()
    assert frozen is not None
    return checkpoint.flush(frozen, acks, **options)


def refuse(connection: sa.Connection) -> None:
    raise ZeroDivisionError


def lose_the_answer(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next COMMIT happens, and its answer is lost."""
    commit = engine.dialect.do_commit

    def do_commit(connection) -> None:
        monkeypatch.undo()
        commit(connection)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(engine.dialect, "do_commit", do_commit)


def row_of(engine: sa.Engine, table_id: int) -> sa.Row:
    with engine.begin() as connection:
        return connection.execute(sa.select(checkpoints).where(checkpoints.c.table_id == table_id)).one()


# ---- C1


def test_c1_an_equal_or_newer_location_is_accepted_and_an_older_one_refused(checkpoint: Checkpoint) -> None:
    save(checkpoint, 3, A)
    save(checkpoint, 3, A)
    save(checkpoint, 4, A)
    with pytest.raises(PointTooOld):
        save_table(checkpoint, 3, A)
    with pytest.raises(PointTooOld):
        checkpoint.save_global_point(at(3))
    assert (checkpoint.global_point(), checkpoint.table_points()[A].location) == (at(4), at(4))


def test_c1_the_same_lsn_at_an_earlier_time_is_older(checkpoint: Checkpoint) -> None:
    checkpoint.save_global_point(Location(3, 20))
    with pytest.raises(PointTooOld):
        checkpoint.save_global_point(Location(3, 19))


def test_c1_a_finished_table_is_not_saved_before_the_global_point(checkpoint: Checkpoint) -> None:
    save(checkpoint, 4)
    with pytest.raises(PointTooOld):
        save_table(checkpoint, 3, A)


def test_c1_the_global_point_goes_back_by_force_and_takes_along_the_tables_without_a_later_one(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 3, A)
    flush(checkpoint, A)
    save(checkpoint, 5, B)
    flush(checkpoint, B)
    checkpoint.save_global_point_forced(at(2))
    assert checkpoint.flushed_global_point() == at(5), "nothing is stored by it"
    assert flush(checkpoint) == at(2)
    after = fresh()
    assert (after.reached(A), after.reached(B), after.reached(C)) == (at(3), at(5), at(2))


def test_c1_what_was_frozen_before_a_forced_return_is_not_flushed_after_it(checkpoint: Checkpoint) -> None:
    save(checkpoint, 5)
    frozen = checkpoint.snapshot()
    assert frozen is not None
    checkpoint.save_global_point_forced(at(2))
    with pytest.raises(CheckpointSnapshotMissing):
        checkpoint.flush(frozen, ())


# ---- C2


def test_c2_a_finished_table_goes_along_with_the_global_point_without_a_row_of_its_own(
    checkpoint: Checkpoint, engine: sa.Engine
) -> None:
    save(checkpoint, 1, A, B)
    flush(checkpoint, A, B)
    save(checkpoint, 2, A)
    flush(checkpoint, A)
    assert (row_of(engine, A).lsn, row_of(engine, B).lsn) == (2, 1)
    assert checkpoint.reached(B) == at(2)


def test_c2_an_unfinished_table_holds_the_global_point_while_others_move(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1, A, B)
    flush(checkpoint, A, B)
    save(checkpoint, 2, A, B)
    assert flush(checkpoint, A) == at(1)
    later = fresh()  # the next process knows it from the store alone
    assert later.unfinished_tables() == {B}
    save(later, 3, A)
    assert flush(later, A) == at(1)
    assert (later.reached(A), later.reached(B)) == (at(3), at(1))


def test_c2_a_table_that_fails_at_its_first_point_holds_the_global_point_where_it_was(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1)
    flush(checkpoint)
    save(checkpoint, 2, A)
    assert flush(checkpoint) == at(1)
    assert checkpoint.reached(A) == at(1)
    assert checkpoint.flushed_table_points()[A].info is None, "how it looked there nobody said"


def test_c2_a_table_that_has_caught_up_frees_the_global_point(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint)
    later = fresh()
    save(later, 2, A)
    assert flush(later, A) == at(2)
    assert fresh().unfinished_tables() == set()


def test_c2_a_table_that_caught_up_to_less_than_the_global_point_still_holds_it(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint)
    save_table(checkpoint, 2, A)
    save(checkpoint, 5)
    assert flush(checkpoint, A) == at(2)
    assert checkpoint.unfinished_tables() == {A}


def test_c2_an_acknowledgement_of_a_table_that_was_not_saved_again_finishes_nothing(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint)
    checkpoint.rollback()
    save(checkpoint, 2)
    assert flush(checkpoint, A) == NOWHERE
    assert checkpoint.unfinished_tables() == {A}


def test_c2_an_unfinished_table_that_is_at_the_very_point_can_be_finished(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, B)
    flush(checkpoint, B)
    save(checkpoint, 2, A)
    flush(checkpoint)
    checkpoint.rollback()
    checkpoint.save_table_point(
        A, at(1), schema="db", name=f"t{A}"
    )  # as it is; that it will be acknowledged is all that is new
    assert flush(checkpoint, A) == at(1)
    assert checkpoint.unfinished_tables() == set()


# ---- C3


def test_c3_there_is_no_snapshot_of_nothing_unless_it_is_forced(checkpoint: Checkpoint, engine: sa.Engine) -> None:
    assert checkpoint.snapshot() is None
    save(checkpoint, 1, A)
    flush(checkpoint, A)
    assert checkpoint.snapshot() is None
    forced = checkpoint.snapshot(forced=True)
    assert forced is not None
    assert checkpoint.flush(forced, ()) == at(1)


def test_c3_a_snapshot_is_of_its_moment(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    frozen = checkpoint.snapshot()
    assert frozen is not None
    save(checkpoint, 2, A, B)
    assert checkpoint.flush(frozen, {A, B}) == at(1)
    assert checkpoint.flushed_table_points().keys() == {A}
    assert checkpoint.table_points()[A].location == at(2)
    assert flush(checkpoint, A, B) == at(2)


def test_c3_tables_come_in_batches_of_100_and_the_global_point_last_in_one_transaction(
    checkpoint: Checkpoint, engine: sa.Engine
) -> None:
    seen = []
    for name in ("begin", "commit", "rollback"):
        sa.event.listen(engine, name, lambda connection, name=name: seen.append(name))
    ids = range(1, 251)
    save(checkpoint, 1, *ids)

    @sa.event.listens_for(engine, "before_cursor_execute")
    def record(connection, cursor, statement, parameters, context, many) -> None:
        if statement.startswith("INSERT INTO ccpr_checkpoints"):
            rows = context.compiled_parameters
            seen.append("global" if rows[0]["table_id"] == 0 else len(rows))
        elif not statement.startswith("BEGIN"):
            seen.append(statement)

    flush(checkpoint, *ids, extra_sql=[sa.text("SELECT 'extra'")])
    assert seen == ["begin", "SELECT 'extra'", 100, 100, 50, "global", "commit"]


def test_c3_an_extra_that_fails_undoes_all_and_the_snapshot_can_be_flushed_again(
    checkpoint: Checkpoint, engine: sa.Engine, fresh: Callable[[], Checkpoint]
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE kept (x INTEGER)")
    insert = sa.text("INSERT INTO kept VALUES (1)")
    save(checkpoint, 1, A)
    frozen = checkpoint.snapshot()
    assert frozen is not None
    with pytest.raises(ZeroDivisionError):
        checkpoint.flush(frozen, {A}, [insert, refuse])
    assert fresh().flushed_table_points() == checkpoint.flushed_table_points() == {}
    assert checkpoint.flush(frozen, {A}, [insert, lambda connection: None]) == at(1)
    with engine.begin() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM kept")) == 1


def test_c3_a_failure_after_the_tables_undoes_them(
    checkpoint: Checkpoint, engine: sa.Engine, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1, A)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON ccpr_checkpoints WHEN NEW.is_global "
            "BEGIN SELECT raise(ABORT, 'full'); END"
        )
    with pytest.raises(sa.exc.IntegrityError):
        flush(checkpoint, A)
    assert (fresh().flushed_table_points(), fresh().flushed_global_point()) == ({}, NOWHERE)
    assert (checkpoint.flushed_table_points(), checkpoint.flushed_global_point()) == ({}, NOWHERE)


def test_c3_a_point_that_an_earlier_snapshot_stored_needs_no_second_acknowledgement(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    first = checkpoint.snapshot()
    save(checkpoint, 2, B)
    second = checkpoint.snapshot()  # A is in both
    assert first is not None
    assert second is not None
    checkpoint.flush(first, {A})
    assert checkpoint.flush(second, {B}) == at(2)


def test_c3_a_snapshot_that_does_not_exist_is_an_error(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    older, newer = checkpoint.snapshot(), checkpoint.snapshot()
    assert older is not None
    assert newer is not None
    checkpoint.flush(newer, {A})
    for gone in (older, newer, 99):
        with pytest.raises(CheckpointSnapshotMissing):
            checkpoint.flush(gone, {A})
    save(checkpoint, 2, A)
    discarded = checkpoint.snapshot()
    checkpoint.discard_pending_snapshots()
    assert discarded is not None
    with pytest.raises(CheckpointSnapshotMissing):
        checkpoint.flush(discarded, {A})
    assert flush(checkpoint, A) == at(2), "what was saved stays saved"


def test_c3_schemas_are_stored_without_moving_a_location(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint, A)
    save(checkpoint, 2, A)
    frozen = checkpoint.snapshot()
    assert frozen is not None
    checkpoint.flush_table_schemas([DescribedTable(A, "db", "renamed", {"of": 9}), DescribedTable(B, "db", "new", {})])
    stored = fresh().flushed_table_points()
    assert (stored[A].location, stored[A].name, stored[A].info) == (at(1), "renamed", {"of": 9})
    assert (stored[B].location, fresh().flushed_global_point()) == (at(1), at(1))
    checkpoint.flush(frozen, {A})
    assert fresh().flushed_table_points()[A].name == "renamed", "an older snapshot does not bring the old name back"


def test_c3_a_row_keeps_the_time_of_its_making(checkpoint: Checkpoint, engine: sa.Engine, clock: Clock) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint, A)
    made = row_of(engine, A)
    clock.now += 60
    save(checkpoint, 2, A)
    flush(checkpoint, A)
    row = row_of(engine, A)
    assert (row.create_time, row.update_time > made.update_time, row.is_global) == (made.create_time, True, False)
    assert row_of(engine, 0).is_global


def test_c3_tables_that_are_gone_lose_their_point_in_the_same_transaction(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1, A, B)
    flush(checkpoint, A)
    save(checkpoint, 2)
    assert flush(checkpoint, gone={B}) == at(2), "and hold nothing back any more"
    assert fresh().flushed_table_points().keys() == checkpoint.table_points().keys() == {A}


# ---- C4


def test_c4_rollback_takes_back_what_was_not_flushed(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint, A)
    before = checkpoint.table_points()
    save(checkpoint, 2, B)
    save_table(checkpoint, 2, A, "other name")
    checkpoint.save_safe_mode_exit_point(at(9))
    frozen = checkpoint.snapshot()
    checkpoint.rollback()
    assert (checkpoint.table_points(), checkpoint.global_point(), checkpoint.safe_mode_exit_point()) == (
        before,
        at(1),
        None,
    )
    assert frozen is not None
    with pytest.raises(CheckpointSnapshotMissing):
        checkpoint.flush(frozen, {A, B})


# ---- C5


def test_c5_a_table_is_skipped_up_to_what_it_has_and_not_up_to_what_was_begun(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A, B)
    flush(checkpoint, A, B)
    save(checkpoint, 2, A, B)
    assert not checkpoint.is_older_than_table_point(A, at(2))
    flush(checkpoint, A)
    assert checkpoint.is_older_than_table_point(A, at(2))
    assert not checkpoint.is_older_than_table_point(A, at(3))
    assert not checkpoint.is_older_than_table_point(B, at(2))
    assert checkpoint.is_older_than_table_point(B, at(1))
    assert checkpoint.is_older_than_table_point(C, at(1)), "without a point of its own the global one counts"


# ---- C6


def test_c6_points_are_deleted_by_table_by_schema_and_all(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1, A, B, C)
    checkpoint.save_table_point(21, at(1), schema="DB", name="t")
    flush(checkpoint, A, B, C, 21)
    checkpoint.delete_table_point(A)
    assert checkpoint.table_points().keys() == fresh().table_points().keys() == {B, C, 21}
    checkpoint.delete_schema_points("db")
    assert checkpoint.table_points().keys() == fresh().table_points().keys() == {21}
    checkpoint.delete_all_table_points()
    assert checkpoint.table_points() == fresh().table_points() == {}
    assert checkpoint.global_point() == fresh().global_point() == at(1)
    checkpoint.clear()
    assert checkpoint.global_point() == fresh().global_point() == NOWHERE


def test_c6_another_id_keeps_its_points(checkpoint: Checkpoint, engine: sa.Engine) -> None:
    other = Checkpoint(engine, "other")
    other.load()
    save(other, 1, A)
    flush(other, A)
    save(checkpoint, 2, A)
    flush(checkpoint, A)
    checkpoint.clear()
    other.load()
    assert (other.global_point(), other.reached(A)) == (at(1), at(1))


@pytest.mark.parametrize(
    "delete",
    [
        lambda checkpoint: checkpoint.delete_table_point(A),
        lambda checkpoint: checkpoint.delete_schema_points("db"),
        lambda checkpoint: checkpoint.delete_all_table_points(),
        lambda checkpoint: checkpoint.clear(),
        lambda checkpoint: checkpoint.flush_table_schemas([DescribedTable(A, "db", "other", {})]),
        lambda checkpoint: checkpoint.check_and_update(["db"], [("db", "T11")]),
    ],
    ids=["table", "schema", "all", "clear", "schemas", "names"],
)
def test_c6_memory_follows_only_after_the_store(
    delete: Callable[[Checkpoint], None], checkpoint: Checkpoint, engine: sa.Engine
) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint, A)
    before = (checkpoint.table_points(), checkpoint.flushed_table_points(), checkpoint.global_point())
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE ccpr_checkpoints RENAME TO away")
    with pytest.raises(StateUnreadable):
        delete(checkpoint)
    assert (checkpoint.table_points(), checkpoint.flushed_table_points(), checkpoint.global_point()) == before


def test_c6_a_deleted_point_does_not_come_back_with_a_snapshot_that_was_frozen_before(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A, B)
    frozen = checkpoint.snapshot()
    assert frozen is not None
    checkpoint.delete_table_point(A)
    checkpoint.flush(frozen, {A, B})
    assert checkpoint.flushed_table_points().keys() == {B}


# ---- C7


def test_c7_safe_mode_ends_when_the_stored_global_point_has_reached_its_end(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1)
    flush(checkpoint)
    checkpoint.save_safe_mode_exit_point(at(3))
    assert fresh().safe_mode_exit_point() is None
    save(checkpoint, 2)
    flush(checkpoint)
    assert fresh().safe_mode_exit_point() == at(3), "with the global point"
    save(checkpoint, 3, A)
    flush(checkpoint)
    assert fresh().safe_mode_exit_point() == at(3), "the global point did not get there"
    save(checkpoint, 4, A)
    flush(checkpoint, A)
    assert checkpoint.safe_mode_exit_point() is None
    assert fresh().safe_mode_exit_point() is None


def test_c7_the_exit_point_is_stored_alone_without_moving_the_global_point(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save(checkpoint, 1)
    flush(checkpoint)
    save(checkpoint, 2)
    checkpoint.save_safe_mode_exit_point(at(3))
    checkpoint.flush_safe_mode_exit_point()
    assert (fresh().flushed_global_point(), fresh().safe_mode_exit_point()) == (at(1), at(3))
    checkpoint.save_safe_mode_exit_point(at(1))  # the begin: there is nothing to repeat
    checkpoint.flush_safe_mode_exit_point()
    assert fresh().safe_mode_exit_point() is None


# ---- C8


def test_c8_the_database_is_preferred_to_a_configured_start(checkpoint: Checkpoint, engine: sa.Engine) -> None:
    other = Checkpoint(engine, ID)
    other.load_meta(at(5))
    other.load()
    assert other.global_point() == other.flushed_global_point() == at(5)
    save(checkpoint, 2)
    flush(checkpoint)
    other.load()
    assert other.global_point() == at(2)


def test_c8_a_start_that_is_configured_after_load_counts_if_nothing_is_stored(checkpoint: Checkpoint) -> None:
    checkpoint.load_meta(at(5))
    assert checkpoint.reached(A) == at(5)
    save(checkpoint, 6)
    flush(checkpoint)
    checkpoint.load_meta(at(7))
    assert checkpoint.global_point() == at(6)
    checkpoint.clear()
    assert checkpoint.global_point() == at(7)


def test_c8_nothing_is_answered_before_it_was_read(engine: sa.Engine) -> None:
    checkpoint = Checkpoint(engine, ID)
    for use in (
        checkpoint.global_point,
        checkpoint.snapshot,
        checkpoint.rollback,
        checkpoint.clear,
        lambda: save(checkpoint, 1, A),
    ):
        with pytest.raises(CheckpointNotLoaded):
            use()


def test_c8_a_commit_without_an_answer_is_looked_up(
    checkpoint: Checkpoint, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoint, 1, A)
    frozen = checkpoint.snapshot()
    assert frozen is not None
    lose_the_answer(engine, monkeypatch)
    with pytest.raises(CheckpointUnknown):
        checkpoint.flush(frozen, {A})
    for use in (checkpoint.flushed_global_point, lambda: checkpoint.flush(frozen, {A}), lambda: save(checkpoint, 2)):
        with pytest.raises(CheckpointNotLoaded):
            use()
    checkpoint.load()
    assert (checkpoint.flushed_global_point(), checkpoint.reached(A)) == (at(1), at(1))


def test_c8_a_flush_is_outdated_after_a_while_and_by_a_clock_that_went_back(
    checkpoint: Checkpoint, clock: Clock
) -> None:
    assert checkpoint.last_flush_outdated(30), "it never flushed"
    save(checkpoint, 1)
    flush(checkpoint)
    assert not checkpoint.last_flush_outdated(30)
    clock.now += 31
    assert checkpoint.last_flush_outdated(30)
    clock.now -= 100
    assert checkpoint.last_flush_outdated(30)


class Tracker:
    def __init__(self) -> None:
        self.tables: dict[int, Table] = {}

    def track(self, table_id: int, table: Table) -> None:
        self.tables[table_id] = table


def test_c8_table_schemas_are_what_was_flushed(checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]) -> None:
    table = a_table(A, "t", columns="ab")
    checkpoint.save_table_point(
        A, at(1), schema="db", name="t", info={**table.to_json(), "erased": {"storage_policy": "cold"}}
    )
    checkpoint.save_table_point(B, at(1), schema="db", name="u")
    assert checkpoint.table_schema(A) is None
    save(checkpoint, 1)
    flush(checkpoint, A, B)
    later, tracker = fresh(), Tracker()
    later.save_table_point(A, at(2), schema="db", name="t", info=a_table(A, "t", columns="abc").to_json())
    later.load_into_schema_tracker(tracker)
    assert tracker.tables == {A: table}
    assert (later.table_schema(A), later.table_schema(B), later.table_schema(C)) == (table, None, None)
    info = later.flushed_table_points()[A].info
    assert info is not None
    assert info["erased"] == {"storage_policy": "cold"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": "x"}', "[" * 100_000, '{"id": 1e999}'])
def test_c8_a_description_that_was_damaged_is_reported(text: str, checkpoint: Checkpoint, engine: sa.Engine) -> None:
    save(checkpoint, 1, A)
    flush(checkpoint, A)
    with engine.begin() as connection:
        connection.execute(checkpoints.update().where(checkpoints.c.table_id == A).values(table_info=text))
    checkpoint.load()
    with pytest.raises(StateUnreadable):
        checkpoint.table_schema(A)
    tracker = Tracker()
    with pytest.raises(StateUnreadable):
        checkpoint.load_into_schema_tracker(tracker)
    assert tracker.tables == {}


@pytest.mark.parametrize("bound", ["engine", "connection"])
def test_c8_a_killed_connection_is_a_flush_that_never_was_and_the_next_goes_over_a_new_one(
    bound: str, mariadb: MariaDb
) -> None:
    name = f"checkpoint_{bound}"
    mariadb.create_database(name)
    engine = create_engine(mariadb.url(name))
    checkpoints.create(engine)
    with engine.connect() as connection:
        checkpoint = Checkpoint(engine if bound == "engine" else connection, ID)
        checkpoint.load()
        save(checkpoint, 1, A)
        frozen = checkpoint.snapshot()
        assert frozen is not None
        kill = sa.text("KILL CONNECTION_ID()")
        with pytest.raises(StateUnavailable):
            checkpoint.flush(frozen, {A}, [checkpoints.insert().values(_row(99)), kill])
        assert checkpoint.flushed_table_points() == {}
        checkpoint.reset_connection()
        assert checkpoint.flush(frozen, {A}) == at(1)
        checkpoint.load()
        assert (checkpoint.table_points().keys(), checkpoint.global_point()) == ({A}, at(1))
    engine.dispose()


def _row(table_id: int) -> dict[str, object]:
    now = sa.func.now()
    names = {"table_schema": "db", "table_name": "t", "is_finished": True, "is_global": False}
    return {"id": ID, "table_id": table_id, "lsn": 1, "snapshot_ts": 1, "create_time": now, "update_time": now, **names}


# ---- C9


def test_c9_letter_case_is_repaired_without_losing_a_point(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    table = a_table(A, "orders")
    checkpoint.save_table_point(A, at(1), schema="db", name="orders", info=table.to_json())
    save_table(checkpoint, 1, B, "right")
    save(checkpoint, 1)
    flush(checkpoint, A, B)
    save_table(checkpoint, 2, A, "orders")
    save_table(checkpoint, 2, C, "NEW")
    frozen = checkpoint.snapshot()
    assert frozen is not None
    assert checkpoint.check_and_update(["Db"], [("Db", "Orders"), ("Db", "right"), ("Db", "new")]) == 3
    stored = fresh().flushed_table_points()
    assert {table_id: (point.schema, point.name, point.location) for table_id, point in stored.items()} == {
        A: ("Db", "Orders", at(1)),
        B: ("Db", "right", at(1)),
    }
    schema = fresh().table_schema(A)
    assert schema is not None
    assert schema.qualified_name == "Db.Orders"
    assert checkpoint.table_points()[C].name == "new"
    checkpoint.flush(frozen, {A, C})
    assert fresh().flushed_table_points()[A].name == "Orders", "an older snapshot does not bring the old spelling back"


def test_c9_a_name_of_which_it_is_not_certain_stays(checkpoint: Checkpoint) -> None:
    for table_id, name in ((A, "tt"), (B, "TT"), (C, "xX")):
        save_table(checkpoint, 1, table_id, name)
    assert checkpoint.check_and_update(["db"], [("db", "TT"), ("db", "XX"), ("db", "xx"), ("other", "xX")]) == 0
    assert [point.name for point in checkpoint.table_points().values()] == ["tt", "TT", "xX"]


def test_c9_two_tables_that_swap_their_names_keep_their_points(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]
) -> None:
    save_table(checkpoint, 1, A, "a")
    save_table(checkpoint, 2, B, "b")
    flush(checkpoint, A, B)
    save_table(checkpoint, 3, A, "b")
    save_table(checkpoint, 4, B, "a")
    flush(checkpoint, A, B)
    found = fresh().flushed_table_points()
    assert [(found[A].name, found[A].location), (found[B].name, found[B].location)] == [("b", at(3)), ("a", at(4))]


# ---- C10


def test_c10_the_lock_is_free_after_every_failure(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    with pytest.raises(CheckpointSnapshotMissing):
        checkpoint.flush(99, {A})
    frozen = checkpoint.snapshot()
    assert frozen is not None
    with pytest.raises(ZeroDivisionError):
        checkpoint.flush(frozen, {A}, [refuse])
    with pytest.raises(TypeError):
        checkpoint.save_table_point(B, at(1), schema="db", name="t", info={"a set is no JSON": set()})
    with pytest.raises(PointTooOld):
        save(checkpoint, 0)
    done = threading.Event()
    threading.Thread(target=lambda: (save(checkpoint, 2, B), done.set()), daemon=True).start()
    assert done.wait(60)


def test_c10_what_runs_inside_a_flush_can_look_at_the_points_and_others_wait(checkpoint: Checkpoint) -> None:
    save(checkpoint, 1, A)
    seen = []
    began = threading.Event()

    def other() -> None:
        began.set()
        seen.append(checkpoint.flushed_global_point())

    thread = threading.Thread(target=other)

    def look(connection: sa.Connection) -> None:
        seen.append(checkpoint.flushed_global_point())
        thread.start()
        began.wait()

    flush(checkpoint, A, extra_sql=[look])
    thread.join()
    assert seen == [NOWHERE, at(1)], "half a flush is seen by nobody"


def test_c10_only_the_acknowledged_move(checkpoint: Checkpoint, fresh: Callable[[], Checkpoint]) -> None:
    save(checkpoint, 1, A, B, C)
    flush(checkpoint, B, 999)
    later = fresh()
    assert [later.reached(table_id) for table_id in (A, B, C)] == [NOWHERE, at(1), NOWHERE]
    assert 999 not in later.table_points()


def test_descriptions_that_are_not_read_stay_as_they_are_stored(
    checkpoint: Checkpoint, fresh: Callable[[], Checkpoint], engine: sa.Engine, clock: Clock
) -> None:
    for table in (A, B):
        checkpoint.save_table_point(table, at(1), schema="db", name=f"t{table}", info={"of": table})
    checkpoint.save_global_point(at(1))
    checkpoint.flush(checkpoint.snapshot() or 0, [A, B])
    other = Checkpoint(engine, ID, clock)
    other.load(described=False)
    with pytest.raises(CheckpointNotLoaded):
        _ = other.flushed_table_points()[A].info
    other.save_table_point(A, at(2), schema="db", name="renamed")
    other.save_table_point(B, at(2), schema="db", name="t", info={"of": "another"})
    other.save_global_point(at(2))
    other.flush(other.snapshot() or 0, [B])
    stored = fresh()
    found = {number: (point.location, point.name, point.info) for number, point in stored.table_points().items()}
    assert found == {A: (at(1), f"t{A}", {"of": A}), B: (at(2), "t", {"of": "another"})}
    assert stored.unfinished_tables() == {A}
    other.flush(other.snapshot(forced=True) or 0, [A])
    assert fresh().table_points()[A].info == {"of": A}
