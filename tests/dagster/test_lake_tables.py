"""The tables of a lake as assets: where they are, in which version, with how many rows."""

from pathlib import Path

import dagster as dg
import pytest

from ccpr.dagster import metadata
from ccpr.dagster.table_specs import load_subscriptions
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, storage
from tests.dagster.test_target_tables import iterate, report, shown
from tests.support.lake_readers import read_delta_rs

pytestmark = pytest.mark.integration

__all__ = ["storage"]


def test_a_table_of_a_lake_is_an_asset_with_its_place_version_and_rows(
    storage: Storage, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    ccpr("target", "add", NAME, "lake", "--to", lake.as_uri(), "--tables", "a")
    assert iterate(instance) == 1
    key = dg.AssetKey([NAME, "targets", "lake", DATABASE, "a"])
    found = shown(instance, key)
    assert (found[metadata.URI], found[metadata.LAKE_VERSION]) == (f"{lake.as_uri()}/{DATABASE}.a", 0)
    assert found[metadata.SYNCED_WITH_POINT] == 0
    specs = {spec.key: spec for spec in load_subscriptions().assets}
    assert {dep.asset_key for dep in specs[key].deps} == {dg.AssetKey([NAME, DATABASE, "a"])}
    assert specs[key].kinds == {"delta"}
    assert dg.AssetKey([NAME, "targets", "lake", DATABASE, "b"]) not in specs, "the lake does not take it"
    insert(storage, 200)
    assert iterate(instance) == 1
    again = shown(instance, key)
    rows = read_delta_rs(again[metadata.URI], again[metadata.LAKE_VERSION])
    assert again[metadata.ROW_COUNT] == rows.num_rows == found[metadata.ROW_COUNT] + 1
    assert report(instance) == 0
