"""What changed in the schema between two points, by table id and never by name (decision identity-by-id)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from matrixone.objects.errors import ObjectUnsupported
from matrixone.objects.types import arrow_schema
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
        cluster tables, temporary tables, and as `unpublished` tables that the publication does not list.
    failures : by id, tables that cannot be replicated as they are; in isolated mode, else the first of them is raised.
    """

    catalog: Catalog
    tables: dict[int, Table]
    changes: tuple[TableChange, ...]
    unreplicated: tuple[tuple[str, str], ...]
    failures: Mapping[int, Failure] = field(default_factory=dict)


def check_schema(table: Table) -> None:
    """That each column has a type which can be read. Raises ObjectUnsupported: rows that nobody can read are no
    replica."""
    try:
        arrow_schema(table.columns)
    except ObjectUnsupported as error:
        raise ObjectUnsupported(error.message, subject=f"table {table.qualified_name}, {error.subject}") from error
