"""A MatrixOne as a target's server: a simulated one, or the one that CCPR_TARGET_MATRIXONE names
(``mysql://user:password@host:port/any``)."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import pymysql
from pymysql.connections import Connection

from emulator.engine.storage import Storage
from emulator.simulated_upstream import SimulatedUpstream
from replication.schema.dialects import Dialect
from replication.targets.address import parse_target_uri


@dataclass(frozen=True)
class MatrixOneServer:
    """A server that runs already. It gives databases as `tests.support.mariadb.MariaDb` does."""

    dialect: ClassVar[Dialect] = Dialect.MATRIXONE
    port: int
    host: str = "127.0.0.1"
    user: str = "dump"
    password: str = field(default="111", repr=False)

    def connect(self, database: str | None = None) -> Connection:
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            local_infile=True,
            init_command="SET time_zone = '+00:00'",
        )

    def create_database(self, name: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}`")


@contextmanager
def matrixone_server() -> Iterator[MatrixOneServer]:
    """The server that the variable names, else a simulated one for the block."""
    uri = os.environ.get("CCPR_TARGET_MATRIXONE")
    if uri:
        address, password = parse_target_uri(uri)
        yield MatrixOneServer(address.endpoint.port, address.endpoint.host, address.endpoint.login, password or "")
        return
    with SimulatedUpstream(Storage()) as simulated:
        yield MatrixOneServer(simulated.port)
