"""What a mirror says of a whole database: its tables and views in DuckDB, definitions, history, JSON as JSON."""

import json
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pymysql
import pytest
from typer.testing import CliRunner

import ccpr
from ccpr.cli.main import app
from ccpr.matrixone.definitions import View
from ccpr.mirror.sql import create_view
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

pytestmark = pytest.mark.integration

NAME = "shop"
FIRST = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(9), extra JSON)",
    "INSERT INTO shop.orders VALUES (1, 'ann', '{\"a\": [1, null]}'), (2, 'bob', NULL)",
    "CREATE TABLE shop.gone (id INT PRIMARY KEY)",
    "CREATE VIEW shop.names AS SELECT customer FROM shop.orders WHERE id > 1",
    "CREATE VIEW shop.twice AS SELECT n.customer FROM shop.names n",
    "CREATE PUBLICATION p DATABASE shop ACCOUNT ALL",
)
THEN = (
    "INSERT INTO shop.orders VALUES (3, 'cat', '{\"b\": \"ü\"}')",
    "DROP TABLE shop.gone",
    "CREATE TABLE shop.lines (id INT PRIMARY KEY)",
)


@pytest.fixture
def mirror(home: Path) -> ccpr.Mirror:
    with SimulatedUpstream(Storage()) as emulator:
        login = {"host": "127.0.0.1", "port": emulator.port, "user": "sys#dump", "password": "111"}
        with closing(pymysql.connect(**login, autocommit=True)) as connection, connection.cursor() as cursor:
            for statements in (FIRST, THEN):
                for statement in statements:
                    cursor.execute(statement)
                if statements is FIRST:
                    scope = ("--database", "shop", "--publication", "p", "--publisher", "sys")
                    command("subscribe", NAME, "--from", source_uri(emulator.port), *scope)
                command("run", NAME)
    return ccpr.open_mirror(home / "home" / "mirrors" / NAME)


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return connection.sql(sql).fetchall()


def test_all_tables_of_a_point_are_in_one_connection(mirror: ccpr.Mirror) -> None:
    connection = mirror.to_duckdb()
    assert sorted(rows(connection, "SELECT id, customer FROM shop.orders")) == [(1, "ann"), (2, "bob"), (3, "cat")]
    assert rows(connection, "SELECT count(*) FROM orders JOIN lines USING (id)") == [(0,)]
    mine = duckdb.connect()
    mine.execute("SET TimeZone = 'Asia/Tokyo'")
    assert mirror.to_duckdb(mine, at=mirror.points()[0]) is mine
    assert sorted(rows(mine, "SELECT id FROM orders")) == [(1,), (2,)]
    assert rows(mine, "SELECT current_setting('TimeZone')") == [("Asia/Tokyo",)]
    mirror.to_duckdb(mine)
    assert rows(mine, "SELECT count(*) FROM orders") == [(3,)]
    with pytest.raises(ccpr.errors.BadOption):
        mirror.to_duckdb("mine")  # type: ignore[arg-type]


def test_views_come_if_they_are_asked_for(mirror: ccpr.Mirror) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connection = mirror.to_duckdb(views=True)
    assert sorted(rows(connection, "SELECT * FROM shop.names")) == [("bob",), ("cat",)]
    assert sorted(rows(connection, "SELECT * FROM shop.twice")) == [("bob",), ("cat",)]
    with pytest.raises(duckdb.Error):
        mirror.to_duckdb().sql("SELECT * FROM shop.names")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM `/etc/passwd`",
        "SELECT (SELECT max(content) FROM read_text('/etc/passwd'))",
        "WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x",
        "SELECT getenv('HOME')",
        "SELECT 1; ATTACH '/tmp/x.db'",
        "COPY t TO '/tmp/x'",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM other.t",
        "no sql at all",
        "(" * 5000,
    ],
)
def test_a_view_that_reads_anything_else_is_not_taken(query: str) -> None:
    with pytest.raises(ccpr.errors.QueryFailed):
        create_view(View("v", query), "shop", {"shop.t"})


def test_definitions_are_those_of_the_point(mirror: ccpr.Mirror) -> None:
    assert mirror.ddl("shop.orders").startswith("CREATE TABLE")
    kinds = {(one.kind, one.name) for one in mirror.definitions()}
    assert kinds >= {("view", "names"), ("view", "twice")}
    (view,) = [one for one in mirror.definitions() if one.name == "names"]
    assert view.statements[0].startswith("CREATE VIEW `shop`.`names` AS ")
    with pytest.raises(ccpr.errors.TableMissingInMirror):
        mirror.ddl("shop.gone")
    assert mirror.ddl("shop.gone", at=mirror.points()[0])


def test_history_says_what_each_point_brought(mirror: ccpr.Mirror) -> None:
    first, second = mirror.history()
    assert (first.changed, first.gone) == (("shop.gone", "shop.orders"), ())
    assert (second.changed, second.gone) == (("shop.lines", "shop.orders"), ("shop.gone",))
    assert [one.lsn for one in mirror.history("shop.lines")] == [second.lsn]
    assert [one.lsn for one in mirror.history("shop.gone")] == [first.lsn, second.lsn]
    assert first.committed <= second.committed


def test_json_is_json_where_it_is_asked_for(mirror: ccpr.Mirror, tmp_path: Path) -> None:
    wanted = {1: {"a": [1, None]}, 2: None, 3: {"b": "ü"}}
    table = mirror.table("shop.orders")
    assert {row["id"]: row["extra"] for row in table.to_pylist(parse_json=True)} == wanted
    texts = {row["id"]: row["extra"] for row in table.to_pylist()}
    assert json.loads(texts[1]) == wanted[1]
    for options, parsed in ((("--parse-json",), True), ((), False)):
        file = tmp_path / "orders.jsonl"
        command("export", NAME, "orders", "--out", str(file), *options)
        found = [json.loads(line) for line in file.read_text().splitlines()]
        assert {row["id"]: row["extra"] for row in found} == (wanted if parsed else texts)


def test_show_tables_lists_the_tables(mirror: ccpr.Mirror) -> None:
    assert [row["table"] for row in command("query", NAME, "show tables;")["rows"]] == ["lines", "orders"]
    listed = command("query", NAME, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'")
    assert sorted(row["table_name"] for row in listed["rows"]) == ["lines", "orders"]
    assert "orders" in CliRunner().invoke(app, ["query", NAME, "SHOW TABLES"]).stdout
