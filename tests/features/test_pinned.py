"""A point that another cluster has pinned through the relay is not taken from under it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccpr.mirror.errors import PointGone
from ccpr.service.workspace import Workspace
from ccpr.state.pins import Pin, Pins
from tests.support.replica import NAME, Replica, command, replaying

PINNED = "ccpr_of_another_cluster_1"


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    """With a point, pinned by a cluster that subscribes by hand."""
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        pin(PINNED)
        yield replica


def pin(name: str, task_id: str | None = None) -> None:
    with Workspace() as workspace:
        point = workspace.mirror(NAME).point(0)
        pins = Pins(workspace.log.engine, task_id or workspace.log.row(NAME).task_id)
        pins.add(Pin(name, point.lsn, point.at.physical, None, datetime.now(UTC), datetime.now(UTC)))


def refusal(document: Any) -> dict[str, str]:
    error = document.get("error") or document["failed"][0]["error"]
    assert error["code"] == "POINTS_PINNED"
    assert PINNED in error["subject"]
    assert "relay pins" in error["remedy"]
    assert "--force" in error["remedy"]
    return error


@pytest.mark.parametrize(
    "words",
    [
        ("drop", NAME),
        ("drop", NAME, "--purge", "--yes"),
        ("sql", f"DROP SUBSCRIPTION {NAME}"),
        ("sql", f"DROP SUBSCRIPTION {NAME} PURGE", "--yes"),
    ],
)
def test_a_subscription_with_a_pinned_point_is_not_dropped(replica: Replica, words: tuple[str, ...]) -> None:
    refusal(command(*words, code=1))
    assert command("verify", NAME)["sound"]
    assert [one["snapshot"] for one in command("relay", "pins", NAME)["pins"]] == [PINNED]
    replica.run()
    replica.assert_equal_to_source(2)


def test_a_file_without_it_does_not_drop_it_either(replica: Replica) -> None:
    file = replica.folder / "ccpr.yaml"
    file.write_text(yaml.safe_dump({"subscriptions": {}}))
    refusal(command("config", "apply", "-f", str(file), "--prune", "--yes", code=1))
    assert [one["name"] for one in command("subscriptions")] == [NAME]
    command("relay", "pins", NAME, "--drop", PINNED)
    command("config", "apply", "-f", str(file), "--prune", "--yes")
    assert command("subscriptions") == []


@pytest.mark.parametrize("options", [(), ("--purge", "--yes")])
def test_a_forced_drop_forgets_what_is_pinned(replica: Replica, options: tuple[str, ...]) -> None:
    with Workspace() as workspace:
        task_id = workspace.log.row(NAME).task_id
    command("drop", NAME, "--force", *options)
    with Workspace() as workspace:
        assert Pins(workspace.log.engine, task_id).all() == []
    assert replica.mirror.exists() != bool(options)
    assert command("drop", NAME, "--purge", "--yes")["purged"]


def test_nothing_is_pinned_any_more_once_the_subscription_is_dropped(replica: Replica) -> None:
    with Workspace() as workspace:
        pins, point = Pins(workspace.log.engine, workspace.log.row(NAME).task_id), workspace.mirror(NAME).point(0)
        pins.drop(PINNED)
        command("drop", NAME)
        with pytest.raises(PointGone, match="has been dropped"):
            pins.add(Pin("late", point.lsn, point.at.physical, None, datetime.now(UTC), datetime.now(UTC)))
