"""The code location without Spark: runs copy in their own process, and no JVM has to start."""

import dagster as dg

import ccpr_assets.definitions as location
from tests.sensors.driving import ProcessCopying

defs = dg.Definitions(
    assets=location.defs.assets,
    asset_checks=location.defs.asset_checks,
    jobs=location.defs.jobs,
    sensors=location.defs.sensors,
    resources={**(location.defs.resources or {}), "spark": ProcessCopying()},
    executor=location.defs.executor,
)
