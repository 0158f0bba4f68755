"""What is restored counts on: AUTO_INCREMENT begins after the greatest number in the objects."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.schema import Kind, Table
from ccpr.relay import loading
from ccpr.relay.texts import served_text
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.native_client import NativeClient
from tests.support.recordings_location import scenarios
from tests.support.relayed import publication_of_recording
from tests.support.replica import command

pytestmark = pytest.mark.integration

_TABLES = {
    "counted": "id INT AUTO_INCREMENT PRIMARY KEY, v INT",
    "beside": "k INT PRIMARY KEY, n BIGINT UNSIGNED AUTO_INCREMENT",
    "keyless": "v INT",
    "keyed": "id INT PRIMARY KEY",
    "below": "id INT AUTO_INCREMENT PRIMARY KEY",
    "empty": "id INT AUTO_INCREMENT PRIMARY KEY",
}
_ROWS = {
    "counted": ["(v) VALUES (1), (2)", "VALUES (40, 3)"],
    "beside": ["(k) VALUES (5), (6)", "VALUES (7, 18446744073709551615)"],
    "keyless": ["VALUES (7), (7), (7)"],
    "keyed": ["VALUES (9)"],
    "below": ["VALUES (-3)"],
}


@pytest.fixture
def client(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NativeClient]:
    """The tables above, mirrored as `s`; a row of `counted` is deleted."""
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.02)
    monkeypatch.setenv("DOWN", "111")
    storage = Storage()
    storage.create_database("d")
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage, password="111") as emulator:
        connection = pymysql.connect(
            host="127.0.0.1", port=emulator.port, user="sys#dump", password="111", database="d", autocommit=True
        )
        with closing(connection), connection.cursor() as cursor:
            for name, columns in _TABLES.items():
                cursor.execute(f"CREATE TABLE {name} ({columns})")
                for rows in _ROWS.get(name, ()):
                    cursor.execute(f"INSERT INTO {name} {rows}")
            cursor.execute("DELETE FROM counted WHERE id = 40")
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
        command("subscribe", "s", "--from", source, "--database", "d", "--publication", "p")
        command("run", "s")
    with closing(Workspace()) as workspace, NativeClient() as client:
        mirror = workspace.mirror("s")
        client.definitions = {ref.name: mirror.manifest(ref).table for ref in mirror.point().tables.values()}
        yield client


def test_what_is_restored_counts_on(client: NativeClient) -> None:
    command("restore", "s", "--into", f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}", "--as", "back")
    task = client.databases["back"]
    assert task is not None
    texts = {name: table.text.decode() for name, table in task.tables.items() if table.text}
    found = {name: re.findall(r"\) AUTO_INCREMENT = (\d+)", text) for name, text in texts.items()}
    assert found == {
        "counted": ["41"],  # its number 40 was given once
        "beside": ["9223372036854775807"],  # the greatest that a MatrixOne reads
        "keyless": ["4"],
        "keyed": [],
        "below": [],
        "empty": [],
    }


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", [pytest.param(path, id=name) for name, path in scenarios().items()])
def test_nothing_else_of_a_text_changes(scenario: str, recordings: Path, tmp_path: Path) -> None:
    state = publication_of_recording(recordings / scenario, tmp_path / "mirror").shown()
    tables = [table for table in state.tables.values() if table.kind is Kind.TABLE]
    assert tables
    for table in tables:
        served = parse_create_table(served_text(table, table.database, writable=False, next_number=7))
        before = parse_create_table(table.ddl)
        assert served == replace(before, options=(("AUTO_INCREMENT", "7"), *before.options))


def test_a_parenthesis_in_a_string_ends_no_columns() -> None:
    text = "CREATE TABLE `d`.`t` (\n  `a` varchar(9) DEFAULT ')(' COMMENT 'x)',\n  `b)` int NOT NULL\n) COMMENT=')'"
    table = Table(1, 1, "d", "t", Kind.TABLE, (), ddl=text)
    assert served_text(table, "d", writable=True, next_number=3) == text.replace("\n)", "\n) AUTO_INCREMENT = 3")
