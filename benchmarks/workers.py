"""How a copy, the load of a target, a lake, reading and an export grow with the workers of a Spark cluster. `--json`
prints the figures as one JSON object.

A standalone cluster on this machine, to which workers are added: each is a process with a folder of its own, and runs
one task at a time. They copy objects of 15 MB from an emulator, which is another process, into a bucket. The line to
the emulator is slow by design: 20 ms, and `--mbs` MB/s for each connection; a subscription has two sessions for each
worker. So `ratio_N` says how much of N times the rate of one worker N of them have. Over lines of the same rate, and
1 ms, they load a table of `--loaded` rows from a mirror in the bucket into a MariaDB, stage a change of every second
row, which one transaction then merges, and publish the table as a lake in the bucket; `--target-mbs` is what such a
line has. Workers also read a table, into an aggregate of all columns, and write it as Parquet: that takes the
processors of this machine, so with more workers than cores the figures say nothing. All are medians of their rounds.
The last line is `workers: ratio_2=<rate of two / twice that of one> ratio_3=… load_2=… change_2=… lake_2=… mb_s_1=<MB/s
of one> read_3=<seconds of one / of three> export_3=<the same>`.
"""

import sys

# The repository: in its folder `copy` would be the module of the benchmark, for the standard library, too.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import itertools
import json
import logging
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from benchmarks.copy import emulator, job_of, large_objects, objects_of
from benchmarks.shared.common import arguments_of, median, recordings_with
from benchmarks.shared.wide_table import values, wide_table
from benchmarks.spark_read import Large, aggregate, large_table
from ccpr.lake.commit import Lake, PointToPublish, TablePlace
from ccpr.lake.publish import publish_table
from ccpr.lake.stores import open_lake
from ccpr.matrixone.schema import DEFAULT_READING
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark import carry
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.read import read_table
from ccpr.pipeline.spark.session import SparkSettings, spark_session
from ccpr.pipeline.spark.slots import slots_of
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.credentials import KEY_FILE_VARIABLE, Vault
from ccpr.state.settings import Budget
from ccpr.targets.address import parse_target_uri
from ccpr.targets.base import LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.expected_tables import ExpectedTables, target_of
from ccpr.targets.part_keys import part_key
from ccpr.targets.source_rows import SplitRows
from tests.support.mariadb import MariaDb, find_program, running
from tests.support.simulated_mirror import SimulatedMirror
from tests.support.slow_line import slow_line
from tests.support.spark_cluster import Cluster, running_cluster
from tests.targets.target_database import new_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS, _WORKERS, _COPIES, _ROWS, _MB_S = 3, 3, 24, 5_000_000, 8
_LATENCY_MS, _SESSIONS, _CORES = 20, 2, 2
_LOADED, _PIECE_ROWS, _TARGET_MB_S, _TARGET_MS = 24 * 16_384, 16_384, 2.0, 1
_START_SECONDS = 120.0
_PLACE = "mirrors/m"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def main() -> None:
    sizes = {"copies": _COPIES, "rows": _ROWS, "mbs": _MB_S, "loaded": _LOADED, "target-mbs": _TARGET_MB_S}
    arguments = arguments_of(__doc__, _ROUNDS, workers=_WORKERS, **sizes)
    carry.TASK_BYTES = 1  # a piece a task, as of a larger table
    folder = recordings_with("wide_and_large")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:  # on disk like a mirror, not in memory
        work = Path(scratch)
        os.environ |= {KEY_FILE_VARIABLE: str(work / "key"), **_ENVIRONMENT}
        (work / "cluster").mkdir()
        recording = large_objects(folder / "wide_and_large", work / "many", arguments.copies)
        large = large_table(folder / "wide_and_large", work / "large", arguments.rows)
        with (
            emulator(recording) as source,
            slow_line(source, _LATENCY_MS, arguments.mbs) as port,
            _bucket() as (url, bucket),
            running(find_program()) as server,
            slow_line(server.port, _TARGET_MS, arguments.target_mbs) as target_port,
            slow_line(int(re.findall(r":(\d+)", url)[0]), _TARGET_MS, arguments.target_mbs) as lake_port,
            running_cluster(work / "cluster", 1, cores=_CORES) as cluster,
        ):
            job = replace(job_of(port, recording.name, work), store_url=url)
            session, copier = _session(cluster, work)
            table = _table(recording)
            targets = Targets(wide(work / "wide", arguments.loaded), url, server, copier, work, target_port, lake_port)
            rounds = Rounds(session, copier, job, table, bucket, large, work / "exported", arguments.rounds, targets)
            figures = _measure(cluster, rounds, arguments.workers)
            session.stop()
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    print(f"workers: {' '.join(f'{name}={value:.2f}' for name, value in figures.items())}")


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


def _measure(cluster: Cluster, rounds: "Rounds", workers: int) -> dict[str, float]:
    took: list[dict[str, float]] = []
    for number in range(1, workers + 1):
        if number > 1:
            cluster.start_workers(1)
        _await_slots(rounds.session, number)
        took.append({"copy": rounds.copy(number), **rounds.targets_synced()})
        if number in (1, workers):
            took[-1] |= {"read": rounds.read(), "export": rounds.export()}
        print(f"{number}: {', '.join(f'{name} {value:.2f} s' for name, value in took[-1].items())}", file=sys.stderr)
    first, last = took[0], took[-1]
    figures = {
        f"{'ratio' if name == 'copy' else name}_{more}": first[name] / took[more - 1][name] / more
        for name in ("copy", "load", "change", "lake")
        for more in range(2, workers + 1)
    }
    figures["mb_s_1"] = sum(rounds.objects.column("size").to_pylist()) / 1e6 / first["copy"]
    return figures | {f"{name}_{workers}": first[name] / last[name] for name in ("read", "export")}


@dataclass(frozen=True)
class Rounds:
    """What is measured; each gives the median of its seconds."""

    session: "SparkSession"
    copier: Copier
    job: CopyJob
    objects: pa.Table
    bucket: fs.S3FileSystem
    large: Large
    folder: Path
    rounds: int
    targets: "Targets"

    def targets_synced(self) -> dict[str, float]:
        self.targets.sync()  # a new worker's process has imported nothing
        times = [self.targets.sync() for _ in range(self.rounds)]
        return {name: statistics.median(one[name] for one in times) for name in times[0]}

    def copy(self, workers: int) -> float:
        job = replace(self.job, budget=Budget(_SESSIONS * workers))
        few = self.objects.slice(0, workers)
        return self._median(lambda: self._copied(job, self.objects), lambda: self._copied(job, few))

    def read(self) -> float:
        return self._median(lambda: aggregate(read_table(self.session, self.large.mirror_url, self.large.table)))

    def export(self) -> float:
        return self._median(self._export)

    def _copied(self, job: CopyJob, objects: pa.Table) -> None:
        report = copy(job, objects, self.copier)
        assert report.objects_fetched == objects.num_rows
        self.bucket.delete_dir_contents(_PLACE)

    def _export(self) -> None:
        frame = read_table(self.session, self.large.mirror_url, self.large.table)
        frame.write.parquet(str(self.folder), mode="overwrite")
        shutil.rmtree(self.folder)

    def _median(self, action: Callable[[], object], warm_up: Callable[[], object] | None = None) -> float:
        (warm_up or action)()  # a new worker's process has imported nothing
        return median(action, self.rounds)


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
    """A MariaDB and a lake in the bucket, behind slow lines, and a mirror in the bucket that they are synced from."""

    def __init__(
        self,
        made: SimulatedMirror,
        url: str,
        server: MariaDb,
        copier: Copier,
        work: Path,
        target_port: int,
        lake_port: int,
    ) -> None:
        self._server, self._copier, self._vault = server, copier, Vault(work / "key")
        self._port, self._points, self._numbers = target_port, made.points, itertools.count()
        bucket = url.replace(_PLACE, "mirrors/wide")
        self._lakes = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{lake_port}", url.replace(_PLACE, "mirrors/lake-{}"))
        store = open_store(bucket)
        for path in filter(Path.is_file, made.root.rglob("*")):
            store.put(path.relative_to(made.root).as_posix(), [path.read_bytes()])
        self._mirror, self._url = Mirror(store), bucket
        (self._table_id,) = made.points[0].tables
        self._source = self._mirror.manifest(made.points[0].tables[self._table_id]).table

    def sync(self) -> dict[str, float]:
        """Seconds of a load, a change, and a lake's first publication."""
        with new_database(self._server) as place:
            login = f"mysql://{self._server.user}:x@{self._server.host}:{self._port}/{place.database}"
            address, password = parse_target_uri(login)[0], self._server.password
            own = ExpectedTables(lambda: [self._source])
            carried = {"carry": self._copier.carry, "sealed_password": self._vault.seal(password, address.endpoint)}
            with DatabaseTarget(address, password, "task", own=own, **carried) as target:
                began = time.perf_counter()
                splits = self._splits(0)
                parts = [LoadPart(part_key(one.split), lambda: (), one) for one in splits]
                table = target_of(self._source, target.dialect, place.database)
                loaded = target.create(table, parts, Location(0, self._points[0].at.physical))
                load = time.perf_counter() - began
                began = time.perf_counter()
                splits, at = self._splits(1), Location(1, self._points[1].at.physical)
                changed = target.apply(self._table_id, (), at, rows=splits)
                change = time.perf_counter() - began
                assert (changed.missing, loaded.unseen) == (0, True)
                assert place.query("SELECT COUNT(*) FROM t")[0][0] == loaded.upserted
        return {"load": load, "change": change, "lake": self._published()}

    def _splits(self, lsn: int) -> list[SplitRows]:
        at = [TableAt.of(point, self._table_id) for point in self._points]
        delta = table_delta(self._mirror, at[0] if lsn else None, at[lsn], split_rows=_PIECE_ROWS)
        return [SplitRows(self._url, split, DEFAULT_READING) for split in delta.splits()]

    def _published(self) -> float:
        point = self._points[0]
        lake = Lake(open_lake(self._lakes.format(next(self._numbers))), self._mirror, "task", carry=self._copier.carry)
        began = time.perf_counter()
        wanted = PointToPublish(point.lsn, point.at, point.snapshot)
        publish_table(lake, wanted, point.tables[self._table_id], TablePlace("b.t"))
        return time.perf_counter() - began


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
def _bucket() -> Iterator[tuple[str, fs.S3FileSystem]]:
    """The URL of a mirror in a bucket of this process, and the bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    files = fs.S3FileSystem(endpoint_override=f"http://{host}:{port}", region="us-east-1", allow_bucket_creation=True)
    files.create_dir("mirrors")
    try:
        yield f"s3://{_PLACE}?endpoint_override=http://{host}:{port}&region=us-east-1", files
    finally:
        server.stop()


if __name__ == "__main__":
    main()
