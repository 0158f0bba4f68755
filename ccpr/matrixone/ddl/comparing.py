"""Definitions without what releases of the server print differently of the same table (docs/upstream.md, "Texts of
definitions by release"; decision definitions-by-meaning).

Up to 4.2 the server reads CHARACTER SET and COLLATE and forgets them: texts are compared by their bytes, and no text
says so. Later releases print the collation of each table and column, of those made before `utf8mb4_bin`. Until 4.0 an
expression as default is printed with each quote doubled.
"""

from dataclasses import replace

from ccpr.matrixone.ddl.definition import ColumnDefinition, CreateTable

BY_BYTES = "utf8mb4_bin"  # what a text without a word of it has
_TEXTS = frozenset(("char", "varchar", "text", "tinytext", "mediumtext", "longtext"))
_CHARSETS = frozenset(("CHARACTER SET", "DEFAULT CHARACTER SET", "CHARSET", "DEFAULT CHARSET"))
_COLLATIONS = frozenset(("COLLATE", "DEFAULT COLLATE"))
_BINARY = "binary"


def comparable(table: CreateTable) -> CreateTable:
    """The definition in a form that is the same for all releases: a collation stands at each text column, and at the
    table, that is not compared by its bytes, and nowhere else."""
    given = _collation(table)
    others = tuple(option for option in table.options if option[0] not in _CHARSETS | _COLLATIONS)
    return replace(
        table,
        columns=tuple(_comparable(column, given) for column in table.columns),
        options=(*others, *((("COLLATE", given),) if given else ())),
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
