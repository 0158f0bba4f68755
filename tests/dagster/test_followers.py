"""Followers as assets, each with its check: a client that does what a MatrixOne does follows through a relay."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from ccpr.base.errors import Failure
from ccpr.dagster import metadata
from ccpr.dagster.followers import follower_events, follower_health
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporter import DagsterReporter
from ccpr.dagster.table_specs import load_subscriptions
from ccpr.relay.downstream import TaskState
from ccpr.relay.follower_watching import ask
from ccpr.service.workspace import Workspace
from sensors.ccpr_log import ccpr_log_sensor
from sensors.health import replica_health_sensor
from tests.relay.conftest import Relayed, client, relayed
from tests.relay.test_follow import arrived, follow, records
from tests.support.native_client import NativeClient, NativeTask

__all__ = ["client", "relayed"]
pytestmark = [pytest.mark.integration, pytest.mark.recordings]
KEY = dg.AssetKey(["replica", "followers", "b", "gd_dml"])
STOPPED = "N:1795000000:failed to get relation gd_dml.t: no such table"


@pytest.fixture
def task(relayed: Relayed, client: NativeClient) -> NativeTask:
    """Of the follower b, which is at the newest point and has said so."""
    follow(relayed, client)
    task = arrived(relayed, client, compared=False)
    look(relayed)
    return task


def look(relayed: Relayed) -> None:
    ask(relayed.workspace, records(relayed).get("b"))


def report(instance: dg.DagsterInstance, relayed: Relayed) -> list[type]:
    events = follower_events(instance, relayed.workspace)
    for event in events:
        instance.report_runless_asset_event(event)
    return [type(event) for event in events]


def check(instance: dg.DagsterInstance) -> tuple[bool, str, dict[str, Any]]:
    """Whether the check passed, what it says and shows."""
    (record,) = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(KEY, "replica_current"), limit=1
    )
    assert record.event is not None
    assert record.event.dagster_event is not None
    found = record.event.dagster_event.asset_check_evaluation_data
    return found.passed, found.description or "", {name: value.value for name, value in found.metadata.items()}


def test_a_follower_is_an_asset_that_comes_from_the_mirror(
    relayed: Relayed, task: NativeTask, instance: dg.DagsterInstance
) -> None:
    loaded = load_subscriptions()
    (spec,) = [spec for spec in loaded.assets if spec.key == KEY]
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == ["mirror"]
    assert KEY in {one.asset_key for definition in loaded.checks for one in definition.check_specs}
    assert report(instance, relayed) == [dg.AssetCheckEvaluation, dg.AssetMaterialization]
    passed, says, shown = check(instance)
    newest = relayed.workspace.mirror("replica").point().lsn
    assert (passed, says) == (True, f"it shows point {newest}, and nothing is wrong")
    assert (shown[metadata.SHOWN_POINT], shown[metadata.NEWEST_POINT]) == (newest, newest)
    event = instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata[metadata.IS_CURRENT].value == 1
    assert report(instance, relayed) == [], "nothing has changed"


def test_its_error_and_remedy_are_the_checks_and_it_is_well_with_its_rows_again(
    relayed: Relayed, client: NativeClient, task: NativeTask, instance: dg.DagsterInstance
) -> None:
    report(instance, relayed)
    task.state, task.error = TaskState.ERROR, STOPPED
    look(relayed)
    assert len(report(instance, relayed)) == 2
    passed, says, shown = check(instance)
    assert not passed
    assert shown[metadata.ERROR_CODE] == "FOLLOWER_STOPPED"
    assert "no such table" in says
    assert "ccpr follower add" in shown[metadata.REMEDY]
    follow(relayed, client)
    relayed.replica.run()
    arrived(relayed, client)
    look(relayed)
    assert len(report(instance, relayed)) == 2
    assert check(instance)[0]


def test_one_that_fails_and_is_tried_again_is_red_from_the_first_failure(relayed: Relayed, task: NativeTask) -> None:
    relayed.replica.run()
    failure = Failure("UPSTREAM_UNREACHABLE", "it refuses", "follower b", "Start it.")
    records(relayed).record_failure(records(relayed).get("b"), failure, datetime.now(UTC))
    with closing(Workspace()) as workspace:
        found = follower_health(workspace, workspace.log.row("replica"), records(relayed).get("b"))
    assert (found.current, found.grave, found.shown[metadata.FAILED_ATTEMPTS]) == (False, True, 1)


def test_one_that_stays_behind_the_newest_point_is_red_after_the_objective(relayed: Relayed, task: NativeTask) -> None:
    task.state = TaskState.DROPPED  # it asks for nothing any more, and does not say so
    relayed.replica.run()
    records(relayed).change("b", downstream_error="")
    with closing(Workspace()) as workspace:
        row, follower, clock = workspace.log.row("replica"), records(relayed).get("b"), workspace.clock
        young = follower_health(workspace, row, follower)
        workspace.clock = lambda: clock() + 250
        old = follower_health(workspace, row, follower)
    assert (young.current, young.grave) == (True, False), "it has had no time yet"
    assert (old.current, old.grave) == (False, True)
    assert "there has been a newer one for 25" in old.says
    assert "the objective is 180 s" in old.says


def test_one_that_nobody_asks_is_not_called_current(relayed: Relayed, task: NativeTask) -> None:
    with closing(Workspace()) as workspace:
        clock = workspace.clock
        workspace.clock = lambda: clock() + 400
        found = follower_health(workspace, workspace.log.row("replica"), records(relayed).get("b"))
    assert (found.current, found.grave) == (False, False)
    assert "does `ccpr serve`" in found.says


def by_service(relayed: Relayed, instance: dg.DagsterInstance) -> None:
    reporter = DagsterReporter(relayed.workspace, lambda: instance)
    reporter.start()
    row = relayed.workspace.log.row("replica")
    for _ in range(3):
        reporter.follower_asked(row, records(relayed).get("b"))
    assert reporter.flush(60)
    reporter.stop()
    assert reporter.reported == 2


def by_tick_of(sensor: Any) -> Callable[[Relayed, dg.DagsterInstance], None]:
    def tick(relayed: Relayed, instance: dg.DagsterInstance) -> None:
        with dg.build_sensor_context(instance=instance, resources={"replication": Replication()}) as context:
            result = sensor(context)
        for event in result.asset_events:
            instance.report_runless_asset_event(event)

    return tick


@pytest.mark.parametrize(
    "reported",
    [by_service, by_tick_of(ccpr_log_sensor), by_tick_of(replica_health_sensor)],
    ids=["service", "ccpr_log_sensor", "replica_health_sensor"],
)
def test_service_and_ticks_report_it(
    relayed: Relayed, task: NativeTask, instance: dg.DagsterInstance, reported: Callable[..., None]
) -> None:
    task.state, task.error = TaskState.ERROR, STOPPED
    look(relayed)
    reported(relayed, instance)
    assert check(instance)[2][metadata.ERROR_CODE] == "FOLLOWER_STOPPED"
