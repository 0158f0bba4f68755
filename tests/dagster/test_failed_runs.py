"""What fails without a run is a failed run in Dagster, once, and its partition is red until it is materialized."""

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from ccpr.base.errors import Failure
from ccpr.dagster.events import APPLIED_TABLES, TARGET_DATABASES
from ccpr.dagster.failed_runs import RECORDED
from ccpr.dagster.metadata import HEALTH_SENSOR, SUBSCRIPTION_TAG, SYNC_JOB, WHY_TAG
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.schema.choices import DdlPolicy, Dialect
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.settings import TargetSettings
from ccpr.state.states import State
from ccpr.state.tables import mo_ccpr_log
from ccpr.state.targets import Target, TargetRecords
from sensors.health import replica_health_sensor
from tests.sensors.conftest import Subscribe, subscribe, workspace
from tests.sensors.test_health import GONE, failed, ran

__all__ = ["subscribe", "workspace"]
AWAY = Failure("TARGET_UNAVAILABLE", "the target does not answer now", "target", "Look at `ccpr status NAME`.")


def tick(instance: dg.DagsterInstance) -> None:
    with dg.build_sensor_context(instance=instance, resources={"replication": Replication()}) as context:
        result = replica_health_sensor(context)
    assert isinstance(result, dg.SensorResult)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)


def red(instance: dg.DagsterInstance, asset: str) -> set[str]:
    """The partitions that Dagster shows as failed."""
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        value = get_and_update_asset_status_cache_value(instance, dg.AssetKey(asset), SUBSCRIPTIONS)
        if value is None or value.serialized_failed_partition_subset is None:
            return set()
        return set(SUBSCRIPTIONS.deserialize_subset(value.serialized_failed_partition_subset).get_partition_keys())


def texts(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    return "\n".join(entry.message for entry in instance.all_logs(run.run_id))


def change(workspace: Workspace, name: str, values: dict[str, object]) -> None:
    with transaction(workspace.log.engine) as connection:
        connection.execute(mo_ccpr_log.update().where(mo_ccpr_log.c.subscription_name == name).values(**values))


def test_a_replica_whose_iterations_fail_is_a_red_partition_and_one_failed_run(
    subscribe: Subscribe, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    subscribe("orders", **ran(10))
    subscribe("parts", **ran(10))
    tick(instance)
    assert red(instance, APPLIED_TABLES) == set()
    change(workspace, "orders", failed())
    for _ in range(3):
        tick(instance)
    assert red(instance, APPLIED_TABLES) == {"orders"}
    (run,) = instance.get_runs()
    assert (run.job_name, run.status) == (SYNC_JOB, dg.DagsterRunStatus.FAILURE)
    assert (run.tags[SUBSCRIPTION_TAG], run.tags[WHY_TAG]) == ("orders", RECORDED)
    assert run.tags["dagster/sensor_name"] == HEALTH_SENSOR, "else it is called launched by hand"
    assert run.execution_plan_snapshot_id, "else it cannot be drawn"
    assert "CONNECTION_LOST, 2 times in a row" in texts(instance, run)
    assert "Look at the network." in texts(instance, run)
    change(workspace, "orders", {"error_message": GONE, "state": State.ERROR})
    tick(instance)
    assert len(instance.get_runs()) == 1, "it is red already"


@pytest.mark.parametrize("is_run_again", [True, False])
def test_a_target_that_is_away_is_a_red_partition_of_the_targets_until_it_is_synced(
    is_run_again: bool, subscribe: Subscribe, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    row = subscribe("orders", **ran(10))
    records = TargetRecords(workspace.log.engine, row.task_id)
    at = row.created_at
    for name in ("report", "copy"):
        to = f"mysql://u@127.0.0.1:3306/{name}"
        records.add(Target(row.task_id, name, to, "", Dialect.MARIADB, TargetSettings(DdlPolicy.FULL), at))
        records.record_sync(records.get(name), 0, 1, 0, [], at)
    tick(instance)
    records.record_failure(records.get("report"), AWAY, at)
    tick(instance)
    tick(instance)
    assert red(instance, TARGET_DATABASES) == {"orders"}
    assert red(instance, APPLIED_TABLES) == set()
    (run,) = instance.get_runs()
    assert "target report: TARGET_UNAVAILABLE" in texts(instance, run)
    assert "Look at `ccpr status orders`." in texts(instance, run)
    if is_run_again:
        records.record_sync(records.get("report"), 0, 1, 0, [], at)
        tick(instance)
        assert red(instance, TARGET_DATABASES) == set()
    else:
        records.record_failure(records.get("copy"), AWAY, at)
        records.record_sync(records.get("report"), 0, 1, 0, [], at)
        tick(instance)
        assert red(instance, TARGET_DATABASES) == {"orders"}, "another one fails"
