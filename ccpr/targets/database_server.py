"""A server of the MySQL protocol apart from one database of it: what it is, and databases that are made and dropped."""

from contextlib import closing, contextmanager
from typing import Any, Self

import pymysql

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.schema.choices import Dialect
from ccpr.state.checkpoint.checkpoint_store import GLOBAL_ID, Location
from ccpr.state.tables import checkpoints
from ccpr.targets.address import Address
from ccpr.targets.errors import TargetUnavailable
from ccpr.targets.loading_connection import LoadingConnection
from ccpr.targets.target_session import NO_SUCH_TABLE, dialect_of, typed_error

_EXISTS = 1007
SECONDS = 5.0  # to connect, and for each answer: a target that hangs must not hold up others
_MARK = f"SELECT lsn, snapshot_ts FROM {checkpoints.name} WHERE id = %s AND table_id = %s"


class DatabaseServer:
    """One connection, without a database. Raises TargetUnavailable, TargetDenied, TargetRefused, TargetUnsupported."""

    def __init__(self, endpoint: Endpoint, password: str) -> None:
        self.endpoint, self._password = endpoint, password
        self._subject = f"server {endpoint.masked()}"
        self._connection: LoadingConnection | None = None

    def __enter__(self) -> Self:
        with self._typed():
            self._connection = LoadingConnection(Address(self.endpoint, ""), self._password)
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def dialect(self) -> Dialect:
        ((version,),) = self._rows("SELECT VERSION()")
        return dialect_of(str(version), self._subject)

    def check(self, database: str) -> None:
        """Whether it is a server that targets can be of, and there is such a database for this login."""
        with self._typed():
            self.dialect()
            self._rows(f"USE {in_backquotes(database)}")

    def databases(self, prefix: str) -> list[str]:
        """Those whose names begin with it; letter case counts."""
        return [str(name) for (name,) in self._rows("SHOW DATABASES") if str(name).startswith(prefix)]

    def create(self, database: str) -> bool:
        """Whether it was made; False if there is one of that name."""
        try:
            self._rows(f"CREATE DATABASE {in_backquotes(database)}")
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] == _EXISTS:
                return False
            raise typed_error(error, self._subject) from error
        return True

    def drop(self, database: str) -> None:
        with self._typed():
            self._rows(f"DROP DATABASE IF EXISTS {in_backquotes(database)}")

    def figures(self, database: str, table: str, expressions: list[str]) -> tuple[Any, ...]:
        """The values of expressions over a table."""
        place = f"{in_backquotes(database)}.{in_backquotes(table)}"
        with self._typed():
            (found,) = self._rows(f"SELECT {', '.join(expressions)} FROM {place}")
        return found

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.rows(statement)

    @contextmanager
    def _typed(self):
        try:
            yield
        except pymysql.err.MySQLError as error:
            raise typed_error(error, self._subject) from error
        except OSError as error:
            raise TargetUnavailable(f"the server does not answer ({error})", subject=self._subject) from error


def reached(address: Address, password: str | None, task_id: str) -> Location | None:
    """The location that all tables of a subscription have reached there, as the target has stored it; None if it has
    stored none. One connection and one row, without the lock, and nothing is made or changed.

    Raises TargetUnavailable, TargetDenied, and what else `TargetSession.open` raises but TargetBusy.
    """
    subject = f"target {address.masked()}"
    try:
        connection = LoadingConnection(address, password, connect_seconds=SECONDS, answer_seconds=SECONDS)
        with closing(connection):
            rows = connection.rows(_MARK, (task_id, GLOBAL_ID))
    except pymysql.err.MySQLError as error:
        if isinstance(error, pymysql.err.ProgrammingError) and error.args[0] == NO_SUCH_TABLE:
            return None
        raise typed_error(error, subject) from error
    match rows:
        case [(int(lsn), int(snapshot_ts))]:
            return Location(lsn, snapshot_ts)
    return None
