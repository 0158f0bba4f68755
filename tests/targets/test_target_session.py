"""Which servers are accepted, and the settings of a session."""

import pymysql
import pytest

from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.schema.choices import Dialect
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import (
    TargetDenied,
    TargetKeyRefused,
    TargetRefused,
    TargetUnavailable,
    TargetUnsupported,
    TargetValueRefused,
)
from ccpr.targets.target_session import dialect_of, typed_error
from tests.targets.target_database import Place

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("10.11.11-MariaDB-0+deb12u1", Dialect.MARIADB),
        ("5.5.5-10.6.21-MariaDB-log", Dialect.MARIADB),
        ("11.4.5-MariaDB", Dialect.MARIADB),
        ("8.0.30-MatrixOne-v3.0.0", Dialect.MATRIXONE),
        ("8.0.23", Dialect.MYSQL8),
        ("9.1.0-commercial", Dialect.MYSQL8),
    ],
)
def test_a_server_is_known_by_its_version(version: str, dialect: Dialect):
    assert dialect_of(version, "target") is dialect


@pytest.mark.parametrize("version", ["5.7.44", "8.0.22", "10.5.9-MariaDB", "something"])
def test_a_server_that_is_too_old_is_refused(version: str):
    with pytest.raises(TargetUnsupported):
        dialect_of(version, "target")


def test_what_a_session_depends_on_is_said_to_the_server(place: Place) -> None:
    with place.target() as target:
        ((seconds, isolation, limit),) = target._session.rows(
            "SELECT @@lock_wait_timeout, @@tx_isolation, @@max_statement_time"
        )
        assert (seconds, isolation, float(limit)) == (60, "READ-COMMITTED", 0.0)
        another = target._session.another()
        with another.cursor() as cursor:
            cursor.execute("SELECT @@tx_isolation, @@time_zone, @@sql_mode")
            (found,) = cursor.fetchall()
        another.close()
    assert found[:2] == ("READ-COMMITTED", "+00:00")
    assert "STRICT_ALL_TABLES" in found[2]


# What servers answer while they stop, start, are full or in each other's way. Source: docs/upstream.md, MariaDB's and
# MySQL's lists of errors.
PASSING = [
    (1053, "Server shutdown in progress"),
    (1105, "context canceled"),
    (1105, "context canceled transaction error: wait active"),
    (1105, "write tcp4 10.0.0.1:1->10.0.0.2:2: write: broken pipe"),
    (1815, "context canceled"),
    (20101, "internal error: failed to get table: context canceled"),
    (20101, "internal error: panic context canceled: goroutine 1"),
    (20101, "internal error: failed to get database: txn commit status is unknown: 018f"),
    (20101, "internal error: failed to get database: backend connection closed"),
    (20638, "txn commit status is unknown: 018f"),
    (20702, "lock table bind changed"),
    (20500, "rpc timeout"),
    (20504, "no available backend"),
    (20619, "txn w-w conflict"),
    (20634, "retry for CN rolling restart"),
    (20701, "deadlock detected"),
    (20709, "remote lock wait timeout"),
    (2003, "Can't connect"),
    (2006, "MySQL server has gone away"),
    (2013, "Lost connection to MySQL server during query"),
    (1927, "Connection was killed"),
    (1205, "Lock wait timeout exceeded; try restarting transaction"),
    (1213, "Deadlock found when trying to get lock"),
    (1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement"),
    (1836, "Running in read-only mode"),
    (1040, "Too many connections"),
    (1203, "User has already more than 'max_user_connections' active connections"),
    (3024, "Query execution was interrupted, maximum statement execution time exceeded"),
    (1969, "Query execution was interrupted (max_statement_time exceeded)"),
    (1317, "Query execution was interrupted"),
    (1021, "Disk full (/tmp/#sql-1); waiting for someone to free some space..."),
    (1114, "The table 't' is full"),
    (1030, 'Got error 28 "No space left on device" from storage engine InnoDB'),
    (1047, "WSREP has not yet prepared node for application use"),
]


@pytest.mark.parametrize(("number", "text"), PASSING)
def test_what_a_server_says_while_it_stops_or_is_full_is_the_servers_and_passes(number: int, text: str) -> None:
    assert type(typed_error(pymysql.err.OperationalError(number, text), "table t")) is TargetUnavailable


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1064, "You have an error in your SQL syntax"),
        (1105, "something new"),
        (20101, "internal error: x"),
        (9999, "?"),
    ],
)
def test_an_error_that_no_rule_knows_is_tried_again(number: int, text: str) -> None:
    error = typed_error(pymysql.err.OperationalError(number, text), "table t")
    assert type(error) is TargetRefused
    assert not isinstance(error, Terminal)


@pytest.mark.parametrize(
    ("number", "text", "kind", "waits"),
    [
        (1062, "Duplicate entry 'context canceled' for key 'PRIMARY'", TargetKeyRefused, True),
        (1406, "Data too long for column 'v'", TargetValueRefused, True),
        (1045, "Access denied for user 'u'", TargetDenied, False),
        (1142, "INSERT command denied to user 'u'", TargetDenied, False),
    ],
)
def test_only_a_value_that_cannot_be_stored_waits(number: int, text: str, kind: type[CcprError], waits: bool) -> None:
    error = typed_error(pymysql.err.OperationalError(number, text), "table t")
    assert type(error) is kind
    assert isinstance(error, Terminal) is waits


@pytest.mark.parametrize(("number", "kind"), [(1105, TargetRefused), (1142, TargetDenied), (20638, TargetUnavailable)])
def test_an_error_at_a_checkpoint_is_the_targets(
    number: int, kind: type[CcprError], place: Place, live: DatabaseTarget
) -> None:
    signal = f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'as it says'"
    place.query(f"CREATE TRIGGER refuses BEFORE INSERT ON ccpr_checkpoints FOR EACH ROW {signal}")
    with pytest.raises(CcprError) as caught:
        live.advance(Location(1, 20))
    assert type(caught.value) is kind
