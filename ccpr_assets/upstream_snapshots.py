"""Step 1: a snapshot upstream, which opens the iteration."""

import dagster as dg

from ccpr_assets import metadata
from ccpr_assets.partitions import SUBSCRIPTIONS
from resources.replication import Replication

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
    with replication.step(context.partition_key) as iteration:
        snapshot = iteration.take_snapshot()
        shown = {metadata.SNAPSHOT_NAME: snapshot.name, metadata.SNAPSHOT_TS_NANOSECONDS: snapshot.at.physical}
        if iteration.watermark:
            shown[metadata.REPLICA_BEHIND_SECONDS] = round((snapshot.at.physical - iteration.watermark) / 1e9, 3)
        return metadata.result(snapshot.lsn, snapshot.at, shown)
