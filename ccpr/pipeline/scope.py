"""Step 1: what of the upstream's catalog is the subscription's, and how it differs from the last point
(docs/requirements.md N2).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ccpr.matrixone.client.errors import PartitionedTable
from ccpr.matrixone.client.publication_offers import Offer, not_covered, read_offer
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_catalog import TableCatalog, index_rows, index_tables, read_catalog
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.schema import Kind, Table
from ccpr.pipeline.building import fail_alone
from ccpr.pipeline.catalog_diff import CatalogDiff, DatabaseList
from ccpr.pipeline.databases import TakeLists, read_databases
from ccpr.pipeline.errors import ScopeConflict
from ccpr.pipeline.table_lists import TableFailures, note_changed
from ccpr.schema.ddl_diff import with_known_text
from ccpr.schema.table_changes import diff_catalogs
from ccpr.state.point_rows import TablePoint
from ccpr.state.subscription import Subscription

# In the place of a relkind:
UNPUBLISHED, PARTITIONED, UNLISTED, EXCLUDED = "unpublished", "partitioned", "unlisted", "excluded"


def diff_scope(
    session: Session, subscription: Subscription, ref: SnapshotRef, before: Mapping[int, TablePoint], take: TakeLists
) -> CatalogDiff:
    """Read the catalog at a snapshot and compare it with the tables of the last point, by id. `take`: see
    `read_databases`.

    Columns of types that are not known yet are replicated like others. Raises PartitionedTable for a table that was
    replicated, or is the only one that is asked for, and whose objects cannot be listed; PublicationMissing;
    NotCovered; ScopeConflict if the one table that is asked for was never there, or no table matches the patterns. What
    concerns one of several tables is in isolated mode that table's failure alone.
    """
    lists: dict[str, DatabaseList] = {}
    altered: TableFailures = {}
    if subscription.of_account:
        catalog, lists, altered = read_databases(session, subscription, ref, take)
    else:
        catalog = read_catalog(session, subscription.publication, subscription.database, ref.name, ref.at)
    named = {database: one.ref.name for database, one in lists.items()} or {subscription.database: ref.name}
    scope = _Scope(session, subscription, ref, catalog, before, named, altered)
    tables = scope.with_indexes(scope.with_known_texts(scope.without_unlisted(scope.tables())))
    changes = diff_catalogs((point.table for point in before.values()), tables.values())
    left_out = [(name, UNPUBLISHED) for name in scope.unpublished]
    left_out += [(name, PARTITIONED if name in catalog.partitioned else UNLISTED) for name in scope.unlisted]
    unreplicated = sorted((*catalog.unreplicated, *left_out))
    unreplicated += [(name, EXCLUDED) for name in sorted(scope.excluded)]  # last: they may be most of the database
    return CatalogDiff.of(
        catalog,
        tables,
        changes,
        tuple(unreplicated),
        failures={number: failure for number, failure in scope.failures.items() if number in tables},
        is_whole=scope.is_whole,
        lists=lists,
    )


def is_whole(subscription: Subscription, offer: Offer | None) -> bool:
    """Whether all of each database is subscribed to and published, not only tables of it."""
    listed = offer is not None and offer.lists_tables
    return subscription.table is None and not subscription.patterns and not listed


class _Scope:
    """Which tables of a catalog are the subscription's: those of its databases, of patterns, or its one table, as far
    as the publication published them at the snapshot, with their index tables.

    Attributes
    ----------
    named : by database, the name of a snapshot that the publication has.
    is_whole : see `is_whole`.
    failures : in isolated mode, tables that an ALTER took out of the publication, and those that were altered while
        the catalog was read.
    unpublished : names of other tables that it does not cover.
    unlisted : names of tables that never were replicated, since their objects cannot be listed.
    excluded : names of tables that the patterns exclude.
    """

    def __init__(
        self,
        session: Session,
        subscription: Subscription,
        ref: SnapshotRef,
        catalog: TableCatalog,
        before: Mapping[int, TablePoint],
        named: Mapping[str, str],
        altered: TableFailures,
    ) -> None:
        self._session, self._subscription, self._named = session, subscription, named
        self._catalog, self._before = catalog, before
        self._offer = read_offer(session, subscription.publication, ref.at)
        self.is_whole = is_whole(subscription, self._offer)
        self._index_names = frozenset(table.name for table in catalog.tables if table.kind is Kind.INDEX)
        self._asked: dict[int, tuple[tuple[str, str, str], ...]] = {}
        self.failures = dict(altered)
        self.unpublished: list[str] = []
        self.unlisted: list[str] = []
        self.excluded: list[str] = []

    def tables(self) -> dict[int, Table]:
        """By id. Raises NotCovered; ScopeConflict if the one table that is asked for was never there, or no table
        matches the patterns."""
        subscription, offer = self._subscription, self._offer
        if offer is not None and not offer.names(subscription.database):
            raise not_covered(self._session, offer, subscription.database, subscription.table)
        patterns = subscription.patterns
        wanted = [table for table in self._catalog.tables if subscription.replicates(table)]
        chosen = [table for table in wanted if patterns.match(table.name)]
        if subscription.table is not None and not chosen and not self._before:
            raise ScopeConflict("the table does not exist upstream", subject=f"table {subscription.scope}")
        if patterns:
            self._leave_out(chosen)
        if offer is not None and offer.lists_tables:
            covered = [table for table in chosen if self._is_covered(table, offer)]
            if not covered and any(table.id in self._before for table in chosen):
                raise not_covered(self._session, offer, subscription.database, None)
            chosen = covered
        elif subscription.table is None and not patterns:
            chosen += [table for table in self._catalog.tables if table.kind is Kind.INDEX]
            return {table.id: table for table in sorted(chosen, key=lambda table: table.id)}
        sound = [table for table in chosen if table.id not in self.failures]
        indexes = frozenset(name for table in sound for name in self._hidden_tables(table))
        chosen += [table for table in self._catalog.tables if table.kind is Kind.INDEX and table.name in indexes]
        return {table.id: table for table in sorted(chosen, key=lambda table: table.id)}

    def _leave_out(self, chosen: list[Table]) -> None:
        """Say what the patterns exclude. To match nothing is an error at first, and if it would empty the replica of
        tables that are still there: the patterns, or the tables' names, are not what was meant."""
        ids = {table.id for table in chosen}
        rest = [table for table in self._catalog.tables if table.kind is Kind.TABLE and table.id not in ids]
        self.excluded = [self._shown(table) for table in rest]
        if not chosen and (not self._before or any(table.id in self._before for table in rest)):
            name, patterns = self._subscription.name, self._subscription.patterns
            raise ScopeConflict(
                f"none of the {len(rest)} tables matches: {patterns}",
                subject=f"database {self._subscription.databases}",
                remedy=f"`ccpr alter {name} --tables … --exclude-tables …`, then `ccpr resume {name}`.",
            )

    def _shown(self, table: Table) -> str:
        return table.qualified_name if self._subscription.of_account else table.name

    def _hidden_tables(self, table: Table) -> Collection[str]:
        """Names of the index tables of a table that was chosen. Patterns may choose thousands of tables, and each
        costs a statement: then only if index tables are copied."""
        if self._subscription.is_logical:
            return ()
        if not self._subscription.patterns:
            return index_tables(self._session, self._subscription.publication, table.id, self._named[table.database])
        if not self._subscription.settings.with_indexes:
            return ()
        return [name for _, _, name in self._indexes(table) or () if name]

    def without_unlisted(self, tables: dict[int, Table]) -> dict[int, Table]:
        """Without tables whose objects cannot be listed. If one was replicated, that is an error, since it would seem
        dropped."""
        unlisted = self._catalog.unlisted
        if not unlisted.keys() & tables.keys():
            return tables
        replicated = {point.table.logical_id for point in self._before.values()}
        kept = {}
        for number, table in tables.items():
            if number in unlisted:
                text, subject = f"its objects cannot be listed: {unlisted[number]}", f"table {table.qualified_name}"
                error = PartitionedTable(text, subject=subject)
                if table.logical_id not in replicated and self._subscription.table is None:
                    self.unlisted.append(self._shown(table))
                    continue
                fail_alone(number, self.failures, error, isolated=self._subscription.settings.isolated)
            kept[number] = table
        return kept

    def with_known_texts(self, tables: dict[int, Table]) -> dict[int, Table]:
        """With the texts of the last point, where those of now say the same in other words."""
        known = {number: point.table for number, point in self._before.items()}
        return {
            number: with_known_text(known[number], table) if number in known else table
            for number, table in tables.items()
        }

    def with_indexes(self, tables: dict[int, Table]) -> dict[int, Table]:
        """With the indexes of each table, where index tables are copied. They are asked for again where the text of the
        table has changed, or a hidden table of it is gone."""
        if not self._subscription.settings.with_indexes:
            return tables
        return {
            number: replace(table, indexes=self._indexes(table)) if table.kind is Kind.TABLE else table
            for number, table in tables.items()
        }

    def _indexes(self, table: Table) -> tuple[tuple[str, str, str], ...] | None:
        """None for a partitioned table that has indexes: their tables are its partitions', and not recorded."""
        if table.id not in self._asked:
            last = self._before.get(table.id)
            known = None if last is None or last.table.ddl != table.ddl or not table.ddl else last.table.indexes
            if known is None or not self._has_tables_of(known):
                known = index_rows(self._session, self._subscription.publication, table.id, self._named[table.database])
                # Of one of several databases they are of a later snapshot than the catalog (`read_databases`).
                if self._subscription.of_account and not table.partitions and not self._has_tables_of(known):
                    note_changed(table, self.failures, self._subscription.settings)
            self._asked[table.id] = known
        rows = self._asked[table.id]
        return None if table.partitions and any(hidden for _, _, hidden in rows) else rows

    def _has_tables_of(self, indexes: Iterable[tuple[str, str, str]]) -> bool:
        """Whether the catalog has all hidden tables of a table's indexes."""
        return all(hidden in self._index_names for _, _, hidden in indexes if hidden)

    def _is_covered(self, table: Table, offer: Offer) -> bool:
        """Whether the table is in scope. One that an ALTER took out is an error: it has another name than at the last
        point, or was copied, as upstreams before 4.2 do (a new id, and the same logical id). Otherwise a user removed
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
            fail_alone(table.id, self.failures, error, isolated=subscription.settings.isolated)
            return True
        self.unpublished.append(table.name)
        return False
