"""Columns of types that a release does not know: copied and reported, an error to their readers, and read from the
same mirror by a release that knows them. Issue 12, item 4."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer.testing

import ccpr
from ccpr.cli.main import app
from ccpr.matrixone.objects import reader, types, vectors
from ccpr.matrixone.objects.errors import unknown_form
from ccpr.pipeline import findings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

NAME, DATABASE, TABLE = "unknown", "d", "d.t"
REASON = f"type {types.VECUINT8} is not known to this release"
ROWS = [
    {"id": 1, "v": [1, 2, 255], "s": "a"},
    {"id": 2, "v": None, "s": "b"},
    {"id": 3, "v": [0, 0, 0], "s": None},
]


@dataclass(frozen=True)
class Upstream:
    storage: Storage
    folder: Path

    def before(self, *words: str, code: int = 0) -> Any:
        """A command of a release that does not know the type."""
        arguments = ["-m", "tests.support.older_release", str(types.VECUINT8), *words, "--json"]
        result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == code, result.stdout + result.stderr
        return json.loads(result.stdout)

    def after(self, *words: str, code: int = 0) -> Any:
        """The same of this one."""
        return command(*words, code=code)

    def insert(self, rows: list[dict[str, Any]]) -> None:
        with self.storage.begin() as transaction:
            transaction.insert(DATABASE, "t", {name: [row[name] for row in rows] for name in ROWS[0]})

    @property
    def mirror(self) -> Path:
        return self.folder / "home" / "mirrors" / NAME


@pytest.fixture
def upstream(home: Path) -> Iterator[Upstream]:
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    columns = {"id": "int not null", "v": "vecuint8(3)", "s": "varchar(20)"}
    storage.create_table(DATABASE, "t", columns, primary_key=["id"])
    storage.create_table(DATABASE, "u", {"id": "int not null"}, primary_key=["id"])
    with SimulatedUpstream(storage) as emulator:
        upstream = Upstream(storage, home)
        upstream.insert(ROWS[:2])
        source = source_uri(emulator.port)
        scope = ["--database", DATABASE, "--publication", "p", "--publisher", "sys"]
        upstream.before("subscribe", NAME, "--from", source, *scope)
        assert upstream.before("run", NAME)["point"]
        yield upstream


@pytest.fixture
def unknown(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    """From the first run on, this process does not know the type either."""
    monkeypatch.delitem(types.SLOT_SIZES, types.VECUINT8)
    return upstream


def test_a_column_of_an_unknown_type_is_copied_and_a_later_release_reads_it(upstream: Upstream) -> None:
    upstream.insert(ROWS[2:])
    assert upstream.before("run", NAME)["point"]
    assert any(not upstream.before("run", NAME)["point"] for _ in range(4))  # after what the upstream merges
    assert upstream.before("verify", NAME, "--deep")["damages"] == []
    for lsn, rows in ((0, ROWS[:2]), (1, ROWS)):
        table = ccpr.open_mirror(upstream.mirror).table(TABLE)
        assert table.to_arrow(at=lsn).sort_by("id").to_pylist() == rows
    assert upstream.after("verify", NAME, "--deep")["damages"] == []
    assert upstream.after("status", NAME)["unreadable_columns"] == {}


def test_status_tables_and_mirror_say_which_columns_cannot_be_read_and_why(unknown: Upstream) -> None:
    status = unknown.after("status", NAME)
    assert status["ok"]
    assert status["unreadable_columns"] == {TABLE: {"v": REASON}}
    shown = {table["table"]: table["unreadable"] for table in unknown.after("tables", NAME)["tables"]}
    assert shown == {TABLE: {"v": REASON}, f"{DATABASE}.u": {}}
    infos = {info.name: info.unreadable for info in ccpr.open_mirror(unknown.mirror).tables()}
    assert infos == shown
    for words in (["status", NAME], ["tables", NAME]):
        output = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False).output
        assert f"column v of {TABLE}" in " ".join(output.split())


def test_reading_such_a_column_is_an_error_that_names_it_and_others_can_be_read(unknown: Upstream) -> None:
    table = ccpr.open_mirror(unknown.mirror).table(TABLE)
    expected = [{"id": row["id"], "s": row["s"]} for row in ROWS[:2]]
    assert table.to_arrow(columns=["id", "s"]).sort_by("id").to_pylist() == expected
    filtered = table.to_arrow(columns=["s"], filters=[("id", ">", 1)])
    assert filtered.to_pylist() == [{"s": "b"}]
    readings = (
        lambda: table.schema,
        table.to_arrow,
        lambda: table.to_arrow(columns=["v"]),
        lambda: table.to_arrow(columns=["id"], filters=[("v", "is not null")]),
        lambda: table.changes(None),
    )
    for read in readings:
        with pytest.raises(ccpr.ObjectUnsupported, match=REASON) as raised:
            read()
        assert "column v" in raised.value.subject
    error = unknown.after("export", NAME, TABLE, "--out", str(unknown.folder / "t.parquet"), code=1)["error"]
    assert (error["code"], error["subject"]) == ("OBJECT_UNSUPPORTED", f"column v of table {TABLE}")


def test_spark_reads_the_other_columns(unknown: Upstream) -> None:
    from ccpr.pipeline.spark.source import MatrixOneDataSource

    options = {"mirror": str(unknown.mirror), "table": TABLE}
    with pytest.raises(ccpr.ObjectUnsupported, match=REASON):
        MatrixOneDataSource(options)
    assert MatrixOneDataSource({**options, "columns": "id,s"}).schema().names == ["id", "s"]


def parse_before(entry: pa.Buffer, oid: int, *others: Any, owned: bool) -> vectors.Vector:
    """Of a release that does not know the form in which integers are stored."""
    if oid == types.INT32:
        raise unknown_form("vector class", 2, 1, subject="object of this test")
    return vectors.parse_vector(entry, oid, *others, owned=owned)


def test_a_form_that_is_not_known_is_reported_until_a_release_can_read_it(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.insert(ROWS[2:])
    table = ccpr.open_mirror(upstream.mirror).table(TABLE)
    with monkeypatch.context() as patch:
        patch.setattr(reader, "parse_vector", parse_before)
        assert upstream.after("run", NAME)["point"]
        reason = f"vector class 2 is not known to this release ({findings.RELEASE}), in some of its files"
        assert upstream.after("status", NAME)["unreadable_columns"] == {TABLE: {"id": reason}}
        (damage,) = upstream.after("verify", NAME, "--deep", code=1)["damages"]
        assert list(damage["points"]) == ["0"]  # made by a release that could read it
        with pytest.raises(ccpr.ObjectUnsupported, match="vector class 2") as raised:
            table.to_arrow()
        assert raised.value.subject == "column id, object of this test"
        assert sorted(row["s"] or "" for row in table.to_arrow(columns=["s"]).to_pylist()) == ["", "a", "b"]
    assert table.to_arrow(at=1).sort_by("id").to_pylist() == ROWS
    monkeypatch.setattr(findings, "RELEASE", "later")
    assert upstream.after("run", NAME)["point"]
    assert upstream.after("status", NAME)["unreadable_columns"] == {}
    assert table.to_arrow().sort_by("id").to_pylist() == ROWS
