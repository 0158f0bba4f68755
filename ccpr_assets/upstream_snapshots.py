"""Step 1: a snapshot upstream, which opens the iteration."""

from ccpr.dagster.iteration_assets import build_upstream_database, build_upstream_snapshots

upstream = build_upstream_database()
upstream_snapshots = build_upstream_snapshots()
