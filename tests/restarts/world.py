"""A simulated upstream under writes, `ccpr serve --relay` as a program of its own that replicates it each second, a
MariaDB as its target, and a follower that does what a MatrixOne does; and whether all of them have the same rows."""

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.points import Point
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.states import State
from ccpr.state.targets import TargetState
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.mariadb import uri_from
from tests.support.native_client import NativeClient
from tests.support.replica import command, source_uri
from tests.support.simulated import rows
from tests.support.target_rows import target_rows
from tests.targets.target_database import Place

ROOT = Path(__file__).resolve().parents[2]
NAME, TARGET, DATABASE = "shop", "db", "d"
TABLES = ("a", "b", "c", "e", "f")  # that are always there
LIMIT_SECONDS = 180.0  # until everything is current again: of a machine with much else to do
_START_SECONDS = 120.0
_WRITE_SECONDS = 0.03  # between two transactions
_LOGGED = re.compile(r"subscription \S+ (?:failed|stopped)\b.*|.*\b(?:Traceback|Error\b).*")


class Writer:
    """Changes the upstream's rows, and sometimes its tables, whenever it is not held."""

    def __init__(self, storage: Storage, seed: int) -> None:
        self._storage, self._rng = storage, random.Random(seed)
        self._next, self._passing = 1000, list[str]()
        self._free, self._ended, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._free.set()
        self._thread.join()

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._free.set()
        try:
            yield
        finally:
            self._free.clear()
            with self._lock:  # what it has begun is committed
                pass

    def mark(self) -> Timestamp:
        """One more row in a table; its time."""
        with self._lock:
            self._insert("a")
            return self._storage.now

    def _run(self) -> None:
        while not self._ended.is_set():
            self._free.wait()
            with self._lock:
                if self._free.is_set() and not self._ended.is_set():
                    self._change()
            self._ended.wait(_WRITE_SECONDS)

    def _change(self) -> None:
        table = self._rng.choice((*TABLES, *self._passing))
        match self._rng.choices(("insert", "update", "delete", "large", "create", "drop"), (50, 20, 20, 2, 1, 1))[0]:
            case "insert":
                self._insert(table, self._rng.randint(1, 20))
            case "large":
                self._insert(table, 2_000)
            case "update" | "delete" as how:
                found = pc.field("n").isin([self._next - self._rng.randint(1, 200) for _ in range(5)])
                with self._storage.begin() as transaction:
                    if how == "delete":
                        transaction.delete(DATABASE, table, found)
                    else:
                        transaction.update(DATABASE, table, {"v": f"new{self._next}"}, found)
            case "create" if len(self._passing) < 2:
                self._next += 1
                self._passing.append(f"x{self._next}")
                _create(self._storage, self._passing[-1])
            case "drop" if self._passing:
                self._storage.drop_table(DATABASE, self._passing.pop(0))

    def _insert(self, table: str, count: int = 1) -> None:
        first, self._next = self._next, self._next + count
        with self._storage.begin() as transaction:
            transaction.insert(DATABASE, table, _values(range(first, first + count), "v"))


def _values(numbers: range, word: str) -> dict[str, list]:
    return {"n": list(numbers), "v": [f"{word}{number}" for number in numbers]}


def _create(storage: Storage, name: str) -> None:
    storage.create_table(DATABASE, name, {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])


class Service:
    """`ccpr serve --relay`, as a program."""

    def __init__(self, log: Path) -> None:
        words = ["serve", "--port", "0", "--relay", "--relay-listen", "127.0.0.1:0"]
        program = [sys.executable, "-c", "from ccpr.cli.main import main; main()", *words]
        self._log, self._read = log, 0
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                program, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        found = ""
        for line in self._process.stdout:
            if line.startswith("relay on "):
                found = line.split()[2]
                break
        assert found, f"the service has not started:\n{log.read_text()[-2000:]}"
        self.relay = found

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def failures(self) -> list[str]:
        """What it has logged of failures since the last call."""
        text = self._log.read_text()[self._read :]
        self._read += len(text)
        return [found[0].strip()[:300] for found in _LOGGED.finditer(text)]

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.communicate()


@dataclass(frozen=True)
class Stop:
    """The subscription, or what follows it, did not go on by itself."""

    what: str


@dataclass
class World:
    """
    Attributes
    ----------
    stops : each time that something did not go on by itself since they were taken last.
    """

    storage: Storage
    server: SimulatedUpstream
    writer: Writer
    service: Service
    place: Place
    follower: NativeClient
    stops: list[Stop] = field(default_factory=list)
    _seen: str = ""

    def row(self) -> LogRow:
        with Workspace() as workspace:
            return workspace.log.row(NAME)

    def look(self) -> None:
        """Notice that somebody would have to act, and act, so that the next rounds are played, too."""
        row = self.row()
        if row.state == State.ERROR:
            self.stops.append(Stop(f"stopped: {row.error_message}"))
            command("resume", NAME)
        for task in self.follower.tasks.values():
            if task.state:
                self.stops.append(Stop(f"the follower has stopped: {task.error}"))
                task.state, task.error = 0, ""
        with Workspace() as workspace:
            target = workspace.of(NAME).targets.get(TARGET)
        if target.state is not TargetState.ACTIVE and str(target.failing) != self._seen:
            self._seen = str(target.failing)
            self.stops.append(Stop(f"the target is {target.state}: {target.failing}"))

    def settle(self, limit: float = LIMIT_SECONDS) -> None:
        """Wait until all is current, and compare. The writer is held."""
        wanted = self.writer.mark()
        end = time.monotonic() + limit
        self._until(lambda: self._point_at(wanted) is not None, end, "the mirror")
        point = self._point_at(wanted)
        if point is None:
            return
        self._until(lambda: self._target_lsn() >= point.lsn, end, "the target")
        self._until(lambda: self._watermark() >= point.at.physical, end, "the follower")
        self._compare()

    def _until(self, holds: Callable[[], bool], end: float, what: str) -> None:
        while not holds():
            assert not self.service.ended, "the service has ended"
            self.look()
            if time.monotonic() > end:
                row = self.row()
                self.stops.append(Stop(f"{what} is not current in time: {row.error_message or 'no error'}"))
                return
            time.sleep(0.1)

    def _point_at(self, wanted: Timestamp) -> Point | None:
        with Workspace() as workspace:
            mirror = workspace.mirror(NAME, published=False)
            head = mirror.published_head()
            if head is None or head.newest_point is None:
                return None
            point = mirror.point()
        return point if point.at >= wanted else None

    def _target_lsn(self) -> int:
        with Workspace() as workspace:
            return workspace.of(NAME).targets.get(TARGET).lsn or 0

    def _watermark(self) -> int:
        return max((task.watermark for task in self.follower.tasks.values()), default=0)

    def _compare(self) -> None:
        """What is written has a point, and nothing is written: later points have the same rows."""
        now = self.storage.now
        with Workspace() as workspace:
            mirror = workspace.mirror(NAME, published=False)
            point = mirror.point()
            definitions = {
                ref.name: mirror.manifest(ref).table for ref in point.tables.values() if ref.kind is Kind.TABLE
            }
            true = {
                definition.name: rows(self.storage.rows_at(DATABASE, definition.name, now))
                for _, definition in self.storage.tables_at(now)
            }
            assert definitions.keys() == true.keys(), "the mirror's tables"
            for name, expected in true.items():
                _, batches = mirror.read(point, f"{DATABASE}.{name}")
                assert Counter(repr(row) for batch in batches for row in batch.to_pylist()) == expected, (
                    f"mirror: {name}"
                )
        shown = {name for (name,) in self.place.query("SHOW TABLES") if not name.startswith("ccpr_")}
        assert shown == true.keys(), "the target's tables"
        for name, expected in true.items():
            found = target_rows(self.place.server, self.place.database, name, definitions[name].user_columns)
            assert rows(found) == expected, f"target: {name}"
        (task,) = self.follower.tasks.values()
        assert {name for name, table in task.tables.items() if table.text} == true.keys(), "the follower's tables"
        for name, expected in true.items():
            found = self.follower.rows(DATABASE, definitions[name], Timestamp(task.watermark))
            assert Counter(map(repr, found)) == expected, f"follower: {name}"

    def assert_nothing_is_left(self, limit: float = LIMIT_SECONDS) -> None:
        """Upstream are the snapshots that the subscription keeps, and no others of ours."""
        end = time.monotonic() + limit
        while True:
            roles = command("status", NAME)["snapshots"]
            kept = {name for name, role in roles.items() if role != "orphan"}
            left = {name for name in self.server.status().snapshots if name.startswith("xr_")} - kept
            if not left:
                return
            if time.monotonic() > end:
                self.stops.append(Stop(f"left upstream: {sorted(left)}; recorded: {roles}"))
                return
            time.sleep(0.1)


@contextmanager
def world(folder: Path, place: Place, seed: int) -> Iterator[World]:
    """Everything is there and current. The state folder and the passwords are in the environment."""
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    for name in TABLES:
        _create(storage, name)
        with storage.begin() as transaction:
            transaction.insert(DATABASE, name, _values(range(500), "v"))
    writer = Writer(storage, seed)
    with SimulatedUpstream(storage) as server, NativeClient() as follower:
        scope = ["--database", DATABASE, "--publication", "p", "--publisher", "sys", "--interval", "1"]
        command("subscribe", NAME, "--from", source_uri(server.port), *scope, "--with-indexes", "--retain", "5")
        service = Service(folder / "service.log")
        writer.start()
        try:
            end = time.monotonic() + _START_SECONDS
            while command("status", NAME)["newest_point"] is None:
                assert time.monotonic() < end, "no first point"
                time.sleep(0.1)
            to = uri_from(place.uri, "TARGET_PASSWORD")
            command("target", "add", NAME, TARGET, "--to", to, "--ddl-policy", "full")
            into = f"mysql://sys#root:env:DOWN@127.0.0.1:{follower.port}"
            command("follower", "add", NAME, "b", "--into", into, "--relay-address", service.relay)
            found = World(storage, server, writer, service, place, follower)
            found.settle()
            assert found.stops == []
            yield found
        finally:
            writer.stop()
            service.stop()
