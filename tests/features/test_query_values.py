"""What `ccpr query`, `head` and `export` give: every value, under a name of its own, the same on every machine."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

NAME = "shop"
TIMES = [
    timedelta(hours=-12),
    timedelta(hours=838, minutes=59, seconds=59),
    timedelta(hours=26, milliseconds=500),
    None,
]
SHOWN = ["-12:00:00", "838:59:59", "26:00:00.500000", None]
TWICE = "SELECT a.id, a.note, b.id, b.note FROM t a JOIN t b ON a.id = b.id - 1 ORDER BY a.id"
NAMES = ["id", "note", "id_1", "note_1"]
JOINED = [[1, "n1", 2, "n2"], [2, "n2", 3, "n3"], [3, "n3", 4, "n4"]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A replica of a table of four rows; the folder for files."""
    home, storage = tmp_path_factory.mktemp("query"), Storage()
    storage.create_database("shop")
    columns = {"id": "int not null", "note": "varchar(20)", "ti": "time(6)", "ts": "timestamp(6)"}
    storage.create_table("shop", "t", columns, primary_key=["id"])
    storage.create_publication("p", "shop")
    before = dict(os.environ)
    os.environ |= {"CCPR_HOME": str(home), "UPSTREAM_PASSWORD": "any"}
    try:
        with SimulatedUpstream(storage) as emulator:
            with storage.begin() as transaction:
                numbers = [1, 2, 3, 4]
                moments = [datetime(2026, 3, 29, 1, 30, number, tzinfo=UTC) for number in numbers]
                rows = {"id": numbers, "note": [f"n{number}" for number in numbers], "ti": TIMES, "ts": moments}
                transaction.insert("shop", "t", rows)
            scope = ("--database", "shop", "--publication", "p", "--publisher", "sys")
            command("subscribe", NAME, "--from", source_uri(emulator.port), *scope)
            command("run", NAME)
            yield home
    finally:
        os.environ.clear()
        os.environ |= before


def shown(*words: str) -> str:
    """What a command prints for people."""
    result = typer.testing.CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# ---- columns of one name


def test_columns_of_one_name_are_all_in_json(shop: Path) -> None:
    found = command("query", NAME, TWICE)
    assert found["columns"] == NAMES
    assert found["rows"] == [dict(zip(NAMES, row, strict=True)) for row in JOINED]


def test_columns_of_one_name_are_all_in_files(shop: Path) -> None:
    for ending in ("jsonl", "csv", "parquet"):
        command("query", NAME, TWICE, "--out", str(shop / f"twice.{ending}"))
    expected = [dict(zip(NAMES, row, strict=True)) for row in JOINED]
    assert lines_of(shop / "twice.jsonl") == expected
    assert pq.read_table(shop / "twice.parquet").to_pylist() == expected
    with (shop / "twice.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [NAMES, *([str(cell) for cell in row] for row in JOINED)]


def test_columns_of_one_name_are_all_on_the_screen(shop: Path) -> None:
    lines = [line.split() for line in shown("query", NAME, TWICE).splitlines()]
    assert lines == [NAMES, *([str(cell) for cell in row] for row in JOINED), ["3", "rows"]]


# ---- TIME


def test_a_time_is_the_same_text_everywhere(shop: Path) -> None:
    sql = "SELECT id, ti FROM t ORDER BY id"
    assert [row["ti"] for row in command("query", NAME, sql)["rows"]] == SHOWN
    assert [row["ti"] for row in command("query", NAME, "t")["rows"]] == SHOWN
    for screen in (shown("query", NAME, sql), shown("query", NAME, "t")):
        assert all(text is None or text in screen for text in SHOWN)
        assert "day" not in screen
    for ending in ("jsonl", "csv"):
        asked, exported = shop / f"asked.{ending}", shop / f"exported.{ending}"
        command("query", NAME, sql, "--out", str(asked))
        command("export", NAME, "t", "--out", str(exported))
        for file in (asked, exported):
            rows = lines_of(file) if ending == "jsonl" else list(csv.DictReader(file.open(newline="")))
            assert [row["ti"] or None for row in rows] == SHOWN


def test_a_time_in_a_list_is_text(shop: Path) -> None:
    (row,) = command("query", NAME, "SELECT list(ti ORDER BY id) AS all_of_them FROM t")["rows"]
    assert row == {"all_of_them": ["-12:00:00", "838:59:59", "26:00:00.5", None]}, "DuckDB's own text"


def test_a_time_is_a_duration_in_parquet_by_each_writer(shop: Path) -> None:
    command("query", NAME, "SELECT ti FROM t ORDER BY id", "--out", str(shop / "asked.parquet"))
    command("export", NAME, "t", "--out", str(shop / "exported.parquet"))
    for file in ("asked", "exported"):
        column = pq.read_table(shop / f"{file}.parquet").column("ti")
        assert (column.type, column.to_pylist()) == (pa.duration("us"), TIMES)


# ---- zones


ZONED = "SELECT count(*) AS n, min(ts::DATE) AS day, min(hour(ts)) AS hour FROM t WHERE ts >= '2026-03-29 01:00:00'"


def test_a_timestamp_is_that_of_utc_whatever_zone_the_machine_has(shop: Path) -> None:
    words = [sys.executable, "-m", "ccpr.cli", "query", NAME, ZONED, "--json"]
    made = subprocess.run(
        words, env={**os.environ, "TZ": "America/Los_Angeles"}, capture_output=True, text=True, check=True
    )
    assert json.loads(made.stdout)["rows"] == [{"n": 4, "day": "2026-03-29", "hour": 1}]


def test_another_zone_is_asked_for_by_name(shop: Path) -> None:
    found = command("query", NAME, ZONED, "--timezone", "Asia/Tokyo")["rows"]
    assert found == [{"n": 4, "day": "2026-03-29", "hour": 10}]
    (row,) = command("query", NAME, "SELECT ts FROM t WHERE id = 1", "--timezone", "Asia/Tokyo")["rows"]
    assert row == {"ts": "2026-03-29T10:30:01+09:00"}
    assert command("query", NAME, "SELECT ts FROM t WHERE id = 1")["rows"] == [{"ts": "2026-03-29T01:30:01+00:00"}]


def test_a_zone_that_is_not_known_is_refused(shop: Path) -> None:
    error = command("query", NAME, ZONED, "--timezone", "Nowhere'; DROP TABLE t --", code=2)["error"]
    assert (error["code"], error["subject"]) == ("BAD_OPTION", "time zone Nowhere'; DROP TABLE t --")


MOMENTS = [
    "2050-07-01 12:00:00",
    "9999-12-31 23:59:59",
    "1890-06-01 00:00:00.5",
    "0001-01-01 12:00:00",
    "2030-01-01 00:00:00",
]
IN_BERLIN = [
    *("2050-07-01T14:00:00+02:00", "10000-01-01T00:59:59+01:00", "1890-06-01T00:53:28.500000+00:53:28"),
    *("0001-01-01T12:53:28+00:53:28", "2030-01-01T01:00:00+01:00"),
]
LISTED = ", ".join(f"({number}, TIMESTAMPTZ '{moment}+00')" for number, moment in enumerate(MOMENTS))
IN_ZONE = f"SELECT id, ts, [ts] AS several FROM (VALUES {LISTED}) AS moments (id, ts) ORDER BY id"


def test_a_moment_is_the_same_text_everywhere_in_every_year_of_a_zone(shop: Path) -> None:
    zone = ("--timezone", "Europe/Berlin")
    rows = command("query", NAME, IN_ZONE, *zone)["rows"]
    assert rows == [{"id": n, "ts": text, "several": [text]} for n, text in enumerate(IN_BERLIN)]
    for ending in ("jsonl", "csv", "parquet"):
        command("query", NAME, IN_ZONE, *zone, "--out", str(shop / f"zone.{ending}"))
    assert lines_of(shop / "zone.jsonl") == rows
    with (shop / "zone.csv").open(newline="") as file:
        found = [(row["ts"].replace(" ", "T"), json.loads(row["several"])) for row in csv.DictReader(file)]
    assert found == [(text, [text]) for text in IN_BERLIN]
    in_parquet = pq.read_table(shop / "zone.parquet").column("ts")
    assert in_parquet.cast(pa.timestamp("us", "UTC")).cast(pa.int64())[1].as_py() == 253_402_300_799_000_000
    screen = shown("query", NAME, IN_ZONE, *zone)
    assert all(text in screen for text in IN_BERLIN)


@pytest.mark.parametrize("moment", ["12000-01-01 00:00:00+00", "infinity", "9999-12-31 23:59:59+00"])
def test_a_condition_may_name_a_moment_beyond_the_years_of_python(shop: Path, moment: str) -> None:
    for condition in (f"ts < TIMESTAMPTZ '{moment}'", f"ts <> '{moment}'", f"ts::DATE < '{moment}'::DATE"):
        found = command("query", NAME, f"SELECT id FROM t WHERE {condition} ORDER BY id", "--timezone", "Europe/Berlin")
        assert [row["id"] for row in found["rows"]] == [1, 2, 3, 4], condition


def test_what_arrow_has_not_is_the_text_of_duckdb(shop: Path) -> None:
    sql = "SELECT '101'::BIT AS b, ['101'::BIT] AS bs, 123456789012345678901234567890123456789012::BIGNUM AS n"
    sql += ", '10:00:00+02'::TIMETZ AS tz, 'infinity'::TIMESTAMP AS never"
    expected = {"b": "101", "bs": ["101"], "n": "123456789012345678901234567890123456789012", "tz": "10:00:00+02"}
    assert command("query", NAME, sql)["rows"] == [expected | {"never": "infinity"}]
    command("query", NAME, sql, "--out", str(shop / "odd.jsonl"))
    assert lines_of(shop / "odd.jsonl") == [expected | {"never": "infinity"}]


# ---- --limit


def test_a_limit_holds_for_json_and_for_files(shop: Path) -> None:
    sql = "SELECT id FROM t ORDER BY id"
    assert command("query", NAME, sql, "--limit", "2")["rows"] == [{"id": 1}, {"id": 2}]
    assert len(command("query", NAME, sql)["rows"]) == 4
    assert len(command("query", NAME, "SELECT range AS id FROM range(1500)")["rows"]) == 1500
    file = shop / "some.jsonl"
    assert command("query", NAME, sql, "--limit", "3", "--out", str(file))["rows"] == 3
    assert lines_of(file) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_statement_without_rows_shows_none(shop: Path) -> None:
    for sql in ("CREATE VIEW made AS SELECT 1", "SELECT id FROM t WHERE id > 99"):
        assert shown("query", NAME, sql).split("\n")[:2] == ["no rows", "0 rows"]
        assert command("query", NAME, sql)["rows"] == []
    command("query", NAME, "SELECT id FROM t WHERE id > 99", "--out", str(shop / "none.csv"))
    assert (shop / "none.csv").read_text() == '"id"\n'


# ---- where a file cannot be


def test_a_file_below_a_file_is_an_error_that_says_so(shop: Path) -> None:
    (shop / "plain").write_text("a file")
    for ending in ("parquet", "csv", "jsonl"):
        file = str(shop / "plain" / f"t.{ending}")
        for words in (("export", NAME, "t"), ("query", NAME, "SELECT * FROM t")):
            error = command(*words, "--out", file, code=1)["error"]
            assert (error["code"], error["subject"]) == ("STORE_FAILED", file)
            assert "--out" in error["remedy"]
    error = command("export", NAME, "--out", str(shop / "plain" / "all"), code=1)["error"]
    assert error["code"] == "STORE_FAILED"
