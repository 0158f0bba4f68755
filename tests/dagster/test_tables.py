"""Tables as assets: what their pages show of each point, how many are reported at once, and what the code location
defines of them."""

import json
import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pyarrow.compute as pc
import pytest
import typer.testing
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._serdes import serialize_value

from ccpr.cli.main import app
from ccpr.dagster import metadata, tables
from ccpr.dagster.component import CcprComponent
from ccpr.dagster.replication import Replication
from ccpr.dagster.table_checks import TABLE_CURRENT
from ccpr.dagster.table_specs import DEFAULT_TABLES, TABLES_VARIABLE, is_run, load_subscriptions, most_tables
from ccpr.dagster.tables import report_tables
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.states import State
from ccpr.state.tables import mo_ccpr_log
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream

pytestmark = pytest.mark.integration

NAME, DATABASE = "shop", "d"


def ccpr(*words: str) -> Any:
    result = typer.testing.CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def storage(home: Path) -> Iterator[Storage]:
    """An upstream with tables `a` (100 rows) and `b`, subscribed to."""
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    for name in ("a", "b"):
        storage.create_table(DATABASE, name, {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    insert(storage, *range(100))
    with SimulatedUpstream(storage) as emulator:
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
        scope = ("--database", DATABASE, "--publication", "p", "--publisher", "sys")
        ccpr("subscribe", NAME, "--from", source, *scope)
        yield storage


def insert(storage: Storage, *numbers: int, table: str = "a") -> None:
    with storage.begin() as transaction:
        transaction.insert(DATABASE, table, {"n": list(numbers), "v": [f"v{number}" for number in numbers]})


def iterate(instance: dg.DagsterInstance) -> int:
    """Run an iteration, and report its tables. Returns how many."""
    ccpr("run", NAME)
    return report(instance)


def report(instance: dg.DagsterInstance) -> int:
    with closing(Workspace()) as workspace:
        return report_tables(instance, workspace, NAME)


def page(instance: dg.DagsterInstance, *path: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(dg.AssetKey([NAME, *path]))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def data_versions(instance: dg.DagsterInstance) -> list[str | None]:
    """Of each materialization of a table, oldest first."""
    records = instance.fetch_materializations(dg.AssetKey([NAME, DATABASE, "a"]), limit=100).records
    events = [record.asset_materialization for record in reversed(records)]
    return [(event.tags or {}).get("dagster/data_version") for event in events if event is not None]


def test_a_page_shows_visible_rows_columns_lineage_and_statements(
    storage: Storage, instance: dg.DagsterInstance
) -> None:
    assert iterate(instance) == 2
    shown = page(instance, DATABASE, "a")
    assert (shown[metadata.ROW_COUNT], shown[metadata.CHANGED_AT_LSN]) == (100, 0)
    assert [(column.name, column.type) for column in shown[metadata.COLUMN_SCHEMA].columns] == [
        ("n", "int"),
        ("v", "varchar(20)"),
    ]
    lineage = shown[metadata.COLUMN_LINEAGE].deps_by_column["v"]
    assert lineage == [dg.TableColumnDep(dg.AssetKey(["upstream", NAME, DATABASE, "a"]), "v")]
    assert "+CREATE TABLE" in shown[metadata.DDL_DIFF]
    with storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.field("n") < 30)
    assert iterate(instance) == 1, "the other one has not changed"
    shown = page(instance, DATABASE, "a")
    assert shown[metadata.ROW_COUNT] == 70 < shown[metadata.STORED_ROWS]
    assert shown[metadata.DDL_DIFF] == "no statement changed"
    assert report(instance) == 0, "all is reported"


def test_other_files_with_the_same_rows_are_no_event(storage: Storage, instance: dg.DagsterInstance) -> None:
    """The flush of an appendable object, and a merge: `last_change` and the data version are those of the rows."""
    iterate(instance)
    insert(storage, 100)
    assert iterate(instance) == 1
    before, versions = page(instance, DATABASE, "a"), data_versions(instance)
    for rewrite in (storage.flush, storage.merge, storage.merge_tombstones):
        rewrite(DATABASE, "a")
        assert iterate(instance) == 0
    assert ccpr("points", NAME)[-1]["tables_changed"] == 0, "there was a point"
    assert ccpr("points", "history", NAME)[0]["tables"] == []
    assert {one["table"]: one["changed_lsn"] for one in ccpr("tables", NAME)["tables"]}["d.a"] == 1
    assert page(instance, DATABASE, "a") == before
    assert data_versions(instance) == versions == ["0", "1"]
    insert(storage, 101)
    assert iterate(instance) == 1
    shown = page(instance, DATABASE, "a")
    assert (shown[metadata.ROW_COUNT], shown[metadata.LAST_CHANGE] > before[metadata.LAST_CHANGE]) == (102, True)


def test_what_is_dropped_or_renamed_says_so(storage: Storage, instance: dg.DagsterInstance) -> None:
    iterate(instance)
    storage.drop_table(DATABASE, "b")
    storage.rename_table(DATABASE, "a", "c")
    iterate(instance)
    assert page(instance, DATABASE, "b")[metadata.STATE] == "dropped upstream"
    assert page(instance, DATABASE, "a")[metadata.STATE] == "renamed to d.c"
    assert page(instance, DATABASE, "c")[metadata.ROW_COUNT] == 100


def test_many_tables_are_reported_little_by_little_the_newest_changes_first(
    storage: Storage, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TABLES_AT_ONCE", 2)
    for number in range(5):
        storage.create_table(DATABASE, f"t{number}", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    assert iterate(instance) == 2
    insert(storage, 1, table="t4")
    iterate(instance)
    assert page(instance, DATABASE, "t4")[metadata.ROW_COUNT] == 1
    for _ in range(4):
        iterate(instance)
    assert iterate(instance) == 0, "all are reported"
    reported = {key.path[-1] for key in instance.get_asset_keys()}
    assert reported == {"a", "b", "t0", "t1", "t2", "t3", "t4"}


def test_an_older_state_that_is_back_is_reported_from_the_beginning(
    storage: Storage, instance: dg.DagsterInstance
) -> None:
    iterate(instance)
    with closing(Workspace()) as workspace:
        key = f"ccpr/tables/{workspace.log.row(NAME).task_id}"
    instance.daemon_cursor_storage.set_cursor_values({key: "7:1:7"})
    assert iterate(instance) == 2


def test_lineage_is_defined_for_as_many_tables_as_there_is_room_for(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ccpr("run", NAME)
    loaded = load_subscriptions()
    deps = {
        spec.key.to_user_string(): sorted(dep.asset_key.to_user_string() for dep in spec.deps) for spec in loaded.assets
    }
    assert deps == {
        "replication_health/shop": ["applied_tables"],
        "upstream/shop/d/a": [],
        "shop/d/a": ["mirror", "upstream/shop/d/a"],
        "upstream/shop/d/b": [],
        "shop/d/b": ["mirror", "upstream/shop/d/b"],
    }
    assert loaded.left_out == 0
    monkeypatch.setenv(TABLES_VARIABLE, "1")
    loaded = load_subscriptions()
    assert len(loaded.assets) == 3
    assert loaded.left_out_text().startswith("1 more tables")
    monkeypatch.setattr(sys, "argv", ["dagster", "api", "execute_run"])
    found = {spec.key.to_user_string() for spec in load_subscriptions().assets}
    assert found == {"replication_health/shop", "shop/d/a"}, "the process of a run executes the checks of tables"


def test_a_component_says_which_tables_are_assets_and_whether_its_sensor_is_on(
    storage: Storage, tmp_path: Path
) -> None:
    ccpr("run", NAME)
    state = tmp_path / "state"

    def made(**attributes: Any) -> dg.Definitions:
        component = CcprComponent(**attributes)
        component.write_state_to_path(state)
        return component.build_defs_from_state(cast("dg.ComponentLoadContext", None), state)

    def keys(found: dg.Definitions) -> set[str]:
        return {spec.key.to_user_string() for spec in found.resolve_all_asset_specs()}

    on, off = made(), made(sensor=False, interval=30, tables="d.b")
    assert {"shop/d/a", "shop/d/b"} <= keys(on)
    assert keys(on) - keys(off) == {"shop/d/a", "upstream/shop/d/a"}
    assert "shop/d/a" in keys(made(most_tables=1)), "the first by name"
    assert "shop/d/b" not in keys(made(most_tables=1))
    sensors = [found.resolve_sensor_def(metadata.LOG_SENSOR) for found in (on, off)]
    assert [sensor.default_status.name for sensor in sensors] == ["RUNNING", "STOPPED"]
    assert [sensor.minimum_interval_seconds for sensor in sensors] == [10, 30]


def test_the_event_of_a_table_with_many_columns_fits_into_dagsters_storage(
    storage: Storage, instance: dg.DagsterInstance
) -> None:
    columns = {f"column_{number}": "varchar(40)" for number in range(600)}
    storage.create_table(DATABASE, "wide", {"n": "int not null", **columns}, primary_key=["n"])
    iterate(instance)
    event = instance.get_latest_materialization_event(dg.AssetKey([NAME, DATABASE, "wide"]))
    assert event is not None
    assert len(serialize_value(event).encode()) < 2**16
    assert page(instance, DATABASE, "wide")[metadata.ROW_COUNT] == 0


def test_foreign_names_make_different_keys_that_storage_has_room_for() -> None:
    names = ["a", "a/b", "a%2Fb", "a\x1bb", "a\\x1bb", "表" * 64, "表" * 63 + "b", "x" * 5000]
    keys = [metadata.asset_key("s", "d", name) for name in names]
    assert len({key.to_string() for key in keys}) == len(names)
    longest = metadata.asset_key(*["表" * 64] * 4)
    assert len(longest.to_string()) < 512
    assert all(part.isprintable() and "/" not in part for key in keys for part in key.path)


def test_the_check_of_a_table_is_executed_in_the_process_of_a_run(
    storage: Storage, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As "Execute" in the UI starts it."""
    iterate(instance)
    monkeypatch.setattr(sys, "argv", ["dagster", "api", "execute_run"])
    loaded = load_subscriptions()
    key = dg.AssetCheckKey(dg.AssetKey([NAME, DATABASE, "a"]), TABLE_CURRENT)
    job = dg.define_asset_job("check", selection=dg.AssetSelection.checks(key))
    resources = {"replication": Replication()}
    ours = dg.Definitions(assets=loaded.assets, asset_checks=loaded.checks, jobs=[job], resources=resources)
    for passes in (True, False):
        run = ours.resolve_job_def("check").execute_in_process(instance=instance, raise_on_error=False)
        assert run.success == passes, "to Dagster a blocking check that does not pass is a failed run"
        (result,) = run.get_asset_check_evaluations()
        assert (result.asset_check_key, result.passed, bool(result.description)) == (key, passes, not passes)
        with closing(Workspace()) as workspace, transaction(workspace.log.engine) as connection:
            gone = {"state": State.ERROR, "error_message": "N:1790000000:MIRROR_MISSING: gone [mirror] Mount the disk."}
            connection.execute(mo_ccpr_log.update().values(**gone))


def test_only_the_process_of_a_run_or_a_step_leaves_tables_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it loads them: a code server that has `@definitions` reconstructs, as a run does."""
    reconstructed = DefinitionsLoadContext(DefinitionsLoadType.RECONSTRUCTION)
    with DefinitionsLoadContext.scoped(reconstructed):
        assert not is_run()
        assert most_tables() == DEFAULT_TABLES
    with multiprocessing.get_context("spawn").Pool(1) as spawned:
        assert spawned.apply(is_run)
    for command in ("execute_run", "execute_step"):
        monkeypatch.setattr(sys, "argv", ["dagster", "api", command])
        assert is_run()
