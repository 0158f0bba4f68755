"""How a copy, reading and an export grow with the workers of a Spark cluster. `--json` prints the figures as one JSON
object.

A standalone cluster on this machine, to which workers are added: each is a process with a folder of its own, and runs
one task at a time. They copy objects of 15 MB from an emulator, which is another process, into a bucket. The line to
the emulator is slow by design: 20 ms, and `--mbs` MB/s for each connection; a subscription has two sessions for each
worker. So `ratio_N` says how much of N times the rate of one worker N of them have. Workers also read a table, into an
aggregate of all columns, and write it as Parquet: that takes the processors of this machine, so with more workers than
cores the figures say nothing. All are medians of their rounds. The last line is `workers: ratio_2=<rate of two / twice
that of one> ratio_3=… mb_s_1=<MB/s of one> read_3=<seconds of one / of three> export_3=<the same>`.
"""

import sys

# The repository: in its folder `copy` would be the module of the benchmark, for the standard library, too.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from benchmarks.copy import emulator, job_of, large_objects, objects_of
from benchmarks.shared.common import arguments_of, median, recordings_with
from benchmarks.spark_read import Large, aggregate, large_table
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.read import read_table
from ccpr.pipeline.spark.session import SparkSettings, spark_session
from ccpr.pipeline.spark.slots import slots_of
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr.state.settings import Budget
from tests.support.slow_line import slow_line
from tests.support.spark_cluster import Cluster, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS, _WORKERS, _COPIES, _ROWS, _MB_S = 3, 3, 24, 5_000_000, 8
_LATENCY_MS, _SESSIONS, _CORES = 20, 2, 2
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
    arguments = arguments_of(__doc__, _ROUNDS, workers=_WORKERS, copies=_COPIES, rows=_ROWS, mbs=_MB_S)
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
            running_cluster(work / "cluster", 1, cores=_CORES) as cluster,
        ):
            job = replace(job_of(port, recording.name, work), store_url=url)
            session, copier = _session(cluster, work)
            table = _table(recording)
            rounds = Rounds(session, copier, job, table, bucket, large, work / "exported", arguments.rounds)
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
        took.append({"copy": rounds.copy(number)})
        if number in (1, workers):
            took[-1] |= {"read": rounds.read(), "export": rounds.export()}
        print(f"{number}: {', '.join(f'{name} {value:.2f} s' for name, value in took[-1].items())}", file=sys.stderr)
    first, last = took[0], took[-1]
    figures = {f"ratio_{more}": first["copy"] / took[more - 1]["copy"] / more for more in range(2, workers + 1)}
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
