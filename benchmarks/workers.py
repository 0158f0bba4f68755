"""How a copy, the load of a target, a change and a lake grow with the workers of a Spark cluster, and what a worker
costs that is killed. `--json` prints the figures as one JSON object.

The cluster is one of this machine: a master, and workers that are added one by one, each a process with a folder of its
own that runs a task at a time. An emulator, a MariaDB and a store of S3 are processes, too. What is simulated are the
lines between them, which in a real cluster are what tasks wait for: each connection to one of the three has `--mbs`
MB/s and 20 ms. So processors, which workers share here, are not the limit; what they do more slowly because all share
them counts against the workers nevertheless.

Workers copy objects of 15 MB into the store, two sessions for each worker. From a mirror there they load a table of
`--loaded` rows into the MariaDB, stage a change of every second row, which one transaction then merges, and publish the
table as a lake in the store. The rows of target and lake are compared with those that were written. The quickest round
counts. In the end, with all workers, one of them is killed in a load and another one in a publication.

A line for each says its seconds, how many of them tasks had, and the load of the machine. `<kind>_N` is how much of N
times the rate of one worker N of them have (`ratio_N`: of the copy; `stage_N`: of a change without its merge).
`limit_<kind>` is with how many it is 0.9, if only tasks are divided: what the driver and the target do once for all is
the rest. `again_<kind>` is how many tasks a killed worker made run again. The last line is `workers: mb_s_1=<MB/s of
one> ratio_2=… load_2=… limit_load=… again_load=…`.
"""

import sys

# The repository: in its folder `copy` would be the module of the benchmark, for the standard library, too.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import itertools
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pyarrow import fs

from benchmarks.copy import emulator, job_of, large_objects, objects_of
from benchmarks.shared.common import arguments_of, recordings_with
from benchmarks.shared.wide_table import values, wide_table
from ccpr.base.carrying import Work, WorkKind
from ccpr.lake.commit import Lake, PointToPublish, TablePlace
from ccpr.lake.publish import publish_table
from ccpr.lake.stores import open_lake
from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.matrixone.schema import DEFAULT_READING
from ccpr.mirror.column_sums import ColumnSum
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.store import Store
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark import carry
from ccpr.pipeline.spark.engine import Copier, slots_of
from ccpr.pipeline.spark.session import SparkSettings, spark_session
from ccpr.schema.choices import Dialect
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.credentials import KEY_FILE_VARIABLE, Vault
from ccpr.state.settings import Budget
from ccpr.targets.address import parse_target_uri
from ccpr.targets.base import LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.expected_tables import ExpectedTables, target_of
from ccpr.targets.source_rows import SplitRows, part_key
from tests.support.mariadb import MariaDb, find_program, running
from tests.support.ports import free_port
from tests.support.simulated_mirror import SimulatedMirror
from tests.support.slow_line import slow_line
from tests.support.spark_cluster import Cluster, running_cluster
from tests.targets.target_database import Place, new_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS, _WORKERS, _COPIES, _MB_S = 2, 3, 36, 2.0
_LATENCY_MS, _SESSIONS, _CORES = 20, 2, 2
_LOADED, _PIECE_ROWS = 24 * 32_768, 32_768
_SERVER_MB = {"innodb_buffer_pool_size": 512, "innodb_log_file_size": 256}  # as of a server, not of a test's
_LIMIT_SECONDS = 120.0
_DONE = 3  # tasks, before a worker is killed
_ENOUGH = 0.9
_PLACE = "mirrors/m"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def main() -> None:
    sizes = {"copies": _COPIES, "mbs": _MB_S, "loaded": _LOADED}
    arguments = arguments_of(__doc__, _ROUNDS, workers=_WORKERS, **sizes)
    carry.TASK_BYTES = 1  # a piece a task, as of a larger table
    folder = recordings_with("wide_and_large")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch, ExitStack() as stack:  # on disk, not in memory
        work = Path(scratch)
        os.environ |= {KEY_FILE_VARIABLE: str(work / "key"), **_ENVIRONMENT}
        (work / "cluster").mkdir()
        recording = large_objects(folder / "wide_and_large", work / "many", arguments.copies)

        def slowed(port: int) -> int:
            return stack.enter_context(slow_line(port, _LATENCY_MS, arguments.mbs))

        port = slowed(stack.enter_context(emulator(recording)))
        store, bucket = stack.enter_context(_store())
        server = stack.enter_context(running(find_program()))
        with server.connect() as connection, connection.cursor() as cursor:
            for name, size in _SERVER_MB.items():
                cursor.execute(f"SET GLOBAL {name} = {size << 20}")
        cluster = stack.enter_context(running_cluster(work / "cluster", 0, cores=_CORES))
        session, copier = _session(cluster, work)
        stack.callback(session.stop)
        clock, made = Clock(copier), wide(work / "wide", arguments.loaded)
        targets = Targets(made, store, slowed(store), server, slowed(server.port), clock, work)
        job = replace(job_of(port, recording.name, work), store_url=_url(slowed(store)))
        rounds = Rounds(copier, job, _table(recording), bucket, targets, clock)
        took = []
        for number in range(1, arguments.workers + 1):
            cluster.start_workers(1)
            _await_slots(session, number)
            list(copier.carry(_warm(targets.url, 4 * number), list, lambda: None))
            clock.took.clear()
            for _ in range(arguments.rounds):
                rounds.run(number)
            took.append(clock.quickest())
            for kind, one in took[-1].items():
                print(f"{number}: {kind:6} {one}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        again = Killing(cluster, session, targets, work / "events").again() if arguments.workers > 1 else {}
    copied = sum(rounds.objects.column("size").to_pylist()) / 1e6 / took[0]["copy"].seconds
    figures = {"mb_s_1": copied, **_figures(took), **again}
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    print(f"workers: {' '.join(f'{name}={value:.2f}' for name, value in figures.items())}")


def _figures(took: "list[dict[str, Took]]") -> dict[str, float]:
    took = [{**one, "stage": replace(one["change"], seconds=one["change"].in_tasks)} for one in took]
    first, found = took[0], dict[str, float]()
    for kind, one in first.items():
        name = "ratio" if kind == "copy" else kind
        found |= {f"{name}_{n}": one.seconds / more[kind].seconds / n for n, more in enumerate(took[1:], 2)}
        if alone := one.seconds - one.in_tasks:
            found[f"limit_{kind}"] = (one.seconds - _ENOUGH * one.in_tasks) / (_ENOUGH * alone)
    return found


@dataclass(frozen=True)
class Took:
    """One round of a kind.

    Attributes
    ----------
    in_tasks : the seconds between the first task's beginning and the last one's end.
    """

    seconds: float
    in_tasks: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.in_tasks:.2f} in tasks"


class Clock:
    """What each kind took."""

    def __init__(self, copier: Copier) -> None:
        self.took: dict[str, list[Took]] = defaultdict(list)
        self._copier, self._in_tasks = copier, 0.0

    @contextmanager
    def of(self, kind: str, *, all_in_tasks: bool = False) -> Iterator[None]:
        began, self._in_tasks = time.perf_counter(), 0.0
        yield
        seconds = time.perf_counter() - began
        self.took[kind].append(Took(seconds, seconds if all_in_tasks else self._in_tasks))

    def carry(self, work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        began = time.perf_counter()
        done = list(self._copier.carry(work, here, beat))
        self._in_tasks += time.perf_counter() - began
        return done

    def quickest(self) -> dict[str, Took]:
        return {kind: min(took, key=lambda one: one.seconds) for kind, took in self.took.items()}


def _session(cluster: Cluster, work: Path) -> "tuple[SparkSession, Copier]":
    (work / "events").mkdir()
    config = {
        "spark.executor.memory": "512m",
        "spark.task.cpus": str(_CORES),  # a task at a time
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (work / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    settings = SparkSettings(work / "java", cluster.master, key_file=work / "key", config=config)
    session = spark_session(settings)
    return session, Copier(work, "spark", settings=settings, own_session=lambda: session)


@dataclass(frozen=True)
class Rounds:
    """One round of all kinds."""

    copier: Copier
    job: CopyJob
    objects: pa.Table
    bucket: fs.S3FileSystem
    targets: "Targets"
    clock: Clock

    def run(self, workers: int) -> None:
        job = replace(self.job, budget=Budget(_SESSIONS * workers))
        with self.clock.of("copy", all_in_tasks=True):
            report = copy(job, self.objects, self.copier)
        assert report.objects_fetched == self.objects.num_rows
        self.bucket.delete_dir_contents(_PLACE)
        self.targets.load(change=True)
        self.targets.publish()


def wide(folder: Path, rows: int) -> SimulatedMirror:
    """A point, and one after a change of every second row."""
    rng = np.random.default_rng(1)
    found = wide_table(folder, rows, rng, _PIECE_ROWS)
    keys = np.arange(0, rows, 2) * 2
    with found.storage.begin() as transaction:
        transaction.delete("b", "t", pc.field("id").isin(keys.tolist()))
    with found.storage.begin() as transaction:
        transaction.insert("b", "t", values(keys, rng))
    found.take_points()
    return found


class Targets:
    """A MariaDB and a lake in the store, and a mirror in the store that they are synced from.

    Parameters
    ----------
    direct : the port of the store; `store_port` and `server_port` are those of slow lines.

    Attributes
    ----------
    url : of the mirror.
    """

    def __init__(
        self,
        made: SimulatedMirror,
        direct: int,
        store_port: int,
        server: MariaDb,
        server_port: int,
        clock: Clock,
        work: Path,
    ) -> None:
        self.server, self._port, self._clock, self._vault = server, server_port, clock, Vault(work / "key")
        self._points, self._numbers, self._direct, self._store = made.points, itertools.count(), direct, store_port
        self.url = _url(store_port, "wide")
        store = open_store(_url(direct, "wide"))
        for path in filter(Path.is_file, made.root.rglob("*")):
            store.put(path.relative_to(made.root).as_posix(), [path.read_bytes()])
        self._mirror = Mirror(open_store(self.url))
        (self._table_id,) = made.points[0].tables
        self._source = self._mirror.manifest(made.points[0].tables[self._table_id]).table
        self._rows = [made.rows(point, self._table_id, self._source.user_columns) for point in made.points]

    def load(self, *, change: bool, loading: Callable[[Place], None] = lambda place: None) -> None:
        """Load the first point, and apply the change that leads to the second one. `loading` is called before."""
        with new_database(self.server) as place:
            loading(place)
            login = f"mysql://{self.server.user}:x@{self.server.host}:{self._port}/{place.database}"
            address, password = parse_target_uri(login)[0], self.server.password
            own = ExpectedTables(lambda: [self._source])
            carried = {"carry": self._clock.carry, "sealed_password": self._vault.seal(password, address.endpoint)}
            with DatabaseTarget(address, password, "task", own=own, **carried) as target:
                with self._clock.of("load"):
                    splits = self._splits(0)
                    parts = [LoadPart(part_key(one.split), lambda: (), one) for one in splits]
                    table = target_of(self._source, target.dialect, place.database)
                    loaded = target.create(table, parts, Location(0, self._points[0].at.physical))
                assert loaded.unseen
                self._check(place, 0)
                if change:
                    with self._clock.of("change"):
                        splits, at = self._splits(1), Location(1, self._points[1].at.physical)
                        changed = target.apply(self._table_id, (), at, rows=splits)
                    assert changed.missing == 0
                    self._check(place, 1)

    def _check(self, place: Place, lsn: int) -> None:
        """Whether the server has the rows, by sums of its own."""
        sums = [ColumnSum(one.name, ColumnType.of(one), Dialect.MARIADB) for one in self._source.user_columns]
        expected = [number for one in sums for number in one.of(self._rows[lsn].column(one.name))]
        asked = ", ".join(text for one in sums for text in one.expressions)
        ((count, *found),) = place.query(f"SELECT COUNT(*), {asked} FROM t")
        assert count == self._rows[lsn].num_rows
        assert list(map(int, found)) == expected

    def _splits(self, lsn: int) -> list[SplitRows]:
        at = [TableAt.of(point, self._table_id) for point in self._points]
        delta = table_delta(self._mirror, at[0] if lsn else None, at[lsn], split_rows=_PIECE_ROWS)
        return [SplitRows(self.url, split, DEFAULT_READING) for split in delta.splits()]

    def publish(self, *, loading: Callable[[Store], None] = lambda lake: None) -> None:
        """The first point, as a new lake. `loading` is called before."""
        from deltalake import DeltaTable, QueryBuilder

        point, name = self._points[0], f"lake-{next(self._numbers)}"
        loading(open_store(_url(self._direct, name)))
        lake = Lake(open_lake(_url(self._store, name)), self._mirror, "task", carry=self._clock.carry)
        with self._clock.of("lake"):
            wanted = PointToPublish(point.lsn, point.at, point.snapshot)
            publish_table(lake, wanted, point.tables[self._table_id], TablePlace("b.t"))
        options = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._direct}", "AWS_ALLOW_HTTP": "true"}
        table = DeltaTable(f"s3://mirrors/{name}/b.t", storage_options={**options, "AWS_REGION": "us-east-1"})
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY id"))
        assert found.cast(self._rows[0].schema).equals(self._rows[0].sort_by("id"))


@dataclass(frozen=True)
class Killing:
    """Workers that end in the middle of their work."""

    cluster: Cluster
    session: "SparkSession"
    targets: Targets
    events: Path

    def again(self) -> dict[str, float]:
        """How many tasks ran again, by kind."""
        before, workers, killing = self._tasks_again(), slots_of(self.session), list[Callable[[], None]]()
        self.targets.load(change=False, loading=lambda place: killing.append(self._kill_after(lambda: _loaded(place))))
        killing.pop()()
        between = self._tasks_again()
        self.cluster.start_workers(1)
        _await_slots(self.session, workers or 0)
        self.targets.publish(
            loading=lambda lake: killing.append(self._kill_after(lambda: len([*lake.names("b.t/data")])))
        )
        killing.pop()()
        return {"again_load": between - before, "again_lake": self._tasks_again() - between}

    def _kill_after(self, done: Callable[[], int]) -> Callable[[], None]:
        """Kill the newest worker once some tasks are done; what it returns is called when all are."""
        ended = threading.Event()

        def wait() -> None:
            while not ended.is_set() and done() < _DONE:
                ended.wait(0.05)
            self.cluster.kill_worker(-1)

        thread = threading.Thread(target=wait)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()

        return end

    def _tasks_again(self) -> int:
        files = [path for path in self.events.rglob("events*") if path.is_file()]
        starts = (line for path in files for line in path.open() if "SparkListenerTaskStart" in line)
        return sum(json.loads(line)["Task Info"]["Attempt"] > 0 for line in starts)


def _loaded(place: Place) -> int:
    with suppress(pymysql.err.MySQLError):
        return place.query("SELECT COUNT(*) FROM ccpr_load_parts")[0][0]
    return 0


def _warm(url: str, tasks: int) -> Work:
    """What a new worker imports, and its first look at the store."""
    return Work(WorkKind.LOAD, "nowhere", (url,), _look, [url] * tasks, [1] * tasks)


def _look(urls: Sequence[str]) -> Iterator[int | None]:
    import ccpr.lake.object_files
    import ccpr.pipeline.spark.copy
    import ccpr.targets.database_target  # noqa: F401

    for url in urls:
        time.sleep(0.5)  # so that each worker gets one
        yield open_store(url).size("nothing")


def _await_slots(session: "SparkSession", number: int) -> None:
    until = time.monotonic() + _LIMIT_SECONDS
    while slots_of(session) != number:
        assert time.monotonic() < until, f"there are no {number} workers"
        time.sleep(0.2)


def _table(recording: Path) -> pa.Table:
    stats = objects_of(recording)
    columns = [[one.name for one in stats], [one.size for one in stats], [one.raw for one in stats]]
    return pa.table(columns, schema=COPY_INPUT)


def _url(port: int, name: str = "m") -> str:
    return f"s3://mirrors/{name}?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"


@contextmanager
def _store() -> Iterator[tuple[int, fs.S3FileSystem]]:
    """The port of a store of S3, and the store."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        files = fs.S3FileSystem(
            endpoint_override=endpoint, region="us-east-1", allow_bucket_creation=True, connect_timeout=5
        )
        _made(files)
        yield port, files
    finally:
        process.kill()
        process.wait()


def _made(files: fs.S3FileSystem) -> None:
    """The bucket, once the store listens."""
    until = time.monotonic() + _LIMIT_SECONDS
    while True:
        try:
            return files.create_dir("mirrors")
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
