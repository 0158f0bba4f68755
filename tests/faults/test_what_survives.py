"""Each row of docs/how-to/recover.md, "What survives what", with the commands that it names."""

import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest

import ccpr
from ccpr.mirror.encryption_keys import new_key
from tests.features import test_locked_bucket
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command
from tests.support.scratch_database import Scratch
from tests.support.simulated import rows

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "recover.md"
TABLE = f"{DATABASE}.a"


def instant(at: int) -> str:
    """A time as it is typed; nanoseconds since 1970."""
    return datetime.fromtimestamp(at // 10**9, UTC).isoformat()


@pytest.fixture
def second(home: Path) -> Path:
    return home / "second"


def assert_restored(scratch: Scratch, shop: OneTable, lsn: int) -> None:
    """The table is in MariaDB as it was at the point."""
    assert scratch.tables() == {"a"}
    with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n, v FROM a ORDER BY n")
        found = [dict(zip(("n", "v"), row, strict=True)) for row in cursor.fetchall()]
    assert found == shop.truth[lsn].sort_by("n").to_pylist()


def assert_reads(place: Path | str, shop: OneTable, lsns: list[int]) -> None:
    table = ccpr.open_mirror(str(place)).table(TABLE)
    for lsn in lsns:
        assert rows(table.to_arrow(at=lsn)) == rows(shop.truth[lsn])


def test_a_lost_machine(one_table: OneTable, home: Path, scratch: Scratch) -> None:
    """The state folder is gone with its key file; the mirror is elsewhere."""
    mirror, saved = home / "bucket", home / "s.json"
    one_table.source.subscribe("--mirror", str(mirror))
    one_table.work()
    command("state", "export", "s", "--out", str(saved))
    one_table.work()
    shutil.rmtree(home / "home")
    assert_reads(mirror, one_table, [0, 1])
    command("restore", "--mirror", str(mirror), "--at", "0", "--into", scratch.uri)
    assert_restored(scratch, one_table, 0)
    command("state", "import", str(saved), "--from", one_table.source.uri, "--adopt")
    one_table.work()
    assert one_table.lsns() == [0, 1, 2]
    assert_reads(mirror, one_table, [0, 1, 2])


def test_a_lost_bucket(one_table: OneTable, home: Path, second: Path) -> None:
    one_table.source.subscribe("--mirror", str(home / "bucket"))
    one_table.work()
    command("copy", "s", "--to", str(second))
    shutil.rmtree(home / "bucket")
    assert command("run", "s", code=1)["error"]["code"] == "MIRROR_MISSING"
    command("copy", "s", "--promote", str(second))
    one_table.work()
    assert one_table.lsns() == [0, 1]
    assert_reads(second, one_table, [0, 1])


def test_a_lost_bucket_and_a_lost_machine(one_table: OneTable, home: Path, second: Path) -> None:
    saved = home / "s.json"
    one_table.source.subscribe("--mirror", str(home / "bucket"))
    one_table.work()
    command("copy", "s", "--to", str(second))
    command("state", "export", "s", "--out", str(saved))
    shutil.rmtree(home / "bucket")
    shutil.rmtree(home / "home")
    command("state", "import", str(saved), "--from", one_table.source.uri, "--adopt", "--mirror", str(second))
    one_table.work()
    assert one_table.lsns() == [0, 1]
    assert_reads(second, one_table, [0, 1])


def test_a_lost_key(one_table: OneTable, home: Path, second: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing opens the mirror any more; a copy that has another key is not lost with it."""
    for name in ("KEY", "COPY_KEY"):
        monkeypatch.setenv(name, new_key())
    one_table.source.subscribe("--encrypt", "env:KEY")
    one_table.work()
    command("copy", "s", "--to", str(second), "--encrypt", "env:COPY_KEY")
    monkeypatch.setenv("KEY", new_key())
    assert command("run", "s", code=1)["error"]["code"] == "KEY_WRONG"
    with pytest.raises(ccpr.KeyWrong):
        ccpr.open_mirror(f"{one_table.source.mirror_folder()}?encrypt=env:KEY").points()
    command("copy", "s", "--promote", str(second), "--encrypt", "env:COPY_KEY")
    one_table.work()
    assert_reads(f"{second}?encrypt=env:COPY_KEY", one_table, [0, 1])


def test_a_bad_release(one_table: OneTable, home: Path) -> None:
    """It has written nonsense into state and mirror: both are restored from copies of different ages."""
    one_table.source.subscribe()
    one_table.work()
    shutil.copytree(home / "home", home / "before")
    one_table.work()
    catalog, mirror = home / "home" / "catalog.db", one_table.source.mirror_folder()
    catalog.write_bytes(b"nonsense")
    assert command("status", "s", code=1)["error"]["code"] == "STATE_UNREADABLE"
    shutil.copy(home / "before" / "catalog.db", catalog)
    for left in home.glob("home/catalog.db-*"):
        left.unlink()
    assert command("run", "s", code=1)["error"]["code"] == "MIRROR_AHEAD"
    command("state", "adopt", "s")
    one_table.work()
    assert one_table.lsns() == [0, 1, 2]
    assert_reads(mirror, one_table, [0, 1, 2])
    assert command("verify", "s")["sound"]


def test_a_dropped_table(one_table: OneTable, home: Path, scratch: Scratch) -> None:
    one_table.source.subscribe("--retain", "2")
    one_table.work()
    command("points", "hold", "s", "0", "--name", "before-the-drop")
    one_table.source.storage.drop_table(DATABASE, "a")
    command("run", "s")
    assert command("tables", "s")["tables"] == []
    file = home / "a.sql"
    command("export", "s", "a", "--at", "before-the-drop", "--format", "sql", "--out", str(file))
    assert "INSERT INTO `a`" in file.read_text()
    command("restore", "s", "--at", "before-the-drop", "--table", "a", "--into", scratch.uri)
    assert_restored(scratch, one_table, 0)
    assert rows(one_table.read("before-the-drop")) == rows(one_table.truth[0])


def test_a_wrong_update(one_table: OneTable, home: Path, scratch: Scratch) -> None:
    """At a time: what the rows were before, and which ones it changed."""
    one_table.source.subscribe()
    one_table.work()
    one_table.work()
    one_table.clock.at += 60 * 10**9
    before = instant(one_table.clock.at)
    one_table.clock.at += 60 * 10**9
    with one_table.source.storage.begin() as transaction:
        transaction.update(DATABASE, "a", {"v": "wrong"}, pc.field("n") >= 0)
    wrong = command("run", "s")["lsn"]
    one_table.clock.at += 60 * 10**9
    command("run", "s")
    table = one_table.source.mirror().table(TABLE)
    assert set(table.to_arrow(at=wrong).column("v").to_pylist()) == {"wrong"}
    after = instant(one_table.clock.at - 30 * 10**9)
    changed = command("diff", "s", TABLE, "--from", before, "--to", after)
    assert {row["key"]["n"]: row["before"]["v"] for row in changed["rows"]} == {0: "v0", 1: "v1"}
    assert rows(one_table.read(before)) == rows(one_table.truth[1])
    file = home / "a.sql"
    command("export", "s", "a", "--at", before, "--format", "sql", "--out", str(file))
    assert "wrong" not in file.read_text()
    command("restore", "s", "--at", before, "--into", scratch.uri)
    assert_restored(scratch, one_table, 1)


def test_a_failing_disk(one_table: OneTable, home: Path, second: Path) -> None:
    """The upstream has not what the oldest point consists of any more; a second copy has."""
    one_table.source.subscribe()
    one_table.work()
    one_table.work()
    command("copy", "s", "--to", str(second))
    one_table.source.storage.drop_table(DATABASE, "a")
    one_table.source.storage.collect()
    for kind in ("objects", "manifests"):
        for file in filter(Path.is_file, (one_table.source.mirror_folder() / kind).rglob("*")):
            file.write_bytes(b"x" * file.stat().st_size)
    assert not command("verify", "s", code=1)["sound"]
    assert command("verify", "s", "--repair")["sound"]
    assert_reads(one_table.source.mirror_folder(), one_table, [0, 1])


thief = test_locked_bucket.test_a_thief_with_all_credentials_cannot_take_what_the_lock_keeps
PLAYED = {
    "the machine": test_a_lost_machine,
    "the bucket or disk of the mirror": test_a_lost_bucket,
    "both": test_a_lost_bucket_and_a_lost_machine,
    "files of the mirror, by a failing disk": test_a_failing_disk,
    "the key of an encrypted mirror": test_a_lost_key,
    "a good state, by a bad release": test_a_bad_release,
    "a table, by DROP upstream": test_a_dropped_table,
    "rows, by a wrong UPDATE at 14:03": test_a_wrong_update,
    "all that this program's login reaches, by a thief": thief,
}


def test_each_row_of_the_page_is_played() -> None:
    section = PAGE.read_text().partition("\n## What survives what\n")[2].partition("\n## ")[0]
    lines = section.splitlines()
    table = [line.strip("| ").split(" | ")[0] for line in lines if line.startswith("| ")]
    assert table[1:] == list(PLAYED)
