"""Two definitions of a table: what differs, for people, and whether anything does but their texts: releases of the
server print the same table differently (docs/upstream.md, "Texts of definitions by release"; decision
definitions-by-meaning).

Up to 4.2 the server reads CHARACTER SET and COLLATE and forgets them: texts are compared by their bytes, and no text
says so. Later releases print the collation of each table and column, of those made before `utf8mb4_bin`. Until 4.0 an
expression as default is printed with each quote doubled.
"""

import difflib
from dataclasses import replace

from ccpr.matrixone.ddl.definition import ColumnDefinition, CreateTable
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.errors import DdlUnreadable

CONTEXT_LINES = 2
_END = "\n)"  # of the columns; the table's options follow
_BY_BYTES = " COLLATE=utf8mb4_bin"
_PUBLISHED = "from_publication"  # a property that only texts have which came through a publication
_PROPERTY, _LATER_PROPERTY = ' PROPERTIES("from_publication" = "true")', " PROPERTIES('from_publication' = 'true')"
BY_BYTES = "utf8mb4_bin"  # what a text without a word of it has
_TEXTS = frozenset(("char", "varchar", "text", "tinytext", "mediumtext", "longtext"))
_CHARSETS = frozenset(("CHARACTER SET", "DEFAULT CHARACTER SET", "CHARSET", "DEFAULT CHARSET"))
_COLLATIONS = frozenset(("COLLATE", "DEFAULT COLLATE"))
_BINARY = "binary"


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


def comparable(table: CreateTable) -> CreateTable:
    """The definition in a form that is the same for all releases: a collation stands at each text column, and at the
    table, that is not compared by its bytes, and nowhere else."""
    given = _collation(table)
    others = tuple(option for option in table.options if option[0] not in _CHARSETS | _COLLATIONS)
    return replace(
        table,
        columns=tuple(_comparable(column, given) for column in table.columns),
        options=(*others, *((("COLLATE", given),) if given else ())),
        properties=tuple(one for one in table.properties if one[0] != _PUBLISHED),
    )


def _collation(table: CreateTable) -> str:
    """What the table's columns have unless they say otherwise; empty where that is by bytes."""
    options = {name: value.strip("'\"`").lower() for name, value in table.options}
    named = next((options[name] for name in _COLLATIONS if name in options), "")
    if not named and any(options.get(name) == _BINARY for name in _CHARSETS):
        named = _BINARY
    return _unless_by_bytes(named)


def _comparable(column: ColumnDefinition, of_table: str) -> ColumnDefinition:
    default = column.default
    if default is not None and default.startswith("("):
        default = default.replace("''", "'")
    if column.type.name not in _TEXTS:
        return replace(column, default=default, charset="", collation="")
    named = column.collation.lower() or (_BINARY if column.charset.lower() == _BINARY else "")
    return replace(
        column,
        type=replace(column.type, name="text") if column.type.name == "tinytext" else column.type,
        default=default,
        charset="",
        collation=_unless_by_bytes(named) if named else of_table,
    )


def _unless_by_bytes(collation: str) -> str:
    return "" if collation == BY_BYTES else collation
