"""From a tick to a run to equal rows, and what a tick does without a run."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from ccpr.dagster import log_sensor, metadata
from ccpr.dagster.events import STEPS
from ccpr.dagster.health import HEALTH, REPLICA_CURRENT, health_key
from ccpr.dagster.metadata import ITERATION_TAG, LSN_TAG, SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.step import BY_HAND
from ccpr.pipeline import driver
from ccpr.pipeline.due import due_at
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.lag import LagMeter
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.log_rows import Failures, LogRow
from ccpr.state.states import State
from ccpr_emulator.serving.faults import CutObject, CutObjectList, StaleRead
from tests.dagster.test_failed_runs import red
from tests.sensors.driving import Clock, Daemon, instance_in
from tests.support.replica import NAME, Replica, replaying

pytestmark = pytest.mark.recordings
APPLIED = dg.AssetKey("applied_tables")


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    """Two recorded snapshots; from the third iteration on nothing changes."""
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        yield replica


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def daemon(home: Path, clock: Clock) -> Iterator[Daemon]:
    with instance_in(home / "dagster") as instance:
        yield Daemon(instance, clock)


def row() -> LogRow:
    with closing(Workspace()) as workspace:
        return workspace.log.row(NAME)


def until_due(clock: Clock) -> None:
    clock.go_on_to(due_at(row()) + 0.001)


def runless(daemon: Daemon) -> list[dg.AssetMaterialization]:
    """Materializations of applied_tables without a run, newest first."""
    records = daemon.instance.fetch_materializations(APPLIED, limit=100).records
    return [record.asset_materialization for record in records if record.asset_materialization and not record.run_id]


def health(daemon: Daemon) -> tuple[bool, str, dict[str, Any]]:
    """The last evaluation of the subscription's replica_current: whether it passed, what it says, its metadata."""
    evaluation = last_evaluation(daemon, health_key(NAME))
    shown = {name: value.value for name, value in evaluation.metadata.items()}
    assert last_evaluation(daemon, dg.AssetKey(HEALTH)).passed == evaluation.passed, "the one over all says the same"
    return evaluation.passed, evaluation.description or "", shown


def last_evaluation(daemon: Daemon, asset: dg.AssetKey) -> dg.AssetCheckEvaluation:
    storage, key = daemon.instance.event_log_storage, dg.AssetCheckKey(asset, REPLICA_CURRENT)
    (record,) = storage.get_asset_check_execution_history(key, limit=1)
    assert record.event is not None
    assert record.event.dagster_event is not None
    return record.event.dagster_event.asset_check_evaluation_data


def created(replica: Replica) -> int:
    return replica.emulator.status().statements["create_snapshot"]


def test_a_tick_requests_a_run_and_the_run_makes_the_rows_equal(replica: Replica, daemon: Daemon, clock: Clock) -> None:
    for iteration in range(2):
        data, results = daemon.tick_and_run()
        (request,), (result,) = data.run_requests or [], results
        assert result.success
        assert request.tags[ITERATION_TAG].endswith(f":{iteration}")
        assert {event.partition for event in result.get_asset_materialization_events()} == {NAME}
        replica.assert_equal_to_source(iteration + 1)
        if iteration:  # the second may be due at once, as subscriptions made at once are spread
            assert daemon.tick().run_requests == [], "its interval is not over"
        until_due(clock)
    assert daemon.instance.get_dynamic_partitions(SUBSCRIPTIONS.name or "") == [NAME]
    assert not runless(daemon)
    assert health(daemon)[0]
    assert replica.emulator.status().sessions_open == 0


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_run_copies_with_spark_in_its_own_sessions(
    recordings: Path, home: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccpr.state.credentials import Vault

    monkeypatch.setattr("ccpr.pipeline.spark.engine._TASK_BYTES", 1)  # else so little is one task's
    Vault(key_file).seal("", None)  # creates the key file that the workers of the one Spark session know
    (home / "home").mkdir()
    (home / "home" / "key").write_bytes(key_file.read_bytes())
    (home / "home" / "key").chmod(0o600)
    with replaying(recordings / "other_account", home) as replica, instance_in(home / "dagster") as instance:
        replica.subscribe()
        _, (result,) = Daemon(instance, copying_here=False).tick_and_run()
        assert result.success
        assert replica.emulator.status().sessions_that_fetched >= 2
        replica.assert_equal_to_source(1)


def test_the_run_goes_on_with_the_snapshot_that_the_tick_took(replica: Replica, daemon: Daemon, clock: Clock) -> None:
    daemon.tick_and_run()
    until_due(clock)
    data = daemon.tick()
    assert created(replica) == 2
    before = replica.emulator.status().statements
    assert row().lease_expires_at == 0, "free for the run"
    (request,) = data.run_requests or []
    assert daemon.run(request).success
    after = replica.emulator.status().statements
    assert created(replica) == 2
    assert after["object_list"] == before["object_list"], "the list is not read again either"
    replica.assert_equal_to_source(2)


def test_an_idle_iteration_materializes_the_same_data_without_a_run(
    replica: Replica, daemon: Daemon, clock: Clock
) -> None:
    for _ in range(2):
        daemon.tick_and_run()
        until_due(clock)
    before, runs = row(), daemon.instance.get_runs_count()
    data = daemon.tick()
    after = row()
    assert data.run_requests == []
    assert (data.skip_message or "").startswith("no run to start: 1 idle")
    assert daemon.instance.get_runs_count() == runs == 2
    assert created(replica) == 3
    assert (after.iteration_lsn, after.error_message, after.lease_expires_at) == (3, None, 0)
    assert after.watermark > before.watermark
    (event,) = runless(daemon)
    assert event.partition == NAME
    shown: dict[str, Any] = {name: value.value for name, value in event.metadata.items()}
    assert (shown[metadata.ITERATION_LSN], shown[metadata.POINT_MADE]) == (2, False)
    assert 0 <= shown[metadata.SNAPSHOT_TO_END_SECONDS] < 30
    assert shown[metadata.NEWEST_POINT] == 1
    assert (event.tags or {})[LSN_TAG] == "2"
    versions = [
        (record.asset_materialization.tags or {})["dagster/data_version"]
        for record in daemon.instance.fetch_materializations(APPLIED, limit=2).records
        if record.asset_materialization is not None
    ]
    assert versions[0] == versions[1], "what depends on the data need not run"
    assert not daemon.instance.fetch_observations(APPLIED, limit=1).records, "which would be mixed with this"
    assert health(daemon)[0]
    assert daemon.tick().asset_events == [], "its interval is not over"
    replica.assert_equal_to_source(2)
    assert len(replica.emulator.status().snapshots) == 2


@pytest.mark.in_turn
def test_a_failing_upstream_is_said_by_the_tick_and_tried_again_later(
    replica: Replica, daemon: Daemon, clock: Clock
) -> None:
    daemon.tick_and_run()
    replica.emulator.inject(CutObjectList(after_rows=1, times=0))
    waits = []
    for count in (1, 2, 3):
        until_due(clock)
        assert daemon.failing_tick().startswith(f"{NAME} (CONNECTION_LOST: ")
        passed, says, shown = health(daemon)
        assert not passed
        assert says.startswith("CONNECTION_LOST")
        assert (shown[metadata.STATE], shown[metadata.FAILED_ATTEMPTS]) == ("failing", count)
        assert shown[metadata.NEXT_ATTEMPT] > clock()
        failures = Failures.of(row().error_message)
        assert failures is not None
        assert failures.count == count
        waiting = daemon.tick().skip_message or ""
        assert f"1 failing: {NAME} (CONNECTION_LOST, {count} in a row since " in waiting
        waits.append(float(waiting.rpartition(" in ")[2].removesuffix(" s")))
    assert all(60 * 2**n - 5 <= wait <= 66 * 2**n for n, wait in enumerate(waits)), waits
    replica.emulator.clear_faults()
    until_due(clock)
    _, (result,) = daemon.tick_and_run()
    assert result.success
    assert created(replica) == 2, "the snapshot of the first attempt"
    assert row().error_message is None
    assert "the objective is 180 s" in health(daemon)[1], "the snapshot of the first attempt is old"
    replica.assert_equal_to_source(2)
    daemon.tick_and_run()
    assert health(daemon)[0], "green again"


@pytest.mark.in_turn
def test_a_replica_that_fails_while_it_copies_is_one_failed_run_an_outage(
    replica: Replica, daemon: Daemon, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has a run of its own, since a tick does not copy; its partition is red until one succeeds."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    daemon.tick_and_run()
    replica.emulator.inject(CutObject(after_bytes=10, times=0))
    done = list[dg.ExecuteInProcessResult]()
    while len(done) < 5:
        until_due(clock)
        done += daemon.tick_and_run()[1]
        assert [asset for asset in STEPS if red(daemon.instance, asset)] == list(STEPS[3:])
    assert [result.success for result in done] == [False, True, True, True, True]
    checks = {check.check_name: check for check in done[-1].get_asset_check_evaluations()}
    assert checks["object_list_valid"].passed
    assert (checks["objects_stored"].passed, checks["objects_stored"].severity) == (False, dg.AssetCheckSeverity.WARN)
    says, shown = health(daemon)[1:]
    assert says.startswith("CONNECTION_LOST, 5 times in a row since ")
    assert shown[metadata.STATE] == "failing"
    assert not daemon.run_by_hand(NAME).success, "a person is told what became of what he asked for"
    replica.emulator.clear_faults()
    until_due(clock)
    assert [result.success for result in daemon.tick_and_run()[1]] == [True]
    assert not [asset for asset in STEPS[:5] if red(daemon.instance, asset)]
    replica.assert_equal_to_source(2)


@pytest.mark.in_turn
@pytest.mark.slow
def test_what_an_operator_starts_and_fails_does_not_move_the_next_attempt_and_its_run_has_our_tags(
    replica: Replica, daemon: Daemon, clock: Clock
) -> None:
    daemon.tick_and_run()
    replica.emulator.inject(CutObjectList(after_rows=1, times=0))
    until_due(clock)
    daemon.failing_tick()
    due = due_at(row())
    for _ in range(2):
        clock.go_on_to(clock() + 5)
        result = daemon.run_by_hand(NAME)
        assert not result.success
        failures = Failures.of(row().error_message)
        assert failures is not None
        assert (failures.count, due_at(row())) == (1, due), "as after the tick"
        run = daemon.instance.get_run_by_id(result.run_id)
        assert run is not None
        assert (run.tags[SUBSCRIPTION_TAG], run.tags[WHY_TAG]) == (NAME, BY_HAND)
    replica.emulator.clear_faults()
    assert daemon.run_by_hand(NAME).success, "it takes up the iteration that the tick has left"
    replica.assert_equal_to_source(2)
    until_due(clock)
    assert (daemon.tick().skip_message or "").startswith("no run to start: 1 idle")


def test_an_upstream_that_is_down_is_said_by_its_own_ticks(
    recordings: Path, home: Path, daemon: Daemon, clock: Clock
) -> None:
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        daemon.tick_and_run()
    age = LagMeter(clock).read(row().task_id, Context.from_text(row().context)).seconds
    for count in (1, 2):
        until_due(clock)
        assert daemon.failing_tick().startswith("replica (UPSTREAM_UNREACHABLE: ")
        assert (row().state, row().lease_expires_at) == (State.RUNNING, 0)
        failures = Failures.of(row().error_message)
        assert failures is not None, "it is in the log an interval after the last point at the latest"
        assert (failures.count, failures.text.partition(":")[0]) == (count, "UPSTREAM_UNREACHABLE")
        before, age = age, LagMeter(clock).read(row().task_id, Context.from_text(row().context)).seconds
        assert before is not None
        assert age is not None
        assert age > before, "the replica still gets older"
    assert "1 failing: replica (UPSTREAM_UNREACHABLE, 2 in a row since " in (daemon.tick().skip_message or "")


def test_an_error_that_needs_a_person_stops_the_subscription_until_it_is_run_by_hand(
    replica: Replica, daemon: Daemon, clock: Clock
) -> None:
    daemon.tick_and_run()
    base = json.loads(row().context or "")["current"]["name"]
    replica.emulator.drop_snapshot(base)
    until_due(clock)
    assert daemon.failing_tick().startswith("replica (BASE_SNAPSHOT_LOST: ")
    passed, says, shown = health(daemon)
    assert (passed, shown[metadata.STATE]) == (False, "stopped")
    assert "ccpr" in says, "what to do"
    clock.go_on_to(clock() + 3600)
    assert daemon.tick().skip_message == f"no run to start: 1 stopped by an error, repair and run: ccpr run {NAME}"
    replica.run("--allow-resync")
    until_due(clock)
    assert (daemon.tick().skip_message or "").startswith("no run to start: 1 idle")
    replica.assert_equal_to_source(2)


def test_a_snapshot_that_is_not_flushed_in_time_is_left_to_a_run(
    recordings: Path, home: Path, daemon: Daemon, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sensor, "SHORT_TIMEOUTS", log_sensor.Timeouts(flush=0.2))
    with replaying(recordings / "other_account", home, may_flush=False, flush_after=1.0) as replica:
        replica.subscribe()
        assert daemon.tick_and_run()[1][0].success
        until_due(clock)
        data, (result,) = daemon.tick_and_run()
        assert data.skip_message is None
        assert result.success
        assert created(replica) == 2
        assert row().error_message is None
        replica.assert_equal_to_source(2)


def test_a_stale_read_is_left_to_a_run_which_asks_again(
    replica: Replica, daemon: Daemon, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.tick_and_run()
    until_due(clock)
    replica.emulator.inject(StaleRead(times=1))
    data, (result,) = daemon.tick_and_run()
    assert data.skip_message is None
    assert result.success
    assert row().error_message is None
    lists = [one.text.split() for one in replica.emulator.log() if one.kind == "object_list"]
    assert sum(words[2] != "-" for words in lists) == 2, "the tick's, and the run's"
    replica.assert_equal_to_source(2)


def test_a_tick_that_runs_out_of_time_leaves_the_iteration_to_a_run(
    replica: Replica, daemon: Daemon, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.tick_and_run()
    until_due(clock)
    take, over = driver.take_snapshot, [0.0]

    def take_long(iteration: Iteration) -> IterationRecord:
        over[0] = log_sensor.TICK_SECONDS
        return take(iteration)

    with monkeypatch.context() as slow:
        slow.setattr(driver, "take_snapshot", take_long)
        slow.setattr(log_sensor, "time", SimpleNamespace(monotonic=lambda: over[0]))
        data = daemon.tick()
    (request,) = data.run_requests or []
    result = daemon.run(request)
    assert result.success
    assert created(replica) == 2
    replica.assert_equal_to_source(2)
