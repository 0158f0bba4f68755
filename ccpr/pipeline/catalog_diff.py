"""What changed in the schema between two points, by table id and never by name (decision identity-by-id)."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ccpr.base.errors import Failure
from ccpr.matrixone.client.database_definitions import SEQUENCE, VIEW
from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_catalog import TableCatalog
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.points import TableRef
from ccpr.schema.table_changes import CatalogChange
from ccpr.state.context import Settled
from ccpr.state.subscription import Subscription


@dataclass(frozen=True, slots=True)
class DatabaseList:
    """What the list of one of several databases is made of.

    Attributes
    ----------
    ref : a snapshot of the database, later than the account's.
    number : the database's id.
    ids : of everything in it then, by name.
    is_partitioned : whether a table in it was then, so that its tables are listed one by one.
    """

    ref: SnapshotRef
    number: int
    ids: Mapping[str, int]
    is_partitioned: bool


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """The catalog at the snapshot against the last point.

    Attributes
    ----------
    tables : what the mirror records, by id, index tables included.
    named : the same tables, as far as their kinds and names: of a catalog that is known without reading anything.
    whole : reads all that the database has; of a catalog that is known it has names only.
    unreplicated : (name, kind) of what stands in the database and is not replicated: views, sequences, external and
        cluster tables, temporary tables; as `unpublished` tables that the publication does not list, as `partitioned`
        and `unlisted` tables whose objects cannot be listed; as `capitals` databases that no snapshot can be taken of;
        at the end as `excluded` tables that the patterns exclude.
    is_whole : whether the subscription is of whole databases, with all that they have besides tables.
    is_partitioned : whether one of the tables of the database is.
    lists : if the subscription is to several databases, by their names.
    failures : by id, tables that cannot be replicated as they are; in isolated mode, else the first of them is raised.
    known : set if the catalog was not read, being what the last point shows: there is no change, no failure, and no
        list of several databases.
    inputs : digest of what the catalog follows from besides the last point; empty if that is not known.
    relations_digest : another one whenever a view or sequence came, went or was defined again, which gives it a new id.
    """

    whole: Callable[[], TableCatalog]
    tables: Mapping[int, Table]
    named: Mapping[int, Table | TableRef]
    changes: tuple[CatalogChange, ...]
    unreplicated: tuple[tuple[str, str], ...]
    failures: Mapping[int, Failure] = field(default_factory=dict)
    relations_digest: str = ""
    is_whole: bool = False
    lists: Mapping[str, DatabaseList] = field(default_factory=dict)
    is_partitioned: bool = False
    known: Settled | None = None
    inputs: str = ""

    @classmethod
    def of(
        cls,
        catalog: TableCatalog,
        tables: Mapping[int, Table],
        changes: tuple[CatalogChange, ...],
        unreplicated: tuple[tuple[str, str], ...] = (),
        *,
        failures: Mapping[int, Failure] | None = None,
        is_whole: bool = False,
        lists: Mapping[str, DatabaseList] | None = None,
    ) -> "CatalogDiff":
        """Of a catalog that was read."""
        return cls(
            lambda: catalog,
            tables,
            tables,
            changes,
            unreplicated,
            failures or {},
            digest_of(relations_of(catalog)) if is_whole else "",
            is_whole,
            lists or {},
            bool(catalog.partitioned),
        )

    @property
    def catalog(self) -> TableCatalog:
        return self.whole()

    def relations(self) -> tuple[tuple[Table, str], ...]:
        """Views and sequences, with relkind, whose definitions belong to a point; none where the subscription is of
        single tables."""
        return relations_of(self.catalog) if self.is_whole else ()

    def sequences(self) -> frozenset[str]:
        """Names, without databases, of the sequences whose value belongs to a point."""
        if not self.is_whole:
            return frozenset()
        if self.known is not None:  # of one database
            return frozenset(name for name, kind in self.unreplicated if kind == SEQUENCE)
        return frozenset(table.name for table, kind in self.relations() if kind == SEQUENCE)

    def listed(self) -> Mapping[int, Table | TableRef]:
        """What an object list may name besides what is not replicated. Of a whole database these are its tables."""
        if self.known is not None and self.is_whole:
            return self.named
        return {table.id: table for table in self.catalog.tables}

    def copied(self, subscription: Subscription) -> set[int]:
        """Ids of the tables whose objects the mirror keeps."""
        return {number for number, table in self.named.items() if subscription.copies(table)}


def relations_of(catalog: TableCatalog) -> tuple[tuple[Table, str], ...]:
    kinds = {name: kind for name, kind in catalog.unreplicated if kind in (VIEW, SEQUENCE)}
    named = catalog.database == EVERYTHING
    others = ((table, table.qualified_name if named else table.name) for table in catalog.tables)
    return tuple((table, kinds[name]) for table, name in others if table.kind is Kind.OTHER and name in kinds)


def digest_of(relations: Iterable[tuple[Table, str]]) -> str:
    """Of views and sequences; empty for none."""
    ids = sorted((table.id, table.name, kind) for table, kind in relations)
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16] if ids else ""
