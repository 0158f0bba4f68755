"""The code location: everything that Dagster knows of, put together."""

from ccpr.dagster.table_specs import build_definitions, load_subscriptions
from ccpr_assets.applied_tables import mirror
from ccpr_assets.jobs import STEPS, ccpr_sync_job
from ccpr_assets.upstream_snapshots import upstream
from resources.replication import replication
from resources.spark import spark
from sensors.ccpr_log import ccpr_log_sensor
from sensors.health import replica_health_sensor
from sensors.retention import dagster_retention_sensor

defs = build_definitions(
    steps=STEPS,
    others=[upstream, mirror],
    loaded=load_subscriptions(),
    jobs=[ccpr_sync_job],
    sensors=[ccpr_log_sensor, replica_health_sensor, dagster_retention_sensor],
    replication=replication,
    spark=spark,
)
