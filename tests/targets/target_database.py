"""A database of a test's own as a target, and tables for it."""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.schema import FAKE_KEY, Column, Kind, SqlType, Table
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.targets.address import Address, format_target_uri, parse_target_uri
from ccpr.targets.base import LoadPart, TargetTable
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.expected_tables import ExpectedTables, target_of
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import MatrixOneServer

TargetServer: TypeAlias = MariaDb | MatrixOneServer
_names = itertools.count()


@dataclass(frozen=True)
class Part:
    """Rows of a change, as `ccpr.mirror.delta.split.DeltaPart` has them."""

    upserts: pa.Table
    deletes: pa.Table = field(default_factory=lambda: pa.table({}))
    replaced: int | None = None


class EveryDefinition(ExpectedTables):
    """As if a subscription's history had every table that `source_table` has made until now."""

    made: ClassVar[set[Table]] = set()

    @property
    def _sources(self) -> frozenset[Table]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset(self.made)

    @property
    def _names(self) -> frozenset[tuple[int, str]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset((table.logical_id, table.name) for table in self.made)


@dataclass(frozen=True)
class Place:
    """An empty database of a server."""

    server: TargetServer = field(repr=False)
    database: str
    address: Address

    def target(self, task_id: str = "task", **options: Any) -> DatabaseTarget:
        return DatabaseTarget(self.address, self.server.password, task_id, own=EveryDefinition(), **options)

    def table(self, ddl: str, table_id: int = 1) -> TargetTable:
        """The table of this database for one of the source."""
        return target_of(source_table(ddl, table_id), self.server.dialect, self.database)

    @property
    def uri(self) -> str:
        """With the password."""
        return format_target_uri(self.address, self.server.password)

    def query(self, sql: str, arguments: Sequence[object] | None = None, **options: Any) -> list[tuple[Any, ...]]:
        with closing(self.server.connect(self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.query(f"SELECT * FROM {quote_name(name)}"), key=repr)


@contextmanager
def new_database(server: TargetServer) -> Iterator[Place]:
    name = f"target_{os.getpid()}_{next(_names)}"  # processes share the server
    server.create_database(name)
    address, _ = parse_target_uri(f"mysql://{server.user}:x@{server.host}:{server.port}/{name}")
    yield Place(server, name, address)
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {quote_name(name)}")


def source_table(ddl: str, table_id: int = 1) -> Table:
    """The table that a CREATE TABLE text of MatrixOne makes, as its catalog has it."""
    create = parse_create_table(ddl)
    columns = []
    for number, column in enumerate(create.columns):
        kind = column.type.sql_type or SqlType(67)
        columns.append(Column(column.name, number, kind, False, column.type.members, column.nullable))
    if not create.primary_key:
        columns.append(Column(FAKE_KEY, len(columns), SqlType(28, 64, -1), True, (), False))
    table = Table(table_id, table_id, create.database or "src", create.name, Kind.TABLE, tuple(columns), ddl)
    EveryDefinition.made.add(table)
    return table


def load_part(ids: list[int], texts: list[str | None], key: str = "all") -> LoadPart:
    """A piece of a load of the columns `id` and `v`."""
    columns = {"id": pa.array(ids, pa.int64()), "v": pa.array(texts, pa.string())}
    return LoadPart(key, lambda: [pa.table(columns)])
