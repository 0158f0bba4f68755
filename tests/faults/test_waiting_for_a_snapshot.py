"""A CREATE SNAPSHOT that waits upstream, for a transaction there, is said wherever an operator looks."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.cli.serving import StatusPage
from ccpr.dagster.replica_health import health_of
from ccpr.service import status
from ccpr.service.workspace import Workspace
from ccpr.state.states import IterationState
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import Hold
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri
from tests.support.waiting import LIMIT_SECONDS, until

NAME = "shop"


@pytest.fixture
def upstream(home: Path) -> Iterator[SimulatedUpstream]:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage) as upstream:
        wanted = ("--database", "d", "--publication", "p", "--publisher", "sys")
        command("subscribe", NAME, "--from", source_uri(upstream.port), *wanted)
        yield upstream


@pytest.fixture
def workspace(upstream: SimulatedUpstream) -> Iterator[Workspace]:
    with closing(Workspace()) as workspace:
        yield workspace


def test_it_is_said_on_screen_as_json_on_the_page_and_in_dagster(
    upstream: SimulatedUpstream, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "WAITING_SECONDS", 0.05)
    upstream.inject(Hold("create_snapshot", 600.0))
    began = time.time()
    run = threading.Thread(target=command, args=("run", NAME))
    run.start()
    until(lambda: upstream.status().statements.get("create_snapshot"), "it is asked for")
    waiting = until(lambda: command("status", NAME)["waiting"], "it is said")
    assert began - 1 < waiting["since"] < time.time()
    assert waiting["text"].startswith("waits for CREATE SNAPSHOT upstream since ")
    for arguments in ((NAME,), ()):
        screen = typer.testing.CliRunner().invoke(app, ["status", *arguments], env={"COLUMNS": "400"}).output
        assert "waits for CREATE SNAPSHOT upstream since" in screen
    (page,) = json.loads(StatusPage(workspace)().content)
    assert page["waiting"] == waiting
    assert waiting["text"] in health_of(workspace, workspace.log.row(NAME)).says
    upstream.clear_faults()
    run.join(LIMIT_SECONDS)
    shown = command("status", NAME)
    assert (shown["waiting"], shown["newest_point"], shown["ok"]) == (None, 0, True)


def test_what_waits_for_less_than_usual_or_was_cut_off_is_not_said_to_wait(workspace: Workspace) -> None:
    claim = workspace.log.claim(NAME, workspace.executor.id, 60.0, lambda _: False)
    context = status.ReadRow.of(claim.row).context.opened("0" * 12, 0)
    workspace.log.start(claim, context)
    row = workspace.log.row(NAME)
    assert row.iteration_state == IterationState.RUNNING
    read, now = status.ReadRow.of(row), workspace.clock()
    assert status.Waiting.of(read, now, held=True) is None
    assert status.Waiting.of(read, now + 20, held=True) is not None
    assert status.Waiting.of(read, now + 20, held=False) is None
