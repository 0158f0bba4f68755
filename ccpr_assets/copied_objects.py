"""Step 3: the new objects, copied by Spark or by the run's own process into the replica's store."""

from collections.abc import Iterator

import dagster as dg

from ccpr.dagster import events
from ccpr.dagster.checks import OBJECTS_STORED, objects_not_stored
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.step import step
from ccpr.pipeline.driver import take
from ccpr.pipeline.errors import ObjectsNotStored
from ccpr.pipeline.step_names import Stage
from ccpr_assets.object_diffs import object_diffs


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[object_diffs],
    check_specs=[OBJECTS_STORED],
    group_name="replication",
    kinds={"spark", "matrixone"},
    description="The new object files, byte for byte, in the replica's store: fetched by Spark tasks, or by the "
    "run itself where that is done sooner; each object is checked on arrival. What an interrupted run brought is not "
    "fetched again.",
)
def copied_objects(
    context: dg.AssetExecutionContext, replication: Replication, spark: SparkResource
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
    with step(context, replication) as iteration:
        try:
            record = take(iteration, Stage.COPY, spark.copy_engine(iteration.note_copier))
        except ObjectsNotStored as error:
            yield objects_not_stored(error)
            raise
        yield events.objects_copied(record).result()
