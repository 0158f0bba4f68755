"""A part of a database: tables that match patterns come, go, and are renamed into the scope and out of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.pipeline.driver import drive, take
from ccpr.pipeline.errors import StepMissing
from ccpr.pipeline.step_names import Stage
from ccpr.service import subscriptions
from ccpr.service.workspace import Workspace
from ccpr.state.patterns import NamePatterns
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.shop import NAME, Shop, shop
from tests.support.simulated import SimulatedSource, rows

__all__ = ["shop"]

COLUMNS = {"id": "int not null", "v": "varchar(20)"}
TABLES = ("order_1", "order_2", "order_tmp", "item", "other")


class Source(SimulatedSource):
    def create(self, table: str, **more: Any) -> None:
        self.storage.create_table("d", table, COLUMNS, primary_key=["id"], **more)

    def insert(self, table: str, *ids: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert("d", table, {"id": list(ids), "v": [f"{table} {number}" for number in ids]})

    def tables(self, name: str = "s") -> set[str]:
        return {info.name.removeprefix("d.") for info in self.mirror(name).tables() if info.kind == "table"}

    def assert_equal(self, patterns: NamePatterns) -> None:
        """The newest point has the tables that match, with the upstream's rows of the present."""
        names = {definition.name for _, definition in self.storage.tables_at(self.storage.now)}
        assert self.tables() == {name for name in names if patterns.match(name)}
        for name in self.tables():
            found = self.mirror().table(f"d.{name}").to_arrow()
            assert rows(found) == rows(self.storage.rows_at("d", name, self.storage.now)), name


@pytest.fixture
def source(home: Path) -> Iterator[Source]:
    storage = Storage()
    storage.create_database("d")
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage, password="111") as emulator:
        made = Source(storage, emulator, home, "d")
        for name in TABLES:
            made.create(name)
            made.insert(name, 1, 2, 3)
        yield made


ORDERS = ("--tables", "order_*,item", "--exclude-tables", "*_TMP")
PATTERNS = NamePatterns.of("order_*,item", "*_tmp")


def test_tables_that_match_are_replicated_and_what_is_left_out_is_said_once(source: Source) -> None:
    source.storage.create_view("d", "order_view", {"id": "int"}, "select 1 as id", create_sql="")
    source.subscribe(*ORDERS)
    assert command("plan", "s")["unreplicated"] == [
        ["order_view", "v"],
        ["order_tmp", "excluded"],
        ["other", "excluded"],
    ]
    command("run", "s")
    source.assert_equal(PATTERNS)
    status = command("status", "s")
    assert [(one["name"], one["reason"]) for one in status["not_replicated"]] == [
        ("order_view", "it has no rows; points of whole databases have its definition (`ccpr tables --ddl`)"),
        ("order_tmp", "the patterns of the subscription exclude it"),
        ("other", "the patterns of the subscription exclude it"),
    ]
    assert status["scope"] == "d (tables order_*, item without *_tmp)"
    shown = typer.testing.CliRunner().invoke(app, ["status", "s", "-v"], catch_exceptions=False).stdout
    assert " ".join(shown.split()).count("table order_tmp, other: the patterns of the subscription exclude it") == 1
    assert command("subscriptions")[0]["tables"] == "tables order_*, item without *_tmp"


def test_a_table_is_in_the_replica_while_its_name_matches(source: Source) -> None:
    source.subscribe(*ORDERS)
    command("run", "s")
    storage = source.storage
    storage.rename_table("d", "other", "order_3")  # comes, with rows that were written before
    storage.rename_table("d", "order_1", "was_order_1")
    source.insert("order_2", 4)
    planned = command("plan", "s")
    changes = {(change["kind"], change["table"], change["destructive"]) for change in planned["changes"]}
    assert changes == {("created", "d.order_3", False), ("left_scope", "d.order_1", True)}
    command("run", "s", "--plan", planned["id"])
    source.assert_equal(PATTERNS)
    source.insert("was_order_1", 9)
    source.insert("order_3", 4)
    command("run", "s")
    storage.rename_table("d", "was_order_1", "order_1")  # comes back under its id, with what was written meanwhile
    storage.truncate("d", "item")
    source.create("order_4")
    source.insert("order_4", 7)
    command("run", "s")
    source.assert_equal(PATTERNS)
    for old, new in (("order_2", "x"), ("order_tmp", "order_2"), ("x", "order_tmp")):  # the names change places
        storage.rename_table("d", old, new)
    source.insert("order_2", 5)
    source.insert("order_tmp", 6)
    command("run", "s")
    source.assert_equal(PATTERNS)
    assert "order_tmp 1" in str(source.mirror().table("d.order_2").to_arrow().to_pylist())
    storage.drop_table("d", "order_3")
    storage.add_column("d", "order_1", "w", "int")
    command("run", "s")
    source.assert_equal(PATTERNS)
    while command("run", "s")["point"]:
        pass
    source.insert("order_tmp", 77)
    assert not command("run", "s")["point"]  # what is left out costs no point


def test_patterns_that_are_altered_void_what_an_open_iteration_has_found(source: Source) -> None:
    source.subscribe(*ORDERS)
    command("run", "s")
    source.insert("order_1", 4)
    before = command("plan", "s")
    command("alter", "s", "--tables", "o*", "--exclude-tables", "order_1")
    assert command("run", "s", "--plan", before["id"], code=1)["error"]["code"] == "PLAN_OUTDATED"
    after = command("plan", "s")
    assert after["snapshot"] == before["snapshot"]
    kinds = {(change["kind"], change["table"]) for change in after["changes"]}
    assert kinds == {
        ("created", "d.other"),
        ("created", "d.order_tmp"),
        ("left_scope", "d.order_1"),
        ("left_scope", "d.item"),
    }
    command("run", "s", "--plan", after["id"])
    source.assert_equal(NamePatterns.of("o*", "order_1"))
    command("alter", "s", "--tables", "", "--exclude-tables", "")
    command("run", "s")
    source.assert_equal(NamePatterns())


def test_what_was_copied_for_other_patterns_makes_no_point(source: Source) -> None:
    source.subscribe(*ORDERS)
    with Workspace() as workspace:
        with workspace.iteration("s") as iteration:
            drive(iteration, until=Stage.COPY)
        change = subscriptions.SettingsChange(settings={"tables": "other"})
        subscriptions.alter(workspace, "s", change)
        with workspace.iteration("s") as iteration, pytest.raises(StepMissing):
            take(iteration, Stage.APPLY)
    command("run", "s")
    source.assert_equal(NamePatterns.of("other", ""))


def test_patterns_that_match_nothing_are_an_error_and_empty_no_replica(source: Source) -> None:
    source.subscribe("--tables", "ordr_*")
    error = command("run", "s", code=1)["error"]
    assert (error["code"], "none of the 5 tables" in error["message"]) == ("TABLE_NOT_UPSTREAM", True)
    assert "ccpr alter s --tables" in error["remedy"]
    assert "5 tables, 0 of them match: tables ordr_*" in str(command("doctor", "s"))
    command("alter", "s", "--tables", "order_*")
    command("run", "s")
    command("alter", "s", "--tables", "oder_*")
    assert command("run", "s", code=1)["error"]["code"] == "TABLE_NOT_UPSTREAM"
    source.assert_equal(NamePatterns.of("order_*", ""))
    command("alter", "s", "--tables", "order_*")
    for name in ("order_1", "order_2", "order_tmp"):
        source.storage.drop_table("d", name)
    command("run", "s")  # nobody's mistake
    assert source.tables() == set()
    source.create("order_9")
    source.insert("order_9", 1)
    command("run", "s")
    source.assert_equal(NamePatterns.of("order_*", ""))


def test_a_publication_of_tables_narrows_what_patterns_choose(source: Source) -> None:
    source.storage.alter_publication("p", database="d", tables=["order_1", "order_tmp", "other"])
    source.subscribe(*ORDERS)
    command("run", "s")
    assert source.tables() == {"order_1"}
    left_out = {one["name"]: one["reason"] for one in command("status", "s")["not_replicated"]}
    assert left_out["order_2"] == "the publication does not list it"
    assert left_out["other"] == "the patterns of the subscription exclude it"


def test_index_tables_of_tables_that_are_left_out_are_not_copied(source: Source) -> None:
    source.create("order_5", indexes={"k": ["v"]})
    source.create("more", indexes={"k": ["v"]})
    source.insert("order_5", 1)
    source.insert("more", 1)
    source.subscribe(*ORDERS, "--with-indexes")
    command("run", "s")
    kinds = [info.kind for info in source.mirror().tables()]
    assert (kinds.count("index"), kinds.count("table")) == (1, 4)
    source.storage.rename_table("d", "more", "order_6")
    command("run", "s")
    source.assert_equal(PATTERNS)
    assert [info.kind for info in source.mirror().tables()].count("index") == 2
    source.storage.rename_table("d", "order_5", "less")
    command("run", "s")
    assert [info.kind for info in source.mirror().tables()].count("index") == 1


def test_tables_with_indexes_cost_no_statement_each(source: Source) -> None:
    """Only index tables that are copied are asked for."""
    for number in range(20):
        source.create(f"order_x{number}", indexes={"k": ["v"]})
    source.subscribe(*ORDERS)
    command("run", "s")
    assert {info.kind for info in source.mirror().tables()} == {"table"}
    assert "get_mo_indexes" not in source.emulator.status().statements


def test_one_database_is_divided_among_subscriptions(source: Source) -> None:
    source.subscribe("--tables", "order_*", name="orders")
    error = source.subscribe("--tables", "*", name="all", code=1)["error"]
    assert (error["code"], "d (tables order_*)" in error["message"]) == ("SCOPE_OVERLAP", True)
    assert source.subscribe("--table", "order_1", name="one", code=1)["error"]["code"] == "SCOPE_OVERLAP"
    source.subscribe("--exclude-tables", "order_*", name="rest")
    refused = command("alter", "rest", "--exclude-tables", "", code=1)["error"]
    assert (refused["code"], "--allow-overlap" in refused["remedy"]) == ("SCOPE_OVERLAP", True)
    for name in ("orders", "rest"):
        command("run", name)
    assert source.tables("orders") | source.tables("rest") == set(TABLES)
    assert not source.tables("orders") & source.tables("rest")


@pytest.mark.parametrize("allowing", ["orders", "rest"])
def test_an_overlap_is_a_setting_that_alter_and_sql_change(source: Source, allowing: str) -> None:
    source.subscribe("--tables", "order_*", name="orders")
    source.subscribe("--exclude-tables", "order_*", name="rest")
    command("alter", allowing, "--allow-overlap")
    for patterns in ("", "order_*", ""):  # there and back
        command("alter", "rest", "--exclude-tables", patterns)
    assert command("alter", allowing, "--no-overlap", code=1)["error"]["code"] == "SCOPE_OVERLAP"
    command("alter", "rest", "--exclude-tables", "order_*")
    command("alter", allowing, "--no-overlap")
    assert command("alter", "rest", "--exclude-tables", "", code=1)["error"]["code"] == "SCOPE_OVERLAP"
    command("sql", f"ALTER SUBSCRIPTION {allowing} SET (ALLOW_OVERLAP = TRUE)")
    command("sql", "ALTER SUBSCRIPTION rest SET (EXCLUDE_TABLES = '')")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tables", "a,,b"), "tables is 'a,,b', not patterns joined by commas: one is empty"),
        (("--table", "item", "--exclude-tables", "x"), "a subscription to one table has no patterns"),
    ],
)
def test_settings_that_contradict_are_refused(source: Source, options: tuple[str, ...], text: str) -> None:
    error = source.subscribe(*options, code=2)["error"]
    assert (error["code"], error["message"]) == ("BAD_SETTING", text)


def test_statements_and_files_have_the_same_settings(source: Source) -> None:
    command("sql", f"CREATE SUBSCRIPTION s DATABASE d FROM '{source.uri}' PUBLICATION p WITH (TABLES = 'order_*')")
    command("run", "s")
    source.assert_equal(NamePatterns.of("order_*", ""))
    command("sql", "ALTER SUBSCRIPTION s SET (EXCLUDE_TABLES = '*_tmp')")
    command("run", "s")
    source.assert_equal(NamePatterns.of("order_*", "*_tmp"))
    file = source.home / "ccpr.yaml"
    command("config", "export", "-f", str(file))
    text = file.read_text()
    assert "tables: order_*" in text
    assert "exclude_tables: '*_tmp'" in text


def test_a_target_gets_and_loses_tables_as_they_match(shop: Shop) -> None:
    command("alter", NAME, "--exclude-tables", "b")
    shop.add()
    assert shop.actions().keys() == {"a", "still"}
    shop.storage.rename_table("d", "b", "c")
    assert shop.actions() == {"c": ("created", 100)}
    shop.assert_equal()
    shop.storage.rename_table("d", "a", "b")
    assert shop.actions() == {"a": ("dropped", 0)}
    assert shop.tables() == {"c", "still"}
    shop.insert("b", 1000)
    shop.insert("c", 1000)
    shop.run()
    for old, new in (("b", "a"), ("c", "b")):
        shop.storage.rename_table("d", old, new)
    assert shop.actions() == {"a": ("created", 101), "c": ("dropped", 0)}
    command("alter", NAME, "--exclude-tables", "")
    assert shop.actions() == {"b": ("created", 101)}
    shop.assert_equal()
