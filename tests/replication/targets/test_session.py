"""Which servers are accepted, and the settings of a session."""

import pytest

from replication.schema.dialects import Dialect
from replication.targets.errors import TargetUnsupported
from replication.targets.session import dialect_of
from tests.replication.targets.target_database import Place


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
