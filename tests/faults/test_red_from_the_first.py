"""A subscription that fails and is tried again is red from its first failure on, wherever an operator looks: status on
screen and as JSON, /metrics, notices, Dagster."""

import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.dagster import metadata
from ccpr.dagster.replica_health import health_of, quick_verdict, read_all_health
from ccpr.dagster.reporter import DagsterReporter
from ccpr.serve.holding import Holding
from ccpr.serve.listening import Listener
from ccpr.serve.metrics import Metrics
from ccpr.serve.notifying import Notifier
from ccpr.serve.replicator import Replicator
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

NAME = "shop"


class Service:
    """What `ccpr serve` does, an iteration at a time."""

    def __init__(self, workspace: Workspace, told: Path, instance: dg.DagsterInstance, port: int) -> None:
        code = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read())"
        self.workspace, self.instance, self.port, self._told = workspace, instance, port, told
        self.metrics = Metrics(workspace.clock)
        self.notifier = Notifier(shlex.join([sys.executable, "-c", code]))
        self.reporter = DagsterReporter(workspace, lambda: instance)
        self.notifier.start()
        self.reporter.start()
        listeners: list[Listener] = [self.metrics, self.notifier, self.reporter]
        self._replicator = Replicator(workspace, listeners)
        self._holding = Holding(workspace, workspace.log.row(NAME), self._replicator._sessions)

    def iterate(self) -> None:
        rows = self.workspace.log.rows()
        self._replicator.listeners.tell(lambda listener: listener.subscriptions_read(rows))
        (row,) = rows
        self._replicator.listeners.tell(lambda listener: listener.iteration_began(row, 0.0))
        self._replicator._iterate(row, self._holding)
        self.metrics.subscriptions_read(self.workspace.log.rows())
        assert self.reporter.flush(60)

    def stop(self) -> None:
        self._replicator.stop()
        self.reporter.stop()
        self.notifier._put(None)
        self.notifier.loop._thread.join(60)

    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._told.read_text().splitlines()] if self._told.exists() else []

    def figures(self) -> dict[str, float]:
        lines = (line.rpartition(" ") for line in self.metrics.text().decode().splitlines() if line[0] != "#")
        return {name: float(value) for name, _, value in lines}


@pytest.fixture
def storage() -> Storage:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "d")
    return storage


@pytest.fixture
def service(home: Path, tmp_path: Path, storage: Storage) -> Iterator[Service]:
    """Of a subscription whose upstream has just gone away, after its first point."""
    with SimulatedUpstream(storage) as upstream:
        port = upstream.port
        wanted = ("--database", "d", "--publication", "p", "--publisher", "sys", "--interval", "3600")
        command("subscribe", NAME, "--from", source_uri(port), *wanted)
        command("run", NAME)
    with dg.instance_for_test() as instance, closing(Workspace()) as workspace:
        service = Service(workspace, tmp_path / "told", instance, port)
        service.iterate()
        yield service
        service.stop()


def test_status_shows_it_on_screen_and_as_json(service: Service) -> None:
    shown = command("status", NAME, code=1)
    error = shown["last_error"]
    assert (shown["ok"], shown["state"], error["again"], error["attempts"]) == (False, "failing", True, 1)
    assert shown["next_attempt"] > time.time()
    for arguments in ((NAME,), ()):
        result = typer.testing.CliRunner().invoke(app, ["status", *arguments], env={"COLUMNS": "200"})
        screen = result.output
        assert result.exit_code == 1
        assert "failing" in screen
        assert error["code"] in screen
        assert "1 in a row" in screen
        assert "next" in screen


def test_metrics_show_it(service: Service) -> None:
    figures = service.figures()
    assert figures['ccpr_subscription_state{state="failing",subscription="shop"}'] == 1
    assert figures['ccpr_subscription_state{state="copying",subscription="shop"}'] == 0
    assert figures['ccpr_failures_in_a_row{subscription="shop"}'] == 1
    assert figures['ccpr_iteration_failures_total{subscription="shop"}'] == 1
    assert figures['ccpr_next_attempt_timestamp_seconds{subscription="shop"}'] > time.time()


def test_one_notice_is_sent_with_the_first_failure_and_one_when_it_has_recovered(
    service: Service, storage: Storage
) -> None:
    service.iterate()
    with SimulatedUpstream(storage, port=service.port):
        service.iterate()
        service.iterate()
        service.stop()
    failed, recovered = service.notices()
    assert (failed["before"], failed["state"], failed["attempts"]) == ("ok", "failing", 1)
    assert failed["next_attempt"] > failed["at"]
    assert failed["remedy"]
    assert (recovered["before"], recovered["state"]) == ("failing", "ok")
    assert service.figures()['ccpr_failures_in_a_row{subscription="shop"}'] == 0
    assert command("status", NAME)["ok"]


def test_dagster_shows_it(service: Service) -> None:
    workspace, instance = service.workspace, service.instance
    row = workspace.log.row(NAME)
    health = health_of(workspace, row)
    assert (health.state, health.current, health.grave) == ("failing", False, True)
    assert "Tried again at 20" in health.says
    assert health.shown[metadata.FAILED_ATTEMPTS] == 1
    assert quick_verdict(workspace, row, has_target_trouble=False) == health.verdict == "failing, grave"
    assert [one.subscription for one in read_all_health(workspace).failing] == [NAME]
    for key in (health.key, dg.AssetKey("replication_health")):
        (record,) = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(key, "replica_current"), limit=1
        )
        evaluation = record.event.dagster_event.event_specific_data
        assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR), key
