"""What a tick requests, without an upstream: rows that have never run, and rows that are not due."""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.utils import make_new_run_id
from sqlalchemy import event

from ccpr.dagster import log_sensor
from ccpr.dagster.log_sensor import RUNS_PER_TICK
from ccpr.dagster.metadata import ATTEMPT_TAG, ITERATION_TAG, SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.partitions import SUBSCRIPTIONS, sync_partitions
from ccpr.dagster.replication import Replication
from ccpr.matrixone.client.errors import ConnectionLost
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.service.running import OneService
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.errors import StateUnavailable, StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.states import IterationState, State
from ccpr_assets.definitions import defs
from sensors.ccpr_log import ccpr_log_sensor
from tests.sensors.conftest import Subscribe

Tick = Callable[[], dg.SensorResult]
TASK = "00000000-0000-4000-8000-000000000000"  # no spread, no jitter


@pytest.fixture
def tick(workspace: Workspace, instance: dg.DagsterInstance) -> Tick:
    def evaluate() -> dg.SensorResult:
        with dg.build_sensor_context(instance=instance, resources={"replication": Replication()}) as context:
            result = ccpr_log_sensor(context)
        assert isinstance(result, dg.SensorResult)
        return result

    return evaluate


@pytest.fixture
def all_changed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that is due has changed. Returns the names that were checked."""
    checked: list[str] = []
    monkeypatch.setattr(
        log_sensor, "_finish_if_idle", lambda workspace, row, end: checked.append(row.subscription_name)
    )
    return checked


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def ran(seconds_ago: float, watermark: int = 1) -> dict[str, object]:
    """Columns of a subscription whose last iteration began then; the subscription was created at the same time."""
    created = ago(seconds_ago)
    current = SnapshotRef("xr_a_0_0", 0, 0, physical=watermark, taken_at=created.timestamp())
    return {"watermark": watermark, "context": Context(current=current).to_text(), "created_at": created}


def failed(count: int, seconds_ago: float) -> dict[str, object]:
    last = round(time.time() - seconds_ago)
    return {"task_id": TASK, "error_message": f"R:{count}:{last}:{last}:CONNECTION_LOST: line down"}


def ends_in(seconds: float) -> int:
    return round((time.time() + seconds) * 1000)


def killed(seconds_ago: float) -> dict[str, object]:
    return {"iteration_state": IterationState.RUNNING, "updated_at": ago(seconds_ago)}


def asked(result: dg.SensorResult) -> list[str]:
    return [request.partition_key or "" for request in result.run_requests or []]


def message(result: dg.SensorResult) -> str:
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def a_run(status: dg.DagsterRunStatus, tags: dict[str, str]) -> dg.DagsterRun:
    return dg.DagsterRun(job_name="any", run_id=make_new_run_id(), status=status, tags=tags)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param(dict, None, id="new"),
        pytest.param(lambda: {"task_id": TASK, **ran(30)}, "1 waiting, next orders in 30 s", id="within its interval"),
        pytest.param(lambda: {"task_id": TASK, **ran(61)}, None, id="after its interval"),
        pytest.param(lambda: {"state": State.PAUSED}, "1 paused", id="paused"),
        pytest.param(
            lambda: {"state": State.ERROR}, "1 stopped by an error, repair and run: ccpr run orders", id="error"
        ),
        pytest.param(lambda: {"lease_expires_at": ends_in(20)}, "1 running", id="held by another executor"),
        pytest.param(lambda: {"lease_expires_at": ends_in(86_400)}, None, id="a lease of a clock that was ahead"),
        pytest.param(lambda: {"lease_expires_at": 1}, None, id="a lease that has run out"),
        pytest.param(lambda: failed(1, 30), "1 waiting, next orders in 30 s", id="failed just now"),
        pytest.param(lambda: failed(1, 70), None, id="failed long enough ago"),
        pytest.param(lambda: failed(3, 70), "1 waiting, next orders in 170 s", id="failed for the third time"),
        pytest.param(lambda: killed(50), "1 waiting, next orders in 10 s", id="killed a moment ago"),
        pytest.param(lambda: killed(70), None, id="killed an interval ago"),
    ],
)
def test_due_subscriptions_get_a_run_and_the_tick_describes_the_others(
    columns: Callable[[], dict[str, object]],
    expected: str | None,
    subscribe: Subscribe,
    tick: Tick,
    all_changed: list[str],
) -> None:
    subscribe("orders", **columns())  # the times count from now, not from when the tests were collected
    result = tick()
    assert asked(result) == ([] if expected else ["orders"])
    if expected:
        assert near(message(result), expected)
        assert not all_changed, "it was not checked upstream"


def test_a_dropped_subscription_is_ignored(subscribe: Subscribe, tick: Tick, workspace: Workspace) -> None:
    subscribe("orders")
    workspace.log.drop("orders")
    result = tick()
    assert asked(result) == []
    assert message(result) == "there is no subscription"


def near(text: str, expected: str) -> bool:
    """Whether the text contains what is expected. Some seconds may have passed since the row was written."""
    number = expected.rpartition(" in ")[2].removesuffix(" s")
    if not number.isdecimal():
        return expected in text
    return any(expected.replace(f"in {number} s", f"in {int(number) - late} s") in text for late in range(10))


def test_a_new_subscription_gets_its_partition_and_its_first_run(subscribe: Subscribe, tick: Tick) -> None:
    row = subscribe("orders")
    result = tick()
    assert [request.partition_keys for request in result.dynamic_partitions_requests or []] == [["orders"]]
    (request,) = result.run_requests or []
    assert request.partition_key == "orders"
    assert request.run_key == f"{row.task_id.replace('-', '')[:12]}:0/0"
    assert request.tags == {
        SUBSCRIPTION_TAG: "orders",
        ITERATION_TAG: f"{row.task_id}:0",
        ATTEMPT_TAG: "0",
        WHY_TAG: "the first copy",
    }


def test_where_a_service_runs_the_tick_only_looks_and_says_so(
    subscribe: Subscribe, tick: Tick, workspace: Workspace
) -> None:
    """One runner a subscription: the sensor is on at first."""
    assert ccpr_log_sensor.default_status is dg.DefaultSensorStatus.RUNNING
    subscribe("orders")
    service = OneService(workspace.home)
    service.start()
    try:
        result = tick()
        assert not result.run_requests
        assert "`ccpr serve` runs the subscriptions of this state folder, the sensor only looks" in str(
            result.skip_reason
        )
    finally:
        service.stop()
    assert [request.partition_key for request in tick().run_requests or ()] == ["orders"]


def test_one_query_to_dagster_finds_the_runs_of_all_due_iterations(
    subscribe: Subscribe, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [subscribe(f"orders_{number}") for number in range(5)]
    for number, row in enumerate(rows[:3]):  # runs of the present iteration for two rows, of another one for the third
        tags = {
            SUBSCRIPTION_TAG: row.subscription_name,
            ITERATION_TAG: f"{row.task_id}:{number // 2}",
            ATTEMPT_TAG: "4",
        }
        instance.add_run(a_run(dg.DagsterRunStatus.FAILURE, tags))
    queries, get = [], instance.get_run_records
    monkeypatch.setattr(
        instance, "get_run_records", lambda *arguments, **named: queries.append(arguments) or get(*arguments, **named)
    )
    result = tick()
    assert len(queries) == 1
    assert asked(result) == ["orders_2", "orders_3", "orders_4"], (
        "two have just had a run that left no trace in the log"
    )


def test_dagster_accepts_what_a_tick_requests(subscribe: Subscribe) -> None:
    subscribe("orders")
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(
            instance=instance,
            instance_ref=instance.get_ref(),
            definitions=defs,
            sensor_name=ccpr_log_sensor.name,
            resources=defs.resources,
        ) as context,
    ):
        data = ccpr_log_sensor.evaluate_tick(context)
    (request,) = data.run_requests or []
    assert request.partition_key == "orders"
    assert request.tags["dagster/partition"] == "orders"


@pytest.mark.parametrize("tag", [SUBSCRIPTION_TAG, "dagster/partition"])
@pytest.mark.parametrize(
    "status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
)
def test_a_run_in_flight_is_not_requested_again(
    tag: str, status: dg.DagsterRunStatus, subscribe: Subscribe, tick: Tick, instance: dg.DagsterInstance
) -> None:
    subscribe("orders")
    subscribe("parts")
    instance.add_run(a_run(status, {tag: "orders"}))
    assert asked(tick()) == ["parts"]


def test_a_run_that_left_no_trace_in_the_log_is_requested_again_later_under_a_new_key(
    subscribe: Subscribe,
    tick: Tick,
    instance: dg.DagsterInstance,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example its process could not start: the row is unchanged, and every tick would request it again."""
    subscribe("orders", task_id=TASK)
    later = 0.0
    real = time.time
    monkeypatch.setattr(Replication, "workspace", workspace)
    monkeypatch.setattr(workspace, "clock", lambda: real() + later)
    keys, waits = [], []
    for _ in range(4):
        (request,) = tick().run_requests or []
        keys.append(request.run_key)
        instance.add_run(a_run(dg.DagsterRunStatus.FAILURE, dict(request.tags)))
        later = 0.0
        text = message(tick())
        waits.append(float(text.rpartition(" in ")[2].removesuffix(" s")))
        later = waits[-1] + 1
    assert [(key or "").rpartition("/")[2] for key in keys] == ["0", "1", "2", "3"]
    assert waits == pytest.approx([60, 120, 240, 300], abs=25)


def test_the_oldest_watermarks_come_first_and_a_tick_requests_a_limited_number_of_runs(
    subscribe: Subscribe, tick: Tick, all_changed: list[str]
) -> None:
    for number in range(RUNS_PER_TICK + 2):
        subscribe(f"s{number}", **ran(200, watermark=100 - number))
    subscribe("new")
    expected = ["new", *(f"s{number}" for number in range(RUNS_PER_TICK + 1, 2, -1))]
    assert asked(tick()) == all_changed == expected


def test_a_tick_that_runs_out_of_time_says_that_it_leaves_the_rest_to_the_next(
    subscribe: Subscribe, tick: Tick, all_changed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "parts", "stock"):
        subscribe(name)
    monkeypatch.setattr(log_sensor, "TICK_SECONDS", 0.0)
    assert message(tick()) == "no run to start: 3 due left for the next tick"
    assert not all_changed


def test_a_tick_in_which_every_upstream_is_away_leaves_some_to_the_next(
    subscribe: Subscribe, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster ends a tick after a minute, and recording a failure takes a tenth of a second. What cannot be read has
    failed before and does not count."""

    def away(workspace: Workspace, row: LogRow, end: float) -> None:
        raise ConnectionLost("line down", subject=row.subscription_name)

    monkeypatch.setattr(log_sensor, "_finish_if_idle", away)
    monkeypatch.setattr(log_sensor, "FAILURES_PER_TICK", 2)
    subscribe("damaged", sync_config="{")
    for name in ("orders", "parts", "stock"):
        subscribe(name, **ran(200))
    said = message(tick())
    assert [name in said for name in ("damaged", "orders", "parts", "stock")] == [True, True, True, False]


def test_two_hundred_subscriptions_take_no_more_statements_than_twenty(
    subscribe: Subscribe, tick: Tick, instance: dg.DagsterInstance, workspace: Workspace
) -> None:
    """Of the catalog database and of Dagster's."""
    sent, made = [], [0]

    def count(*call: object) -> None:
        sent.append(call[2])

    def statements(upto: int) -> int:
        for number in range(made[0], upto):
            subscribe(f"s{number:03}", **(ran(1) if number % 2 else {}))
        made[0] = upto
        sent.clear()
        event.listen(sa.Engine, "before_cursor_execute", count)
        try:
            result = tick()
        finally:
            event.remove(sa.Engine, "before_cursor_execute", count)
        assert len(asked(result)) == RUNS_PER_TICK
        assert sum(len(request.partition_keys) for request in result.dynamic_partitions_requests or []) == upto
        return len(sent)

    assert 0 < statements(20) == statements(200)


def test_partitions_follow_the_log(
    subscribe: Subscribe, tick: Tick, instance: dg.DagsterInstance, workspace: Workspace
) -> None:
    assert SUBSCRIPTIONS.name is not None
    subscribe("orders", lease_expires_at=2**60)
    sync_partitions(instance, workspace)
    instance.add_dynamic_partitions(SUBSCRIPTIONS.name, ["dropped", "running"])
    instance.add_run(a_run(dg.DagsterRunStatus.STARTED, {"dagster/partition": "running"}))
    (request,) = tick().dynamic_partitions_requests or []
    assert isinstance(request, dg.DeleteDynamicPartitionsRequest)
    assert request.partition_keys == ["dropped"], (
        "the partition of a dropped subscription is kept until its run has ended"
    )


def test_partitions_can_be_updated_without_the_sensor(
    subscribe: Subscribe, instance: dg.DagsterInstance, workspace: Workspace
) -> None:
    assert SUBSCRIPTIONS.name is not None
    subscribe("orders")
    subscribe("parts")
    instance.add_dynamic_partitions(SUBSCRIPTIONS.name, ["dropped"])
    assert sync_partitions(instance, workspace) == ["orders", "parts"]
    assert sorted(instance.get_dynamic_partitions(SUBSCRIPTIONS.name)) == ["orders", "parts"]


def test_a_log_that_cannot_be_read_fails_the_tick(tick: Tick, workspace: Workspace) -> None:
    (workspace.home / "catalog.db").write_bytes(b"no database" * 1000)
    with pytest.raises((StateUnavailable, StateUnreadable)):
        tick()


def test_settings_that_cannot_be_read_are_said_by_each_tick_and_start_nothing(subscribe: Subscribe, tick: Tick) -> None:
    subscribe("orders", sync_config="{")
    for _ in range(2):
        assert message(tick()).startswith("no run to start: 1 failed: orders (STATE_UNREADABLE")


def test_a_failure_does_not_keep_a_tick_from_starting_runs(
    subscribe: Subscribe, tick: Tick, all_changed: list[str], workspace: Workspace
) -> None:
    subscribe("bad", sync_config="{")
    subscribe("good")
    assert asked(tick()) == ["good"]
    assert asked(tick()) == ["good"], "it goes on"
    workspace.log.pause("good")
    assert message(tick()).startswith("no run to start: 1 failed: bad (STATE_UNREADABLE")


def test_a_row_that_cannot_be_read_does_not_keep_others_from_running(
    subscribe: Subscribe, tick: Tick, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    subscribe("bad")
    subscribe("good")
    assert {request.partition_key for request in tick().run_requests or ()} == {"bad", "good"}
    with transaction(workspace.log.engine) as connection:
        connection.exec_driver_sql("UPDATE mo_ccpr_log SET state = 7 WHERE subscription_name = 'bad'")
    assert SUBSCRIPTIONS.name is not None
    instance.add_dynamic_partitions(SUBSCRIPTIONS.name, ["bad", "good"])
    result = tick()
    assert [request.partition_key for request in result.run_requests or ()] == ["good"]
    assert not result.dynamic_partitions_requests, "it was not dropped"
    with transaction(workspace.log.engine) as connection:
        connection.exec_driver_sql("UPDATE mo_ccpr_log SET state = 2 WHERE subscription_name = 'good'")
    assert "1 failed: bad (STATE_UNREADABLE" in message(tick())
    assert sync_partitions(instance, workspace) == ["good", "bad"]


def test_an_error_that_nothing_expects_keeps_no_other_subscription_from_running(
    subscribe: Subscribe, tick: Tick, monkeypatch: pytest.MonkeyPatch, workspace: Workspace
) -> None:
    def look(workspace: Workspace, row: LogRow, end: float) -> None:
        if row.subscription_name == "bad":
            raise OverflowError("a number of 20 digits")

    monkeypatch.setattr(log_sensor, "_finish_if_idle", look)
    subscribe("bad", **ran(500, watermark=1))
    subscribe("good", **ran(500, watermark=2))
    assert asked(tick()) == ["good"]
    workspace.log.pause("good")
    assert "1 failed: bad (UNEXPECTED: OverflowError" in message(tick())


def test_a_long_list_of_names_is_shortened(subscribe: Subscribe, tick: Tick) -> None:
    for number in range(7):
        subscribe(f"s{number}", state=State.ERROR)
    assert message(tick()).endswith("ccpr run s4 and 2 more")


def test_importing_the_sensors_loads_no_heavy_module() -> None:
    heavy = {"pyspark", "pandas", "polars", "pandera", "dagster_pyspark"}
    code = f"import sys, ccpr.dagster.log_sensor; print(*({heavy!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == ""
