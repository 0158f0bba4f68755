"""Step 3: the new objects, copied by Spark into the replica's store."""

import time
from collections.abc import Iterator

import dagster as dg

from ccpr_assets import metadata
from ccpr_assets.checks import OBJECTS_STORED, objects_missing, objects_stored
from ccpr_assets.object_diffs import object_diffs
from ccpr_assets.partitions import SUBSCRIPTIONS
from replication.errors import MirrorDamaged
from resources.replication import Replication
from resources.spark_resource import SparkResource


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[object_diffs],
    check_specs=[OBJECTS_STORED],
    group_name="replication",
    kinds={"spark", "matrixone"},
    description="The new object files, byte for byte, in the replica's store: fetched by Spark tasks with upstream "
    "sessions of their own, each object checked on arrival. What an interrupted run brought is not fetched again.",
)
def copied_objects(
    context: dg.AssetExecutionContext, replication: Replication, spark: SparkResource
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
    with replication.step(context.partition_key) as iteration:
        snapshot = iteration.resume()
        started = time.monotonic()
        report = iteration.copy_objects(spark.copy_engine())
        seconds = time.monotonic() - started
        if missing := objects_missing(iteration.mirror, report):
            yield objects_stored(report, missing)
            raise MirrorDamaged(
                f"{len(missing)} copied objects are not in the store as copied", subject=f"object {missing[0]}"
            )
        yield metadata.result(
            snapshot.lsn,
            snapshot.at,
            {
                metadata.OBJECTS_COPIED: report.objects_fetched,
                metadata.OBJECTS_FOUND: report.rows.num_rows - report.objects_fetched,
                metadata.BYTES_COPIED: report.bytes_fetched,
                metadata.COPY_SECONDS: round(seconds, 3),
                metadata.COPY_MIB_PER_SECOND: round(report.bytes_fetched / 2**20 / seconds, 3),
                metadata.PARTITION_ROW_COUNT: report.rows.num_rows,
            },
            [objects_stored(report, [])],
        )
