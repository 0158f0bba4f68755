"""A target that has nothing to do and goes away, comes back, or is restored from a copy: `ccpr run`, `ccpr serve` and
the sensor see it without a change upstream, and Dagster shows it."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path

import dagster as dg
import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.dagster import metadata
from ccpr.dagster.events import TARGET_DATABASES
from ccpr.dagster.failed_runs import RECORDED
from ccpr.dagster.health import TARGET_CURRENT, health_key
from ccpr.dagster.reporter import DagsterReporter
from ccpr.pipeline.lag import LagMeter
from ccpr.serve.replicator import Replicator
from ccpr.service.status import SubscriptionStatus, TargetStatus, read_status
from ccpr.service.targets import verify_targets
from ccpr.service.workspace import Workspace
from ccpr.state.targets import TargetRecords
from ccpr.targets.errors import TargetMoved, TargetUnavailable
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_failed_runs import red, tick
from tests.dagster.test_tables import NAME, ccpr, insert, storage
from tests.dagster.test_target_tables import place
from tests.sensors.driving import Daemon, instance_in
from tests.support.lake_readers import read_delta_rs
from tests.support.mariadb import MariaDb
from tests.targets.target_database import Place

Act = Callable[[], None]
SECONDS = 120.0  # of a wait; a machine may be busy
pytestmark = pytest.mark.slow

__all__ = ["place", "storage"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """With files, as ticks and runs need it."""
    with instance_in(tmp_path / "dagster") as instance:
        yield instance


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.state.targets.VERIFY_SECONDS", 1.0)
    monkeypatch.setattr("ccpr.dagster.target_health.SHOWN_SECONDS", 1.0)


@contextmanager
def by_command(instance: dg.DagsterInstance) -> Iterator[Act]:
    """`ccpr run` as a timer calls it; `replica_health_sensor` reports what it leaves."""

    def act() -> None:
        typer.testing.CliRunner().invoke(app, ["run", NAME], catch_exceptions=False)
        tick(instance)

    yield act


@contextmanager
def by_service(instance: dg.DagsterInstance) -> Iterator[Act]:
    with closing(Workspace()) as workspace:
        reporter = DagsterReporter(workspace, lambda: instance)
        replicator = Replicator(workspace, [reporter])
        reporter.start()
        replicator.start()
        try:
            yield lambda: time.sleep(0.3)
        finally:
            replicator.stop()
            reporter.stop()


@contextmanager
def by_sensor(instance: dg.DagsterInstance) -> Iterator[Act]:
    daemon = Daemon(instance)

    def act() -> None:
        daemon.tick_and_run()

    yield act


WAYS = {"run": by_command, "serve": by_service, "sensor": by_sensor}
EACH_WAY = [pytest.param("serve"), *(pytest.param(way, marks=pytest.mark.long) for way in ("run", "sensor"))]


@pytest.fixture(params=EACH_WAY)
def act(request: pytest.FixtureRequest, place: Place, instance: dg.DagsterInstance) -> Iterator[Act]:
    """One of the ways that run a subscription, which has a target. Each call lets it go on for a while."""
    ccpr("alter", NAME, "--interval", "1")
    with WAYS[request.param](instance) as act:
        yield act


def status() -> SubscriptionStatus:
    with closing(Workspace()) as workspace:
        return read_status(workspace, workspace.log.row(NAME), LagMeter(workspace.clock))


def target() -> TargetStatus:
    (found,) = status().targets
    return found


def check(instance: dg.DagsterInstance) -> bool | None:
    """Whether the target's check has passed the last time; None before the first."""
    key = dg.AssetCheckKey(health_key(NAME, "db"), TARGET_CURRENT)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    return records[0].evaluation.passed if records and records[0].evaluation is not None else None


def is_settled() -> bool:
    """Whether iterations have found nothing new, and the target shows the newest point."""
    found = status()
    return found.newest_point is not None and found.targets[0].lsn == found.newest_point < found.iteration_lsn - 1


def until(act: Act, holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"not within {SECONDS:.0f} s: {what}"
        act()


def test_a_target_that_goes_away_while_nothing_changes_is_seen_and_is_current_again_by_itself(
    act: Act, place: Place, mariadb: MariaDb, instance: dg.DagsterInstance
) -> None:
    until(act, lambda: is_settled() and check(instance) is True, "nothing changes")
    first, newest = target().verified_at, target().lsn
    assert first is not None
    until(act, lambda: (target().verified_at or 0) > first, "it is asked again while nothing changes")
    found = status()
    assert (found.newest_point, found.targets[0].lag_seconds) == (newest, found.lag_seconds), "it lacks nothing"
    mariadb.kill()
    try:
        until(act, lambda: target().last_error is not None, "status says that it is away")
        error, found = target().last_error, status()
        assert error is not None
        assert error.code == TargetUnavailable.code
        assert found.targets[0].lag_seconds == found.lag_seconds, "it still lacks nothing"
        until(act, lambda: check(instance) is False, "the check is red")
        until(act, lambda: red(instance, TARGET_DATABASES) == {NAME}, "and so is the partition")
    finally:
        mariadb.start()
    until(act, lambda: target().last_error is None, "it is synced again")
    until(act, lambda: check(instance) is True and not red(instance, TARGET_DATABASES), "all is green")
    assert status().newest_point == newest, "nothing has changed all the while"
    event = instance.get_latest_materialization_event(dg.AssetKey(TARGET_DATABASES))
    assert event is not None
    assert event.asset_materialization is not None
    (record,) = event.asset_materialization.metadata[metadata.TARGET_STATES].value.records  # pyright: ignore
    assert record.data["verified_at"]
    assert place.rows("a") == [
        (number, f"v{number}") for number in sorted(range(100), key=lambda n: repr((n, f"v{n}")))
    ]


@pytest.mark.in_turn
def test_an_outage_of_a_target_is_one_failed_run_and_its_page_moves_with_each_attempt(
    place: Place, storage: Storage, mariadb: MariaDb, instance: dg.DagsterInstance
) -> None:
    ccpr("alter", NAME, "--interval", "1")
    with by_sensor(instance) as act:
        until(act, lambda: is_settled() and check(instance) is True, "nothing changes")
        before = len(instance.get_runs())
        mariadb.kill()
        try:
            until(act, lambda: failed_attempts(instance) > 2, "each attempt is on its page")
            assert len(instance.get_runs()) == before + 1, "the recorded one: the target is asked by ticks"
            insert(storage, 1000)
            until(act, lambda: status().newest_point != target().lsn, "the replica goes on")
            until(act, lambda: failed_attempts(instance) > 4, "it is tried again")
            assert red(instance, TARGET_DATABASES) == {NAME}
            assert red(instance, "applied_tables") == set()
        finally:
            mariadb.start()
        until(act, lambda: check(instance) is True and not red(instance, TARGET_DATABASES), "all is green")
    (failed,) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    assert failed.tags["ccpr/why"] == RECORDED
    assert place.query("SELECT COUNT(*) FROM a") == [(101,)]


def failed_attempts(instance: dg.DagsterInstance) -> int:
    key = dg.AssetCheckKey(health_key(NAME, "db"), TARGET_CURRENT)
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.evaluation is not None
    shown = record.evaluation.metadata.get(metadata.FAILED_ATTEMPTS)
    return 0 if shown is None else int(str(shown.value))


def test_a_target_that_was_restored_from_a_copy_is_brought_to_the_newest_point_without_a_change(
    act: Act, place: Place, storage: Storage
) -> None:
    until(act, is_settled, "nothing changes")
    copies, before = {name: place.query(f"SELECT * FROM {name}") for name in ("a", "ccpr_checkpoints")}, target().lsn
    with storage.begin() as transaction:
        transaction.insert("d", "a", {"n": [1000], "v": ["later"]})
    until(act, lambda: is_settled() and target().lsn != before, "the next point is synced")
    for name, rows in copies.items():
        place.query(f"DELETE FROM {name}")
        for row in rows:
            place.query(
                f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})",
                row,
            )
    assert place.query("SELECT COUNT(*) FROM a") == [(100,)]
    until(act, lambda: place.query("SELECT v FROM a WHERE n = 1000") == [("later",)], "it has the newest rows")
    until(act, lambda: target().last_error is None, "it is current")


def test_a_target_that_waits_for_an_approval_is_asked_and_what_it_says_is_no_failure(
    act: Act, mariadb: MariaDb, storage: Storage
) -> None:
    until(act, is_settled, "nothing changes")
    storage.drop_column("d", "a", "v", in_place=True)
    until(act, lambda: bool(target().behind), "the change waits")
    first = target().verified_at
    until(act, lambda: (target().verified_at or 0) > (first or 0), "it is asked")
    assert target().last_error is None
    mariadb.kill()
    try:
        until(act, lambda: target().last_error is not None, "it is away")
    finally:
        mariadb.start()
    until(act, lambda: target().last_error is None, "it is there again")
    assert [table.table for table in target().behind] == ["d.a"]


@pytest.fixture(params=EACH_WAY)
def lake(
    request: pytest.FixtureRequest, storage: Storage, instance: dg.DagsterInstance, tmp_path: Path
) -> Iterator[Act]:
    """As `act`; the target is a lake in a folder."""
    ccpr("alter", NAME, "--interval", "1")
    ccpr("target", "add", NAME, "db", "--to", (tmp_path / "lake").as_uri())
    with WAYS[request.param](instance) as act:
        yield act


def test_a_lake_whose_place_is_away_while_nothing_changes_is_seen_and_is_current_again_by_itself(
    lake: Act, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    until(lake, lambda: is_settled() and check(instance) is True, "nothing changes")
    first = target().verified_at or 0
    until(lake, lambda: (target().verified_at or 0) > first, "it is asked again while nothing changes")
    (tmp_path / "lake").rename(tmp_path / "away")
    (tmp_path / "lake").write_text("a file where the folder was")
    until(lake, lambda: target().last_error is not None, "status says that it is away")
    until(lake, lambda: check(instance) is False, "the check is red")
    (tmp_path / "lake").unlink()
    (tmp_path / "away").rename(tmp_path / "lake")
    until(lake, lambda: target().last_error is None, "it is there again")
    until(lake, lambda: check(instance) is True, "the check is green")
    (table,) = [table for table in ccpr("target", "status", NAME, "db")[0]["tables"] if table["table"] == "d.a"]
    rows = read_delta_rs(table["uri"], table["version"]).select(["n", "v"]).to_pylist()
    assert sorted(rows, key=itemgetter("n")) == [{"n": number, "v": f"v{number}"} for number in range(100)]


def test_a_target_without_its_mark_has_moved(place: Place) -> None:
    ccpr("run", NAME)
    place.query("DELETE FROM ccpr_checkpoints WHERE table_id = 0")
    with closing(Workspace()) as workspace:
        row = workspace.log.row(NAME)
        records = TargetRecords(workspace.log.engine, row.task_id)
        records.change("db", verified_at=None)
        verify_targets(workspace, NAME, ["db", "removed"])
        failing = records.get("db").failing
        assert failing is not None
        assert failing.failure.code == TargetMoved.code
