"""The jobs: one iteration of one subscription, which the sensor starts; and a restore that is tried."""

import dagster as dg

from ccpr.dagster.care import ccpr_drill_job
from ccpr.dagster.metadata import SYNC_JOB
from ccpr_assets.applied_tables import applied_tables
from ccpr_assets.catalog_ddl import catalog_ddl
from ccpr_assets.copied_objects import copied_objects
from ccpr_assets.object_diffs import object_diffs
from ccpr_assets.upstream_snapshots import upstream_snapshots

__all__ = ["STEPS", "ccpr_drill_job", "ccpr_sync_job"]
STEPS = [upstream_snapshots, catalog_ddl, object_diffs, copied_objects, applied_tables]

ccpr_sync_job = dg.define_asset_job(
    SYNC_JOB,
    selection=STEPS,
    description="Synchronise one subscription once: all five steps of an iteration, in one process.",
    executor_def=dg.in_process_executor,
)
