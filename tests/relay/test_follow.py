"""`ccpr follower add` and `remove` with a client that does what a MatrixOne does: its rows are those of the points, and
each command, cut at any statement and typed again, comes to the same end."""

import json
import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from ccpr.service.workspace import Workspace
from ccpr.state.errors import FollowerMissing
from ccpr.state.followers import FollowerRecords, FollowerStage, open_login
from ccpr.state.pins import Pin, Pins
from tests.relay.conftest import Relayed
from tests.support.native_client import NativeClient, NativeTask
from tests.support.relayed import assert_has_point, relaying
from tests.support.replica import replaying
from tests.support.wire_client import Client

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
# Whether a statement has had its effect when the connection breaks; `make relay-kills` takes both.
AFTER = [False, True] if os.environ.get("KILLS") == "all" else [True]


def follow(
    relayed: Relayed, client: NativeClient, *words: str, name: str = "b", code: int = 0, relay: int | None = None
) -> Any:
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    address = f"127.0.0.1:{relayed.relay.port if relay is None else relay}"
    words = ("--into", into, "--relay-address", address, *words)
    return relayed.replica.command("follower", "add", "replica", name, *words, code=code)


def unfollow(relayed: Relayed, *words: str, code: int = 0) -> Any:
    return relayed.replica.command("follower", "remove", "replica", "b", *words, code=code)


def arrived(relayed: Relayed, client: NativeClient, *, compared: bool = True) -> NativeTask:
    """The newest point is there, with its rows."""
    mirror = relayed.workspace.mirror("replica")
    task = client.wait_for(mirror.point().at.physical)
    assert not compared or assert_has_point(client, task, mirror) > 0
    return task


def invoke(*words: str) -> Any:
    """A command that may fail."""
    return json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)


def records(relayed: Relayed) -> FollowerRecords:
    return FollowerRecords(relayed.workspace.log.engine, relayed.workspace.log.row("replica").task_id)


def pins(relayed: Relayed) -> list[str]:
    log = relayed.workspace.log
    return [pin.name for pin in Pins(log.engine, log.row("replica").task_id).all()]


@pytest.mark.parametrize("name", [None, "shop_b"])
def test_a_follower_has_each_point_under_the_name_it_was_given(
    relayed: Relayed, client: NativeClient, name: str | None
) -> None:
    done = follow(relayed, client, *([] if name is None else ["--as", name]))
    assert (done["follower"], done["database"], done["stage"]) == ("b", name or "gd_dml", "following")
    assert done["relay_tried"]
    for _ in range(3):
        assert arrived(relayed, client).database == done["database"]
        relayed.replica.run()
    arrived(relayed, client)
    assert list(client.tasks) == [done["task"]]
    assert all(
        table.text.startswith(b"CREATE TABLE") for table in client.tasks[done["task"]].tables.values() if table.text
    )


def test_a_relay_that_restarts_knows_its_followers(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    arrived(relayed, client)
    port = relayed.relay.port
    relayed.relay.stop()
    relayed.replica.run()
    with closing(Workspace()) as again, relaying(again, port=port):
        arrived(relayed, client)


@pytest.mark.in_turn
def test_two_clusters_follow_one_subscription(relayed: Relayed, client: NativeClient) -> None:
    with NativeClient() as other:
        follow(relayed, client)
        follow(relayed, other, "--as", "shop_c", name="c")
        relayed.replica.run()
        arrived(relayed, client)
        arrived(relayed, other)
        unfollow(relayed)
        relayed.replica.run()
        arrived(relayed, other)
    assert [one.name for one in records(relayed).all()] == ["c"]


@pytest.mark.parametrize("after", AFTER)
def test_following_cut_at_any_statement_and_typed_again_is_complete(
    relayed: Relayed, client: NativeClient, after: bool
) -> None:
    follow(relayed, client)
    total, felt = len(client.statements), 0
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    words = ["b", "--relay-address", f"127.0.0.1:{relayed.relay.port}"]
    for number in range(1, total + 1):
        unfollow(relayed, "--drop-database", "--yes")
        assert (client.tasks, client.databases, records(relayed).all()) == ({}, {}, [])
        client.statements.clear()
        client.cut = (number, after)
        felt += "error" in invoke("follower", "add", "replica", "--into", into, *words)
        client.cut = None
        assert follow(relayed, client)["stage"] == "following"
        arrived(relayed, client, compared=number == total)
        assert len(client.tasks) == 1
    assert felt


@pytest.mark.parametrize("after", AFTER)
def test_unfollowing_cut_at_any_statement_and_typed_again_is_complete(
    relayed: Relayed, client: NativeClient, after: bool
) -> None:
    words = ("follower", "remove", "replica", "b", "--drop-database", "--yes")
    total = number = 0
    while number <= total:
        follow(relayed, client)
        arrived(relayed, client, compared=not number)
        client.statements.clear()
        client.cut = (number, after)  # 0: nowhere
        invoke(*words)
        client.cut = None
        total = total or len(client.statements)
        assert invoke(*words).get("error", {}).get("code") in (None, "FOLLOWER_MISSING")
        assert (client.tasks, client.databases, records(relayed).all(), pins(relayed)) == ({}, {}, [], [])
        number += 1
    assert total >= 3


def test_what_has_ended_is_said_and_its_points_may_expire(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    task = arrived(relayed, client)
    assert pins(relayed)
    login = records(relayed).get("b")
    done = unfollow(relayed)
    assert done["database_left"] == "gd_dml"
    assert done["pins_dropped"] > 0
    assert (pins(relayed), client.tasks) == ([], {})
    assert client.databases["gd_dml"] is task, "its rows stay"
    from ccpr.relay.offers import Logins

    assert Logins(relayed.workspace).digest(login.publication) is None
    assert unfollow(relayed, code=1)["error"]["code"] == "FOLLOWER_MISSING"


def test_a_cluster_that_is_gone_for_good_is_forgotten(relayed: Relayed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOWN", "111")
    with NativeClient() as gone:
        follow(relayed, gone)
        arrived(relayed, gone)
    assert unfollow(relayed, code=1)["error"]["code"] == "UPSTREAM_UNREACHABLE"
    assert unfollow(relayed, "--force")["asked"] is False
    assert (records(relayed).all(), pins(relayed)) == ([], [])


def test_a_snapshot_that_comes_too_late_is_not_taken(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    arrived(relayed, client, compared=False)
    log, point = relayed.workspace.log, relayed.workspace.mirror("replica").point()
    late, now = Pins(log.engine, log.row("replica").task_id, "b"), datetime.now(UTC)
    records(relayed).change("b", stage=FollowerStage.LEAVING.value)
    with pytest.raises(FollowerMissing):
        late.add(Pin("late", point.lsn, point.at.physical, None, now, now))
    unfollow(relayed)
    with pytest.raises(FollowerMissing):
        late.add(Pin("later", point.lsn, point.at.physical, None, now, now))
    assert pins(relayed) == []


# ---- what is refused, and leaves nothing


def refused(relayed: Relayed, client: NativeClient, *words: str, relay: int | None = None) -> str:
    before = records(relayed).all()
    error = follow(relayed, client, *words, code=1, relay=relay)["error"]
    assert records(relayed).all() == before
    assert client.tasks == {}
    return error["code"]


def test_a_database_that_exists_or_that_a_matrixone_cannot_follow(relayed: Relayed, client: NativeClient) -> None:
    client.databases["gd_dml"] = None
    assert refused(relayed, client) == "DOWNSTREAM_HAS_DATABASE"
    assert refused(relayed, client, "--as", "db_shop") == "FOLLOW_UNFIT"
    assert follow(relayed, client, "--as", "other", name="a/b", code=2)["error"]["code"] == "BAD_NAME"
    assert client.databases == {"gd_dml": None}


def test_no_relay_and_another_relay(relayed: Relayed, client: NativeClient, connect: Any) -> None:
    with closing(Workspace()) as workspace, relaying(workspace) as other:
        gone = other.port
    assert refused(relayed, client, relay=gone) == "RELAY_ADDRESS"
    assert refused(relayed, client, relay=client.port) == "RELAY_ADDRESS", "a server that knows no such login"
    assert refused(relayed, client, "--relay-address", "nowhere") == "RELAY_LISTEN"


def test_what_the_cluster_itself_refuses_is_said_in_its_words(
    relayed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccpr.matrixone.server.answers import StatementError

    def refuse(found: Any) -> None:
        raise StatementError(20101, f"internal error: only admin can create subscription {found['password']}")

    monkeypatch.setattr(client, "_subscribe", refuse)
    error = follow(relayed, client, code=1)["error"]
    assert error["code"] == "DOWNSTREAM_REFUSED"
    assert "only admin can create subscription ***" in error["message"]
    assert records(relayed).all() == []


def test_without_index_tables_or_a_point_nobody_can_follow(recordings: Path, home: Path, client: NativeClient) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
        error = replica.command("follower", "add", "replica", "--into", into, code=1)["error"]
        assert (error["code"], "--with-indexes" in error["remedy"]) == ("FOLLOW_UNFIT", True)
        replica.command("drop", "replica")
        replica.subscribe("--with-indexes")
        error = replica.command("follower", "add", "replica", "--into", into, code=1)["error"]
        assert (error["code"], "ccpr run" in error["remedy"]) == ("FOLLOW_UNFIT", True)
        error = replica.command(
            "follower", "add", "replica", "--into", "mysql://acc#root:env:DOWN@127.0.0.1:1", code=1
        )["error"]
        assert error["code"] == "FOLLOW_UNFIT"


def test_another_machine_needs_the_address_of_the_relay(relayed: Relayed) -> None:
    into = "mysql://sys#root:x@b.example.com:6001"
    assert (
        relayed.replica.command("follower", "add", "replica", "--into", into, code=1)["error"]["code"]
        == "RELAY_ADDRESS"
    )


def test_a_name_belongs_to_one_database_of_one_cluster(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    assert follow(relayed, client, "--as", "other", code=1)["error"]["code"] == "FOLLOWER_EXISTS"
    assert relayed.replica.command("drop", "replica", code=1)["error"]["code"] == "FOLLOWER_IN_USE"


def test_a_login_of_a_follower_is_for_it_alone_and_its_password_nowhere(
    relayed: Relayed, client: NativeClient, connect: Any, capfd: Any
) -> None:
    follow(relayed, client)
    arrived(relayed, client)
    follower = records(relayed).get("b")
    password = open_login(relayed.workspace.vault, follower)
    assert len(password) > 20
    session: Client = connect(relayed.relay.port, user=follower.publication, password=password)
    assert session.rows(f"SHOW PUBLICATION COVERAGE `{follower.publication}`")
    assert password not in capfd.readouterr().err
    for file in Path(relayed.replica.folder / "home").rglob("*"):
        assert not file.is_file() or password.encode() not in file.read_bytes()
