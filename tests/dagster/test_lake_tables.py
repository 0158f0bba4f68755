"""The tables of a lake as assets: where they are, in which version, with how many rows."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.testclient import TestClient

from ccpr.dagster import metadata
from ccpr.dagster.table_specs import load_subscriptions
from ccpr_emulator.engine.storage import Storage
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, storage
from tests.dagster.test_tables import iterate as iterate_replica
from tests.dagster.test_target_tables import iterate, report, shown
from tests.support.lake_readers import read_delta_rs

pytestmark = pytest.mark.integration

__all__ = ["storage"]
LINEAGE = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    dependencyKeys { path }
    assetMaterializations(limit: 1) { metadataEntries { ... on TableColumnLineageMetadataEntry {
        lineage { columnName columnDeps { assetKey { path } columnName } } } } } } } }"""


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


@pytest.mark.slow
def test_graphql_has_the_lineage_of_columns_from_upstream_to_the_lake(storage: Storage, tmp_path: Path) -> None:
    ccpr("target", "add", NAME, "lake", "--to", (tmp_path / "lake").as_uri(), "--tables", "a")
    replica, lake = [NAME, DATABASE, "a"], [NAME, "targets", "lake", DATABASE, "a"]
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        iterate_replica(instance)
        report(instance)
        target = ModuleTarget("ccpr_assets.definitions", "defs", None, "ccpr")
        with (
            WorkspaceProcessContext(instance, target) as context,
            TestClient(create_app_from_workspace_process_context(context)) as client,
        ):
            for path, source in ((replica, ["upstream", *replica]), (lake, replica)):
                asked = {"query": LINEAGE, "variables": {"key": {"path": path}}}
                found = client.post("/graphql", json=asked).json()["data"]["assetNodeOrError"]
                assert source in [key["path"] for key in found["dependencyKeys"]]
                (lineage,) = filter(None, found["assetMaterializations"][0]["metadataEntries"])
                columns = {one["columnName"]: one["columnDeps"] for one in lineage["lineage"]}
                assert columns == {name: [{"assetKey": {"path": source}, "columnName": name}] for name in ("n", "v")}
