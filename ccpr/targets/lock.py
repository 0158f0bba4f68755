"""One writer in a target for each subscription and database: by a lock of the server that has a name, and in MatrixOne,
which has none, by a locked row."""

import hashlib
import uuid
from collections.abc import Callable
from contextlib import suppress

import pymysql
import sqlalchemy as sa
from pymysql.constants import CR
from sqlalchemy import event, exc

from ccpr.state.tables import TABLE_OPTIONS
from ccpr.targets.errors import TargetBusy, TargetUnavailable
from ccpr.targets.loading_connection import LoadingConnection

locks = sa.Table(
    "ccpr_locks",
    sa.MetaData(),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("holder", sa.String(64), nullable=False),  # of the fence: the session that may write
    **TABLE_OPTIONS,
)

_LEAST_SECONDS = 3.0  # a server that is slow to answer is not one whose row is locked


def lock_name(database: str, task_id: str) -> str:
    """At most 60 characters."""
    place = hashlib.sha256(database.encode()).hexdigest()[:16]
    return f"ccpr:{hashlib.sha256(task_id.encode()).hexdigest()[:32]}:{place}"


class NamedLock:
    """A lock that the session's own connection has. It is freed by the end of the connection, not by that of a
    transaction."""

    def __init__(self, _another: Callable[[], LoadingConnection], name: str, subject: str) -> None:
        self._name, self._subject = name, subject

    def take(self, connection: sa.Connection, seconds: float) -> None:
        """Raises TargetBusy."""
        with connection.begin():
            taken = connection.exec_driver_sql("SELECT GET_LOCK(%s, %s)", (self._name, seconds)).scalar()
            if taken != 1:
                holder = connection.exec_driver_sql("SELECT IS_USED_LOCK(%s)", (self._name,)).scalar()
                raise TargetBusy(
                    f"connection {holder} of the target holds the subscription's lock", subject=self._subject
                )

    def beat(self) -> None:
        """The connection has the lock as long as it lives."""

    def close(self) -> None:
        """The end of the connection frees the lock."""


class RowLock:
    """A row of `ccpr_locks` that a connection of its own has locked until it ends, and a second one, the fence.

    The connection that writes is another one, and may outlive the lock. So every transaction of it begins by locking
    the fence and checking that it has this session's id. The next session writes its own id there, for which it waits
    until the transaction under way has ended; from then on the former session writes nothing more.
    """

    def __init__(self, another: Callable[[], LoadingConnection], name: str, subject: str) -> None:
        self._another, self._subject = another, subject
        self._row, self._fence = name, f"{name}:f"
        self._id = uuid.uuid4().hex
        self._holding: LoadingConnection | None = None

    def take(self, connection: sa.Connection, seconds: float) -> None:
        """Raises TargetBusy."""
        self._holding = holding = self._another()
        self._make_rows(connection)
        waits, holding._read_timeout = holding._read_timeout, max(seconds, _LEAST_SECONDS)
        try:
            with holding.cursor() as cursor:
                cursor.execute(f"SELECT holder FROM {locks.name} WHERE name = %s FOR UPDATE", (self._row,))
        except pymysql.err.OperationalError as error:
            if error.args[0] != CR.CR_SERVER_LOST or not isinstance(error.__context__, TimeoutError):
                raise
            raise TargetBusy(
                f"another session of the target has locked row {self._row} of {locks.name}", subject=self._subject
            ) from error
        finally:
            holding._read_timeout = waits
        with connection.begin():
            connection.execute(locks.update().where(locks.c.name == self._fence).values(holder=self._id))
        event.listen(connection, "begin", self._check)

    def beat(self) -> None:
        """Raises pymysql's errors, TargetUnavailable."""
        if self._holding is None:
            raise TargetUnavailable("the target's lock was lost", subject=self._subject)
        with self._holding.cursor() as cursor:
            cursor.execute("SELECT 1")

    def close(self) -> None:
        holding, self._holding = self._holding, None
        if holding is not None:
            with suppress(pymysql.err.MySQLError):
                holding.close()

    def forget(self) -> None:
        """After `close`: remove its rows, and the table if no other subscription has rows in it."""
        connection = self._another()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {locks.name} WHERE name IN (%s, %s)", (self._row, self._fence))
                connection.commit()
                cursor.execute(f"SELECT COUNT(*) FROM {locks.name}")
                if cursor.fetchall() == ((0,),):
                    cursor.execute(f"DROP TABLE {locks.name}")
                connection.commit()
        finally:
            connection.close()

    def _make_rows(self, connection: sa.Connection) -> None:
        """Those that are missing. Another session may be making them at the same time."""
        with connection.begin():
            connection.execute(sa.schema.CreateTable(locks, if_not_exists=True))
        for name in (self._row, self._fence):
            try:
                with connection.begin():
                    if connection.scalar(sa.select(locks.c.name).where(locks.c.name == name)) is None:
                        connection.execute(locks.insert().values(name=name, holder=""))
            except exc.IntegrityError:  # it is there by now
                continue

    def _check(self, connection: sa.Connection) -> None:
        """Begins every transaction. Raises TargetUnavailable."""
        found = connection.exec_driver_sql(
            f"SELECT holder FROM {locks.name} WHERE name = %s FOR UPDATE", (self._fence,)
        ).scalar()
        if found != self._id:
            connection.connection.rollback()  # the transaction has not begun for SQLAlchemy; it has locked the fence
            raise TargetUnavailable("another session has taken the lock of the subscription", subject=self._subject)
