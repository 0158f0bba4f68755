"""The server of a warm session as a process of this machine: started, found, and ended with its workers.

What says that it runs is a lock of the operating system on `spark/alive.lock`. The server inherits it open, and the
kernel frees it however the server ends: a process id in a file may be another program's after a reboot. Source:
decision one-warm-session.
"""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from ccpr.base.file_modes import opener, replace_file
from ccpr.pipeline.spark.identity import CODE_FOLDER
from ccpr.pipeline.spark.locks import held, is_held
from ccpr.pipeline.spark.machine import processes
from ccpr.pipeline.spark.properties import properties_text
from ccpr.pipeline.spark.session import SparkSettings, SparkUnavailable
from ccpr.pipeline.spark.tasks import LOOPBACK_ADDRESS

END_SECONDS, POLL_SECONDS = 15.0, 0.1
_SPARKS_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # Spark's own
_LOOK_SECONDS = 1.0
_TAIL = 2000  # characters of the server's log in an error


class ServerProcess:
    """The process that holds the lock of a folder, however it was started.

    Attributes
    ----------
    alive : the file whose lock says that it runs.
    log : what it writes.
    """

    def __init__(self, folder: Path, settings: SparkSettings) -> None:
        self._folder, self._settings = folder, settings
        self.alive, self.log, self.config = (folder / name for name in ("alive.lock", "server.log", "server.conf"))
        self._started: subprocess.Popen[bytes] | None = None  # by this process

    def is_running(self) -> bool:
        return is_held(self.alive)

    def log_tail(self) -> str:
        """The end of what it wrote."""
        try:
            return self.log.read_text(errors="replace")[-_TAIL:]
        except OSError:
            return ""

    def start(self, token: str, port: int) -> "subprocess.Popen[bytes]":
        """Start one that will listen on a port. Raises SparkUnavailable."""
        self._write_config(port)
        begun = time.monotonic()
        while True:
            with held(self.alive) as lock:
                if lock is not None:
                    self._started = self._spawn(token, lock)
                    return self._started
            if time.monotonic() > begun + _LOOK_SECONDS:  # not a mere look, which takes no time
                raise self.did_not_start("another server still holds its lock")
            time.sleep(POLL_SECONDS)

    def end(self) -> bool:
        """End what holds the lock: politely, then not. Returns whether there was one. Raises SparkUnavailable."""
        was_there = self.is_running()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.is_running():
                break
            for pid in self._pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + END_SECONDS
            while self.is_running() and time.monotonic() < until:
                self._reap()
                time.sleep(POLL_SECONDS)
        self._reap()
        if self.is_running():
            raise SparkUnavailable(
                "the server cannot be ended",
                subject=str(self._folder),
                remedy="End the process that holds alive.lock there: `fuser alive.lock` shows it.",
            )
        self.config.unlink(missing_ok=True)
        return was_there

    def did_not_start(self, what: str) -> SparkUnavailable:
        lines = [line for line in self.log_tail().splitlines() if line.strip()]
        last = f"; the last line of its log: {lines[-1].strip()[:200]}" if lines else ""
        return SparkUnavailable(
            f"the warm session did not start: {what}{last}", subject="Spark", remedy=f"Read {self.log}."
        )

    def write(self, path: Path, text: str) -> None:
        """A file that it needs, or that clients need to find it. Raises SparkUnavailable."""
        try:
            replace_file(path, text)
        except OSError as error:
            raise self.did_not_start(f"{path.name} cannot be written: {error.strerror}") from error

    def _write_config(self, port: int) -> None:
        config = self._settings.spark_config() | {
            "spark.app.name": "ccpr, warm",
            "spark.connect.grpc.binding.address": LOOPBACK_ADDRESS,
            "spark.connect.grpc.binding.port": str(port),
            # all clients have one session, see `ccpr.pipeline.spark.connect`; it does not expire
            "spark.connect.session.manager.defaultSessionTimeout": "-1",
            # a client that was killed must not leave its job behind
            "spark.connect.execute.manager.detachedTimeout": "15s",
            "spark.connect.execute.manager.maintenanceInterval": "5s",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        if self._settings.master.startswith("local"):
            config.setdefault("spark.authenticate", "true")  # of the driver's own ports
        self.write(self.config, properties_text(config))

    def _command(self) -> list[str]:
        import pyspark

        command = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--properties-file", str(self.config)]
        return [*command, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]

    def _spawn(self, token: str, lock: int) -> "subprocess.Popen[bytes]":
        self._settings.prepare_environment()
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
        if CODE_FOLDER.name not in (
            "site-packages",
            "dist-packages",
        ):  # a checkout, which this program found by its cwd
            path = [str(CODE_FOLDER), *filter(None, [environment.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(path)
        try:
            with open(self.log, "wb", opener=opener()) as output:
                return subprocess.Popen(
                    self._command(),
                    env=environment | {_SPARKS_TOKEN: token},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C in the terminal that started it is not meant for it
                    pass_fds=(lock,),
                )
        except OSError as error:
            raise self.did_not_start(str(error.strerror)) from error

    def _reap(self) -> None:
        if self._started is not None and self._started.poll() is not None:
            self._started = None

    def _pids(self) -> list[int]:
        """The processes of this folder's server: those that were started with its file of settings. A number in a file
        would be another program's after a reboot, or after the file was restored from a copy."""
        mark = str(self.config)
        return [pid for pid, arguments in processes() if mark in arguments and "--properties-file" in arguments]
