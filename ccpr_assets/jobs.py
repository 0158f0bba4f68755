"""The job that the sensor starts: one iteration of one subscription."""

from ccpr.dagster.iteration_assets import build_sync_job
from ccpr_assets.applied_tables import applied_tables
from ccpr_assets.catalog_ddl import catalog_ddl
from ccpr_assets.copied_objects import copied_objects
from ccpr_assets.object_diffs import object_diffs
from ccpr_assets.target_databases import target_databases
from ccpr_assets.upstream_snapshots import upstream_snapshots

STEPS = [upstream_snapshots, catalog_ddl, object_diffs, copied_objects, applied_tables, target_databases]

ccpr_sync_job = build_sync_job(STEPS)
