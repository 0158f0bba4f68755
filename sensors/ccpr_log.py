"""Starts the iterations that are due: polls `mo_ccpr_log`."""

from ccpr.dagster.log_sensor import build_log_sensor

ccpr_log_sensor = build_log_sensor()
