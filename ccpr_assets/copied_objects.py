"""Step 3: the new objects, copied by Spark or by the run's own process into the replica's store."""

from ccpr.dagster.iteration_assets import build_copied_objects

copied_objects = build_copied_objects()
