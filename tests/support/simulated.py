"""A database of a simulated upstream, and subscriptions to it by the commands that a user would type."""

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql

import ccpr
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri


@dataclass(frozen=True)
class SimulatedSource:
    """
    Attributes
    ----------
    home : parent of the state folder, which the caller's fixture names in CCPR_HOME.
    database : it is published by `p`.
    """

    storage: Storage
    emulator: SimulatedUpstream
    home: Path
    database: str

    @property
    def uri(self) -> str:
        return source_uri(self.emulator.port)

    def subscribe(self, *options: str, name: str = "s", publisher: str = "sys", code: int = 0) -> Any:
        scope = ("--from", self.uri, "--database", self.database, "--publication", "p", "--publisher", publisher)
        return command("subscribe", name, *scope, *options, code=code)

    def mirror_folder(self, name: str = "s") -> Path:
        return self.home / "home" / "mirrors" / name

    def mirror(self, name: str = "s") -> ccpr.Mirror:
        return ccpr.open_mirror(self.mirror_folder(name))


def rows(table: pa.Table) -> Counter:
    """To be compared, in any order."""
    return Counter(map(repr, table.to_pylist()))


def asked_when_idle(emulator: SimulatedUpstream) -> dict[str, int]:
    """What an idle iteration of `s` asks, once everything is flushed: how many statements of each kind."""
    while command("run", "s")["point"]:
        pass
    before = Counter(emulator.status().statements)
    assert not command("run", "s")["point"]
    return dict(Counter(emulator.status().statements) - before)


def run_sql(port: int, database: str, *statements: str, user: str = "dump") -> list[Any]:
    """Run them on a simulated upstream whose password is 111. Returns the rows of the last."""
    login = {"user": user, "password": "111", "database": database}
    with (
        closing(pymysql.connect(host="127.0.0.1", port=port, **login, autocommit=True)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def asked(emulator: SimulatedUpstream, *statements: str, user: str = "acc#admin", seconds: float = 60) -> list[Any]:
    """The rows of the last statement."""
    login: dict[str, Any] = {"user": user, "password": "111", "read_timeout": seconds}
    with (
        closing(pymysql.connect(host="127.0.0.1", port=emulator.port, autocommit=True, **login)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())
