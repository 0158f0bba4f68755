"""What a project gets from `CcprComponent`: tables as inputs in the process of a run."""

import sys
from pathlib import Path
from typing import Any, cast

import dagster as dg
import polars as pl
import pytest

from ccpr.dagster import CcprComponent
from ccpr.dagster.component import Translation
from ccpr.dagster.keys import remember_prefix
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_tables import DATABASE, NAME, iterate, storage

pytestmark = pytest.mark.integration

__all__ = ["storage"]
PREFIX = ["replicas"]
TABLE = dg.AssetKey([*PREFIX, NAME, DATABASE, "a"])


def test_a_run_has_the_tables_that_are_inputs(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_prefix(instance, PREFIX)
    iterate(instance)
    found: list[int] = []

    @dg.asset(ins={"rows": dg.AssetIn(TABLE, input_manager_key="mirror")})
    def downstream(rows: pl.LazyFrame) -> None:
        found.append(rows.select(pl.len()).collect().item())

    component = CcprComponent(translation=Translation(key_prefix=PREFIX))
    component.write_state_to_path(tmp_path / "state")
    monkeypatch.setattr(sys, "argv", ["dagster", "api", "execute_run"])
    ours = component.build_defs_from_state(cast(Any, None), tmp_path / "state")
    job = dg.define_asset_job("job", selection=dg.AssetSelection.assets(downstream))
    project = dg.Definitions.merge(ours, dg.Definitions(assets=[downstream], jobs=[job]))
    assert project.resolve_job_def("job").execute_in_process(instance=instance).success
    assert found == [100]
