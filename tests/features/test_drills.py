"""Drills: a restore that is tried finds what a reader would find, leaves nothing behind, and says how it went."""

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.compute as pc
import pytest

from ccpr.base.carrying import Work
from ccpr.matrixone.objects import visibility
from ccpr.mirror.row_sums import Summing
from ccpr.pipeline.spark.engine import Copier
from ccpr.service import drilling
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import RowSumRecords
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr.state.database import transaction
from ccpr.state.pins import Pins
from ccpr.state.tables import figures
from ccpr.targets import source_rows
from tests.support.mariadb import MariaDb
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import NAME, SIZED_OLDER, command, replaying
from tests.targets.target_database import new_database


@pytest.fixture
def shop(one_table: OneTable) -> OneTable:
    return one_table.replicated(3)


@pytest.fixture
def server(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[MariaDb]:
    monkeypatch.setenv("DRILL_PASSWORD", mariadb.password)
    yield mariadb
    assert scratch_databases(mariadb) == []


def uri(server: MariaDb) -> str:
    return f"mysql://{server.user}:env:DRILL_PASSWORD@{server.host}:{server.port}"


def scratch_databases(server: MariaDb) -> list[str]:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        return [name for (name,) in cursor.fetchall() if name.startswith("ccpr_drill_")]


def scratch_folders(shop: OneTable) -> list[Path]:
    return list((shop.source.home / "home" / drilling.FOLDER).glob("ccpr_drill_*"))


def drill(*words: str, code: int = 0) -> Any:
    return command("drill", "s", *words, code=code)


def recorded(lsn: int) -> dict[str, Any]:
    with closing(Workspace()) as workspace, transaction(workspace.log.engine) as connection:
        rows = connection.execute(figures.select().where(figures.c.lsn == lsn)).all()
        return {row.made_by: (row.row_count, bool(row.row_sum)) for row in rows}


def test_a_point_counts_its_rows_and_a_drill_adds_their_sum(shop: OneTable) -> None:
    assert recorded(1) == {"commit": (2, False)}
    done = drill("--at", "1")
    assert (done["good"], done["lsn"], done["rows"], done["compared"]) == (True, 1, 2, 1)
    assert recorded(1) == {"drill": (2, True)}
    assert drill("--at", "1")["compared"] == 1
    assert scratch_folders(shop) == []
    assert [one["lsn"] for one in drill("--history")] == [1, 1]


def test_without_a_point_it_takes_any_that_is_kept(shop: OneTable) -> None:
    command("points", "drop", "s", "1", "--yes")
    with patch.object(drilling.secrets, "choice", wraps=drilling.secrets.choice) as choice:
        assert drill()["lsn"] in (0, 2)
    assert choice.call_args.args[0] == [0, 2]
    assert drill("--at", "1", code=1)["error"]["code"] == "POINT_GONE"


def test_rows_that_a_reader_would_get_wrong_are_found(shop: OneTable) -> None:
    """A release whose readers forget what was deleted."""
    with shop.source.storage.begin() as deletion:
        deletion.delete(DATABASE, "a", pc.field("n") == 1)
    lsn = shop.work()
    assert drill("--at", str(lsn))["good"]
    with patch.object(visibility, "deleted_rows", lambda *_, **__: {}):
        done = drill("--at", str(lsn), code=1)
    assert done["good"] is False
    assert done["differences"] == {f"{DATABASE}.a": "4 rows instead of 3"}
    assert [one["good"] for one in drill("--history")] == [False, True]
    assert recorded(lsn) == {"drill": (3, True)}, "what was recorded stays"


def test_values_that_differ_are_found(shop: OneTable) -> None:
    assert drill("--at", "2")["good"]
    with closing(Workspace()) as workspace, transaction(workspace.log.engine) as connection:
        connection.execute(figures.update().values(row_sum="0" * 32))
    assert drill("--at", "2", code=1)["differences"] == {f"{DATABASE}.a": "as many rows, and other values"}


def test_what_is_written_is_read_again(shop: OneTable) -> None:
    """A file that has other rows than were written to it."""
    made = Summing.add
    with patch.object(drilling.pq.ParquetFile, "iter_batches", lambda self: iter(())):
        done = drill("--at", "2", code=1)
    assert done["differences"] == {f"{DATABASE}.a": "0 rows instead of 3"}
    assert Summing.add is made


def test_an_object_that_is_damaged_fails_the_drill(shop: OneTable) -> None:
    for file in (shop.source.mirror_folder() / "objects").iterdir():
        file.write_bytes(b"x" * file.stat().st_size)
    done = drill("--at", "2", code=1)
    assert done["failure"]["code"] == "MIRROR_DAMAGED"
    assert scratch_folders(shop) == []


class Killed(BaseException):
    """Nothing catches it."""


def test_what_a_killed_drill_leaves_goes_with_the_next(shop: OneTable) -> None:
    with (
        patch.object(drilling.shutil, "rmtree"),
        patch.object(Pins, "drop"),
        patch.object(drilling._Work, "_through_parquet", side_effect=Killed),
        pytest.raises(Killed),
    ):
        drill()
    assert len(scratch_folders(shop)) == 1
    assert len(command("relay", "pins", "s")["pins"]) == 1
    assert drill()["good"]
    assert scratch_folders(shop) == []
    assert command("relay", "pins", "s")["pins"] == []


def test_a_drill_into_a_server_makes_a_database_and_drops_it(shop: OneTable, server: MariaDb) -> None:
    done = drill("--into", uri(server), "--at", "2")
    assert (done["good"], done["tables"], done["rows"]) == (True, 1, 3)
    assert server.password not in json.dumps(done)
    again = drill("--at", "2")
    assert (again["good"], again["compared"]) == (True, 1), "the same sums, whatever it is restored into"


def test_a_killed_drill_into_a_server_leaves_what_the_next_one_drops(shop: OneTable, server: MariaDb) -> None:
    with (
        patch.object(drilling.DatabaseServer, "drop"),
        patch.object(drilling, "load_point", side_effect=Killed),
        pytest.raises(Killed),
    ):
        drill("--into", uri(server))
    assert len(scratch_databases(server)) == 1
    assert drill("--into", uri(server))["good"]


def test_a_server_that_is_away_fails_the_drill_and_is_recorded(shop: OneTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRILL_PASSWORD", "x")
    done = drill("--into", "mysql://u:env:DRILL_PASSWORD@127.0.0.1:1", code=1)
    assert done["failure"]["code"] == "TARGET_UNAVAILABLE"
    assert len(drill("--history")) == 1


@pytest.mark.parametrize("by_tasks", [False, True])
def test_a_target_that_loads_a_table_records_its_sum(
    shop: OneTable, server: MariaDb, by_tasks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = list[Any]()

    def carry(_: Copier, work: Work, *others: object) -> Iterable[Any]:
        pieces.extend(work.pieces)
        return work.function(work.pieces)

    if by_tasks:
        monkeypatch.setattr(source_rows, "LOAD_ROWS", 1)
        monkeypatch.setattr(Copier, "carry", carry)
        monkeypatch.setenv(KEY_FILE_VARIABLE, str(shop.source.home / "home" / "key"))
    with new_database(server) as place:
        to = place.uri.replace(server.password, "env:DRILL_PASSWORD")
        command("target", "add", "s", "db", "--to", to)
        lsn = shop.work()
        assert recorded(lsn) == {"target": (4, True)}
        assert (len(pieces) > 1) == by_tasks
        assert drill("--at", str(lsn))["good"]
        command("target", "release", "s")


def test_figures_of_another_history_are_forgotten(shop: OneTable) -> None:
    with closing(Workspace()) as workspace:
        task_id = workspace.log.row("s").task_id
        assert RowSumRecords(workspace.log.engine, task_id).at(2)
    command("state", "adopt", "s")
    assert recorded(2) == {}
    assert drill("--at", "2")["compared"] == 0


def test_a_password_has_no_place_in_a_setting(one_table: OneTable) -> None:
    error = one_table.source.subscribe("--drill-into", "mysql://root:secret@db:3306", code=2)["error"]
    assert error["code"] == "BAD_SETTING"
    assert "secret" not in json.dumps(error)
    one_table.source.subscribe("--drill-into", "mysql://root:env:DRILL@db:3306", "--drill-every", "12h")
    one_table.work()
    error = drill(code=2)["error"]
    assert (error["code"], error["subject"]) == ("BAD_URI", "env:DRILL")


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", SIZED_OLDER)
def test_every_type_goes_through_parquet_and_a_server_alike(
    scenario: str, recordings: Path, home: Path, server: MariaDb
) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe()
        for _ in range(2):
            replica.run()
        first = replica.command("drill", NAME, "--at", "1")
        again = replica.command("drill", NAME, "--at", "1", "--into", uri(server))
        assert (first["good"], again["good"]) == (True, True)
        assert again["compared"] == first["tables"] == again["tables"]


def test_a_folder_may_be_named_by_its_url_and_a_bucket_may_not(
    shop: OneTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a place"
    assert drill("--into", place.as_uri())["place"] == str(place)
    assert drill("--into", "s3://bucket/prefix", code=2)["error"]["code"] == "BAD_NAME"
    assert [one.name for one in tmp_path.iterdir() if one.name[:4] in ("file", "s3:")] == []
