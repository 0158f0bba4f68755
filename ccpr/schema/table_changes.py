"""Which tables were created, dropped or changed between two catalogs.

Tables are identified by id and never by name: one statement can swap two names (decision identity-by-id).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ccpr.matrixone.schema import Table


class ChangeKind(StrEnum):
    CREATED = "created"
    DROPPED = "dropped"
    REPLACED = "replaced"  # same logical id, new id: truncated, or rewritten by an ALTER that copies
    RENAMED = "renamed"
    ALTERED = "altered"  # in place: same id, another definition


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """One table's change; `before` is None for a created, `after` for a dropped one."""

    kind: ChangeKind
    before: Table | None
    after: Table | None

    @property
    def table(self) -> Table:
        """The table as it is now, or as it last was."""
        table = self.after or self.before
        assert table is not None
        return table

    def describe(self) -> str:
        """One line for logs and plans."""
        if self.kind is ChangeKind.RENAMED and self.before is not None:
            return f"{self.before.qualified_name} renamed to {self.table.qualified_name}"
        return f"{self.table.qualified_name} {self.kind.value}"


def diff_catalogs(before: Iterable[Table], after: Iterable[Table]) -> tuple[CatalogChange, ...]:
    """The changes that lead from one list of tables to the other, in the order of table ids."""
    old, new = {table.id: table for table in before}, {table.id: table for table in after}
    gone = {table.id: table for table in old.values() if table.id not in new}
    predecessors = {table.logical_id: table.id for table in gone.values()}
    changes = []
    for table in new.values():
        known = old.get(table.id)
        if known is None:
            predecessor = gone.pop(predecessors.pop(table.logical_id, 0), None)
            kind = ChangeKind.CREATED if predecessor is None else ChangeKind.REPLACED
            changes.append(CatalogChange(kind, predecessor, table))
        elif known.qualified_name != table.qualified_name:
            changes.append(CatalogChange(ChangeKind.RENAMED, known, table))
        elif known != table:
            changes.append(CatalogChange(ChangeKind.ALTERED, known, table))
    changes += [CatalogChange(ChangeKind.DROPPED, table, None) for table in gone.values()]
    return tuple(sorted(changes, key=lambda change: change.table.id))
