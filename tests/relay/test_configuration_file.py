"""Followers in `ccpr.yaml`: applied once, exported, pruned; each key changed. Rows are those of the newest point."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccpr.config.model import FollowerEntry
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.state import followers
from tests.relay.conftest import Relayed
from tests.relay.test_follow import arrived, pins, records
from tests.support.native_client import NativeClient
from tests.support.replica import command, replaying

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


@dataclass
class Setting:
    """A file that says what the state folder is, and besides that a follower."""

    relayed: Relayed
    client: NativeClient
    folder: Path

    @property
    def file(self) -> dict[str, Any]:
        found = self.exported()
        found["subscriptions"]["replica"]["followers"] = {
            "b": {
                "uri": f"mysql://sys#root@127.0.0.1:{self.client.port}",
                "password": "${DOWN}",
                "database": "shop_b",
                "relay_address": f"127.0.0.1:{self.relayed.relay.port}",
            }
        }
        return found

    def exported(self) -> dict[str, Any]:
        return yaml.safe_load(command("config", "export")["text"])

    def apply(self, file: dict[str, Any], *options: str, code: int = 0) -> Any:
        path = self.folder / "ccpr.yaml"
        path.write_text(yaml.safe_dump(file, sort_keys=False))
        return command("config", "apply", "-f", str(path), *options, code=code)

    @property
    def follower(self) -> followers.Follower:
        return records(self.relayed).get("b")


@pytest.fixture
def setting(relayed: Relayed, client: NativeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    for name in command("config", "export")["variables"]:
        monkeypatch.setenv(name, "111")
    monkeypatch.setenv("FOLLOWER_REPLICA_B_PASSWORD", "111")
    return Setting(relayed, client, tmp_path)


def test_a_follower_is_applied_once_exported_and_pruned(setting: Setting, client: NativeClient) -> None:
    file, without = setting.file, setting.exported()
    planned = setting.apply(file, "--dry-run")["plan"]
    assert [(one["action"], one["follower"]) for one in planned] == [("add follower", "b")]
    assert client.tasks == {}
    assert len(setting.apply(file)["done"]) == 1
    arrived(setting.relayed, client)
    before, asked = setting.follower, len(client.statements)
    second = setting.apply(file)
    assert (second["plan"], second["done"], second["unchanged"]) == ([], [], 1)
    assert (setting.follower, len(client.statements)) == (before, asked)
    written = setting.exported()
    (exported,) = written["subscriptions"]["replica"]["followers"].values()
    assert exported == {**file["subscriptions"]["replica"]["followers"]["b"], "password": exported["password"]}
    assert setting.apply(written, "--prune")["plan"] == []
    assert setting.apply(without)["unlisted"] == ["replica.b"]
    (removed,) = setting.apply(without, "--prune", "--yes")["done"]
    assert (removed["action"], removed["follower"]) == ("remove follower", "b")
    assert (client.tasks, records(setting.relayed).all(), pins(setting.relayed)) == ({}, [], [])
    assert set(client.databases) == {"shop_b"}, "it stays there"
    assert setting.apply(without, "--prune")["plan"] == []


def test_a_subscription_that_is_pruned_has_no_follower_any_more(setting: Setting, client: NativeClient) -> None:
    setting.apply(setting.file)
    arrived(setting.relayed, client)
    setting.apply({"subscriptions": {}}, "--prune", "--yes")
    assert (client.tasks, command("subscriptions")) == ({}, [])


@dataclass(frozen=True)
class Case:
    """A key with another value; `changed` is what is shown of it, None if it cannot be changed."""

    value: str
    changed: Callable[[Setting], Any] | None = None
    expected: Any = None


CASES = {
    "uri": Case("mysql://sys#other@127.0.0.1:{port}", lambda it: parse_uri(it.follower.uri)[0].user, "other"),
    "uri (another cluster)": Case("mysql://sys#root@127.0.0.1:1"),
    "password": Case(
        "${{TURNED}}",
        lambda it: it.relayed.workspace.vault.open(it.follower.sealed_password, parse_uri(it.follower.uri)[0]),
        "turned-secret",
    ),
    "database": Case("shop_c"),
    "relay_address": Case("127.0.0.1:1"),
}


def test_every_key_of_a_follower_has_a_case() -> None:
    assert {key.partition(" ")[0] for key in CASES} == set(FollowerEntry.model_fields)


@pytest.mark.parametrize("key", CASES)
def test_a_changed_key_is_changed_once_or_refused(
    key: str, setting: Setting, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, case, name = setting.file, CASES[key], key.partition(" ")[0]
    setting.apply(before)
    arrived(setting.relayed, client, compared=False)
    after = setting.file
    after["subscriptions"]["replica"]["followers"]["b"][name] = case.value.format(port=client.port)
    monkeypatch.setenv("TURNED", "turned-secret")
    if case.changed is None:
        error = setting.apply(after, code=2)["error"]
        assert (error["code"], f"followers.b.{name}" in error["message"]) == ("CONFIG_CONFLICT", True)
        assert setting.apply(before)["plan"] == []
    else:
        client.password = "turned-secret" if name == "password" else "111"
        (step,) = setting.apply(after)["done"]
        assert (step["action"], list(step["changes"])) == ("alter follower", [name])
        assert case.changed(setting) == case.expected
        assert setting.apply(after)["plan"] == []
    setting.relayed.replica.run()
    arrived(setting.relayed, client)
    assert len(client.tasks) == 1


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_one_is_completed_by_the_same_command(
    setting: Setting, client: NativeClient, after: bool
) -> None:
    client.cut_at = ("CREATE DATABASE", after)
    setting.apply(setting.file, code=1)
    assert [one["action"] for one in setting.apply(setting.file)["done"]] == ["add follower"]
    arrived(setting.relayed, client)
    assert len(client.tasks) == 1
    assert setting.apply(setting.file)["plan"] == []


def test_one_that_is_being_promoted_is_left_alone(setting: Setting, client: NativeClient) -> None:
    setting.apply(setting.file)
    records(setting.relayed).change("b", stage=followers.FollowerStage.LOADING.value)
    file = setting.file
    assert setting.apply(file, code=2)["error"]["code"] == "CONFIG_CONFLICT"
    assert setting.follower.stage is followers.FollowerStage.LOADING


def test_without_a_point_it_is_the_step_that_is_left(
    recordings: Path, home: Path, client: NativeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--with-indexes")
        for name in command("config", "export")["variables"]:
            monkeypatch.setenv(name, "111")
        file = yaml.safe_load(command("config", "export")["text"])
        login = {"uri": f"mysql://sys#root@127.0.0.1:{client.port}", "password": "${DOWN}"}
        file["subscriptions"]["replica"]["followers"] = {"b": login}
        path = tmp_path / "ccpr.yaml"
        path.write_text(yaml.safe_dump(file))
        (failed,) = command("config", "apply", "-f", str(path), code=1)["failed"]
        assert failed["error"]["code"] == "FOLLOW_UNFIT"
        assert "ccpr run replica" in failed["error"]["remedy"]
        assert client.tasks == {}
