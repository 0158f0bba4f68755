"""A standalone cluster of Spark from the package pyspark: a master and workers, each a process with a folder, and if
wanted an address, of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from ccpr.pipeline.spark.connect import CODE_FOLDER
from ccpr.pipeline.spark.java import find_java

LOOPBACK = "127.0.0.1"
_START_SECONDS = 120.0
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_LOGGING = (
    "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = stderr\n"
    "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
    "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %p %c{1}: %m%n%ex\n"
)


@dataclass
class Cluster:
    """A cluster that runs. Its logs, and the folders in which workers and executors run, are below `folder`.

    Attributes
    ----------
    master : ``spark://127.0.0.1:port``.
    workers : their processes; each starts an executor's.
    """

    folder: Path
    environment: Mapping[str, str]
    cores: int
    master: str = ""
    workers: list[subprocess.Popen] = field(default_factory=list)
    started: list[subprocess.Popen] = field(default_factory=list)

    def start_master(self, host: str) -> None:
        log = self._start("master", "master.Master", host, {}, "--port", "0")
        self.master = _await(log, _STARTED.pattern)[1]

    def start_workers(self, number: int, *hosts: str, environment: Mapping[str, str] | None = None) -> None:
        """More workers, at the given addresses, else all at the loopback address. They import the code of this
        checkout. In a value of `environment` ``{folder}`` is the worker's folder."""
        logs = []
        for place in range(len(self.workers), len(self.workers) + number):
            host = hosts[place % len(hosts)] if hosts else LOOPBACK
            folder = self.worker_folder(place)
            folder.mkdir()
            own = {name: value.format(folder=folder) for name, value in (environment or {}).items()}
            size = ("--cores", str(self.cores), "--memory", f"{600 * self.cores}m", "--work-dir", str(folder / "work"))
            logs.append(self._start(f"worker-{place}", "worker.Worker", host, own, *size, self.master, cwd=folder))
            self.workers.append(self.started[-1])
        for log in logs:
            _await(log, _REGISTERED)

    def worker_folder(self, number: int) -> Path:
        return self.folder / f"machine-{number}"

    def kill_worker(self, number: int) -> None:
        """End a worker and its executor as a machine ends that loses its power."""
        _kill(self.workers[number])

    def end(self) -> None:
        for process in reversed(self.started):
            _kill(process)

    def _start(
        self, name: str, kind: str, host: str, own: Mapping[str, str], *arguments: str, cwd: Path | None = None
    ) -> Path:
        log = self.folder / f"{name}.log"
        command = [str(Path(pyspark.__file__).parent / "bin/spark-class"), f"org.apache.spark.deploy.{kind}"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--host", host, "--webui-port", "0", *arguments],
                env={**self.environment, "SPARK_LOCAL_IP": host, **own},
                cwd=cwd or self.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started.append(process)
        return log


@contextmanager
def running_cluster(folder: Path, workers: int, *, host: str = LOOPBACK, cores: int = 1) -> Iterator[Cluster]:
    """A master at an address, and workers of some cores each."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java(folder / "java").home),
        "PYTHONPATH": str(CODE_FOLDER),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_CONF_DIR": str(folder),
    }
    (folder / "log4j2.properties").write_text(_LOGGING)
    cluster = Cluster(folder, environment, cores)
    try:
        cluster.start_master(host)
        cluster.start_workers(workers)
        yield cluster
    finally:
        cluster.end()


def _kill(process: subprocess.Popen) -> None:
    for pid in (*_children(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(30)


def _await(log: Path, pattern: str) -> re.Match[str]:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found
        time.sleep(0.1)
    raise AssertionError(f"no {pattern!r}:\n{log.read_text(errors='replace')[-2000:]}")


def _children(pid: int) -> list[int]:
    """All processes below one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, level = [], [pid]
    while level := [child for child, parent in parents.items() if parent in level]:
        found += level
    return found
