"""The statements that create, alter, rename, replace and drop a target's tables, and the names of the shadow tables
that they use. The plan and the run both call these functions, so what a plan shows is what is run.

They are meant for a session as `ccpr.schema.render` says. The definitions that are compared are those that
`ccpr.schema.sync_mark.for_sync` made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from ccpr.matrixone.ddl.definition import ColumnDefinition, CreateTable, format_create_table
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.quoting import quote_name, quote_qualified, quote_string
from ccpr.schema.choices import Dialect
from ccpr.schema.table_diff import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnMoved,
    ColumnRenamed,
    DefinitionChange,
    IndexAdded,
    IndexDropped,
    TableCommentChanged,
    TableRenamed,
    can_be_altered,
    diff_tables,
)

Name = tuple[str, str]  # database, table


@dataclass(frozen=True, slots=True)
class Alteration:
    """Statements that change one definition into the other in place.

    Attributes
    ----------
    changes : what they do.
    before_rows, after_rows : to be run before and after the rows of the new point are applied. `after_rows` forbid rows
        that the old point may have.
    """

    changes: tuple[DefinitionChange, ...]
    before_rows: tuple[str, ...]
    after_rows: tuple[str, ...] = ()


def alter_table(
    before: Table, after: Table, target_before: CreateTable, target_after: CreateTable, dialect: Dialect
) -> Alteration | None:
    """The ALTER statements that change one target definition into the other. None if the table has to be built as a
    shadow table and swapped (docs/requirements.md N4).

    The definitions are those that `for_sync` made; the tables say which column is which.
    """
    changes = diff_tables(before, after, target_before, target_after)
    if not can_be_altered(changes):
        return None
    table = target_after.quoted_name
    bound = _bound_columns(changes)
    first = []
    if any(isinstance(change, TableRenamed) for change in changes):
        first.append(rename_tables([(target_before.quoted_name, target_after.quoted_name)]))
    drops = [f"DROP INDEX {quote_name(change.index.name)}" for change in changes if isinstance(change, IndexDropped)]
    drops += [
        f"DROP COLUMN {quote_name(change.column.name)}" for change in changes if isinstance(change, ColumnDropped)
    ]
    renames = [
        f"RENAME COLUMN {quote_name(c.before)} TO {quote_name(c.after)}"
        for c in changes
        if isinstance(c, ColumnRenamed)
    ]
    edits = _column_edits(changes, target_after, bound)
    plain = [f"ADD {c.index}" for c in changes if isinstance(c, IndexAdded) and not c.after_rows]
    for part in (drops, renames, edits, plain):
        first += alter_statements(table, part, dialect)
    first += [
        f"ALTER TABLE {table} COMMENT={quote_string(change.after)}"
        for change in changes
        if isinstance(change, TableCommentChanged)
    ]
    late = [f"MODIFY COLUMN {target_after.column(name)}" for name in sorted(bound)]
    late += [f"ADD {change.index}" for change in changes if isinstance(change, IndexAdded) and change.after_rows]
    return Alteration(changes, tuple(first), alter_statements(table, late, dialect))


def alter_statements(quoted_name: str, changes: Sequence[str], dialect: Dialect) -> tuple[str, ...]:
    """One ALTER TABLE for all changes, so that the server goes through the table once; one for each for MatrixOne,
    which does not take several kinds of them together."""
    if not changes:
        return ()
    together = changes if dialect is Dialect.MATRIXONE else [", ".join(changes)]
    return tuple(f"ALTER TABLE {quoted_name} {change}" for change in together)


def _bound_columns(changes: Sequence[DefinitionChange]) -> set[str]:
    """Columns that become NOT NULL once the rows of the new point are there."""
    added = {c.column.name for c in changes if isinstance(c, ColumnAdded) and _needs_a_value(c.column)}
    return added | {c.name for c in changes if isinstance(c, ColumnAltered) and c.after_rows}


def _column_edits(changes: Sequence[DefinitionChange], after: CreateTable, bound: set[str]) -> list[str]:
    """ADD and MODIFY COLUMN, as far as the old point's rows allow: a column of `bound` may still be NULL."""

    def nullable(column: ColumnDefinition) -> ColumnDefinition:
        return replace(column, nullable=True) if column.name in bound else column

    edits = []
    done = _only_nullability(changes, bound)
    for change in changes:
        match change:
            case ColumnAdded(column, place):
                edits.append(f"ADD COLUMN {nullable(column)} {_place(place)}")
                done.add(column.name)
            case ColumnMoved(name, place):
                edits.append(f"MODIFY COLUMN {nullable(after.column(name))} {_place(place)}")
                done.add(name)
    altered = {change.name: change.after for change in changes if isinstance(change, ColumnAltered)}
    return [*edits, *(f"MODIFY COLUMN {nullable(column)}" for name, column in altered.items() if name not in done)]


def rename_tables(pairs: Sequence[tuple[str, str]]) -> str:
    """One statement for all renames; names are already quoted. A reader sees all of them or none.

    A swap is ``[(t, old), (staged, t)]``. Two names change places by way of a third: ``[(a, x), (b, a), (x, b)]``.
    """
    return "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs)


def _place(after: str | None) -> str:
    return "FIRST" if after is None else f"AFTER {quote_name(after)}"


def _needs_a_value(column: ColumnDefinition) -> bool:
    """Whether existing rows would get a value that a strict server refuses (a zero date, an empty text as JSON)."""
    return not column.nullable and column.default is None and not column.auto_increment


def _only_nullability(changes: Sequence[DefinitionChange], bound: set[str]) -> set[str]:
    """Columns that do not change before the rows are there."""
    early = {change.name for change in changes if isinstance(change, ColumnAltered) and not change.after_rows}
    return bound - early


def quoted(name: Name) -> str:
    return quote_qualified(name)


def shadow_name(purpose: Literal["load", "old"], task_id: str, table_id: int) -> str:
    """The name of the shadow table that is loaded (``load``), or of a replaced table until it is dropped (``old``). No
    other subscription's table has this name."""
    return f"ccpr_{purpose}_{sha256(task_id.encode()).hexdigest()[:12]}_{table_id}"


def make_shadow(create: CreateTable, shadow: str) -> str:
    """CREATE TABLE of the shadow table that rows are loaded into. Its indexes are made after the load."""
    return format_create_table(replace(create, name=shadow, indexes=()))


def show_loaded(
    create: CreateTable, shadow: str, outgoing: Sequence[tuple[Name, str]], dialect: Dialect
) -> tuple[str, ...]:
    """The statements that make the indexes, rename all tables in one step, and drop what was replaced.

    `outgoing` : the replaced tables, each with the name that it has until it is dropped.
    """
    database = create.database
    loaded = quoted((database, shadow))
    retired = [(quoted(name), quoted((name[0], old))) for name, old in outgoing]
    return (
        *alter_statements(loaded, [f"ADD {index}" for index in create.indexes], dialect),
        rename_tables([*retired, (loaded, quoted((database, create.name)))]),
        *(drop_table((name[0], old)) for name, old in outgoing),
    )


def drop_table(name: Name) -> str:
    return f"DROP TABLE IF EXISTS {quoted(name)}"
