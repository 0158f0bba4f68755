"""The warm session: a Spark Connect server of this state folder, on the loopback address, which stays between runs.

A run with Spark of its own starts a JVM and its workers first, some 15 s on two cores; this one has them. The server is
Spark's own, from the jars of the package pyspark. It listens on 127.0.0.1 and answers only who has its token: the token
is in a file of mode 600 and in the server's environment, never in its arguments. `server_process` is the server as a
process, `server_record` what is known of it. Source: decision one-warm-session.
"""

import json
import logging
import secrets
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccpr.base.file_modes import create_file, make_folder
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.spark.connect import check_session, failure_of, require_client, warm_connection
from ccpr.pipeline.spark.errors import SparkCodeDiffers
from ccpr.pipeline.spark.identity import loaded_code, source_digest
from ccpr.pipeline.spark.locks import held, is_held
from ccpr.pipeline.spark.machine import boot, free_port, is_ours
from ccpr.pipeline.spark.server_process import END_SECONDS, POLL_SECONDS, ServerProcess
from ccpr.pipeline.spark.server_record import Found, ServerRecord, WarmState, settings_digest
from ccpr.pipeline.spark.session import SparkSettings, SparkUnavailable, settings_of
from ccpr.pipeline.spark.slots import await_executors, slots_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "spark"
_START_SECONDS, _TURN_SECONDS = 300.0, 360.0
_WARM_UP_JOBS = 100
_ATTEMPTS = 3  # a port that was free may be taken by the time that the server binds it
_log = logging.getLogger(__name__)


def answering(server: ServerRecord) -> "SparkSession":
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
    process : its server.
    alive, keeper, used : files whose locks say that a server runs, that a process keeps it
        (`ccpr.pipeline.spark.supervisor`), and that copies use it.
    log : what the server writes.
    """

    def __init__(self, home: Path, settings: SparkSettings | None = None) -> None:
        self.home = home.absolute()
        self.folder = self.home / FOLDER
        self.settings = settings or settings_of(self.home)
        self.process = ServerProcess(self.folder, self.settings)
        self.alive, self.log = self.process.alive, self.process.log
        self._file, self._turn, self.keeper, self.used = (
            self.folder / name for name in ("server.json", "start.lock", "keeper.lock", "used.lock")
        )
        self._listens: ServerRecord | None = (
            None  # as this process has seen: as long as it lives, no other process has its port
        )

    # ---- looking

    def look(self) -> Found:
        """What is there. Reads files and a lock, and asks nothing; takes some milliseconds (the code's digest)."""
        if not self.process.is_running():
            return Found(WarmState.ABSENT)
        server = self._recorded()
        if server is None:
            return Found(WarmState.STARTING)
        if server.boot != boot():
            return Found(WarmState.ELSEWHERE, server)
        if not server.start_seconds or not (server == self._listens or is_ours(server.port)):
            return Found(WarmState.STARTING, server)
        self._listens = server
        if server.code != loaded_code():
            return Found(WarmState.OTHER_CODE, server)
        if server.settings != settings_digest(self.settings, server.token):
            return Found(WarmState.OTHER_SETTINGS, server)
        return Found(WarmState.READY, server)

    def may_be_started(self) -> bool:
        """Whether a copy may start it and leave it: a keeper ends it when it is not used, and there is none that does
        not fit."""
        return is_held(self.keeper) and self.look().state in (WarmState.ABSENT, WarmState.STARTING)

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
        `again`. A start by another process is waited for.

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
            if found.state is WarmState.ELSEWHERE:
                raise _elsewhere(found)
            self._end()
            for attempt in range(_ATTEMPTS):
                server = self._launch(warm_up=warm_up, supervised=supervised, cancelled=cancelled)
                if server is not None:
                    return Found(WarmState.READY, server)
                _log.warning("attempt %d to start the warm session failed, see %s", attempt + 1, self.log)
            raise self.process.did_not_start("it ended while it was starting")

    def stop(self) -> bool:
        """End the server, its workers and their jobs. Returns whether there was one. Raises SparkUnavailable if it
        cannot be ended."""
        if not self.process.is_running():
            return False
        with self._starting(threading.Event(), seconds=END_SECONDS, needed=False):
            found = self.look()
            if found.state is WarmState.ELSEWHERE:
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

    def _check(self, server: ServerRecord, tasks: int = 1) -> None:
        session = warm_connection(server.port, server.token, server.session_id)
        try:
            check_session(session, "the warm session", tasks)
        finally:
            session.stop()

    def _awaited(self, server: ServerRecord) -> int:
        """How many tasks run at once on a cluster, whose executors are waited for."""
        session = warm_connection(server.port, server.token, server.session_id)
        try:
            await_executors(session)
            return slots_of(session) or 1
        finally:
            session.stop()

    def _launch(self, *, warm_up: bool, supervised: bool, cancelled: threading.Event) -> ServerRecord | None:
        """A server in which a job has run; None if its process ended before (the port was taken).

        Raises SparkUnavailable, and what `check_session` raises; then nothing is left running."""
        started, begun = time.time(), time.monotonic()
        token, session_id, port = secrets.token_urlsafe(32), str(uuid.uuid4()), free_port()
        process = self.process.start(token, port)
        server = ServerRecord(
            pid=process.pid,
            port=port,
            boot=boot(),
            token=token,
            session_id=session_id,
            code=loaded_code(),
            settings=settings_digest(self.settings, token),
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
                    raise self.process.did_not_start(f"{what} after {time.monotonic() - begun:.0f} s")
                cancelled.wait(POLL_SECONDS)
            self._check(server)
            slots = self.settings.slots or self._awaited(server)
            for _ in range(_WARM_UP_JOBS if warm_up else 0):
                if cancelled.is_set():
                    break
                self._check(server, slots)
            server = replace(server, start_seconds=time.monotonic() - begun)
            self._record(server)
        except BaseException:
            self._end()
            raise
        return server

    def _end(self) -> bool:
        """The caller has the turn."""
        was_there = self.process.end()
        self._file.unlink(missing_ok=True)
        return was_there

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
            time.sleep(POLL_SECONDS)

    def _recorded(self) -> ServerRecord | None:
        try:
            return ServerRecord.from_text(self._file.read_text())
        except (OSError, UnicodeDecodeError):
            return None

    def _record(self, server: ServerRecord) -> None:
        self.process.write(self._file, json.dumps(asdict(server), indent=1))


def _elsewhere(found: Found) -> SparkUnavailable:
    return SparkUnavailable(
        "the warm session of this state folder runs on another machine",
        subject="Spark" if found.server is None else f"process {found.server.pid} there",
        remedy="Run `ccpr spark stop` there.",
    )
