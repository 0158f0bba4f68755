"""The warm session: a Spark Connect server of this state folder, on the loopback address, which stays between runs.

A run with Spark of its own starts a JVM and its workers first, some 15 s on two cores; this one has them. The server is
Spark's own, from the jars of the package pyspark. It listens on 127.0.0.1 and answers only who has its token: the token
is in a file of mode 600 and in the server's environment, never in its arguments.

What says that a server runs is a lock of the operating system on `spark/alive.lock`. The server inherits it open, and
the kernel frees it however the server ends: a process id in a file may be another program's after a reboot. Source:
decision one-warm-session.
"""

import hashlib
import hmac
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ccpr.base.file_modes import create_file, make_folder, opener, replace_file
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.spark.connect import check_session, failure_of, require_client, warm_connection
from ccpr.pipeline.spark.errors import SparkCodeDiffers, SparkUnavailable
from ccpr.pipeline.spark.identity import CODE_FOLDER, loaded_code, source_digest
from ccpr.pipeline.spark.locks import held, is_held
from ccpr.pipeline.spark.machine import boot, free_port, is_ours, processes
from ccpr.pipeline.spark.properties import properties_text
from ccpr.pipeline.spark.session import SparkSettings, settings_of
from ccpr.pipeline.spark.tasks import LOOPBACK_ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "spark"
SPARKS_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # Spark's own
_START_SECONDS, _END_SECONDS, _TURN_SECONDS = 300.0, 15.0, 360.0
_POLL_SECONDS, _LOOK_SECONDS = 0.1, 1.0
_WARM_UP_JOBS = 100
_ATTEMPTS = 3  # a port that was free may be taken by the time that the server binds it
_TAIL = 2000  # characters of the server's log in an error
_PASSED_ON = ("AWS_", "CCPR_STALL_", "CCPR_OBJECT_LIST_")  # variables that workers read
_REMEDIES = {
    "not running": "`ccpr spark start` starts it.",
    "other code": "It runs another version of this program; `ccpr spark start` starts it again.",
    "other settings": "Master, settings or credentials differ from this shell's; `ccpr spark start` starts it again.",
    "on another machine": "Run `ccpr spark stop` there.",
}
_log = logging.getLogger(__name__)


class State(StrEnum):
    """What is known of the warm session without asking it."""

    ABSENT = "not running"
    STARTING = "starting"
    READY = "ready"
    OTHER_CODE = "other code"
    OTHER_SETTINGS = "other settings"
    ELSEWHERE = "on another machine"

    @property
    def remedy(self) -> str:
        """What to type; empty where there is nothing to do."""
        return _REMEDIES.get(self, "")


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its starter recorded it in `spark/server.json`.

    Attributes
    ----------
    boot : which boot of which machine; ``host name`` where the kernel does not say.
    token, session_id : what a client needs.
    code : digest of the program's source when the server was started.
    settings : a keyed digest of master, settings and environment, which hides the values.
    started : Unix seconds.
    start_seconds : what the start took; 0 = not ready yet.
    supervised : a supervisor ends it: it started it, or a copy did.
    """

    pid: int
    port: int
    boot: str
    token: str
    session_id: str
    code: str
    settings: str
    master: str
    started: float
    start_seconds: float = 0.0
    supervised: bool = False

    @property
    def address(self) -> str:
        return f"sc://{LOOPBACK_ADDRESS}:{self.port}"

    @classmethod
    def from_text(cls, text: str) -> "Server | None":
        """None for a text that is not one of ours, or is incomplete."""
        try:
            values = json.loads(text)
            known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
            server = cls(**known)
        except (ValueError, TypeError):
            return None
        numbers = (server.pid, server.port, server.started, server.start_seconds)
        texts = (server.boot, server.token, server.session_id, server.code, server.settings, server.master)
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
            return None
        sound = all(isinstance(value, str) for value in texts) and server.pid > 1 and 0 < server.port < 65536
        return server if sound else None


@dataclass(frozen=True, slots=True)
class Found:
    """A look at the warm session. `server` is what is recorded, if anything can be read."""

    state: State
    server: Server | None = None

    @property
    def usable(self) -> bool:
        return self.state is State.READY and self.server is not None


def answering(server: Server) -> "SparkSession":
    """A client of a server, which has answered. Raises SparkSessionLost, SparkRefused."""
    from pyspark.errors import PySparkException

    session = warm_connection(server.port, server.token, server.session_id)
    try:
        session.version  # noqa: B018 (asks the server)
    except PySparkException as error:
        raise failure_of(error, "the warm session") from error
    return session


class WarmSpark:
    """The warm session of a state folder.

    Parameters
    ----------
    settings : master, settings and key file for its server; those of the environment if not given.

    Attributes
    ----------
    alive, keeper, used : files whose locks say that a server runs, that somebody keeps it
        (`ccpr.pipeline.spark.supervisor`), and that copies use it.
    """

    def __init__(self, home: Path, settings: SparkSettings | None = None) -> None:
        self.home = home.absolute()
        self.folder = self.home / FOLDER
        self.settings = settings or settings_of(self.home)
        self._file, self.alive, self._turn = (
            self.folder / name for name in ("server.json", "alive.lock", "start.lock")
        )
        self.keeper, self.used = (self.folder / name for name in ("keeper.lock", "used.lock"))
        self.log = self.folder / "server.log"
        self._config = self.folder / "server.conf"
        self._process: subprocess.Popen[bytes] | None = None
        self._listens: Server | None = None  # as this process has seen: as long as it lives, nobody else has its port

    # ---- looking

    def look(self) -> Found:
        """What is there. Reads files and a lock, and asks nobody; takes some milliseconds (the code's digest)."""
        if not is_held(self.alive):
            return Found(State.ABSENT)
        server = self._recorded()
        if server is None:
            return Found(State.STARTING)
        if server.boot != boot():
            return Found(State.ELSEWHERE, server)
        if not server.start_seconds or not (server == self._listens or is_ours(server.port)):
            return Found(State.STARTING, server)
        self._listens = server
        if server.code != loaded_code():
            return Found(State.OTHER_CODE, server)
        if server.settings != self._settings_digest(server.token):
            return Found(State.OTHER_SETTINGS, server)
        return Found(State.READY, server)

    def may_be_started(self) -> bool:
        """Whether a copy may start it and leave it: somebody ends it when it is not used, and nobody has one that does
        not fit."""
        return is_held(self.keeper) and self.look().state in (State.ABSENT, State.STARTING)

    def log_tail(self) -> str:
        """The end of what the server wrote."""
        try:
            return self.log.read_text(errors="replace")[-_TAIL:]
        except OSError:
            return ""

    def session(self) -> "SparkSession | None":
        """A client of the warm session, if it is ready; stopping it leaves the session. Raises SparkSessionLost,
        SparkRefused, SparkVersionDiffers, SparkCodeDiffers."""
        found = self.look()
        if not found.usable or found.server is None or self.settings.remote is not None:
            return None
        session = warm_connection(found.server.port, found.server.token, found.server.session_id)
        check_session(session, "the warm session")
        return session

    # ---- starting and ending

    def start(
        self,
        *,
        again: bool = False,
        warm_up: bool = False,
        supervised: bool = False,
        cancelled: threading.Event | None = None,
    ) -> Found:
        """Start the server, unless one that fits is there, and wait until a job has run in it. One that runs other code
        or with other settings, that does not answer, or whose start was abandoned, is ended first; so is any with
        `again`. Somebody else's start is waited for.

        With `warm_up` small jobs run in a new one for some ten seconds, before it is ready: all its workers have then
        imported what they need, and Java has compiled what plans a job, so that the first copies are as quick as later
        ones (decision warm-up-jobs).

        Raises ExtraMissing, JavaMissing, SparkUnavailable, SparkCodeDiffers if this program is older than its files,
        and what `check_session` raises of the new server.
        """
        cancelled = cancelled or threading.Event()
        require_client()
        if self.settings.remote is not None:
            raise SparkUnavailable(
                "a Spark Connect server is named already; there is nothing to start",
                subject="CCPR_SPARK_REMOTE",
                remedy="Unset CCPR_SPARK_REMOTE to use a warm session of this state folder.",
            )
        if loaded_code() != source_digest():
            raise SparkCodeDiffers(
                "the files of this program have changed since it was started",
                subject="the warm session",
                remedy="Start this program again.",
            )
        with self._starting(cancelled):
            found = self.look()
            if found.usable and not again and self._answers(found):
                return found
            if found.state is State.ELSEWHERE:
                raise _elsewhere(found)
            self._end()
            for attempt in range(_ATTEMPTS):
                server = self._launch(warm_up=warm_up, supervised=supervised, cancelled=cancelled)
                if server is not None:
                    return Found(State.READY, server)
                _log.warning("attempt %d to start the warm session failed, see %s", attempt + 1, self.log)
            raise self._did_not_start("it ended while it was starting")

    def stop(self) -> bool:
        """End the server, its workers and their jobs. Returns whether there was one. Raises SparkUnavailable if it
        cannot be ended."""
        if not is_held(self.alive):
            return False
        with self._starting(threading.Event(), seconds=_END_SECONDS, needed=False):
            found = self.look()
            if found.state is State.ELSEWHERE:
                raise _elsewhere(found)
            return self._end()

    def _answers(self, found: Found) -> bool:
        assert found.server is not None
        try:
            self._check(found.server)
        except CcprError as error:
            _log.warning("the warm session is there and does not work: %s: %s", error.code, error.message)
            return False
        return True

    def _check(self, server: Server, tasks: int = 1) -> None:
        session = warm_connection(server.port, server.token, server.session_id)
        try:
            check_session(session, "the warm session", tasks)
        finally:
            session.stop()

    def _launch(self, *, warm_up: bool, supervised: bool, cancelled: threading.Event) -> Server | None:
        """A server in which a job has run; None if its process ended before (the port was taken).

        Raises SparkUnavailable, and what `check_session` raises; then nothing is left running."""
        started, begun = time.time(), time.monotonic()
        token, session_id, port = secrets.token_urlsafe(32), str(uuid.uuid4()), free_port()
        self._write_config(port)
        while True:
            with held(self.alive) as lock:
                if lock is not None:
                    process = self._process = self._spawn(token, lock)
                    break
            if time.monotonic() > begun + _LOOK_SECONDS:  # not somebody's look, which takes no time
                raise self._did_not_start("another server still holds its lock")
            time.sleep(_POLL_SECONDS)
        server = Server(
            pid=process.pid,
            port=port,
            boot=boot(),
            token=token,
            session_id=session_id,
            code=loaded_code(),
            settings=self._settings_digest(token),
            master=self.settings.master,
            started=started,
            supervised=supervised,
        )
        try:
            self._record(server)
            until = begun + _START_SECONDS
            while not is_ours(port):
                if process.poll() is not None and not cancelled.is_set():
                    return None
                if cancelled.is_set() or time.monotonic() > until:
                    what = "it was cancelled" if cancelled.is_set() else "it does not listen yet"
                    raise self._did_not_start(f"{what} after {time.monotonic() - begun:.0f} s")
                cancelled.wait(_POLL_SECONDS)
            self._check(server)
            for _ in range(_WARM_UP_JOBS if warm_up else 0):
                if cancelled.is_set():
                    break
                self._check(server, self.settings.slots or 1)
            server = replace(server, start_seconds=time.monotonic() - begun)
            self._record(server)
        except BaseException:
            self._end()
            raise
        return server

    def _command(self) -> list[str]:
        import pyspark

        command = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--properties-file", str(self._config)]
        return [*command, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]

    def _spawn(self, token: str, lock: int) -> "subprocess.Popen[bytes]":
        self.settings.prepare_environment()
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
                    env=environment | {SPARKS_TOKEN: token},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C in the terminal that started it is not meant for it
                    pass_fds=(lock,),
                )
        except OSError as error:
            raise self._did_not_start(str(error.strerror)) from error

    def _end(self) -> bool:
        """End what holds the lock: politely, then not. The caller has the turn."""
        was_there = is_held(self.alive)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not is_held(self.alive):
                break
            for pid in self._pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + _END_SECONDS
            while is_held(self.alive) and time.monotonic() < until:
                self._reap()
                time.sleep(_POLL_SECONDS)
        self._reap()
        if is_held(self.alive):
            raise SparkUnavailable(
                "the server cannot be ended",
                subject=str(self.folder),
                remedy="End the process that holds alive.lock there: `fuser alive.lock` shows it.",
            )
        for path in (self._file, self._config):
            path.unlink(missing_ok=True)
        return was_there

    def _reap(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._process = None

    def _pids(self) -> list[int]:
        """The processes of this folder's server: those that were started with its file of settings. A number in a file
        would be another program's after a reboot, or after the file was restored from a copy."""
        mark = str(self._config)
        return [pid for pid, arguments in processes() if mark in arguments and "--properties-file" in arguments]

    @contextmanager
    def _starting(self, cancelled: threading.Event, *, seconds: float = _TURN_SECONDS, needed: bool = True):
        """One start or end at a time, of all processes. Without `needed` it goes on when the time is over."""
        try:
            make_folder(self.folder)
            create_file(self._turn)
            create_file(self.alive)
        except OSError as error:
            raise SparkUnavailable(
                f"its folder cannot be written: {error.strerror}",
                subject=str(self.folder),
                remedy="Make it writable, or set CCPR_HOME.",
            ) from error
        until = time.monotonic() + seconds
        while True:
            with held(self._turn) as lock:
                if lock is not None or (not needed and time.monotonic() > until):
                    yield
                    return
            if cancelled.is_set() or (needed and time.monotonic() > until):
                raise SparkUnavailable("another process is starting it, and does not come to an end", subject="Spark")
            time.sleep(_POLL_SECONDS)

    # ---- files

    def _recorded(self) -> Server | None:
        try:
            return Server.from_text(self._file.read_text())
        except (OSError, UnicodeDecodeError):
            return None

    def _record(self, server: Server) -> None:
        self._write(self._file, json.dumps(asdict(server), indent=1))

    def _write_config(self, port: int) -> None:
        config = self.settings.spark_config() | {
            "spark.app.name": "ccpr, warm",
            "spark.connect.grpc.binding.address": LOOPBACK_ADDRESS,
            "spark.connect.grpc.binding.port": str(port),
            # all clients have one session, see `ccpr.pipeline.spark.connect`; it does not expire
            "spark.connect.session.manager.defaultSessionTimeout": "-1",
            # a client that was killed must not leave its job behind
            "spark.connect.execute.manager.detachedTimeout": "15s",
            "spark.connect.execute.manager.maintenanceInterval": "5s",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        if self.settings.master.startswith("local"):
            config.setdefault("spark.authenticate", "true")  # of the driver's own ports
        self._write(self._config, properties_text(config))

    def _write(self, path: Path, text: str) -> None:
        try:
            replace_file(path, text)
        except OSError as error:
            raise self._did_not_start(f"{path.name} cannot be written: {error.strerror}") from error

    def _settings_digest(self, token: str) -> str:
        environment = {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_PASSED_ON) and value
        }
        text = json.dumps([sys.executable, self.settings.spark_config(), environment], sort_keys=True)
        return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()

    def _did_not_start(self, what: str) -> SparkUnavailable:
        lines = [line for line in self.log_tail().splitlines() if line.strip()]
        last = f"; the last line of its log: {lines[-1].strip()[:200]}" if lines else ""
        return SparkUnavailable(
            f"the warm session did not start: {what}{last}", subject="Spark", remedy=f"Read {self.log}."
        )


def _elsewhere(found: Found) -> SparkUnavailable:
    return SparkUnavailable(
        "the warm session of this state folder runs on another machine",
        subject="Spark" if found.server is None else f"process {found.server.pid} there",
        remedy="Run `ccpr spark stop` there.",
    )
