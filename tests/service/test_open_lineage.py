"""Events of OpenLineage, as a server gets them from `ccpr run`: one for each iteration that makes a point or fails; by
the schema that OpenLineage publishes (OpenLineage.json, 2-0-2); without a password; and nothing depends on the
server."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jsonschema
import pytest

from ccpr.service import open_lineage
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command

pytestmark = pytest.mark.integration

PASSWORD = "a-password-of-the-upstream"
_NAMED: dict[str, Any] = {"namespace": {"type": "string"}, "name": {"type": "string"}}
_DATASETS = {"type": "array", "items": {"type": "object", "properties": _NAMED, "required": ["namespace", "name"]}}
RUN_EVENT: dict[str, Any] = {  # what the published schema demands
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {
            "type": "string",
            "pattern": r"^https://openlineage\.io/.*/OpenLineage\.json#/\$defs/RunEvent$",
        },
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "run": {
            "type": "object",
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": {"$ref": "#/$defs/facets"}},
            "required": ["runId"],
        },
        "job": {"type": "object", "properties": _NAMED, "required": ["namespace", "name"]},
        "inputs": _DATASETS,
        "outputs": _DATASETS,
    },
    "required": ["eventTime", "producer", "schemaURL", "run", "job"],
    "$defs": {
        "facets": {
            "type": "object",
            "additionalProperties": {"type": "object", "required": ["_producer", "_schemaURL"]},
        }
    },
}


class Receiver:
    """A server that keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.status = 201
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.requests.append((self.path, str(self.headers), json.loads(body)))
                self.send_response(received.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def event(self) -> dict[str, Any]:
        """The only one since the last call, which the schema allows."""
        ((path, _, event),) = self.requests
        self.requests.clear()
        assert path == "/api/v1/lineage"
        checker = jsonschema.FormatChecker()
        jsonschema.Draft202012Validator(RUN_EVENT, format_checker=checker).validate(event)
        for dataset in (*event["inputs"], *event["outputs"]):
            for facet in dataset["facets"].values():
                assert facet["_producer"]
                assert facet["_schemaURL"].startswith("https://openlineage.io/")
        return event


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver()
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "a-key")
    monkeypatch.setenv("UPSTREAM_PASSWORD", PASSWORD)
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def test_an_iteration_is_one_event_with_tables_columns_and_where_they_come_from(
    receiver: Receiver, one_table: OneTable
) -> None:
    one_table.replicated(1)
    sent = str(receiver.requests)
    assert "Bearer a-key" in sent
    assert PASSWORD not in sent
    event = receiver.event()
    assert (event["eventType"], event["job"]["name"], event["job"]["namespace"]) == ("COMPLETE", "s", "ccpr")
    (source,), (replica,) = event["inputs"], event["outputs"]
    assert source["namespace"].startswith("mysql://127.0.0.1:")
    assert replica["namespace"] == f"file://{one_table.source.home}/home/mirrors/s"
    assert source["name"] == replica["name"] == f"{DATABASE}.a"
    assert [field["name"] for field in replica["facets"]["schema"]["fields"]] == ["n", "v"]
    (origin,) = replica["facets"]["columnLineage"]["fields"]["v"]["inputFields"]
    assert (origin["namespace"], origin["name"], origin["field"]) == (source["namespace"], source["name"], "v")

    for _ in range(2):  # the first has appendable objects that were flushed
        command("run", "s")
    assert receiver.requests == [], "it found nothing new"
    one_table.work()
    assert receiver.event()["run"]["runId"] != event["run"]["runId"]


def test_a_sync_is_an_event_with_the_tables_of_the_target(receiver: Receiver, one_table: OneTable) -> None:
    one_table.replicated(1)
    replica = receiver.event()["outputs"][0]
    lake = one_table.source.home / "lake"
    command("target", "add", "s", "lake", "--to", lake.as_uri(), "--format", "delta")
    command("run", "s")
    event = receiver.event()
    assert (event["eventType"], event["job"]["name"]) == ("COMPLETE", "s.lake")
    (source,), (copy,) = event["inputs"], event["outputs"]
    assert (source["namespace"], source["name"]) == (replica["namespace"], replica["name"])
    assert (copy["namespace"].rstrip("/"), copy["name"]) == (lake.as_uri(), f"{DATABASE}.a")
    (origin,) = copy["facets"]["columnLineage"]["fields"]["v"]["inputFields"]
    assert (origin["namespace"], origin["name"], origin["field"]) == (source["namespace"], source["name"], "v")
    command("run", "s")
    assert receiver.requests == [], "it has got nothing"


def test_a_failed_iteration_is_an_event_with_its_error(one_table: OneTable, receiver: Receiver) -> None:
    one_table.replicated(1)
    receiver.requests.clear()
    one_table.source.emulator.stop()
    command("run", "s", code=1)
    event = receiver.event()
    assert event["eventType"] == "FAIL"
    assert event["run"]["facets"]["errorMessage"]["message"]
    one_table.source.emulator.restart()


def test_an_endpoint_that_is_away_is_said_once_and_costs_no_iteration(
    one_table: OneTable, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_table.source.subscribe()
    monkeypatch.setattr(open_lineage, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url.replace("http://", "http://user:secret@"))
    receiver.status = 500
    with caplog.at_level(logging.WARNING):
        assert one_table.work() == 0
        receiver.server.shutdown()
        receiver.server.server_close()
        assert one_table.work() == 1
    assert "no events of OpenLineage to 127.0.0.1" in caplog.text
    assert "secret" not in caplog.text
