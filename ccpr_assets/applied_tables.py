"""Steps 4 to 6: the copied objects become a point of the replica, the mirror."""

from ccpr.dagster.iteration_assets import build_applied_tables, build_mirror

applied_tables = build_applied_tables()
mirror = build_mirror()
