"""Two definitions of a table as a unified diff, for people."""

import difflib

from matrixone.schema import Table

CONTEXT_LINES = 2


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


def same_definition(before: Table, after: Table) -> bool:
    """Whether two tables differ in their names at most. The first line of CREATE TABLE has the name."""
    return before.columns == after.columns and _body(before) == _body(after)


def _body(table: Table) -> str:
    return table.ddl.partition("\n")[2] or table.ddl.replace(f"`{table.name}`", "", 1)
