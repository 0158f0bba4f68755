"""Step 1: what of the upstream's catalog is the subscription's, and how it differs from the last point
(docs/requirements.md N2).
"""

from collections.abc import Mapping
from functools import partial

from matrixone.objects.errors import ObjectUnsupported
from matrixone.upstream.catalog import index_tables, read_catalog
from matrixone.upstream.errors import PartitionedTable
from matrixone.upstream.session import Session
from replication.errors import ScopeConflict
from replication.iteration.building import or_fail
from replication.iteration.catalog_diff import CatalogDiff, check_schema
from replication.iteration.listing import TableFailures
from replication.schema.table_changes import diff_catalogs
from replication.state.context import SnapshotRef
from replication.state.history import TablePoint
from replication.state.subscription import Subscription


def diff_scope(
    session: Session, subscription: Subscription, ref: SnapshotRef, before: Mapping[int, TablePoint]
) -> CatalogDiff:
    """Read the catalog at a snapshot and compare it with the tables of the last point, by id.

    Raises PartitionedTable; ScopeConflict if the one table that is asked for was never there; ObjectUnsupported for
    columns that cannot be read, which in isolated mode is the table's failure alone.
    """
    catalog = read_catalog(session, subscription.publication, subscription.database, ref.name, ref.at)
    if catalog.partitioned:
        raise PartitionedTable(
            "a partitioned table makes the upstream's object list of the whole database fail",
            subject=", ".join(f"{subscription.database}.{name}" for name in catalog.partitioned[:5]),
        )
    indexes: frozenset[str] = frozenset()
    if subscription.table is not None:
        ids = [table.id for table in catalog.tables if subscription.replicates(table, indexes)]
        if not ids and not before:
            raise ScopeConflict("the table does not exist upstream", subject=f"table {subscription.scope}")
        indexes = frozenset(
            name for table_id in ids for name in index_tables(session, subscription.publication, table_id, ref.name)
        )
    tables = {table.id: table for table in catalog.tables if subscription.replicates(table, indexes)}
    changes = diff_catalogs((point.table for point in before.values()), tables.values())
    failures: TableFailures = {}
    for table in tables.values():
        if subscription.copies(table):
            or_fail(
                table.id,
                failures,
                (ObjectUnsupported,),
                partial(check_schema, table),
                isolated=subscription.settings.isolated,
            )
    return CatalogDiff(catalog, tables, changes, catalog.unreplicated, failures)
