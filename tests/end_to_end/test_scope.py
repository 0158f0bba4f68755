"""What of a publisher's database is replicated: temporary tables of sessions, and what a publication covers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from ccpr_cli.main import app
from emulator.engine.storage import Storage
from emulator.simulated_upstream import SimulatedUpstream

TEMPORARY = "__mo_tmp_01a20236be017af18ee594e8713d34a9_shop_t"


@dataclass(frozen=True)
class Source:
    """Database `shop` with tables `a` and `b` of one row each, published by `p`."""

    storage: Storage
    emulator: SimulatedUpstream

    def insert(self, table: str, number: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert("shop", table, {"id": [number]})

    def subscribe(self, name: str = "s", *options: str, code: int = 0) -> Any:
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{self.emulator.port}"
        scope = ("--from", source, "--database", "shop", "--publication", "p", "--publisher", "sys")
        return command("subscribe", name, *scope, *options, code=code)


def command(*words: str, code: int = 0) -> Any:
    result = typer.testing.CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def tables(name: str = "s") -> set[str]:
    return {table["table"] for table in command("tables", name)["tables"]}


@pytest.fixture
def source(home: Path) -> Iterator[Source]:
    storage = Storage()
    storage.create_database("shop")
    for table in ("a", "b"):
        storage.create_table("shop", table, {"id": "int not null"}, primary_key=["id"])
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password="111") as emulator:
        made = Source(storage, emulator)
        made.insert("a", 1)
        made.insert("b", 1)
        yield made


def test_a_temporary_table_of_a_session_is_not_replicated_and_costs_no_iteration(source: Source) -> None:
    source.storage.create_table("shop", TEMPORARY, {"id": "int not null"}, primary_key=["id"])
    entry = source.storage.table("shop", TEMPORARY)
    tick, definition = entry.definitions[-1]
    entry.definitions[-1] = (tick, replace(definition, create_sql="create temporary table t(id int primary key)"))
    source.insert(TEMPORARY, 1)
    source.subscribe()
    assert command("run", "s")["point"]
    assert tables() == {"shop.a", "shop.b"}
    source.insert(TEMPORARY, 2)
    source.insert("a", 2)
    assert command("run", "s")["point"]
    while command("run", "s")["point"]:  # until the emulator has flushed all of it
        pass
    source.insert(TEMPORARY, 3)
    assert not command("run", "s")["point"]
    assert f"2 tables; not replicated: {TEMPORARY} (temporary)" in str(command("doctor", "s"))
