"""A kept point in a MariaDB, by rows and as a script: it equals the source at that point, and nothing of ours is left
there."""

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from ccpr.cli.interrupts import BEHIND
from ccpr.matrixone.schema import Column
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.schema.sync_mark import MARK
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.target_session import TargetSession
from tests.support.expected import assert_rows_equal
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import NAME, SIZED_OLDER, Replica, command, replaying
from tests.support.scratch_database import Scratch
from tests.support.simulated import rows, run_sql
from tests.support.target_rows import target_rows

_CLIENT = shutil.which("mariadb") or shutil.which("mysql")


def columns_of(mirror: Path, lsn: int) -> dict[str, tuple[Column, ...]]:
    opened = Mirror(LocalStore(mirror))
    return {ref.name: opened.manifest(ref).table.user_columns for ref in opened.point(lsn).tables.values()}


def assert_restored(replica: Replica, snapshot: int, scratch: Scratch) -> None:
    expected = {name.partition(".")[2]: file for name, file in replica.in_scope(snapshot).items()}
    assert scratch.tables() == expected.keys()
    columns = columns_of(replica.mirror, snapshot - 1)
    for name, file in expected.items():
        found = target_rows(scratch.server, scratch.name, name, columns[name])
        assert_rows_equal(found, pq.read_table(file))
        assert MARK not in scratch.text(name)


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", SIZED_OLDER)
@pytest.mark.parametrize("newest", [False, True])
def test_a_point_in_a_database_equals_the_source_at_that_point(
    scenario: str, newest: bool, recordings: Path, home: Path, scratch: Scratch
) -> None:
    with replaying(recordings / scenario, home) as replica:
        snapshot = min(replica.about.snapshots, 3) if newest else 1
        replica.subscribe()
        for _ in range(min(snapshot + 1, replica.about.snapshots)):
            replica.run()
        done = replica.command("restore", NAME, "--into", scratch.uri, "--at", str(snapshot - 1))
        assert (done["lsn"], done["database"]) == (snapshot - 1, scratch.name)
        assert_restored(replica, snapshot, scratch)
        assert replica.command("relay", "pins", NAME)["pins"] == [], "the point may expire again"


@pytest.mark.recordings
@pytest.mark.skipif(_CLIENT is None, reason="there is no client of MariaDB")
@pytest.mark.parametrize("scenario", ["all_types", "dml", "keys", "wide_and_large"])
def test_a_dump_that_a_client_loads_equals_the_source(
    scenario: str, recordings: Path, home: Path, scratch: Scratch
) -> None:
    if not (recordings / scenario).is_dir():
        pytest.skip("not among these recordings")
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe()
        replica.run()
        file = home / "dump.sql"
        done = replica.command("export", NAME, "--format", "sql", "--out", str(file))
        assert done["bytes"] == file.stat().st_size
        scratch.server.create_database(scratch.name)
        login = [f"-u{scratch.server.user}", f"-p{scratch.server.password}", f"-h{scratch.server.host}"]
        words = [str(_CLIENT), "--no-defaults", *login, f"-P{scratch.server.port}", "--protocol=tcp", scratch.name]
        with file.open("rb") as script:
            loaded = subprocess.run(words, stdin=script, capture_output=True, check=False)
        assert loaded.returncode == 0, loaded.stderr.decode()[:2000]
        assert_restored(replica, 1, scratch)


# ---- what does not fit

ODD = {
    "deep": f"create table deep ({', '.join(f'c{n} int' for n in range(1100))})",
    "wide": f"create table wide (id int primary key, {', '.join(f'c{n} varchar(200)' for n in range(300))})",
    "日" * 60: f"create table `{'日' * 60}` (id int primary key)",
    "far": "create table far (id int primary key, f double)",
}


@pytest.fixture
def odd(one_table: OneTable) -> OneTable:
    """Tables that a MariaDB cannot have beside one that it can have."""
    one_table.source.subscribe()
    run_sql(one_table.source.emulator.port, DATABASE, *ODD.values(), "create table zz (id int primary key)")
    with one_table.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "far", {"id": [1, 2], "f": [0.5, float("inf")]})
        transaction.insert(DATABASE, "zz", {"id": [1, 2, 3]})
    one_table.work()
    return one_table


def test_what_does_not_fit_is_named_and_the_others_are_restored(odd: OneTable, scratch: Scratch) -> None:
    for again in (False, True):
        done = restore(scratch, code=BEHIND)
        assert {one["table"]: one["failure"]["code"] for one in done["behind"]} == {
            **{f"d.{name}": "TARGET_UNFIT" for name in ODD},
            "d.far": "TARGET_VALUE_REFUSED",
        }
        assert (done["tables"], done["rows"], len(done["there"])) == (2, 4, 2 * again)
        assert scratch.tables() == {"a", "zz"}
        assert MARK not in scratch.text("zz")
    error = restore(scratch, "--table", "deep", "--table", "far", code=1)["error"]
    assert error["code"] == "RESTORE_INCOMPLETE"
    assert scratch.tables() == {"a", "zz"}


def test_what_does_not_fit_is_no_part_of_a_script_and_the_script_loads(
    odd: OneTable, scratch: Scratch, home: Path
) -> None:
    file = home / "dump.sql"
    done = command("export", "s", "--format", "sql", "--out", str(file), code=BEHIND)
    assert {one["table"] for one in done["behind"]} == {f"d.{name}" for name in ODD}
    assert (done["tables"], done["rows"], done["bytes"]) == (2, 4, file.stat().st_size)
    scratch.server.create_database(scratch.name)
    with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
        for statement in file.read_text().split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        connection.commit()
    assert scratch.tables() == {"a", "zz"}
    assert rows(restored(odd, scratch)) == rows(odd.truth[0])
    assert command("dump", "s", "--table", "deep", "--out", str(home / "x"), code=1)["error"]["code"] == "TARGET_UNFIT"
    assert not (home / "x").exists()


# ---- what is there, and what was interrupted


@pytest.fixture
def shop(one_table: OneTable) -> OneTable:
    one_table.source.subscribe()
    one_table.source.storage.create_table(DATABASE, "b", {"k": "int", "w": "varchar(20)"})
    with one_table.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "b", {"k": list(range(500)), "w": [f"w{n}" for n in range(500)]})
    for _ in range(3):
        one_table.work()
    return one_table


def restore(scratch: Scratch, *words: str, code: int = 0) -> Any:
    return command("restore", "s", "--into", scratch.uri, *words, code=code)


def restored(shop: OneTable, scratch: Scratch, table: str = "a") -> Any:
    columns = columns_of(shop.source.mirror_folder(), max(shop.truth))[table]
    return target_rows(scratch.server, scratch.name, table, columns)


def test_a_table_that_is_there_is_not_touched(shop: OneTable, scratch: Scratch) -> None:
    restore(scratch, "--table", "a", "--at", "0")
    done = restore(scratch, code=BEHIND)
    ((table, code),) = [(one["table"], one["failure"]["code"]) for one in done["behind"]]
    assert (table, code, done["tables"]) == ("d.a", "TARGET_TABLE_FOREIGN", 1)
    assert rows(restored(shop, scratch)) == rows(shop.truth[0])
    assert restored(shop, scratch, "b").num_rows == 500
    assert scratch.tables() == {"a", "b"}
    error = restore(scratch, "--table", "a", code=1)["error"]
    assert (error["code"], error["subject"]) == ("RESTORE_INCOMPLETE", "d.a")
    assert scratch.tables() == {"a", "b"}, "nothing of ours is left of an attempt in vain"
    assert restore(scratch, "--as", "x", code=2)["error"]["code"] == "USAGE"


def test_single_tables_and_a_mirror_alone(shop: OneTable, scratch: Scratch) -> None:
    place = str(shop.source.mirror_folder())
    done = command("restore", "--mirror", place, "--into", scratch.uri, "--at", "1", "--table", "a")
    assert (done["tables"], done["rows"]) == (1, 2)
    assert scratch.tables() == {"a"}
    assert rows(restored(shop, scratch)) == rows(shop.truth[1])
    command("restore", "--mirror", place, "--into", scratch.uri, "--table", "d.b")
    assert scratch.tables() == {"a", "b"}


def test_a_table_with_a_dot_in_its_name_is_named_with_and_without_its_database(
    shop: OneTable, scratch: Scratch
) -> None:
    shop.source.storage.create_table(DATABASE, "x.a", {"n": "int not null"}, primary_key=["n"])
    with shop.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "x.a", {"n": [7]})
    shop.work()
    assert restore(scratch, "--table", "x.a")["rows"] == 1
    assert scratch.tables() == {"x.a"}
    assert restore(scratch, "--table", f"{DATABASE}.x.a")["there"] == [f"{DATABASE}.x.a"]


def test_typed_again_it_finds_the_same_rows_and_leaves_nothing(shop: OneTable, scratch: Scratch) -> None:
    assert restore(scratch)["there"] == []
    done = restore(scratch)
    assert (done["tables"], done["rows"], done["there"], done["behind"]) == (2, 503, ["d.a", "d.b"], [])
    assert scratch.tables() == {"a", "b"}
    with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE a DROP COLUMN v")
    done = restore(scratch, code=BEHIND)
    assert [one["table"] for one in done["behind"]] == ["d.a"]
    assert done["there"] == ["d.b"]
    assert scratch.tables() == {"a", "b"}


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("method", ["create", "release", "leave"])
def test_an_interrupted_restore_goes_on_and_nothing_is_left_of_it(
    method: str, shop: OneTable, scratch: Scratch
) -> None:
    made = getattr(DatabaseTarget, method)
    calls = 0

    def dies(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (2 if method == "create" else 1):
            raise Killed
        return made(*arguments, **options)

    with patch.object(DatabaseTarget, method, dies), pytest.raises(Killed):
        restore(scratch)
    done = restore(scratch)
    assert done["tables"] == 2
    assert scratch.tables() == {"a", "b"}
    assert rows(restored(shop, scratch)) == rows(shop.truth[2])
    assert restored(shop, scratch, "b").num_rows == 500


@pytest.mark.parametrize("dropped", range(5))
def test_killed_while_its_own_tables_go_it_ends_well_when_typed_again(
    dropped: int, shop: OneTable, scratch: Scratch
) -> None:
    made, calls = TargetSession.define, 0

    def dies(session: TargetSession, statement: str) -> None:
        nonlocal calls
        if "`ccpr_" in statement and statement.startswith("DROP TABLE"):
            if calls == dropped:
                raise Killed
            calls += 1
        made(session, statement)

    with patch.object(TargetSession, "define", dies), pytest.raises(Killed):
        restore(scratch)
    done = restore(scratch)
    assert (done["tables"], done["there"], done["behind"]) == (2, ["d.a", "d.b"], [])
    assert scratch.tables() == {"a", "b"}
    assert rows(restored(shop, scratch)) == rows(shop.truth[2])


def test_rows_that_are_added_meanwhile_are_found(shop: OneTable, scratch: Scratch) -> None:
    """Before the command says that all is there."""
    made = DatabaseTarget.advance

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE a SET v = 'other text' WHERE n = 1")
            connection.commit()
        return made(*arguments, **options)

    with patch.object(DatabaseTarget, "advance", meanwhile):
        error = restore(scratch, code=1)["error"]
    assert error["code"] == "RESTORED_DIFFERS"
    with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE a")  # as the remedy says
    assert restore(scratch)["tables"] == 2
    assert scratch.tables() == {"a", "b"}
    assert rows(restored(shop, scratch)) == rows(shop.truth[2])


def test_a_table_that_differs_does_not_hide_those_that_were_left_out(odd: OneTable, scratch: Scratch) -> None:
    made = DatabaseTarget.advance

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE zz SET id = 9 WHERE id = 1")
            connection.commit()
        return made(*arguments, **options)

    with patch.object(DatabaseTarget, "advance", meanwhile):
        error = restore(scratch, code=1)["error"]
    assert error["code"] == "RESTORED_DIFFERS"
    assert error["subject"] == f"table {scratch.name}.zz"
    assert all(f"d.{name}" in error["message"] for name in ODD), "all that were left out are named"


def test_how_long_it_takes_is_said_by_the_last_ones(shop: OneTable, scratch: Scratch) -> None:
    from ccpr.service import estimates

    home = shop.source.home / "home"
    assert estimates.expected_seconds(home, "rows", 10**9) is None
    estimates.record(home, "rows", 10**8, 10.0)
    estimates.record(home, "rows", 1000, 10.0)
    assert estimates.expected_seconds(home, "rows", 10**9) == pytest.approx(100.0)
