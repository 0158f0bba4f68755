"""Step 1, second half: the upstream's catalog at the snapshot, and what changed in it."""

from collections import Counter

import dagster as dg

from ccpr_assets import metadata
from ccpr_assets.partitions import SUBSCRIPTIONS
from ccpr_assets.upstream_snapshots import upstream_snapshots
from replication.schema.table_changes import ChangeKind
from resources.replication import Replication


@dg.asset(
    partitions_def=SUBSCRIPTIONS,
    deps=[upstream_snapshots],
    group_name="replication",
    kinds={"matrixone"},
    description="The tables at the snapshot against those of the replica's last point: created, altered, renamed, "
    "replaced (truncated or rewritten) and dropped ones, with their statements as a difference.",
)
def catalog_ddl(context: dg.AssetExecutionContext, replication: Replication) -> dg.MaterializeResult:
    with replication.step(context.partition_key) as iteration:
        snapshot = iteration.resume()
        diff = iteration.diff_catalog()
        kinds = Counter(change.kind for change in diff.changes)
        return metadata.result(
            snapshot.lsn,
            snapshot.at,
            {
                metadata.TABLES_TOTAL: len(diff.tables),
                **{f"tables_{kind.value}": kinds[kind] for kind in ChangeKind},
                metadata.DDL_DIFF: metadata.ddl_diff(diff.changes),
                metadata.CHANGES: metadata.table(
                    ({"table": change.table.qualified_name, "change": change.kind.value} for change in diff.changes),
                    {"table": "string", "change": "string"},
                ),
                metadata.UNREPLICATED: metadata.table(
                    ({"name": name, "relkind": kind} for name, kind in diff.unreplicated),
                    {"name": "string", "relkind": "string"},
                ),
            },
        )
