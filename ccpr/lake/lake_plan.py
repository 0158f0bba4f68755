"""What the next point means for a lake: tables that come, go, or whose files are all written again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ccpr.lake.commit import Lake
from ccpr.lake.delta_table import columns_of
from ccpr.lake.lake_catalog import CatalogEntry, LakeCatalog, new_folder
from ccpr.lake.lake_columns import next_columns
from ccpr.lake.lake_sync import LakeScope
from ccpr.matrixone.schema import Kind, Table


@dataclass(frozen=True, slots=True)
class PlannedLakeTable:
    """
    Attributes
    ----------
    action : ``create``, ``drop``, ``rewrite`` (all files), ``rename`` (the folder stays), ``change`` (rows).
    bytes : of the upstream's objects that become files; of a rewrite of the files that are there.
    objects : that become files.
    folder : below the lake.
    """

    table: str
    action: str
    objects: int
    bytes: int
    folder: str


def plan_lake(
    lake: Lake,
    scope: LakeScope,
    tables: Iterable[Table],
    added: Mapping[int, tuple[int, int]],
    kept: Iterable[int] = (),
) -> list[PlannedLakeTable]:
    """The lake is read, nothing is written.

    Parameters
    ----------
    tables : those of the next point.
    added : objects that the next point brings, and their bytes, by table id.
    kept : ids of tables that are not in the next point and stay.

    Raises LakeChanged, LakeForeign, StoreFailed, ObjectUnsupported, LakeTableRefused.
    """
    contents = LakeCatalog(lake).read()
    wanted = {
        table.logical_id: table
        for table in sorted(tables, key=lambda table: table.id)
        if table.kind is Kind.TABLE and scope.takes_named(table.database, table.name)
    }
    there = {number: entry for number, entry in contents.tables.items() if not entry.dropped}
    gone = [entry for number, entry in there.items() if number not in wanted and entry.table_id not in set(kept)]
    taken = {entry.folder for entry in there.values()} - {entry.folder for entry in gone}
    found = [PlannedLakeTable(entry.name, "drop", 0, 0, entry.folder) for entry in gone]
    for number, table in wanted.items():
        objects, size = added.get(table.id, (0, 0))
        entry = there.get(number)
        if entry is None:
            folder = new_folder(table.database, table.name, table.id, taken)
            taken.add(folder)
            found.append(PlannedLakeTable(table.qualified_name, "create", objects, size, folder))
        elif action := _action(lake, entry, table, changed=bool(objects)):
            written = entry.size if action == "rewrite" else size
            found.append(PlannedLakeTable(table.qualified_name, action, objects, written, entry.folder))
    return sorted(found, key=lambda one: one.table)


def _action(lake: Lake, entry: CatalogEntry, table: Table, *, changed: bool) -> str | None:
    """None if nothing is done, as far as it is known before objects are read."""
    before = columns_of(lake.log(entry.folder).read().metadata)
    if before is not None and entry.table_id == table.id:
        after = next_columns(table, lake.reading, lake.rules.mapped, before)
        if after.generation != before.generation:
            return "rewrite"
    if entry.table_id != table.id:
        return "change"
    if entry.name != table.qualified_name:
        return "rename"
    return "change" if changed else None
