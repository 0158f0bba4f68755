"""What a project gets from `CcprComponent`: assets as its translator has them, tables as inputs in the process of a
run, Dagster's own checks on tables."""

import sys
from pathlib import Path
from typing import Any, cast

import dagster as dg
import polars as pl
import pytest

from ccpr.dagster import CcprComponent, MirrorTranslator, metadata
from ccpr.dagster.keys import remember_prefix
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
    with pytest.raises(BadSetting, match="changes no key"):
        definitions(tmp_path, translator=f"{__name__}.Renaming").resolve_all_asset_specs()
    with pytest.raises(BadSetting, match="no translator"):
        definitions(tmp_path, translator=f"{__name__}.Storage").resolve_all_asset_specs()


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
