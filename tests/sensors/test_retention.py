"""Dagster's records of iterations are deleted by age, in its real storages; those that show an asset's present state
are kept."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.events import StepMaterializationData
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.test_utils import create_run_for_test

from ccpr.dagster import retention_sensor as retention
from ccpr.dagster.health import health_key
from ccpr.dagster.retention_sensor import DAYS_VARIABLE, Purged, kept_days, purge
from ccpr_assets.applied_tables import applied_tables
from ccpr_assets.jobs import STEPS
from sensors.retention import dagster_retention_sensor
from tests.sensors.driving import Clock, Daemon, instance_in
from tests.support.mariadb import MariaDb
from tests.support.replica import NAME, Replica, replaying

pytestmark = pytest.mark.long

RUNS, IDLE = 2, 3
OF_IDLE = 5  # applied_tables; the subscription's check and series, and those over all
TABLE = dg.AssetKey([NAME, "gd_acc", "p"])
OTHER = "another_subscription"


def later() -> datetime:
    """A time before which everything has happened."""
    return datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture(params=["sqlite", "mariadb"])
def instance(request: pytest.FixtureRequest, home: Path) -> Iterator[dg.DagsterInstance]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(instance_in(home / "dagster"))
            return
        server: MariaDb = request.getfixturevalue("mariadb")
        name = f"dagster_{home.name}"
        server.create_database(name)
        storage = {
            "username": server.user,
            "password": server.password,
            "hostname": server.host,
            "db_name": name,
            "port": server.port,
        }
        yield stack.enter_context(dg.instance_for_test({"storage": {"mysql": {"mysql_db": storage}}}))


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe("--interval", "60")
        yield replica


@pytest.fixture
def daemon(instance: dg.DagsterInstance, replica: Replica) -> Daemon:
    """A daemon that has replicated both states of the recording, and has run three idle iterations."""
    clock = Clock()
    daemon = Daemon(instance, clock)
    for number in range(RUNS + IDLE):
        data, results = daemon.tick_and_run()
        assert all(result.success for result in results)
        assert (len(results), len(data.asset_events)) == ((1, 0) if number < RUNS else (0, OF_IDLE))
        clock.go_on_to(clock() + 120)
    observation = dg.AssetObservation(applied_tables.key, partition=OTHER)  # as 0.1.0 reported idle iterations
    instance.report_runless_asset_event(observation)
    instance.report_runless_asset_event(dg.AssetObservation("of_somebody_else"))
    instance.report_runless_asset_event(dg.AssetObservation("of_somebody_else"))
    return daemon


def observed(instance: dg.DagsterInstance, key: dg.AssetKey = applied_tables.key) -> int:
    return len(instance.fetch_observations(key, limit=100).records)


def reported(instance: dg.DagsterInstance, key: dg.AssetKey = applied_tables.key) -> list[tuple[str | None, int]]:
    """(partition, iteration) of all materializations without a run, newest first."""
    records = instance.fetch_materializations(key, limit=100).records
    found = [record.asset_materialization for record in records if not record.run_id]
    return [(event.partition, int((event.tags or {}).get("ccpr/iteration_lsn", -1))) for event in found if event]


def rows(instance: dg.DagsterInstance, *tables: str) -> list[int]:
    """How many rows there are, for each table or table with condition."""
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    with storage.index_connection() as connection:
        return [connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) or 0 for table in tables]


@pytest.mark.recordings
def test_old_records_are_deleted_and_the_present_state_is_kept(
    instance: dg.DagsterInstance, daemon: Daemon, replica: Replica
) -> None:
    newest, oldest = [run.run_id for run in instance.get_runs()]
    assert purge(instance, datetime.now(UTC) - timedelta(hours=1)) == Purged(0, 0, True)
    assert purge(instance, later()).runs == RUNS - 1
    assert [run.run_id for run in instance.get_runs()] == [newest]
    assert reported(instance) == [(NAME, RUNS + IDLE - 1)], "the newest of each partition"
    assert observed(instance) == 1
    assert observed(instance, dg.AssetKey("of_somebody_else")) == 2
    assert len(reported(instance, health_key(NAME))) == len(reported(instance, TABLE)) == 1
    assert reported(instance, dg.AssetKey("mirror")) == [(NAME, RUNS - 1)]
    for asset in STEPS[:-1]:  # it has no target
        made = [one for one in instance.fetch_materializations(asset.key, limit=10).records if one.run_id]
        assert [one.run_id for one in made] == [newest]
        assert instance.get_materialized_partitions(asset.key) == {NAME}
    assert rows(instance, "asset_check_executions") == [4], "two of the last run, the newest two without a run"
    assert rows(
        instance,
        f"event_logs WHERE run_id = '{oldest}'",
        "asset_event_tags WHERE event_id NOT IN (SELECT id FROM event_logs)",
    ) == [0, 0]
    assert purge(instance, later()) == Purged(0, 0, True)
    data, results = daemon.tick_and_run()
    assert (len(results), len(data.asset_events)) == (0, OF_IDLE), "and the sensor goes on"
    replica.assert_equal_to_source(RUNS)


@pytest.mark.recordings
def test_runs_that_an_operator_started_on_assets_are_kept_and_deleted_as_the_others(
    instance: dg.DagsterInstance, daemon: Daemon
) -> None:
    @dg.asset
    def elsewhere() -> None: ...

    foreign = dg.Definitions(assets=[elsewhere]).resolve_implicit_global_asset_job_def()
    others = {foreign.execute_in_process(instance=instance).run_id for _ in range(2)}
    first, second = (daemon.run_by_hand(NAME) for _ in range(2))
    assert first.success
    assert second.success
    assert {run.job_name for run in instance.get_runs() if run.run_id in (first.run_id, *others)} == {"__ASSET_JOB"}
    purge(instance, later())
    assert {run.run_id for run in instance.get_runs()} == {second.run_id, *others}
    assert instance.get_materialized_partitions(applied_tables.key) == {NAME}


@pytest.mark.recordings
def test_a_run_with_the_newest_materialization_of_one_asset_is_kept(
    instance: dg.DagsterInstance, daemon: Daemon
) -> None:
    kept = [run.run_id for run in instance.get_runs()]
    oldest = dg.AssetMaterialization(STEPS[0].key, partition=OTHER)
    instance.report_dagster_event(_materialized(oldest), kept[-1])
    assert purge(instance, later()).runs == 0
    assert [run.run_id for run in instance.get_runs()] == kept


def _materialized(materialization: dg.AssetMaterialization) -> dg.DagsterEvent:
    return dg.DagsterEvent(
        dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        "ccpr_sync_job",
        event_specific_data=StepMaterializationData(materialization),
    )


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.NOT_STARTED])
def test_runs_that_have_not_ended_and_runs_of_other_jobs_are_kept(status: dg.DagsterRunStatus) -> None:
    with dg.instance_for_test() as instance:
        mine = create_run_for_test(instance, job_name="ccpr_sync_job", status=status)
        other = create_run_for_test(instance, job_name="other_job", status=dg.DagsterRunStatus.SUCCESS)
        create_run_for_test(instance, job_name="ccpr_sync_job", status=dg.DagsterRunStatus.FAILURE)
        assert purge(instance, later()) == Purged(1, 0, True)
        assert {run.run_id for run in instance.get_runs()} == {mine.run_id, other.run_id}


def test_many_runs_are_deleted_page_by_page_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAGE", 3)
    with dg.instance_for_test() as instance:
        for number in range(10):
            run = create_run_for_test(instance, job_name="ccpr_sync_job", status=dg.DagsterRunStatus.SUCCESS)
            if number in (0, 4):  # the present state of another partition, between the others
                instance.report_dagster_event(
                    _materialized(dg.AssetMaterialization(STEPS[0].key, partition=str(number))), run.run_id
                )
        assert purge(instance, later(), end=0.0) == Purged(0, 0, False)
        assert purge(instance, later()) == Purged(8, 0, True)
        assert instance.get_runs_count() == 2


@pytest.mark.recordings
def test_a_deleted_run_leaves_no_file(home: Path, replica: Replica) -> None:
    with instance_in(home / "dagster") as instance:
        clock = Clock()
        daemon = Daemon(instance, clock)
        for _ in range(RUNS):
            daemon.tick_and_run()
            clock.go_on_to(clock() + 120)
        newest, oldest = [run.run_id for run in instance.get_runs()]
        purge(instance, later())
        files = [str(path) for path in (home / "dagster").rglob("*")]
        assert not [file for file in files if oldest in file]
        assert [file for file in files if newest in file]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("", 14.0),
        ("0", 0.0),
        ("0.5", 0.5),
        ("30", 30.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("a week", None),
    ],
)
def test_the_setting_is_a_number_of_days(text: str, days: float | None) -> None:
    assert kept_days(text) == days


@pytest.fixture
def sense(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    def evaluate(days: str) -> str:
        monkeypatch.setenv(DAYS_VARIABLE, days)
        with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance=instance) as context:
            reason = dagster_retention_sensor(context)
        assert isinstance(reason, dg.SkipReason)
        return reason.skip_message or ""

    return evaluate


def test_a_tick_says_what_it_did(sense: Callable[[str], str]) -> None:
    assert sense("7") == "deleted 0 runs and 0 events without a run older than 7 days"
    assert "nothing deleted" in sense("seven")
