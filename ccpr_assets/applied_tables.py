"""Steps 4 to 7: the copied objects become a point of the replica."""

from collections.abc import Sequence

import dagster as dg

from ccpr_assets import metadata
from ccpr_assets.copied_objects import copied_objects
from ccpr_assets.partitions import SUBSCRIPTIONS
from matrixone.sql.quoting import printable
from replication.iteration.iteration import Outcome
from replication.mirror.mirror import Mirror
from replication.mirror.points import Point
from replication.service.target_sync import TargetOutcome, sync_targets
from resources.replication import Replication


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
    with replication.step(context.partition_key) as iteration:
        outcome = iteration.apply()
        targets = sync_targets(replication.workspace, iteration)
        for target in targets:
            if target.failure is not None:
                context.log.warning(
                    "target %s failed, the next run tries it again: %s", target.target, printable(str(target.failure))
                )
        shown = {
            **_numbers(outcome),
            **_points(iteration.mirror),
            metadata.TABLES: _tables(iteration.mirror.point()),
            **_targets(targets),
        }
        return metadata.result(outcome.lsn, outcome.at, shown)


def idle_observation(subscription: str, outcome: Outcome) -> dg.AssetObservation:
    """What an iteration without a run leaves in Dagster: how old the replica is, though nothing was materialized."""
    shown = {
        metadata.ITERATION_LSN: outcome.lsn,
        metadata.SNAPSHOT_TS: metadata.clock(outcome.at),
        **metadata.lag(outcome),
        metadata.POINT_MADE: outcome.point,
    }
    return dg.AssetObservation(
        applied_tables.key, partition=subscription, metadata=shown, tags={metadata.LSN_TAG: str(outcome.lsn)}
    )


mirror = dg.AssetSpec(
    "mirror",
    deps=[applied_tables],
    description="The physical replica in the state folder: object files and manifests, readable by `ccpr export` and "
    "by Spark at every point that is kept.",
    group_name="replication",
    kinds={"arrow", "spark"},
)

target_databases = dg.AssetSpec(
    "target_databases",
    deps=[mirror],
    description="The MariaDB and MySQL databases that are synced from the mirror, if the subscription has any "
    "(`ccpr target add`). How far each is stands in the metadata `targets` of applied_tables and in `ccpr status`.",
    group_name="replication",
    kinds={"mysql"},
)


def _numbers(outcome: Outcome) -> dict[str, int | float | bool | str]:
    return {
        **metadata.lag(outcome),
        metadata.POINT_MADE: outcome.point,
        metadata.TABLES_TOTAL: outcome.tables,
        metadata.TABLES_CHANGED: outcome.tables_changed,
        metadata.TABLES_QUARANTINED: len(outcome.quarantined),
        **({metadata.QUARANTINED: "\n".join(map(printable, outcome.quarantined))} if outcome.quarantined else {}),
        metadata.OBJECTS_COPIED: outcome.objects_copied,
        metadata.BYTES_COPIED: outcome.bytes_copied,
        metadata.OBJECTS_TOTAL: outcome.objects_total,
        metadata.BYTES_TOTAL: outcome.bytes_total,
    }


def _points(mirror: Mirror) -> dict[str, int]:
    """Between which points the replica can be read."""
    head = mirror.published_head()
    if head is None or head.oldest_point is None or head.newest_point is None:
        return {}
    return {metadata.OLDEST_POINT: head.oldest_point, metadata.NEWEST_POINT: head.newest_point}


def _targets(outcomes: Sequence[TargetOutcome]) -> dict[str, dg.TableMetadataValue]:
    """How each target was synced; nothing where there is none."""
    if not outcomes:
        return {}
    rows = []
    for outcome in outcomes:
        result = outcome.result
        tables, behind = (result.tables, result.behind) if result is not None else ((), ())
        failures = (
            [str(outcome.failure)]
            if outcome.failure is not None
            else [f"{table.table}: {table.failure}" for table in behind]
        )
        rows.append(
            {
                "target": outcome.target,
                "tables_changed": len(tables),
                "rows_written": sum(table.upserted for table in tables),
                "rows_deleted": sum(table.deleted for table in tables),
                "seconds": round(outcome.seconds, 3),
                "tables_behind": len(behind),
                "failures": "\n".join(failures),
            }
        )
    numbers = dict.fromkeys(("tables_changed", "rows_written", "rows_deleted"), "int")
    kinds = {"target": "string", **numbers, "seconds": "float", "tables_behind": "int", "failures": "string"}
    return {metadata.TARGETS: metadata.table(rows, kinds)}


def _tables(point: Point) -> dg.TableMetadataValue:
    """The tables of a point, those that changed last first. Stored rows count versions that a tombstone hides."""
    refs = sorted(point.tables.values(), key=lambda ref: (-ref.lsn, ref.qualified_name))
    return metadata.table(
        (
            {
                "table": ref.qualified_name,
                "kind": ref.kind.value,
                "changed_at_lsn": ref.lsn,
                "objects": ref.objects,
                "stored_rows": ref.rows,
                "bytes": ref.bytes,
            }
            for ref in refs
        ),
        {
            "table": "string",
            "kind": "string",
            "changed_at_lsn": "int",
            "objects": "int",
            "stored_rows": "int",
            "bytes": "int",
        },
    )
