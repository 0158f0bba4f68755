"""A notice for each change of state and none for each try; to a command, and to a web address."""

import http.server
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccpr.base.errors import Failure
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.serve.notifying import MOST_POSTS, Notifier, Webhook
from ccpr.service.errors import NoticeNotSent
from ccpr.service.target_sync import TargetOutcome
from ccpr.state.credentials import Vault
from ccpr.state.errors import BadSetting
from ccpr.state.followers import Follower
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Failing

pytestmark = pytest.mark.integration

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
    until_sent(notifier)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until_sent(notifier: Notifier) -> None:
    notifier._put(None)
    notifier.loop._thread.join(60)
    assert not notifier.loop._thread.is_alive()


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
        address = f"http://127.0.0.1:{server.server_address[1]}/hook?token=x"
        notifier = Notifier(webhook=address)
        notifier.start()
        notifier.iteration_failed(row, FAILURE, 0.1)
        until_sent(notifier)
        with pytest.raises(NoticeNotSent, match="status 302"):
            Webhook(address).post(b"{}")
        server.shutdown()
    assert json.loads(got[0][1])["state"] == "failing"
    assert {path for path, _ in got} == {"/hook?token=x"}


@pytest.mark.parametrize(("command", "webhook"), [("'", ""), ("", "file:///etc/passwd")])
def test_a_command_or_address_that_cannot_be_used_is_an_error(command: str, webhook: str) -> None:
    with pytest.raises(BadSetting):
        Notifier(command, webhook)


@contextmanager
def answering(answer: Callable[[socket.socket, int], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads requests and answers as it likes; its address, and what it was sent."""
    got: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            got.append(client.recv(65536))
            threading.Thread(target=one, args=(client, len(got)), daemon=True).start()

    def one(client: socket.socket, number: int) -> None:
        with client:
            try:
                answer(client, number)
            except OSError:  # the client has hung up
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook?token=s3cret", got
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x15\x03\x01\x00\x02\x02\x28\r\n",  # a port that speaks TLS
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 100_000,
        b"HTTP/1.1 302 Found\r\nLocation: http://[::\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_no_http_is_counted_and_the_next_notice_is_sent(
    row: LogRow, nonsense: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ccpr.serve.notifying._PAUSE_SECONDS", 0.0)
    good = b"HTTP/1.1 204 No Content\r\n\r\n"
    with answering(lambda client, number: client.sendall(nonsense if number <= 3 else good)) as (address, got):
        notifier = Notifier(webhook=address)
        notifier.start()
        notifier.iteration_failed(row, FAILURE, 0.1)
        notifier._change("s", "", "ok", None)
        until_sent(notifier)
    assert len(got) == 4, "three attempts for the first notice, one for the second"
    assert (notifier.loop.errors, notifier.loop.failing()) == (1, {})
    assert "NOTICE_NOT_SENT" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_answer_without_end_holds_no_other_notice_up(row: LogRow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time for the socket, and `http.client` reads as many 100 Continue as come."""
    done = threading.Event()

    def drip(client: socket.socket, number: int) -> None:
        while not done.wait(0.05):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    with answering(drip) as (address, got):
        webhook = Webhook(address, 5.0)  # a busy machine may let a piece wait for a while

        def post(_: int) -> None:
            with pytest.raises(NoticeNotSent, match="no whole answer"):
                webhook.post(b"{}")

        with ThreadPoolExecutor(MOST_POSTS) as threads:
            assert len(list(threads.map(post, range(MOST_POSTS)))) == MOST_POSTS
        with pytest.raises(NoticeNotSent, match="have not come to an end"):
            webhook.post(b"{}")
        done.set()
    assert len(got) == MOST_POSTS


def test_a_command_that_fails_or_writes_without_end_holds_no_other_notice_up(row: LogRow, tmp_path: Path) -> None:
    flood = "import sys; sys.stdin.read(); [sys.stdout.write('x' * 1000000) for _ in range(50)]; sys.exit(3)"
    notifier = Notifier(f'"{sys.executable}" -c "{flood}"')
    notifier.start()
    notifier.iteration_failed(row, FAILURE, 0.1)
    notifier.iteration_failed(replace(row, state=State.ERROR), FAILURE, 0.1)
    until_sent(notifier)
    assert notifier.loop.errors == 2
    (error,) = notifier.loop.failing().values()
    assert (error.code, error.message) == ("NOTICE_NOT_SENT", "exit code 3")


def test_a_full_disk_under_the_log_and_the_command_ends_nothing(row: LogRow, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccpr.cli.output import log_handler

    handler = log_handler()
    logging.getLogger().addHandler(handler)
    with suppress(OSError), Path("/dev/full").open("w", buffering=1) as full:  # closing it fails, too
        monkeypatch.setattr(sys, "stderr", full)
        notifier = Notifier("sh -c 'cat > /dev/full'")
        notifier.start()
        notifier.iteration_failed(row, FAILURE, 0.1)
        notifier._change("s", "", "ok", None)
        until_sent(notifier)
        monkeypatch.undo()
        assert notifier.loop.errors == 2
    logging.getLogger().removeHandler(handler)
    assert full.closed


def test_a_text_that_is_no_unicode_is_told_all_the_same(row: LogRow, tmp_path: Path) -> None:
    found = notices(lambda notifier: notifier.iteration_failed(row, replace(FAILURE, message="\udcff"), 0.1), tmp_path)
    assert found[0]["message"] == "\udcff"
