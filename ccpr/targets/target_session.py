"""A session with a target's server: one connection that holds the subscription's lock and raises typed errors. And that
of a task, which has no lock."""

import hashlib
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pymysql
import sqlalchemy as sa
from pymysql.constants import CR
from sqlalchemy import exc

from ccpr.base.errors import let_interrupt_pass
from ccpr.matrixone.client.login_guard import NOT_THE_PROTOCOL, PasswordWanted, out_of_step
from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.schema.choices import Dialect
from ccpr.state.credentials import Vault
from ccpr.state.errors import CheckpointUnknown, StateUnavailable, StateUnreadable
from ccpr.targets.address import Address
from ccpr.targets.errors import (
    TargetDenied,
    TargetKeyRefused,
    TargetRefused,
    TargetUnavailable,
    TargetUnsupported,
    TargetValueRefused,
    TargetWantsPassword,
)
from ccpr.targets.loading_connection import LoadingConnection
from ccpr.targets.lock import NamedLock, RowLock, lock_name

# Error numbers of MariaDB and MySQL that are the whole server's and pass. After them the session is opened again.
_PASSING = {
    1020: "changed by another",
    1021: "disk full",
    1026: "a file cannot be written",
    1037: "out of memory",
    1040: "too many connections",
    1041: "out of memory",
    1047: "not ready yet (a node of a cluster)",
    1053: "shutting down",
    1077: "shutting down",
    1114: "table full",
    1135: "no thread for the connection",
    1152: "connection aborted",
    1159: "connection timed out",
    1161: "connection timed out",
    1180: "error at COMMIT",
    1203: "too many connections",
    1205: "lock wait timed out",
    1206: "too many locks",
    1213: "deadlock",
    1226: "over the user's limits",
    1290: "read-only for now",
    1317: "interrupted",
    1815: "internal error",
    1836: "read-only for now",
    1927: "connection killed",
    1969: "statement took too long",
    2002: "not reachable",
    2003: "not reachable",
    2005: "name not resolved",
    2006: "connection lost",
    2013: "connection lost",
    2014: "connection out of step",
    2055: "connection lost",
    3024: "statement took too long",
    3032: "starting or stopping",
    3168: "shutting down",
    4031: "connection idle too long",
}
# Of MatrixOne: its parts do not reach one another, a transaction was lost, a lock moved.
_PASSING_OF_MATRIXONE = {
    *range(20500, 20508),
    *(20600, 20605, 20609, 20619, 20628, 20631, 20634, 20635, 20638),
    *(20701, 20702, 20703, 20705, 20706, 20709, 20710),
}
# The texts by which an internal error of it (1105, 20101) says the same, and by which a storage engine has a full disk.
_INTERNAL = {1105, 20101}
_PASSING_TEXT = re.compile(
    r"context canceled|context deadline exceeded|transaction error: wait active|txn commit status is unknown"
    r"|backend connection closed|broken pipe|connection reset by peer|No available checkpoints",
    re.IGNORECASE,
)
_ENGINE_ERROR, _DISK_FULL = 1030, re.compile(r"\berror 28\b|No space left")
_DENIED = {1044, 1045, 1129, 1130, 1142, 1143, 1148, 1227, 1410, 1698, 3948, 4166}
_VALUES = {1048, 1062, 1118, 1138, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1441, 1586, 3140, 4025}
_REMEDIES = {
    1049: "Create the database as an administrator of the target: CREATE DATABASE <name> CHARACTER SET utf8mb4;",
    1062: (
        "Two rows have the same key in the target. If no other user wrote to the table, report it with this text. "
        "`ccpr verify` checks the mirror."
    ),
}
_OLDEST = {Dialect.MARIADB: (10, 6), Dialect.MYSQL8: (8, 0, 23)}
NO_SUCH_TABLE, DUPLICATE = 1146, 1062
DEFAULT_REFUSED = {1067, 1101, 1264, 1265, 1292, 1366, 1406, 1674, 1901, 3770}  # of CREATE TABLE, which stores no row


@dataclass(frozen=True, slots=True)
class TaskLogin:
    """How a task logs in, in another process: the password is sealed, the key is a file there (decision
    sealed-secrets).

    Attributes
    ----------
    stages : what the names of its staging tables begin with.
    """

    address: Address
    sealed_password: str
    dialect: Dialect
    stages: str

    @contextmanager
    def session(self, subject: str) -> "Iterator[TaskSession]":
        """What is not committed at the end of the block is undone. Errors of the server in the block become ours."""
        try:
            password = Vault.of_worker().open(self.sealed_password, self.address.endpoint)
            connection = LoadingConnection(self.address, password)
            try:
                yield TaskSession(connection, self.dialect, self.stages)
            finally:
                with suppress(pymysql.err.MySQLError):
                    connection.close()
        except pymysql.err.MySQLError as error:
            raise typed_error(error, subject) from error


class TaskSession:
    """A connection without the lock, whose staging tables have names that no other attempt of a task has."""

    def __init__(self, connection: LoadingConnection, dialect: Dialect, stages: str) -> None:
        self.raw, self.dialect = connection, dialect
        self.stages = f"{stages}{uuid.uuid4().hex[:8]}_"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(pymysql.err.MySQLError):
                self.raw.rollback()
            raise
        self.raw.commit()


class TargetSession:
    """Used by one thread at a time. After TargetUnavailable it has to be closed, and can be opened again.

    Statements are run within `transaction`. In MariaDB and MySQL a statement that defines a table ends the transaction.
    """

    def __init__(self, address: Address, password: str | None, task_id: str) -> None:
        self.address, self._password, self._task_id = address, password, task_id
        self._engine: sa.Engine | None = None
        self._connection: sa.Connection | None = None
        self._lock: NamedLock | RowLock | None = None
        self.dialect = Dialect.MARIADB
        self._id = ""

    @property
    def subject(self) -> str:
        return f"target {self.address.masked()}"

    def open(self, lock_seconds: float) -> None:
        """Connect and take the lock. Raises TargetUnavailable, TargetDenied, TargetUnsupported, TargetBusy."""
        self.close()
        self._id = uuid.uuid4().hex[:12]
        made: list[LoadingConnection] = []

        def connect() -> LoadingConnection:
            if made:  # a new connection would not have the lock
                raise TargetUnavailable("the connection was lost", subject=self.subject)
            made.append(LoadingConnection(self.address, self._password))
            return made[0]

        with self.typed(self.subject):
            self._engine = sa.create_engine(
                "mysql+pymysql://",
                creator=connect,
                poolclass=sa.NullPool,
                pool_reset_on_return=None,  # a connection is closed after its use: the server rolls back what was open
            )
            try:
                self._connection = self._connected(self._engine)
                with self.transaction():
                    self.dialect = dialect_of(str(self._value("SELECT VERSION()")), self.subject)
                if self.dialect is Dialect.MATRIXONE:  # it has the version of a MySQL that takes INSERT … AS new
                    self._engine.dialect._requires_alias_for_on_duplicate_key = False  # pyright: ignore[reportAttributeAccessIssue]
                kind = RowLock if self.dialect is Dialect.MATRIXONE else NamedLock
                self._lock = kind(self.another, lock_name(self.address.database, self._task_id), self.subject)
                self._lock.take(self._connection, lock_seconds)
            except BaseException:
                self.close()
                raise

    def _connected(self, engine: sa.Engine) -> sa.Connection:
        try:
            return engine.connect()
        except NOT_THE_PROTOCOL as error:  # SQLAlchemy's first questions were not answered as a database does
            raise out_of_step(error) from error

    def leave(self) -> None:
        """End it for good: of its lock nothing is left there."""
        lock = self._lock
        with self.typed(self.subject):
            self.close()
            if isinstance(lock, RowLock):
                lock.forget()

    def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
        connection, self._connection = self._connection, None
        engine, self._engine = self._engine, None
        with suppress(exc.SQLAlchemyError, pymysql.err.MySQLError, CcprError):
            if connection is not None:
                connection.close()
        if engine is not None:
            engine.dispose()

    @property
    def connection(self) -> sa.Connection:
        if self._connection is None or self._connection.invalidated:
            raise TargetUnavailable("there is no open session", subject=self.subject)
        return self._connection

    @property
    def raw(self) -> LoadingConnection:
        return self.connection.connection.dbapi_connection  # pyright: ignore[reportReturnType]  # made by `open`

    @property
    def stages(self) -> str:
        """What the names of this session's staging tables begin with. In a MatrixOne other sessions see these tables,
        so no other session may have the names."""
        return self.stages_of_tasks if self.dialect is Dialect.MATRIXONE else "ccpr_stage_"

    @property
    def stages_of_tasks(self) -> str:
        """The same for those that tasks of this session make."""
        return f"{self.stages_of_all}{self._id}_"

    @property
    def stages_of_all(self) -> str:
        """The same for all sessions of this subscription."""
        return f"ccpr_stage_{hashlib.sha256(self._task_id.encode()).hexdigest()[:12]}_"

    def beat(self) -> None:
        """Raises TargetUnavailable if the connection, and with it the lock, is lost. It also keeps the connection alive
        in a network that drops silent ones."""
        with self.typed(self.subject), self.transaction():
            self.rows("SELECT 1")
            if self._lock is not None:
                self._lock.beat()

    def another(self) -> LoadingConnection:
        """A further connection, for an initial load. It does not have the lock."""
        return LoadingConnection(self.address, self._password)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        try:
            with self.connection.begin():
                yield self.connection
        except (exc.SQLAlchemyError, pymysql.err.MySQLError) as error:
            let_interrupt_pass(error)
            raise

    def rows(self, statement: str, arguments: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        return self.raw.rows(statement, arguments)

    def define(self, statement: str) -> None:
        """Run a statement that makes, changes, renames or drops tables, as a transaction of its own. MatrixOne renames
        no table within a transaction."""
        with self.transaction():
            if self.dialect is not Dialect.MATRIXONE:
                self.raw.changed(statement)
                return
            self.raw.commit()
            self.raw.autocommit(True)
            try:
                self.raw.changed(statement)
            finally:
                with suppress(pymysql.err.MySQLError):  # of a connection that is lost
                    self.raw.autocommit(False)

    def drop_stages(self, begin: str) -> None:
        """Drop the staging tables that others see and whose names begin so, unless a task still writes to one."""
        with self.transaction():
            names = [str(name) for (name,) in self.rows("SHOW TABLES LIKE 'ccpr\\_stage\\_%'")]
        for name in names:
            if name.startswith(begin):
                with suppress(pymysql.err.MySQLError):
                    self.define(f"DROP TABLE IF EXISTS {quote_name(name)}")

    def _value(self, statement: str, arguments: Sequence[object] | None = None) -> Any:
        """The one value of an answer."""
        match self.rows(statement, arguments):
            case [(value,)]:
                return value
        raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, "the answer does not have one value")

    def shown(self, quoted_name: str) -> str | None:
        """CREATE TABLE as the server shows it; None if there is no such table."""
        try:
            rows = self.rows(f"SHOW CREATE TABLE {quoted_name}")
        except pymysql.err.ProgrammingError as error:
            if error.args[0] == NO_SUCH_TABLE:
                return None
            raise
        texts = [str(value) for row in rows for value in row]
        if len(rows) == 1 and len(texts) > 1:
            return texts[1]
        raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, "the answer is not a definition")

    @contextmanager
    def typed(self, subject: str) -> Iterator[None]:
        """Errors of the server in the block become ours. CheckpointUnknown stays: the caller looks up the outcome."""
        try:
            yield
        except CheckpointUnknown:
            raise
        except (StateUnavailable, StateUnreadable) as error:
            if isinstance(error.__cause__, exc.DBAPIError):  # of a checkpoint's statement
                raise _typed(error.__cause__, subject) from error
            if isinstance(error, StateUnreadable):
                raise
            raise TargetUnavailable(error.message.replace("catalog database", "target"), subject=subject) from error
        except exc.DBAPIError as error:
            raise _typed(error, subject) from error
        except exc.SQLAlchemyError as error:  # of a connection that was lost before
            raise TargetUnavailable(f"the session cannot continue ({error!s:.200})", subject=subject) from error
        except pymysql.err.MySQLError as error:
            raise typed_error(error, subject) from error


def _typed(error: exc.DBAPIError, subject: str) -> CcprError:
    return typed_error(error.orig if error.orig is not None else error, subject, lost=error.connection_invalidated)


def typed_error(error: BaseException, subject: str, *, lost: bool = False) -> CcprError:
    """What an error of PyMySQL's means. One that no rule knows is TargetRefused, which is tried again (decision
    unknown-errors-pass)."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"{number}: {error.args[1] if len(error.args) > 1 else error}"
    if isinstance(error, PasswordWanted):
        return TargetWantsPassword(error.text, subject=subject)
    out_of_step = number in (0, CR.CR_MALFORMED_PACKET)  # PyMySQL gives no number where packets do not follow in order
    if lost or out_of_step or isinstance(error, pymysql.err.InterfaceError) or _passes(number, text):
        return TargetUnavailable(f"the target does not answer now ({text:.500})", subject=subject)
    if number in _DENIED:
        return TargetDenied(f"the target does not permit it ({text:.500})", subject=subject)
    if number in _VALUES:
        kind = TargetKeyRefused if number == DUPLICATE else TargetValueRefused
        return kind(
            f"the target does not store a row as it is ({text:.500})", subject=subject, remedy=_REMEDIES.get(number)
        )
    return TargetRefused(f"the target refused a statement ({text:.500})", subject=subject, remedy=_REMEDIES.get(number))


def _passes(number: int, text: str) -> bool:
    """Whether it is the server's state, and not the statement, that is in the way."""
    if number in _INTERNAL:
        return _PASSING_TEXT.search(text) is not None
    if number == _ENGINE_ERROR:
        return _DISK_FULL.search(text) is not None
    return number in _PASSING or number in _PASSING_OF_MATRIXONE


def refused_defaults(error: pymysql.err.MySQLError, create: CreateTable) -> set[str]:
    """The columns whose defaults may be why the server did not make a table: those that it names, or else all."""
    number, text = error.args[0] if error.args else 0, str(error.args[-1]) if error.args else ""
    names = {column.name for column in create.columns if column.default is not None and not column.invisible}
    if number not in DEFAULT_REFUSED:
        return set()
    return {name for name in names if f"'{name}'" in text} or names


def dialect_of(version: str, subject: str) -> Dialect:
    """Raises TargetUnsupported."""
    lower = version.lower()
    if "matrixone" in lower:
        return Dialect.MATRIXONE
    dialect = Dialect.MARIADB if "mariadb" in lower else Dialect.MYSQL8
    numbers = lower.removeprefix("5.5.5-").split("-")[0].split(".")[:3]
    if not all(number.isdecimal() for number in numbers) or tuple(map(int, numbers)) < _OLDEST[dialect]:
        raise TargetUnsupported(f"the server is of version {version:.60}", subject=subject)
    return dialect
