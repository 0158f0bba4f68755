"""Step 1: what of the upstream's catalog is the subscription's, and how it differs from the last point
(docs/requirements.md N2).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from matrixone.schema import Kind, Table
from matrixone.upstream.catalog import Catalog, index_rows, index_tables, read_catalog
from matrixone.upstream.errors import NotCovered, PartitionedTable
from matrixone.upstream.publications import Offer, not_covered, read_offer
from matrixone.upstream.session import Session
from replication.errors import ScopeConflict
from replication.iteration.building import or_fail
from replication.iteration.catalog_diff import CatalogDiff
from replication.iteration.listing import TableFailures
from replication.schema.table_changes import diff_catalogs
from replication.snapshot_ref import SnapshotRef
from replication.state.history import TablePoint
from replication.state.subscription import Subscription

UNPUBLISHED = "unpublished"  # in the place of a relkind


def diff_scope(
    session: Session, subscription: Subscription, ref: SnapshotRef, before: Mapping[int, TablePoint]
) -> CatalogDiff:
    """Read the catalog at a snapshot and compare it with the tables of the last point, by id.

    Columns of types that are not known yet are replicated like others. Raises PartitionedTable; PublicationMissing;
    NotCovered; ScopeConflict if the one table that is asked for was never there. What concerns one of several tables is
    in isolated mode that table's failure alone.
    """
    catalog = read_catalog(session, subscription.publication, subscription.database, ref.name, ref.at)
    if catalog.partitioned:
        raise PartitionedTable(
            "a partitioned table makes the upstream's object list of the whole database fail",
            subject=", ".join(f"{subscription.database}.{name}" for name in catalog.partitioned[:5]),
        )
    scope = _Scope(session, subscription, ref, catalog, before)
    tables = scope.with_indexes(scope.tables())
    changes = diff_catalogs((point.table for point in before.values()), tables.values())
    unreplicated = tuple(sorted((*catalog.unreplicated, *((name, UNPUBLISHED) for name in scope.unpublished))))
    return CatalogDiff(catalog, tables, changes, unreplicated, scope.failures)


class _Scope:
    """Which tables of a catalog are the subscription's: those of its database, or its one table, as far as the
    publication published them at the snapshot, with their index tables.

    Attributes
    ----------
    failures : tables that an ALTER took out of the publication, in isolated mode.
    unpublished : names of other tables that it does not cover.
    """

    def __init__(
        self,
        session: Session,
        subscription: Subscription,
        ref: SnapshotRef,
        catalog: Catalog,
        before: Mapping[int, TablePoint],
    ) -> None:
        self._session, self._subscription, self._ref = session, subscription, ref
        self._catalog, self._before = catalog, before
        self._offer = read_offer(session, subscription.publication, ref.at)
        self.failures: TableFailures = {}
        self.unpublished: list[str] = []

    def tables(self) -> dict[int, Table]:
        """By id. Raises NotCovered; ScopeConflict if the one table that is asked for was never there."""
        subscription, offer = self._subscription, self._offer
        if offer is not None and not offer.names(subscription.database):
            raise not_covered(self._session, offer, subscription.database, subscription.table)
        wanted = [table for table in self._catalog.tables if subscription.replicates(table, frozenset())]
        chosen = [table for table in wanted if table.kind is Kind.TABLE]
        if subscription.table is not None and not chosen and not self._before:
            raise ScopeConflict("the table does not exist upstream", subject=f"table {subscription.scope}")
        if offer is not None and offer.lists_tables:
            covered = [table for table in chosen if self._is_covered(table, offer)]
            if not covered and any(table.id in self._before for table in chosen):
                raise not_covered(self._session, offer, subscription.database, None)
            chosen = covered
        elif subscription.table is None:
            return {table.id: table for table in wanted}
        indexes = frozenset(
            name
            for table in chosen
            if table.id not in self.failures
            for name in index_tables(self._session, subscription.publication, table.id, self._ref.name)
        )
        chosen += [table for table in self._catalog.tables if table.kind is Kind.INDEX and table.name in indexes]
        return {table.id: table for table in sorted(chosen, key=lambda table: table.id)}

    def with_indexes(self, tables: dict[int, Table]) -> dict[int, Table]:
        """With the indexes of each table, where index tables are copied. They are asked for again where the text of the
        table has changed, or a hidden table of it is gone."""
        if not self._subscription.settings.with_indexes:
            return tables
        there = {table.name for table in self._catalog.tables if table.kind is Kind.INDEX}
        return {
            number: replace(table, indexes=self._indexes(table, there)) if table.kind is Kind.TABLE else table
            for number, table in tables.items()
        }

    def _indexes(self, table: Table, there: Collection[str]) -> tuple[tuple[str, str, str], ...]:
        last = self._before.get(table.id)
        known = None if last is None or last.table.ddl != table.ddl or not table.ddl else last.table.indexes
        if known is not None and all(name in there for _, _, name in known if name):
            return known
        return index_rows(self._session, self._subscription.publication, table.id, self._ref.name)

    def _is_covered(self, table: Table, offer: Offer) -> bool:
        """Whether the table is in scope. One that an ALTER took out is an error: it has another name than at the last
        point, or was copied, as upstreams before 4.2 do (a new id, and the same logical id). Otherwise somebody removed
        it on purpose, or dropped it and made another one of its name.
        """
        subscription = self._subscription
        if offer.covers(subscription.database, table.name):
            return True
        error = not_covered(self._session, offer, subscription.database, table.name)
        if subscription.table is not None:
            raise error
        known = {point.table.logical_id for point in self._before.values() if point.table.kind is Kind.TABLE}
        last = self._before.get(table.id)
        if table.logical_id in known and (last is None or last.table.name != table.name):
            or_fail(
                table.id, self.failures, (NotCovered,), partial(_raise, error), isolated=subscription.settings.isolated
            )
            return True
        self.unpublished.append(table.name)
        return False


def _raise(error: NotCovered) -> None:
    raise error
