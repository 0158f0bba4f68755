from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mysql.query_runner import QueryLimits
from ccpr.mysql.replica_server import ReplicaServer
from ccpr.relay.client_port import Listen
from ccpr.service.workspace import Workspace
from ccpr.state.logins import LoginRole, PortLogin, PortLogins
from tests.support.one_table import OneTable, published

PASSWORD = "a-password"


@dataclass
class Served:
    """A subscription `s` to database `d` with table `a` (n, v), served to logins `reader`, `boss` (an operator) and
    `other`, which may read nothing."""

    table: OneTable
    workspace: Workspace
    server: ReplicaServer

    def connect(self, user: str = "reader", database: str | None = "d", **options: Any) -> pymysql.Connection:
        where = {"host": "127.0.0.1", "port": self.server.port, "user": user, "password": PASSWORD}
        return pymysql.connect(**where, database=database, autocommit=True, **options)

    def add(self, name: str, role: LoginRole = LoginRole.READER, **rights: Any) -> None:
        logins = PortLogins(self.workspace.log.engine, self.workspace.vault)
        logins.add(PortLogin(name, self.workspace.now(), role, **rights), password_digest(PASSWORD))

    def ask(self, *statements: str, user: str = "reader", database: str | None = "d") -> list[Any]:
        """The rows of the last."""
        with closing(self.connect(user, database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def error(self, *statements: str, user: str = "reader", database: str | None = "d") -> tuple[int, str]:
        with pytest.raises(pymysql.MySQLError) as caught:
            self.ask(*statements, user=user, database=database)
        return caught.value.args[0], caught.value.args[1]


@pytest.fixture
def served(tmp_path: Path, home: Path) -> Iterator[Served]:
    with published(home) as table, closing(Workspace()) as workspace:
        table.replicated(3)
        server = ReplicaServer(workspace, Listen(port=0), QueryLimits(seconds=20.0))
        served = Served(table, workspace, server)
        served.add("reader")
        served.add("boss", role=LoginRole.OPERATOR)
        served.add("other", publications=frozenset({"x"}))
        server.start()
        try:
            yield served
        finally:
            server.stop()
