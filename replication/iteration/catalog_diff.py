"""What changed in the schema between two points, by table id and never by name (decision identity-by-id)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from matrixone.schema import Table
from matrixone.upstream.catalog import Catalog
from replication.failure import Failure
from replication.schema.table_changes import TableChange


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """The catalog at the snapshot against the last point.

    Attributes
    ----------
    tables : what the mirror records, by id, index tables included.
    unreplicated : (name, kind) of what stands in the database and is not replicated: views, sequences, external and
        cluster tables, temporary tables; as `unpublished` tables that the publication does not list, as `partitioned`
        and `unlisted` tables whose objects cannot be listed; at the end as `excluded` tables that the patterns leave
        out.
    failures : by id, tables that cannot be replicated as they are; in isolated mode, else the first of them is raised.
    """

    catalog: Catalog
    tables: dict[int, Table]
    changes: tuple[TableChange, ...]
    unreplicated: tuple[tuple[str, str], ...]
    failures: Mapping[int, Failure] = field(default_factory=dict)
