"""`ccpr export --all`: every table of a point as a file, with a script that makes its definitions again."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ccpr.cli.interrupts import BEHIND
from ccpr.cli.main import app
from ccpr.cli.progress_bars import RowProgress
from ccpr.cli.row_files import file_names
from ccpr.service import estimates
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import SimulatedSource, rows, run_sql


@pytest.fixture
def source(home: Path) -> Iterator[SimulatedSource]:
    storage = Storage()
    storage.create_database("shop")
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password="111") as emulator:
        made = SimulatedSource(storage, emulator, home, "shop")
        run_sql(
            emulator.port,
            "shop",
            "create table t (id int not null primary key, a varchar(10))",
            "create table `u v` (id bigint, d decimal(10, 2))",
            "insert into t values (1, 'x'), (2, null)",
            "insert into `u v` values (7, 1.25)",
            "create view v as select id from t",
        )
        made.subscribe()
        yield made


def statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return [text.strip() for text in "\n".join(lines).split(";") if text.strip()]


def test_a_point_is_made_again_from_its_files_alone(source: SimulatedSource, tmp_path: Path) -> None:
    at = command("run", "s")["lsn"]
    truth = {name: source.storage.rows_at("shop", name, source.storage.now) for name in ("t", "u v")}
    run_sql(source.emulator.port, "shop", "insert into t values (3, 'later')", "drop view v", "drop table `u v`")
    command("run", "s")
    done = command("export", "s", "--all", "--at", str(at), "--out", str(tmp_path / "out"))
    assert done["lsn"] == at
    assert {one["table"]: one["rows"] for one in done["tables"]} == {"shop.t": 2, "shop.u v": 1}
    (definitions,) = done["definitions"]
    assert (definitions["definitions"], definitions["left_out"]) == (3, [])
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"shop.sql", "shop.t.parquet", "shop.u v.parquet"}
    storage = Storage()
    storage.create_database("shop")
    with SimulatedUpstream(storage, password="111") as fresh:
        run_sql(fresh.port, "shop", *statements((tmp_path / "out" / "shop.sql").read_text()))
        for name, expected in truth.items():
            found = pq.read_table(tmp_path / "out" / f"shop.{name}.parquet")
            assert rows(found) == rows(expected)
            values = [
                "(" + ", ".join("null" if value is None else repr(str(value)) for value in row.values()) + ")"
                for row in found.to_pylist()
            ]
            run_sql(fresh.port, "shop", f"insert into `{name}` values {', '.join(values)}")
            assert rows(storage.rows_at("shop", name, storage.now)) == rows(expected)
        assert [row[0] for row in run_sql(fresh.port, "shop", "select id from v order by id")] == [1, 2]


def test_odd_names_are_files_and_what_is_too_long_for_one_is_named(source: SimulatedSource, tmp_path: Path) -> None:
    odd = ["a/b", "..", ".x", "con", "%41", "A", "é", "É", "c:d", "日" * 64]
    for name in odd:
        source.storage.create_table("shop", name, {"n": "int"})
        with source.storage.begin() as transaction:
            transaction.insert("shop", name, {"n": [odd.index(name)]})
    too_long = "😀" * 64
    source.storage.create_table("shop", too_long, {"n": "int"})
    command("run", "s")
    done = command("export", "s", "--all", "--out", str(tmp_path / "out"), code=BEHIND)
    assert [(one["table"], one["failure"]["code"]) for one in done["behind"]] == [(f"shop.{too_long}", "BAD_OPTION")]
    files = {unquote(file.stem): file for file in (tmp_path / "out").glob("*.parquet")}
    assert files.keys() == {f"shop.{name}" for name in (*odd, "t", "u v")}
    assert {one["table"] for one in done["tables"]} == files.keys()
    assert len({file.name.casefold() for file in files.values()}) == len(files)
    for number, name in enumerate(odd):
        assert pq.read_table(files[f"shop.{name}"]).to_pylist() == [{"n": number}]


def test_names_of_files_are_the_names_again_and_no_two_are_one_anywhere() -> None:
    names = ["t", "T", "%54", "..", ".", "con", "CON.x", "a/b", "a%2Fb", "e\u0301", "\u00e9", "ﬁ", "fi", "a\\b", "x\0y"]
    made = file_names(names)
    assert {unquote(text): name for name, text in made.items()} == {name: name for name in names}
    assert len({unicodedata.normalize("NFKC", text.casefold()) for text in made.values()}) == len(names)
    assert not any(
        text.startswith(".") or "/" in text or text.partition(".")[0] in ("con", "CON") for text in made.values()
    )
    assert file_names(["shop.Orders 2026", "shop.größe"]) == {one: one for one in ("shop.Orders 2026", "shop.größe")}


def test_several_databases_have_a_script_each(source: SimulatedSource, tmp_path: Path) -> None:
    source.storage.create_database("crm")
    source.storage.create_table("crm", "c", {"n": "int"})
    with source.storage.begin() as transaction:
        transaction.insert("crm", "c", {"n": [5]})
    source.storage.create_publication("all", "*")
    scope = (
        "--from",
        source.uri,
        "--database",
        "shop,crm",
        "--publication",
        "all",
        "--publisher",
        "sys",
        "--allow-overlap",
    )
    command("subscribe", "both", *scope)
    command("run", "both")
    done = command("export", "both", "--all", "--out", str(tmp_path / "out"))
    assert {Path(one["file"]).name for one in done["definitions"]} == {"crm.sql", "shop.sql"}
    assert pq.read_table(tmp_path / "out" / "crm.c.parquet").to_pylist() == [{"n": 5}]
    assert "v" not in (tmp_path / "out" / "crm.sql").read_text().split()
    for name in ("t", "u v"):
        found = pq.read_table(tmp_path / "out" / f"shop.{name}.parquet")
        assert rows(found) == rows(source.storage.rows_at("shop", name, source.storage.now))


def test_a_table_and_all_of_them_are_not_both_exported(source: SimulatedSource, tmp_path: Path) -> None:
    command("run", "s")
    words = ["export", "s", "t", "--all", "--out", str(tmp_path / "t.parquet")]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert not any(tmp_path.glob("*.parquet"))


def test_an_export_says_how_long_it_takes_before_it_begins(
    source: SimulatedSource, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("run", "s")
    words = ["export", "s", "--all", "--out", str(tmp_path), "--yes"]
    with monkeypatch.context() as usual:
        usual.setattr("ccpr.service.estimates.record", lambda *_: None)
        assert "at most" not in CliRunner().invoke(app, words, catch_exceptions=False).output, "nothing of a little"
    monkeypatch.setattr("ccpr.cli.progress_bars._MUCH_BYTES", 0)
    told = " ".join(CliRunner().invoke(app, words, catch_exceptions=False).output.split())
    assert "at most 3 rows" in told
    assert "how long it takes is not known yet" in told
    estimates.record(home / "home", ".parquet", 10**6, 10**4)  # 100 bytes a second
    told = " ".join(CliRunner().invoke(app, words, catch_exceptions=False).output.split())
    assert "by the last ones" in told
    assert "takes some" in told


def test_it_says_how_much_is_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ccpr.cli.progress_bars.time.monotonic", lambda: now[0])
    shown = RowProgress(1_000, quiet=False)
    now[0] += 20
    shown.add(250)
    assert "250 of at most 1,000 rows; some 60 s left" in capsys.readouterr().err
