"""The tables of a target as assets, against a real server: what it has got, what lags, and lineage to it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import dagster as dg
import pytest
import typer.testing

from ccpr.cli.interrupts import BEHIND
from ccpr.cli.main import app
from ccpr.dagster import metadata, tables
from ccpr.dagster.keys import remember_prefix
from ccpr.dagster.table_specs import load_subscriptions
from ccpr.dagster.target_tables import report_target_tables
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, storage
from tests.support.mariadb import MariaDb, uri_from
from tests.targets.target_database import Place, new_database

pytestmark = pytest.mark.integration

__all__ = ["storage"]


@pytest.fixture
def place(mariadb: MariaDb, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The subscription's target `db`."""
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    with new_database(mariadb) as place:
        ccpr("target", "add", NAME, "db", "--to", uri_from(place.uri, "TARGET_PASSWORD"))
        yield place


def iterate(instance: dg.DagsterInstance) -> int:
    """Run an iteration, whether or not a table of the target is behind. Returns how many are reported."""
    result = typer.testing.CliRunner().invoke(app, ["run", NAME], catch_exceptions=False)
    assert result.exit_code in (0, BEHIND), result.output
    return report(instance)


def report(instance: dg.DagsterInstance) -> int:
    with closing(Workspace()) as workspace:
        return report_target_tables(instance, workspace, NAME)


def key(place: Place, table: str) -> dg.AssetKey:
    return dg.AssetKey([NAME, "targets", "db", place.database, table])


def shown(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(key)
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def is_materialized(instance: dg.DagsterInstance, key: dg.AssetKey) -> bool:
    return instance.get_latest_materialization_event(key) is not None


def test_a_projects_prefix_is_of_the_tables_of_targets_and_their_lineage(
    storage: Storage, place: Place, instance: dg.DagsterInstance
) -> None:
    remember_prefix(instance, ["replicas"])
    iterate(instance)
    found = shown(instance, key(place, "a").with_prefix("replicas"))
    replica = dg.AssetKey(["replicas", NAME, DATABASE, "a"])
    assert found[metadata.COLUMN_LINEAGE].deps_by_column["v"] == [dg.TableColumnDep(replica, "v")]
    assert not is_materialized(instance, key(place, "a"))


def test_what_a_target_has_got_is_materialized_with_lineage_to_the_replica(
    storage: Storage, place: Place, instance: dg.DagsterInstance
) -> None:
    assert iterate(instance) == 2
    found = shown(instance, key(place, "a"))
    assert (found[metadata.SYNCED_WITH_POINT], found[metadata.CHANGED_AT_LSN]) == (0, 0)
    assert [column.name for column in found[metadata.COLUMN_SCHEMA].columns] == ["n", "v"]
    assert found[metadata.ROW_COUNT] == 100
    assert metadata.STATE not in found, "the overview shows it also when the table is behind later"
    replica = dg.AssetKey([NAME, DATABASE, "a"])
    assert found[metadata.COLUMN_LINEAGE].deps_by_column["v"] == [dg.TableColumnDep(replica, "v")]
    specs = {spec.key: spec for spec in load_subscriptions().assets}
    assert {dep.asset_key for dep in specs[key(place, "a")].deps} == {replica}
    assert specs[key(place, "a")].kinds == {"mariadb"}
    assert dg.AssetKey(["upstream", NAME, DATABASE, "a"]) in {dep.asset_key for dep in specs[replica].deps}
    insert(storage, 200)
    assert iterate(instance) == 1, "the other one has not changed"
    again = shown(instance, key(place, "a"))
    assert (again[metadata.SYNCED_WITH_POINT], again[metadata.ROW_COUNT]) == (1, 101)
    assert report(instance) == 0
    assert place.query("SELECT COUNT(*) FROM a") == [(101,)]


def test_a_table_that_is_behind_is_observed_with_the_reason_and_materialized_when_it_has_caught_up(
    place: Place, instance: dg.DagsterInstance
) -> None:
    place.query("CREATE TABLE b (somebody INT)")
    assert iterate(instance) == 2
    assert is_materialized(instance, key(place, "a"))
    assert not is_materialized(instance, key(place, "b"))
    (observed,) = instance.fetch_observations(key(place, "b"), limit=10).records
    assert observed.asset_observation is not None
    reason = {name: value.value for name, value in observed.asset_observation.metadata.items()}
    assert reason[metadata.STATE] == "behind"
    assert reason[metadata.REMEDY]
    assert report(instance) == 0
    place.query("DROP TABLE b")
    assert iterate(instance) >= 1
    assert shown(instance, key(place, "b"))[metadata.SYNCED_WITH_POINT] == 1
    assert place.query("SELECT COUNT(*) FROM b") == [(0,)]


def test_many_tables_are_reported_little_by_little(
    storage: Storage, place: Place, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TABLES_AT_ONCE", 2)
    for number in range(3):
        storage.create_table(DATABASE, f"t{number}", {"n": "int not null"}, primary_key=["n"])
    assert [iterate(instance), report(instance), report(instance), report(instance)] == [2, 2, 1, 0]
    assert all(is_materialized(instance, key(place, name)) for name in ("a", "b", "t0", "t1", "t2"))
