"""A simulated upstream with three tables, subscribed to, and a database as its target."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.service.workspace import Workspace
from ccpr.state.history import PointHistory
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.mariadb import MariaDb, uri_from
from tests.support.replica import command, source_uri
from tests.support.target_rows import target_rows
from tests.targets.target_database import Place, new_database

NAME, TARGET, DATABASE = "shop", "db", "d"


class TargetCommands:
    """A subscription with a database as its target, and what a test does with that by the commands of `ccpr`."""

    name: str
    place: Place

    def command(self, *words: str, code: int | None = None) -> Any:
        """The JSON document of a command, which ends with that exit code; None = the one of success."""
        raise NotImplementedError

    def add(self, *options: str, policy: str = "full", code: int = 0) -> Any:
        words = ["target", "add", self.name, TARGET, "--to", self.to, "--ddl-policy", policy]
        return self.command(*words, *options, code=code)

    @property
    def to(self) -> str:
        """The target's URI, with the name of the password's variable."""
        return uri_from(self.place.uri, "TARGET_PASSWORD")

    def run(self, code: int | None = None) -> dict[str, Any]:
        """What the run did to the target."""
        (outcome,) = self.command("run", self.name, code=code)["targets"]
        return outcome

    def status(self, code: int = 0) -> dict[str, Any]:
        (target,) = self.command("status", self.name, code=code)["targets"]
        return target

    def tables(self) -> set[str]:
        return {name for (name,) in self.place.query("SHOW TABLES") if not name.startswith("ccpr_")}

    def create_text(self, name: str) -> str:
        return self.place.query(f"SHOW CREATE TABLE {quote_name(name)}")[0][1]


def source_tables(name: str) -> dict[str, Table]:
    """The tables of a subscription's newest point, by name."""
    with Workspace() as workspace:
        row = workspace.log.row(name)
        points = PointHistory(workspace.log.engine, row.task_id).tables(row.iteration_lsn).values()
        return {point.table.name: point.table for point in points if point.table.kind is Kind.TABLE}


@dataclass(frozen=True)
class Shop(TargetCommands):
    """Tables `a`, `b` (without key) and `still`, subscribed to, with a database as the target."""

    storage: Storage
    port: int
    place: Place
    name: str = NAME

    def command(self, *words: str, code: int | None = None) -> Any:
        return command(*words, code=code)

    @property
    def source(self) -> str:
        return source_uri(self.port)

    def subscribe(self) -> None:
        scope = ["--database", DATABASE, "--publication", "p", "--publisher", "sys"]
        self.command("subscribe", NAME, "--from", self.source, *scope)

    def actions(self) -> dict[str, tuple[str, int]]:
        """Action and rows written, of each table that the run touched."""
        outcome = self.run()
        assert (outcome["error"], outcome["behind"]) == (None, [])
        return {table["table"].partition(".")[2]: (table["action"], table["upserted"]) for table in outcome["tables"]}

    def insert(self, table: str, *numbers: int, **more: Any) -> None:
        with self.storage.begin() as transaction:
            transaction.insert(DATABASE, table, {"n": list(numbers), "v": [f"v{number}" for number in numbers], **more})

    def assert_equal(self, *, but: tuple[str, ...] = ()) -> None:
        tables = source_tables(NAME)
        names = {definition.name for _, definition in self.storage.tables_at(self.storage.now)}
        assert self.tables() == names
        for name in names - {*but}:
            found = target_rows(self.place.server, self.place.database, name, tables[name].user_columns)
            assert _rows(found) == _rows(self.storage.rows_at(DATABASE, name, self.storage.now)), name


def _rows(table: pa.Table) -> Counter:
    """MariaDB has no -0: it stores 0."""
    columns = [pc.add(column, 0.0) if pa.types.is_floating(column.type) else column for column in table.columns]
    return Counter(map(repr, pa.table(columns, table.column_names).to_pylist()))


@pytest.fixture
def shop(home: Path, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    columns = {"n": "int not null", "v": "varchar(20)"}
    for name, key in (("a", ["n"]), ("b", []), ("still", ["n"])):
        storage.create_table(DATABASE, name, columns, primary_key=key)
    with SimulatedUpstream(storage) as emulator, new_database(mariadb) as place:
        shop = Shop(storage, emulator.port, place)
        for name in ("a", "b", "still"):
            shop.insert(name, *range(100))
        shop.subscribe()
        yield shop
