"""`ccpr restore` into a client that does what a MatrixOne does: points, tables, a mirror alone, and what is left when
the connection breaks at any statement."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.schema import Kind
from ccpr.relay import loading
from ccpr.state.pins import OURS, Pins
from tests.relay.conftest import Relayed
from tests.relay.test_follow import pins
from tests.support.native_client import NativeClient

pytestmark = [pytest.mark.long, pytest.mark.recordings]


@pytest.fixture
def client(relayed: Relayed, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.02)
    monkeypatch.setenv("DOWN", "111")
    relayed.replica.run()
    mirror = relayed.workspace.mirror("replica")
    with NativeClient() as client:
        client.definitions = {
            ref.name: mirror.manifest(ref).table for ref in mirror.point().tables.values() if ref.kind is Kind.TABLE
        }
        yield client


def restore(relayed: Relayed, client: NativeClient, *words: str, code: int = 0) -> Any:
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    return relayed.replica.command("restore", *words, "--into", into, code=code)


def test_a_point_becomes_a_database_with_ordinary_tables(relayed: Relayed, client: NativeClient) -> None:
    done = restore(relayed, client, "replica", "--at", "0", "--as", "back")
    assert (done["lsn"], done["database"]) == (0, "back")
    assert done["rows"] > 0
    assert client.tasks == {}, "its subscription is dropped"
    task = client.databases["back"]
    assert task is not None
    texts = [table.text for table in task.tables.values() if table.text]
    assert texts
    assert all(b"from_publication" not in text and text.startswith(b"CREATE TABLE `back`.") for text in texts)
    assert relayed.replica.command("relay", "pins", "replica")["pins"] == [], "the point may expire again"


def test_what_is_pinned_for_a_restore_is_no_login_of_the_relay(
    relayed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, look, names, owners = relayed.workspace.log.engine, loading._task_of, set[str](), set[str | None]()
    of = Pins(engine, relayed.workspace.log.row("replica").task_id)
    foreign = set[str]()

    def looking(*asked: Any) -> Any:
        names.update(pin.name[:13] for pin in of.all())
        owners.update(pin.owner for pin in of.all())
        foreign.update(pin.name for pin in of.seen_by("restore").all())
        return look(*asked)

    monkeypatch.setattr(loading, "_task_of", looking)
    restore(relayed, client, "replica", "--as", "back")
    assert "ccpr_restore_" in names
    assert len(names) == 2, "and those that the other cluster takes"
    assert (owners, foreign) == ({OURS}, set())


def test_nothing_is_loaded_into_a_database_that_exists(relayed: Relayed, client: NativeClient) -> None:
    client.databases["gd_dml"] = None
    error = restore(relayed, client, "replica", code=1)["error"]
    assert error["code"] == "DOWNSTREAM_HAS_DATABASE"
    assert client.databases == {"gd_dml": None}


def test_single_tables_and_a_mirror_alone(relayed: Relayed, client: NativeClient) -> None:
    name = min(client.definitions)
    done = restore(relayed, client, "--mirror", str(relayed.replica.mirror), "--as", "one", "--table", name)
    task = client.databases["one"]
    assert task is not None
    assert {table for table, found in task.tables.items() if found.text} == {name}
    assert done["tables"] == 1
    error = restore(relayed, client, "replica", "--as", "two", "--table", "nothing", code=1)["error"]
    assert error["code"] == "TABLE_NOT_IN_POINT"


def test_a_copy_that_differs_is_not_released(relayed: Relayed, client: NativeClient, monkeypatch: Any) -> None:
    monkeypatch.setattr(client, "count", lambda database, table: 1_000_000)
    error = restore(relayed, client, "replica", "--as", "back", code=1)["error"]
    assert error["code"] == "COPY_DIFFERS"
    assert [task.database for task in client.tasks.values()] == ["back"], "it is still a subscription's"


@pytest.mark.parametrize("after", [False, True])
def test_cut_at_any_statement_and_typed_again_it_is_complete(
    relayed: Relayed, client: NativeClient, after: bool
) -> None:
    restore(relayed, client, "replica", "--as", "whole")
    total = len(client.statements)
    kept = 0
    for number in range(1, total + 1):
        client.databases.clear(), client.tasks.clear(), client.statements.clear()
        client.cut = (number, after)
        first = _code(relayed, client)
        client.cut = None
        client.statements.clear()
        second = _code(relayed, client)
        # It was complete the first time, or is the second time. What has no task any more is never touched.
        assert second == "" or (second == "DOWNSTREAM_HAS_DATABASE" and "back" in client.databases)
        kept += first != ""
        task = client.databases["back"]
        assert task is not None
        assert client.tasks == {}
        assert client.count("back", min(client.definitions)) > 0
    assert kept, "some of the cuts were felt"


def _code(relayed: Relayed, client: NativeClient) -> str:
    import typer.testing

    from ccpr.cli.main import app

    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    words = ["restore", "replica", "--as", "back", "--into", into, "--json"]
    answer = json.loads(typer.testing.CliRunner().invoke(app, words, catch_exceptions=False).stdout)
    return answer["error"]["code"] if "error" in answer else ""


def test_a_password_is_nowhere(relayed: Relayed, client: NativeClient, capfd: Any) -> None:
    restore(relayed, client, "replica", "--as", "back")
    (created,) = [text for text in client.statements if text.startswith("CREATE DATABASE")]
    password = created.partition("restore:")[2].partition("@")[0]
    assert len(password) > 20
    assert password not in capfd.readouterr().err
    for file in Path(relayed.replica.folder / "home").rglob("*"):
        assert not file.is_file() or password.encode() not in file.read_bytes()


def test_one_killed_after_its_last_statement_leaves_no_pin_once_it_is_typed_again(
    relayed: Relayed, client: NativeClient
) -> None:
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    program = [sys.executable, "-m", "ccpr.cli", "restore", "replica", "--as", "back", "--into", into]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    client.on_cut, client.cut_at = process.kill, ("DROP CCPR SUBSCRIPTION", True)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    (left,) = pins(relayed)
    assert [one["snapshot"] for one in relayed.replica.command("relay", "pins", "replica")["pins"]] == [left]
    assert _code(relayed, client) == "DOWNSTREAM_HAS_DATABASE"
    assert pins(relayed) == []
    assert client.count("back", min(client.definitions)) > 0
