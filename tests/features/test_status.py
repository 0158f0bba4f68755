"""The status of a subscription while nothing runs, while something runs, and when it cannot run."""

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
import typer.testing

from ccpr.cli.main import app
from ccpr.pipeline.driver import drive
from ccpr.pipeline.lag import LagMeter
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps.copy import objects_to_copy
from ccpr.service.status import LeftOut, read_status
from ccpr.service.workspace import Workspace
from ccpr_emulator.serving.faults import CutStatement, Delay, FailStatement
from tests.support.replica import NAME, Replica, replaying
from tests.support.settings import setting


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        yield replica


def test_before_the_first_run_there_is_no_point_and_no_lag(replica: Replica) -> None:
    status = replica.command("status", NAME)
    assert status["ok"]
    assert (status["state"], status["iteration_lsn"], status["newest_point"], status["lag_seconds"]) == (
        "idle",
        0,
        None,
        None,
    )
    assert (status["step"], status["objects_pending"], status["owner"], status["last_error"], status["snapshots"]) == (
        None,
        None,
        None,
        None,
        {},
    )
    assert status["next_attempt"] == pytest.approx(time.time(), abs=30), "it is due"


def test_after_a_run_it_shows_the_lag_the_watermark_and_the_snapshots_upstream(replica: Replica) -> None:
    replica.run()
    replica.run()
    before = replica.emulator.status().sessions_opened
    status = replica.command("status", NAME)
    assert replica.emulator.status().sessions_opened == before, "the upstream is not asked"
    assert 0 <= status["lag_seconds"] < 30
    assert status["clock_skew_seconds"] is not None
    assert status["warnings"], "the recording's clock is of another day"
    assert status["watermark"] > 0
    assert (status["iteration_lsn"], status["newest_point"]) == (2, 1)
    assert set(status["snapshots"]) == set(replica.emulator.status().snapshots)
    assert sorted(status["snapshots"].values()) == ["current", "previous"]
    assert replica.command("subscriptions")[0]["lag_seconds"] == pytest.approx(status["lag_seconds"], abs=10)
    assert [entry["name"] for entry in replica.command("status")] == [NAME]


def test_an_error_that_needs_a_person_is_shown_with_its_remedy_and_exit_code_1(replica: Replica) -> None:
    replica.run()
    for name in replica.command("status", NAME)["snapshots"]:
        replica.emulator.drop_snapshot(name)
    error = replica.run(code=1)["error"]
    status = replica.command("status", NAME, code=1)
    assert (status["ok"], status["state"], status["next_attempt"]) == (False, "stopped", None)
    last = status["last_error"]
    assert {key: last[key] for key in ("code", "message", "subject", "remedy")} == error
    assert (last["again"], last["attempts"]) == (False, 1)
    assert replica.command("status", code=1)[0]["last_error"] == last
    assert replica.command("subscriptions")[0]["last_error"]["code"] == error["code"]


def test_an_iteration_that_was_interrupted_shows_its_step_and_what_is_pending(replica: Replica) -> None:
    with Workspace() as workspace, workspace.iteration(NAME) as iteration:
        ref = drive(iteration, until=Stage.SNAPSHOT).snapshot
        status = replica.command("status", NAME)
        assert status["owner"] is not None
        assert status["lease_expires"] > time.time()
        assert status["next_attempt"] is None, "it runs"
        assert status["step"]["snapshot"] == ref.name
        assert status["step"]["done"] == ["snapshot"]
        assert status["snapshots"] == {ref.name: "open"}
        record = drive(iteration, until=Stage.OBJECT_LIST)
        assert record.catalog is not None
        assert record.listed is not None
        wanted = objects_to_copy(iteration.subscription, record.catalog, record.listed)
    status = replica.command("status", NAME)
    assert status["owner"] is None
    assert status["step"]["done"] == ["snapshot", "catalog", "object list"]
    assert status["objects_pending"] == wanted.num_rows > 0
    assert status["bytes_pending"] == sum(wanted.column("size").to_pylist())
    replica.run()
    status = replica.command("status", NAME)
    assert (status["step"], status["objects_pending"]) == (None, None)


def test_what_has_arrived_is_no_longer_pending(replica: Replica) -> None:
    replica.emulator.inject(Delay("get_object", seconds=60, times=0))
    process = subprocess.Popen(ccpr("run", NAME), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = until(
            lambda: replica.command("status", NAME),
            lambda status: status["step"] is not None and status["step"]["name"] == "copy",
        )
        assert status["objects_pending"] > 0
        assert (status["state"], status["iteration_state"]) == ("copying", "running")
        assert replica.command("subscriptions")[0]["state"] == "copying"
        assert process.poll() is None, "it was read during the run"
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
    for piece in ("remedy: ", "ccpr explain CONNECTION_LOST", "next attempt", "1 in a row", "failing"):
        assert piece in text


def test_a_mirror_that_cannot_be_read_is_a_warning(replica: Replica) -> None:
    with Workspace() as workspace, workspace.iteration(NAME) as iteration:
        ref = drive(iteration, until=Stage.OBJECT_LIST).snapshot
    (replica.mirror / ref.work / "added.arrow").write_bytes(b"nothing")
    status = replica.command("status", NAME)
    assert status["objects_pending"] is None
    assert any("MIRROR_DAMAGED" in warning for warning in status["warnings"])


def test_an_iteration_that_ends_while_it_is_read_has_nothing_pending(replica: Replica) -> None:
    with Workspace() as workspace, workspace.iteration(NAME) as iteration:
        ref = drive(iteration, until=Stage.OBJECT_LIST).snapshot
    for name in ("added.arrow", "refetched.arrow"):
        (replica.mirror / ref.work / name).unlink()
    status = replica.command("status", NAME)
    assert (status["objects_pending"], status["bytes_pending"]) == (None, None)
    assert not [warning for warning in status["warnings"] if "mirror" in warning]


def test_a_table_in_quarantine_is_shown_with_its_remedy_and_exit_code_1(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        setting("consistency", "isolated")
        replica.run()
        replica.emulator.inject(FailStatement("get_object", number=20405, text="file x is not found", times=0))
        replica.run()
        status = replica.command("status", NAME, code=1)
        (table,) = status["quarantined"]
        assert (table["table"], table["attempts"], table["code"]) == ("gd_dml.acc", 1, "OBJECT_GONE")
        assert table["remedy"]
        assert table["since"] == pytest.approx(time.time(), abs=60)
        assert (status["ok"], status["state"], status["last_error"]) == (False, "idle", None)
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
    with Workspace(clock=lambda: now[0]) as workspace:
        meter = LagMeter(workspace.clock)
        first = read_status(workspace, workspace.log.row(NAME), meter).lag_seconds
        now[0] -= 3600
        assert first is not None
        assert (read_status(workspace, workspace.log.row(NAME), meter).lag_seconds or 0) >= first > 99


def ccpr(*words: str) -> list[str]:
    return [sys.executable, "-m", "ccpr.cli", *words]


def until(read: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + 60
    while not holds(found := read()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def test_what_is_not_replicated_is_listed_with_the_reason(recordings: Path, home: Path) -> None:
    reason = "it has no rows; points of whole databases have its definition (`ccpr tables --ddl`)"
    view = {"name": "v1", "kind": "view", "reason": reason}
    with replaying(recordings / "ddl", home) as replica:
        replica.subscribe()
        found = [replica.command("status", NAME)["not_replicated"]]
        for _ in range(5):
            replica.run()
            found.append(replica.command("status", NAME)["not_replicated"])
        assert found == [*[[]] * 5, [view]]
        shown = typer.testing.CliRunner().invoke(app, ["status", NAME, "-v"]).stdout
        assert "view v1: it has no rows" in shown  # the line may be broken


def test_a_kind_that_is_not_known_is_named() -> None:
    assert LeftOut.of("x", "materialized").kind == "relation of kind materialized"
