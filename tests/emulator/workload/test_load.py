"""A load: its changes follow from its seed, its rate does not drift, and a record tells every wrong row."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ccpr.matrixone.client.endpoint import Endpoint, parse_uri
from ccpr.matrixone.errors import CcprError
from ccpr_emulator.errors import LoadLost, RecordUnusable
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from ccpr_emulator.workload.comparison import compare
from ccpr_emulator.workload.player import Played, Player, connected, prepare, steps_there
from ccpr_emulator.workload.record import Record
from ccpr_emulator.workload.steps import LINES, ORDERS, PROGRESS, Load, Model, statements
from tests.support.mariadb import MariaDb, uri_from
from tests.support.replica import command
from tests.targets.target_database import new_database

pytestmark = pytest.mark.integration

LOAD = Load(seed=7, rows=60, batch=20)
NAME, DATABASE = "load", "ccpr_load"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PW", "111")
    return tmp_path


@pytest.fixture
def upstream() -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream() as upstream:
        yield upstream


def uri(port: int) -> str:
    return f"mysql://sys#dump:env:PW@127.0.0.1:{port}"


def endpoint(port: int) -> Endpoint:
    return parse_uri(uri(port))[0]


def run(port: int, record: Path, *options: str, code: int = 0) -> Any:
    """`ccpr workload run` in this process; its signal handlers are put back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return command("workload", "run", "--from", uri(port), "--record", str(record), *options, code=code)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# ---- the changes


def test_the_changes_of_a_seed_are_always_the_same() -> None:
    first, second = Model(LOAD).go_to(50), Model(LOAD).go_to(20).go_to(50)
    assert (first.orders, first.lines, first.changes) == (second.orders, second.lines, second.changes)
    assert first.orders != Model(replace(LOAD, seed=8)).go_to(50).orders
    # Pinned: a record of today is read by the program of tomorrow.
    step = Model(Load(1, 10, 4)).next_step()
    cents = ("5130.72", "6645.72", "171.29", "4624.34")
    assert [row[1:3] for row in step.placed] == list(zip((911, 219, 879, 251), map(Decimal, cents), strict=True))


def test_rows_are_bounded_and_every_kind_of_change_occurs() -> None:
    model, kinds = Model(LOAD), {"placed": 0, "changed": 0, "deleted": 0}
    for _ in range(200):
        step = model.next_step()
        touched = [*(row[0] for row in step.placed), *step.changed, *step.deleted]
        assert len(touched) == len(set(touched))
        for kind in kinds:
            kinds[kind] += len(getattr(step, kind))
        model.apply(step)
        assert len(model.orders) <= LOAD.rows
    assert min(kinds.values()) > 500
    assert set(model.lines) == set(model.orders)


# ---- the record


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"format": 1, "load": {"seed": "x"}}', "[" * 9999])
def test_what_is_not_a_record_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text(text)
    with pytest.raises(RecordUnusable):
        Record.read(path)
    with pytest.raises(RecordUnusable):
        Record.read(tmp_path / "missing")


def test_every_wrong_row_is_found() -> None:
    record = Record(DATABASE, LOAD, 30, 30)
    model = Model(LOAD).go_to(30)
    rows = {table: list(model.rows(table)) for table in (ORDERS, LINES, PROGRESS)}
    assert compare(record, rows.__getitem__).equal
    order, line = rows[ORDERS], rows[LINES]
    for wrong in (
        {ORDERS: order[1:]},
        {ORDERS: [*order, order[0]]},
        {ORDERS: [(*order[0][:-1], "other"), *order[1:]]},
        {LINES: [(*line[0][:2], 100), *line[1:]]},
        {LINES: [*line, (10**9, 1, 1)]},
        {PROGRESS: [(1, 29)]},
    ):
        found = compare(record, {**rows, **wrong}.__getitem__)
        assert not found.equal
        assert any(one.keys for one in found.tables)
    for progress in ([], [(1, 31)], [(1, 30), (2, 30)], [(1, -1)]):
        with pytest.raises(LoadLost):
            compare(record, {**rows, PROGRESS: progress}.__getitem__)


# ---- a database


def test_a_load_ends_where_its_record_says_and_goes_on_there(upstream: SimulatedUpstream, home: Path) -> None:
    record = home / "record"
    options = ("--rate", "0", "--seed", "7", "--rows", "60", "--batch", "20")
    done = run(upstream.port, record, *options, "--changes", "150")
    assert 150 <= done["changes"] < 170
    checked = command("workload", "check", "--record", str(record), "--from", uri(upstream.port))
    assert (checked["equal"], checked["complete"], checked["changes"]) == (True, True, done["changes"])
    run(upstream.port, record, "--rate", "0", "--changes", "50")
    again = command("workload", "check", "--record", str(record), "--from", uri(upstream.port))
    assert again["changes"] >= done["changes"] + 50
    error = run(upstream.port, home / "other", "--changes", "1", code=1)["error"]
    assert "exists" in error["message"]
    assert not (home / "other").exists()


def test_a_changed_row_and_a_lost_one_are_found(upstream: SimulatedUpstream, home: Path) -> None:
    record = home / "record"
    run(upstream.port, record, "--rate", "0", "--changes", "100")
    with closing(pymysql.connect(host="127.0.0.1", port=upstream.port, user="root", password="x")) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT max(id) FROM {DATABASE}.{ORDERS}")
            ((order,),) = cursor.fetchall()
            cursor.execute(f"UPDATE {DATABASE}.{ORDERS} SET note = 'other' WHERE id = {order}")
        connection.commit()
        error = command("workload", "check", "--record", str(record), "--from", uri(upstream.port), code=1)["error"]
        assert (error["code"], f"({order},)" in error["message"]) == ("LOAD_DIFFERS", True)
        connection.cursor().execute(f"UPDATE {DATABASE}.{PROGRESS} SET steps = 1")
        connection.commit()
    assert run(upstream.port, record, "--changes", "1", code=1)["error"]["code"] == "LOAD_LOST"


def test_a_load_that_was_killed_goes_on(upstream: SimulatedUpstream, home: Path) -> None:
    record = home / "record"
    words = ["workload", "run", "--from", uri(upstream.port), "--record", str(record), "--rate", "0", "--rows", "100"]
    program = [sys.executable, "-m", "ccpr.cli", *words]
    with subprocess.Popen(program, env=dict(os.environ), stdout=subprocess.DEVNULL) as process:
        _wait(lambda: record.exists() and Record.read(record).acknowledged > 3)
        process.kill()
    left = Record.read(record)
    with connected(endpoint(upstream.port), "111") as connection:
        assert left.acknowledged <= steps_there(connection, DATABASE) <= left.reserved
    run(upstream.port, record, "--rate", "0", "--changes", "40")
    assert command("workload", "check", "--record", str(record), "--from", uri(upstream.port))["equal"]


def test_a_second_writer_is_found(upstream: SimulatedUpstream, tmp_path: Path) -> None:
    record = Record(DATABASE, LOAD)

    def stop(progress: Played) -> bool:
        if progress.steps == 2:
            with connected(endpoint(upstream.port), "111") as other, other.cursor() as cursor:
                cursor.execute(f"UPDATE {DATABASE}.{PROGRESS} SET steps = 99")
                other.commit()
        return progress.steps > 5

    with connected(endpoint(upstream.port), "111") as connection:
        prepare(connection, DATABASE)
    with pytest.raises(LoadLost, match="another program"):
        Player(endpoint(upstream.port), "111", record, tmp_path / "r", 0, stop, lambda _: None).run()


def test_a_rate_is_held_without_drift(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a clock of the test's own: every step takes 30 ms but one, which takes 5 s; 100 changes a second is a step of
    10 every 100 ms."""
    now, taken = [1000.0], []
    monkeypatch.setattr("ccpr_emulator.workload.player.time", _Clock(now))
    player = Player(endpoint(1), "", Record(DATABASE, Load(1, 50, 10)), tmp_path / "r", 100.0, _after(60.0), _nothing)

    def take(connection: object) -> None:
        taken.append(now[0])
        now[0] += 5.0 if len(taken) == 200 else 0.03
        player._model.apply(player._model.next_step())

    monkeypatch.setattr(player, "_take", take)
    monkeypatch.setattr(player, "_before", (0, 0))
    monkeypatch.setattr(player, "_begun", now[0])
    done = player._play(None)  # pyright: ignore[reportArgumentType]
    assert abs(done.changes - 6000) <= 10
    assert done.late < 0.2
    assert 4.5 < done.latest < 5.5
    assert len(taken) == done.steps


class _Clock:
    def __init__(self, now: list[float]) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now[0]

    def sleep(self, seconds: float) -> None:
        self._now[0] += seconds


def _after(seconds: float) -> Any:
    return lambda progress: progress.seconds >= seconds


def _nothing(progress: Played) -> None:
    pass


def _wait(until: Any) -> None:
    limit = time.monotonic() + 90
    while not until():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_statement_has_no_empty_list() -> None:
    model = Model(LOAD)
    for _ in range(60):
        step = model.next_step()
        assert not [one for one in statements(step, "d") if "()" in one or one.endswith("VALUES ")]
        model.apply(step)


# ---- a short soak


@pytest.mark.in_turn
def test_what_is_replicated_while_it_changes_is_equal_at_every_point(
    upstream: SimulatedUpstream, home: Path, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterations follow one another while changes come; each point, and the target in the end, has the rows of one
    moment, and the last point has all."""
    monkeypatch.setenv("DOWN", mariadb.password)
    record, ended = home / "record", threading.Event()
    known = Record(DATABASE, Load(3, 200, 20))
    known.keep(record)
    with connected(endpoint(upstream.port), "111") as connection:
        prepare(connection, DATABASE, publication="p")
    player = Player(endpoint(upstream.port), "111", known, record, 100.0, lambda _: ended.is_set(), _nothing)
    failures: list[CcprError] = []

    def play() -> None:
        try:
            player.run()
        except CcprError as error:
            failures.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    check = ("workload", "check", "--record", str(record))
    with new_database(mariadb) as place:
        try:
            command("subscribe", NAME, "--from", uri(upstream.port), "--database", DATABASE)
            to = uri_from(place.uri, "DOWN")
            command("target", "add", NAME, "db", "--to", to)
            steps: list[int] = []
            while len(steps) < 4:
                _wait(lambda: player.record.acknowledged >= (steps[-1] if steps else 0) + 20)
                point = command("run", NAME)["lsn"]
                found = command(*check, "--mirror", NAME, "--at", str(point), "--may-lag")
                assert found["equal"]
                steps.append(found["steps"])
        finally:
            ended.set()
            thread.join(60)
        assert not failures
        assert steps == sorted(steps)
        assert steps[0] < steps[-1]
        command("run", NAME)
        for where in (("--from", uri(upstream.port)), ("--mirror", NAME), ("--target", f"{NAME}.db")):
            found = command(*check, *where)
            assert (found["equal"], found["complete"]) == (True, True)
            assert found["steps"] == player.record.acknowledged
        of_target = (*check, "--target", f"{NAME}.db")
        ((order,),) = place.query(f"SELECT max(id) FROM {ORDERS}")
        place.query(f"UPDATE {ORDERS} SET note = 'other' WHERE id = {order}")
        error = command(*of_target, code=1)["error"]
        assert (error["code"], f"({order},)" in error["message"]) == ("LOAD_DIFFERS", True)
        place.query(f"DROP TABLE {ORDERS}")
        error = command(*of_target, code=1)["error"]
        assert (error["code"], error["subject"]) == ("TARGET_UNAVAILABLE", f"target db at {place.address.masked()}")
