"""How a copy, the load of a target, a change, a lake, reading and an export grow with the workers of a Spark cluster.
`--json` prints the figures as one JSON object.

A standalone cluster on this machine, to which workers are added: each is a process with a folder of its own, runs one
task at a time, and has `--share` of a processor, by a control group of Linux. So more workers are more processors, as
they are elsewhere; what is left is for the driver, a MariaDB, a store of S3 and an emulator, each a process.

Workers copy objects of 15 MB into the store, over a line of 20 ms and `--mbs` MB/s for each connection, two sessions
for each worker. From a mirror there they load a table of `--loaded` rows into the MariaDB, stage a change of every
second row, which one transaction then merges, and publish the table as a lake in the store. They read a table of
`--rows` rows, into an aggregate of all columns, and write it as Parquet. The quickest round counts.

A line for each says its seconds, how many of them tasks had, and the processors that the workers and the others used.
`<kind>_N` is how much of N times the rate of one worker N of them have (`ratio_N`: of the copy; `stage_N`: of a change
without its merge). `limit_<kind>` is with how many it is 0.9, if only tasks are divided: what the driver and the target
do once for all is the rest. The last line is `workers: share=<processors of one> mb_s_1=<MB/s of one> ratio_2=…
load_2=… limit_load=…`.
"""

import sys

# The repository: in its folder `copy` would be the module of the benchmark, for the standard library, too.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from benchmarks.copy import emulator, job_of, large_objects, objects_of
from benchmarks.shared.common import arguments_of, recordings_with
from benchmarks.shared.cpu_share import cpu_by, cpu_share
from benchmarks.shared.wide_table import values, wide_table
from benchmarks.spark_read import Large, aggregate, large_table
from ccpr.base.carrying import Work
from ccpr.lake.commit import Lake, PointToPublish, TablePlace
from ccpr.lake.publish import publish_table
from ccpr.lake.stores import open_lake
from ccpr.matrixone.schema import DEFAULT_READING
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark import carry
from ccpr.pipeline.spark.engine import Copier, slots_of
from ccpr.pipeline.spark.session import SparkSettings, spark_session
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
from tests.support.spark_tables import read_table
from tests.targets.target_database import new_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS, _WORKERS, _COPIES, _ROWS, _MB_S, _SHARE = 3, 3, 24, 1_750_000, 4, 0.15
_LATENCY_MS, _SESSIONS, _CORES = 20, 2, 2
_LOADED, _PIECE_ROWS = 12 * 32_768, 32_768
_SERVER_MB = {"innodb_buffer_pool_size": 512, "innodb_log_file_size": 256}  # as of a server, not of a test's
_START_SECONDS = 120.0
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
    sizes = {"copies": _COPIES, "rows": _ROWS, "mbs": _MB_S, "loaded": _LOADED, "share": _SHARE}
    arguments = arguments_of(__doc__, _ROUNDS, workers=_WORKERS, **sizes)
    carry.TASK_BYTES = 1  # a piece a task, as of a larger table
    folder = recordings_with("wide_and_large")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch, ExitStack() as stack:  # on disk, not in memory
        work = Path(scratch)
        os.environ |= {KEY_FILE_VARIABLE: str(work / "key"), **_ENVIRONMENT}
        (work / "cluster").mkdir()
        recording = large_objects(folder / "wide_and_large", work / "many", arguments.copies)
        large = large_table(folder / "wide_and_large", work / "large", arguments.rows)
        port = stack.enter_context(slow_line(stack.enter_context(emulator(recording)), _LATENCY_MS, arguments.mbs))
        store, url, bucket = stack.enter_context(_store())
        server = stack.enter_context(running(find_program()))
        assert server.process is not None
        with server.connect() as connection, connection.cursor() as cursor:
            for name, size in _SERVER_MB.items():
                cursor.execute(f"SET GLOBAL {name} = {size << 20}")
        shares = [stack.enter_context(cpu_share(f"worker-{place}")) for place in range(arguments.workers)]
        cluster = stack.enter_context(running_cluster(work / "cluster", 0, cores=_CORES))
        session, copier = _session(cluster, work)
        stack.callback(session.stop)
        clock = Clock(copier, {store: "store", server.process.pid: "target"})
        targets = Targets(wide(work / "wide", arguments.loaded), url, server, clock, work)
        job = replace(job_of(port, recording.name, work), store_url=url)
        rounds = Rounds(session, copier, job, _table(recording), bucket, large, work / "exported", targets, clock)
        took = []
        for number, share in enumerate(shares, 1):
            cluster.start_workers(1)
            _await_slots(session, number)
            clock.workers.append(cluster.workers[-1].pid)
            share.take(cluster.workers[-1].pid)
            rounds.run(number)  # a new worker's process has imported nothing
            clock.took.clear()
            for one in shares[:number]:
                one.limit(arguments.share)
            for _ in range(arguments.rounds):
                rounds.run(number)
            for one in shares[:number]:
                one.limit(None)
            took.append(clock.quickest())
            for kind, one in took[-1].items():
                print(f"{number}: {kind:6} {one}", file=sys.stderr)
    copied = sum(rounds.objects.column("size").to_pylist()) / 1e6 / took[0]["copy"].seconds
    figures = {"share": arguments.share, "mb_s_1": copied, **_figures(took)}
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
    workers, others : processors that they used: the average of them.
    """

    seconds: float
    in_tasks: float
    workers: float
    others: dict[str, float]

    def __str__(self) -> str:
        others = ", ".join(f"{name} {used:.2f}" for name, used in self.others.items())
        return f"{self.seconds:.2f} s, {self.in_tasks:.2f} in tasks; processors: workers {self.workers:.2f}, {others}"


class Clock:
    """What each kind took.

    Attributes
    ----------
    workers : their processes.
    """

    def __init__(self, copier: Copier, servers: dict[int, str]) -> None:
        self.took: dict[str, list[Took]] = defaultdict(list)
        self.workers: list[int] = []
        self._copier, self._servers, self._in_tasks = copier, servers, 0.0

    @contextmanager
    def of(self, kind: str, *, all_in_tasks: bool = False) -> Iterator[None]:
        before, began, self._in_tasks = self._cpu(), time.perf_counter(), 0.0
        yield
        seconds = time.perf_counter() - began
        used = {name: (value - before.get(name, 0)) / seconds for name, value in self._cpu().items()}
        workers = used.pop("workers")
        self.took[kind].append(Took(seconds, seconds if all_in_tasks else self._in_tasks, workers, used))

    def carry(self, work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        began = time.perf_counter()
        done = list(self._copier.carry(work, here, beat))
        self._in_tasks += time.perf_counter() - began
        return done

    def quickest(self) -> dict[str, Took]:
        return {kind: min(took, key=lambda one: one.seconds) for kind, took in self.took.items()}

    def _cpu(self) -> dict[str, float]:
        return cpu_by({os.getpid(): "driver and source", **self._servers, **dict.fromkeys(self.workers, "workers")})


def _session(cluster: Cluster, work: Path) -> "tuple[SparkSession, Copier]":
    config = {
        "spark.executor.memory": "512m",
        "spark.task.cpus": str(_CORES),  # a task at a time
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
    }
    settings = SparkSettings(work / "java", cluster.master, key_file=work / "key", config=config)
    session = spark_session(settings)
    return session, Copier(work, "spark", settings=settings, own_session=lambda: session)


@dataclass(frozen=True)
class Rounds:
    """One round of all kinds."""

    session: "SparkSession"
    copier: Copier
    job: CopyJob
    objects: pa.Table
    bucket: fs.S3FileSystem
    large: Large
    folder: Path
    targets: "Targets"
    clock: Clock

    def run(self, workers: int) -> None:
        job = replace(self.job, budget=Budget(_SESSIONS * workers))
        with self.clock.of("copy", all_in_tasks=True):
            report = copy(job, self.objects, self.copier)
        assert report.objects_fetched == self.objects.num_rows
        self.bucket.delete_dir_contents(_PLACE)
        self.targets.sync()
        frame = read_table(self.session, self.large.mirror_url, self.large.table, task_bytes=1)
        with self.clock.of("read", all_in_tasks=True):
            aggregate(frame)
        with self.clock.of("export", all_in_tasks=True):
            frame.write.parquet(str(self.folder), mode="overwrite")
        shutil.rmtree(self.folder)


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
    """A MariaDB and a lake in the store, and a mirror in the store that they are synced from."""

    def __init__(self, made: SimulatedMirror, url: str, server: MariaDb, clock: Clock, work: Path) -> None:
        self._server, self._clock, self._vault = server, clock, Vault(work / "key")
        self._points, self._numbers, self._store_url = made.points, itertools.count(), url
        self._url = url.replace(_PLACE, "mirrors/wide")
        store = open_store(self._url)
        for path in filter(Path.is_file, made.root.rglob("*")):
            store.put(path.relative_to(made.root).as_posix(), [path.read_bytes()])
        self._mirror = Mirror(store)
        (self._table_id,) = made.points[0].tables
        self._source = self._mirror.manifest(made.points[0].tables[self._table_id]).table

    def sync(self) -> None:
        """A load, a change, and a lake's first publication."""
        with new_database(self._server) as place:
            login = f"mysql://{self._server.user}:x@{self._server.host}:{self._server.port}/{place.database}"
            address, password = parse_target_uri(login)[0], self._server.password
            own = ExpectedTables(lambda: [self._source])
            carried = {"carry": self._clock.carry, "sealed_password": self._vault.seal(password, address.endpoint)}
            with DatabaseTarget(address, password, "task", own=own, **carried) as target:
                with self._clock.of("load"):
                    splits = self._splits(0)
                    parts = [LoadPart(part_key(one.split), lambda: (), one) for one in splits]
                    table = target_of(self._source, target.dialect, place.database)
                    loaded = target.create(table, parts, Location(0, self._points[0].at.physical))
                with self._clock.of("change"):
                    splits, at = self._splits(1), Location(1, self._points[1].at.physical)
                    changed = target.apply(self._table_id, (), at, rows=splits)
                assert (changed.missing, loaded.unseen) == (0, True)
                assert place.query("SELECT COUNT(*) FROM t")[0][0] == loaded.upserted
        self._publish()

    def _splits(self, lsn: int) -> list[SplitRows]:
        at = [TableAt.of(point, self._table_id) for point in self._points]
        delta = table_delta(self._mirror, at[0] if lsn else None, at[lsn], split_rows=_PIECE_ROWS)
        return [SplitRows(self._url, split, DEFAULT_READING) for split in delta.splits()]

    def _publish(self) -> None:
        point = self._points[0]
        place = open_lake(self._store_url.replace(_PLACE, f"mirrors/lake-{next(self._numbers)}"))
        lake = Lake(place, self._mirror, "task", carry=self._clock.carry)
        with self._clock.of("lake"):
            wanted = PointToPublish(point.lsn, point.at, point.snapshot)
            publish_table(lake, wanted, point.tables[self._table_id], TablePlace("b.t"))


def _await_slots(session: "SparkSession", number: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while slots_of(session) != number:
        assert time.monotonic() < until, f"there are no {number} workers"
        time.sleep(0.2)


def _table(recording: Path) -> pa.Table:
    stats = objects_of(recording)
    columns = [[one.name for one in stats], [one.size for one in stats], [one.raw for one in stats]]
    return pa.table(columns, schema=COPY_INPUT)


@contextmanager
def _store() -> Iterator[tuple[int, str, fs.S3FileSystem]]:
    """The process of a store of S3, the URL of a mirror in it, and the store."""
    endpoint = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", endpoint.rpartition(":")[2]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        files = fs.S3FileSystem(
            endpoint_override=f"http://{endpoint}", region="us-east-1", allow_bucket_creation=True, connect_timeout=5
        )
        _made(files)
        yield process.pid, f"s3://{_PLACE}?endpoint_override=http://{endpoint}&region=us-east-1", files
    finally:
        process.kill()
        process.wait()


def _made(files: fs.S3FileSystem) -> None:
    """The bucket, once the store listens."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return files.create_dir("mirrors")
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
