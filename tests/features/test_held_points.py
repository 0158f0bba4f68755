"""Keep rules and held points, as users type them: what stays reads as the source was then, for each reader."""

import shutil
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest

import ccpr
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.steps.release import sweep
from ccpr.service import held_points
from ccpr.service.workspace import Workspace
from ccpr.state.kept_records import KeptRecords
from ccpr.state.ledger import Ledger
from tests.support.one_table import DATABASE, DAY, HOUR, OneTable
from tests.support.replica import command
from tests.support.simulated import rows


def test_points_stay_by_the_calendar_and_each_of_them_reads_as_it_was(one_table: OneTable) -> None:
    one_table.source.subscribe("--keep", "all:90m,hourly:3,daily:2")
    for _ in range(14):
        one_table.work(30 * 60)
    assert set(one_table.lsns()) >= set(range(10, 14))
    assert len(one_table.lsns()) < 9
    one_table.assert_equal()
    for _ in range(3):
        one_table.work(DAY)
    assert len(one_table.lsns()) == 3, "today and yesterday, and what the last hour began with"
    one_table.assert_equal()


def test_the_first_point_goes_and_those_that_are_differences_from_it_stay_readable(one_table: OneTable) -> None:
    """Its file is complete, so that it is the same file when the point stays by itself."""
    one_table.source.subscribe("--keep", "all:90m,hourly:4", "--retain-files", "0")
    for _ in range(13):
        one_table.work(20 * 60)
        one_table.assert_equal()
    assert 0 not in one_table.lsns()
    assert one_table.lsns()[1] < 15, "the next complete file is that of point 16"
    assert command("verify", "s")["sound"]


def test_a_file_that_was_to_be_deleted_and_is_named_again_stays(one_table: OneTable) -> None:
    """An attempt to hold a point that was killed leaves a list that nothing names, and the next one writes the same."""
    one_table.source.subscribe("--retain", "3")
    one_table.work()
    one_table.work()
    with closing(Workspace()) as workspace:
        killed = patch.object(KeptRecords, "write", side_effect=KeyboardInterrupt)
        with killed, pytest.raises(KeyboardInterrupt):
            held_points.hold(workspace, "s", 0, "first", None)
        assert command("verify", "s", "--repair")["strays"] == 1
        ledger = Ledger(workspace.log.engine, workspace.log.row("s").task_id)
        assert [path.partition("/")[0] for path in ledger.due_garbage(2**62, 2**62)[0]] == ["kept"]
    command("points", "hold", "s", "0", "--name", "first")
    for _ in range(6):
        one_table.work(HOUR)
    one_table.assert_equal()
    assert 0 in one_table.lsns()


def test_what_would_expire_is_shown_before_it_does(one_table: OneTable) -> None:
    one_table.source.subscribe()
    for _ in range(4):
        one_table.work(HOUR)
    assert command("points", "s", "--would-expire") == []
    shown = [point["lsn"] for point in command("points", "s", "--would-expire", "--keep", "hourly:2")]
    assert shown == [0, 1]
    assert command("points", "s", "--keep", "hourly:2", "--json")[3]["kept_by"] == ["newest", "hourly"]
    command("alter", "s", "--keep", "hourly:2")
    assert [point["lsn"] for point in command("points", "s", "--would-expire")] == shown
    one_table.clock.at += HOUR * 10**9
    with one_table.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [77], "v": ["x"]})
    assert command("plan", "s")["expiring_points"] == [0, 1, 2]
    command("run", "s")
    assert one_table.lsns() == [3, 4]


def test_rules_that_are_none_are_refused_in_each_way_in(one_table: OneTable) -> None:
    for text in ("hourly", "hourly:0", "hourly:2,hourly:3", "minutely:3", "all:x", "daily:1000000"):
        error = one_table.source.subscribe("--keep", text, code=2)
        assert error["error"]["code"] == "BAD_SETTING"
    one_table.source.subscribe("--keep", "daily:2")
    assert command("alter", "s", "--keep", "daily:-1", code=2)["error"]["code"] == "BAD_SETTING"
    command("sql", "ALTER SUBSCRIPTION s SET (keep = 'yearly:3')")
    with closing(Workspace()) as workspace:
        assert '"keep": "yearly:3"' in workspace.log.row("s").sync_config


def test_a_held_point_stays_and_its_name_works_wherever_a_point_is_named(one_table: OneTable) -> None:
    one_table.source.subscribe("--retain", "2")
    for _ in range(3):
        one_table.work()
    held = command("points", "hold", "s", "1", "--name", "before-migration")
    assert (held["lsn"], held["until"]) == (1, None)
    command("points", "hold", "s", "1", "--name", "before-migration")
    for _ in range(3):
        one_table.work()
    assert one_table.lsns() == [1, 4, 5]
    one_table.assert_equal()
    assert command("points", "s")[0]["kept_by"] == ["held: before-migration"]
    assert command("tables", "s", "--at", "before-migration")["lsn"] == 1
    assert rows(one_table.read("before-migration")) == rows(one_table.truth[1])
    mirror = one_table.source.mirror()
    assert mirror.point("before-migration").lsn == 1
    assert rows(mirror.table(f"{DATABASE}.a").to_arrow(at="before-migration")) == rows(one_table.truth[1])
    counted = command("query", "s", f"SELECT count(*) AS c FROM {DATABASE}.a", "--at", "before-migration")
    assert counted["rows"] == [[2]] or counted == [{"c": 2}] or "2" in str(counted)
    assert command("diff", "s", f"{DATABASE}.a", "--from", "before-migration", "--to", "5") is not None
    assert command("tables", "s", "--at", "after-migration", code=1)["error"]["code"] == "HOLD_MISSING"
    command("points", "release", "s", "before-migration")
    one_table.work()
    assert one_table.lsns() == [5, 6]
    one_table.assert_equal()


def test_a_hold_ends_by_the_upstreams_clock_and_not_by_ours(one_table: OneTable) -> None:
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    command("points", "hold", "s", "0", "--name", "week", "--until", "2026-06-05T00:00:00")
    one_table.work(DAY)
    assert one_table.lsns() == [0, 1]
    with closing(Workspace(clock=lambda: 4e9)) as workspace, workspace.iteration("s") as iteration:
        sweep(iteration)
    assert one_table.lsns() == [0, 1]
    one_table.work(9 * DAY)
    assert one_table.lsns() == [2]
    assert command("tables", "s", "--at", "week", code=1)["error"]["code"] == "HOLD_MISSING"
    one_table.assert_equal()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Auckland"])
def test_a_hold_until_any_date_is_a_hold_or_an_error_that_says_what_to_type(
    one_table: OneTable, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("CCPR_TIMEZONE", zone)
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    last = 2**63 - 1  # nanoseconds
    for until, end in {
        "9999-12-31": None,
        "9999-12-31T23:59:59.999999": None,
        "9999-12-31T23:59:59-12:00": None,
        "2262-04-13": None,
        "2262-04-11T23:47:16.854776+00:00": None,
        "2262-04-11T23:47:16.854775+00:00": last // 1000 * 1000,
        "2262-04-10T00:00:00+00:00": 9223200000 * 10**9,
    }.items():
        assert command("points", "hold", "s", "0", "--name", "far", "--until", until)["until"] == end, until
        assert command("points", "hold", "s", "0", "--name", "far", "--until", until)["until"] == end, "again"
        assert "held: far" in str(command("points", "s"))
        command("points", "release", "s", "far")
    for until in ("0001-01-01", "0001-01-01T00:00:00+14:00", "1600-01-01", "1970-01-01", "2020-01-01"):
        error = command("points", "hold", "s", "0", "--name", "past", "--until", until, code=2)["error"]
        assert (error["code"], "--until" in error["remedy"]) == ("BAD_OPTION", True), until
    for until in ("10000-01-01", "infinity", "31.12.9999"):
        assert command("points", "hold", "s", "0", "--until", until, code=2)["error"]["code"] == "USAGE", until
    command("points", "hold", "s", "0", "--name", "far", "--until", "9999-12-31")
    for _ in range(3):
        one_table.work(DAY)
    assert one_table.lsns() == [0, 3]
    one_table.assert_equal()


def test_a_point_that_something_needs_is_not_dropped(one_table: OneTable) -> None:
    one_table.source.subscribe()
    for _ in range(4):
        one_table.work()
    command("points", "hold", "s", "1", "--name", "h")
    for point, says in (("3", "newest"), ("1", "1 as h is held")):
        error = command("points", "drop", "s", point, "--yes", code=1)["error"]
        assert (error["code"], says in error["message"]) == ("POINTS_NEEDED", True)
    error = command("points", "drop", "s", "--before", "3", "--yes", code=1)["error"]
    assert (error["code"], "1 as h is held" in error["message"]) == ("POINTS_NEEDED", True)
    assert one_table.lsns() == [0, 1, 2, 3]
    assert command("points", "drop", "s", "2", code=4)["error"]["code"] == "NOT_CONFIRMED"
    command("points", "drop", "s", "2", "--yes")
    assert one_table.lsns() == [0, 1, 3]
    one_table.assert_equal()
    one_table.work()
    command("points", "drop", "s", "0", "--yes")
    assert one_table.lsns() == [1, 3, 4]
    one_table.assert_equal()
    assert command("verify", "s")["sound"]
    one_table.work()
    command("points", "release", "s", "h")
    command("points", "drop", "s", "--before", "4", "--yes")
    left = command("points", "s")
    assert [point["lsn"] for point in left] == [4, 5]
    one_table.assert_equal()
    command("points", "hold", "s", "4", "--name", "h")
    assert command("points", "hold", "s", "5", "--name", "h", code=1)["error"]["code"] == "HOLD_EXISTS"
    assert command("points", "hold", "s", "4", "--name", "1st", code=2)["error"]["code"] == "BAD_NAME"
    assert command("points", "release", "s", "g", code=1)["error"]["code"] == "HOLD_MISSING"
    assert command("drop", "s", "--purge", "--yes", code=1)["error"]["code"] == "POINTS_HELD"


def test_a_hold_survives_the_restore_of_an_older_state_folder(one_table: OneTable) -> None:
    """Although no iteration has run since that copy."""
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    one_table.work()
    command("points", "hold", "s", "1", "--name", "first")
    one_table.work()
    home, copy = one_table.source.home / "home", one_table.source.home / "copy"
    shutil.copy(home / "catalog.db", copy)
    command("points", "hold", "s", "2", "--name", "second")
    for file in home.glob("catalog.db*"):
        file.unlink()
    shutil.copy(copy, home / "catalog.db")
    assert command("points", "release", "s", "first", code=1)["error"]["code"] == "MIRROR_AHEAD"
    command("state", "adopt", "s")
    assert [hold["name"] for point in command("points", "s") for hold in point["held"]] == ["first", "second"]
    for _ in range(2):
        one_table.work()
    assert one_table.lsns() == [1, 2, 4]
    one_table.assert_equal()


def test_the_state_file_has_holds_and_kept_points(one_table: OneTable) -> None:
    one_table.source.subscribe("--retain", "1")
    for _ in range(3):
        one_table.work()
        command("points", "hold", "s", str(len(one_table.truth) - 1), "--name", f"h{len(one_table.truth)}")
    command("points", "release", "s", "h2")
    one_table.work()
    assert one_table.lsns() == [0, 2, 3]
    file = one_table.source.home / "s.json"
    command("state", "export", "s", "--out", str(file))
    (one_table.source.home / "home" / "catalog.db").unlink()
    command("state", "import", str(file), "--from", one_table.source.uri)
    assert one_table.lsns() == [0, 2, 3]
    one_table.work()
    assert one_table.lsns() == [0, 2, 4]
    one_table.assert_equal()


def test_a_damaged_list_of_kept_points_is_found_and_written_again(one_table: OneTable) -> None:
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    command("points", "hold", "s", "0", "--name", "h")
    for _ in range(2):
        one_table.work()
    head = Mirror(LocalStore(one_table.source.mirror_folder())).published_head()
    assert head is not None
    file = one_table.source.mirror_folder() / head.kept
    file.write_bytes(file.read_bytes().replace(b"points/", b"poinjs/", 1))
    with pytest.raises(ccpr.MirrorDamaged):
        one_table.source.mirror().point("h")
    assert one_table.source.mirror().point().lsn == 2
    found = command("verify", "s", "--repair")
    assert [(damage["path"], damage["repaired"]) for damage in found["damages"]] == [(f"kept/{file.name}", True)]
    one_table.assert_equal()
    one_table.work()
    assert one_table.lsns() == [0, 3]


def test_releases_that_do_not_know_held_points_may_read_and_not_write(one_table: OneTable) -> None:
    """They read the points that are linked with the newest; `mirror.json`, which writers read, is of a format that they
    do not know."""
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    folder = one_table.source.mirror_folder()
    before = Mirror(LocalStore(folder))
    assert '"format": 2' in (folder / "mirror.json").read_text()
    command("points", "hold", "s", "0")
    one_table.work()
    one_table.work()
    assert '"format": 3' in (folder / "mirror.json").read_text()
    assert '"format": 2' in (folder / "head.json").read_text()
    identity, head = before.identity(), before.published_head()
    assert identity is not None
    assert identity.guarded
    assert head is not None
    assert (head.oldest_point, head.newest_point) == (2, 2)
    command("points", "release", "s", "held-0")
    one_table.work()
    assert '"format": 3' in (folder / "mirror.json").read_text(), "it stays so"


def test_a_subscription_may_be_called_as_a_command_is(one_table: OneTable) -> None:
    one_table.source.subscribe(name="hold")
    command("run", "hold")
    assert len(command("points", "hold")) == 1
    document: Any = command("points", "hold", "hold", "0")
    assert document["name"] == "held-0"


def test_what_points_cost_is_what_their_files_have(one_table: OneTable) -> None:
    one_table.source.subscribe()
    for number in range(6):
        one_table.work()
        if number % 2:
            one_table.source.storage.checkpoint()
    command("points", "drop", "s", "2", "--yes")
    mirror = Mirror(LocalStore(one_table.source.mirror_folder()))
    shown = {}
    for point in mirror.points():
        manifests = [mirror.manifest(ref) for ref in point.tables.values()]
        shown[point.lsn] = {one.stats.name: one.stats.size for each in manifests for one in each.listed_objects()}
    others = {lsn: set().union(*(set(names) for other, names in shown.items() if other != lsn)) for lsn in shown}
    expected = {
        lsn: (sum(names.values()), sum(size for name, size in names.items() if name not in others[lsn]))
        for lsn, names in shown.items()
    }
    found = command("points", "s", "--sizes")
    assert {one["lsn"]: (one["bytes_shown"], one["bytes_alone"]) for one in found} == expected
    assert any(alone for _, alone in expected.values())


def test_a_hold_and_a_kept_point_survive_that_the_mirror_is_restored_from_a_copy_of_before(
    one_table: OneTable,
) -> None:
    """The catalog database has them: any reader writes them again, without a person and without an iteration."""
    one_table.source.subscribe()
    for _ in range(4):
        one_table.work()
    folder = one_table.source.mirror_folder()
    backup = folder.with_name("backup")
    shutil.copytree(folder, backup)
    command("points", "hold", "s", "2", "--name", "two")
    command("points", "hold", "s", "0", "--name", "zero")
    command("points", "drop", "s", "1", "--yes")
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    assert [point["lsn"] for point in command("points", "s")] == [0, 2, 3]
    assert rows(one_table.read("two")) == rows(one_table.truth[2])
    one_table.assert_equal()
    assert one_table.source.mirror().point("zero").lsn == 0
    assert command("verify", "s")["sound"]
    one_table.work()
    one_table.assert_equal()
