"""The checks `replica_current`: of `applied_tables`, over all subscriptions, and of each `replication_health/<name>`.
They read `mo_ccpr_log` and start nothing."""

import dagster as dg

from ccpr.dagster.events import APPLIED_TABLES
from ccpr.dagster.health import DESCRIPTION, REPLICA_CURRENT, health_key, longest_silence, read_all_health, read_health
from ccpr.dagster.replication import Replication, as_failure
from ccpr.dagster.reporting import report_health
from ccpr.matrixone.errors import CcprError


@dg.asset_check(asset=APPLIED_TABLES, name=REPLICA_CURRENT, description=f"For each subscription: {DESCRIPTION}")
def replica_current(context: dg.AssetCheckExecutionContext, replication: Replication) -> dg.AssetCheckResult:
    """At the end of a run; or alone, by its button."""
    try:
        if context.has_partition_key:
            report_health(context.instance, replication.workspace, context.partition_key)
        return read_all_health(replication.workspace).result()
    except CcprError as error:
        raise as_failure(error) from error


def health_asset(subscription: str, interval: float) -> dg.AssetSpec:
    """The asset with the time series of one subscription; whoever looks at it reports to it."""
    return dg.AssetSpec(
        health_key(subscription),
        deps=[APPLIED_TABLES],
        group_name="health",
        kinds={"matrixone"},
        description="How this subscription is, over time: `is_current` (1 or 0), `lag_seconds` when it was looked at, "
        "and its state in a sentence. Every tick, run and iteration of the service adds a point, failing ones too. It "
        "is overdue if nothing has looked at the subscription for longer than an executor waits after failures; then "
        "nothing runs.",
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=longest_silence(interval)),
    )


def health_check(subscription: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=health_key(subscription), name=REPLICA_CURRENT, description=DESCRIPTION)
    def check(replication: Replication) -> dg.AssetCheckResult:
        try:
            return read_health(replication.workspace, subscription).result()
        except CcprError as error:
            raise as_failure(error) from error

    return check
