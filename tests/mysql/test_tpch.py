"""The 22 queries of TPC-H by a MySQL client, from an upstream through a replica: each row as a MariaDB has it."""

from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mysql.replica_server import ReplicaServer
from ccpr.relay.client_port import Listen
from ccpr.service.workspace import Workspace
from ccpr.state.logins import LoginRole, PortLogin, PortLogins
from tests.support.mariadb import MariaDb
from tests.support.replica import command
from tests.support.tpch import DATABASE, QUERIES, generated, load_mysql, published

LONG = pytest.mark.long, pytest.mark.timeout(1800)
TEXTS = {kind: way for kind, way in pymysql.converters.conversions.items() if not isinstance(kind, int)}


@pytest.mark.parametrize("scale", [pytest.param(0.002, marks=pytest.mark.slow), pytest.param(0.1, marks=LONG)])
def test_each_query_of_tpch_answers_as_a_mariadb(home: Path, mariadb: MariaDb, scale: float) -> None:
    tables = generated(scale)
    login = {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user, "password": mariadb.password}
    with published(home, tables) as source, closing(Workspace()) as workspace:
        source.subscribe()
        command("run", "s")
        server = ReplicaServer(workspace, Listen(port=0))
        logins = PortLogins(workspace.log.engine, workspace.vault)
        logins.add(PortLogin("reader", workspace.now(), LoginRole.READER), password_digest("a-password"))
        server.start()
        ours_at = {"host": "127.0.0.1", "port": server.port, "user": "reader", "password": "a-password"}
        try:
            with (
                closing(pymysql.connect(**ours_at, database=DATABASE, conv=TEXTS)) as ours,
                closing(pymysql.connect(**login, conv=TEXTS, charset="utf8mb4")) as theirs,
                ours.cursor() as our_cursor,
                theirs.cursor() as their_cursor,
            ):
                load_mysql(theirs, tables)
                for number, query in enumerate(QUERIES, 1):
                    our_cursor.execute(query)
                    their_cursor.execute(query)
                    rows = our_cursor.fetchall()
                    assert rows == their_cursor.fetchall(), f"query {number}"
                    assert rows, f"query {number}"
                their_cursor.execute(f"DROP DATABASE {DATABASE}")
        finally:
            server.stop()
