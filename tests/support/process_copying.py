"""The code location without Spark: runs copy in their own process, and no JVM has to start. Its sensor is off at
first."""

import dagster as dg

import ccpr_assets.definitions as location
from ccpr.dagster.log_sensor import build_log_sensor
from ccpr.dagster.metadata import LOG_SENSOR
from tests.sensors.driving import ProcessCopying

defs = dg.Definitions(
    assets=location.defs.assets,
    asset_checks=location.defs.asset_checks,
    jobs=location.defs.jobs,
    sensors=[build_log_sensor(is_on=False) if one.name == LOG_SENSOR else one for one in location.defs.sensors or ()],
    resources={**(location.defs.resources or {}), "spark": ProcessCopying()},
    executor=location.defs.executor,
)
