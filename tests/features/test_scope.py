"""What of a publisher's database is replicated: temporary tables of sessions, and what a publication covers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import SimulatedSource

TEMPORARY = "__mo_tmp_01a20236be017af18ee594e8713d34a9_shop_t"


class Source(SimulatedSource):
    """Database `shop` with tables `a` and `b` of one row each."""

    def insert(self, table: str, number: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert("shop", table, {"id": [number]})


def tables(name: str = "s") -> set[str]:
    return {table["table"] for table in command("tables", name)["tables"]}


@pytest.fixture
def source(home: Path) -> Iterator[Source]:
    storage = Storage()
    storage.create_database("shop")
    for table in ("a", "b"):
        storage.create_table("shop", table, {"id": "int not null"}, primary_key=["id"])
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password="111") as emulator:
        made = Source(storage, emulator, home, "shop")
        made.insert("a", 1)
        made.insert("b", 1)
        yield made


def test_a_temporary_table_of_a_session_is_not_replicated_and_costs_no_iteration(source: Source) -> None:
    source.storage.create_table("shop", TEMPORARY, {"id": "int not null"}, primary_key=["id"])
    entry = source.storage.table("shop", TEMPORARY)
    tick, definition = entry.definitions[-1]
    entry.definitions[-1] = (tick, replace(definition, create_sql="create temporary table t(id int primary key)"))
    source.insert(TEMPORARY, 1)
    source.subscribe()
    assert command("run", "s")["point"]
    assert tables() == {"shop.a", "shop.b"}
    source.insert(TEMPORARY, 2)
    source.insert("a", 2)
    assert command("run", "s")["point"]
    while command("run", "s")["point"]:  # until the emulator has flushed all of it
        pass
    source.insert(TEMPORARY, 3)
    assert not command("run", "s")["point"]
    assert f"2 tables; not replicated: {TEMPORARY} (temporary)" in str(command("doctor", "s"))


# ---- what a publication covers


def listed(source: Source, *names: str) -> None:
    """The publication is one of these tables only."""
    source.storage.alter_publication("p", database="shop", tables=names)


def test_a_publication_of_tables_is_replicated_as_a_whole_when_it_is_named(source: Source, tmp_path: Path) -> None:
    source.storage.create_table("shop", "c", {"id": "int not null"}, primary_key=["id"], indexes={"k": ["id"]})
    source.storage.create_table("shop", "not_mine", {"id": "int not null"}, indexes={"k": ["id"]})
    listed(source, "a", "c")
    source.insert("c", 1)
    source.subscribe()
    assert command("run", "s")["point"]
    shown = command("tables", "s")["tables"]
    assert {table["table"] for table in shown if table["kind"] == "table"} == {"shop.a", "shop.c"}
    assert [table["kind"] for table in shown].count("index") == 1
    (plan_of,) = [plan for plan in [command("plan", "s")] if plan]
    assert ["b", "unpublished"] in plan_of["unreplicated"]
    assert command("export", "s", "shop.c", "--out", str(tmp_path / "c.parquet"))["rows"] == 1


def test_a_publication_of_tables_that_nobody_named_is_not_taken_for_the_database(source: Source) -> None:
    listed(source, "a", "b")
    error = command("subscribe", "s", "--from", source.uri, "--database", "shop", code=1)["error"]
    assert error["code"] == "NOT_COVERED"
    assert "Or replicate only its tables: --publication p --publisher sys." in error["remedy"]


def test_a_table_that_is_made_again_and_not_published_is_not_replicated_any_more(source: Source) -> None:
    listed(source, "a", "b")
    source.subscribe()
    command("run", "s")
    assert tables() == {"shop.a", "shop.b"}
    source.storage.drop_table("shop", "b")
    source.storage.create_table("shop", "b", {"id": "int not null"}, primary_key=["id"])
    source.insert("b", 7)
    source.insert("a", 2)
    command("run", "s")
    assert tables() == {"shop.a"}
    listed(source, "a", "b")
    command("run", "s")
    assert tables() == {"shop.a", "shop.b"}


def test_a_table_that_is_removed_from_the_publication_leaves_the_replica(source: Source) -> None:
    listed(source, "a", "b")
    source.subscribe()
    command("run", "s")
    listed(source, "a")
    command("run", "s")
    assert tables() == {"shop.a"}


def test_a_table_that_an_alter_took_out_of_the_publication_is_an_error_that_says_what_to_run(source: Source) -> None:
    listed(source, "a", "b")
    source.subscribe()
    command("run", "s")
    source.storage.add_column("shop", "b", "x", "int")
    listed(source, "a")  # what releases before 4.2 do by themselves
    error = command("run", "s", code=1)["error"]
    assert error["code"] == "NOT_COVERED"
    assert "ALTER PUBLICATION `p` DATABASE `shop` TABLE `a`, `b`." in error["remedy"]
    assert tables() == {"shop.a", "shop.b"}
    command("alter", "s", "--consistency", "isolated")
    assert command("run", "s")["quarantined"] == ["shop.b"]
    listed(source, "a", "b")
    assert command("run", "s")["quarantined"] == []
    assert tables() == {"shop.a", "shop.b"}


def test_a_renamed_table_is_in_the_publication_by_its_old_name_and_the_error_says_what_to_run(source: Source) -> None:
    listed(source, "a", "b")
    source.subscribe()
    command("run", "s")
    source.storage.rename_table("shop", "b", "c")
    error = command("run", "s", code=1)["error"]
    assert error["code"] == "NOT_COVERED"
    assert "TABLE `a`, `b`, `c`." in error["remedy"]
    listed(source, "a", "c")
    command("run", "s")
    assert tables() == {"shop.a", "shop.c"}


def test_a_publication_that_covers_nothing_any_more_empties_no_replica(source: Source) -> None:
    source.subscribe()
    command("run", "s")
    source.storage.create_table("shop", "other", {"id": "int not null"})
    listed(source, "other")
    source.storage.drop_table("shop", "other")
    error = command("run", "s", code=1)["error"]
    assert error["code"] == "NOT_COVERED"
    source.storage.create_database("elsewhere")
    source.storage.alter_publication("p", database="elsewhere")
    assert command("run", "s", code=1)["error"]["code"] == "NOT_COVERED"
    assert tables() == {"shop.a", "shop.b"}


def test_one_table_is_replicated_as_long_as_it_is_covered(source: Source) -> None:
    listed(source, "a", "b")
    source.subscribe("--table", "b")
    command("run", "s")
    listed(source, "a")
    source.insert("b", 2)
    error = command("run", "s", code=1)["error"]
    assert error["code"] == "NOT_COVERED"
    assert "the publication covers shop (a), not table shop.b" in error["message"]
    listed(source, "a", "b")
    assert command("run", "s")["point"]
    source.storage.drop_table("shop", "b")
    command("run", "s")
    assert tables() == set()


def test_coverage_costs_one_statement(source: Source) -> None:
    source.subscribe()
    command("run", "s")
    before = source.emulator.status().statements.get("select_mo_pubs", 0)
    command("run", "s")
    assert source.emulator.status().statements["select_mo_pubs"] == before + 1


def test_a_restore_upstream_drops_the_publication_and_the_error_says_so(source: Source, tmp_path: Path) -> None:
    source.subscribe()
    command("run", "s")
    source.storage.drop_publication("p")
    source.storage.drop_database("shop")  # RESTORE DATABASE makes another database of the name
    source.storage.create_database("shop")
    source.storage.create_table("shop", "a", {"id": "int not null"}, primary_key=["id"])
    source.insert("a", 42)
    error = command("run", "s", code=1)["error"]
    assert error["code"] == "PUBLICATION_MISSING"
    assert "RESTORE" in error["remedy"]
    source.storage.create_publication("p", "shop")
    command("run", "s")
    assert tables() == {"shop.a"}
    assert command("export", "s", "shop.a", "--out", str(tmp_path / "a.parquet"))["rows"] == 1


def test_a_drop_without_its_publication_drops_the_snapshots_of_the_own_account(source: Source) -> None:
    source.subscribe()
    command("run", "s")
    source.storage.drop_publication("p")
    assert source.storage.snapshots
    dropped = command("drop", "s")
    assert (dropped["snapshots_left"], dropped["statements"]) == ([], [])
    assert not source.storage.snapshots


# ---- names


def test_subscriptions_whose_folders_differ_only_in_letter_case_are_refused(source: Source) -> None:
    """On a file system that ignores it their mirrors would be one folder."""
    source.subscribe(name="Shop")
    error = source.subscribe("--allow-overlap", name="shop", code=1)["error"]
    assert (error["code"], "Shop" in error["message"]) == ("MIRROR_IN_USE", True)


def test_a_table_with_markup_and_control_characters_in_its_name_is_exported(source: Source, tmp_path: Path) -> None:
    name = "a[/b]\x1b[2J"
    source.storage.create_table("shop", name, {"id": "int not null"}, primary_key=["id"])
    source.insert(name, 5)
    source.subscribe()
    command("run", "s")
    words = ["export", "s", f"shop.{name}", "--out", str(tmp_path / "x.parquet")]
    result = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.startswith("1 row of shop.a[/b]\\x1b[2J at point 0")
    listed_tables = typer.testing.CliRunner().invoke(app, ["tables", "s"], catch_exceptions=False).stdout
    assert "shop.a[/b]\\x1b[2J" in listed_tables
    missing = typer.testing.CliRunner().invoke(app, ["export", "s", "shop.[/]\x1b\nremedy: x", "--out", "y.csv"])
    assert "\x1b" not in missing.output
    assert "table shop.[/]\\x1b\\nremedy: x" in missing.output
