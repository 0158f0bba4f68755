"""What a person types by hand, and what the commands answer: times, names that are nearly right, files that are there,
views, index tables."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pymysql
import pytest
from typer.testing import CliRunner, Result

from ccpr.cli.main import app
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

NAME = "shop"


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A subscription whose points are: a table, with an index and a view of it; the table by another name."""
    home, storage = tmp_path_factory.mktemp("people"), Storage()
    before = dict(os.environ)
    os.environ |= {"CCPR_HOME": str(home), "UPSTREAM_PASSWORD": "any"}
    try:
        with SimulatedUpstream(storage) as emulator:
            connection = pymysql.connect(
                host="127.0.0.1", port=emulator.port, user="sys#dump", password="any", autocommit=True
            )
            with closing(connection), connection.cursor() as cursor:

                def run(*statements: str) -> None:
                    for statement in statements:
                        cursor.execute(statement)

                run(
                    "CREATE DATABASE shop",
                    "CREATE TABLE shop.orders (id INT PRIMARY KEY, code VARCHAR(9), UNIQUE KEY by_code (code))",
                    "INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b')",
                    "CREATE VIEW shop.coded AS SELECT code FROM shop.orders",
                    "CREATE PUBLICATION p DATABASE shop ACCOUNT ALL",
                )
                scope = ("--database", "shop", "--publication", "p", "--publisher", "sys")
                command("subscribe", NAME, "--from", source_uri(emulator.port), *scope, "--with-indexes")
                lsns = {"first": command("run", NAME)["lsn"]}
                run("ALTER TABLE shop.orders RENAME TO bookings", "INSERT INTO shop.bookings VALUES (3, 'c')")
                lsns["renamed"] = command("run", NAME)["lsn"]
                yield lsns
    finally:
        os.environ.clear()
        os.environ |= before


def ccpr(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], catch_exceptions=False)


def refused(*words: str, code: int = 1) -> dict[str, str]:
    return command(*words, code=code)["error"]


def test_a_subscription_that_is_nearly_typed_right_is_named(points: dict[str, int]) -> None:
    for words in (("status", "shpo"), ("run", "shpo"), ("pause", "shpo"), ("target", "list", "shpo")):
        error = refused(*words)
        assert error["code"] == "SUBSCRIPTION_MISSING"
        assert error["remedy"].startswith("Did you mean shop?"), words


def test_databases_and_tables_upstream_that_are_nearly_typed_right_are_named(points: dict[str, int]) -> None:
    words = ("subscribe", "other", "--from", command("subscriptions")[0]["upstream"].replace("***", "any"))
    for scope, code, name in (
        (("--database", "shpo"), "DATABASE_MISSING", "shop"),
        (("--database", "shpo", "--publisher", "sys"), "DATABASE_MISSING", "shop"),
        (("--database", "shop", "--table", "bokings"), "TABLE_MISSING", "bookings"),
    ):
        error = refused(*words, *scope)
        assert error["code"] == code
        assert error["remedy"].startswith(f"Did you mean {name}?"), scope


def test_a_view_is_said_to_be_one(points: dict[str, int], tmp_path: Path) -> None:
    for words in (("query", NAME, "coded"), ("export", NAME, "shop.coded", "--out", str(tmp_path / "v.csv"))):
        error = refused(*words)
        assert error["message"].startswith("it is a view")
        assert "ccpr tables NAME coded" in error["remedy"]


def test_a_renamed_table_is_found_by_its_old_name(points: dict[str, int]) -> None:
    for typed in ("orders", "shop.orders"):
        error = refused("query", NAME, typed)
        assert "shop.bookings" in error["message"]
        assert f"--at {points['first']}" in error["remedy"]
    assert len(command("query", NAME, "orders", "--at", str(points["first"]))["rows"]) == 2


def test_a_point_is_named_by_how_long_ago_it_was(points: dict[str, int]) -> None:
    assert refused("tables", NAME, "--at", "-99d")["code"] in ("POINT_GONE", "POINT_NOT_REACHED")
    assert refused("tables", NAME, "--at", "-0s")["code"] == "POINT_NOT_REACHED", "it is later than the newest point"
    assert ccpr("tables", NAME, "--at", "-10x").exit_code == 2


def test_times_are_shown_and_understood_in_the_zone_that_is_asked_for(
    points: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = command("points", NAME)[0]["at"]
    monkeypatch.setenv("CCPR_TIMEZONE", "Asia/Tokyo")
    shown = ccpr("points", NAME).stdout
    there = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+09:00", shown)
    assert there is not None
    assert "(Asia/Tokyo)" in shown
    assert command("points", NAME)[0]["at"] == at, "documents for scripts stay in UTC"
    typed = there[0].removesuffix("+09:00") + "999"
    assert command("tables", NAME, "--at", typed)["lsn"] == points["first"]
    monkeypatch.setenv("CCPR_TIMEZONE", "Nowhere")
    assert ccpr("points", NAME).exit_code == 2


def test_index_tables_are_shown_only_if_asked_for(points: dict[str, int]) -> None:
    def hidden(*words: str) -> bool:
        return "__mo_index" in ccpr(*words).stdout

    for words in (("tables", NAME), ("points", "history", NAME)):
        assert not hidden(*words)
        assert hidden(*words, "--all")


def test_a_person_is_asked_before_a_file_is_written_over(
    points: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"mine")
    words = ("export", NAME, "bookings", "--out", str(file))
    monkeypatch.setattr("ccpr.cli.asking.is_interactive", lambda: True)
    answered = CliRunner().invoke(app, [*words], input="n\n", catch_exceptions=False)
    assert answered.exit_code == 4
    assert "write over" in answered.stderr
    assert file.read_bytes() == b"mine"
    assert CliRunner().invoke(app, [*words, "--yes"], catch_exceptions=False).exit_code == 0
    assert sorted(pq.read_table(file).column("id").to_pylist()) == [1, 2, 3]
    command(*words)  # a script is not asked


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_folder_that_takes_no_file_is_an_error_that_says_so(points: dict[str, int], suffix: str) -> None:
    error = refused("export", NAME, "bookings", "--out", f"/proc/rows.{suffix}")
    assert error["code"] == "STORE_FAILED"
    assert "choose another --out" in error["remedy"]


def test_a_wrong_option_is_wrong_usage(points: dict[str, int], tmp_path: Path) -> None:
    assert refused("export", NAME, "bookings", "--out", str(tmp_path / "x.foo"), code=2)["code"] == "BAD_OPTION"
    assert json.loads(ccpr("query", NAME, "SELECT 1", "--timezone", "Nowhere", "--json").stdout)["error"]


def test_a_dry_run_checks_what_would_be_done(points: dict[str, int], tmp_path: Path) -> None:
    known = command("subscriptions")
    file, uri = tmp_path / "ccpr.yaml", known[0]["upstream"]
    text = """version: 1
upstreams:
  main: {uri: "%s", password: any}
subscriptions:
  shop: {upstream: main, database: shop, with_indexes: true}
  other: {upstream: main, database: %s}
"""
    for database, code in (("nowhere", "DATABASE_MISSING"), ("shop", "SCOPE_OVERLAP")):
        file.write_text(text % (uri.replace(":***", ""), database))
        found = command("config", "apply", "--file", str(file), "--dry-run", code=1)
        (failed,) = found["failed"]
        assert (failed["subscription"], failed["error"]["code"], found["done"]) == ("other", code, [])
    assert [one["task_id"] for one in command("subscriptions")] == [one["task_id"] for one in known]


def test_a_run_says_who_copies_where_that_is_out_of_the_ordinary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "any")
    monkeypatch.setenv("COLUMNS", "200")
    storage = Storage()
    storage.create_database("d")
    storage.create_publication("p", "d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    with SimulatedUpstream(storage) as emulator:
        scope = ("--database", "d", "--publication", "p", "--publisher", "sys")
        command("subscribe", "one", "--from", source_uri(emulator.port), *scope)

        def run_with(number: int) -> str:
            with storage.begin() as transaction:
                transaction.insert("d", "t", {"n": [number]})
            return ccpr("run", "one").stdout

        usual = run_with(1)
        assert "1 object, " in usual
        assert "copies" not in usual
        assert "Spark" not in usual
        monkeypatch.setenv("CCPR_SPARK_MASTER", "spark://far:7077")
        said = "the process itself copies: the mirror is a folder of this machine, which spark://far:7077 does not have"
        assert run_with(2).splitlines()[0] == said
    found = command("query", "one", "SELECT n FROM t ORDER BY n")
    assert [row["n"] for row in found["rows"]] == [1, 2]
