"""What the service reports to a Dagster instance without a run: the events of a run (`ccpr.dagster.events`)."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from ccpr.base.errors import Failure
from ccpr.dagster import metadata
from ccpr.dagster.events import APPLIED_TABLES, MIRROR, OBJECT_DIFFS, TARGET_DATABASES
from ccpr.dagster.events import STEPS as ALL_STEPS
from ccpr.dagster.failed_runs import RECORDED, newest_failed, record_failed_run
from ccpr.dagster.health import REPLICA_CURRENT, health_key
from ccpr.dagster.partitions import sync_partitions
from ccpr.dagster.reporter import MOST_WAITING, DagsterReporter
from ccpr.dagster.step import iteration_tag
from ccpr.schema.choices import DdlPolicy, Dialect
from ccpr.serve.holding import Holding
from ccpr.serve.replicator import Replicator
from ccpr.service.target_sync import TargetOutcome
from ccpr.service.workspace import Workspace
from ccpr.state.settings import TargetSettings
from ccpr.state.targets import Target, TargetRecords
from ccpr_emulator.serving.faults import CutObjectList
from tests.dagster.test_failed_runs import red, texts, tick
from tests.sensors.driving import Clock, Daemon, instance_in
from tests.sensors.test_tick_to_rows import until_due
from tests.support.replica import NAME, Replica, replaying

STEPS = ["upstream_snapshots", "catalog_ddl", "object_diffs", "copied_objects", "applied_tables"]
pytestmark = [pytest.mark.integration, pytest.mark.recordings]


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        yield replica


def iterate(workspace: Workspace, reporter: DagsterReporter, times: int) -> None:
    replicator = Replicator(workspace, [reporter])
    holding = Holding(workspace, workspace.log.row(NAME), replicator._sessions)
    reporter.subscriptions_read(workspace.log.rows())
    for _ in range(times):
        replicator._iterate(workspace.log.row(NAME), holding)
    replicator.stop()


def test_iterations_are_materializations_with_the_figures_of_a_run(
    replica: Replica, instance: dg.DagsterInstance
) -> None:
    with closing(Workspace()) as workspace:
        reporter = DagsterReporter(workspace, lambda: instance)
        reporter.start()
        iterate(workspace, reporter, 2)
        assert reporter.flush(120)
    assert instance.get_dynamic_partitions("ccpr_subscription") == [NAME]
    for asset in STEPS:
        records = instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
        assert [record.partition_key for record in records] == [NAME, NAME], asset
        newest = records[0].asset_materialization
        assert newest is not None
        assert newest.tags[metadata.LSN_TAG] == "1" if newest.tags else False
    assert (reporter.dropped, len(instance.get_runs())) == (0, 0)
    replica.assert_equal_to_source(2)


def test_iterations_of_the_service_that_fail_are_one_failed_run_and_a_red_partition_until_one_succeeds(
    replica: Replica, instance: dg.DagsterInstance
) -> None:
    with closing(Workspace()) as workspace:
        reporter = DagsterReporter(workspace, lambda: instance)
        reporter.start()
        iterate(workspace, reporter, 1)
        assert reporter.flush(120)
        assert (instance.get_runs(), red(instance, APPLIED_TABLES)) == ([], set())
        replica.emulator.stop()
        iterate(workspace, reporter, 2)
        assert reporter.flush(120)
        (run,) = instance.get_runs()
        assert (run.status, run.tags[metadata.WHY_TAG]) == (dg.DagsterRunStatus.FAILURE, RECORDED)
        assert "UPSTREAM_UNREACHABLE" in texts(instance, run)
        assert red(instance, APPLIED_TABLES) == {NAME}
        replica.emulator.restart()
        iterate(workspace, reporter, 1)
        assert reporter.flush(120)
        assert (len(instance.get_runs()), red(instance, APPLIED_TABLES)) == (1, set())
        reporter.stop()
    replica.assert_equal_to_source(2)


def test_a_target_that_fails_after_its_iteration_is_red_without_another_one(
    replica: Replica, instance: dg.DagsterInstance
) -> None:
    health = dg.AssetCheckKey(health_key(NAME), REPLICA_CURRENT)
    with closing(Workspace()) as workspace:
        reporter = DagsterReporter(workspace, lambda: instance)
        reporter.start()
        iterate(workspace, reporter, 1)
        row = workspace.log.row(NAME)
        records, now = TargetRecords(workspace.log.engine, row.task_id), datetime.now(UTC)
        to = "mysql://u@127.0.0.1:3306/d"
        records.add(Target(row.task_id, "report", to, "", Dialect.MARIADB, TargetSettings(DdlPolicy.FULL), now))
        away = Failure("TARGET_UNAVAILABLE", "the target does not answer now", "target", "Wait.")
        seen: list[bool] = []
        for failure in (None, away, away):
            if failure is not None:
                records.record_failure(records.get("report"), failure, now)
            reporter.target_synced(row, TargetOutcome("report", None, failure, 0.1))
            assert reporter.flush(120)
            (record,) = instance.event_log_storage.get_asset_check_execution_history(health, limit=1)
            evaluation = record.evaluation
            assert evaluation is not None
            seen.append(evaluation.passed)
        reporter.stop()
        count = len(instance.event_log_storage.get_asset_check_execution_history(health, limit=100))
    assert seen == [True, False, False]
    assert count == 2, "one for the iteration, one for the change"
    assert reporter.dropped == 0


def test_an_instance_that_fails_or_hangs_neither_delays_nor_fails_an_iteration(replica: Replica) -> None:
    def broken() -> dg.DagsterInstance:
        raise OSError("the storage is away")

    with closing(Workspace()) as workspace:
        reporter = DagsterReporter(workspace, broken)
        reporter.start()
        iterate(workspace, reporter, 2)
    replica.assert_equal_to_source(2)
    for _ in range(MOST_WAITING * 2):
        reporter._put(0, list)
    assert len(reporter._waiting) <= MOST_WAITING
    reporter.stop()


def test_a_report_that_fails_is_counted_and_the_next_one_is_made(
    replica: Replica, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of the followers; one at a time waits."""
    monkeypatch.setattr("ccpr.dagster.reporter._RETRY_SECONDS", 0.01)
    opened: list[int] = []

    def at_last() -> dg.DagsterInstance:
        opened.append(1)
        if len(opened) < 3:
            raise ZeroDivisionError
        return instance

    with closing(Workspace()) as workspace:
        reporter = DagsterReporter(workspace, at_last)
        reporter._put(0, reporter._followers)
        reporter._followers_wait = True
        reporter.subscriptions_read(workspace.log.rows())
        reporter.start()
        assert reporter.flush(60)
        reporter.subscriptions_read(workspace.log.rows())
        assert reporter.flush(60)
        assert (reporter.loop.errors, reporter.dropped, reporter._followers_wait) == (2, 2, False)
        assert reporter.loop.trouble() is None
    assert instance.get_dynamic_partitions("ccpr_subscription") == [NAME]


def counts(instance: dg.DagsterInstance) -> dict[str, int]:
    keys = [*ALL_STEPS, MIRROR]
    return {asset: len(instance.fetch_materializations(dg.AssetKey(asset), limit=100).records) for asset in keys}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["serve", "run", "sensor"])
def test_what_a_failed_run_left_red_is_green_with_the_next_iteration_that_succeeds_idle_or_not(
    way: str, recordings: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes it, and by one materialization an outage. The last one leaves no trace in the log, as that of a run
    that was killed."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with (
        replaying(recordings / "other_account", home) as replica,
        instance_in(tmp_path / "dagster") as instance,
        closing(Workspace(clock=(clock := Clock()))) as workspace,
    ):
        replica.subscribe()
        sync_partitions(instance, workspace)
        daemon = Daemon(instance, clock)
        reporter = DagsterReporter(workspace, lambda: instance)
        reporter.start()

        def iterate_once() -> None:
            if way == "serve":
                iterate(workspace, reporter, 1)
                assert reporter.flush(120)
            elif way == "run":
                replica.run()
            else:
                until_due(clock)
                assert (daemon.tick().skip_message or "").startswith("no run to start: 1 idle")

        while replica.run()["point"]:
            pass
        tick(instance)
        replica.emulator.inject(CutObjectList(after_rows=1, times=0))
        assert not daemon.run_by_hand(NAME).success
        tick(instance)
        assert [asset for asset in ALL_STEPS if red(instance, asset)] == list(ALL_STEPS[2:])
        replica.emulator.clear_faults()
        before = counts(instance)
        iterate_once()
        for _ in range(2):
            tick(instance)
            assert [asset for asset in ALL_STEPS if red(instance, asset)] == []
        after = counts(instance)
        once = [OBJECT_DIFFS, "copied_objects", APPLIED_TABLES, TARGET_DATABASES]
        assert {asset: after[asset] - before[asset] for asset in after} == {
            asset: int(asset in once) for asset in after
        }

        record_failed_run(instance, NAME, OBJECT_DIFFS, "the process of the run was killed", {})
        run = newest_failed(instance, NAME)
        assert run is not None
        instance.add_run_tags(run.run_id, {metadata.ITERATION_TAG: iteration_tag(workspace.log.row(NAME))})
        tick(instance)
        assert red(instance, OBJECT_DIFFS) == {NAME}, "none has succeeded since"
        for _ in range(10):
            iterate_once()
            tick(instance)
            assert red(instance, OBJECT_DIFFS) == set()
        final = counts(instance)
        assert {asset: final[asset] - after[asset] for asset in ALL_STEPS if asset != APPLIED_TABLES} == {
            asset: int(asset == OBJECT_DIFFS) for asset in ALL_STEPS if asset != APPLIED_TABLES
        }
        reporter.stop()
        replica.assert_equal_to_source(2)
