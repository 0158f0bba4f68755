"""Step 2: which objects came and went since the last point."""

from collections.abc import Iterator

import dagster as dg

from ccpr.dagster import events
from ccpr.dagster.checks import OBJECT_LIST_VALID, object_list_refused
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.step import step
from ccpr.pipeline.driver import take
from ccpr.pipeline.errors import BadObjectList
from ccpr.pipeline.step_names import Stage
from ccpr_assets.catalog_ddl import catalog_ddl


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[catalog_ddl],
    check_specs=[OBJECT_LIST_VALID],
    group_name="replication",
    kinds={"matrixone", "pandera", "arrow"},
    description="The upstream's object list of the snapshot, checked and compared with the replica's last point: "
    "objects that came and objects that went. A list that fails its check stops the iteration before anything is "
    "copied.",
)
def object_diffs(
    context: dg.AssetExecutionContext, replication: Replication
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
    with step(context, replication) as iteration:
        try:
            record = take(iteration, Stage.OBJECT_LIST)
        except BadObjectList as error:
            yield object_list_refused(error)
            raise
        yield events.objects_listed(record).result()
