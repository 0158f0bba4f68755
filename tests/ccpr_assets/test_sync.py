"""The five assets against an emulated upstream, copied by Spark: the replica equals the source at every point."""

import time
from pathlib import Path

import dagster as dg
import pytest

from ccpr.dagster import metadata
from tests.support.dagster_fixtures import Sync
from tests.support.replica import Replica, replaying

ORDER = ["upstream_snapshots", "catalog_ddl", "object_diffs", "copied_objects", "applied_tables"]
pytestmark = [pytest.mark.spark, pytest.mark.recordings, pytest.mark.usefixtures("spark")]


@pytest.fixture
def replica(recordings: Path, home: Path):
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        yield replica


def shown(result: dg.ExecuteInProcessResult, asset: str) -> dict:
    (event,) = [event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(asset)]
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_each_of_three_iterations_equals_the_source(replica: Replica, sync: Sync) -> None:
    for snapshot in range(1, 4):
        fetched = replica.emulator.status().object_bytes
        result = sync()
        assert result.success
        made = [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()]
        assert made == [*ORDER, "target_databases"]
        replica.assert_equal_to_source(snapshot)
        assert (
            round(shown(result, "copied_objects")[metadata.COPIED_MB] * 1e6)
            == replica.emulator.status().object_bytes - fetched
        )
    assert replica.command("subscriptions")[0]["iteration_lsn"] == 3
    for snapshot in range(1, 4):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)


def test_each_spark_task_copies_with_its_own_upstream_session(
    recordings: Path, home: Path, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.pipeline.spark.engine._TASK_BYTES", 1)  # else so little is one task's
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        result = sync()
        assert result.success
        assert (
            shown(result, "copied_objects")[metadata.OBJECTS_COPIED] == replica.emulator.status().objects_fetched >= 2
        )
        assert replica.emulator.status().sessions_that_fetched >= 2
        replica.assert_equal_to_source(1)


def test_a_materialization_shows_its_iteration_snapshot_and_figures(replica: Replica, sync: Sync) -> None:
    first, second = sync(), sync()
    assert first.success
    made = [event.materialization for event in second.get_asset_materialization_events()]
    steps = [one for one in made if one.asset_key.to_user_string() in ORDER]
    assert len(steps) == len(ORDER)
    for materialization in steps:
        lsn, snapshot_ts = materialization.tags["dagster/data_version"].split(":")
        assert (lsn, materialization.tags[metadata.LSN_TAG], materialization.partition) == ("1", "1", "replica")
        assert int(snapshot_ts) == shown(second, "upstream_snapshots")[metadata.SNAPSHOT_TS_NANOSECONDS]
    assert shown(second, "upstream_snapshots")[metadata.REPLICA_BEHIND_SECONDS] > 0
    applied = shown(second, "applied_tables")
    assert (applied[metadata.OLDEST_POINT], applied[metadata.NEWEST_POINT]) == (0, 1)
    assert "CREATE TABLE" in shown(first, "catalog_ddl")[metadata.DDL_DIFF]
    assert shown(second, "catalog_ddl")[metadata.DDL_DIFF] == "no statement changed"
    applied = shown(second, "applied_tables")
    assert applied[metadata.SNAPSHOT_TO_END_SECONDS] >= 0
    assert time.time() - 600 < applied[metadata.CURRENT_AS_OF] < time.time(), "by our clock; the recording is old"
    assert applied[metadata.POINT_MADE]
    assert {check.check_name: check.passed for check in second.get_asset_check_evaluations()} == {
        "object_list_valid": True,
        "objects_stored": True,
    }


def test_steps_in_separate_runs_work_on_the_same_open_iteration(replica: Replica, sync: Sync) -> None:
    for asset in ORDER:
        assert sync([asset]).success, asset
    replica.assert_equal_to_source(1)
    assert replica.emulator.status().statements["create_snapshot"] == 1


def test_the_lease_is_free_after_a_run_that_ends_in_the_middle(replica: Replica, sync: Sync) -> None:
    assert sync(ORDER[:2]).success
    assert replica.run()["point"], "the command line goes on with the same iteration"
    assert replica.emulator.status().statements["create_snapshot"] == 1
    replica.assert_equal_to_source(1)
