"""Step 7: the databases and lakes that are synced from the mirror."""

from ccpr.dagster.iteration_assets import build_target_databases

target_databases = build_target_databases()
