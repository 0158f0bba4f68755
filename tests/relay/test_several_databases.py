"""A mirror of several databases: the relay does not serve it, and one of its databases is restored at a time."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ccpr.cli.serve_command import warn_of_relay
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.relay import loading
from ccpr.relay.client_port import Listen
from ccpr.relay.offers import Offers
from ccpr.relay.relay_server import RelayService
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.native_client import NativeClient
from tests.support.replica import command

pytestmark = pytest.mark.integration


@pytest.fixture
def storage(home: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Databases `a`, `b` and `c` with a table `t` each, of other rows, in a mirror; that of `c` has an index."""
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.02)
    monkeypatch.setenv("DOWN", "111")
    storage = Storage()
    for number, database in enumerate(("a", "b", "c")):
        storage.create_database(database)
        storage.create_table(database, "t", {"id": "int not null", "v": "varchar(20)"}, primary_key=["id"])
        with storage.begin() as transaction:
            transaction.insert(database, "t", {"id": [number, 7], "v": [database, f"{database} 7"]})
    storage.create_table("b", "only_b", {"id": "int not null"}, primary_key=["id"])
    storage.create_index("c", "t", "by_v", ["v"])
    storage.create_publication("p", "*")
    with SimulatedUpstream(storage, password="111") as emulator:
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
        command("subscribe", "s", "--from", source, "--account", "sys")
        command("subscribe", "one", "--from", source, "--database", "a", "--publication", "p", "--allow-overlap")
        part = ("--database", "c", "--tables", "t*", "--publication", "p", "--allow-overlap")
        command("subscribe", "part", "--from", source, *part)
        whole = ("--account", "sys", "--with-indexes", "--allow-overlap")
        command("subscribe", "whole", "--from", source, *whole)
        for name in ("s", "part", "whole"):
            command("run", name)
    return storage


def restore(client: NativeClient, *words: str, code: int = 0) -> Any:
    return command("restore", *words, "--into", f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}", code=code)


@pytest.mark.parametrize("of", ["subscription", "mirror"])
def test_one_of_them_is_restored_with_its_rows(storage: Storage, home: Path, of: str) -> None:
    words = ("s",) if of == "subscription" else ("--mirror", str(home / "home" / "mirrors" / "s"))
    with closing(Workspace()) as workspace, NativeClient() as client:
        mirror = workspace.mirror("s")
        refs = [ref for ref in mirror.point().tables.values() if ref.kind is Kind.TABLE]
        client.definitions = {ref.name: mirror.manifest(ref).table for ref in refs}
        error = restore(client, *words, code=1)["error"]
        assert (error["code"], error["remedy"]) == ("SEVERAL_DATABASES", "Name one with --database: a, b, c.")
        done = restore(client, *words, "--database", "b", "--as", "back", "--check", "sum")
        assert (done["database"], done["tables"], done["rows"]) == ("back", 2, 2)
        task = client.databases["back"]
        assert task is not None
        assert {name for name, table in task.tables.items() if table.text} == {"t", "only_b"}
        found = client.rows("back", client.definitions["t"], Timestamp(task.watermark))
        assert Counter(map(repr, found)) == Counter(map(repr, storage.rows_at("b", "t", storage.now).to_pylist()))


@pytest.mark.parametrize("name", ["s", "part"])
def test_a_table_whose_index_tables_are_not_in_the_mirror_is_not_restored(storage: Storage, name: str) -> None:
    """A MatrixOne would create them empty, and find no rows by them."""
    with NativeClient() as client:
        error = restore(client, name, "--database", "c", "--as", "back", code=1)["error"]
        assert (error["code"], error["subject"]) == ("INDEX_TABLES_MISSING", "table c.t")
        assert "with `ccpr subscribe … --with-indexes`" in error["remedy"]
        assert "back" not in client.databases


def test_with_index_tables_one_with_indexes_is_restored(storage: Storage) -> None:
    with closing(Workspace()) as workspace, NativeClient() as client:
        mirror = workspace.mirror("whole")
        refs = [ref for ref in mirror.point().tables.values() if ref.database == "c"]
        (index,) = (mirror.manifest(ref).table for ref in refs if ref.kind is Kind.INDEX)
        client.definitions = {"t": next(mirror.manifest(ref).table for ref in refs if ref.kind is Kind.TABLE)}
        assert restore(client, "whole", "--database", "c", "--as", "back", "--check", "sum")["rows"] == 2
        task = client.databases["back"]
        assert task is not None
        assert task.tables.keys() == {"t", index.name}
        for definition in (client.definitions["t"], index):
            found = client.rows("back", definition, Timestamp(task.watermark))
            expected = storage.rows_at("c", definition.name, storage.now).to_pylist()
            assert len(expected) == 2
            assert Counter(map(repr, found)) == Counter(map(repr, expected))


def test_the_relay_serves_the_others_and_says_so(storage: Storage, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Workspace()) as workspace:
        assert set(Offers(workspace).served()) == {"one", "part"}
        service = RelayService(workspace, Listen.parse("127.0.0.1:0"))
        service.start()
        try:
            warn_of_relay(service)
            relays = {one["name"]: bool(one["relays"]) for one in command("status")}
        finally:
            service.stop()
    assert relays == {"one": True, "part": True, "s": False, "whole": False}
    assert "not served, since they are to several databases: s, whole" in capsys.readouterr().err
