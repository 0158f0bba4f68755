"""`ccpr serve` against a simulated upstream: each test ends by comparing rows. Those that end it by a signal run the
program; the others run its components in this process."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.testing

import ccpr
from ccpr.cli.main import app
from ccpr.serve.listening import Listener
from ccpr.serve.replicator import Replicator
from ccpr.service.workspace import Workspace
from ccpr.state.targets import Target
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import Delay
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri
from tests.support.shop import DATABASE, NAME, TARGET, Shop, shop
from tests.support.simulated import rows
from tests.support.waiting import LIMIT_SECONDS, until

__all__ = ["shop"]

ROOT = Path(__file__).resolve().parents[2]


class Upstream:
    """A simulated upstream that can go and come back on its port, with two databases."""

    def __init__(self) -> None:
        self.storage = Storage()
        for name in ("d", "e"):
            self.storage.create_database(name)
            self.storage.create_publication(f"p_{name}", name)
            self.storage.create_table(name, "t", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
        self.server = SimulatedUpstream(self.storage)
        self.server.start()
        self.port = self.server.port

    def insert(self, database: str, *numbers: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert(database, "t", {"n": list(numbers), "v": [f"v{number}" for number in numbers]})

    def stop(self) -> None:
        self.server.stop()

    def come_back(self) -> None:
        self.server = SimulatedUpstream(self.storage, port=self.port)
        self.server.start()

    def subscribe(self, name: str, database: str, interval: int = 1) -> None:
        source = source_uri(self.port)
        command("subscribe", name, "--from", source, "--database", database, "--publication", f"p_{database}",
                "--publisher", "sys", "--interval", str(interval))  # fmt: skip

    def is_replicated(self, home: Path, name: str, database: str) -> bool:
        try:
            found = ccpr.open_mirror(str(home / "home" / "mirrors" / name)).table(f"{database}.t").to_arrow()
        except ccpr.CcprError:
            return False
        return rows(found) == rows(self.storage.rows_at(database, "t", self.storage.now))


def is_mirrored(shop: Shop) -> bool:
    """Whether the newest point has all rows of all tables."""
    with Workspace() as workspace:
        mirror = ccpr.open_mirror(str(workspace.default_mirror(NAME)))
    source, now = shop.storage, shop.storage.now
    return all(
        rows(mirror.table(f"{DATABASE}.{name}").to_arrow()) == rows(source.rows_at(DATABASE, name, now))
        for name in ("a", "b", "still")
    )


def newest_lsn() -> int | None:
    with Workspace() as workspace:
        head = workspace.mirror(NAME, published=False).published_head()
    return None if head is None else head.newest_point


def target() -> Target:
    with Workspace() as workspace:
        return workspace.of(NAME).targets.get(TARGET)


def target_lsn() -> int | None:
    with Workspace() as workspace:
        return workspace.of(NAME).targets.get(TARGET).lsn


@pytest.fixture
def upstream(home: Path) -> Iterator[Upstream]:
    upstream = Upstream()
    try:
        yield upstream
    finally:
        upstream.stop()


@contextmanager
def program(*options: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """The process, and the address of its pages."""
    words = [sys.executable, "-c", "from ccpr.cli.main import main; main()", "serve", "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving on ")
            yield process, "http://" + line.removeprefix("serving on ").strip()
        finally:
            process.kill()


@contextmanager
def running(listener: Listener | None = None, **options: Any) -> Iterator[Replicator]:
    with closing(Workspace()) as workspace:
        replicator = Replicator(workspace, [listener or Listener()], **options)
        replicator.start()
        try:
            yield replicator
        finally:
            replicator.stop()
            assert replicator.unfinished == []


def page(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path, timeout=30) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


def test_the_service_prints_where_it_is_and_no_iteration(home: Path, upstream: Upstream) -> None:
    """A pipe that nobody reads holds 64 kB: what is printed by every iteration would stop it in the end."""
    upstream.subscribe("one", "d")
    with program() as (process, _):
        for number in range(3):
            upstream.insert("d", number)
            until(lambda: upstream.is_replicated(home, "one", "d"), "the rows")
        process.terminate()
        printed = process.communicate(timeout=60)[0]
    assert {line.partition(" ")[0] for line in printed.splitlines()} <= {"state"}


@pytest.mark.parametrize("in_the_environment", [False, True])
def test_the_pages_are_served_under_a_name_that_was_allowed(
    home: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, in_the_environment: bool
) -> None:
    names = ("ccpr.example.com", "monitor")
    if in_the_environment:
        monkeypatch.setenv("CCPR_ALLOWED_HOSTS", " ".join(names))
    words = [] if in_the_environment else [word for name in names for word in ("--allowed-host", name)]
    with program(*words) as (process, address):
        for name, status in (*((name, 200) for name in names), ("evil.example", 403)):
            request = urllib.request.Request(address + "/healthz", headers={"Host": f"{name}:9275"})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    found = answer.status
            except urllib.error.HTTPError as error:
                found = error.code
            assert found == status, name
        process.terminate()
        assert process.wait(60) == 0


def test_an_allowed_host_is_the_name_of_one(home: Path) -> None:
    for wrong in ("*", "https://ccpr.example.com", "ccpr.example.com:9275", "a b", ""):
        said = typer.testing.CliRunner().invoke(app, ["serve", "--port", "0", "--allowed-host", wrong])
        assert said.exit_code == 2, wrong


@pytest.mark.in_turn
@pytest.mark.kills
def test_kill_9_and_restart_and_sigterm_in_the_middle_of_a_copy_lose_nothing(home: Path, upstream: Upstream) -> None:
    upstream.insert("d", *range(1000))
    upstream.subscribe("one", "d")
    with program() as (process, address):
        until(lambda: upstream.is_replicated(home, "one", "d"), "the first point")
        assert page(address, "/healthz")["ok"]
        (status,) = page(address, "/status")
        assert (status["name"], status["ok"]) == ("one", True)
        counted = 'ccpr_iterations_total{result="point",subscription="one"}'  # what was in memory is flushed: 1 or 2
        until(lambda: counted in page(address, "/metrics"), "it is counted")
        before = upstream.server.status().statements["get_object"]
        upstream.server.inject(Delay("get_object", 1.0, times=0))
        upstream.insert("d", *range(1000, 2000))
        until(lambda: upstream.server.status().statements["get_object"] > before, "a copy under way")
        process.kill()
    upstream.server.clear_faults()
    upstream.insert("d", *range(2000, 2100))
    upstream.subscribe("two", "e")
    with program() as (process, _):
        until(lambda: upstream.is_replicated(home, "one", "d"), "the rows after kill -9")
        upstream.insert("e", 1, 2)
        until(lambda: upstream.is_replicated(home, "two", "e"), "the other subscription")
        before = upstream.server.status().statements["get_object"]
        upstream.server.inject(Delay("get_object", 5.0, times=0))
        upstream.insert("d", *range(3000, 3100))
        until(lambda: upstream.server.status().statements["get_object"] > before, "a copy under way")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0
    assert not upstream.is_replicated(home, "one", "d")
    with Workspace() as workspace:
        row = workspace.log.row("one")
        assert (row.error_message, row.lease_expires_at) == (None, 0), "it ended between steps: that is no failure"
    upstream.server.clear_faults()
    with program() as (process, _):
        until(lambda: upstream.is_replicated(home, "one", "d"), "the rows after SIGTERM")


def test_only_one_service_runs_on_a_state_folder(home: Path, upstream: Upstream) -> None:
    from ccpr.service.errors import ServiceRunning
    from ccpr.service.running import OneService

    with Workspace() as workspace:
        first, second = OneService(workspace.home), OneService(workspace.home)
        first.start()
        with pytest.raises(ServiceRunning):
            second.start()
        first.stop()
        second.start()
        second.stop()


def test_subscriptions_made_altered_paused_and_dropped_meanwhile_are_taken_up(home: Path, upstream: Upstream) -> None:
    ended: Counter[str] = Counter()

    class Count(Listener):
        def iteration_ended(self, record, mirror, seconds) -> None:
            ended[record.subscription] += 1

    with running(Count()):
        upstream.insert("d", 1)
        upstream.subscribe("one", "d", interval=3600)
        until(lambda: upstream.is_replicated(home, "one", "d"), "a new subscription")
        upstream.insert("d", 2)
        command("alter", "one", "--interval", "1")
        until(lambda: upstream.is_replicated(home, "one", "d"), "the shorter interval")
        command("pause", "one")
        upstream.insert("d", 3)
        upstream.subscribe("two", "e")
        until(lambda: ended["two"] >= 3, "another one goes on meanwhile")
        assert not upstream.is_replicated(home, "one", "d")
        command("resume", "one")
        until(lambda: upstream.is_replicated(home, "one", "d"), "it was resumed")
        command("drop", "two")
        count = ended["one"]
        until(lambda: ended["one"] > count + 2, "one goes on")
        upstream.insert("d", 4)
        until(lambda: upstream.is_replicated(home, "one", "d"), "the last rows")


def test_an_upstream_that_is_gone_is_found_again_and_the_other_is_not_delayed(home: Path, upstream: Upstream) -> None:
    other = Upstream()
    failed: list[str] = []

    class Failures(Listener):
        def iteration_failed(self, row, failure, seconds) -> None:
            failed.append(failure.code)

    try:
        with running(Failures(), workers=1):
            upstream.insert("d", 1)
            other.insert("d", 1)
            upstream.subscribe("one", "d")
            other.subscribe("two", "d")
            until(lambda: upstream.is_replicated(home, "one", "d"), "the first point")
            upstream.stop()
            until(lambda: len(failed) >= 2, "two failures")
            other.insert("d", 2)
            until(lambda: other.is_replicated(home, "two", "d"), "the other goes on")
            upstream.insert("d", 2)
            upstream.come_back()
            until(lambda: upstream.is_replicated(home, "one", "d"), "it has come back")
            assert set(failed) == {"UPSTREAM_UNREACHABLE"}
            upstream.server.disconnect_all()  # the session that is kept
            upstream.insert("d", 3)
            until(lambda: upstream.is_replicated(home, "one", "d"), "with a new session")
            assert set(failed) == {"UPSTREAM_UNREACHABLE"}, "a session that was lost while idle is not a failure"
    finally:
        other.stop()


def test_a_slow_target_never_delays_the_mirror(home: Path, shop: Shop) -> None:
    shop.add()
    command("alter", NAME, "--interval", "1", "--retain", "1")
    points: list[int] = []
    synced: list[int] = [0]  # how many points there were at the end of each sync

    class Points(Listener):
        def iteration_ended(self, record, mirror, seconds) -> None:
            if record.outcome.point:
                points.append(record.outcome.lsn)

        def target_synced(self, row, outcome) -> None:
            synced.append(len(points))

    with running(Points()):
        until(lambda: shop.place.query("SHOW TABLES LIKE 'still'"), "the first load")
        until(lambda: target_lsn() == newest_lsn(), "the first sync")
        with closing(shop.place.server.connect(shop.place.database)) as blocker, blocker.cursor() as cursor:
            cursor.execute("LOCK TABLES a WRITE")
            shop.insert("a", 200)
            made = len(points)
            for number in range(6):
                shop.insert("b", 300 + number)
                until(lambda made=made + number: len(points) > made, "a point while the target hangs")
            assert target_lsn() < points[-1]
            assert max(later - sooner for sooner, later in pairwise([*synced, len(points)])) >= 3
            cursor.execute("UNLOCK TABLES")
        until(lambda: is_mirrored(shop), "the last rows in the mirror")
        until(lambda: target_lsn() == newest_lsn(), "the target goes on")
        shop.insert("still", 400)
        until(lambda: is_mirrored(shop), "more rows in the mirror")
        until(lambda: target_lsn() == newest_lsn(), "and in the target")
    shop.assert_equal()


def test_a_table_with_an_error_that_nobody_knows_is_tried_again_by_itself_and_the_others_go_on(
    home: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the next iteration, without a new point, and in a service that was started since."""
    monkeypatch.setattr("ccpr.state.targets._FIRST_WAIT_SECONDS", 0.2)
    command("alter", NAME, "--interval", "86400")
    shop.add()
    shop.run()
    signal = "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'something new'"
    shop.place.query(f"CREATE TRIGGER refuses BEFORE INSERT ON a FOR EACH ROW {signal}")
    shop.insert("a", 200)
    shop.insert("b", 200)
    (behind,) = shop.run(code=3)["behind"]
    assert (behind["table"], behind["failure"]["code"], behind["again"]) == ("d.a", "TARGET_REFUSED", True)
    assert shop.status(code=1)["next_attempt"] is not None
    assert len(shop.place.rows("b")) == 101
    with running():
        until(lambda: shop.status(code=1)["attempts"] >= 3, "it is tried again")
        shop.place.query("DROP TRIGGER refuses")
        until(lambda: not target().behind, "it is synced")
    shop.assert_equal()
    assert (shop.status()["attempts"], shop.status()["next_attempt"]) == (0, None)


def test_a_target_that_is_added_to_a_quiet_subscription_is_loaded(home: Path, shop: Shop) -> None:
    command("alter", NAME, "--interval", "1")
    with running():
        until(lambda: len(command("points", NAME)), "the first point")
        shop.add()
        until(lambda: target_lsn() is not None, "the load")
    shop.assert_equal()


def test_a_state_database_that_is_away_is_waited_for(home: Path, upstream: Upstream, monkeypatch) -> None:
    from ccpr.state.errors import StateUnavailable
    from ccpr.state.log_rows import WatchedRows

    upstream.insert("d", 1)
    upstream.subscribe("one", "d")
    away, real = threading.Event(), WatchedRows.read

    def read(self):
        if away.is_set():
            raise StateUnavailable("the catalog database does not answer now", subject="catalog")
        return real(self)

    monkeypatch.setattr(WatchedRows, "read", read)
    with running() as replicator:
        until(lambda: upstream.is_replicated(home, "one", "d"), "the first point")
        away.set()
        until(lambda: replicator.database_error is not None, "it is noticed")
        away.clear()
        until(lambda: replicator.database_error is None, "it is back")
        upstream.insert("d", 2)
        until(lambda: upstream.is_replicated(home, "one", "d"), "it goes on")


def test_a_run_by_hand_and_the_service_do_not_meet(home: Path, upstream: Upstream) -> None:
    upstream.subscribe("one", "d")
    with running():
        for number in range(5):
            upstream.insert("d", number)
            result = typer.testing.CliRunner().invoke(app, ["run", "one", "--json"], catch_exceptions=False)
            assert result.exit_code == 0 or json.loads(result.stdout)["error"]["code"] == "SUBSCRIPTION_BUSY"
        until(lambda: upstream.is_replicated(home, "one", "d"), "all rows")
