"""What a project gets from `CcprComponent`: assets as its translator has them, tables as inputs in the process of a
run, Dagster's own checks on tables."""

import sys
from pathlib import Path
from typing import Any, cast

import dagster as dg
import polars as pl
import pytest

from ccpr.dagster import CcprComponent, MirrorTranslator, metadata
from ccpr.dagster.keys import remember_keys, remember_prefix
from ccpr.state.errors import BadSetting
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, iterate, storage

pytestmark = pytest.mark.integration

__all__ = ["storage"]
PREFIX = ["replicas"]
TABLE = dg.AssetKey([*PREFIX, NAME, DATABASE, "a"])


class ByTable(MirrorTranslator):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        spec = super().get_asset_spec(spec)
        if spec.metadata.get(metadata.TABLE_NAME) != "d.a":
            return spec
        return spec.replace_attributes(
            group_name="orders", kinds={"table"}, owners=["team:orders"], description="Ours."
        )


class WithKeys(MirrorTranslator):
    """Of `d.a`: `warehouse/a`, and of its table upstream."""

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        spec = super().get_asset_spec(spec)
        if spec.key.path[-2:] != [DATABASE, "a"]:
            return spec
        is_source = "upstream" in spec.key.path
        return spec.replace_attributes(key=["lake" if is_source else "warehouse", "a"])


class Swapping(MirrorTranslator):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        if metadata.TABLE_NAME not in spec.metadata:
            return spec
        return spec.replace_attributes(key=[*spec.key.path[:-1], {"a": "b", "b": "a"}[spec.key.path[-1]]])


class OneForAll(MirrorTranslator):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(key="one") if metadata.TABLE_NAME in spec.metadata else spec


class Renaming(MirrorTranslator):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(key="another")


def definitions(folder: Path, **attributes: Any) -> dg.Definitions:
    component = CcprComponent(translation=MirrorTranslator(key_prefix=PREFIX, owners=["team:data"]), **attributes)
    component.write_state_to_path(folder / "state")
    return component.build_defs_from_state(cast(Any, None), folder / "state")


def test_a_subclass_of_the_translator_decides_by_table(storage: Storage, tmp_path: Path) -> None:
    ccpr("run", NAME)
    found = definitions(tmp_path, translator=f"{__name__}.ByTable")
    specs = {spec.key: spec for spec in found.resolve_all_asset_specs()}
    one, other = specs[TABLE], specs[dg.AssetKey([*TABLE.path[:-1], "b"])]
    assert (one.group_name, one.kinds, list(one.owners), one.description) == (
        "orders",
        {"table"},
        ["team:orders"],
        "Ours.",
    )
    assert (other.group_name, list(other.owners)) == ("tables_shop", ["team:data"])
    with pytest.raises(BadSetting, match="a translator changes this key"):
        definitions(tmp_path, translator=f"{__name__}.Renaming").resolve_all_asset_specs()
    with pytest.raises(BadSetting, match="gives two tables the key"):
        definitions(tmp_path, translator=f"{__name__}.OneForAll")
    with pytest.raises(BadSetting, match="no translator"):
        definitions(tmp_path, translator=f"{__name__}.Storage").resolve_all_asset_specs()


def tick(found: dg.Definitions, instance: dg.DagsterInstance) -> None:
    """What a tick makes of the keys."""
    with dg.build_sensor_context(instance=instance, definitions=found, sensor_name=metadata.HEALTH_SENSOR) as context:
        remember_keys(context, PREFIX)


def versions(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """Of the materializations of an asset, the newest first."""
    events = (one.asset_materialization for one in instance.fetch_materializations(key, limit=9).records)
    return [(event.tags or {})["dagster/data_version"] for event in events if event is not None]


def test_a_table_that_gets_another_key_takes_its_newest_materialization_along(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    remember_prefix(instance, PREFIX)
    iterate(instance)
    new, other = dg.AssetKey(["warehouse", "a"]), dg.AssetKey([*TABLE.path[:-1], "b"])
    renamed, plain = definitions(tmp_path, translator=f"{__name__}.WithKeys"), definitions(tmp_path)
    for _ in range(2):
        tick(renamed, instance)
        assert (versions(instance, new), versions(instance, other)) == (["0"], ["0"])
    insert(storage, 1000)
    iterate(instance)
    assert (versions(instance, new), versions(instance, TABLE)) == (["1", "0"], ["0"])
    event = instance.get_latest_materialization_event(new)
    assert event is not None
    assert event.asset_materialization is not None
    lineage = cast("dg.TableColumnLineage", event.asset_materialization.metadata[metadata.COLUMN_LINEAGE].value)
    assert lineage.deps_by_column["n"] == [dg.TableColumnDep(dg.AssetKey(["lake", "a"]), "n")]
    tick(plain, instance)
    insert(storage, 1001)
    iterate(instance)
    assert (versions(instance, new), versions(instance, TABLE)) == (["1", "0"], ["2", "1", "0"])


def test_a_key_that_is_another_tables_now_is_not_read_as_the_old_one(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Two tables change their keys: what the key was materialized as is not what it is defined as."""
    iterate(instance)
    key = dg.AssetKey([NAME, DATABASE, "b"])

    @dg.asset(ins={"rows": dg.AssetIn(key, input_manager_key="mirror")})
    def downstream(rows: pl.LazyFrame) -> None: ...

    component = CcprComponent(translator=f"{__name__}.Swapping")
    component.write_state_to_path(tmp_path / "state")
    ours = component.build_defs_from_state(cast(Any, None), tmp_path / "state")
    project = dg.Definitions.merge(ours, dg.Definitions(assets=[downstream]))
    job = project.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey("downstream")], raise_on_error=False
    )
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "materialized as table d.b of shop, and is d.a now" in str(failure.step_failure_data.error)


def test_a_run_has_the_tables_that_are_inputs_and_checks(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_prefix(instance, PREFIX)
    iterate(instance)
    found: list[int] = []

    @dg.asset(ins={"rows": dg.AssetIn(TABLE, input_manager_key="mirror")})
    def downstream(rows: pl.LazyFrame) -> None:
        found.append(rows.select(pl.len()).collect().item())

    monkeypatch.setattr(sys, "argv", ["dagster", "api", "execute_run"])
    ours = definitions(tmp_path, row_counts={"d.a": [1, 100], "d.b": [1, None]})
    checks = dg.AssetSelection.checks_for_assets(TABLE, [*TABLE.path[:-1], "b"])
    of_dagster = dg.define_asset_job("of_dagster", selection=dg.AssetSelection.assets(downstream) | checks)
    project = dg.Definitions.merge(ours, dg.Definitions(assets=[downstream], jobs=[of_dagster]))

    def run() -> dict[str, bool]:
        result = project.resolve_job_def("of_dagster").execute_in_process(instance=instance, raise_on_error=False)
        assert result.success
        return {
            f"{one.asset_key.path[-1]} {one.check_name}": one.passed
            for one in result.get_asset_check_evaluations()
            if one.check_name != "table_current"
        }

    first = run()
    assert found == [100]
    assert first == {
        "a column_schema_change": True,
        "b column_schema_change": True,
        "a dagster_row_count_bounds_check": True,
        "b dagster_row_count_bounds_check": False,
    }
    storage.add_column(DATABASE, "a", "w", "int")
    insert(storage, 1, table="b")
    iterate(instance)
    assert run() == {name: name != "a column_schema_change" for name in first}
