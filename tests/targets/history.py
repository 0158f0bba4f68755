"""A short history of one table in a database target, repeated by processes that are killed in between.

`sync_target` brings a target to the end of the history from any state, as the product does: it reads where the target
is, and continues from there.
"""

import os
import signal
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pymysql
from pymysql.constants import CR

from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.address import parse_target_uri
from ccpr.targets.base import LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.expected_tables import target_of
from ccpr.targets.loading_connection import LoadingConnection
from tests.targets.target_database import EveryDefinition, Part, source_table

FIRST = (
    "CREATE TABLE `t` (`id` bigint NOT NULL, `v` varchar(20) DEFAULT NULL, PRIMARY KEY (`id`), UNIQUE KEY `u` (`v`))"
)
WIDER = FIRST.replace("DEFAULT NULL,", "DEFAULT NULL, `w` int DEFAULT NULL,")
RENAMED = WIDER.replace("`t`", "`t2`")
KEYS = pa.schema([("id", pa.int64())])
END = Location(4, 50)
AT_THE_END = [(7, "again", None), (8, "new", 8)]


def rows(ids: list[int], texts: list[str | None], numbers: list[int | None] | None = None) -> pa.Table:
    columns: dict[str, pa.Array] = {"id": pa.array(ids, pa.int64()), "v": pa.array(texts, pa.string())}
    return pa.table(columns if numbers is None else columns | {"w": pa.array(numbers, pa.int32())})


def keys(*ids: int) -> pa.Table:
    return pa.table([pa.array(ids, pa.int64())], schema=KEYS)


def sync_target(target: DatabaseTarget, database: str) -> None:
    def table(ddl: str, table_id: int = 1):
        return target_of(source_table(ddl, table_id), target.dialect, database)

    parts = [LoadPart(str(one), lambda one=one: [rows([one, one + 10], [f"a{one}", None])]) for one in range(3)]
    again = LoadPart("again", lambda: [rows([7], ["again"], [None])])
    steps: list[tuple[Location, Callable[[Location], Any]]] = [
        (Location(0, 10), lambda at: target.create(table(FIRST), parts, at)),
        (
            Location(1, 20),
            lambda at: target.apply(
                1, [Part(rows([1, 2], ["a2", "a1"]), keys(10)), Part(rows([5], ["five"]), keys(11))], at
            ),
        ),
        (Location(2, 30), lambda at: widen(target, database, at)),
        (
            Location(3, 40),
            lambda at: target.create(table(RENAMED, 2), [again], at, replaces=[1]),
        ),
        (END, lambda at: target.apply(2, [Part(rows([8], ["new"], [8]), keys())], at)),
    ]
    for location, step in steps:
        if target.global_point() < location:
            target.begin(location)
            step(location)
            target.advance(location)


def widen(target: DatabaseTarget, database: str, at: Location) -> None:
    wider = target_of(source_table(RENAMED), target.dialect, database)
    if target.tables()[1].table.name != wider.name:
        target.alter([wider])  # two statements: RENAME TABLE, and ADD COLUMN
    target.apply(1, [Part(rows([1], ["one"], [1]), keys(0))], at)


class Statements:
    """Counts the statements that connections send. `strike` is called before or after the statement with a number is
    sent. With `lost` all connections end there, and none is answered any more.
    """

    def __init__(
        self,
        number: int | None = None,
        strike: Callable[[], None] = lambda: None,
        *,
        after: bool = False,
        lost: bool = False,
    ) -> None:
        self.count, self.sent = 0, list[str]()
        self._connections: list[LoadingConnection] = []
        self._number, self._strike, self._after, self._lost = number, strike, after, lost

    def __enter__(self) -> "Statements":
        original = LoadingConnection._execute_command

        def counted(connection: LoadingConnection, command: int, sql: Any) -> Any:
            number, self.count = self.count, self.count + 1
            self.sent.append((sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql))[:60])
            if number == self._number and not self._after:
                self._strike()
            lost = self._lost and self._number is not None and number >= self._number
            if not lost or (number == self._number and self._after):
                original(connection, command, sql)
            if number == self._number and self._after:
                self._strike()
            self._connections.append(connection)
            if lost:
                for one in self._connections:
                    one._force_close()
                raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "lost for a test")

        self._patch = patch.object(LoadingConnection, "_execute_command", counted)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sync_and_die(uri: str, database: str, number: int, after: bool) -> None:
    """To be run in a process of its own."""
    address, password = parse_target_uri(uri)
    with (
        Statements(number, kill_me, after=after),
        DatabaseTarget(address, password, "task", own=EveryDefinition()) as target,
    ):
        sync_target(target, database)
