"""Wrong input and a misbehaving upstream: a typed error with a remedy, the replica as it was, and a way out."""

import gc
import threading
import time
from pathlib import Path

import pytest

from ccpr_emulator.serving.faults import (
    CutObject,
    CutObjectList,
    DamagedByte,
    MissingObject,
    StaleRead,
    WrongChunkLength,
    WrongTotalSize,
)
from tests.support.replica import NAME, Replica, replaying

RECORDING = "other_account"


@pytest.fixture
def replica(recordings: Path, home: Path):
    with replaying(recordings / RECORDING, home) as replica:
        yield replica


@pytest.fixture
def at_first_point(replica: Replica) -> Replica:
    replica.subscribe()
    replica.run()
    return replica


# ---- what users write


def test_a_wrong_password_is_reported_at_once(recordings: Path, home: Path) -> None:
    with replaying(recordings / RECORDING, home, password="right") as replica:
        error = replica.subscribe(code=1)["error"]
    assert error["code"] == "ACCESS_DENIED"
    assert "111" not in str(error)


def test_an_unreachable_host_is_an_error(replica: Replica) -> None:
    error = replica.subscribe(source="mysql://sys#dump:secret-word@127.0.0.1:1", code=1)["error"]
    assert error["code"] == "UPSTREAM_UNREACHABLE"
    assert "secret-word" not in str(error)


def test_an_account_that_is_not_admitted_is_an_error(replica: Replica) -> None:
    source = f"mysql://other#dump:111@127.0.0.1:{replica.emulator.port}"
    assert replica.subscribe(source=source, code=1)["error"]["code"] == "NOT_PERMITTED"


def test_a_database_that_is_not_there_is_an_error_without_advice_about_publications(replica: Replica) -> None:
    error = replica.subscribe(database="not_there", code=1)["error"]
    assert error["code"] == "DATABASE_MISSING"
    assert "PUBLICATION" not in error["remedy"]


def test_a_missing_table_is_an_error(replica: Replica) -> None:
    assert replica.subscribe("--table", "nothing", code=1)["error"]["code"] == "TABLE_MISSING"
    assert replica.command("subscriptions") == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 61, "a b", "..", "ä"])
def test_a_name_that_may_not_be_a_path_is_refused(name: str, replica: Replica) -> None:
    source = f"mysql://sys#dump:111@127.0.0.1:{replica.emulator.port}"
    words = ("subscribe", name, "--from", source, "--publication", "p", "--database", replica.about.database)
    assert replica.command(*words, code=2)["error"]["code"] == "BAD_NAME"


@pytest.mark.parametrize(
    "source", ["postgres://a:b@c:1", "mysql://nobody", "mysql://a#b:c@host:99999", "mysql://a#b:c@"]
)
def test_a_malformed_uri_is_refused(source: str, replica: Replica) -> None:
    assert replica.subscribe(source=source, code=2)["error"]["code"] == "BAD_URI"


def test_a_name_in_use_is_refused(replica: Replica) -> None:
    replica.subscribe()
    assert replica.subscribe(code=1)["error"]["code"] == "SUBSCRIPTION_EXISTS"


def test_unknown_names_are_errors(at_first_point: Replica, home: Path) -> None:
    out = str(home / "x.parquet")
    assert at_first_point.command("run", "nobody", code=1)["error"]["code"] == "SUBSCRIPTION_MISSING"
    assert at_first_point.command("points", "nobody", code=1)["error"]["code"] == "SUBSCRIPTION_MISSING"
    assert (
        at_first_point.command("export", "replica", "gd_acc.nothing", "--out", out, code=1)["error"]["code"]
        == "TABLE_NOT_IN_POINT"
    )
    assert (
        at_first_point.command("export", "replica", "../../etc", "--out", out, code=1)["error"]["code"]
        == "TABLE_NOT_IN_POINT"
    )


def test_passwords_appear_nowhere(replica: Replica, home: Path) -> None:
    secret = "cr0ss-cluster-secret"
    source = f"mysql://sys#dump:{secret}@127.0.0.1:{replica.emulator.port}"
    shown = str(replica.subscribe(source=source)) + str(replica.run()) + str(replica.command("subscriptions"))
    assert secret not in shown
    gc.collect()  # SQLite deletes its WAL files when a connection closes: not while they are read below
    files = [file for file in (home / "home").rglob("*") if file.is_file()]
    assert any(file.name == "catalog.db" for file in files)
    assert [file for file in files if secret.encode() in file.read_bytes()] == []
    assert (home / "home" / "key").stat().st_mode & 0o777 == 0o600


# ---- what the upstream does


@pytest.mark.parametrize("fault", [CutObject(after_bytes=500), CutObjectList(after_rows=2)])
def test_a_connection_cut_in_the_middle_is_reopened_within_the_run(fault, at_first_point: Replica) -> None:
    at_first_point.emulator.inject(fault)
    assert at_first_point.run()["point"]
    assert at_first_point.unspent_faults() == []
    at_first_point.assert_equal_to_source(2)


@pytest.mark.parametrize("fault", [CutObject(after_bytes=500, times=0), CutObjectList(after_rows=2, times=0)])
def test_a_connection_that_is_always_cut_ends_in_an_error_and_the_next_run_resumes(
    fault, at_first_point: Replica
) -> None:
    at_first_point.emulator.inject(fault)
    assert at_first_point.run(code=1)["error"]["code"] == "CONNECTION_LOST"
    taken = at_first_point.emulator.status().statements["create_snapshot"]
    at_first_point.emulator.clear_faults()
    assert at_first_point.run()["point"]
    assert at_first_point.emulator.status().statements["create_snapshot"] == taken, "the same snapshot was used again"
    at_first_point.assert_equal_to_source(2)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts from a second on: they are noted and not waited for. Those of other threads are real."""
    found: list[float] = []
    really, here = time.sleep, threading.current_thread()

    def pause(seconds: float) -> None:
        if seconds >= 1 and threading.current_thread() is here:
            found.append(seconds)
        else:
            really(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    return found


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (WrongTotalSize(difference=7), "OBJECT_SIZE_MISMATCH"),
        (WrongChunkLength(difference=-1), "OBJECT_SIZE_MISMATCH"),
        (WrongChunkLength(difference=5), "OBJECT_SIZE_MISMATCH"),
        (DamagedByte(offset=0), "OBJECT_DAMAGED"),
        (StaleRead(times=0), "BASE_SNAPSHOT_LOST"),
    ],
)
def test_a_terminal_fault_leaves_the_point_and_the_next_run_takes_a_new_snapshot(
    fault, code: str, at_first_point: Replica, pauses: list[float]
) -> None:
    replica = at_first_point
    replica.emulator.inject(fault)
    assert replica.run(code=1)["error"]["code"] == code
    replica.emulator.clear_faults()
    assert [point["lsn"] for point in replica.command("points", "replica")] == [0]
    replica.assert_equal_to_source(1)
    assert replica.command("subscriptions")[0]["state"] == "stopped"
    replica.run()
    replica.assert_equal_to_source(2)  # from the second snapshot on, the emulator shows the recording's last state
    assert replica.command("subscriptions")[0]["error"] is None
    assert len(replica.emulator.status().snapshots) <= 2


def differences(replica: Replica) -> int:
    """How many object lists against an older snapshot were asked for."""
    lists = [one.text.split() for one in replica.emulator.log() if one.kind == "object_list"]
    return sum(words[2] != "-" for words in lists)


def test_a_stale_read_is_asked_again_for_half_a_minute(at_first_point: Replica, pauses: list[float]) -> None:
    """The upstream answers 22101 for a moment: the base is not lost, and a difference is enough."""
    replica = at_first_point
    replica.emulator.inject(StaleRead(times=5))
    assert replica.run()["lsn"] == 1
    assert replica.unspent_faults() == []
    assert differences(replica) == 6
    assert 28 <= sum(pauses) <= 35, "by the clock of the pauses; none is waited for here"
    assert replica.command("status", NAME)["last_error"] is None
    replica.assert_equal_to_source(2)


def test_a_base_is_lost_only_after_the_last_stale_read(at_first_point: Replica, pauses: list[float]) -> None:
    replica = at_first_point
    replica.emulator.inject(StaleRead(times=0))
    assert replica.run(code=1)["error"]["code"] == "BASE_SNAPSHOT_LOST"
    assert differences(replica) == 6
    assert len(pauses) == 5


def test_the_error_names_an_object_that_was_garbage_collected(at_first_point: Replica) -> None:
    name = next(iter(added_objects(at_first_point)))
    at_first_point.emulator.inject(MissingObject(name))
    error = at_first_point.run(code=1)["error"]
    assert error["code"] == "OBJECT_GONE"
    assert name in str(error)


def test_a_lost_base_snapshot_stops_the_run_with_the_cost_of_a_resync_until_that_is_allowed(
    at_first_point: Replica,
) -> None:
    replica = at_first_point
    for name in list(replica.emulator.status().snapshots):
        replica.emulator.drop_snapshot(name)
    error = replica.run(code=1)["error"]
    assert error["code"] == "BASE_SNAPSHOT_LOST"
    assert "6 objects" in error["message"]
    replica.assert_equal_to_source(1)
    outcome = replica.run("--allow-resync")
    assert outcome["point"]
    replica.assert_equal_to_source(2)


def test_an_upstream_whose_clock_went_back_is_an_error(recordings: Path, home: Path) -> None:
    with replaying(recordings / RECORDING, home) as first:
        first.subscribe()
        first.run(), first.run()
        port = first.emulator.port
    with replaying(recordings / RECORDING, home, port=port) as second:
        assert second.run(code=1)["error"]["code"] == "UPSTREAM_CLOCK_BACK"
        second.assert_equal_to_source(2)
        assert second.emulator.status().snapshots == ()


def test_a_role_that_may_not_flush_waits_for_the_upstream_to_flush(recordings: Path, home: Path) -> None:
    with replaying(recordings / RECORDING, home, may_flush=False, flush_after=0.3) as replica:
        replica.subscribe()
        replica.run()
        replica.assert_equal_to_source(1)


def added_objects(replica: Replica) -> set[str]:
    folder = replica.about.folder / "objects"
    copied = {path.name for path in (replica.mirror / "objects").iterdir()}
    return {path.name for path in folder.iterdir()} - copied


def test_copying_keeps_to_its_limits(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--max-sessions", "1", "--max-mb-s", "0.5")
        started = time.monotonic()
        outcome = replica.run()
        assert time.monotonic() - started > outcome["bytes_copied"] / 0.5e6 > 1
        for _ in range(2):
            replica.run()
        assert replica.emulator.status().sessions_that_fetched == 3, "one session an iteration"
        replica.assert_equal_to_source(3)
