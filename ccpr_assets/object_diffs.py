"""Step 2: which objects came and went since the last point."""

from collections.abc import Iterator

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from ccpr_assets import metadata
from ccpr_assets.catalog_ddl import catalog_ddl
from ccpr_assets.checks import OBJECT_LIST_VALID, object_list_accepted, object_list_refused
from ccpr_assets.partitions import SUBSCRIPTIONS
from matrixone.schema import Table
from replication.errors import BadObjectList
from replication.mirror.object_rows import ObjectDiff
from resources.replication import Replication


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
    with replication.step(context.partition_key) as iteration:
        snapshot = iteration.resume()
        try:
            diff = iteration.diff_objects()
        except BadObjectList as error:
            yield object_list_refused(error)
            raise
        tombstones = diff.added.filter(diff.added.column("is_tombstone"))
        yield metadata.result(
            snapshot.lsn,
            snapshot.at,
            {
                metadata.OBJECTS_ADDED: diff.added.num_rows,
                metadata.OBJECTS_REMOVED: diff.removed.num_rows,
                metadata.TOMBSTONES_ADDED: tombstones.num_rows,
                metadata.BYTES_ADDED: pc.sum(diff.added.column("size")).as_py() or 0,
                metadata.PARTITION_ROW_COUNT: diff.added.num_rows + diff.removed.num_rows,
                metadata.BY_TABLE: _by_table(diff, iteration.diff_catalog().tables),
            },
            [object_list_accepted(diff)],
        )


def _by_table(diff: ObjectDiff, tables: dict[int, Table]) -> dg.TableMetadataValue:
    def counted(rows: pa.Table) -> dict[int, tuple[int, int]]:
        sums = rows.group_by("table_id").aggregate([("size", "count"), ("size", "sum")])
        return {row["table_id"]: (row["size_count"], row["size_sum"]) for row in sums.to_pylist()}

    added, removed = counted(diff.added), counted(diff.removed)
    rows = (
        {
            "table": tables[table_id].qualified_name if table_id in tables else f"dropped table {table_id}",
            "added": added.get(table_id, (0, 0))[0],
            "removed": removed.get(table_id, (0, 0))[0],
            "bytes_added": added.get(table_id, (0, 0))[1],
        }
        for table_id in sorted(added.keys() | removed.keys())
    )
    return metadata.table(rows, {"table": "string", "added": "int", "removed": "int", "bytes_added": "int"})
