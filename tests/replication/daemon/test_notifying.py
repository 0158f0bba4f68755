"""A notice for each change of state and none for each try; to a command, and to a web address."""

import http.server
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from matrixone.upstream.endpoint import Endpoint
from matrixone.upstream.publications import Publication
from replication.daemon.notifying import Notifier
from replication.errors import BadSetting
from replication.failure import Failure
from replication.service.target_sync import TargetOutcome
from replication.state.credentials import Vault
from replication.state.followers import Follower
from replication.state.log_rows import LogRow
from replication.state.settings import Settings
from replication.state.states import State
from replication.state.subscription import Subscription
from replication.state.targets import Failing

FAILURE = Failure("UPSTREAM_UNREACHABLE", "it refuses", "upstream", "Start it.")


@pytest.fixture
def row(tmp_path: Path) -> LogRow:
    endpoint, publication = Endpoint("127.0.0.1", 6001, "sys", "dump"), Publication("p", "sys", 0)
    new = Subscription.new("s", endpoint, "secret!", Vault(tmp_path / "key"), publication, "d", None, Settings())
    return new.to_row(datetime.now(UTC))


def notices(act: Callable[[Notifier], None], folder: Path) -> list[dict[str, Any]]:
    """What the command gets."""
    file = folder / "notices"
    code = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read())"
    notifier = Notifier(f'"{sys.executable}" -c "{code}"')
    notifier.start()
    act(notifier)
    notifier._put(None)
    notifier._thread.join(60)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_one_notice_for_each_change_of_state(row: LogRow, tmp_path: Path) -> None:
    stopped = replace(row, state=State.ERROR)

    def act(notifier: Notifier) -> None:
        notifier.subscriptions_read([row])
        for _ in range(3):
            notifier.iteration_failed(row, FAILURE, 0.1)
        notifier.iteration_failed(stopped, FAILURE, 0.1)
        for _ in range(2):
            notifier._change("s", "", "ok", None)
        for failure in (FAILURE, FAILURE, None, None):
            notifier.target_synced(row, TargetOutcome("db", None, failure, 0.1))

    found = notices(act, tmp_path)
    assert [(one["target"], one["before"], one["state"]) for one in found] == [
        (None, "ok", "failing"),
        (None, "failing", "stopped"),
        (None, "stopped", "ok"),
        ("db", "ok", "failing"),
        ("db", "failing", "ok"),
    ]
    assert (found[0]["code"], found[0]["remedy"]) == ("UPSTREAM_UNREACHABLE", "Start it.")
    assert "secret!" not in json.dumps(found)


def test_a_follower_that_begins_to_fail_stops_and_is_well_again(row: LogRow, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    well = Follower(row.task_id, "db", "mysql://sys#root@127.0.0.1:6001", "", "", "d", "127.0.0.1:6002", now)
    stopped = Failure("FOLLOWER_STOPPED", "no such table", "follower db", "Do something.")

    def failing(failure: Failure, attempts: int = 1) -> Follower:
        return replace(well, failing=Failing(failure, attempts, now, now))

    def act(notifier: Notifier) -> None:
        for follower in (well, failing(FAILURE), failing(FAILURE, 2), failing(stopped), well):
            notifier.follower_asked(row, follower)
        notifier.follower_asked(row, replace(failing(FAILURE, 7), name="long_before"))

    found = notices(act, tmp_path)
    assert [(one["follower"], one["target"], one["before"], one["state"]) for one in found] == [
        ("db", None, "ok", "failing"),
        ("db", None, "failing", "stopped"),
        ("db", None, "stopped", "ok"),
    ]
    assert (found[1]["code"], found[1]["remedy"]) == ("FOLLOWER_STOPPED", "Do something.")


def test_what_failed_before_the_service_started_is_not_a_change(row: LogRow, tmp_path: Path) -> None:
    failing = replace(row, error_message=f"R:3:1:2:{FAILURE}")

    def act(notifier: Notifier) -> None:
        notifier.subscriptions_read([failing])
        notifier.iteration_failed(failing, FAILURE, 0.1)

    assert notices(act, tmp_path) == []


def test_a_web_address_gets_the_same_and_redirects_are_not_followed(row: LogRow) -> None:
    got: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if len(got) == 1 else 302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        notifier = Notifier(webhook=f"http://127.0.0.1:{server.server_address[1]}/hook?token=x")
        notifier.start()
        notifier.iteration_failed(row, FAILURE, 0.1)
        notifier._put(None)
        notifier._thread.join(60)
        notifier._post(b"{}")
        server.shutdown()
    assert json.loads(got[0][1])["state"] == "failing"
    assert {path for path, _ in got} == {"/hook?token=x"}


@pytest.mark.parametrize(("command", "webhook"), [("'", ""), ("", "file:///etc/passwd")])
def test_a_command_or_address_that_cannot_be_used_is_an_error(command: str, webhook: str) -> None:
    with pytest.raises(BadSetting):
        Notifier(command, webhook)
