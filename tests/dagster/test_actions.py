"""Acting from the UI: each job does as the command of its name, and tells how the subscription is afterwards."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.dagster.actions import ACTION_JOBS, APPROVE, DRILL, PAUSE, REBUILD, RESUME, RESYNC, VERIFY, build_actions
from ccpr.dagster.care import COPIES, FILES_READ, RESTORE_TRIED, care_checks
from ccpr.dagster.health import health_key
from ccpr.dagster.health_assets import health_asset
from ccpr.dagster.metadata import SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.replication import Replication
from ccpr.dagster.step import BY_HAND
from ccpr.dagster.target_health import read_targets
from ccpr.service.workspace import Workspace
from ccpr.state.states import State
from ccpr.state.targets import TargetRecords
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, storage
from tests.dagster.test_target_tables import iterate, place
from tests.sensors.driving import ProcessCopying
from tests.targets.target_database import Place

__all__ = ["place", "storage"]
pytestmark = pytest.mark.integration


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions("ccpr_subscription", [NAME])
    return instance


def act(instance: dg.DagsterInstance, job: str, **config: object) -> dg.ExecuteInProcessResult:
    resources = {"replication": Replication(), "spark": ProcessCopying()}
    (op,) = (name for name in ("pause", "resume", "verify", "resync", "rebuild", "approve", "drill") if name in job)
    project = dg.Definitions(jobs=build_actions(Replication()), resources=resources)
    return project.resolve_job_def(job).execute_in_process(
        instance=instance,
        partition_key=NAME,
        run_config={"ops": {op: {"config": config}}} if config else None,
        raise_on_error=False,
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    shown = event.step_failure_data.user_failure_data
    assert shown is not None
    return shown.description or ""


def health(instance: dg.DagsterInstance, target: str = "") -> dict[str, Any]:
    event = instance.get_latest_materialization_event(health_key(NAME, target))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def columns(place: Place) -> set[str]:
    return {row[0] for row in place.query("SHOW COLUMNS FROM a")}


def test_the_jobs_are_those_whose_runs_are_deleted_when_they_are_old() -> None:
    assert tuple(job.name for job in build_actions(Replication())) == ACTION_JOBS
    assert all(job.partitions_def is not None and job.description for job in build_actions(Replication()))


def test_pausing_and_resuming(storage: Storage, instance: dg.DagsterInstance) -> None:
    ccpr("run", NAME)
    result = act(instance, PAUSE)
    assert result.success
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert (run.tags[SUBSCRIPTION_TAG], run.tags[WHY_TAG]) == (NAME, BY_HAND)
    assert health(instance)["state"] == "paused"
    assert act(instance, RESUME).success
    with closing(Workspace()) as workspace:
        assert workspace.log.row(NAME).state == State.RUNNING
    assert health(instance)["state"] == "idle"


def test_verifying_and_comparing_anew(storage: Storage, instance: dg.DagsterInstance) -> None:
    ccpr("run", NAME)
    assert act(instance, VERIFY).success
    insert(storage, 200)
    assert act(instance, RESYNC).success
    with closing(Workspace()) as workspace:
        lost = next(workspace.default_mirror(NAME).rglob("*_00000"), None)
        assert lost is not None
        lost.write_bytes(b"")
    assert "damaged files stay" in failure(act(instance, VERIFY, repair=False))
    assert act(instance, VERIFY, repair=True).success


def checked(instance: dg.DagsterInstance) -> dict[str, tuple[bool, str]]:
    """By check, whether it passed and what it says."""
    checks = care_checks(NAME)
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(*checks))
    assets, resources = [health_asset(NAME, 60.0, "tables")], {"replication": Replication()}
    project = dg.Definitions(assets=assets, asset_checks=checks, jobs=[job], resources=resources)
    result = project.resolve_job_def("checks").execute_in_process(instance=instance)
    return {one.check_name: (one.passed, one.description or "") for one in result.get_asset_check_evaluations()}


def test_a_drill_restores_a_point_and_a_check_says_how_the_last_one_went(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    lsn = ccpr("run", NAME)["lsn"]
    assert checked(instance) == {
        RESTORE_TRIED: (True, "no drills are asked for: `ccpr alter --drill-every`"),
        FILES_READ: (True, "files are not read again by themselves: `ccpr alter --verify-within`"),
        COPIES: (True, "there is no second copy: `ccpr copy`"),
    }
    ccpr("alter", NAME, "--verify-within", "30d")
    assert act(instance, DRILL, into=str(tmp_path / "scratch"), at=str(lsn)).success
    (done,) = ccpr("drill", NAME, "--history")
    assert (done["lsn"], done["rows"], done["failure"]) == (lsn, 100, None)
    assert all(passed for passed, _ in checked(instance).values())
    assert "HOLD_MISSING" in failure(act(instance, DRILL, at="no-such-point"))
    with closing(Workspace()) as workspace:
        for file in workspace.default_mirror(NAME).rglob("*_00000"):
            file.write_bytes(b"x" * file.stat().st_size)
    assert "MIRROR_DAMAGED" in failure(act(instance, DRILL))
    passed, says = checked(instance)[RESTORE_TRIED]
    assert not passed
    assert "MIRROR_DAMAGED" in says


def test_a_check_says_whether_second_copies_are_up_to_date(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    ccpr("run", NAME)
    second = tmp_path / "second"
    ccpr("copy", NAME, "--to", str(second))
    assert checked(instance)[COPIES] == (True, "each was copied to in time")
    third = tmp_path / "third"
    third.write_text("a file is where the folder should be")
    ccpr("alter", NAME, "--copy-to", str(third), "--copy-every", "1h")
    with pytest.raises(AssertionError, match="STORE_FAILED"):
        ccpr("copy", NAME)
    passed, says = checked(instance)[COPIES]
    assert not passed
    assert "third could not be brought up to date: STORE_FAILED" in says
    third.unlink()
    ccpr("copy", NAME)
    assert checked(instance)[COPIES] == (True, "each was copied to in time")


def test_a_change_that_waits_is_approved_to_the_letter(
    storage: Storage, place: Place, instance: dg.DagsterInstance
) -> None:
    iterate(instance)
    storage.drop_column(DATABASE, "a", "v", in_place=True)
    insert_one(storage)
    iterate(instance)
    with closing(Workspace()) as workspace:
        (found,) = read_targets(workspace, workspace.log.row(NAME))
        records = TargetRecords(workspace.log.engine, workspace.log.row(NAME).task_id)
        assert (found.state, found.current, found.grave) == ("behind", False, False)
        assert found.says.startswith(f"{DATABASE}.a waits: upstream: column v dropped")
        assert "```sql\nALTER TABLE `" in found.description
        assert launchpad(APPROVE) == {"target": "db", "table": f"{DATABASE}.a"}
        assert f"`ccpr target approve {NAME} db {DATABASE}.a`" in found.says
        recorded = records.get("db")
        (waiting,) = recorded.behind
        shown = waiting.to_json() | {"statements": ["ALTER TABLE `a` DROP COLUMN `other`"]}
        records.change("db", behind=f"[{json.dumps(shown)}]")
        assert "PLAN_OUTDATED" in failure(act(instance, APPROVE, target="db", table=f"{DATABASE}.a"))
        assert "v" in columns(place)
        records.change("db", behind=f"[{json.dumps(waiting.to_json())}]")
    assert "TARGET_TABLE_UNKNOWN" in failure(act(instance, APPROVE, target="db", table="b"))
    assert act(instance, APPROVE, target="db", table="a").success
    assert "v" not in columns(place)
    assert health(instance, "db")["state"] == "current"
    assert place.query("SELECT COUNT(*) FROM a") == [(101,)]
    assert act(instance, REBUILD, target="db", table="a").success


def launchpad(job: str) -> object:
    """The config that the launchpad begins with."""
    (found,) = (one for one in build_actions(Replication()) if one.name == job)
    assert found.partitioned_config is not None
    (config,) = found.partitioned_config.get_run_config_for_partition_key(NAME)["ops"].values()
    return config["config"]


def test_a_job_without_a_target_takes_the_only_one_and_names_the_tables(
    storage: Storage, place: Place, instance: dg.DagsterInstance
) -> None:
    iterate(instance)
    assert launchpad(REBUILD) == {"target": "db", "table": ""}
    assert f"Name one of {DATABASE}.a, {DATABASE}.b." in failure(act(instance, REBUILD))
    assert act(instance, REBUILD, table="a").success


def insert_one(storage: Storage) -> None:
    with storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [900]})


def test_the_command_approves_a_table_too(storage: Storage, place: Place, instance: dg.DagsterInstance) -> None:
    iterate(instance)
    storage.drop_column(DATABASE, "a", "v", in_place=True)
    iterate(instance)
    result = typer.testing.CliRunner().invoke(app, ["target", "approve", NAME, "db", "a"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "v" not in columns(place)
