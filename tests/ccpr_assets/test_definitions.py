"""The definitions that Dagster loads: names on which other things depend are fixed, and loading is fast."""

import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import yaml

from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr_assets.definitions import defs
from ccpr_assets.jobs import STEPS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyspark", "dagster_pyspark", "pandas", "polars", "pandera")


def specs() -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_the_lineage_leads_from_the_upstream_database_to_the_mirror_and_the_targets() -> None:
    found = {name: [dep.asset_key.to_user_string() for dep in spec.deps] for name, spec in specs().items()}
    assert found == {
        "upstream_database": [],
        "upstream_snapshots": ["upstream_database"],
        "catalog_ddl": ["upstream_snapshots"],
        "object_diffs": ["catalog_ddl"],
        "copied_objects": ["object_diffs"],
        "applied_tables": ["copied_objects"],
        "mirror": ["applied_tables"],
        "target_databases": ["applied_tables", "mirror"],
        "replication_health": [],
    }


def test_assets_have_kinds_a_group_and_a_description() -> None:
    assert {name: sorted(spec.kinds) for name, spec in specs().items()} == {
        "upstream_database": ["matrixone"],
        "upstream_snapshots": ["matrixone"],
        "catalog_ddl": ["matrixone"],
        "object_diffs": ["matrixone"],
        "copied_objects": ["matrixone"],
        "applied_tables": ["mirror"],
        "mirror": ["mirror"],
        "target_databases": [],
        "replication_health": [],
    }
    # One group: the UI shows all of the lineage at once.
    assert {spec.group_name for name, spec in specs().items() if name != "replication_health"} == {"replication"}
    assert all(spec.description for spec in specs().values())
    shown = [spec.description or "" for spec in specs().values()] + [
        spec.description or "" for check in defs.asset_checks or () for spec in check.check_specs
    ]
    assert not [text for text in shown if re.search(r"\([A-Z]\d+\)|requirements", text)]


def test_a_partition_is_a_subscription() -> None:
    job = defs.resolve_job_def("ccpr_sync_job")
    assert job.partitions_def == SUBSCRIPTIONS
    assert SUBSCRIPTIONS.name == "ccpr_subscription"
    assert [name for name, spec in specs().items() if spec.partitions_def != SUBSCRIPTIONS] == [
        "upstream_database",
        "replication_health",
    ]


def test_checks_block_and_keep_a_history_for_each_subscription() -> None:
    found = {spec.key.to_user_string(): spec for asset in STEPS for spec in asset.check_specs}
    assert sorted(found) == ["copied_objects:objects_stored", "object_diffs:object_list_valid"]
    assert all(spec.blocking and spec.partitions_def == SUBSCRIPTIONS for spec in found.values())


def test_every_run_is_one_process() -> None:
    assert defs.executor is dg.in_process_executor
    assert defs.resolve_job_def("ccpr_sync_job").executor_def is dg.in_process_executor
    assert defs.resolve_implicit_global_asset_job_def().executor_def is dg.in_process_executor


def test_loading_the_definitions_loads_nothing_slow_and_prints_nothing() -> None:
    code = f"""
import sys
import ccpr_assets.definitions
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == ""
    assert result.stdout.split() == []


def test_dg_accepts_the_definitions() -> None:
    dg_program = Path(sys.executable).with_name("dg")
    result = subprocess.run(
        [dg_program, "check", "defs"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "All definitions loaded successfully" in result.stdout + result.stderr


def test_dagster_accepts_the_instance_settings(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        limits = instance.get_concurrency_config().run_queue_config
        assert limits is not None
        assert {limit["key"]: limit["limit"] for limit in limits.tag_concurrency_limits} == {
            "ccpr/subscription": 1,
            "dagster/partition": 1,
        }


def test_no_run_is_ended_because_a_first_copy_takes_long() -> None:
    monitoring = yaml.safe_load((ROOT / "dagster.yaml").read_text())["run_monitoring"]
    assert monitoring["enabled"]
    assert "max_runtime_seconds" not in monitoring


def test_the_workspace_file_names_the_definitions() -> None:
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert entry["python_module"]["module_name"] == "ccpr_assets.definitions"
