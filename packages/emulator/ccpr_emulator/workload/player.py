"""Sends the steps of a load to a database, at a rate.

Each step has a time at which it is due, counted from the start, so that a slow one delays no other for good. A step is
a transaction that counts itself: after a lost connection, and after a kill, the database says whether it was committed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pymysql
from pymysql.connections import Connection

from ccpr.matrixone.client.classification import classify
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.errors import ConnectionLost, UpstreamUnreachable
from ccpr.matrixone.client.login_guard import tls_arguments
from ccpr.matrixone.sql.quoting import quote_name
from ccpr_emulator.errors import LoadLost
from ccpr_emulator.workload.record import Record
from ccpr_emulator.workload.steps import PROGRESS, TABLES, Model, statements

_RECORD_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0  # without an upstream
_PAUSE_SECONDS = 0.5
_AHEAD = 1000  # steps for which one write of the record is enough


@dataclass(frozen=True, slots=True)
class Played:
    """How far a load has come.

    Attributes
    ----------
    seconds : since the start.
    late : seconds by which the last step was later than due.
    latest : the most of them.
    """

    steps: int
    changes: int
    seconds: float
    late: float
    latest: float


@contextmanager
def connected(endpoint: Endpoint, password: str, database: str | None = None) -> Iterator[Connection]:
    """A session that commits when it is told to. Raises UpstreamError."""
    try:
        connection = pymysql.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.login,
            password=password.encode(),
            database=database,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=10,
            read_timeout=120,
            **tls_arguments(endpoint.tls),
        )
    except (pymysql.err.MySQLError, OSError) as error:
        raise classify(error, "connect", connecting=True, subject=f"upstream {endpoint.masked()}") from error
    try:
        yield connection
    except (pymysql.err.MySQLError, OSError) as error:
        raise classify(error, "a step of the load", subject=f"upstream {endpoint.masked()}") from error
    finally:
        with suppress(pymysql.err.Error, OSError):
            connection.close()


def prepare(connection: Connection, database: str, *, publication: str = "") -> None:
    """Make the database with its tables; it must not exist yet. `publication`: publish it to all accounts."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {quote_name(database)}")
        for table, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE {quote_name(database)}.{quote_name(table)} ({columns})")
        cursor.execute(f"INSERT INTO {quote_name(database)}.{quote_name(PROGRESS)} VALUES (1, 0)")
        connection.commit()
        if publication:
            cursor.execute(f"CREATE PUBLICATION {quote_name(publication)} DATABASE {quote_name(database)} ACCOUNT ALL")
            connection.commit()


def steps_there(connection: Connection, database: str) -> int:
    """How many steps a database has. Raises LoadLost if it does not say."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT steps FROM {quote_name(database)}.{quote_name(PROGRESS)} WHERE id = 1")
        rows = cursor.fetchall()
    connection.rollback()
    if len(rows) != 1:
        raise LoadLost("the row that counts the steps is not there", subject=f"database {database}")
    return int(rows[0][0])


@dataclass(eq=False)
class Player:
    """Sends steps until it is told to stop.

    Parameters
    ----------
    rate : changes a second; 0 = as fast as possible.
    stop : asked before each step.
    report : called about once a second.
    """

    endpoint: Endpoint
    password: str
    record: Record
    path: Path
    rate: float
    stop: Callable[[Played], bool]
    report: Callable[[Played], None]
    _model: Model = field(init=False)
    _latest: float = 0.0
    _played_until: float = 0.0
    _begun: float = 0.0
    _before: tuple[int, int] | None = None  # steps and changes that were there when it began

    def __post_init__(self) -> None:
        self._model = Model(self.record.load)

    def run(self) -> Played:
        """Raises LoadLost, UpstreamError."""
        while True:
            try:
                with connected(self.endpoint, self.password) as connection:
                    self._continue(connection)
                    return self._play(connection)
            except (ConnectionLost, UpstreamUnreachable):
                alone = time.monotonic() - self._played_until
                if self._before is None or alone > _PATIENCE_SECONDS or self.stop(self._progress()):
                    raise
                time.sleep(_PAUSE_SECONDS)
            finally:
                self.record.keep(self.path)

    def _continue(self, connection: Connection) -> None:
        """From where the database is, by its own count. Raises LoadLost."""
        there = steps_there(connection, self.record.database)
        least, most = self.record.acknowledged, self.record.reserved
        if not least <= there <= most:
            raise LoadLost(
                f"it counts {there} steps; {least} were acknowledged, and {most} sent at most",
                subject=f"database {self.record.database}",
            )
        self.record = replace(self.record, acknowledged=there)
        self._model.go_to(there)
        if self._before is None:
            self._begun, self._before = time.monotonic(), (self._model.steps, self._model.changes)

    def _play(self, connection: Connection) -> Played:
        kept = time.monotonic()
        while True:
            progress = self._progress()
            if self.stop(progress):
                return progress
            now = self._played_until = time.monotonic()
            if now - kept >= _RECORD_SECONDS:
                self.record.keep(self.path)
                self.report(progress)
                kept = now
            due = self._begun + progress.changes / self.rate if self.rate else now
            if due > now:
                time.sleep(min(due - now, _PAUSE_SECONDS))
                continue
            self._latest = max(self._latest, now - due)
            self._take(connection)

    def _progress(self) -> Played:
        steps, changes = self._before or (0, 0)
        done, seconds = self._model.changes - changes, time.monotonic() - self._begun
        late = max(0.0, seconds - done / self.rate) if self.rate else 0.0
        return Played(self._model.steps - steps, done, seconds, late, self._latest)

    def _take(self, connection: Connection) -> None:
        step = self._model.next_step()
        if step.number > self.record.reserved:
            self.record = replace(self.record, reserved=step.number + _AHEAD)
            self.record.keep(self.path)
        *changes, count = statements(step, self.record.database)
        with connection.cursor() as cursor:
            for statement in changes:
                cursor.execute(statement)
            if cursor.execute(count) != 1:
                connection.rollback()
                raise LoadLost(
                    f"it is not at step {step.number - 1} any more: another program writes to it",
                    subject=f"database {self.record.database}",
                )
        connection.commit()
        self._model.apply(step)
        self.record = replace(self.record, acknowledged=step.number)
