"""A subscription that ran before there was a Dagster: one look at it, and all is there."""

from contextlib import closing
from datetime import datetime
from typing import Any

import dagster as dg
import pyarrow.compute as pc
import pytest

from ccpr.dagster import metadata, tables
from ccpr.dagster.events import (
    APPLIED_TABLES,
    CATALOG_DDL,
    COPIED_OBJECTS,
    MIRROR,
    OBJECT_DIFFS,
    TARGET_DATABASES,
    UPSTREAM_SNAPSHOTS,
    events_of,
)
from ccpr.dagster.health import HEALTH, REPLICA_CURRENT, TARGET_CURRENT, health_key
from ccpr.dagster.table_specs import load_subscriptions
from ccpr.dagster.verdicts import known_verdicts, store_values
from ccpr.pipeline.driver import drive
from ccpr.service.workspace import Workspace
from ccpr_assets.jobs import STEPS
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_failed_runs import tick
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, page, storage
from tests.dagster.test_target_tables import key, place, shown
from tests.targets.target_database import Place

MORE_TABLES = 7
pytestmark = pytest.mark.integration

__all__ = ["place", "storage"]


def passed(instance: dg.DagsterInstance, key: dg.AssetKey, check: str) -> bool:
    """How the one evaluation of a check went."""
    check_key = dg.AssetCheckKey(key, check)
    (record,) = instance.event_log_storage.get_asset_check_execution_history(check_key, limit=10)
    assert record.evaluation is not None
    return record.evaluation.passed


def partition_shown(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    (record,) = instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
    assert record.partition_key == NAME
    assert record.asset_materialization is not None
    return {name: value.value for name, value in record.asset_materialization.metadata.items()}


def test_all_tables_with_rows_and_times_targets_and_health_are_there_after_one_look(
    storage: Storage, place: Place, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TABLES_AT_ONCE", 2)  # an iteration would report two of them
    for number in range(MORE_TABLES):
        storage.create_table(DATABASE, f"t{number}", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
        insert(storage, *range(number), table=f"t{number}")
    ccpr("run", NAME)
    insert(storage, 500)
    while ccpr("run", NAME)["point"]:
        pass
    points = {point["lsn"]: datetime.fromisoformat(point["at"]) for point in ccpr("points", NAME)}
    newest = max(points)
    tick(instance)

    assert instance.get_dynamic_partitions("ccpr_subscription") == [NAME]
    expected = {"a": 101, "b": 0, **{f"t{number}": number for number in range(MORE_TABLES)}}
    for name, rows in expected.items():
        replica, copy = page(instance, DATABASE, name), shown(instance, key(place, name))
        assert (replica[metadata.ROW_COUNT], copy[metadata.ROW_COUNT]) == (rows, rows), name
        changed_at = points[replica[metadata.CHANGED_AT_LSN]]
        assert replica[metadata.LAST_CHANGE] == pytest.approx(changed_at.timestamp(), abs=0.01), name
        assert [column.name for column in replica[metadata.COLUMN_SCHEMA].columns] == ["n", "v"]
    for asset in (APPLIED_TABLES, MIRROR):
        found = partition_shown(instance, asset)
        assert (found[metadata.NEWEST_POINT], found[metadata.TABLES_TOTAL]) == (newest, len(expected))
        assert found[metadata.CURRENT_AS_OF]
    (target,) = partition_shown(instance, TARGET_DATABASES)[metadata.TARGET_STATES].records
    assert (target.data["target"], target.data["point"]) == ("db", newest)
    assert target.data["verified_at"]
    assert passed(instance, dg.AssetKey(HEALTH), REPLICA_CURRENT)
    assert passed(instance, health_key(NAME), REPLICA_CURRENT)
    assert passed(instance, health_key(NAME, "db"), TARGET_CURRENT)


def test_no_asset_stays_without_an_event_where_there_is_no_target_and_it_says_so(
    storage: Storage, instance: dg.DagsterInstance
) -> None:
    """But the tables of an upstream, which Dagster only looks at."""
    ccpr("run", NAME)
    tick(instance)
    tick(instance)
    assert partition_shown(instance, TARGET_DATABASES) == {
        metadata.SAYS: f"the subscription has no target: `ccpr target add {NAME}`"
    }
    specs = {spec.key: spec for spec in (*load_subscriptions().assets, *(asset.get_asset_spec() for asset in STEPS))}
    without = [key for key in specs if instance.get_latest_materialization_event(key) is None]
    assert {key.path[0] for key in without} == {"upstream"}
    assert all("Dagster only looks at it" in (specs[key].description or "") for key in without)


def test_each_step_of_an_iteration_that_no_run_made_shows_what_a_run_would(
    storage: Storage, instance: dg.DagsterInstance
) -> None:
    ccpr("run", NAME)
    storage.create_table(DATABASE, "c", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    storage.drop_table(DATABASE, "b")
    insert(storage, 500, table="c")
    with storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.field("n") < 30)
    with closing(Workspace()) as workspace, workspace.iteration(NAME) as iteration:
        steps = {step.asset: step for step in events_of(drive(iteration), iteration.mirror)}
    tick(instance)
    tick(instance)
    steps_shown = {
        UPSTREAM_SNAPSHOTS: {metadata.SNAPSHOT_NAME, metadata.SNAPSHOT_TS_NANOSECONDS},
        CATALOG_DDL: {metadata.TABLES_TOTAL, "tables_created", "tables_dropped", metadata.DDL_DIFF, metadata.CHANGES},
        OBJECT_DIFFS: {metadata.OBJECTS_ADDED, metadata.OBJECTS_REMOVED, metadata.ADDED_MB, metadata.BY_TABLE},
        COPIED_OBJECTS: {metadata.OBJECTS_COPIED, metadata.COPIED_MB},
        APPLIED_TABLES: {metadata.POINT_MADE, metadata.TABLES_CHANGED, metadata.OBJECTS_COPIED, metadata.TABLES},
    }
    for asset, names in steps_shown.items():
        found = partition_shown(instance, asset)  # one: the second tick has no news
        expected = dg.AssetMaterialization(asset, metadata=steps[asset].result().metadata).metadata
        assert found.keys() >= names
        assert {name: found[name] for name in found if name in expected} == {
            name: expected[name].value for name in found if name in expected
        }, asset


def test_a_new_verdict_is_kept_beside_one_that_is_known(instance: dg.DagsterInstance) -> None:
    store_values(instance, {"a": "1"})
    store_values(instance, {"a": "2", "b": "3"})
    assert known_verdicts(instance, ["a", "b"]) == {"a": "2", "b": "3"}
