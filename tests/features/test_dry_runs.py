"""`ccpr config apply --dry-run`: what the servers and places named in a file would answer, with nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccpr.service.workspace import Workspace
from ccpr.state.targets import TargetRecords
from tests.features.test_configuration_file import SECRETS, World, servers, setting
from tests.support.replica import command

__all__ = ["servers", "setting"]


def target(world: World, *, port: int | None = None, database: str = "") -> dict[str, Any]:
    server = world.place.server
    uri = f"mysql://{world.user}@{server.host}:{port or server.port}/{database or world.place.database}"
    return {"uri": uri, "password": "${DOWN}"}


CASES: dict[str, tuple[Callable[[World], dict[str, Any]], str]] = {
    "a target that is away": (lambda world: {"targets": {"db": target(world, port=1)}}, "TARGET_UNAVAILABLE"),
    "a target without the database": (lambda world: {"targets": {"db": target(world, database="no_db")}}, "TARGET_"),
    "a target with another login": (
        lambda world: {"targets": {"db": {**target(world), "password": "${TOKEN}"}}},
        "TARGET_DENIED",
    ),
    "a follower of a subscription that has no point": (
        lambda world: {
            "with_indexes": True,
            "followers": {"b": {"uri": "mysql://sys#root@127.0.0.1:1", "password": "${DOWN}"}},
        },
        "FOLLOW_UNFIT",
    ),
}


def shop(world: World, **parts: Any) -> dict[str, Any]:
    file = world.file
    file["subscriptions"]["shop"].pop("targets")
    file["subscriptions"]["shop"].pop("mirror")
    file["subscriptions"]["shop"] |= parts
    return file


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_new", [True, False])
def test_what_would_fail_is_said_before_anything_is_written(case: str, is_new: bool, setting: World) -> None:
    parts, code = CASES[case]
    with_parts = parts(setting)
    if not is_new:
        setting.apply(shop(setting, **{key: value for key, value in with_parts.items() if key == "with_indexes"}))
    tables = setting.place.query("SHOW TABLES")
    tried = setting.apply(shop(setting, **with_parts), "--dry-run", code=1)
    assert [one["error"]["code"].startswith(code) for one in tried["failed"]] == [True], tried["failed"]
    assert tried["failed"][0]["error"]["remedy"]
    assert setting.place.query("SHOW TABLES") == tables
    assert [one["name"] for one in command("subscriptions")] == ([] if is_new else ["shop"])
    done = setting.apply(shop(setting, **with_parts), code=1)
    assert done["failed"][0]["error"]["code"] == tried["failed"][0]["error"]["code"], "as it is when it is done"


def test_a_lake_has_no_place_in_a_mirror(setting: World) -> None:
    setting.apply(shop(setting))
    with Workspace() as workspace:
        mirror = workspace.mirror("shop", published=False).store.url
    within = shop(setting, lakes={"lake": {"to": f"{mirror}/lake"}})
    assert [one["error"]["code"] for one in setting.apply(within, "--dry-run", code=1)["failed"]] == ["MIRROR_IN_USE"]


def test_what_can_be_done_is_so_in_a_dry_run_too(setting: World, tmp_path: Path) -> None:
    parts = {"targets": {"db": target(setting)}, "lakes": {"lake": {"to": f"file://{tmp_path}/lake"}}}
    assert setting.apply(shop(setting, **parts), "--dry-run")["failed"] == []
    assert not (tmp_path / "lake").exists()
    setting.apply(shop(setting, **parts))
    with Workspace() as workspace:
        assert len(TargetRecords(workspace.log.engine, workspace.log.row("shop").task_id).all()) == 2


def test_a_place_that_is_left_in_the_same_plan_is_free(setting: World, tmp_path: Path) -> None:
    lake = {"to": f"file://{tmp_path}/lake"}
    setting.apply(shop(setting, targets={"db": target(setting)}, lakes={"lake": lake}))
    moved = shop(setting, targets={"other": target(setting)}, lakes={"another": lake})
    assert {one["error"]["code"] for one in setting.apply(moved, "--dry-run", code=1)["failed"]} == {"TARGET_EXISTS"}
    assert setting.apply(moved, "--dry-run", "--prune")["failed"] == []
    assert len(setting.apply(moved, "--prune", "--yes")["done"]) == 4
    assert not [secret for secret in SECRETS.values() if secret in str(command("target", "list", "shop"))]


def test_what_is_dropped_is_asked_too(setting: World) -> None:
    setting.apply(shop(setting, targets={"db": target(setting)}))
    setting.place.query(f"ALTER USER {setting.user}@'%' IDENTIFIED BY 'turned-secret'")
    try:
        less = shop(setting)
        failed = setting.apply(less, "--dry-run", "--prune", code=1)["failed"]
        assert [(one["action"], one["error"]["code"]) for one in failed] == [("remove target", "TARGET_DENIED")]
        less["subscriptions"] = {}
        failed = setting.apply(less, "--dry-run", "--prune", code=1)["failed"]
        assert [(one["action"], one["error"]["code"]) for one in failed] == [("drop subscription", "TARGET_DENIED")]
    finally:
        setting.place.query(f"ALTER USER {setting.user}@'%' IDENTIFIED BY '{SECRETS['DOWN']}'")
