"""`ccpr plan` shows what a run then does, and `ccpr run --plan` does that or nothing (docs/requirements.md B1)."""

import json
from pathlib import Path

import pytest
import typer.testing

from ccpr.cli.main import app
from tests.support.replica import NAME, Replica, replaying
from tests.support.settings import setting
from tests.support.shop import DATABASE, TARGET, Shop, shop

__all__ = ["shop"]


@pytest.mark.parametrize("recording", ["dml", "ddl", "many_tables"])
def test_a_plan_shows_what_the_run_does(recording: str, recordings: Path, home: Path) -> None:
    kinds = set()
    with replaying(recordings / recording, home) as replica:
        replica.subscribe()
        for snapshot in range(1, replica.about.snapshots + 1):
            before = copied_names(replica)
            plan = replica.command("plan", NAME)
            assert copied_names(replica) == before, "a plan copies nothing"
            assert replica.command("plan", NAME)["id"] == plan["id"], "nothing has changed, so it is the same plan"
            outcome = replica.run("--plan", plan["id"])
            assert (outcome["lsn"], outcome["objects_copied"]) == (plan["lsn"], len(copied_names(replica) - before))
            assert plan["objects"] >= outcome["objects_copied"]
            assert plan["bytes"] >= outcome["bytes_copied"]
            assert sum(table["bytes"] for table in plan["tables"]) >= plan["bytes"]
            assert plan["resync"] == ""
            kinds |= {(change["kind"], change["destructive"]) for change in plan["changes"]}
            replica.assert_equal_to_source(snapshot)
            assert len(replica.emulator.status().snapshots) <= 2
    if recording == "ddl":
        assert {("created", False), ("dropped", True), ("rewritten", False)} <= kinds
        assert {kind for kind, destructive in kinds if destructive} <= {"dropped", "truncated", "left_scope"}


def copied_names(replica: Replica) -> set[str]:
    return {path.name for path in (replica.mirror / "objects").glob("*")}


@pytest.fixture
def replica(recordings: Path, home: Path):
    """At its first point."""
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        replica.run()
        yield replica


def assert_outdated(replica: Replica, plan: str) -> None:
    points = replica.command("points", NAME)
    error = replica.run("--plan", plan, code=1)["error"]
    assert error["code"] == "PLAN_OUTDATED"
    assert replica.command("points", NAME) == points
    assert replica.command("subscriptions")[0]["state"] == "idle", "an old plan breaks nothing"


def test_a_plan_that_was_executed_is_outdated(replica: Replica) -> None:
    plan = replica.command("plan", NAME)["id"]
    replica.run()
    assert_outdated(replica, plan)
    replica.assert_equal_to_source(2)


def test_a_plan_whose_snapshot_is_gone_is_outdated(replica: Replica) -> None:
    plan = replica.command("plan", NAME)
    replica.emulator.drop_snapshot(plan["snapshot"])
    assert_outdated(replica, plan["id"])
    replica.run()
    replica.assert_equal_to_source(2)


def test_a_plan_of_other_settings_is_outdated(replica: Replica) -> None:
    plan = replica.command("plan", NAME)["id"]
    setting("with_indexes", True)
    assert_outdated(replica, plan)
    setting("with_indexes", False)
    replica.run("--plan", plan)
    replica.assert_equal_to_source(2)


def test_an_unknown_plan_is_refused(replica: Replica) -> None:
    replica.command("plan", NAME)
    assert_outdated(replica, "0123456789ab")
    replica.run()
    replica.assert_equal_to_source(2)


def test_without_a_planned_iteration_every_plan_is_outdated(replica: Replica) -> None:
    taken = replica.emulator.status().statements["create_snapshot"]
    assert_outdated(replica, "0123456789ab")
    assert replica.emulator.status().statements["create_snapshot"] == taken
    replica.assert_equal_to_source(1)


def test_the_plan_of_a_resync_shows_it_and_running_the_plan_allows_it(replica: Replica) -> None:
    for name in list(replica.emulator.status().snapshots):
        replica.emulator.drop_snapshot(name)
    plan = replica.command("plan", NAME)
    assert "no longer has snapshot" in plan["resync"]
    assert plan["objects"] > 0
    assert replica.run(code=1)["error"]["code"] == "BASE_SNAPSHOT_LOST", "a plain run is not allowed to"
    assert_outdated_or_gone(replica, plan["id"])
    plan = replica.command("plan", NAME)
    outcome = replica.run("--plan", plan["id"])
    assert (outcome["objects_copied"], outcome["bytes_copied"]) == (plan["objects"], plan["bytes"])
    replica.assert_equal_to_source(2)


def assert_outdated_or_gone(replica: Replica, plan: str) -> None:
    """The run that was refused has given up its snapshot; the subscription is in error until the next run."""
    assert replica.run("--plan", plan, code=1)["error"]["code"] == "PLAN_OUTDATED"


def test_a_plan_says_who_does_the_work_and_why(shop: Shop, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add()
    (copy, *loads) = shop.command("plan", shop.name)["work"]
    assert (copy["target"], copy["kind"], copy["by"]) == ("", "copy", "process")
    assert {(one["target"], one["table"], one["kind"], one["by"]) for one in loads} == {
        (TARGET, f"{DATABASE}.{table}", "load", "process") for table in ("a", "b", "still")
    }
    assert all("take it about" in one["why"] and "Spark with its start" in one["why"] for one in loads)
    monkeypatch.setenv("CCPR_SPARK_MASTER", "spark://127.0.0.1:7077")
    (home / "home" / "spark").mkdir()
    rates = {"start": [0.001], f"load process {shop.place.address.endpoint.address}": [1]}
    (home / "home" / "spark" / "rates.json").write_text(json.dumps(rates))
    copy, *loads = shop.command("plan", shop.name)["work"]
    assert {one["by"] for one in loads} == {"cluster"}
    shown = typer.testing.CliRunner().invoke(app, ["plan", shop.name], env={"COLUMNS": "200"}).stdout
    assert "Spark copies: it runs on spark://127.0.0.1:7077" in shown
    assert f"target {TARGET}, {DATABASE}.a: Spark loads: " in shown
