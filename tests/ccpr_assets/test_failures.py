"""What stops an iteration in Dagster: the failed check or step says why and what to do, no later step runs, and no
lease is left held."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ccpr.dagster.checks import FAILURE_SAMPLE, FAILURES
from ccpr.dagster.replication import as_failure
from ccpr.pipeline.driver import drive
from ccpr.pipeline.errors import BadObjectList
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.step_names import Stage
from ccpr.service.workspace import Workspace
from ccpr.state.errors import SubscriptionBusy
from ccpr_emulator.serving.faults import CutObjectList
from tests.support.dagster_fixtures import Sync
from tests.support.lost_objects import losing_objects
from tests.support.replica import Replica, replaying

pytestmark = pytest.mark.recordings


@pytest.fixture
def replica(recordings: Path, home: Path):
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        yield replica


@pytest.fixture
def damaged(recordings: Path, home: Path):
    """An upstream whose first object list names an object from the future."""
    folder = home / "other_account"
    shutil.copytree(recordings / "other_account", folder)
    file = folder / "snapshot-001" / "object_list.json"
    stored = json.loads(file.read_text())
    stored["rows"][0][stored["columns"].index("create_at")] = "2795223737685082390-0"
    file.write_text(json.dumps(stored))
    with replaying(folder, home) as replica:
        replica.subscribe()
        yield replica


def materialized(result: dg.ExecuteInProcessResult) -> list[str]:
    return [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()]


def failure(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Description and metadata of the one failed step."""
    assert not result.success
    (event,) = [event for event in result.all_events if event.is_step_failure]
    shown = event.step_failure_data.user_failure_data
    assert shown is not None
    return {**{name: value.value for name, value in shown.metadata.items()}, "description": shown.description}


@pytest.mark.parametrize("asset", ["catalog_ddl", "object_diffs", "copied_objects", "applied_tables"])
def test_a_later_step_alone_takes_those_before_it(asset: str, replica: Replica, sync: Sync) -> None:
    result = sync([asset])
    assert (result.success, materialized(result)) == (True, [asset])
    assert len(replica.command("points", "replica")) == (asset == "applied_tables")
    if asset != "applied_tables":
        assert replica.run()["point"], "it goes on with the open iteration"
    assert replica.emulator.status().statements["create_snapshot"] == 1
    replica.assert_equal_to_source(1)


def test_a_step_goes_on_from_the_open_iteration(replica: Replica, sync: Sync) -> None:
    assert sync(["upstream_snapshots"]).success
    assert sync(["applied_tables"]).success
    assert replica.emulator.status().statements["create_snapshot"] == 1
    replica.assert_equal_to_source(1)


def test_an_open_iteration_whose_snapshot_was_dropped_upstream_is_given_up(replica: Replica, sync: Sync) -> None:
    assert sync(["upstream_snapshots"]).success
    (name,) = replica.emulator.status().snapshots
    replica.emulator.drop_snapshot(name)
    assert sync(["catalog_ddl"]).success, "with a new snapshot"
    assert replica.run()["point"]
    replica.assert_equal_to_source(2)


def test_a_bad_object_list_fails_its_check_and_nothing_is_copied(damaged: Replica, sync: Sync) -> None:
    result = sync()
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed, check.blocking, check.partition) == (
        "object_list_valid",
        False,
        True,
        "replica",
    )
    shown = {name: value.value for name, value in check.metadata.items()}
    assert shown[FAILURES] == 1
    assert [record.data["check"] for record in shown[FAILURE_SAMPLE].records] == ["nothing later than the snapshot"]
    assert failure(result)["code"] == "OBJECT_LIST_INVALID"
    assert materialized(result) == ["upstream_snapshots", "catalog_ddl"]
    status = damaged.emulator.status()
    assert status.objects_fetched == 0
    assert not status.snapshots, "the snapshot was given up"
    row = damaged.command("subscriptions")[0]
    assert (row["state"], row["iteration_lsn"]) == ("stopped", 0)
    assert damaged.command("points", "replica") == []


def test_a_transient_failure_is_logged_once_and_the_next_run_goes_on(replica: Replica, sync: Sync, monkeypatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    replica.run()
    replica.emulator.inject(CutObjectList(after_rows=2, times=0))
    assert failure(sync())["code"] == "CONNECTION_LOST"
    with closing(Workspace()) as workspace:
        row = workspace.log.row("replica")
    assert row.error_message is not None
    assert row.error_message.startswith("R:1:")
    assert row.lease_expires_at == 0
    replica.emulator.clear_faults()
    assert sync(["object_diffs"]).success, "in another run, on the iteration that the failed run left open"
    assert replica.run()["point"]
    assert replica.emulator.status().statements["create_snapshot"] == 2
    replica.assert_equal_to_source(2)


def test_an_error_that_nothing_expects_is_in_the_log_too_and_the_next_run_goes_on(
    replica: Replica, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(iteration: Iteration, record: IterationRecord) -> None:
        raise OverflowError("a number of 20 digits")

    with monkeypatch.context() as patched:
        patched.setattr("ccpr.pipeline.driver.diff_catalog", broken)
        assert failure(sync())["code"] == "UNEXPECTED"
    with closing(Workspace()) as workspace:
        row = workspace.log.row("replica")
    assert (row.error_message or "").startswith("R:1:")
    assert row.lease_expires_at == 0
    assert replica.run()["point"]
    replica.assert_equal_to_source(1)


def test_a_copied_object_that_is_missing_fails_its_check(replica: Replica, sync: Sync) -> None:
    with closing(Workspace()) as workspace, workspace.iteration("replica") as iteration:
        drive(iteration, until=Stage.COPY)
    objects = replica.folder / "home" / "mirrors" / "replica" / "objects"
    gone = next(objects.iterdir())
    gone.unlink()
    result = sync(["copied_objects", "applied_tables"])
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("objects_stored", False)
    assert [record.data["object"] for record in check.metadata[FAILURE_SAMPLE].value.records] == [gone.name]
    assert failure(result)["code"] == "MIRROR_DAMAGED"
    assert materialized(result) == []
    replica.run()  # with a new snapshot
    replica.assert_equal_to_source(2)


def test_a_copied_object_that_is_not_in_the_store_fails_its_check_and_makes_no_point(
    replica: Replica, sync: Sync
) -> None:
    with losing_objects() as lost:
        result = sync()
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in checks.items()} == {
        "object_list_valid": True,
        "objects_stored": False,
    }
    shown = checks["objects_stored"].metadata
    assert [record.data["object"] for record in shown[FAILURE_SAMPLE].value.records] == lost
    assert (failure(result)["code"], failure(result)["subject"]) == ("MIRROR_DAMAGED", f"object {lost[0]}")
    assert materialized(result) == ["upstream_snapshots", "catalog_ddl", "object_diffs"]
    assert replica.command("points", "replica") == []
    assert sync().success, "with a new snapshot"
    replica.assert_equal_to_source(2)


def test_a_subscription_that_another_executor_runs_is_busy(replica: Replica, sync: Sync) -> None:
    with closing(Workspace()) as other, other.iteration("replica"):
        assert failure(sync())["code"] == "SUBSCRIPTION_BUSY"
    assert sync(["upstream_snapshots"]).success


def test_only_failures_that_may_pass_by_themselves_are_retried() -> None:
    assert as_failure(SubscriptionBusy("taken", subject="s")).allow_retries
    assert not as_failure(BadObjectList("bad", subject="s")).allow_retries


def test_a_partition_without_a_subscription_is_an_error(
    replica: Replica, sync: Sync, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(dg.DagsterUnknownPartitionError):
        sync(partition="nobody")
