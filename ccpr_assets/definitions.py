"""The code location: everything that Dagster knows of, put together."""

import dagster as dg

from ccpr.dagster.health import longest_silence
from ccpr.dagster.replica_current import replica_current
from ccpr.dagster.table_specs import load_subscriptions
from ccpr_assets.applied_tables import applied_tables, mirror, target_databases
from ccpr_assets.jobs import STEPS, ccpr_drill_job, ccpr_sync_job
from ccpr_assets.upstream_snapshots import upstream
from resources.replication import replication
from resources.spark import spark
from sensors.ccpr_log import ccpr_log_sensor
from sensors.health import replica_health_sensor
from sensors.retention import dagster_retention_sensor

loaded = load_subscriptions()
# Of one subscription it is that of its `replication_health`; here one that runs hides one that does not.
policy = dg.FreshnessPolicy.time_window(fail_window=longest_silence(max(loaded.intervals, default=60.0)))


def _completed(spec: dg.AssetSpec) -> dg.AssetSpec:
    if spec.key == applied_tables.key:
        return spec.replace_attributes(freshness_policy=policy)
    if spec.key == mirror.key and loaded.left_out:
        return spec.replace_attributes(description=f"{spec.description} {loaded.left_out_text()}")
    return spec


defs = dg.Definitions(
    assets=dg.map_asset_specs(_completed, [upstream, *STEPS, mirror, target_databases, *loaded.assets]),
    asset_checks=[replica_current, *loaded.checks],
    jobs=[ccpr_sync_job, ccpr_drill_job],
    sensors=[ccpr_log_sensor, replica_health_sensor, dagster_retention_sensor],
    resources={"replication": replication, "spark": spark},
    # One process a run: one Spark session and one lease for all its steps. Without this the button in the UI would use
    # a process a step, which takes 22 s where this takes half a second.
    executor=dg.in_process_executor,
)
