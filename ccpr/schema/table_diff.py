"""What changed in one table's definition, as values, for the DDL policy and the plan (docs/requirements.md N4).

While a table keeps its id, a column is identified by its sequence number: so a rename is distinguished from a drop and
an addition. A copying ALTER (ADD or DROP COLUMN, most MODIFY) makes a table with a new id and numbers its columns
again; then a column is identified by its name. (Recording `ddl`: `t1` has columns id, a, b, c numbered 0 to 3; after
DROP COLUMN a they are numbered 0 to 2.)
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from ccpr.matrixone.ddl.definition import (
    CheckConstraint,
    ColumnDefinition,
    ColumnType,
    CreateTable,
    ForeignKey,
    Index,
    IndexKind,
)
from ccpr.matrixone.schema import Table

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_LONGER = {  # types that hold all values of a shorter type, in MatrixOne and in MySQL
    **dict.fromkeys(("char", "varchar", "tinytext"), ("text", "mediumtext", "longtext")),
    **dict.fromkeys(("binary", "varbinary"), ("blob", "mediumblob", "longblob")),
    "text": ("mediumtext", "longtext"),
    "mediumtext": ("longtext",),
}
_TIMES = frozenset({"time", "datetime", "timestamp"})  # the parameter is the number of fractional digits, 0 if absent
_LENGTHS = frozenset({"char", "varchar", "binary", "varbinary", "bit"})


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """One change of a definition.

    Attributes
    ----------
    in_place : whether an ALTER of a target table does it, whatever rows it has. Otherwise a shadow table is built and
        swapped with the old one.
    after_rows : whether an ALTER in place has to wait until the rows are those of the new point. It forbids some rows,
        and the old point's may be among them.
    destructive : whether values that the target holds are gone afterwards.
    says : what `describe` gives, with `{0}` for the change.
    """

    in_place: ClassVar[bool] = True
    after_rows: ClassVar[bool] = False
    destructive: ClassVar[bool] = False
    says: ClassVar[str] = ""

    def describe(self) -> str:
        """For people."""
        return self.says.format(self)


@dataclass(frozen=True, slots=True)
class TableRenamed(DefinitionChange):
    """Database and name, before and after."""

    before: tuple[str, str]
    after: tuple[str, str]

    def describe(self) -> str:
        return f"renamed from {'.'.join(self.before)} to {'.'.join(self.after)}"


@dataclass(frozen=True, slots=True)
class TableCommentChanged(DefinitionChange):
    before: str
    after: str
    says: ClassVar[str] = "another comment"


@dataclass(frozen=True, slots=True)
class TableOptionsChanged(DefinitionChange):
    """Partitions, clustering, properties or other options. None of them is used in a target of another kind."""

    before: CreateTable
    after: CreateTable
    fields: ClassVar[tuple[str, ...]] = ("partition_by", "properties", "cluster_by", "options")

    def describe(self) -> str:
        return "other " + ", ".join(
            name for name in self.fields if getattr(self.before, name) != getattr(self.after, name)
        )


@dataclass(frozen=True, slots=True)
class ColumnAdded(DefinitionChange):
    """`after` is the name of the preceding column in the new order, None for the first place."""

    column: ColumnDefinition
    after: str | None
    says: ClassVar[str] = "column {0.column.name} added"


@dataclass(frozen=True, slots=True)
class ColumnDropped(DefinitionChange):
    column: ColumnDefinition
    destructive: ClassVar[bool] = True
    says: ClassVar[str] = "column {0.column.name} dropped"


@dataclass(frozen=True, slots=True)
class ColumnRenamed(DefinitionChange):
    """All renames of a diff happen at once: two columns may have swapped their names."""

    before: str
    after: str
    says: ClassVar[str] = "column {0.before} renamed to {0.after}"


@dataclass(frozen=True, slots=True)
class ColumnMoved(DefinitionChange):
    """`after` as in `ColumnAdded`; `name` is the new one."""

    name: str
    after: str | None

    def describe(self) -> str:
        return f"column {self.name} moved " + ("to the front" if self.after is None else f"after {self.after}")


@dataclass(frozen=True, slots=True)
class ColumnAltered(DefinitionChange):
    """A column's definition changed in `fields`. Both definitions are complete; `before` has the old name."""

    before: ColumnDefinition
    after: ColumnDefinition
    fields: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        return self.after.name


@dataclass(frozen=True, slots=True)
class ColumnRetyped(ColumnAltered):
    """In place and without loss if every old value is a value of the new type."""

    fields: ClassVar[tuple[str, ...]] = ("type", "charset", "collation")

    @property
    def in_place(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        keeps_characters = self.after.charset in ("", self.before.charset)  # the table's own has all characters
        return keeps_characters and is_wider(self.before.type, self.after.type)

    @property
    def destructive(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self.in_place

    def describe(self) -> str:
        if self.before.type == self.after.type:
            before, after = (column.collation or "its table's" for column in (self.before, self.after))
            return f"column {self.name}: collation {before} becomes {after}"
        return f"column {self.name}: {self.before.type} becomes {self.after.type}"


@dataclass(frozen=True, slots=True)
class ColumnNullabilityChanged(ColumnAltered):
    fields: ClassVar[tuple[str, ...]] = ("nullable",)

    @property
    def after_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self.after.nullable

    def describe(self) -> str:
        return f"column {self.name}: {'NULL' if self.after.nullable else 'NOT NULL'}"


@dataclass(frozen=True, slots=True)
class ColumnDefaultChanged(ColumnAltered):
    """How the server fills the column by itself: DEFAULT, ON UPDATE, AUTO_INCREMENT, GENERATED."""

    fields: ClassVar[tuple[str, ...]] = ("default", "on_update", "auto_increment", "generated")
    says: ClassVar[str] = "column {0.name}: another default"


@dataclass(frozen=True, slots=True)
class ColumnCommentChanged(ColumnAltered):
    fields: ClassVar[tuple[str, ...]] = ("comment",)
    says: ClassVar[str] = "column {0.name}: another comment"


@dataclass(frozen=True, slots=True)
class ColumnVisibilityChanged(ColumnAltered):
    fields: ClassVar[tuple[str, ...]] = ("invisible",)
    says: ClassVar[str] = "column {0.name}: another visibility"


_ALTERATIONS = (
    ColumnRetyped,
    ColumnNullabilityChanged,
    ColumnDefaultChanged,
    ColumnCommentChanged,
    ColumnVisibilityChanged,
)


@dataclass(frozen=True, slots=True)
class PrimaryKeyChanged(DefinitionChange):
    """Rows are found by the key: a table with another key is rebuilt. Empty for a table without a key."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    in_place: ClassVar[bool] = False

    def describe(self) -> str:
        return f"primary key ({', '.join(self.before)}) becomes ({', '.join(self.after)})"


@dataclass(frozen=True, slots=True)
class IndexAdded(DefinitionChange):
    index: Index
    says: ClassVar[str] = "index {0.index.name} added"

    @property
    def after_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.index.kind is IndexKind.UNIQUE


@dataclass(frozen=True, slots=True)
class IndexDropped(DefinitionChange):
    index: Index
    says: ClassVar[str] = "index {0.index.name} dropped"


@dataclass(frozen=True, slots=True)
class ConstraintAdded(DefinitionChange):
    """A foreign key or a check. A table that is being synced has neither (docs/requirements.md D3), so nothing is done
    until it is released."""

    constraint: ForeignKey | CheckConstraint
    says: ClassVar[str] = "added {0.constraint}"


@dataclass(frozen=True, slots=True)
class ConstraintDropped(DefinitionChange):
    constraint: ForeignKey | CheckConstraint
    says: ClassVar[str] = "dropped {0.constraint}"


def diff_tables(
    before: Table, after: Table, ddl_before: CreateTable, ddl_after: CreateTable
) -> tuple[DefinitionChange, ...]:
    """The changes that lead from one definition to the other. The tables, to which the definitions belong, say which
    column is which.

    Order: what is dropped, renames (all at once), additions and moves from the first column to the last, then other
    changes of columns, keys and the table. Another order of indexes or constraints is not a change.
    """
    renames = _renames(before, after, ddl_before, ddl_after)
    old = _renamed(ddl_before, renames)
    kept = {renames.get(column.name, column.name): column for column in ddl_before.columns if column.name in renames}
    changes: list[DefinitionChange] = []
    names_before, names_after = (ddl_before.database, ddl_before.name), (ddl_after.database, ddl_after.name)
    if names_before != names_after:
        changes.append(TableRenamed(names_before, names_after))
    new_indexes, new_constraints = set(ddl_after.indexes), {*ddl_after.foreign_keys, *ddl_after.checks}
    for dropped, original in zip(old.indexes, ddl_before.indexes, strict=True):
        if dropped not in new_indexes:
            changes.append(IndexDropped(original))
    old_constraints = (
        *zip(old.foreign_keys, ddl_before.foreign_keys, strict=True),
        *zip(old.checks, ddl_before.checks, strict=True),
    )
    changes += [
        ConstraintDropped(original) for constraint, original in old_constraints if constraint not in new_constraints
    ]
    changes += [ColumnDropped(column) for column in ddl_before.columns if column.name not in renames]
    changes += [ColumnRenamed(name, other) for name, other in renames.items() if name != other]
    changes += _additions_and_moves(ddl_after, list(kept))
    for column in ddl_after.columns:
        if column.name in kept:
            changes += _alterations(kept[column.name], column)
    if old.primary_key != ddl_after.primary_key:
        changes.append(PrimaryKeyChanged(ddl_before.primary_key, ddl_after.primary_key))
    old_indexes, known = set(old.indexes), {constraint for constraint, _ in old_constraints}
    changes += [IndexAdded(index) for index in ddl_after.indexes if index not in old_indexes]
    changes += [
        ConstraintAdded(constraint)
        for constraint in (*ddl_after.foreign_keys, *ddl_after.checks)
        if constraint not in known
    ]
    if old.comment != ddl_after.comment:
        changes.append(TableCommentChanged(old.comment, ddl_after.comment))
    if any(getattr(old, name) != getattr(ddl_after, name) for name in TableOptionsChanged.fields):
        changes.append(TableOptionsChanged(ddl_before, ddl_after))
    return tuple(changes)


def can_be_altered(changes: Iterable[DefinitionChange]) -> bool:
    """Whether ALTER statements do all of it; otherwise the table is built as a shadow table and swapped (N4)."""
    return all(change.in_place for change in changes)


def is_wider(before: ColumnType, after: ColumnType) -> bool:
    """Whether every value of one type is a value of the other. False if that is not known."""
    if before == after:
        return True
    if before.srid != after.srid:
        return False
    if before.name in _INTEGERS and after.name in _INTEGERS:
        wider = _INTEGERS.index(after.name) - _INTEGERS.index(before.name)
        return (wider >= 0 and before.unsigned == after.unsigned) or (
            before.unsigned and not after.unsigned and wider > 0
        )
    if before.unsigned != after.unsigned or before.name != after.name:
        if (before.name, after.name) in (("char", "varchar"), ("binary", "varbinary")):
            return _covers(before.parameters, after.parameters)
        return after.name in _LONGER.get(before.name, ())
    if before.name in ("enum", "set"):
        return after.members[: len(before.members)] == before.members
    if before.name == "decimal":
        return before.parameters[1:] == after.parameters[1:] and _covers(before.parameters, after.parameters)
    if before.name in _TIMES:
        return _covers(before.parameters or (0,), after.parameters or (0,))
    return before.name in _LENGTHS and _covers(before.parameters, after.parameters)


def _covers(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return len(before) == len(after) and all(old <= new for old, new in zip(before, after, strict=True))


def _renames(before: Table, after: Table, ddl_before: CreateTable, ddl_after: CreateTable) -> dict[str, str]:
    """Old name -> new name, of every column that stays."""
    if before.id == after.id:
        numbers = {column.seqnum: column.name for column in after.user_columns}
        found = {column.name: numbers[column.seqnum] for column in before.user_columns if column.seqnum in numbers}
        # A column that the catalog does not number, as the hidden key of a target, is identified by its name.
        numbered = {column.name for column in (*before.user_columns, *after.user_columns)}
        others = {column.name for column in ddl_after.columns} - numbered
        found |= {column.name: column.name for column in ddl_before.columns if column.name in others}
    else:
        folded = {column.name.lower(): column.name for column in ddl_after.columns}
        found = {
            column.name: folded[column.name.lower()] for column in ddl_before.columns if column.name.lower() in folded
        }
    return found


def _renamed(table: CreateTable, renames: dict[str, str]) -> CreateTable:
    """The old definition, its keys with the new names of columns: so the server keeps them when columns are renamed."""

    def names(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(renames.get(name, name) for name in columns)

    return replace(
        table,
        primary_key=names(table.primary_key),
        cluster_by=names(table.cluster_by),
        indexes=tuple(
            replace(
                index, parts=tuple(replace(part, column=renames.get(part.column, part.column)) for part in index.parts)
            )
            for index in table.indexes
        ),
        foreign_keys=tuple(replace(key, columns=names(key.columns)) for key in table.foreign_keys),
    )


def _alterations(before: ColumnDefinition, after: ColumnDefinition) -> list[DefinitionChange]:
    return [
        kind(before, after)
        for kind in _ALTERATIONS
        if any(getattr(before, name) != getattr(after, name) for name in kind.fields)
    ]


def _additions_and_moves(after: CreateTable, kept: list[str]) -> list[DefinitionChange]:
    """From the first column to the last, with as few moves as possible. `kept`: the columns that stay, by their new
    names in the old order."""
    places = {name: place for place, name in enumerate(kept)}
    still = _longest_increasing([places[column.name] for column in after.columns if column.name in places])
    changes: list[DefinitionChange] = []
    previous = None
    for column in after.columns:
        if column.name not in places:
            changes.append(ColumnAdded(column, previous))
        elif places[column.name] not in still:
            changes.append(ColumnMoved(column.name, previous))
        previous = column.name
    return changes


def _longest_increasing(numbers: list[int]) -> set[int]:
    """A longest increasing subsequence: what need not move. All numbers differ."""
    ends: list[int] = []  # the smallest end of a subsequence of each length
    before: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(ends, number)
        before[number] = ends[at - 1] if at else None
        ends[at : at + 1] = [number]
    chosen: set[int] = set()
    number = ends[-1] if ends else None
    while number is not None:
        chosen.add(number)
        number = before[number]
    return chosen
