"""What happens to a target with several writers, an interrupted load or an altered table; and rebuilding a table."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from ccpr.mirror.delta.split import DeltaPart, DeltaSplit, run_split
from ccpr.mirror.mirror import Mirror
from ccpr.state import targets
from ccpr.targets import source_rows
from ccpr.targets.errors import TargetUnavailable
from tests.support.shop import DATABASE, NAME, TARGET, Shop, shop

__all__ = ["shop"]


def test_two_state_folders_never_write_to_one_table(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add()
    shop.run()
    shop.insert("a", 200)
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "second" / ".ccpr"))
    shop.subscribe()
    shop.add()
    assert {table["failure"]["code"] for table in shop.run()["behind"]} == {"TARGET_TABLE_FOREIGN"}
    assert len(shop.place.rows("a")) == 100, "what the first has made is not touched"


def test_an_old_copy_of_the_state_does_not_revert_a_target(
    shop: Shop, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add()
    shop.run()
    copy = home / "copy"
    shutil.copytree(home / "home", copy)
    shop.storage.add_column(DATABASE, "a", "c", "int", in_place=True)
    shop.insert("a", 200, c=[7])
    assert shop.run()["behind"] == []
    shop.insert("a", 201, c=[8])
    assert shop.actions() == {"a": ("changed", 1)}
    before = shop.place.rows("a")
    monkeypatch.setenv("CCPR_HOME", str(copy))
    (outcome,) = shop.command("run", NAME, "--allow-resync", code=1)["targets"]
    assert outcome["error"]["code"] == "TARGET_AHEAD"
    assert shop.place.rows("a") == before
    monkeypatch.setenv("CCPR_HOME", str(home / "home"))
    shop.insert("a", 202, c=[9])
    assert shop.actions() == {"a": ("changed", 1)}
    shop.assert_equal()


def test_a_target_at_a_point_that_was_idle_in_the_restored_history_is_not_synced(
    shop: Shop, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old copy of the state makes a point after some idle iterations, so that its newest lsn is beyond the
    target's, and the target's is that of an idle iteration."""
    shop.add()
    shop.run()
    while shop.command("run", NAME)["point"]:  # what was flushed for the first is the second
        pass
    copy = home / "copy"
    shutil.copytree(home / "home", copy)
    for number in (200, 201, 202):
        shop.insert("a", number)
        reached = shop.run()["lsn"]
    rows = shop.place.rows("a")
    monkeypatch.setenv("CCPR_HOME", str(copy))
    for account, name in [*shop.storage.snapshots]:  # somebody cleans up before it is started
        shop.storage.drop_snapshot(name, account=account)
    with shop.storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.equal(pc.field("n"), 200))
    outcomes, lsn, number = [], 0, 300
    while lsn <= reached + 3:
        if lsn >= reached:
            shop.insert("a", number := number + 1)
        outcome = shop.command("run", NAME, "--allow-resync", code=1)
        lsn = outcome["lsn"]
        outcomes.append((outcome["point"], outcome["targets"][0]["error"]["code"]))
    assert {point for point, _ in outcomes} == {True, False}
    assert {code for _, code in outcomes} == {"TARGET_AHEAD"}
    assert shop.place.rows("a") == rows


def test_a_target_at_a_point_that_is_not_kept_has_to_be_rebuilt(shop: Shop) -> None:
    """Whether it was a point of this history is not known, so not even a table that has not changed since may move
    on."""
    shop.command("alter", NAME, "--retain", "1")
    shop.add()
    while shop.command("run", NAME)["point"]:
        pass
    copy = [shop.place.query(f"SELECT * FROM {table}") for table in ("ccpr_checkpoints", "a")]
    for number in (200, 201, 202):
        shop.insert("a", number)
        shop.insert("b", number)
        shop.run()
    for table, rows in zip(("ccpr_checkpoints", "a"), copy, strict=True):  # a target restored from a backup
        shop.place.query(f"DELETE FROM {table}")
        for row in rows:
            shop.place.query(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)
    shop.insert("b", 300)
    behind = {table["table"]: table["failure"]["code"] for table in shop.run()["behind"]}
    assert behind == dict.fromkeys(("d.a", "d.b", "d.still"), "TARGET_POINT_GONE")
    assert shop.place.rows("a") == sorted(copy[1], key=repr)
    for table in ("a", "b", "still"):
        shop.command("target", "rebuild", NAME, TARGET, table)
    assert shop.status()["behind"] == []
    shop.assert_equal()


def test_an_interrupted_load_is_continued_when_the_mirror_has_newer_points(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(1000, 1600, 100):  # one object each, and so one piece
        shop.insert("a", *range(start, start + 100))
        shop.storage.flush(DATABASE, "a")
    monkeypatch.setattr(source_rows, "LOAD_ROWS", 10)
    read: list[int] = []

    def breaks_off(mirror: Mirror, work: DeltaSplit) -> Iterator[DeltaPart]:
        read.append(1)
        if work.shape.table == f"{DATABASE}.a" and len(read) > 4:
            raise TargetUnavailable("away", subject="test")
        yield from run_split(mirror, work)

    shop.command("alter", NAME, "--retain", "1")
    shop.add()
    with monkeypatch.context() as patch:
        patch.setattr(source_rows, "run_split", breaks_off)
        assert shop.run(code=1)["error"]["code"] == "TARGET_UNAVAILABLE"
    ((loaded, pieces),) = shop.place.query("SELECT SUM(row_count), COUNT(*) FROM ccpr_load_parts")
    assert pieces > 0
    shop.insert("a", 200)
    with shop.storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.equal(pc.field("n"), 1000))
    assert shop.actions()["a"] == ("created", 700 - loaded + 1), "what was there is not sent again"
    shop.assert_equal()


@pytest.mark.parametrize(
    ("alteration", "message"),
    [
        (
            "MODIFY v varchar(5) COLLATE utf8mb4_general_ci",
            "column v was varchar(20) utf8mb4_nopad_bin; it is now varchar(5)",
        ),
        (
            "CHANGE v w varchar(20) COLLATE utf8mb4_nopad_bin",
            "column v was varchar(20) utf8mb4_nopad_bin; it does not exist any more",
        ),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (n, v)", "column v was varchar(20) utf8mb4_nopad_bin; it is now"),
    ],
)
def test_a_table_that_somebody_altered_is_reported_and_not_touched(alteration: str, message: str, shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.place.query("ALTER TABLE a ADD COLUMN theirs int, ADD INDEX i (v)")
    shop.insert("a", 200)
    assert shop.actions() == {"a": ("changed", 1)}, "what they add does no harm"
    shop.place.query(f"ALTER TABLE a {alteration}")
    for number in (300, 301):
        shop.insert("a", number)
        shop.insert("still", number)
        (behind,) = shop.run()["behind"]
        assert (behind["table"], behind["failure"]["code"]) == ("d.a", "TARGET_TABLE_ALTERED")
        assert message in behind["failure"]["message"]
    assert len(shop.place.rows("a")) == 101
    assert len(shop.place.rows("still")) == 102


def test_a_key_too_long_is_shown_by_the_plan_and_nothing_is_created(shop: Shop) -> None:
    shop.storage.create_table(DATABASE, "long", {"k": "varchar(1000) not null"}, primary_key=["k"])
    shop.add()
    steps = {step["table"]: step for step in shop.command("plan", NAME)["targets"][TARGET]["steps"]}
    assert steps["d.long"]["failure"]["code"] == "TARGET_UNFIT"
    assert "bytes" in steps["d.long"]["failure"]["message"]
    (behind,) = shop.run()["behind"]
    assert (behind["table"], behind["failure"]["code"]) == ("d.long", "TARGET_UNFIT")
    assert shop.tables() == {"a", "b", "still"}


@pytest.mark.parametrize(
    "loss", ["DELETE FROM a WHERE n < 50", "UPDATE a SET v = 'x'", "DROP TABLE a", "RENAME TABLE a TO theirs"]
)
def test_a_table_is_rebuilt_from_the_mirror(loss: str, shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.place.query(loss)
    still = shop.place.query("SELECT table_id FROM information_schema.innodb_sys_tables WHERE name LIKE '%/still'")
    done = shop.command("target", "rebuild", NAME, TARGET, "a")
    assert [(table["table"], table["upserted"]) for table in done["tables"]] == [("d.a", 100)]
    shop.place.query("DROP TABLE IF EXISTS theirs")
    shop.assert_equal()
    assert (
        shop.place.query("SELECT table_id FROM information_schema.innodb_sys_tables WHERE name LIKE '%/still'") == still
    )
    shop.insert("a", 200)
    assert shop.actions() == {"a": ("changed", 1)}, "it goes on as before"
    shop.assert_equal()


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_rebuild_that_breaks_off_shows_nothing_and_is_repeated(
    meanwhile: bool, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(mirror: Mirror, work: DeltaSplit) -> Iterator[DeltaPart]:
        yield from run_split(mirror, work)
        raise TargetUnavailable("away", subject="test")

    shop.add()
    shop.run()
    shop.place.query("UPDATE a SET v = 'x'")
    with monkeypatch.context() as patch:
        patch.setattr(source_rows, "run_split", breaks_off)
        assert shop.command("target", "rebuild", NAME, TARGET, "a", code=1)["error"]["code"] == "TARGET_UNAVAILABLE"
    assert shop.place.query("SELECT COUNT(*) FROM a WHERE v = 'x'") == [(100,)]
    if meanwhile:
        shop.insert("a", 200)
        assert shop.actions() == {"a": ("changed", 1)}
    shop.command("target", "rebuild", NAME, TARGET, "a")
    assert shop.place.query("SELECT COUNT(*) FROM ccpr_loads") == [(0,)]
    shop.assert_equal()


def test_what_was_dropped_or_released_comes_back_when_its_name_is_free(shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.place.query("DROP TABLE a")
    shop.command("target", "release", NAME, TARGET, "--table", "b")
    shop.insert("a", 200)
    (behind,) = shop.run()["behind"]
    assert behind["failure"]["code"] == "TARGET_TABLE_DROPPED"
    assert "ccpr target rebuild" in behind["failure"]["remedy"]
    assert shop.command("target", "rebuild", NAME, TARGET, "d.a")["behind"] == []
    assert shop.command("target", "rebuild", NAME, TARGET, "b", code=1)["error"]["code"] == "TARGET_TABLE_FOREIGN"
    assert len(shop.place.query("SELECT n FROM b")) == 100, "an ordinary table is not touched"
    shop.place.query("DROP TABLE b")
    assert shop.command("target", "rebuild", NAME, TARGET, "b")["behind"] == []
    shop.insert("b", 300)
    assert shop.actions() == {"b": ("changed", 1)}
    shop.assert_equal()
    assert shop.command("target", "rebuild", NAME, TARGET, "nothing", code=1)["error"]["code"] == "TARGET_TABLE_UNKNOWN"


def test_a_table_that_somebody_altered_has_to_be_dropped_before_it_is_rebuilt(shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.place.query("ALTER TABLE a MODIFY v varchar(5) COLLATE utf8mb4_general_ci")
    assert shop.command("target", "rebuild", NAME, TARGET, "a", code=1)["error"]["code"] == "TARGET_TABLE_ALTERED"
    shop.place.query("DROP TABLE a")
    shop.command("target", "rebuild", NAME, TARGET, "a")
    shop.assert_equal()


def test_a_column_is_kept_as_text_when_its_table_changes_or_is_rebuilt(shop: Shop) -> None:
    shop.add()
    shop.run()
    for wrong in ("a", "a.x", "other.v"):
        assert (
            shop.command("target", "alter", NAME, TARGET, "--as-text", wrong, code=2)["error"]["code"] == "BAD_SETTING"
        )
    assert shop.command("target", "alter", NAME, TARGET, "--as-text", "a.v", "--as-text", "b.v")["as_text"] == [
        "a.v",
        "b.v",
    ]
    shop.command("target", "rebuild", NAME, TARGET, "a")
    assert "`v` longtext" in shop.create_text("a")
    assert "`v` varchar(20)" in shop.create_text("b")
    shop.assert_equal()
    for table in ("a", "b"):
        shop.insert(table, 200)
    assert shop.actions() == {"a": ("changed", 1), "b": ("altered", 1)}
    assert "`v` longtext" in shop.create_text("b")
    shop.assert_equal()


@pytest.mark.parametrize("long_ago", [True, False])
def test_a_target_that_is_ahead_of_a_restored_state_is_found_without_a_new_point(
    shop: Shop, home: Path, monkeypatch: pytest.MonkeyPatch, long_ago: bool
) -> None:
    """What the lost point brought is gone upstream, so that the iterations after the restore are idle. The copies are
    hours old, and so is their last iteration."""
    shop.add()
    while shop.command("run", NAME)["point"]:
        pass
    copy = home / "copy"
    shutil.copytree(home / "home", copy)
    shop.storage.create_table(DATABASE, "lost", {"n": "int not null", "v": "varchar(9)"}, primary_key=["n"])
    shop.insert("lost", 1)
    assert shop.run()["behind"] == []
    shop.storage.drop_table(DATABASE, "lost")
    monkeypatch.setenv("CCPR_HOME", str(copy))
    if long_ago:
        monkeypatch.setattr(targets, "_ASK_AFTER_SECONDS", 0.0)
        monkeypatch.setattr(targets, "_ASK_AFTER_INTERVALS", 0.0)
    outcome = shop.command("run", NAME, code=int(long_ago))
    (target,) = outcome["targets"]
    assert not outcome["point"]
    assert (target["error"] or {}).get("code") == ("TARGET_AHEAD" if long_ago else None)
    assert shop.place.rows("lost") == [(1, "v1")]


def test_a_target_behind_a_promoted_copy_that_is_older_is_loaded_again_as_the_error_says(
    shop: Shop, home: Path
) -> None:
    shop.add()
    shop.run()
    second = home / "second"
    shop.command("copy", NAME, "--to", str(second))
    for number in (200, 201):
        shop.insert("a", number)
        shop.run()
    before = shop.place.rows("a")
    shutil.rmtree(home / "home" / "mirrors" / NAME)
    shop.command("copy", NAME, "--promote", str(second))
    with shop.storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.equal(pc.field("n"), 200))
    (outcome,) = shop.command("run", NAME, "--allow-resync", code=1)["targets"]
    error = outcome["error"]
    assert (error["code"], "`ccpr target remove NAME TARGET --force`" in error["remedy"]) == ("TARGET_AHEAD", True)
    assert shop.place.rows("a") == before
    shop.command("target", "remove", NAME, TARGET, "--force")
    for table in shop.place.query("SHOW TABLES"):
        shop.place.query(f"DROP TABLE `{table[0]}`")
    shop.add()
    assert shop.run()["behind"] == []
    shop.assert_equal()
