"""Whatever bytes a client sends as a statement, it gets an answer or an error, and its session goes on."""

from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpr.matrixone.server.answers import ResultSet, StatementError
from ccpr.matrixone.server.connection import ServerSession
from ccpr.matrixone.server.packets import column_definition, row_of
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.relay.client_port import Listen
from ccpr.relay.relay_server import Relay
from tests.matrixone.server.test_server import serving
from tests.relay.test_logins import Folder, folder
from tests.support.relayed import publication_of_recording
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

__all__ = ["folder"]

WORDS = [
    *("select", "from", "where", "and", "in", "not", "like", "between", "is", "null", "order by", "desc", "limit"),
    *("offset", "as", "count(*)", "*", "(", ")", ",", ".", "=", "<", ">=", "<>", "-", "{mo_ts =", "{snapshot =", "}"),
    *("use", "show", "set", "create snapshot", "drop snapshot", "if exists", "if not exists", "for database"),
    *("for table", "for account", "publication", "publications", "publication coverage", "create publication"),
    *("snapshots", "databases", "variables", "variables like", "begin", "commit", "@@version", "@@", "mo_catalog"),
    *("mo_tables", "mo_columns", "mo_database", "mo_pubs", "mo_snapshots", "mo_account", "mo_ctl(", "cast(", "user()"),
    *("relname", "rel_id", "reldatabase", "account_id", "pub_name", "sname", "ts", "sys", "relayed", "gd_dml", "s"),
    *("__++__internal_get_object", "__++__internal_object_list", "__++__internal_get_ddl", "__++__internal_"),
    *("__++__internal_get_snapshot_ts", "__++__internal_get_mo_indexes", "__++__internal_get_databases"),
    *("__++__internal_check_snapshot_flushed", "database", "-", "0", "1", "-1", "9" * 19, "9" * 39, "-" + "9" * 22),
    *(
        "1e400",
        "0.5",
        "'dn'",
        "'flush'",
        "'%_%~'",
        "'x'",
        "''",
        "`s`",
        "``",
        "`",
        "'",
        '"',
        "/*",
        "/*!",
        "*/",
        "#",
        ";",
    ),
    *("\\", "\0", "é", "😀", "\u0663", "\u2028", "x'zz'", "0000-00-00"),
]
PIECES = st.one_of(
    st.sampled_from([word.encode() for word in WORDS]),
    st.binary(max_size=6),
    st.sampled_from([b"\xff", b"`\xff`", b"'\xff'", b"\xed\xa0\x80", b"\xc3"]),
)
STATEMENTS = st.tuples(st.sampled_from([b" ", b"", b"\n"]), st.lists(PIECES, max_size=24)).map(
    lambda made: made[0].join(made[1])
)


@pytest.fixture(scope="module")
def session(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerSession]:
    served = publication_of_recording(recordings / "dml", tmp_path_factory.mktemp("relay") / "mirror")
    with Relay(served, {"dump": password_digest("111")}.get, Listen(port=0)) as relay:
        opened = relay.open("dump", 1)
        yield opened
        opened.close()


def encoded(answer: ResultSet) -> list[object]:
    """As the server sends it."""
    return [*map(column_definition, answer.columns), *map(row_of, answer.rows)]


@pytest.mark.recordings
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(statement=STATEMENTS)
def test_any_statement_is_answered_or_refused(session: ServerSession, statement: bytes) -> None:
    try:
        for one in session.split(statement):
            answer = session.query(one)
            if isinstance(answer, ResultSet):
                assert encoded(answer)
    except StatementError:
        pass  # it is refused
    answer = session.query(b"SELECT 1")
    assert isinstance(answer, ResultSet)
    assert answer.rows[0][0] == 1


SAID: list[tuple[bytes, int | None]] = [
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = -9999999999999999999999}", 20301),
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = -1}", 20301),
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = 9223372036854775808}", 20301),
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = 99999999999999999999999999999999999999}", 20301),
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = 9223372036854775807}", None),
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = 0}", None),
    (b"SELECT * FROM mo_catalog.mo_database{mo_ts = 999999999999999}", None),
    (b"USE `\xff`", 1064),
    (b"USE \xff", 1064),
    (b"USE `\xed\xa0\x80`", 1064),
    (b"CREATE SNAPSHOT `\xff` FOR DATABASE shop FROM sys PUBLICATION shop", 1064),
    (b"DROP SNAPSHOT IF EXISTS s FROM sys PUBLICATION `\xff`", 1064),
    (b"SHOW PUBLICATION COVERAGE `\xff`", 1064),
    (b"SHOW PUBLICATIONS LIKE '\xff'", None),
    (b"__++__internal_get_snapshot_ts \xff sys shop", 20101),
    (b"__++__internal_get_ddl - sys shop database \xff -", 20101),
    (b"__++__internal_get_object sys \xff x 1", 20101),
    (b"SELECT * FROM mo_catalog.mo_tables WHERE relname = '\xff'", None),
    (b"SELECT * FROM mo_catalog.mo_tables WHERE relname LIKE '\xff%'", None),
    (b"SELECT '\xff'", None),
    (b"SELECT 1 AS '\xff'", None),
    (b"SELECT mo_ctl('dn', 'flush', '\xff')", 20101),
    (b"SELECT @@`\xff`", 1064),
    (b"\xff\xfe\x00", 1064),
    (b"", 1064),
]


def test_the_session_goes_on_after_it(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    client = folder.user("mo")
    for statement, number in SAID:
        assert said(client, statement) == number, statement
        assert client.one("SELECT 1") == b"1", statement
    assert "could not be answered" not in caplog.text


def said(client: Client, statement: bytes) -> int | None:
    """The number of the error; None for an answer."""
    connection = client.connection
    try:
        connection._execute_command(3, statement)
        pymysql.connections.MySQLResult(connection).read()
    except pymysql.MySQLError as error:
        return error.args[0]
    return None


def test_a_defect_costs_a_statement_and_not_the_session(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as (server, engine):
        client = connect(server.port)
        number, text = client.error("size secret")  # the echo reads a number there
        assert (number, text) == (20101, "internal error: DEFECT: a statement could not be answered: ValueError")
        assert client.one("length") == b"6"
        assert "Traceback" in caplog.text
    assert engine.closed == [1]
