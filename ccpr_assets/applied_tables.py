"""Steps 4 to 7: the copied objects become a point of the replica."""

import dagster as dg

from ccpr.dagster import events
from ccpr.dagster.followers import follower_events
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import report
from ccpr.dagster.step import step
from ccpr.dagster.tables import report_tables
from ccpr.dagster.target_tables import report_target_tables
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.driver import take
from ccpr.pipeline.step_names import Stage
from ccpr.service.target_sync import sync_targets
from ccpr_assets.copied_objects import copied_objects


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[copied_objects],
    group_name="replication",
    kinds={"arrow"},
    description="The replica's tables at the snapshot: a manifest for each changed table, then one commit of the "
    "point and the outcome in mo_ccpr_log. An iteration in which nothing changed moves the watermark and makes no "
    "point. Then each target is synced to the newest point; one that fails is shown, and tried again by the next run.",
)
def applied_tables(context: dg.AssetExecutionContext, replication: Replication) -> dg.MaterializeResult:
    with step(context, replication) as iteration:
        outcome = take(iteration, Stage.APPLY).ended
        targets = sync_targets(replication.workspace, iteration)
        for target in targets:
            if target.failure is not None:
                context.log.warning(
                    "target %s failed, the next run tries it again: %s", target.target, printable(str(target.failure))
                )
        for made in events.copies_made(outcome, targets):
            report(context.instance, made.runless(context.partition_key))
        report_tables(context.instance, replication.workspace, context.partition_key)
        report_target_tables(context.instance, replication.workspace, context.partition_key)
        report(context.instance, follower_events(context.instance, replication.workspace))
        return events.applied(outcome, iteration.mirror, targets).result()


mirror = dg.AssetSpec(
    events.MIRROR,
    partitions_def=SUBSCRIPTIONS,
    deps=[applied_tables],
    description="The physical replica in the state folder: object files and manifests, readable by `ccpr export` and "
    "by Spark at every point that is kept.",
    group_name="replication",
    kinds={"arrow", "spark"},
)

target_databases = dg.AssetSpec(
    events.TARGET_DATABASES,
    partitions_def=SUBSCRIPTIONS,
    deps=[mirror],
    description="The databases that are synced from the mirror, if the subscription has any "
    "(`ccpr target add`). How far each is stands in the metadata `targets` of applied_tables and in `ccpr status`.",
    group_name="replication",
    kinds={"mysql"},
)
