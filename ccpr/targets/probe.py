"""Asks a target where it is: one connection and one row, without the lock, and nothing is made or changed."""

from contextlib import closing

import pymysql

from ccpr.state.checkpoint.store import GLOBAL_ID, Location
from ccpr.state.tables import checkpoints
from ccpr.targets.address import Address
from ccpr.targets.loading import LoadingConnection
from ccpr.targets.session import NO_SUCH_TABLE, typed_error

SECONDS = 5.0  # to connect, and for each answer: a target that hangs must not hold up others
_MARK = f"SELECT lsn, snapshot_ts FROM {checkpoints.name} WHERE id = %s AND table_id = %s"


def reached(address: Address, password: str | None, task_id: str) -> Location | None:
    """The location that all tables of a subscription have reached there, as the target has stored it; None if it has
    stored none. Raises TargetUnavailable, TargetDenied, and what else `TargetSession.open` raises but TargetBusy."""
    subject = f"target {address.masked()}"
    try:
        connection = LoadingConnection(address, password, connect_seconds=SECONDS, answer_seconds=SECONDS)
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(_MARK, (task_id, GLOBAL_ID))
            rows = cursor.fetchall()
    except pymysql.err.MySQLError as error:
        if isinstance(error, pymysql.err.ProgrammingError) and error.args[0] == NO_SUCH_TABLE:
            return None
        raise typed_error(error, subject) from error
    match rows:
        case [(int(lsn), int(snapshot_ts))]:
            return Location(lsn, snapshot_ts)
    return None
