"""What `ccpr status` says of followers, and what is resumed: each kind of trouble in the other cluster, and the rows
after it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from ccpr.base.errors import Failure
from ccpr.cli.main import app
from ccpr.relay.downstream import TaskState
from ccpr.relay.follower_watching import Watcher, _until_progress, ask
from ccpr.relay.offers import Offers, Quiet
from ccpr.relay.relay_backing import StateFolder
from ccpr.state.followers import Follower, TaskSeen
from ccpr.state.log_rows import LogRow
from ccpr.state.pins import Pin, Pins
from ccpr.state.targets import Failing
from tests.relay.conftest import Relayed
from tests.relay.test_follow import arrived, follow, records, unfollow
from tests.support.native_client import NativeClient, NativeTask

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
JUST_NOW = Quiet()
LOST = "N:1795000000:failed to begin: dial tcp 127.0.0.1:6002: connect: connection refused"


@pytest.fixture
def task(relayed: Relayed, client: NativeClient) -> NativeTask:
    follow(relayed, client)
    return arrived(relayed, client, compared=False)


def asked(relayed: Relayed, quiet: Quiet = JUST_NOW, code: int = 0) -> Any:
    """What status shows of the follower after it was asked."""
    ask(relayed.workspace, records(relayed).get("b"), quiet)
    return status(relayed, code)["followers"][0]


def status(relayed: Relayed, code: int = 0) -> Any:
    return relayed.replica.command("status", "replica", code=code)


def test_the_list_of_followers_shows_what_the_status_shows(relayed: Relayed, task: NativeTask) -> None:
    shown = asked(relayed)
    (listed,) = relayed.replica.command("follower", "list", "replica")
    ages = ("lag_seconds", "asked_at")
    assert {**listed, **dict.fromkeys(ages)} == {**shown, **dict.fromkeys(ages)}
    text = CliRunner().invoke(app, ["follower", "list", "replica"], env={"COLUMNS": "200"}).stdout
    for part in ("b", "gd_dml", "following", str(shown["lsn"])):
        assert part in text.splitlines()[-1].split(), text
    unfollow(relayed)
    assert relayed.replica.command("follower", "list", "replica") == []
    assert "ccpr follower add replica FOLLOWER" in CliRunner().invoke(app, ["follower", "list", "replica"]).stdout


def test_a_follower_is_shown_with_its_point(relayed: Relayed, task: NativeTask) -> None:
    before = status(relayed)["followers"][0]
    assert (before["state"], before["lsn"], before["lag_seconds"]) == ("loading", None, None)
    relayed.replica.run()
    (behind,) = (asked(relayed) for _ in range(1))
    assert (behind["state"], behind["task"], behind["database"]) == ("following", task.id, "gd_dml")
    newest = relayed.workspace.mirror("replica").point()
    deadline = time.monotonic() + 60
    while asked(relayed)["lsn"] != newest.lsn:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shown = asked(relayed)
    assert shown["watermark"] == newest.at.physical
    assert shown["lag_seconds"] == pytest.approx(status(relayed)["lag_seconds"], abs=30)
    assert shown["last_error"] is None


def test_what_a_lost_relay_has_stopped_is_resumed(relayed: Relayed, client: NativeClient, task: NativeTask) -> None:
    task.state, task.error = TaskState.ERROR, LOST
    relayed.replica.run()
    error = asked(relayed, code=1)["last_error"]
    assert error["code"] == "FOLLOWER_FAILING"
    assert error["message"].startswith("failed to begin")
    arrived(relayed, client)
    assert asked(relayed)["last_error"] is None


def test_resuming_waits_longer_each_time_it_has_not_helped(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    task = arrived(relayed, client, compared=False)
    counts: list[int] = []
    for _ in range(3):
        task.state, task.error = TaskState.ERROR, LOST
        asked(relayed, code=1)
        counts.append(sum(text.startswith("RESUME") for text in client.statements))
    assert counts == [1, 1, 1], "once within half a minute"
    assert records(relayed).get("b").resumes == 1


def test_an_error_that_nobody_knows_is_shown_and_resumed_and_shown_until_there_is_progress(
    relayed: Relayed, client: NativeClient
) -> None:
    follow(relayed, client)
    task = arrived(relayed, client, compared=False)
    for _ in range(2):
        task.state, task.error = TaskState.ERROR, "N:1795000000:failed to get relation gd_dml.t: no such table"
        shown = asked(relayed, code=1)
        assert shown["last_error"]["code"] == "FOLLOWER_STOPPED"
        assert shown["last_error"]["message"] == "failed to get relation gd_dml.t: no such table"
    assert sum(text.startswith("RESUME") for text in client.statements) == 1, "the next one waits"
    follow(relayed, client)  # resumes it at once
    relayed.replica.run()
    arrived(relayed, client)
    assert asked(relayed)["last_error"] is None


def test_a_resume_in_vain_does_not_end_the_failure(relayed: Relayed, task: NativeTask) -> None:
    now = datetime.now(UTC)
    known = Failure("FOLLOWER_STOPPED", "no such table", "follower b", "look")
    follower = replace(records(relayed).get("b"), failing=Failing(known, 1, now, now), resumes=1)
    before, after = TaskSeen(now, 1, 5, 50, "N:1:x"), TaskSeen(now, 0, 5, 50, "")
    assert _until_progress(replace(follower, seen=before), after) == known
    assert _until_progress(replace(follower, seen=before), replace(after, iterations=6)) is None
    assert _until_progress(replace(follower, seen=before, resumes=0), after) is None


def test_what_a_person_paused_stays_paused(relayed: Relayed, client: NativeClient, task: NativeTask) -> None:
    task.state = TaskState.PAUSED
    shown = asked(relayed, quiet=Quiet(1e9), code=1)
    assert (shown["state"], shown["last_error"]["code"]) == ("paused", "FOLLOWER_PAUSED")
    assert not any(text.startswith("RESUME") for text in client.statements)


@pytest.mark.parametrize(("seconds", "since_start"), [(120.0, False), (45.0, True)])
def test_one_that_stopped_without_a_word_is_resumed(
    relayed: Relayed, client: NativeClient, task: NativeTask, seconds: float, since_start: bool
) -> None:
    """A relay that was away for a moment is no reason to wait for long."""
    asked(relayed, quiet=Quiet(seconds - 1, since_start=since_start))
    assert not any(text.startswith("RESUME") for text in client.statements)
    asked(relayed, quiet=Quiet(seconds + 1, since_start=since_start))
    assert sum(text.startswith("RESUME") for text in client.statements) == 1


def test_a_subscription_that_was_dropped_there_is_gone(
    relayed: Relayed, client: NativeClient, task: NativeTask
) -> None:
    asked(relayed)
    client.tasks.clear()
    shown = asked(relayed, code=1)
    assert (shown["state"], shown["last_error"]["code"]) == ("gone", "FOLLOWER_GONE")
    assert unfollow(relayed)["database_left"] == "gd_dml"
    assert status(relayed)["followers"] == []


def test_a_cluster_that_does_not_answer_is_unreachable(relayed: Relayed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOWN", "111")
    with NativeClient() as gone:
        follow(relayed, gone)
        arrived(relayed, gone, compared=False)
        point = asked(relayed)["lsn"]
    shown = asked(relayed, code=1)
    assert (shown["state"], shown["last_error"]["code"]) == ("unreachable", "UPSTREAM_UNREACHABLE")
    assert shown["lsn"] == point, "what it said last"


def test_status_says_when_nobody_looks_after_followers(
    relayed: Relayed, task: NativeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    records(relayed).change("b", created_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert any("`ccpr relay serve` run?" in warning for warning in status(relayed)["warnings"])
    asked(relayed)
    assert not any("`ccpr relay serve` run?" in warning for warning in status(relayed)["warnings"])


def test_forgotten_snapshots_are_shown(relayed: Relayed) -> None:
    log = relayed.workspace.log
    point, now = relayed.workspace.mirror("replica").point(), datetime.now(UTC)
    for name, age in (("old", timedelta(days=8)), ("young", timedelta(days=6))):
        Pins(log.engine, log.row("replica").task_id).add(
            Pin(name, point.lsn, point.at.physical, None, now - age, now - age)
        )
    shown = status(relayed)
    assert [(pin["snapshot"], pin["lsn"]) for pin in shown["forgotten_pins"]] == [("old", point.lsn)]
    assert shown["ok"]


def test_a_row_that_cannot_be_read_keeps_nobody_else_from_being_served(
    relayed: Relayed, client: NativeClient, task: NativeTask
) -> None:
    follow(relayed, client, "--as", "shop_c", name="c")
    records(relayed).change("c", stage="nonsense")
    relayed.replica.run()
    served = StateFolder(Offers(relayed.workspace))
    assert list(served.offers.served()) == ["replica"]
    assert served.published("sys", records_publication(relayed)).served_as == "gd_dml"


def records_publication(relayed: Relayed) -> str:
    from ccpr.state.followers import all_followers

    found, bad = all_followers(relayed.workspace.log.engine)
    assert len(bad) == 1
    (follower,) = found
    return follower.publication


def test_the_watcher_asks_all_followers(relayed: Relayed, client: NativeClient, task: NativeTask) -> None:
    task.state, task.error = TaskState.ERROR, LOST
    relayed.replica.run()
    heard: list[tuple[str, str, str]] = []

    def asked(row: LogRow, follower: Follower) -> None:
        failing = follower.failing
        heard.append((row.subscription_name, follower.name, "" if failing is None else failing.failure.code))

    watcher = Watcher(relayed.workspace, lambda _: Quiet(), asked=asked, seconds=0.05)
    watcher.start()
    try:
        deadline = time.monotonic() + 60
        while not heard or heard[-1] != ("replica", "b", ""):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        watcher.stop()
    assert heard[0] == ("replica", "b", "FOLLOWER_FAILING")
    arrived(relayed, client)


def test_nothing_is_resumed_where_no_relay_serves(relayed: Relayed, client: NativeClient, task: NativeTask) -> None:
    """It could not get on, and would be tried less and less often."""
    task.state, task.error = TaskState.ERROR, LOST
    ask(relayed.workspace, records(relayed).get("b"), None)
    assert status(relayed, code=1)["followers"][0]["last_error"]["code"] == "FOLLOWER_FAILING"
    assert not any(text.startswith("RESUME") for text in client.statements)


def test_two_who_watch_resume_once(relayed: Relayed, client: NativeClient, task: NativeTask) -> None:
    task.state, task.error = TaskState.ERROR, LOST
    follower, now = records(relayed).get("b"), datetime.now(UTC)
    assert records(relayed).claim_resume(follower, now)
    assert not records(relayed).claim_resume(follower, now)
    ask(relayed.workspace, follower)  # as it was read before the other's claim
    assert not any(text.startswith("RESUME") for text in client.statements)


@pytest.fixture
def serving(relayed: Relayed) -> Iterator[int]:
    """`ccpr relay serve` as a process of its own; its port."""
    program = [sys.executable, "-m", "ccpr.cli", "relay", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"listening on 127\.0\.0\.1:([0-9]+)", process.stdout.readline().strip())
        assert found is not None
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.in_turn
def test_a_relay_of_its_own_feeds_a_follower_and_keeps_its_status(
    relayed: Relayed, client: NativeClient, serving: int
) -> None:
    follow(relayed, client, relay=serving)
    relayed.replica.run()
    arrived(relayed, client)
    deadline = time.monotonic() + 90
    while status(relayed)["followers"][0]["lsn"] != relayed.workspace.mirror("replica").point().lsn:
        assert time.monotonic() < deadline
        time.sleep(0.2)
