"""A standalone cluster of Spark on the loopback address, from the package pyspark: a master and workers."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from ccpr.pipeline.spark.identity import CODE_FOLDER
from ccpr.pipeline.spark.java import find_java

LOOPBACK = "127.0.0.1"
_START_SECONDS = 120.0
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes
    ----------
    master : ``spark://127.0.0.1:port``.
    workers : their processes; each starts an executor's.
    """

    master: str
    workers: list[subprocess.Popen]

    def kill_worker(self, number: int) -> None:
        """End a worker and its executor as a machine ends that loses its power."""
        for pid in (*_children(self.workers[number].pid), self.workers[number].pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.workers[number].wait()


@contextmanager
def running_cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A master and workers of one core each, which import the code of this checkout."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java(folder / "java").home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYTHONPATH": str(CODE_FOLDER),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_CONF_DIR": str(folder),
    }
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %p %c{1}: %m%n%ex\n"
    )
    started: list[subprocess.Popen] = []

    def start(name: str, kind: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(Path(pyspark.__file__).parent / "bin/spark-class"), f"org.apache.spark.deploy.{kind}"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--host", LOOPBACK, "--webui-port", "0", *arguments],
                env=environment,
                cwd=folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started.append(process)
        return log

    try:
        found = _await(start("master", "master.Master", "--port", "0"), _STARTED.pattern)
        logs = [
            start(
                f"worker-{number}",
                "worker.Worker",
                *("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"work-{number}")),
                found[1],
            )
            for number in range(workers)
        ]
        for log in logs:
            _await(log, _REGISTERED)
        yield Cluster(found[1], started[1:])
    finally:
        for process in reversed(started):
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
