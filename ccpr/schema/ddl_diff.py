"""Two definitions of a table: what differs, for people, and whether anything does but their texts."""

import difflib
from dataclasses import replace

from ccpr.matrixone.ddl.comparing import comparable
from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.errors import DdlUnreadable

CONTEXT_LINES = 2
_END = "\n)"  # of the columns; the table's options follow
_BY_BYTES = " COLLATE=utf8mb4_bin"
_PROPERTY, _LATER_PROPERTY = ' PROPERTIES("from_publication" = "true")', " PROPERTIES('from_publication' = 'true')"


def ddl_diff(before: Table, after: Table) -> str:
    """The lines of CREATE TABLE that differ, with those around them; empty if none does."""
    lines = difflib.unified_diff(
        before.ddl.splitlines(),
        after.ddl.splitlines(),
        before.qualified_name,
        after.qualified_name,
        n=CONTEXT_LINES,
        lineterm="",
    )
    return "\n".join(lines)


def with_known_text(known: Table, table: Table) -> Table:
    """The table, with the text that is known of it if another one says the same: what an upgrade of the server adds to
    texts alters no table (decision definitions-by-meaning)."""
    if known.ddl == table.ddl or known.qualified_name != table.qualified_name or known.comment != table.comment:
        return table
    return replace(table, ddl=known.ddl) if same_definition(known, table) else table


def same_definition(before: Table, after: Table) -> bool:
    """Whether two tables differ in their names at most, and in what releases of the server print differently."""
    if before.columns != after.columns:
        return False
    if _body(before) == _body(after):
        return True
    old, new = _value(before), _value(after)
    return old is not None and old == new


def _body(table: Table) -> str:
    """The text without its first line, which has the name, and without what an upgrade adds to most tables."""
    body = table.ddl.partition("\n")[2] or table.ddl.replace(f"`{table.name}`", "", 1)
    columns, end, options = body.rpartition(_END)
    options = options.removeprefix(_BY_BYTES)
    if options.endswith(_LATER_PROPERTY):
        options = options.removesuffix(_LATER_PROPERTY) + _PROPERTY
    return columns + end + options


def _value(table: Table) -> CreateTable | None:
    """The definition without its name; None if the text cannot be read."""
    try:
        return replace(comparable(create_table_of(table)), database="", name="")
    except DdlUnreadable:
        return None
