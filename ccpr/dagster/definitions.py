"""The definitions of a project that replicates: its assets put together with those of each subscription, the checks,
jobs, sensors and resources. Our own project and `CcprComponent` are made by it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from ccpr.dagster import metadata
from ccpr.dagster.actions import build_actions
from ccpr.dagster.events import MIRROR, TARGET_DATABASES
from ccpr.dagster.health import HEALTH
from ccpr.dagster.health_assets import all_health_check, build_all_health
from ccpr.dagster.mirror_io import MirrorIOManager
from ccpr.dagster.replication import Replication
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.table_specs import TableDefinitions

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def build_sync_job(steps: Sequence[dg.AssetsDefinition]) -> "UnresolvedAssetJobDefinition":
    """The job that the sensor starts: one iteration of one subscription."""
    return dg.define_asset_job(
        metadata.SYNC_JOB,
        selection=list(steps),
        description="Synchronise one subscription once: all steps of an iteration, in one process.",
        executor_def=dg.in_process_executor,
    )


def build_definitions(
    *,
    steps: Sequence[dg.AssetsDefinition],
    others: Sequence[dg.AssetSpec],
    loaded: TableDefinitions,
    jobs: "Sequence[UnresolvedAssetJobDefinition]",
    sensors: Sequence[dg.SensorDefinition],
    replication: Replication,
    spark: SparkResource,
) -> dg.Definitions:
    """`steps` and `others`: the assets of `ccpr.dagster.iteration_assets`. `loaded` is of the same prefix."""

    def completed(spec: dg.AssetSpec) -> dg.AssetSpec:
        if spec.key == dg.AssetKey([*loaded.prefix, TARGET_DATABASES]):
            spec = spec.replace_attributes(kinds=set(sorted(loaded.target_kinds)[:3]))  # Dagster allows three
        if spec.key == dg.AssetKey([*loaded.prefix, HEALTH]) and loaded.trouble:
            text = f"**Not all was loaded.** {loaded.trouble}\n\n{spec.description}"
            spec = spec.replace_attributes(description=text)
        if spec.key == dg.AssetKey([*loaded.prefix, MIRROR]) and loaded.left_out:
            spec = spec.replace_attributes(description=f"{spec.description} {loaded.left_out_text()}")
        return loaded.finished(spec)

    health = loaded.placed(build_all_health(loaded.subscriptions))
    return dg.Definitions(
        assets=[*dg.map_asset_specs(completed, [*others, *steps, health]), *loaded.assets],
        asset_checks=[all_health_check(loaded.prefix), *loaded.checks],
        jobs=[*jobs, *build_actions(replication)],
        sensors=sensors,
        resources={"replication": replication, "spark": spark, "mirror": MirrorIOManager(home=replication.home)},
        # One process a run: one Spark session and one lease for all its steps. Without this the button in the UI would
        # use a process a step, which takes 22 s where this takes half a second.
        executor=dg.in_process_executor,
    )
