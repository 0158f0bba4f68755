"""Databases with partitioned tables: parent and partitions are one table to readers, at every point
(decision partitioned-tables)."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from ccpr.matrixone.schema import Table
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.driver import reach
from ccpr.pipeline.step_names import Stage
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.definitions import renamed_column
from ccpr_emulator.engine.partitioning import Part, Partitioning, by_hash
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import SimulatedSource, rows

COLUMNS = {"id": "int not null", "v": "varchar(20)"}
TABLES = {
    "hashed": by_hash("id", 3),
    "ranged": Partitioning("range", "id", (Part("low", (10,)), Part("mid", (20,)), Part("high"))),
    "listed": Partitioning("list", "id", (Part("odd", (1, 3, 5, 7)), Part("even", (2, 4, 6, 8)))),
    "keyless": by_hash("id", 2),
    "plain": None,
}


class Source(SimulatedSource):
    def insert(self, table: str, *ids: int) -> None:
        _, text, *_ = self.storage.table("d", table).definition.user_columns
        with self.storage.begin() as transaction:
            transaction.insert("d", table, {"id": list(ids), text.name: [f"v{number}" for number in ids]})

    def delete(self, table: str, *ids: int) -> None:
        with self.storage.begin() as transaction:
            transaction.delete("d", table, pc.field("id").isin(list(ids)))

    def run(self) -> Any:
        return command("run", "s")

    def tables(self) -> set[str]:
        return {info.name for info in self.mirror().tables() if info.kind == "table"}

    def assert_equal_at_every_point(self) -> None:
        for point in Mirror(open_store(str(self.mirror_folder()))).points():
            for _, definition in self.storage.tables_at(point.at):
                found = self.mirror().table(f"d.{definition.name}", at=point.lsn).to_arrow()
                true = self.storage.rows_at("d", definition.name, point.at)
                assert rows(found) == rows(true), (definition.name, point.lsn)


@pytest.fixture
def source(home: Path) -> Iterator[Source]:
    storage = Storage()
    storage.create_database("d")
    for name, partitioning in TABLES.items():
        key = [] if name == "keyless" else ["id"]
        storage.create_table("d", name, COLUMNS, primary_key=key, partitioning=partitioning)
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage, password="111") as emulator:
        made = Source(storage, emulator, home, "d")
        for name in TABLES:
            made.insert(name, 1, 2, 3, 4)
        yield made


def test_a_database_with_partitioned_tables_is_replicated_as_it_is(source: Source) -> None:
    source.subscribe()
    assert source.run()["point"]
    assert source.tables() == {f"d.{name}" for name in TABLES}
    for name in TABLES:
        source.insert(name, 5, 6)
        source.delete(name, 1)
    source.insert("ranged", 15, 25)
    assert source.run()["point"]
    while source.run()["point"]:
        pass
    source.assert_equal_at_every_point()
    upstream = {name for _, name in source.storage.snapshots}
    assert set(command("status", "s")["snapshots"]) == upstream, "it names those that there are"


def run_to_the_end(source: Source) -> None:
    """Until nothing is left to flush."""
    while source.run()["point"]:
        pass


def test_partitions_come_go_and_are_emptied(source: Source) -> None:
    source.subscribe()
    source.run()
    before = {part.id for part in tables_of(source)["ranged"].partitions}
    storage = source.storage
    storage.add_partitions("d", "listed", [Part("more", (9, 10))])
    assert source.run()["point"]  # a partition without rows is one
    source.insert("listed", 9)
    storage.truncate_partitions("d", "ranged", ["low"])
    storage.drop_partitions("d", "listed", ["odd"])
    run_to_the_end(source)
    found = tables_of(source)
    assert [part.name for part in found["listed"].partitions] == ["even", "more"]
    assert {part.name for part in found["ranged"].partitions} == {"low", "mid", "high"}
    assert len(before - {part.id for part in found["ranged"].partitions}) == 1
    source.insert("ranged", 7, 17)
    storage.truncate("d", "hashed")
    source.insert("hashed", 8)
    storage.rename_table("d", "keyless", "unlocked")
    storage.rename_column("d", "ranged", "v", "w")
    run_to_the_end(source)
    assert source.tables() == {"d.hashed", "d.ranged", "d.listed", "d.unlocked", "d.plain"}
    storage.add_column("d", "ranged", "extra", "int")  # copies the table
    storage.drop_table("d", "hashed")
    run_to_the_end(source)
    assert [part.name for part in tables_of(source)["ranged"].partitions] == ["low", "mid", "high"]
    storage.truncate_partitions("d", "ranged", [])
    source.insert("ranged", 9, 19, 29)
    run_to_the_end(source)
    storage.rename_table("d", "ranged", "renamed")
    source.insert("renamed", 8)
    run_to_the_end(source)
    assert "d.hashed" not in source.tables()
    source.assert_equal_at_every_point()


def test_changes_of_a_partitioned_table_are_those_of_its_rows(source: Source) -> None:
    source.subscribe()
    first = source.run()["lsn"]
    with source.storage.begin() as transaction:
        transaction.update("d", "ranged", {"id": 12}, pc.field("id") == 2)  # into another partition
        transaction.update("d", "ranged", {"v": "new"}, pc.field("id") == 3)
    source.storage.truncate_partitions("d", "listed", ["odd"])
    run_to_the_end(source)
    assert changed(source, "ranged", first) == {("delete", 2), ("upsert", 12), ("upsert", 3)}
    assert changed(source, "listed", first) == {("delete", 1), ("delete", 3)}
    for part in ("low", "mid", "high"):  # a merge changes no row
        source.storage.merge("d", f"%!%{part}%!%ranged")
    second = source.run()
    assert second["point"]
    assert changed(source, "ranged", second["lsn"] - 1) == set()


def changed(source: Source, table: str, since: int) -> set[tuple[str, int]]:
    found = source.mirror().table(f"d.{table}").changes(since).to_arrow()
    return set(zip(found.column("__ccpr_kind").to_pylist(), found.column("id").to_pylist(), strict=True))


def tables_of(source: Source) -> dict[str, Table]:
    mirror = Mirror(open_store(str(source.mirror_folder())))
    found = (mirror.manifest(ref).table for ref in mirror.point().tables.values())
    return {table.name: table for table in found}


def test_what_happens_while_tables_are_listed_is_not_in_the_point(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the snapshot of the database and those of its tables rows are written, deleted, flushed and merged."""
    source.subscribe()
    storage, made = source.storage, source.storage.create_snapshot
    numbers = itertools.count(100)

    def create_snapshot(name: str, level: str = "database", database: str = "", table: str = "", **more: Any) -> Any:
        if level == "table":
            number = next(numbers)
            for written in ("hashed", "ranged", "keyless", "plain"):
                source.insert(written, number)
                source.delete(written, number - 1, 2)
                storage.flush("d", written)
            for merged in ("%!%p0%!%hashed", "%!%low%!%ranged", "%!%p1%!%keyless", "plain"):
                storage.merge("d", merged)
                storage.merge_tombstones("d", merged)
        return made(name, level, database, table, **more)

    monkeypatch.setattr(storage, "create_snapshot", create_snapshot)
    for _ in range(3):
        assert source.run()["point"]
        storage.collect()  # the database's snapshot protects what its list names
    source.assert_equal_at_every_point()
    assert next(numbers) > 120


def plan_and_run(source: Source) -> None:
    assert command("plan", "s")["id"]
    source.run()


def reach_apply(source: Source) -> None:
    with closing(Workspace()) as workspace, workspace.iteration("s") as iteration:
        reach(iteration, Stage.APPLY)


@pytest.mark.parametrize("go_on", [Source.run, plan_and_run, reach_apply])
def test_a_table_that_is_replaced_while_tables_are_listed_makes_a_new_snapshot(
    source: Source, monkeypatch: pytest.MonkeyPatch, go_on: Callable[[Source], Any]
) -> None:
    """Of the iteration itself once; if another one follows in the second try, that is for the next attempt."""
    source.subscribe()
    source.run()
    storage, made = source.storage, source.storage.create_snapshot
    armed: list[Callable[[], Any]] = []

    def create_snapshot(name: str, level: str = "database", database: str = "", table: str = "", **more: Any) -> Any:
        if level == "table" and armed:
            armed.pop()()
        return made(name, level, database, table, **more)

    def swap() -> None:
        storage.rename_table("d", "hashed", "h")
        storage.rename_table("d", "keyless", "hashed")

    monkeypatch.setattr(storage, "create_snapshot", create_snapshot)
    truncate = partial(storage.truncate_partitions, "d", "listed", ["odd"])
    for number, act in enumerate((swap, partial(storage.drop_table, "d", "plain"), truncate)):
        armed.append(act)
        source.insert("ranged", 30 + number)
        go_on(source)
        assert not armed
        source.assert_equal_at_every_point()
    armed += [truncate] * 100
    source.insert("ranged", 40)
    assert command("run", "s", code=1)["error"]["code"] == "TABLE_CHANGED_MEANWHILE"
    armed.clear()
    assert source.run()["point"]
    run_to_the_end(source)
    assert source.tables() == {"d.h", "d.hashed", "d.ranged", "d.listed"}
    source.assert_equal_at_every_point()
    assert len(storage.snapshots) == 2  # nothing is left behind


def test_an_index_that_is_made_while_tables_are_listed_is_of_the_next_point(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.subscribe()
    storage, made = source.storage, source.storage.create_snapshot
    acts = [lambda: storage.create_index("d", "plain", "k", ["v"])]

    def create_snapshot(name: str, level: str = "database", database: str = "", table: str = "", **more: Any) -> Any:
        if level == "table" and acts:
            acts.pop()()
        return made(name, level, database, table, **more)

    monkeypatch.setattr(storage, "create_snapshot", create_snapshot)
    source.run()
    assert not any(info.kind == "index" for info in source.mirror().tables())
    source.run()
    assert any(info.kind == "index" for info in source.mirror().tables())
    source.assert_equal_at_every_point()


def test_a_table_whose_partitions_are_not_known_is_left_out_and_the_others_go_on(source: Source) -> None:
    (part,) = (entry for entry in source.storage.tables if entry.definition.name == "%!%odd%!%listed")
    original = part.definitions[:]
    part.definitions[:] = [(tick, replace(known, name="%!%odd%!%gone")) for tick, known in original]
    source.subscribe()
    source.run()
    assert source.tables() == {"d.plain"}  # the partition may be of any of them
    (one,) = (left for left in command("status", "s")["not_replicated"] if left["name"] == "listed")
    assert (one["kind"], one["reason"]) == ("partitioned table", "its partitions are not known")
    part.definitions[:] = original
    source.run()
    assert source.tables() == {f"d.{name}" for name in TABLES}
    part.definitions[:] = [(tick, renamed_column(known, "v", "other")) for tick, known in original]
    source.insert("listed", 5)  # once it was replicated it is not dropped: that is an error
    error = command("run", "s", code=1)["error"]
    assert (error["code"], error["subject"]) == ("PARTITIONED_TABLE", "table d.listed")
    command("alter", "s", "--consistency", "isolated")
    command("resume", "s")
    source.insert("plain", 7)
    assert command("run", "s", code=None)["quarantined"] == ["d.listed"]
    assert rows(source.mirror().table("d.plain").to_arrow()) == rows(
        source.storage.rows_at("d", "plain", source.storage.now)
    )


def test_one_partitioned_table_alone(source: Source) -> None:
    source.subscribe("--table", "ranged")
    source.run()
    assert source.tables() == {"d.ranged"}
    source.insert("ranged", 11)
    source.insert("plain", 11)
    source.run()
    source_rows = source.storage.rows_at("d", "ranged", source.storage.now)
    assert rows(source.mirror().table("d.ranged").to_arrow()) == rows(source_rows)


@pytest.mark.parametrize("name", ["Plain", "pl.ain", "pl'ain"])
def test_a_table_with_capital_letters_a_dot_or_a_quote_is_left_out_where_tables_are_listed_by_name(
    source: Source, name: str
) -> None:
    source.storage.create_table("d", name, COLUMNS, primary_key=["id"])
    source.insert(name, 1)
    source.subscribe()
    source.run()
    assert source.tables() == {f"d.{name}" for name in TABLES}
    (one,) = (left for left in command("status", "s")["not_replicated"] if left["name"] == name)
    assert "capital letters or one of ' \\ ." in one["reason"]
