"""How a subscription stands, while nothing runs, while something runs, and when it cannot run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from matrixone.upstream.errors import SnapshotGone
from replication.iteration.lag import LagMeter
from replication.service.status import LastError, read_status, seconds_text
from replication.service.workspace import Workspace
from tests.end_to_end.replica import NAME, Replica, replaying
from tests.end_to_end.settings import setting
from wire.faults import CutStatement, Delay, FailStatement


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        yield replica


def test_before_the_first_run_there_is_no_point_and_no_lag(replica: Replica) -> None:
    told = replica.command("status", NAME)
    assert told["ok"]
    assert (told["state"], told["iteration_lsn"], told["newest_point"], told["lag_seconds"]) == (
        "running",
        0,
        None,
        None,
    )
    assert (told["step"], told["objects_pending"], told["owner"], told["last_error"], told["snapshots"]) == (
        None,
        None,
        None,
        None,
        {},
    )
    assert told["next_attempt"] == pytest.approx(time.time(), abs=30), "it is due"


def test_after_a_run_it_tells_the_lag_the_watermark_and_what_is_held_upstream(replica: Replica) -> None:
    replica.run()
    replica.run()
    before = replica.emulator.status().sessions_opened
    told = replica.command("status", NAME)
    assert replica.emulator.status().sessions_opened == before, "the upstream is not asked"
    assert 0 <= told["lag_seconds"] < 30
    assert told["clock_skew_seconds"] is not None
    assert told["warnings"], "the recording's clock is of another day"
    assert told["watermark"] > 0
    assert (told["iteration_lsn"], told["newest_point"]) == (2, 1)
    assert set(told["snapshots"]) == set(replica.emulator.status().snapshots)
    assert sorted(told["snapshots"].values()) == ["current", "previous"]
    assert replica.command("subscriptions")[0]["lag_seconds"] == pytest.approx(told["lag_seconds"], abs=10)
    assert [entry["name"] for entry in replica.command("status")] == [NAME]


def test_an_error_that_needs_a_person_is_told_with_its_remedy_and_exit_code_1(replica: Replica) -> None:
    replica.run()
    for name in replica.command("status", NAME)["snapshots"]:
        replica.emulator.drop_snapshot(name)
    error = replica.run(code=1)["error"]
    told = replica.command("status", NAME, code=1)
    assert (told["ok"], told["state"], told["next_attempt"]) == (False, "error", None)
    last = told["last_error"]
    assert {key: last[key] for key in ("code", "message", "subject", "remedy")} == error
    assert (last["again"], last["attempts"]) == (False, 1)
    assert replica.command("status", code=1)[0]["last_error"] == last
    assert replica.command("subscriptions")[0]["last_error"]["code"] == error["code"]


def test_an_iteration_that_stopped_on_its_way_tells_its_step_and_what_is_pending(replica: Replica) -> None:
    with Workspace().iteration(NAME) as iteration:
        ref = iteration.take_snapshot()
        told = replica.command("status", NAME)
        assert told["owner"] is not None
        assert told["lease_expires"] > time.time()
        assert told["next_attempt"] is None, "it runs"
        assert told["step"]["snapshot"] == ref.name
        assert told["step"]["done"] == ["snapshot"]
        assert told["snapshots"] == {ref.name: "open"}
        iteration.diff_catalog()
        iteration.diff_objects()
        wanted = iteration.objects_to_copy()
    told = replica.command("status", NAME)
    assert told["owner"] is None
    assert told["step"]["done"] == ["snapshot", "catalog", "object list"]
    assert told["objects_pending"] == wanted.num_rows > 0
    assert told["bytes_pending"] == sum(wanted.column("size").to_pylist())
    replica.run()
    told = replica.command("status", NAME)
    assert (told["step"], told["objects_pending"]) == (None, None)


def test_what_has_arrived_is_no_longer_pending(replica: Replica) -> None:
    replica.emulator.inject(Delay("get_object", seconds=60, times=0))
    process = subprocess.Popen(ccpr("run", NAME), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = until(
            lambda: replica.command("status", NAME),
            lambda told: told["step"] is not None and told["step"]["name"] == "copy",
        )
        assert told["objects_pending"] > 0
        assert told["iteration_state"] == "running"
        assert process.poll() is None, "it was read beside the run"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        replica.emulator.clear_faults()
    replica.run()
    replica.assert_equal_to_source(1)


def test_watching_prints_a_line_for_each_change_and_ends_by_interrupt(replica: Replica) -> None:
    process = subprocess.Popen(ccpr("status", NAME, "--watch", "--json"), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["newest_point"] is None
        replica.run()
        lines = iter(process.stdout.readline, "")
        assert any(json.loads(line)["newest_point"] == 0 for line in lines)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_for_people_it_is_text_with_code_remedy_and_the_next_attempt(replica: Replica) -> None:
    replica.run()
    replica.emulator.inject(CutStatement("object_list", times=0))
    assert replica.run(code=1)["error"]["code"] == "CONNECTION_LOST"
    for words in (["status", NAME], ["status"], ["subscriptions"]):
        result = subprocess.run(ccpr(*words), capture_output=True, text=True, timeout=120, check=False)
        assert "CONNECTION_LOST" in result.stdout
        assert result.returncode == (1 if words[0] == "status" else 0), result.stderr
    text = subprocess.run(ccpr("status", NAME), capture_output=True, text=True, timeout=120, check=False).stdout
    for piece in ("remedy: ", "ccpr explain CONNECTION_LOST", "next attempt", "1 in a row", "(failing)"):
        assert piece in text


def test_a_mirror_that_cannot_be_looked_at_is_a_warning(replica: Replica) -> None:
    with Workspace().iteration(NAME) as iteration:
        ref = iteration.take_snapshot()
        iteration.diff_catalog()
        iteration.diff_objects()
    (replica.mirror / ref.work / "added.arrow").write_bytes(b"nothing")
    told = replica.command("status", NAME)
    assert told["objects_pending"] is None
    assert any("MIRROR_DAMAGED" in warning for warning in told["warnings"])


def test_a_table_in_quarantine_is_told_with_its_remedy_and_exit_code_1(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        setting("consistency", "isolated")
        replica.run()
        replica.emulator.inject(FailStatement("get_object", number=20405, text="file x is not found", times=0))
        replica.run()
        told = replica.command("status", NAME, code=1)
        (table,) = told["quarantined"]
        assert (table["table"], table["attempts"], table["code"]) == ("gd_dml.acc", 1, "OBJECT_GONE")
        assert table["remedy"]
        assert table["since"] == pytest.approx(time.time(), abs=60)
        assert (told["ok"], told["state"], told["last_error"]) == (False, "running", None)
        text = subprocess.run(ccpr("status", NAME), capture_output=True, text=True, timeout=120, check=False).stdout
        assert "gd_dml.acc since " in text
        replica.emulator.clear_faults()
        replica.run()
        assert replica.command("status", NAME)["quarantined"] == []
        replica.assert_equal_to_source(3)


def test_a_subscription_that_is_not_there_is_an_error(replica: Replica) -> None:
    assert replica.command("status", "nobody", code=1)["error"]["code"] == "SUBSCRIPTION_MISSING"


def test_the_lag_of_a_watching_process_does_not_shrink_when_the_clock_is_set_back(replica: Replica) -> None:
    replica.run()
    now = [time.time() + 100]
    workspace = Workspace(clock=lambda: now[0])
    meter = LagMeter(workspace.clock)
    first = read_status(workspace, workspace.log.row(NAME), meter).lag_seconds
    now[0] -= 3600
    assert first is not None
    assert (read_status(workspace, workspace.log.row(NAME), meter).lag_seconds or 0) >= first > 99


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (None, None),
        (
            f"N:7:{SnapshotGone('m', subject='s [t]')}",
            ("SNAPSHOT_GONE", "m", "s [t]", SnapshotGone.default_remedy, False, 1, 7.0, 7.0),
        ),
        ("R:3:5:9:BUSY: m [s] r", ("BUSY", "m", "s", "r", True, 3, 5.0, 9.0)),
        ("R:3:5:9:BUSY: cut in the mid", ("BUSY", "cut in the mid", "", "", True, 3, 5.0, 9.0)),
        ("no text of ours", ("CCPR", "no text of ours", "", "", False, 1, 0.0, 0.0)),
        ("N:x:", ("CCPR", "N:x:", "", "", False, 1, 0.0, 0.0)),
    ],
)
def test_an_error_message_is_read_back(message: str | None, told: tuple[Any, ...] | None) -> None:
    assert LastError.of(message) == (None if told is None else LastError(*told))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (119.4, "119 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3 * 86400 + 4 * 3600, "3 d 4 h")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def ccpr(*words: str) -> list[str]:
    return [sys.executable, "-m", "ccpr_cli", *words]


def until(read: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + 60
    while not holds(found := read()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found
