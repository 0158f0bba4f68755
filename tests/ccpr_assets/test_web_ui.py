"""The web UI in its own process: a materialization started as its button does, and the lineage page in a browser."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from ccpr_assets import metadata
from ccpr_assets.partitions import sync_partitions
from replication.service.workspace import Workspace
from tests.end_to_end.replica import Replica, replaying

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ("upstream_snapshots", "catalog_ddl", "object_diffs", "copied_objects", "applied_tables")
CHECKS = (("object_diffs", "object_list_valid"), ("copied_objects", "objects_stored"))
START_SECONDS, RUN_SECONDS, PAGE_SECONDS = 60.0, 150.0, 60.0
LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
STATUS = "query ($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"
SHOWN = """
query ($asset: AssetKeyInput!) {
  assetOrError(assetKey: $asset) {
    ... on Asset {
      assetMaterializations(limit: 1) {
        partition
        metadataEntries { label ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue } }
      }
    }
  }
}"""
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# A browser that connects to nothing but the page, and leaves nothing behind.
BROWSER_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1000",
    "--virtual-time-budget=15000",
)
pytestmark = [pytest.mark.recordings, pytest.mark.timeout(400)]


class WebServer:
    """A running `dagster-webserver` over our workspace file."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            value = json.load(answer)
        assert "errors" not in value, value
        return value["data"]

    def materialize(self, partition: str) -> str:
        """Send what the button "Materialize" sends for the five assets of one partition. Returns the run's id."""
        selector = {
            "repositoryLocationName": "ccpr",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [asset]} for asset in ASSETS],
            "assetCheckSelection": [{"assetKey": {"path": [asset]}, "name": check} for asset, check in CHECKS],
        }
        tags = [{"key": "dagster/partition", "value": partition}]
        params = {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": tags}}
        answer = self.query(LAUNCH, params=params)["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def shown(self, asset: str) -> dict[str, Any]:
        """The numbers and the partition of an asset's last materialization."""
        (event,) = self.query(SHOWN, asset={"path": [asset]})["assetOrError"]["assetMaterializations"]
        numbers = {entry["label"]: entry.get("intValue", entry.get("floatValue")) for entry in event["metadataEntries"]}
        return {**numbers, "partition": event["partition"]}


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        yield replica


@pytest.fixture
def server(replica: Replica, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    for name in ("concurrency", "run_monitoring", "run_retries", "retention"):
        del settings[name]  # these need the daemon
    settings["run_coordinator"] = {"module": "dagster.core.run_coordinator", "class": "DefaultRunCoordinator"}
    folder = home / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with closing(Workspace()) as workspace, dg.DagsterInstance.get() as instance:
        sync_partitions(instance, workspace)
    port = free_port()
    program = Path(sys.executable).with_name("dagster-webserver")
    with (home / "webserver.log").open("w") as log:
        command = [program, "-h", "127.0.0.1", "-p", str(port), "-w", ROOT / "workspace.yaml"]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: answers(url) or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, (home / "webserver.log").read_text()
            yield WebServer(url)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with its code server and any run
            process.wait()


@pytest.mark.spark
def test_a_materialization_from_the_ui_makes_a_point(server: WebServer, replica: Replica) -> None:
    run = server.materialize("replica")
    state = {"status": ""}

    def ended() -> bool:
        state.update(server.query(STATUS, run=run)["runOrError"])
        return state["status"] in ("SUCCESS", "FAILURE", "CANCELED")

    wait_for(ended, RUN_SECONDS)
    assert state["status"] == "SUCCESS"
    applied = server.shown("applied_tables")
    assert applied["partition"] == "replica"
    assert applied[metadata.ITERATION_LSN] == 0
    assert applied[metadata.OBJECTS_COPIED] == replica.emulator.status().objects_fetched == 2
    assert applied[metadata.LAG_SECONDS] >= 0
    assert replica.emulator.status().sessions_that_fetched >= 2
    replica.assert_equal_to_source(1)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium: scripts/test-components installs it as root")
def test_the_lineage_is_shown_in_a_browser(server: WebServer, home: Path) -> None:
    assert BROWSER is not None
    command = [
        BROWSER,
        *BROWSER_OPTIONS,
        f"--user-data-dir={home / 'browser'}",
        "--dump-dom",
        f"{server.url}/asset-groups",
    ]

    def shows_all() -> bool:
        page = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_SECONDS, check=True).stdout
        return all(
            name in page for name in ("upstream_database", *ASSETS, "mirror", "target_databases", "Materialize all")
        )

    wait_for(shows_all, PAGE_SECONDS)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5):
            return True
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.2)
