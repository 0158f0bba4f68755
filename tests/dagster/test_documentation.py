"""Links from Dagster's pages to the documentation: each leads to a section that there is."""

from pathlib import Path

import dagster as dg
import pytest

from ccpr.cli.explain_command import catalogue
from ccpr.dagster import documentation, metadata
from ccpr.dagster.followers import follower_asset
from ccpr.dagster.health_assets import health_asset
from ccpr.dagster.iteration_assets import build_mirror, build_upstream_database
from ccpr.dagster.replication import Replication
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.table_specs import TableDefinitions, build_definitions
from ccpr_assets.jobs import STEPS
from tests.docs.pages import DOCS, anchors

PUBLISHED = "https://docs.example.com/ccpr"
GROUPS = ("health", "followers_shop", "tables_shop", "upstream_shop", "targets_shop", "replication", "elsewhere")


def section(value: dg.MetadataValue) -> tuple[Path, str]:
    """The file and the anchor that a link leads to."""
    place, _, anchor = str(value.value).removeprefix(f"{PUBLISHED}/").removeprefix("docs/").partition("#")
    return (DOCS / place).with_suffix(".md"), anchor


@pytest.mark.parametrize("is_published", [True, False])
def test_each_asset_and_each_error_lead_to_a_section_that_there_is(
    is_published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(documentation.VARIABLE, f"{PUBLISHED}/" if is_published else "")
    specs = [dg.AssetSpec("one", group_name=group) for group in GROUPS]
    links = [documentation.of_asset(spec) for spec in (*specs, dg.AssetSpec("target_databases"), dg.AssetSpec("none"))]
    links += map(documentation.of_code, catalogue())
    kind = dg.UrlMetadataValue if is_published else dg.TextMetadataValue
    for one in links:
        assert isinstance(one, kind)
        file, anchor = section(one)
        assert anchor in anchors(file), one


@pytest.mark.parametrize("text", ["javascript:alert(1)", "file:///etc", "https://", "https://a b", "docs.example.com"])
def test_what_is_no_place_of_published_pages_makes_no_link(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(documentation.VARIABLE, text)
    assert isinstance(documentation.of_code("DDL_WAITS"), dg.TextMetadataValue)


def test_all_assets_of_a_project_have_a_link() -> None:
    loaded = TableDefinitions()
    loaded.add(health_asset("shop", 60.0, "tables_shop"), "shop")
    loaded.add(follower_asset("shop", "b", "db", "followers_shop"), "shop")
    others = [build_upstream_database(), build_mirror()]
    made = build_definitions(
        steps=STEPS, others=others, loaded=loaded, jobs=[], sensors=[], replication=Replication(), spark=SparkResource()
    )
    specs = list(made.resolve_asset_graph().asset_nodes)
    assert len(specs) > len(STEPS)
    assert [node.key for node in specs if metadata.DOCUMENTATION not in node.metadata] == []
