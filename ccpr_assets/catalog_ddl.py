"""Step 1, second half: the upstream's catalog at the snapshot, and what changed in it."""

import dagster as dg

from ccpr.dagster import events
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.step import step
from ccpr.pipeline.driver import take
from ccpr.pipeline.step_names import Stage
from ccpr_assets.upstream_snapshots import upstream_snapshots


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[upstream_snapshots],
    group_name="replication",
    kinds={"matrixone"},
    description="The tables at the snapshot against those of the replica's last point: created, altered, renamed, "
    "replaced (truncated or rewritten) and dropped ones, with their statements as a difference.",
)
def catalog_ddl(context: dg.AssetExecutionContext, replication: Replication) -> dg.MaterializeResult:
    with step(context, replication) as iteration:
        return events.catalog_read(take(iteration, Stage.CATALOG)).result()
