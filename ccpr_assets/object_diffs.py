"""Step 2: which objects came and went since the last point."""

from ccpr.dagster.iteration_assets import build_object_diffs

object_diffs = build_object_diffs()
