"""Rows at one's fingertips: head, query, diff, schema, history, export by extension (a simulated upstream)."""

import csv
import json
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

NAME = "shop"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A subscription whose points are: 1,000 orders; some changed, added and removed; a column added. Gives their lsns
    by name."""
    home, storage = tmp_path_factory.mktemp("rows"), Storage()
    storage.create_database("shop")
    columns = {"id": "int not null", "customer": "varchar(20)", "amount": "decimal(10,2)", "raw": "varbinary(9)"}
    storage.create_table("shop", "orders", columns, primary_key=["id"])
    storage.create_table("shop", "notes", {"text": "varchar(30)"})
    storage.create_publication("p", "shop")
    before = dict(os.environ)
    os.environ |= {"CCPR_HOME": str(home), "UPSTREAM_PASSWORD": "any"}
    try:
        with SimulatedUpstream(storage) as emulator:
            with storage.begin() as transaction:
                numbers = list(range(1000))
                amounts = [Decimal(number) / 4 for number in numbers]
                rows = {"id": numbers, "customer": [f"c{n % 7}" for n in numbers], "amount": amounts}
                transaction.insert("shop", "orders", {**rows, "raw": [b"\x00\xff"] * 1000})
                transaction.insert("shop", "notes", {"text": ["tea", "tea", None]})
            source = source_uri(emulator.port)
            scope = ("--database", "shop", "--publication", "p", "--publisher", "sys")
            command("subscribe", NAME, "--from", source, *scope)
            points = {"first": command("run", NAME)["lsn"]}
            with storage.begin() as transaction:
                transaction.delete("shop", "orders", pc.field("id") == 3)
                transaction.update("shop", "orders", {"amount": Decimal("0.25"), "customer": "x"}, pc.field("id") == 5)
                transaction.update("shop", "orders", {"amount": Decimal("0.50")}, pc.field("id") == 6)
                row = {"id": [2000], "customer": [None], "amount": [Decimal("9.75")], "raw": [b"new"]}
                transaction.insert("shop", "orders", row)
                transaction.insert("shop", "notes", {"text": ["cup"]})
            points["changed"] = command("run", NAME)["lsn"]
            yield points
    finally:
        os.environ.clear()
        os.environ |= before


def refused(*words: str, code: int = 1) -> dict[str, Any]:
    return command(*words, code=code)["error"]


# ---- head, query


def test_head_finds_the_database_of_a_table(shop: dict[str, int]) -> None:
    for table in ("shop.notes", "notes"):
        found = command("query", NAME, table, "--at", str(shop["first"]))
        assert (found["subscription"], found["table"], found["lsn"]) == (NAME, "shop.notes", shop["first"])
        assert sorted(str(row["text"]) for row in found["rows"]) == ["None", "tea", "tea"]
    assert len(command("query", NAME, "orders", "-n", "4")["rows"]) == 4
    assert refused("query", NAME, "nothing")["code"] == "TABLE_NOT_IN_POINT"


def test_a_table_that_is_named_alone_shows_first_rows_and_goes_whole_into_a_file(
    shop: dict[str, int], tmp_path: Path
) -> None:
    assert len(command("query", NAME, "shop.orders")["rows"]) == 10
    assert len(command("query", NAME, "orders", "--timezone", "Europe/Berlin")["rows"]) == 10
    assert command("query", NAME, "orders", "--out", str(tmp_path / "orders.csv"))["rows"] == 1000


def test_several_tables_are_exported_and_described_together(shop: dict[str, int], tmp_path: Path) -> None:
    done = command("export", NAME, "orders", "shop.notes", "--out", str(tmp_path))
    assert [one["table"] for one in done] == ["shop.notes", "shop.orders"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["shop.notes.parquet", "shop.orders.parquet"]
    found = command("tables", NAME, "orders", "notes")["tables"]
    assert [one["table"] for one in found] == ["shop.notes", "shop.orders"]
    assert refused("tables", NAME, "orders", "nothing")["code"] == "TABLE_NOT_IN_POINT"


def test_a_query_sees_all_tables_at_one_point(shop: dict[str, int]) -> None:
    sql = "SELECT count(*) n, sum(amount) total FROM orders"
    now = command("query", NAME, sql)
    assert (now["lsn"], now["columns"]) == (shop["changed"], ["n", "total"])
    total = sum(Decimal(number) / 4 for number in range(1000))
    changed = total - Decimal("0.75") - Decimal("1.25") + Decimal("0.25") - Decimal("1.50") + Decimal("0.50")
    assert now["rows"] == [{"n": 1000, "total": str(changed + Decimal("9.75"))}]
    then = command("query", NAME, sql, "--at", str(shop["first"]))["rows"]
    assert then == [{"n": 1000, "total": str(total)}]
    joined = "SELECT count(*) n FROM shop.orders o JOIN notes ON text = 'tea' AND o.id < 10"
    assert command("query", NAME, joined)["rows"] == [{"n": 18}]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id > 3 AND id <= 6", [4, 5, 6]),
        ("id IN (2, 3, 4) OR id = 2000", [2, 4, 2000]),
        ("id >= 998 AND customer = 'c4'", [998]),
        ("customer IS NULL", [2000]),
        ("amount < 0.5 AND id <> 0", [1, 5]),
        ("id BETWEEN -5 AND 1", [0, 1]),
        ("raw = 'new'::BLOB", [2000]),
        ("NOT (id > 1)", [0, 1]),
        ("id > 5 AND id < 5", []),
    ],
)
def test_a_query_with_a_condition_gives_the_rows_that_fulfil_it(
    shop: dict[str, int], where: str, ids: list[int]
) -> None:
    found = command("query", NAME, f"SELECT id FROM orders WHERE {where} ORDER BY id")["rows"]
    assert [row["id"] for row in found] == ids


def test_what_duckdb_cannot_run_is_an_error_with_its_words(shop: dict[str, int]) -> None:
    error = refused("query", NAME, "SELECT nothing FROM orders")
    assert error["code"] == "QUERY_FAILED"
    assert "nothing" in error["message"]


def test_a_table_that_is_not_there_is_an_error_that_names_those_that_are(shop: dict[str, int]) -> None:
    error = refused("query", NAME, "SELECT * FROM ordres")
    assert error["code"] == "QUERY_FAILED"
    assert error["message"] == "the point shows no table ordres"  # and none of DuckDB's own
    assert error["remedy"] == "Did you mean shop.orders?"


def test_names_that_differ_in_letter_case_only_are_not_taken_for_each_other(home: Path) -> None:
    storage = Storage()
    storage.create_database("shop")
    for number, table in enumerate(("t", "T", "u")):
        storage.create_table("shop", table, {"id": "int not null"}, primary_key=["id"])
        with storage.begin() as transaction:
            transaction.insert("shop", table, {"id": [number]})
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage) as emulator:
        source = f"mysql://sys#dump:any@127.0.0.1:{emulator.port}"
        command("subscribe", "case", "--from", source, "--database", "shop", "--publication", "p", "--publisher", "sys")
        command("run", "case")
    assert refused("query", "case", "SELECT * FROM T")["code"] == "QUERY_FAILED"
    assert command("query", "case", "SELECT * FROM u")["rows"] == [{"id": 2}]
    assert command("query", "case", "T")["rows"] == [{"id": 1}]


def test_statements_come_from_standard_input_and_rows_go_to_a_file(shop: dict[str, int], tmp_path: Path) -> None:
    words = ["query", NAME, "--out", str(tmp_path / "rows.csv")]
    sql = "CREATE TABLE few AS SELECT id, raw FROM orders WHERE id < 2; SELECT * FROM few ORDER BY id"
    result = typer.testing.CliRunner().invoke(app, words, input=sql, catch_exceptions=False)
    assert result.exit_code == 0
    rows = list(csv.reader((tmp_path / "rows.csv").open()))
    assert rows == [["id", "raw"], ["0", "00ff"], ["1", "00ff"]]


def test_for_people_numbers_are_on_the_right_and_what_is_not_shown_is_said(shop: dict[str, int]) -> None:
    words = ["query", NAME, "SELECT id, customer FROM orders ORDER BY id DESC", "--limit", "2"]
    shown = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False).stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["id", "customer"],
        ["2000", "NULL"],
        ["999", "c5"],
        ["more", "than", "2", "rows"],
    ]
    assert shown[2].startswith(" 999")


@pytest.mark.parametrize("how", [("--json",), ("--out", "rows.csv"), ()])
def test_any_number_of_rows_may_be_the_most(
    how: tuple[str, ...], shop: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["query", NAME, "SELECT id FROM orders WHERE id IN (41, 42) ORDER BY id", "--limit", str(10**30), *how]
    result = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False)
    shown = (tmp_path / "rows.csv").read_text() if "--out" in how else result.stdout
    assert (result.exit_code, re.findall(r"\b4[12]\b", shown)) == (0, ["41", "42"])


# ---- diff, schema, history


def test_a_diff_counts_rows_and_columns_and_shows_them(shop: dict[str, int]) -> None:
    found = command("diff", NAME, "orders", "--from", str(shop["first"]), "--to", str(shop["changed"]))
    assert (found["added"], found["removed"], found["changed"]) == (1, 1, 2)
    assert found["columns"] == {"amount": 2, "customer": 1}
    rows = {(row["kind"], row["key"]["id"]): row for row in found["rows"]}
    assert rows[("removed", 3)]["before"]["amount"] == "0.75"
    assert rows[("added", 2000)]["after"]["raw"] == b"new".hex()
    assert rows[("changed", 5)]["before"] == {"customer": "c5", "amount": "1.25"}
    assert rows[("changed", 5)]["after"] == {"customer": "x", "amount": "0.25"}
    assert rows[("changed", 6)]["after"] == {"amount": "0.50"}


def test_a_diff_of_a_table_without_a_key_has_added_rows_and_no_more(shop: dict[str, int]) -> None:
    found = command("diff", NAME, "notes", "--from", str(shop["first"]))
    assert (found["added"], found["removed"], found["changed"]) == (1, 0, 0)
    assert [row["after"]["text"] for row in found["rows"]] == ["cup"]


def test_a_diff_of_a_point_with_itself_is_empty_and_one_backwards_is_refused(shop: dict[str, int]) -> None:
    found = command("diff", NAME, "orders", "--from", str(shop["first"]), "--to", str(shop["first"]))
    assert (found["added"], found["removed"], found["changed"], found["rows"]) == (0, 0, 0, [])
    error = refused("diff", NAME, "orders", "--from", str(shop["changed"]), "--to", str(shop["first"]), code=2)
    assert error["code"] == "BAD_OPTION"


def test_the_schema_is_that_of_the_point(shop: dict[str, int]) -> None:
    (table,) = command("tables", NAME, "orders")["tables"]
    assert "`amount` decimal(10,2)" in table["ddl"]
    assert [one["name"] for one in table["columns"]] == ["id", "customer", "amount", "raw"]
    assert {one["table"] for one in command("schema", NAME)["tables"]} == {"shop.orders", "shop.notes"}
    assert refused("schema", NAME, "nothing")["code"] == "TABLE_NOT_IN_POINT"


def test_history_says_what_iterations_brought(shop: dict[str, int]) -> None:
    found = command("points", "history", NAME)
    assert [one["lsn"] for one in found] == [shop["changed"], shop["first"]]
    assert found[0]["tables"] == ["shop.notes", "shop.orders"]
    assert all(one["bytes_copied"] > 0 and one["seconds"] >= 0 for one in found)
    assert len(command("points", "history", NAME, "-n", "1")) == 1


# ---- export


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl", "ndjson"])
def test_an_export_is_of_the_format_that_its_extension_says(
    shop: dict[str, int], tmp_path: Path, extension: str
) -> None:
    file = tmp_path / f"orders.{extension}"
    assert command("export", NAME, "orders", "--out", str(file))["rows"] == 1000
    if extension == "parquet":
        rows = pq.read_table(file).to_pylist()
    elif extension == "csv":
        rows = list(csv.DictReader(file.open()))
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 1000
    (row,) = [row for row in rows if int(row["id"]) == 2000]
    assert (row["customer"] or None, Decimal(row["amount"])) == (None, Decimal("9.75"))
    assert row["raw"] == (b"new" if extension == "parquet" else b"new".hex())


def test_all_tables_go_to_a_folder(shop: dict[str, int], tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    done = command("export", NAME, "--out", str(folder), "--format", "csv", "--at", str(shop["first"]))
    assert {one["table"]: one["rows"] for one in done} == {"shop.orders": 1000, "shop.notes": 3}
    assert sorted(path.name for path in folder.iterdir()) == ["shop.notes.csv", "shop.orders.csv"]


def test_wrong_extensions_are_refused_before_anything_is_written(shop: dict[str, int], tmp_path: Path) -> None:
    for words in (
        ("export", NAME, "orders", "--out", str(tmp_path / "x.xlsx")),
        ("export", NAME, "orders", "--out", str(tmp_path / "x")),
        ("export", NAME, "--out", str(tmp_path / "x.parquet")),
        ("query", NAME, "SELECT 1", "--out", str(tmp_path / "x.txt")),
    ):
        assert refused(*words, code=2)["code"] == "BAD_OPTION"
    assert not list(tmp_path.iterdir())
