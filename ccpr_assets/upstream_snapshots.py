"""Step 1: a snapshot upstream, which opens the iteration."""

import dagster as dg

from ccpr.dagster import events
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.step import step
from ccpr.pipeline.driver import take
from ccpr.pipeline.step_names import Stage

upstream = dg.AssetSpec(
    "upstream_database",
    description="The published MatrixOne database that a subscription replicates. Dagster only looks at it.",
    group_name="replication",
    kinds={"matrixone"},
)


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[upstream],
    group_name="replication",
    kinds={"matrixone"},
    description="A snapshot of the upstream database, and its time by the upstream's clock. Materializing it opens "
    "the subscription's next iteration, or takes up again the one that was interrupted; the other assets work on the "
    "open iteration.",
)
def upstream_snapshots(context: dg.AssetExecutionContext, replication: Replication) -> dg.MaterializeResult:
    with step(context, replication) as iteration:
        return events.snapshot_taken(take(iteration, Stage.SNAPSHOT)).result()
