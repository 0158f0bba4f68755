"""An encrypted mirror: everything goes on with its key, nothing without, and nothing of it is written in clear text."""

import json
import shutil
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ccpr
from ccpr.mirror.encryption_keys import COMMAND_VARIABLE, new_key
from ccpr.mirror.errors import KeyUnusable, MirrorEncrypted
from ccpr.pipeline.driver import drive
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.subscription import Subscription
from ccpr.state.tables import mo_ccpr_log
from tests.support.lake_readers import read_delta_rs
from tests.support.one_table import DATABASE, OneTable
from tests.support.relayed import assert_same_point, relaying, subscribe_through
from tests.support.replica import command
from tests.support.simulated import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = f"{DATABASE}.a"


@pytest.fixture
def key(home: Path) -> Path:
    made = command("key", "new", str(home / "shop.key"))
    assert command("key", "show", f"file:{home / 'shop.key'}")["keys"] == [made["key"]]
    return home / "shop.key"


@pytest.fixture
def shop(one_table: OneTable, key: Path) -> OneTable:
    one_table.source.subscribe("--encrypt", f"file:{key}", "--retain", "3")
    for _ in range(3):
        one_table.work()
    return one_table


def url(shop: OneTable, key: Path) -> str:
    return f"{shop.source.mirror_folder()}?encrypt=file:{key}"


def assert_equal(shop: OneTable, place: str) -> None:
    mirror = ccpr.open_mirror(place)
    for point in mirror.points():
        expected = shop.truth[point.lsn]
        assert rows(mirror.table(TABLE).to_arrow(at=point.lsn)) == rows(expected)
        assert rows(shop.read(str(point.lsn))) == rows(expected)


def stored(shop: OneTable) -> bytes:
    folder = shop.source.mirror_folder()
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_every_reader_has_the_rows_and_the_files_do_not_show_them(shop: OneTable, key: Path) -> None:
    shop.source.storage.create_table(DATABASE, "clear", {"n": "int not null", "v": "varchar(40)"}, primary_key=["n"])
    with shop.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "clear", {"n": [1], "v": ["in clear text"]})
    command("points", "hold", "s", "0", "--name", "first")
    for _ in range(3):
        shop.work()
    assert_equal(shop, url(shop, key))
    newest = max(shop.truth)
    assert "6" in str(command("query", "s", f"SELECT count(*) AS c FROM {TABLE}"))
    changes = ccpr.open_mirror(url(shop, key)).table(TABLE).changes(since=newest - 1)
    assert changes.to_arrow().num_rows == 1
    assert command("verify", "s", "--deep")["sound"]
    content = stored(shop)
    for text in (b"in clear text", b"ARROW1", TABLE.encode() + b'"', b"snapshot", b"CREATE TABLE"):
        assert text not in content, text


def test_a_lake_is_published_in_clear_only_where_its_address_says_so(shop: OneTable, home: Path) -> None:
    place = (home / "lake").as_uri()
    for refused in (place, f"{place}?encrypt=env:SHOP_KEY"):
        error = command("target", "add", "s", "lake", "--to", refused, code=2)["error"]
        assert error["code"] == "BAD_SETTING"
        assert not (home / "lake").exists()
    error = command("target", "add", "s", "lake", "--to", place, code=2)["error"]
    assert error["remedy"].endswith(f"{place}?encrypt=none")
    command("target", "add", "s", "lake", "--to", f"{place}?encrypt=none")
    shop.work()
    (shown,) = command("target", "status", "s")
    (table,) = shown["tables"]
    assert rows(read_delta_rs(table["uri"], table["version"])) == rows(shop.truth[max(shop.truth)])
    file = home / "ccpr.yaml"
    file.write_text(command("config", "export")["text"])
    assert f"{place}?encrypt=none" in file.read_text()


def test_the_key_comes_from_a_file_a_variable_or_a_command(
    one_table: OneTable, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", key.read_text())
    monkeypatch.setenv(COMMAND_VARIABLE, f"cat {key}")
    one_table.source.subscribe("--encrypt", "env:SHOP_KEY")
    one_table.work()
    for reference in ("command", f"file:{key}", "env:SHOP_KEY"):
        command("alter", "s", "--encrypt", reference)
        one_table.work()
        assert_equal(one_table, f"{one_table.source.mirror_folder()}?encrypt={reference}")
    error = one_table.source.subscribe("--encrypt", "vault:x", name="t", code=2)["error"]
    assert error["code"] == "BAD_SETTING"
    error = one_table.source.subscribe("--encrypt", "env:NO_SUCH_KEY", "--allow-overlap", name="t", code=1)["error"]
    assert error["code"] == "KEY_UNUSABLE"


def test_without_its_key_an_iteration_waits_and_goes_on_when_it_is_there_again(shop: OneTable, key: Path) -> None:
    """It needs no resume."""
    content = stored(shop)
    key.rename(key.with_suffix(".gone"))
    assert command("run", "s", code=1)["error"]["code"] == "KEY_UNUSABLE"
    with pytest.raises(KeyUnusable):
        ccpr.open_mirror(url(shop, key))
    with pytest.raises(MirrorEncrypted):
        ccpr.open_mirror(shop.source.mirror_folder()).point()
    key.write_text(new_key())
    assert command("run", "s", code=1)["error"]["code"] == "KEY_WRONG"
    assert stored(shop) == content
    assert command("subscriptions")[0]["state"] != "error"
    key.unlink()
    key.with_suffix(".gone").rename(key)
    shop.work()
    assert_equal(shop, url(shop, key))


def test_a_mirror_stays_encrypted_if_the_catalog_database_is_edited(shop: OneTable, key: Path) -> None:
    content = stored(shop)
    assert command("alter", "s", "--encrypt", "", code=2)["error"]["code"] == "BAD_SETTING"
    (other := key.with_name("other")).write_text(new_key())
    assert command("alter", "s", "--encrypt", f"file:{other}", code=1)["error"]["code"] == "KEY_WRONG"
    for value, code in (
        ("", "MIRROR_ENCRYPTED"),
        (f"file:{other}", "KEY_WRONG"),
        ("file:/etc/hostname", "KEY_UNUSABLE"),
    ):
        with closing(Workspace()) as workspace:
            config: dict[str, Any] = json.loads(workspace.log.row("s").sync_config)
            changed = json.dumps({**config, "encrypt": value})
            with transaction(workspace.log.engine) as connection:
                connection.execute(mo_ccpr_log.update().values(sync_config=changed))
        assert command("run", "s", code=1)["error"]["code"] == code
        assert stored(shop) == content


def test_a_key_is_changed_and_the_former_one_opens_what_it_encrypted(shop: OneTable, key: Path) -> None:
    former = key.read_text()
    key.write_text(f"{new_key()}\n{former}")
    for _ in range(2):
        shop.work()
    assert_equal(shop, url(shop, key))
    assert command("verify", "s")["sound"]


def test_damage_is_found_and_fetched_again(shop: OneTable, key: Path) -> None:
    damaged = []
    for file in sorted((shop.source.mirror_folder() / "objects").iterdir())[:2]:
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(content)
        damaged.append(f"objects/{file.name}")
    found = command("verify", "s", "--repair")
    assert sorted(damage["path"] for damage in found["damages"]) == damaged
    assert all(damage["repaired"] for damage in found["damages"])
    assert_equal(shop, url(shop, key))


def test_the_state_is_made_again_from_an_encrypted_mirror(shop: OneTable, key: Path) -> None:
    home = shop.source.home / "home"
    file = shop.source.home / "s.json"
    command("state", "export", "s", "--out", str(file))
    shop.work()
    (home / "catalog.db").unlink()
    command("state", "import", str(file), "--from", shop.source.uri, "--adopt")
    shop.work()
    assert_equal(shop, url(shop, key))


def test_a_relay_serves_it_and_a_mirror_behind_it_is_the_same(shop: OneTable, tmp_path: Path) -> None:
    with ExitStack() as held:
        first = held.enter_context(closing(Workspace()))
        relay = held.enter_context(relaying(first))
        before = Subscription.from_row(first.log.row("s"))
        for number, changes in enumerate(({"encrypt": ""}, {})):
            folder = tmp_path / f"site{number}"
            second = held.enter_context(closing(subscribe_through(relay.port, folder, before, **changes)))
            with second.iteration("again") as iteration:
                done = drive(iteration).outcome
            assert done is not None
            assert done.point
            assert_same_point(first.mirror("s"), second.mirror("again"))


def test_it_is_purged_without_its_key_if_that_is_forced(shop: OneTable, key: Path) -> None:
    key.unlink()
    assert command("drop", "s", "--purge", "--yes", code=1)["error"]["code"] == "KEY_UNUSABLE"
    command("drop", "s", "--purge", "--yes", "--force")
    assert not shop.source.mirror_folder().exists()


@pytest.mark.spark
def test_tasks_of_spark_copy_and_read(one_table: OneTable, key: Path, key_file: Path, spark: "SparkSession") -> None:
    one_table.source.subscribe("--encrypt", f"file:{key}")
    shutil.copy(one_table.source.home / "home" / "key", key_file)  # where the session's workers look for it
    one_table.work()
    one_table.source.storage.checkpoint()
    command("run", "s", "--engine", "spark")
    place = url(one_table, key)
    frame = ccpr.read_table(spark, place, TABLE)
    assert rows(frame.toArrow()) == rows(one_table.truth[0])
    with_option = spark.read.format("matrixone").options(mirror=place, table=TABLE).load()
    assert rows(with_option.toArrow()) == rows(one_table.truth[0])


def test_a_bucket_holds_it_too(one_table: OneTable, key: Path, s3_url: str, tmp_path: Path) -> None:
    one_table.source.subscribe("--encrypt", f"file:{key}", "--mirror", s3_url)
    for _ in range(3):
        one_table.work()
    assert_equal(one_table, f"{s3_url}&encrypt=file:{key}")
    shutil.rmtree(tmp_path / "home" / "mirrors", ignore_errors=True)
    assert command("verify", "s")["sound"]
