"""Each row of docs/how-to/what-survives-what.md, with the commands that it names."""

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

import ccpr
from ccpr.mirror.keys import new_key
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command
from tests.support.simulated import rows

TABLE = f"{DATABASE}.a"


@pytest.fixture
def second(home: Path) -> Path:
    return home / "second"


def assert_reads(place: Path | str, shop: OneTable, lsns: list[int]) -> None:
    table = ccpr.open_mirror(str(place)).table(TABLE)
    for lsn in lsns:
        assert rows(table.to_arrow(at=lsn)) == rows(shop.truth[lsn])


def test_a_lost_machine(one_table: OneTable, home: Path) -> None:
    """The state folder is gone with its key file; the mirror is elsewhere."""
    mirror, saved = home / "bucket", home / "s.json"
    one_table.source.subscribe("--mirror", str(mirror))
    one_table.work()
    command("state", "export", "s", "--out", str(saved))
    one_table.work()
    shutil.rmtree(home / "home")
    assert_reads(mirror, one_table, [0, 1])
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


def test_a_dropped_table(one_table: OneTable, home: Path) -> None:
    one_table.source.subscribe("--retain", "2")
    one_table.work()
    command("points", "hold", "s", "0", "--name", "before-the-drop")
    one_table.source.storage.drop_table(DATABASE, "a")
    command("run", "s")
    assert command("tables", "s")["tables"] == []
    file = home / "a.sql"
    command("dump", "s", "--at", "before-the-drop", "--table", "a", "--out", str(file))
    assert "INSERT INTO `a`" in file.read_text()
    assert rows(one_table.read("before-the-drop")) == rows(one_table.truth[0])


def test_a_wrong_update(one_table: OneTable, home: Path) -> None:
    """At a time: what the rows were before, and which ones it changed."""
    one_table.source.subscribe()
    one_table.work()
    before = one_table.times[0]
    one_table.clock.at += 60 * 10**9
    with one_table.source.storage.begin() as transaction:
        transaction.update(DATABASE, "a", {"v": "wrong"}, pc.field("n") >= 0)
    wrong = command("run", "s")["lsn"]
    table = one_table.source.mirror().table(TABLE)
    assert set(table.to_arrow(at=wrong).column("v").to_pylist()) == {"wrong"}
    assert rows(one_table.read(str(before))) == rows(one_table.truth[0])
    assert command("diff", "s", TABLE, "--from", "0", "--to", str(wrong))
