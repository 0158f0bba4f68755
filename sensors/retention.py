"""Deletes what Dagster would keep of iterations for ever."""

from ccpr.dagster.retention_sensor import build_retention_sensor

dagster_retention_sensor = build_retention_sensor()
