"""What version 0.1.0 wrote is read, and goes on without anything copied or loaded a second time
(tests/fixtures/README.md)."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pymysql
import pytest

from emulator.recorded_upstream import RecordedUpstream
from replication.mirror.local_store import LocalStore
from replication.mirror.mirror import Mirror
from replication.service.workspace import Workspace
from replication.state.states import State
from replication.targets import sync
from replication.targets.address import parse_target_uri
from tests.end_to_end.replica import About, Replica
from tests.replication.targets.target_database import Place
from tests.support.expected import assert_rows_equal
from tests.support.mariadb import MariaDb
from tests.support.recordings_location import SAMPLE

WRITTEN = Path(__file__).resolve().parent.parent / "fixtures" / "state_0_1_0"
RECORDINGS = {"cut": "cut_inside_object", "types": "all_types", "account": "other_account"}


@pytest.fixture
def old_home(home: Path) -> Path:
    """The state folder that 0.1.0 left, with its object files."""
    folder = home / "home"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(WRITTEN / "home", folder)
    (folder / "key").chmod(0o600)
    for name, recording in RECORDINGS.items():
        shutil.copytree(SAMPLE / recording / "objects", folder / "mirrors" / name / "objects")
    return folder


class Old(Replica):
    """A subscription of the old state."""

    def __init__(self, name: str, emulator: RecordedUpstream, folder: Path) -> None:
        super().__init__(About.read(SAMPLE / RECORDINGS[name]), emulator, folder)
        self.name = name

    def run(self, *options: str, code: int = 0) -> Any:
        return self.command("run", self.name, *options, code=code)

    def export(self, table: str, at: int | None = None) -> Any:
        file = self.folder / "export.parquet"
        self.command("export", self.name, table, "--out", str(file), *([] if at is None else ["--at", str(at)]))
        return pq.read_table(file)

    def assert_equal(self, lsn: int, snapshot: int) -> None:
        for table, file in self.in_scope(snapshot).items():
            assert_rows_equal(self.export(table, lsn), pq.read_table(file))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the load was cut when it was begun."""
    monkeypatch.setattr(sync, "LOAD_ROWS", 100)


@contextmanager
def going_on(name: str, home: Path, **options: Any) -> Iterator[Old]:
    """An upstream that has the snapshots which the state knows, and the subscription pointed to it."""
    with RecordedUpstream(SAMPLE / RECORDINGS[name], **options) as emulator:
        with closing(Workspace()) as workspace:
            row = workspace.log.row(name)
        context = json.loads(row.context)
        known = {ref["lsn"]: ref["name"] for ref in (context[role] for role in ("open", "current", "previous")) if ref}
        connection = pymysql.connect(
            host="127.0.0.1", port=emulator.port, user="sys#dump", password="111", autocommit=True
        )
        with closing(connection), connection.cursor() as cursor:
            for lsn in range(max(known) + 1):
                named = known.get(lsn, f"other_{lsn}")
                of = f"{row.subscription_account_name} PUBLICATION {row.publication_name}"
                cursor.execute(f"CREATE SNAPSHOT {named} FOR DATABASE {row.db_name} FROM {of}")
        old = Old(name, emulator, home.parent)
        old.command("alter", name, "--from", f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}")
        yield old


@pytest.fixture
def targets(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Place]]:
    """The databases of the old targets, with what they held."""
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    names = json.loads((WRITTEN / "databases.json").read_text())
    found = {}
    with ExitStack() as cleared:
        for what, name in names.items():
            mariadb.create_database(name)
            address, _ = parse_target_uri(f"mysql://{mariadb.user}:x@{mariadb.host}:{mariadb.port}/{name}")
            found[what] = Place(mariadb, name, address)
            cleared.callback(drop, mariadb, name)
            load_dump(mariadb, name, (WRITTEN / f"{what}.sql").read_text())
        yield found


def load_dump(server: MariaDb, database: str, text: str) -> None:
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        for statement in text.partition("\n")[2].split(";\n"):  # the first line is for mariadb's own client
            if statement.strip():
                cursor.execute(statement)


def drop(server: MariaDb, database: str) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE `{database}`")


def point_target_to(old: Old, target: str, place: Place) -> None:
    to = place.uri.replace(place.server.password, "env:TARGET_PASSWORD")
    old.command("target", "alter", old.name, target, "--to", to)


def target_rows_of(place: Place, table: str) -> int:
    ((count,),) = place.query(f"SELECT count(*) FROM `{table}`")
    return count


def test_the_old_state_is_shown_and_read(old_home: Path) -> None:
    with going_on("cut", old_home) as old:
        shown = {entry["name"]: entry["state"] for entry in old.command("subscriptions")}
        assert set(shown) == {"cut", "types", "account", "paused"}
        assert [point["lsn"] for point in old.command("points", "cut")] == [0, 1, 2]
        for lsn in range(3):
            old.assert_equal(lsn, lsn + 1)
        assert old.command("verify", "cut", "--deep")["sound"]


def test_an_open_iteration_goes_on_and_fetches_nothing_again(old_home: Path, targets: dict[str, Place]) -> None:
    with going_on("cut", old_home) as old:
        point_target_to(old, "report", targets["cut-report"])
        point_target_to(old, "loading", targets["cut-loading"])
        outcome = old.run()
        assert (outcome["lsn"], outcome["point"], outcome["objects_copied"] > 0) == (3, True, True)
        assert old.emulator.status().sessions_that_fetched == 0
        old.assert_equal(3, 4)
        found = {target["target"]: target for target in outcome["targets"]}
        report = {table["table"]: table["action"] for table in found["report"]["tables"]}
        assert set(report.values()) == {"changed"}  # nothing is loaded again
        loaded = {table["table"].partition(".")[2]: table for table in found["loading"]["tables"]}
        assert (
            loaded["c"]["upserted"] < 500
        )  # of 641 rows, 640 were there; what the newest point changes comes as a delta
        for target in ("cut-report", "cut-loading"):
            for table, file in old.in_scope(4).items():
                assert target_rows_of(targets[target], table.partition(".")[2]) == pq.read_metadata(file).num_rows


def test_a_piece_of_a_load_keeps_its_rows_under_its_new_key(old_home: Path, targets: dict[str, Place]) -> None:
    place = targets["cut-loading"]
    before = place.query("SELECT part, row_count FROM ccpr_load_parts")
    place.query("CREATE TABLE watched (n INT); ")
    place.query(
        "CREATE TRIGGER seen AFTER INSERT ON ccpr_load_parts FOR EACH ROW INSERT INTO watched VALUES (NEW.row_count)"
    )
    assert [rows for _, rows in before] == [640]
    with going_on("cut", old_home) as old:
        point_target_to(old, "report", targets["cut-report"])
        point_target_to(old, "loading", place)
        old.run()
    ((pieces,),) = place.query("SELECT count(*) FROM watched")
    assert pieces == 2  # the missing one of `c`, and the one of `nokey`
    assert target_rows_of(place, "c") == 482


def test_a_table_in_quarantine_comes_back(old_home: Path) -> None:
    with going_on("types", old_home) as old:
        (behind,) = [point["behind"] for point in old.command("points", "types") if point["lsn"] == 1]
        assert [entry["table"] for entry in behind] == ["gd_types.per_type_notnull"]
        outcome = old.run()
        assert outcome["quarantined"] == []
        old.assert_equal(outcome["lsn"], 2)


def test_a_change_of_definition_that_was_begun_is_brought_to_its_end(old_home: Path, targets: dict[str, Place]) -> None:
    place = targets["account-report"]
    assert len(place.query("SELECT 1 FROM ccpr_intents")) == 1
    with going_on("account", old_home) as old:
        point_target_to(old, "report", place)
        outcome = old.run()
        (target,) = outcome["targets"]
        assert (target["error"], target["behind"]) == (None, [])
        assert place.query("SELECT 1 FROM ccpr_intents") == []
        for table, rows in (("p", 333), ("q", 100), ("later", 1)):
            assert target_rows_of(place, table) == rows


def test_paused_and_dropped_ones_are_what_they_were(old_home: Path) -> None:
    with closing(Workspace()) as workspace:
        rows = {row.subscription_name: row for row in workspace.log.rows()}
        assert rows["paused"].state == State.PAUSED
        assert "dropped" not in rows
    assert Mirror(LocalStore(old_home / "mirrors" / "dropped")).lsns() == [0]
