"""Keeps partitions and `replica_current` right, whatever runs the subscriptions."""

from ccpr.dagster.health_sensor import build_health_sensor

replica_health_sensor = build_health_sensor()
