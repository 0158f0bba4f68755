"""A client of the emulator that returns what is on the wire: bytes, column names, type codes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.support.ci import UNDER_CI
from tests.support.recordings_location import recordings_folder


@dataclass
class Client:
    """One connection. `answer` returns (column names, type codes, rows), `rows` the rows only, `error` the (number,
    text) of an error."""

    connection: Any

    def answer(self, sql: str) -> tuple[list[str], list[int], list[tuple[bytes | None, ...]]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            described = cursor.description or ()
            return [column[0] for column in described], [column[1] for column in described], list(cursor.fetchall())

    def rows(self, sql: str) -> list[tuple[bytes | None, ...]]:
        return self.answer(sql)[2]

    def one(self, sql: str) -> bytes | None:
        ((cell,),) = self.rows(sql)
        return cell

    def error(self, sql: str) -> tuple[int, str]:
        with pytest.raises(pymysql.MySQLError) as caught:
            self.rows(sql)
        return caught.value.args[0], caught.value.args[1]


Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(port, user=…, password=…)`: a client, closed at the end of the test."""
    opened: list[Any] = []

    def _connect(port: int, user: str = "root", password: str = "any", **options: Any) -> Client:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=port,
            user=user,
            password=password,
            use_unicode=False,
            conv={},
            autocommit=True,
            connect_timeout=60,
            read_timeout=60,
            max_allowed_packet=256 << 20,
            **options,
        )
        opened.append(connection)
        return Client(connection)

    yield _connect
    for connection in opened:
        if connection.open:
            connection.close()


def scenario_names() -> list[str]:
    """The names of the recordings; ["none"] without recordings, so that the `recordings` fixture can skip (or fail
    under CI=true)."""
    folder = recordings_folder()
    return sorted(path.parent.name for path in folder.glob("*/about.json")) if folder is not None else ["none"]


def folder_of(recordings: Path, name: str, snapshots: int = 1) -> Path:
    """A scenario's folder with at least so many snapshots. If a small sample lacks it the test is skipped, but never
    under CI=true."""
    folder = recordings / name
    if not (folder / f"snapshot-{snapshots:03}").is_dir() and not UNDER_CI:
        pytest.skip(f"the recordings at hand have no {name} with {snapshots} snapshots")
    return folder


def recorded(path: Path) -> tuple[list[str], list[int], list[tuple[bytes | None, ...]]]:
    """A recorded answer in the form of `Client.answer`."""
    return as_answer(json.loads(path.read_text(encoding="utf-8")))


def as_answer(value: dict[str, Any]) -> tuple[list[str], list[int], list[tuple[bytes | None, ...]]]:
    return value["columns"], value["mysql_types"], [tuple(_cell(cell) for cell in row) for row in value["rows"]]


def _cell(value: Any) -> bytes | None:
    if value is None:
        return None
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else str(value).encode()
