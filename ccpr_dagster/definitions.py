"""The code location: everything that Dagster knows of, put together."""

import dagster as dg

from ccpr_assets.applied_tables import mirror, target_databases
from ccpr_assets.jobs import STEPS, ccpr_sync_job
from ccpr_assets.upstream_snapshots import upstream
from resources.replication import Replication
from resources.spark_resource import SparkResource
from sensors.ccpr_log import ccpr_log_sensor
from sensors.retention import dagster_retention_sensor

defs = dg.Definitions(
    assets=[upstream, *STEPS, mirror, target_databases],
    jobs=[ccpr_sync_job],
    sensors=[ccpr_log_sensor, dagster_retention_sensor],
    resources={"replication": Replication(), "spark": SparkResource()},
    # One process a run: one Spark session and one lease for all its steps. Without this the button in the UI would use
    # a process a step, which takes 22 s where this takes half a second.
    executor=dg.in_process_executor,
)
