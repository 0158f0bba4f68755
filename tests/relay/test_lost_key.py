"""A key file that was lost, or restored from an older copy, and what gives the logins of a follower again."""

from pathlib import Path
from typing import Any

import pytest

from ccpr.relay.follower_watching import ask
from ccpr.service.workspace import Workspace
from ccpr.state.credentials import Vault
from ccpr.state.followers import FollowerStage, open_login
from tests.relay.conftest import Relayed
from tests.relay.test_follow import arrived, follow, invoke, pins, records
from tests.support.native_client import NativeClient
from tests.support.replica import NAME, source_uri

pytestmark = [pytest.mark.long, pytest.mark.recordings]


def lose(relayed: Relayed, older: bool) -> Path:
    """The key file is lost, or an older one is in its place. Returns where the true one is now."""
    key = relayed.workspace.vault.path
    kept = key.rename(key.with_name("kept"))
    if older:
        Vault(key).seal("", None)
    return kept


def logins() -> dict[str, Any]:
    return next(one for one in invoke("doctor")["checks"] if one["what"] == "stored logins")


@pytest.mark.parametrize("older", [False, True])
def test_the_follower_is_named_and_its_logins_are_made_new(relayed: Relayed, client: NativeClient, older: bool) -> None:
    follow(relayed, client)
    arrived(relayed, client)
    former = records(relayed).get("b")
    lose(relayed, older)
    ask(relayed.workspace, former)
    failing = records(relayed).get("b").failing
    assert failing is not None
    assert (failing.failure.code, failing.failure.subject) == ("FOLLOWER_LOGIN_LOST", "follower b")
    assert "--new-login" in failing.failure.remedy

    relayed.replica.command("alter", NAME, "--from", source_uri(relayed.replica.emulator.port))
    statements, tasks = len(client.statements), dict(client.tasks)
    refused = follow(relayed, client, code=1)["error"]
    assert (refused["code"], refused["subject"]) == ("FOLLOWER_LOGIN_LOST", "follower b")
    assert client.tasks == tasks, "nothing is changed unless it is asked for"
    assert follow(relayed, client, "--new-login", code=4)["error"]["code"] == "NOT_CONFIRMED"

    done = follow(relayed, client, "--new-login", "--yes")
    assert (done["stage"], list(client.tasks)) == ("following", [done["task"]])
    assert statements < len(client.statements)
    assert done["task"] != former.downstream_task
    assert not [one for one in pins(relayed) if former.has_taken(one)]
    relayed.replica.run()
    arrived(relayed, client)
    assert follow(relayed, client)["task"] == done["task"], "the same command goes on again"


def test_the_true_key_file_put_back_is_all_that_it_takes(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    arrived(relayed, client)
    lose(relayed, older=True).rename(relayed.workspace.vault.path)
    relayed.replica.run()
    task = arrived(relayed, client)
    assert follow(relayed, client)["task"] == task.id


@pytest.mark.parametrize("after", [False, True])
def test_making_logins_new_cut_at_any_statement_and_typed_again_is_complete(
    relayed: Relayed, client: NativeClient, after: bool
) -> None:
    follow(relayed, client)
    client.statements.clear()
    follow(relayed, client, "--new-login", "--yes")
    total, felt = len(client.statements), 0
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    words = ["b", "--relay-address", f"127.0.0.1:{relayed.relay.port}", "--new-login", "--yes"]
    for number in range(1, total + 1):
        client.statements.clear()
        client.cut = (number, after)
        felt += "error" in invoke("follower", "add", "replica", "--into", into, *words)
        client.cut = None
        follow(relayed, client, "--new-login", "--yes")
        assert len(client.tasks) == 1
        assert set(client.databases) == {"gd_dml"}
    arrived(relayed, client)
    assert felt


def test_a_cluster_that_was_forgotten_and_came_back_needs_a_new_login(relayed: Relayed, client: NativeClient) -> None:
    follow(relayed, client)
    relayed.replica.command("follower", "remove", "replica", "b", "--force")
    assert follow(relayed, client, code=1)["error"]["code"] == "FOLLOWER_LOGIN_LOST"
    follow(relayed, client, "--new-login", "--yes")
    arrived(relayed, client)
    assert records(relayed).get("b").stage is FollowerStage.FOLLOWING


def test_doctor_lists_every_login_that_is_lost_and_how_it_is_given_again(
    relayed: Relayed, client: NativeClient
) -> None:
    follow(relayed, client)
    relayed.replica.command("relay", "user", "add", "site_c")
    assert logins()["result"] == "ok"
    lose(relayed, older=True)
    lost = logins()
    assert lost["result"] == "failed"
    for what in ("subscription replica", "follower b of replica", "login site_c"):
        assert what in lost["told"]
    for command in ("ccpr alter replica --from", "--new-login", "ccpr login alter site_c"):
        assert command in lost["remedy"]
    relayed.replica.command("alter", NAME, "--from", source_uri(relayed.replica.emulator.port))
    follow(relayed, client, "--new-login", "--yes")
    relayed.replica.command("relay", "user", "drop", "site_c")
    relayed.replica.command("relay", "user", "add", "site_c")
    assert logins()["result"] == "ok"
    with Workspace() as workspace:
        assert open_login(workspace.vault, records(relayed).get("b"))
