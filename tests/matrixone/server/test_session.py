from pathlib import Path

import pytest

from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.wire_client import Connect

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "select 1 as one, 'a''b'",
        "select version()",
        "select @@version_comment limit 1",
        "/* mysql-connector-j */ SELECT @@session.auto_increment_increment AS auto_increment_increment, "
        "@@character_set_client AS c",
        "SELECT @@max_allowed_packet,@@system_time_zone,@@time_zone,@@transaction_isolation",
        "select database(), user(), connection_id(), current_role(), current_role_name()",
        "SET NAMES utf8mb4",
        "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'",
        "SET @@session.autocommit = OFF",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "set role moadmin",
        "show variables like 'sql_mode'",
        "SHOW WARNINGS",
        "show databases",
        "start transaction read only",
        "commit",
        "use mo_catalog",
    ],
)
def test_what_clients_send_when_they_connect_is_answered(recordings: Path, connect: Connect, sql: str) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        connect(emulator.port).rows(sql)


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("", 1064),
        (";", 1064),
        ("selekt 1", 1064),
        ("select", 1064),
        ("select * from", 1064),
        ("select * from mo_catalog.mo_tables where", 1064),
        ("select * from mo_catalog.mo_tables where a = 'x", 1064),
        ("select * from mo_catalog.mo_tables where a = 1 or b = 2", 1064),
        ("select * from mo_catalog.mo_tables where " + "(" * 5000 + "a = 1", 1064),
        ("select 1; select 2", 1064),
        ("drop database gd_dml", 1064),
        ("create snapshot s for database from sys publication p", 1064),
        ("create snapshot s for database a.b from sys publication p", 1064),
        ("OBJECTLIST", 1064),
        ("select sleep(1)", 1064),
        ("select @user_variable", 1064),
        ("\xff\x00", 1064),
        ("select * from gd_dml.acc", 1146),
        ("select * from mo_catalog.mo_user", 1146),
        ("select nothing from mo_catalog.mo_tables", 20301),
        ("select @@no_such_variable", 20101),
    ],
)
def test_what_is_unknown_gets_an_error_and_the_connection_goes_on(
    recordings: Path, connect: Connect, sql: str, number: int
) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        assert client.error(sql)[0] == number
        assert client.one("select 1") == b"1"
        assert emulator.status().errors == 1
