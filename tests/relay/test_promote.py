"""`ccpr follower promote`: a follower becomes a writable database with the rows of the last whole point, also if the
command is killed at any statement that changes something, and at no moment is there no whole copy."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from ccpr.matrixone.schema import Kind
from ccpr.matrixone.server.answers import StatementError
from ccpr.relay import loading
from ccpr.state.followers import FollowerStage
from tests.relay.conftest import Relayed
from tests.relay.test_follow import AFTER, arrived, follow, pins, records, unfollow
from tests.support.native_client import NativeClient
from tests.support.relayed import assert_has_point

pytestmark = [pytest.mark.long, pytest.mark.recordings]
CHANGES = (
    "CREATE DATABASE `gd_dml_promoted` FROM",
    "DROP CCPR SUBSCRIPTION",  # the copy's
    "DROP DATABASE IF EXISTS `gd_dml`",
    "CREATE DATABASE `gd_dml` CLONE `gd_dml_promoted`",
    "DROP DATABASE IF EXISTS `gd_dml_promoted`",
)


@pytest.fixture
def followed(relayed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch) -> Relayed:
    """The follower b is at the newest point, the second."""
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.02)
    relayed.replica.run()
    mirror = relayed.workspace.mirror("replica")
    client.definitions = {
        ref.name: mirror.manifest(ref).table for ref in mirror.point().tables.values() if ref.kind is Kind.TABLE
    }
    follow(relayed, client)
    arrived(relayed, client, compared=False)
    return relayed


def promote(followed: Relayed, *words: str, code: int = 0) -> Any:
    return followed.replica.command("follower", "promote", "replica", "b", *words, code=code)


def assert_promoted(followed: Relayed, client: NativeClient, database: str = "gd_dml") -> None:
    """An ordinary database with the rows of the newest point, and nothing else is left."""
    assert set(client.databases) == {database}
    assert (client.tasks, records(followed).all(), pins(followed)) == ({}, [], [])
    copy = client.databases[database]
    assert copy is not None
    assert assert_has_point(client, copy, followed.workspace.mirror("replica")) > 0
    assert not any(b"from_publication" in table.text for table in copy.tables.values())


def test_a_follower_becomes_a_writable_database(followed: Relayed, client: NativeClient) -> None:
    newest = followed.workspace.mirror("replica").point()
    done = promote(followed, "--check", "count")
    assert (done["database"], done["lsn"], done["at"]) == ("gd_dml", newest.lsn, newest.at.physical)
    assert 0 <= done["age_seconds"] < 300
    assert done["points_missed"] == 0
    assert done["loaded"]["rows"] > 0
    assert_promoted(followed, client)
    assert promote(followed, code=1)["error"]["code"] == "FOLLOWER_MISSING"


def test_it_may_get_another_name(followed: Relayed, client: NativeClient) -> None:
    assert promote(followed, "--as", "shop_new")["database"] == "shop_new"
    assert_promoted(followed, client, "shop_new")
    assert not any("CLONE" in text for text in client.statements)


def test_neither_the_source_nor_the_relay_is_needed(followed: Relayed, client: NativeClient) -> None:
    followed.relay.stop()
    asked = followed.replica.emulator.status().sessions_opened
    promote(followed)
    assert followed.replica.emulator.status().sessions_opened == asked
    assert_promoted(followed, client)


def test_the_follower_stays_if_the_copy_differs(
    followed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = client.count
    monkeypatch.setattr(client, "count", lambda database, table: count(database, table) + 1)
    assert promote(followed, code=1)["error"]["code"] == "COPY_DIFFERS"
    assert "gd_dml" in client.databases
    assert records(followed).get("b").stage is FollowerStage.LOADING
    assert follow(followed, client)["stage"] == "following", "it may be given up"
    monkeypatch.setattr(client, "count", count)
    promote(followed)
    assert_promoted(followed, client)


@pytest.mark.parametrize("after", AFTER)
def test_killed_at_any_change_and_typed_again_it_is_promoted(
    followed: Relayed, client: NativeClient, after: bool
) -> None:
    mirror = followed.workspace.mirror("replica")
    for number, statement in enumerate(CHANGES):
        if number:
            follow(followed, client)
            arrived(followed, client, compared=False)
        killed(client, statement, after=after)
        copies = [copy for copy in client.databases.values() if copy is not None and copy.watermark]
        assert assert_has_point(client, copies[0], mirror), "a whole copy is there"
        promote(followed)
        assert_promoted(followed, client)
        client.databases.clear()


def test_what_is_begun_is_not_unfollowed_and_keeps_its_name(
    followed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        refuse(client, patched, "DROP DATABASE IF EXISTS `gd_dml`")
        assert promote(followed, code=1)["error"]["code"] == "STATEMENT_UNKNOWN"
    assert unfollow(followed, "--drop-database", "--yes", code=1)["error"]["code"] == "FOLLOW_UNFIT"
    assert follow(followed, client, code=1)["error"]["code"] == "FOLLOWER_EXISTS"
    assert promote(followed, "--as", "third", code=2)["error"]["code"] == "BAD_SETTING"
    assert followed.replica.command("status", "replica")["followers"][0]["state"] == "loaded"
    promote(followed)
    assert_promoted(followed, client)


def refuse(client: NativeClient, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """The statements with these words are unknown there."""
    answer = client._answer

    def answered(text: str) -> Any:
        if words in text:
            raise StatementError(1064, f"You have an error in your SQL syntax near {words}", "42000")
        return answer(text)

    monkeypatch.setattr(client, "_answer", answered)


def test_without_clone_the_copy_keeps_its_name(
    followed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(client, monkeypatch, "CLONE")
    error = promote(followed, code=1)["error"]
    assert error["code"] == "DOWNSTREAM_REFUSED"
    assert "--as gd_dml_promoted" in error["remedy"]
    assert promote(followed, "--as", "gd_dml_promoted")["database"] == "gd_dml_promoted"
    assert_promoted(followed, client, "gd_dml_promoted")


def test_one_whose_follow_was_killed_before_it_knew_the_database(followed: Relayed, client: NativeClient) -> None:
    """A question to its cluster completes the row, but for the number."""
    records(followed).change("b", database_id=None)
    promote(followed)
    assert_promoted(followed, client)
    assert any(text.startswith("DROP DATABASE IF EXISTS `gd_dml`") for text in client.statements)


# ---- what somebody makes in that cluster meanwhile is never dropped


@pytest.mark.parametrize("statement", CHANGES[2:4])
def test_a_database_that_somebody_made_under_the_name_meanwhile_stays(
    followed: Relayed, client: NativeClient, statement: str
) -> None:
    """Killed when the follower's database is gone, or its clone is about to be made."""
    killed(client, statement, after=statement.startswith("DROP"))
    client.databases["gd_dml"] = None
    for _ in range(2):
        error = promote(followed, code=1)["error"]
        assert (error["code"], "--as gd_dml_promoted" in error["remedy"]) == ("DOWNSTREAM_HAS_DATABASE", True)
        assert set(client.databases) == {"gd_dml", "gd_dml_promoted"}
    assert promote(followed, "--as", "gd_dml_promoted")["database"] == "gd_dml_promoted"
    assert client.databases.pop("gd_dml", 0) is None
    assert_promoted(followed, client, "gd_dml_promoted")


def test_a_database_that_somebody_made_under_the_copys_name_stays(followed: Relayed, client: NativeClient) -> None:
    killed(client, CHANGES[4], after=True)
    client.databases["gd_dml_promoted"] = None
    assert promote(followed)["database"] == "gd_dml"
    assert client.databases.pop("gd_dml_promoted", 0) is None
    assert_promoted(followed, client)


def test_a_clone_that_was_written_to_before_the_command_was_typed_again_stays_and_so_does_the_copy(
    followed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(client, CHANGES[3], after=True)
    count = client.count
    written = lambda database, table: count(database, table) + (database == "gd_dml")  # noqa: E731
    monkeypatch.setattr(client, "count", written)
    assert promote(followed, code=1)["error"]["code"] == "DOWNSTREAM_HAS_DATABASE"
    assert set(client.databases) == {"gd_dml", "gd_dml_promoted"}


@pytest.mark.parametrize("after", [False, True])
def test_unfollowing_killed_at_its_drop_drops_nobody_elses_database(
    followed: Relayed, client: NativeClient, after: bool
) -> None:
    words = ["follower", "remove", "replica", "b", "--drop-database", "--yes"]
    killed(client, CHANGES[2], after=after, words=words)
    client.databases["gd_dml"] = None
    assert unfollow(followed, "--drop-database", "--yes")["database_left"] is None
    assert client.databases == {"gd_dml": None}


def killed(client: NativeClient, statement: str, *, after: bool, words: list[str] | None = None) -> None:
    """The command is killed at a statement of that cluster: before it, or after its effect."""
    program = [sys.executable, "-m", "ccpr.cli", *(words or ["follower", "promote", "replica", "b"])]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    client.on_cut, client.cut_at = process.kill, (statement, after)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
