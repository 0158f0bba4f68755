"""The relay inside `ccpr serve`: it starts and ends with the service, is seen, and a follower of it gets all rows; no
follower delays a mirror."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.service.running import RELAYS, PortMark, addresses
from ccpr.service.workspace import Workspace
from ccpr.state.followers import FollowerRecords
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.native_client import NativeClient
from tests.support.relayed import assert_has_point
from tests.support.replica import command, source_uri
from tests.support.waiting import until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


class Source:
    """A simulated upstream with one table, and a subscription to it."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.storage.create_database("d")
        self.storage.create_publication("p", "d")
        self.storage.create_table("d", "t", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
        self.server = SimulatedUpstream(self.storage)
        self.server.start()
        uri = source_uri(self.server.port)
        words = ["--publication", "p", "--publisher", "sys", "--interval", "1", "--with-indexes"]
        command("subscribe", "shop", "--from", uri, "--database", "d", *words)

    def insert(self, *numbers: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert("d", "t", {"n": list(numbers), "v": [f"v{number}" for number in numbers]})


@pytest.fixture
def source(home: Path) -> Iterator[Source]:
    source = Source()
    try:
        yield source
    finally:
        source.server.stop()


@contextmanager
def service(*options: str) -> Iterator[tuple[subprocess.Popen, str, str]]:
    """`ccpr serve --relay`; the addresses of its pages and of the relay."""
    words = ["serve", "--port", "0", "--relay", "--relay-listen", "127.0.0.1:0", *options]
    program = [sys.executable, "-c", "from ccpr.cli.main import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            pages, _, relay = (process.stdout.readline().split() for _ in range(3))
            assert (pages[:2], relay[:2]) == (["serving", "on"], ["relay", "on"])
            yield process, f"http://{pages[2]}", relay[2]
        finally:
            process.kill()


def page(address: str, path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=30) as answer:
        return answer.read().decode()


def figures(address: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in page(address, "/metrics").splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def follow(client: NativeClient, relay: str) -> None:
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    command("follower", "add", "shop", "b", "--into", into, "--relay-address", relay)


def newest(workspace: Workspace) -> Any:
    return workspace.mirror("shop", published=False).point()


@pytest.mark.kills
def test_a_service_relays_and_looks_after_followers(home: Path, source: Source, client: NativeClient) -> None:
    source.insert(*range(100))
    with closing(Workspace()) as workspace:
        with service() as (process, pages, relay):
            until(lambda: command("status")[0]["newest_point"], "the first point")
            follow(client, relay)
            (task,) = client.tasks.values()
            until(lambda: task.watermark >= newest(workspace).at.physical, "the first load")
            source.insert(*range(100, 300))
            until(lambda: newest(workspace).tables and rows(client, "t") == 300, "the new rows")
            shown = json.loads(page(pages, "/status"))[0]
            assert shown["relays"] == command("status", "shop")["relays"] == [relay]
            watched = until(lambda: followed(pages), "the service has asked the follower's cluster")
            assert (watched["name"], watched["state"], watched["last_error"]) == ("b", "following", None)
            found = figures(pages)
            assert found['ccpr_follower_failing{follower="b",subscription="shop"}'] == 0
            assert found['ccpr_follower_lag_seconds{follower="b",subscription="shop"}'] >= 0
            assert found["ccpr_relay_bytes_total"] > 0
            assert found["ccpr_relay_statements_total"] > found["ccpr_relay_errors_total"] == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert command("status", "shop")["relays"] == []
        with service("--relay-listen", relay) as (process, _, again):
            assert again == relay
            source.insert(*range(300, 400))
            until(lambda: task.tables and task.state == 0 and rows(client, "t") == 400, "the rows after a restart")
            assert assert_has_point(client, task, workspace.mirror("shop", published=False)) == 400
            process.kill()
            process.wait(60)
        assert command("status", "shop")["relays"] == [], "after kill -9, too"


def followed(pages: str) -> Any:
    (follower,) = json.loads(page(pages, "/status"))[0]["followers"]
    return follower if follower["asked_at"] is not None and follower["lsn"] is not None else None


def rows(client: NativeClient, table: str) -> int:
    with closing(Workspace()) as workspace:
        mirror = workspace.mirror("shop", published=False)
        client.definitions = {ref.name: mirror.manifest(ref).table for ref in mirror.point().tables.values()}
    return client.count("d", table)


def test_a_relay_that_cannot_listen_says_so_and_nothing_runs(home: Path, source: Source) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        words = ["serve", "--port", "0", "--relay", "--relay-listen", f"127.0.0.1:{port}"]
        program = [sys.executable, "-c", "from ccpr.cli.main import main; main()", *words]
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    assert done.returncode == 1
    assert "RELAY_LISTEN" in done.stderr
    assert "--relay-listen" in done.stderr
    assert done.stdout == ""
    assert command("status", "shop")["newest_point"] is None


@pytest.mark.in_turn
@pytest.mark.kills
def test_a_cluster_that_never_answers_delays_neither_mirrors_nor_the_end(
    home: Path, source: Source, client: NativeClient
) -> None:
    source.insert(0)
    with (
        closing(Workspace()) as workspace,
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        service() as (process, _, relay),
    ):
        until(lambda: command("status")[0]["newest_point"], "the first point")
        follow(client, relay)
        records = FollowerRecords(workspace.log.engine, workspace.log.row("shop").task_id)
        place = records.get("b").uri.replace(str(client.port), str(silent.getsockname()[1]))
        records.change("b", uri=place, sealed_password=workspace.vault.seal("111", parse_uri(place)[0]))
        silent.settimeout(60)
        with closing(silent.accept()[0]):  # it is being asked, and waits for our greeting
            for number in range(1, 6):
                before = newest(workspace).lsn
                source.insert(number)
                until(lambda before=before: newest(workspace).lsn > before, "a point meanwhile")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def test_marks_of_relays_end_with_them(tmp_path: Path) -> None:
    assert addresses(tmp_path, RELAYS) == ()
    one, other = PortMark(tmp_path, RELAYS, "127.0.0.1:6002"), PortMark(tmp_path, RELAYS, "0.0.0.0:6003")
    assert addresses(tmp_path, RELAYS) == ("0.0.0.0:6003", "127.0.0.1:6002")
    one.remove()
    assert addresses(tmp_path, RELAYS) == ("0.0.0.0:6003",)
    other._file.close()  # as a process that is killed leaves it
    assert addresses(tmp_path, RELAYS) == ()
    assert list((tmp_path / "relays").iterdir()) == []
