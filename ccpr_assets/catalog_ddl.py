"""Step 1, second half: the upstream's catalog at the snapshot, and what changed in it."""

from ccpr.dagster.iteration_assets import build_catalog_ddl

catalog_ddl = build_catalog_ddl()
