"""A MatrixOne as a target's server: a simulated one, or the one that CCPR_TARGET_MATRIXONE names
(``mysql://user:password@host:port/any``)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from ccpr.schema.choices import Dialect
from ccpr.targets.address import parse_target_uri
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.sql_server import SqlServer


@dataclass(frozen=True)
class MatrixOneServer(SqlServer):
    """A server that runs already."""

    dialect: ClassVar[Dialect] = Dialect.MATRIXONE
    first: ClassVar[str | None] = "SET time_zone = '+00:00'"
    port: int
    host: str = "127.0.0.1"
    user: str = "dump"
    password: str = field(default="111", repr=False)


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
