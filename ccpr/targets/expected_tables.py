"""What our own data says about a target's tables: the catalog database has every definition that a kept point shows.

A target's registry is in the target, where others may write. What is run there is therefore made from our own
definitions. What the registry says is compared with them, and only names its tables.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from ccpr.matrixone.ddl.definition import CreateTable, IndexKind, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of, parse_create_table
from ccpr.matrixone.objects.types import unreadable_columns
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.schema.choices import DEFAULT_MAX_DROP, DdlPolicy, Dialect, DuplicateKeys, MaxDrop
from ccpr.schema.render import target_table
from ccpr.schema.sync_mark import NotSyncable, for_sync
from ccpr.schema.table_changes import CatalogChange
from ccpr.schema.target_types import TargetUnfit
from ccpr.targets.base import TargetTable
from ccpr.targets.errors import TargetRegistryEdited

RETIRED, SWAPPING = "ccpr_gone_{}", "ccpr_between_{}"  # names that no user's table has
_AS_TEXT = "longtext"


@dataclass(frozen=True)
class ExpectedTables:
    """The definitions of one subscription.

    Attributes
    ----------
    read : every definition that a kept point has, in any order; called once, when the first one is needed.
    as_text : the target's columns that are kept as long text, `table.column` by their names upstream.
    """

    read: Callable[[], Iterable[Table]] = tuple
    as_text: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Read the definitions now. Raises StateUnavailable, StateUnreadable."""
        _ = self._names

    @cached_property
    def _sources(self) -> frozenset[Table]:
        return frozenset(self.read())

    @cached_property
    def _names(self) -> frozenset[tuple[int, str]]:
        return frozenset((table.logical_id, table.name) for table in self._sources)

    def check_name(self, table: TargetTable, database: str) -> None:
        """Raises TargetRegistryEdited unless the table has a name that its table upstream has, or had at a point that
        is kept."""
        free = (RETIRED.format(table.id), SWAPPING.format(table.id))
        if table.database != database or (
            table.name not in free and (table.source.logical_id, table.name) not in self._names
        ):
            raise TargetRegistryEdited(
                "the registry names a table that no kept point of this subscription has",
                subject=f"table {table.qualified_name}",
            )

    def expected(self, table: TargetTable, dialect: Dialect) -> TargetTable:
        """The table as our own definition of it gives it, under the same name. Raises TargetRegistryEdited if no kept
        point has this definition."""
        subject = f"table {table.qualified_name}"
        if table.source not in self._sources:
            raise TargetRegistryEdited(
                "the registry has a definition that no kept point of this subscription has", subject=subject
            )
        try:
            stored = {column.name: column.type.name for column in parse_create_table(table.create).columns}
            kept = columns_as_text(self.as_text, table.source.name)  # some may be gone upstream
            as_text = [name for name in kept if stored.get(name) == _AS_TEXT]
            made = target_of(table.source, dialect, table.database, as_text=as_text)
            made = without_defaults(made, lacking_defaults(table))
        except (DdlUnreadable, TargetUnfit, NotSyncable, KeyError) as error:
            raise TargetRegistryEdited(
                f"the registry's definition is not one that is made here: {error!s:.200}", subject=subject
            ) from error
        return named(made, table.name)

    def check_definition(self, table: TargetTable, dialect: Dialect) -> None:
        """Raises TargetRegistryEdited unless the table is as our own definition gives it, except that columns may be
        nullable, and unique indexes missing, until its rows are applied."""
        made = parse_create_table(self.expected(table, dialect).create)
        stored = parse_create_table(table.create)
        nullable = {column.name for column in stored.columns if column.nullable}
        columns = tuple(replace(column, nullable=column.nullable or column.name in nullable) for column in made.columns)
        indexes = tuple(
            index for index in made.indexes if index in stored.indexes or index.kind is not IndexKind.UNIQUE
        )
        if stored != replace(made, columns=columns, indexes=indexes):
            raise TargetRegistryEdited(
                "the registry's definition is not the one that is made here", subject=f"table {table.qualified_name}"
            )


def check_types(table: Table) -> None:
    """Raises TargetUnfit for a column that this release cannot read."""
    for name, reason in unreadable_columns(replace(column, unread=None) for column in table.columns).items():
        remedy = "Use a release that knows the type. The mirror has the table, and the other tables are still synced."
        raise TargetUnfit(reason, subject=f"column {name} of table {table.qualified_name}", remedy=remedy)


def columns_as_text(names: Collection[str], table: str) -> list[str]:
    """The columns of a table among names of the form `table.column`."""
    return [name.rpartition(".")[2] for name in names if name.rpartition(".")[0] == table]


def target_of(source: Table, dialect: Dialect, database: str, *, as_text: Collection[str] = ()) -> TargetTable:
    """The table for a database, with remarks about what differs from the source. Raises TargetUnfit, NotSyncable,
    DdlUnreadable."""
    target = target_table(create_table_of(source), dialect, database=database, as_text=as_text)
    synced = for_sync(target.create)
    return TargetTable(source, database, source.name, synced.create, synced.stripped, synced.disabled, target.remarks)


def lacking_defaults(table: TargetTable) -> set[str]:
    """The columns of a target's table that have no default. Their source may have one: the target refused it."""
    return {column.name for column in parse_create_table(table.create).columns if column.default is None}


def without_defaults(table: TargetTable, names: Collection[str]) -> TargetTable:
    """The table without the defaults of these columns, as far as they have one; with a remark for each."""
    create, remarks, columns = parse_create_table(table.create), list(table.remarks), []
    for column in create.columns:
        if column.name in names and column.default is not None:
            remarks.append(f"column {column.name}: the default {column.default} is skipped: the target refuses it")
            column = replace(column, default=None)
        columns.append(column)
    if tuple(columns) == create.columns:
        return table
    return replace(table, create=format_create_table(replace(create, columns=tuple(columns))), remarks=tuple(remarks))


def named(table: TargetTable, name: str) -> TargetTable:
    """The same table under another name."""
    created: CreateTable = replace(parse_create_table(table.create), name=name)
    return replace(table, name=name, create=format_create_table(created))


@dataclass(frozen=True, slots=True)
class TargetRules:
    """How tables are made in a target.

    Attributes
    ----------
    database : the target's, for all tables.
    source_database : the only one whose tables are synced; empty if there is no other.
    as_text : columns kept as long text, `table.column` by their names upstream.
    task_id : the subscription's, for the names of shadow tables.
    duplicate_keys : what happens to a table with two rows of one key.
    max_drop : how many tables are dropped at once.
    approved : tables that are dropped however many they are, by their names upstream, `db.t`.
    altered : tables whose changes do not wait, whatever the policy is, by their names upstream.
    held : tables that were held back before; they stay so, however many tables are made meanwhile.
    """

    dialect: Dialect
    database: str
    policy: DdlPolicy
    as_text: tuple[str, ...] = ()
    task_id: str = ""
    duplicate_keys: DuplicateKeys = DuplicateKeys.ERROR
    source_database: str = ""
    max_drop: MaxDrop = DEFAULT_MAX_DROP
    approved: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    altered: frozenset[str] = frozenset()

    def policy_of(self, change: CatalogChange) -> DdlPolicy:
        """Of a change of one table."""
        return DdlPolicy.FULL if change.table.qualified_name in self.altered else self.policy

    def takes(self, database: str) -> bool:
        """Whether the tables of this database upstream are synced."""
        return self.source_database in ("", database)
