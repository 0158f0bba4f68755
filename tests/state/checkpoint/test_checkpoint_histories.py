"""Generated histories of a checkpoint: saved, frozen, flushed (well, in part, failed, killed, with a lost answer),
rolled back, crashed, deleted. In memory, in SQLite and in MariaDB.

It is compared with three models. *Locations*, by the rules of docs/requirements.md C. *Work*: what the upstream has
changed and when, and what was done, as a table of the target shows that is written in the transaction of the flush; no
point may claim more than that. And what another process reads.
"""

import contextlib
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ccpr.state.checkpoint.checkpoint import Checkpoint, DescribedTable
from ccpr.state.checkpoint.checkpoint_store import NOWHERE, Location
from ccpr.state.database import create_engine
from ccpr.state.errors import CheckpointNotLoaded, CheckpointUnknown, StateUnavailable
from ccpr.state.tables import checkpoints
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.integration

TABLES = (1, 2, 3, 4)
SOME = st.sets(st.sampled_from(TABLES))
MOST = SOME.map(lambda some: set(TABLES) - some)
RARE = ("interrupt", "interrupt", "interrupt", "set otherwise", "set otherwise", "drop")
_done = sa.Table(
    "done",
    sa.MetaData(),
    sa.Column("run", sa.String(36), primary_key=True),
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("lsn", sa.BigInteger, nullable=False),
)


class Broken(Exception):
    """What fails in the middle of a flush."""


@dataclass
class Account:
    """Locations by the rules: C2, C3, C4."""

    flushed: dict[int, Location] = field(default_factory=dict)
    saved: dict[int, Location] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    flushed_all: Location = NOWHERE
    saved_all: Location = NOWHERE
    frozen: dict[int, tuple[dict[int, Location], Location]] = field(default_factory=dict)

    def waiting(self, points: dict[int, Location] | None = None) -> dict[int, Location]:
        """Of the saved points, or of others, those that are still to be flushed."""
        again, points = self.touched & self.unfinished, self.saved if points is None else points
        return {table: at for table, at in points.items() if at != self.flushed.get(table) or table in again}

    def flush(self, number: int, acks: set[int], gone: set[int]) -> None:
        tables, all_tables = self.frozen[number]
        for table, at in self.waiting(tables).items():  # an earlier snapshot may have had the same point
            if table in gone:
                continue
            if table in acks:
                self.flushed[table] = at
                if at >= all_tables:
                    self.unfinished.discard(table)
            else:
                self.flushed[table] = max(self.flushed.get(table, NOWHERE), self.flushed_all)
                self.unfinished.add(table)
        self.delete(gone)
        self.touched -= acks
        self.flushed_all = min([all_tables, *(self.flushed[table] for table in self.unfinished)])
        self.frozen = {later: what for later, what in self.frozen.items() if later > number}

    def delete(self, tables: set[int]) -> None:
        for table in tables:
            self.flushed.pop(table, None)
            self.saved.pop(table, None)
            for frozen, _ in self.frozen.values():
                frozen.pop(table, None)
        self.unfinished -= tables
        self.touched -= tables

    def rollback(self) -> None:
        self.saved, self.saved_all, self.frozen, self.touched = dict(self.flushed), self.flushed_all, {}, set()


class Histories(RuleBasedStateMachine):
    """The caller is a correct one: what it saves is every table with changes that it does not know to be done."""

    engine: sa.Engine  # set by the test

    @initialize()
    def begin(self) -> None:
        self.id = str(uuid.uuid4())
        self.lsn = 0
        self.changes: dict[int, set[int]] = {table: set() for table in TABLES}  # upstream's, by table: lsns
        self.done: dict[int, int] = {}
        self.leaves: Location | None = None
        self.forced = False
        self.account = Account()
        self.checkpoint = self.fresh()

    def fresh(self) -> Checkpoint:
        checkpoint = Checkpoint(self.engine, self.id)
        checkpoint.load()
        return checkpoint

    @property
    def now(self) -> Location:
        return Location(self.lsn, 10 * self.lsn)

    # The rules are few and each has its ways: they are drawn alike, and a history in which nothing is flushed shows
    # little.

    @rule(changed=MOST, retried=MOST, stops=st.sampled_from((False, False, False, True)))
    def save(self, changed: set[int], retried: set[int], stops: bool) -> None:
        """The upstream changes tables. Each that has changed since it was saved is saved, and those unfinished ones
        that are tried again; then the global point, unless the caller stops before.
        """
        self.lsn += 1
        for table in changed:
            self.changes[table].add(self.lsn)
        for table in TABLES:
            begun = max(self.account.saved.get(table, NOWHERE), self.checkpoint.reached(table)).lsn
            behind = any(lsn > begun for lsn in self.changes[table]) or table in (retried & self.account.unfinished)
            if behind and self.now >= self.account.saved_all:
                self.checkpoint.save_table_point(
                    table, self.now, schema="db", name=f"t{self.lsn}", info={"lsn": self.lsn}
                )
                self.account.saved[table] = self.now
                self.account.touched.add(table)
                if stops:
                    return
        if self.now >= self.account.saved_all:
            self.checkpoint.save_global_point(self.now)
            self.account.saved_all = self.now

    def force(self, back: int) -> None:
        location = Location(max(self.account.flushed_all.lsn - back, 0), 0)
        self.checkpoint.save_global_point_forced(location)
        self.account.saved_all, self.account.frozen = location, {}
        self.forced = True

    @rule(forced=st.booleans())
    def snapshot(self, forced: bool) -> None:
        number, waiting = self.checkpoint.snapshot(forced=forced), self.account.waiting()
        if number is None:
            assert not forced
            assert not waiting
            assert self.account.saved_all == self.account.flushed_all
        else:
            self.account.frozen[number] = (waiting, self.account.saved_all)

    def some_snapshot(self, data: st.DataObject) -> int:
        if not self.account.frozen:
            self.snapshot(forced=True)
        return data.draw(st.sampled_from(sorted(self.account.frozen)))

    @rule(data=st.data(), failed=SOME, gone=st.sets(st.sampled_from(TABLES), max_size=1))
    def flush(self, data: st.DataObject, failed: set[int], gone: set[int]) -> None:
        number = self.some_snapshot(data)
        acks = set(TABLES) - failed - gone
        assert self.checkpoint.flush(number, acks, [self.work(number, acks)], gone=gone) == self.flushed(
            number, acks, gone
        )

    @rule(data=st.data(), way=st.sampled_from(("fails", "is killed", "has no answer")), failed=SOME)
    def flush_badly(self, data: st.DataObject, way: str, failed: set[int]) -> None:
        """Failed after the work was written, by an error or because the server ended the connection: nothing of it has
        been. Or committed, and the connection was lost before the answer came.
        """
        number = self.some_snapshot(data)
        acks = set(TABLES) - failed
        if way == "has no answer":
            with losing_the_answer(self.engine), pytest.raises(CheckpointUnknown):
                self.checkpoint.flush(number, acks, [self.work(number, acks)])
            self.flushed(number, acks, set())
            with pytest.raises(CheckpointNotLoaded):
                self.checkpoint.snapshot()
            self.checkpoint.load()
            self.restart()
        else:
            with pytest.raises((Broken, StateUnavailable)):
                self.checkpoint.flush(
                    number, acks, [self.work(number, acks), self.kill if way == "is killed" else self.fail]
                )

    def flushed(self, number: int, acks: set[int], gone: set[int]) -> Location:
        for table, lsn in self.worked(number, acks).items():
            self.done[table] = max(self.done.get(table, -1), lsn)
        self.account.flush(number, acks, gone)
        self.forget(gone)
        self.forced = self.account.saved_all < self.account.flushed_all
        if self.leaves and self.leaves <= self.account.flushed_all:
            self.leaves = None
        return self.account.flushed_all

    def worked(self, number: int, acks: set[int]) -> dict[int, int]:
        return {table: at.lsn for table, at in self.account.frozen[number][0].items() if table in acks}

    def work(self, number: int, acks: set[int]) -> Callable[[sa.Connection], None]:
        """The data, which has to share the fate of the points."""
        rows = [{"run": self.id, "table_id": table, "lsn": lsn} for table, lsn in self.worked(number, acks).items()]

        def write(connection: sa.Connection) -> None:
            for row in rows:
                connection.execute(_done.delete().where(_done.c.run == self.id, _done.c.table_id == row["table_id"]))
                connection.execute(
                    _done.insert().values({**row, "lsn": max(row["lsn"], self.done.get(row["table_id"], -1))})
                )

        return write

    def fail(self, connection: sa.Connection) -> None:
        raise Broken

    def kill(self, connection: sa.Connection) -> None:
        if connection.dialect.name == "sqlite":
            raise Broken
        connection.exec_driver_sql("KILL CONNECTION_ID()")

    @rule(data=st.data(), what=st.sampled_from(RARE))
    def something_rare(self, data: st.DataObject, what: str) -> None:
        if what == "interrupt":
            self.interrupt(data.draw(st.sampled_from(("rollback", "crash", "load", "discard"))))
        elif what == "drop":
            self.drop(
                data.draw(st.sampled_from(("table", "table", "table", "schema", "all", "clear"))),
                data.draw(st.sampled_from(TABLES)),
            )
        else:
            way = data.draw(st.sampled_from(("force", "restate", "safe mode", "safe mode")))
            self.set_otherwise(way, data.draw(st.integers(0, 3)), data.draw(st.booleans()))

    def interrupt(self, way: str) -> None:
        if way == "discard":
            self.checkpoint.discard_pending_snapshots()
            self.account.frozen = {}
            return
        if way == "rollback":
            self.checkpoint.rollback()
        elif way == "load":
            self.checkpoint.load()
        else:
            self.checkpoint = self.fresh()
        self.restart()

    def restart(self) -> None:
        self.account.rollback()
        self.forced = False
        self.leaves = self.checkpoint.safe_mode_exit_point()

    def drop(self, way: str, table: int) -> None:
        ways = {
            "table": lambda: self.checkpoint.delete_table_point(table),
            "schema": lambda: self.checkpoint.delete_schema_points("db"),
            "all": self.checkpoint.delete_all_table_points,
            "clear": self.checkpoint.clear,
        }
        ways[way]()
        dropped = {table} if way == "table" else set(TABLES)
        self.account.delete(dropped)
        self.forget(dropped)
        if way == "clear":
            self.account, self.forced, self.leaves = Account(), False, None

    def forget(self, tables: set[int]) -> None:
        for table in tables:
            self.changes[table] = set()

    def set_otherwise(self, way: str, number: int, alone: bool) -> None:
        if way == "force":
            self.force(number + 1)
        elif way == "restate":
            table = TABLES[number]
            self.checkpoint.flush_table_schemas([DescribedTable(table, "db", f"T{self.lsn}", {"again": True})])
            self.account.flushed.setdefault(table, self.account.flushed_all)
            self.account.saved.setdefault(table, self.account.flushed_all)
        else:
            location = Location(self.lsn + number, 0)
            self.checkpoint.save_safe_mode_exit_point(location)
            self.leaves = location if location > self.account.flushed_all else None
            if alone:
                self.checkpoint.flush_safe_mode_exit_point()

    # ---- what holds after each step

    @invariant()
    def locations_are_by_the_rules(self) -> None:
        saved, flushed = self.checkpoint.table_points(), self.checkpoint.flushed_table_points()
        assert {table: point.location for table, point in saved.items()} == self.account.saved
        assert {table: point.location for table, point in flushed.items()} == self.account.flushed
        assert self.checkpoint.unfinished_tables() == self.account.unfinished
        assert (self.checkpoint.global_point(), self.checkpoint.flushed_global_point()) == (
            self.account.saved_all,
            self.account.flushed_all,
        )
        assert self.checkpoint.safe_mode_exit_point() == self.leaves

    @invariant()
    def flushed_is_not_after_saved(self) -> None:
        saved, flushed = self.checkpoint.table_points(), self.checkpoint.flushed_table_points()
        assert all(point.location <= saved[table].location for table, point in flushed.items())
        assert self.forced or self.checkpoint.flushed_global_point() <= self.checkpoint.global_point()

    @invariant()
    def no_unfinished_table_is_before_the_global_point(self) -> None:
        flushed = self.checkpoint.flushed_table_points()
        assert all(
            self.checkpoint.flushed_global_point() <= flushed[table].location
            for table in self.checkpoint.unfinished_tables()
        )

    @invariant()
    def no_table_is_said_to_have_what_was_not_done(self) -> None:
        for table in TABLES:
            claimed, done = self.checkpoint.reached(table).lsn, self.done.get(table, -1)
            assert not [lsn for lsn in self.changes[table] if done < lsn <= claimed]

    @invariant()
    def another_process_reads_what_was_flushed(self) -> None:
        other = self.fresh()
        assert other.table_points() == other.flushed_table_points() == self.checkpoint.flushed_table_points()
        assert other.global_point() == self.checkpoint.flushed_global_point()
        assert other.unfinished_tables() == self.checkpoint.unfinished_tables()
        with self.engine.begin() as connection:
            rows = connection.execute(sa.select(_done.c.table_id, _done.c.lsn).where(_done.c.run == self.id)).all()
        assert dict(map(tuple, rows)) == self.done


@contextlib.contextmanager
def losing_the_answer(engine: sa.Engine) -> Iterator[None]:
    commit = engine.dialect.do_commit

    def do_commit(connection) -> None:
        commit(connection)
        raise (
            sqlite3.OperationalError("lost")
            if engine.dialect.name == "sqlite"
            else pymysql.err.OperationalError(2013, "lost")
        )

    engine.dialect.do_commit = do_commit
    try:
        yield
    finally:
        del engine.dialect.do_commit


def run(url: str, examples: int) -> None:
    engine = create_engine(url)
    checkpoints.create(engine)
    _done.create(engine)

    class Here(Histories):
        pass

    Here.engine = engine
    checks = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.reuse, Phase.generate),  # 25 steps can be read; to shrink them takes longer than a test may
    )
    try:
        run_state_machine_as_test(Here, settings=checks)
    finally:
        engine.dispose()


def test_histories_in_memory() -> None:
    run("sqlite://", 150)


def test_histories_in_sqlite(tmp_path: Path) -> None:
    run(f"sqlite:///{tmp_path}/target.db", 30)


def test_histories_in_mariadb(mariadb: MariaDb) -> None:
    mariadb.create_database("checkpoint_histories")
    run(mariadb.url("checkpoint_histories"), 30)
