"""`replica_health_sensor`: what it says of subscriptions that other programs run, or none."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from ccpr.base.errors import Failure
from ccpr.dagster.care import FILES_READ, RESTORE_TRIED
from ccpr.dagster.inventory import read_inventory
from ccpr.dagster.replica_health import health_of
from ccpr.dagster.replication import Replication
from ccpr.dagster.target_health import read_targets
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.pipeline.lag import LagMeter
from ccpr.schema.choices import DdlPolicy, Dialect
from ccpr.service.running import CATALOGS, SQL_PORTS, PortMark
from ccpr.service.status import ReadRow
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import Drill, DrillRecords, Scrub, ScrubRecords
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.settings import TargetSettings
from ccpr.state.states import State
from ccpr.state.targets import LaggingTargetTable, Target, TargetRecords
from sensors.health import replica_health_sensor
from tests.sensors.conftest import Subscribe

GONE = "N:1790000000:MIRROR_MISSING: gone [mirror] Mount the disk."
Tick = Callable[[], dg.SensorResult]


def ran(seconds_ago: float) -> dict[str, object]:
    taken = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    current = SnapshotRef("xr_a_0_0", 0, 0, physical=round(taken.timestamp() * 1e9), taken_at=taken.timestamp())
    return {"watermark": 1, "context": Context(current=current).to_text()}


def failed() -> dict[str, object]:
    return {"error_message": "R:2:1790000000:1790000060:CONNECTION_LOST: line down [upstream] Look at the network."}


@pytest.fixture
def tick(workspace: Workspace, instance: dg.DagsterInstance) -> Tick:
    def evaluate() -> dg.SensorResult:
        with dg.build_sensor_context(instance=instance, resources={"replication": Replication()}) as context:
            result = replica_health_sensor(context)
        assert isinstance(result, dg.SensorResult)
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        return result

    return evaluate


VERDICTS: dict[str, tuple[Callable[[], dict[str, object]], bool, bool, str]] = {
    "new": (dict, False, False, "there is no point yet: `ccpr run orders`"),
    "current": (lambda: ran(10), True, False, "the last iteration succeeded, and nothing is behind"),
    "older than its own objective": (
        lambda: {**ran(100), "sync_config": '{"max_lag": 50}'},
        False,
        True,
        "the objective is 50 s",
    ),
    "within its own objective": (
        lambda: {**ran(500), "sync_config": '{"max_lag": 900}'},
        True,
        False,
        "the last iteration succeeded",
    ),
    "too old": (lambda: ran(500), False, True, "the objective is 180 s"),
    "failing": (lambda: {**ran(10), **failed()}, False, True, "CONNECTION_LOST, 2 times in a row since 2026-"),
    "what to do": (lambda: {**ran(10), **failed()}, False, True, "Look at the network. Tried again at 20"),
    "paused": (lambda: {**ran(500), "state": State.PAUSED}, False, False, "until `ccpr resume orders`"),
    "stopped": (lambda: {"state": State.ERROR, "error_message": GONE}, False, True, "gone. Mount the disk."),
}


@pytest.mark.parametrize(("columns", "passed", "grave", "says"), VERDICTS.values(), ids=VERDICTS)
def test_a_verdict_is_a_sentence_with_what_to_do(
    columns: Callable[[], dict[str, object]],
    passed: bool,
    grave: bool,
    says: str,
    subscribe: Subscribe,
    workspace: Workspace,
) -> None:
    health = health_of(workspace, subscribe("orders", **columns()))  # the times count from now
    assert (health.current, health.grave) == (passed, grave)
    assert says in health.says


def test_what_changes_is_reported_once_by_all_that_run_it(
    subscribe: Subscribe, tick: Tick, instance: dg.DagsterInstance
) -> None:
    subscribe("good", **ran(10))
    subscribe("old", **ran(500))
    result = tick()
    checks = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert {event.asset_key.to_user_string(): event.passed for event in checks} == {
        "replication_health/good": True,
        "replication_health/old": False,
        "replication_health": False,
    }
    assert "1 of 2 subscriptions are current; old: " in (checks[-1].description or "")
    assert instance.get_dynamic_partitions("ccpr_subscription") == ["good", "old"]
    assert not tick().asset_events


def test_a_target_that_is_away_is_red_for_its_subscription_and_for_all(
    subscribe: Subscribe, workspace: Workspace, tick: Tick
) -> None:
    row = subscribe("orders", **ran(10))
    records, now = TargetRecords(workspace.log.engine, row.task_id), datetime.now(UTC)
    to = "mysql://u@127.0.0.1:3306/d"
    records.add(Target(row.task_id, "report", to, "", Dialect.MARIADB, TargetSettings(DdlPolicy.FULL), now))
    tick()
    assert health_of(workspace, row).current
    away = Failure("TARGET_UNAVAILABLE", "the target does not answer now", "target", "Wait.")
    records.record_failure(records.get("report"), away, now)
    checks = [event for event in tick().asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert {event.asset_key.to_user_string(): (event.passed, event.severity.value) for event in checks} == {
        "replication_health/orders": (False, "WARN"),
        "replication_health": (False, "WARN"),
        "replication_health/orders/report": (False, "ERROR"),
    }
    assert "target report: TARGET_UNAVAILABLE: the target does not answer now. Wait." in (checks[0].description or "")
    assert not tick().asset_events
    long_ago = now - timedelta(days=1)
    records.change("report", first_failed_at=long_ago)
    found = health_of(workspace, row)
    assert (found.current, found.grave) == (False, True), "it is older than the objective"
    assert not tick().asset_events, "time alone is no news"
    records.record_sync(records.get("report"), 0, 1, 0, [], now)
    checks = [event for event in tick().asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert [event.passed for event in checks] == [True, True, True]


def test_the_lag_of_a_target_that_was_quiet_for_an_hour_does_not_jump_with_the_next_point(
    subscribe: Subscribe, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, second = workspace.clock(), 10**9
    monkeypatch.setattr(workspace, "clock", lambda: seconds)
    watermark = round(seconds * 1e9)
    row = subscribe("orders", **{**ran(10), "watermark": watermark})
    history, records = PointHistory(workspace.log.engine, row.task_id), TargetRecords(workspace.log.engine, row.task_id)
    to, now = "mysql://u@127.0.0.1:3306/d", datetime.now(UTC)
    records.add(Target(row.task_id, "report", to, "", Dialect.MARIADB, TargetSettings(DdlPolicy.FULL), now))

    def point(lsn: int, seconds_ago: int) -> int:
        at = watermark - seconds_ago * second
        with transaction(workspace.log.engine) as connection:
            history.write(connection, GlobalPoint(lsn, Timestamp(at), "xr", now, "", 0, 0, 0), [])
        return at

    def older_by() -> float:
        """How much older than the replica the target is said to be."""
        (found,) = read_targets(workspace, row)
        lag = LagMeter(workspace.clock).read(row.task_id, ReadRow.of(row).context).seconds
        assert lag is not None
        assert found.lag_seconds is not None
        return found.lag_seconds - lag

    records.record_sync(records.get("report"), 5, point(5, 3600), 5, [], now)
    assert older_by() == pytest.approx(0, abs=0.5), "it shows what the upstream has had since"
    point(6, 2)
    assert older_by() == pytest.approx(2, abs=0.5), "it lacks what came two seconds before"
    point(7, 1)
    assert older_by() == pytest.approx(2, abs=0.5), "the oldest point that it lacks counts"
    waiting = LaggingTargetTable("d.t", Failure("DDL_WAITS", "it waits", "table d.t", "Look."))
    records.record_sync(records.get("report"), 7, watermark - second, 5, [waiting], now)
    assert older_by() == pytest.approx(2, abs=0.5), "so does that of a table that waits"


def test_drills_and_scrubs_that_are_asked_for_are_reported_when_they_change(
    subscribe: Subscribe, workspace: Workspace, tick: Tick
) -> None:
    def reported() -> dict[str, tuple[bool, str]]:
        found = [event for event in tick().asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        assert {event.asset_key.to_user_string() for event in found} <= {"replication_health/orders"}
        return {event.check_name: (event.passed, event.description or "") for event in found}

    subscribe("plain", **ran(10))
    row = subscribe("orders", **ran(10), sync_config='{"drill_every": 3600, "verify_within": 86400}')
    records, now = DrillRecords(workspace.log.engine, row.task_id), datetime.now(UTC)
    tick()
    assert [one.name for one in read_inventory(room=0).known if one.has_care] == ["orders"]
    assert reported() == {}, "what has not changed is no news, and nothing is said of others"
    failure = Failure("OBJECT_DAMAGED", "a checksum differs", "object x", "Verify.")
    records.add(Drill(now, now, 0, 1, "scratch", failure=failure))
    assert reported() == {
        RESTORE_TRIED: (False, "the last drill, of point 0, failed: OBJECT_DAMAGED: a checksum differs")
    }
    later = now + timedelta(seconds=1)
    records.add(Drill(later, later, 0, 1, "scratch"))
    assert reported() == {RESTORE_TRIED: (True, "the last drill was good")}
    ScrubRecords(workspace.log.engine, row.task_id).put(Scrub("", now, last_began_at=now - timedelta(days=3)))
    passed, says = reported()[FILES_READ]
    assert (passed, says.startswith("not all files were read again for 3 d")) == (False, True), says
    assert reported() == {}, "its age alone is no news"


def test_the_ports_of_the_service_are_a_line_of_the_first_page_while_they_listen(
    subscribe: Subscribe, workspace: Workspace, tick: Tick, instance: dg.DagsterInstance
) -> None:
    def ports() -> str:
        event = instance.get_latest_materialization_event(dg.AssetKey("replication_health"))
        assert event is not None
        assert event.asset_materialization is not None
        found = event.asset_materialization.metadata.get("ports")
        return "" if found is None else str(found.value)

    subscribe("orders", **ran(10))
    tick()
    assert ports() == ""
    one, other = (PortMark(workspace.home, kind, "127.0.0.1:1") for kind in (SQL_PORTS, CATALOGS))
    one.note({"connections": 2, "statements": 1234})
    tick()
    assert ports() == "SQL on 127.0.0.1:1: 2 connections, 1,234 statements since it began; catalog on 127.0.0.1:1"
    other.remove()
    tick()
    assert ports().endswith("statements since it began")
    one.remove()
    assert {event.asset_key.to_user_string() for event in tick().asset_events} == {"replication_health"}
    assert ports() == ""
    assert not tick().asset_events


def test_settings_that_cannot_be_read_are_reported(subscribe: Subscribe, tick: Tick) -> None:
    subscribe("orders", sync_config="{")
    events = tick().asset_events
    (check,) = [
        event for event in events if isinstance(event, dg.AssetCheckEvaluation) and len(event.asset_key.path) > 1
    ]
    assert not check.passed
    assert (check.description or "").startswith("STATE_UNREADABLE")
    assert not tick().asset_events
