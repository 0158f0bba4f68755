"""What changed in the schema between two points, by table id and never by name (decision identity-by-id)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ccpr.base.failure import Failure
from ccpr.base.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.catalog import Catalog
from ccpr.matrixone.schema import Table
from ccpr.schema.table_changes import TableChange


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
    unreplicated : (name, kind) of what stands in the database and is not replicated: views, sequences, external and
        cluster tables, temporary tables; as `unpublished` tables that the publication does not list, as `partitioned`
        and `unlisted` tables whose objects cannot be listed; as `capitals` databases that no snapshot can be taken of;
        at the end as `excluded` tables that the patterns exclude.
    relations : views and sequences, with relkind, whose definitions belong to a point; none where the subscription is
        of single tables.
    is_whole : whether the subscription is of whole databases, with all that they have besides tables.
    lists : if the subscription is to several databases, by their names.
    failures : by id, tables that cannot be replicated as they are; in isolated mode, else the first of them is raised.
    """

    catalog: Catalog
    tables: dict[int, Table]
    changes: tuple[TableChange, ...]
    unreplicated: tuple[tuple[str, str], ...]
    failures: Mapping[int, Failure] = field(default_factory=dict)
    relations: tuple[tuple[Table, str], ...] = ()
    is_whole: bool = False
    lists: Mapping[str, DatabaseList] = field(default_factory=dict)

    @property
    def relations_digest(self) -> str:
        """Another one whenever a view or sequence came, went or was defined again, which gives it a new id."""
        if not self.relations:
            return ""
        ids = sorted((table.id, table.name, kind) for table, kind in self.relations)
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]
