"""Tables that are no replica's: `information_schema` as clients ask for it, this program's own in `mo_catalog`. Each is
made when a statement names it, for what the login may read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ccpr.config.sql.statement_parser import READABLE
from ccpr.matrixone.ddl.definition import ColumnType, CreateTable
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Column, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.points import Point, TableRef
from ccpr.mysql.replicas import Database
from ccpr.mysql.value_kinds import INT, NUMBERS, TEXT, ValueKind, kinds_of
from ccpr.service import subscriptions
from ccpr.service.workspace import Workspace
from ccpr.state.logins import PortLogin

INFORMATION_SCHEMA, MO_CATALOG = "information_schema", "mo_catalog"
_TELLING = frozenset(("context", "error_message", "sync_config"))
_CHARSET, _COLLATION = "utf8mb4", "utf8mb4_bin"
# The only one of each, as SHOW ENGINES, SHOW CHARACTER SET and SHOW COLLATION say it, in their order.
ENGINE = {"ENGINE": "MatrixOne", "SUPPORT": "DEFAULT", "COMMENT": "a replica", "TRANSACTIONS": "YES"}
ENGINE |= {"XA": "NO", "SAVEPOINTS": "NO"}
CHARACTER_SET = {"CHARACTER_SET_NAME": _CHARSET, "DESCRIPTION": "UTF-8 Unicode"}
CHARACTER_SET |= {"DEFAULT_COLLATE_NAME": _COLLATION, "MAXLEN": 4}
COLLATION = {"COLLATION_NAME": _COLLATION, "CHARACTER_SET_NAME": _CHARSET, "ID": 46, "IS_DEFAULT": "Yes"}
COLLATION |= {"IS_COMPILED": "Yes", "SORTLEN": 1}
Points = Callable[[Database], Point]

# The columns of each table; `#` marks a number.
_COLUMNS: Mapping[str, str] = {
    "schemata": "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH",
    "tables": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION# ROW_FORMAT TABLE_ROWS# AVG_ROW_LENGTH# "
    "DATA_LENGTH# MAX_DATA_LENGTH# INDEX_LENGTH# DATA_FREE# AUTO_INCREMENT# CREATE_TIME UPDATE_TIME CHECK_TIME "
    "TABLE_COLLATION CHECKSUM# CREATE_OPTIONS TABLE_COMMENT",
    "columns": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION# COLUMN_DEFAULT IS_NULLABLE "
    "DATA_TYPE CHARACTER_MAXIMUM_LENGTH# CHARACTER_OCTET_LENGTH# NUMERIC_PRECISION# NUMERIC_SCALE# DATETIME_PRECISION# "
    "CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY EXTRA PRIVILEGES COLUMN_COMMENT GENERATION_EXPRESSION",
    "statistics": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE# INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX# COLUMN_NAME "
    "COLLATION CARDINALITY# SUB_PART# PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT",
    "key_column_usage": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME "
    "COLUMN_NAME ORDINAL_POSITION# POSITION_IN_UNIQUE_CONSTRAINT# REFERENCED_TABLE_SCHEMA REFERENCED_TABLE_NAME "
    "REFERENCED_COLUMN_NAME",
    "table_constraints": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME CONSTRAINT_TYPE",
    "referential_constraints": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME UNIQUE_CONSTRAINT_SCHEMA "
    "UNIQUE_CONSTRAINT_NAME MATCH_OPTION UPDATE_RULE DELETE_RULE TABLE_NAME REFERENCED_TABLE_NAME",
    "views": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION CHECK_OPTION IS_UPDATABLE DEFINER SECURITY_TYPE",
    "routines": "SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE DATA_TYPE ROUTINE_COMMENT",
    "parameters": "SPECIFIC_CATALOG SPECIFIC_SCHEMA SPECIFIC_NAME ORDINAL_POSITION# PARAMETER_MODE "
    "PARAMETER_NAME DATA_TYPE",
    "triggers": "TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION EVENT_OBJECT_SCHEMA EVENT_OBJECT_TABLE",
    "events": "EVENT_CATALOG EVENT_SCHEMA EVENT_NAME EVENT_TYPE STATUS",
    "check_constraints": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME CHECK_CLAUSE",
    "user_privileges": "GRANTEE TABLE_CATALOG PRIVILEGE_TYPE IS_GRANTABLE",
    "schema_privileges": "GRANTEE TABLE_CATALOG TABLE_SCHEMA PRIVILEGE_TYPE IS_GRANTABLE",
    "table_privileges": "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PRIVILEGE_TYPE IS_GRANTABLE",
    "column_privileges": "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME PRIVILEGE_TYPE IS_GRANTABLE",
    "keywords": "WORD RESERVED#",
    "partitions": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PARTITION_NAME SUBPARTITION_NAME PARTITION_ORDINAL_POSITION# "
    "SUBPARTITION_ORDINAL_POSITION# PARTITION_METHOD PARTITION_EXPRESSION PARTITION_DESCRIPTION TABLE_ROWS#",
    "engines": "ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS",
    "character_sets": "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN#",
    "collations": "COLLATION_NAME CHARACTER_SET_NAME ID# IS_DEFAULT IS_COMPILED SORTLEN#",
}


def columns_of(name: str) -> Sequence[str]:
    """Of a table of `information_schema`; none of one that there is not."""
    return [one.rstrip("#") for one in _COLUMNS.get(name.lower(), "").split()]


def catalog_table(
    workspace: Workspace,
    databases: Sequence[Database],
    login: PortLogin,
    point_of: Points,
    database: str,
    name: str,
) -> tuple[pa.Table, dict[str, ValueKind]] | None:
    """Its rows, and the kinds of its columns; None if there is none of that name."""
    database, name = database.lower(), name.lower()
    if database == MO_CATALOG and name in READABLE:
        return _own(workspace, name, login)
    if database != INFORMATION_SCHEMA or name not in _COLUMNS:
        return None
    columns = _COLUMNS[name].split()
    kinds = {one.rstrip("#"): INT if one.endswith("#") else TEXT for one in columns}
    make = _ROWS.get(name)
    rows = [] if make is None else list(make(databases, point_of))
    arrays = [
        pa.array([row.get(one) for row in rows], pa.int64() if kind is INT else pa.string())
        for one, kind in kinds.items()
    ]
    return pa.Table.from_arrays(arrays, list(kinds)), kinds


def _own(workspace: Workspace, name: str, login: PortLogin) -> tuple[pa.Table, dict[str, ValueKind]]:
    columns = READABLE[name]
    rows = [dict(zip(columns, row, strict=True)) for row in subscriptions.select(workspace, name, columns, ())]
    if login.publications is not None:
        rows = [row for row in rows if str(row["subscription_name"]).lower() in login.publications]
    if login.limits:  # they may name tables and columns that are hidden
        rows = [{**row, **dict.fromkeys(_TELLING & row.keys())} for row in rows]
    kinds, arrays = dict[str, ValueKind](), []
    for column in columns:
        cells = [row[column] for row in rows]
        is_number = bool(cells) and all(isinstance(cell, int) or cell is None for cell in cells)
        kinds[column] = INT if is_number else TEXT
        texts = [None if cell is None else str(cell) for cell in cells]
        arrays.append(
            pa.array(
                [None if cell is None else int(cell) for cell in cells] if is_number else texts,
                pa.int64() if is_number else pa.string(),
            )
        )
    return pa.Table.from_arrays(arrays, list(columns)), kinds


def created_of(table: Table) -> CreateTable | None:
    """What its CREATE TABLE says of keys and defaults; None if that cannot be read."""
    try:
        return create_table_of(table)
    except DdlUnreadable:
        return None


def type_of(column: Column) -> str:
    try:
        shown = str(ColumnType.of(column))
        return "tinyint(1)" if shown == "bool" else shown  # as MySQL calls it, and tools know it
    except ValueError:
        return "unknown"


_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}  # as MySQL says them, with a sign or without
_DIGITS_OF_FLOATS = {"float": 12, "double": 22}


def column_rows(table: Table) -> list[dict[str, Any]]:
    """What SHOW COLUMNS and `information_schema.columns` say."""
    created, kinds, rows = created_of(table), kinds_of(table), []
    for place, column in enumerate(table.user_columns, 1):
        declared = next((one for one in created.columns if one.name == column.name), None) if created else None
        shown, kind = type_of(column), kinds[column.name]
        base = shown.partition("(")[0].partition(" ")[0]
        is_text = kind.base == "text"
        sizes = [int(one) for one in shown.partition("(")[2].partition(")")[0].split(",") if one.isdecimal()]
        if column.labels:
            lengths = [len(label) for label in column.labels]
            sizes = [max(lengths) if base == "enum" else sum(lengths) + len(lengths) - 1]
        is_number = kind.base in NUMBERS and base != "year"
        digits = _DIGITS.get(base) or (sizes[0] if sizes else _DIGITS_OF_FLOATS.get(base))
        rows.append(
            {
                "COLUMN_NAME": column.name,
                "ORDINAL_POSITION": place,
                "COLUMN_DEFAULT": None if declared is None else declared.default_text or declared.default,
                "IS_NULLABLE": "YES" if column.nullable else "NO",
                "DATA_TYPE": base,
                "CHARACTER_MAXIMUM_LENGTH": (sizes[0] if sizes else 65535) if is_text else None,
                "CHARACTER_OCTET_LENGTH": (sizes[0] * 4 if sizes else 65535) if is_text else None,
                "NUMERIC_PRECISION": (20 if shown == "bigint unsigned" else digits) if is_number else None,
                "NUMERIC_SCALE": kind.digits if is_number and kind.base != "double" else None,
                "DATETIME_PRECISION": kind.digits if kind.base == "datetime" else None,
                "CHARACTER_SET_NAME": _CHARSET if is_text else None,
                "COLLATION_NAME": (kind.collation or _COLLATION) if is_text else None,
                "COLUMN_TYPE": shown,
                "COLUMN_KEY": _key_of(created, column.name),
                "EXTRA": "auto_increment" if declared is not None and declared.auto_increment else "",
                "PRIVILEGES": "select",
                "COLUMN_COMMENT": "" if declared is None else declared.comment,
                "GENERATION_EXPRESSION": "",
            }
        )
    return rows


def index_rows(table: Table) -> list[dict[str, Any]]:
    """What SHOW INDEX and `information_schema.statistics` say."""
    created = created_of(table)
    if created is None:
        return []
    keys = [("PRIMARY", 0, created.primary_key)] if created.primary_key else []
    for index in created.indexes:
        columns = tuple(part.column for part in index.parts)
        keys.append((index.name or columns[0], 0 if "unique" in index.kind.value.lower() else 1, columns))
    nullable = {column.name: "YES" if column.nullable else "" for column in table.user_columns}
    return [
        {
            "NON_UNIQUE": non_unique,
            "INDEX_NAME": name,
            "SEQ_IN_INDEX": place,
            "COLUMN_NAME": column,
            "COLLATION": "A",
            "NULLABLE": nullable.get(column, ""),
            "INDEX_TYPE": "BTREE",
        }
        for name, non_unique, columns in keys
        for place, column in enumerate(columns, 1)
    ]


def _key_of(created: CreateTable | None, column: str) -> str:
    if created is None:
        return ""
    if column in created.primary_key:
        return "PRI"
    first = [index for index in created.indexes if index.parts and index.parts[0].column == column]
    if any("unique" in index.kind.value.lower() and len(index.parts) == 1 for index in first):
        return "UNI"
    return "MUL" if first else ""


def _schemata(databases: Sequence[Database], point_of: Points) -> list[dict[str, Any]]:
    names = [INFORMATION_SCHEMA, MO_CATALOG, *(one.shown for one in databases)]
    return [
        {
            "CATALOG_NAME": "def",
            "SCHEMA_NAME": name,
            "DEFAULT_CHARACTER_SET_NAME": _CHARSET,
            "DEFAULT_COLLATION_NAME": _COLLATION,
        }
        for name in names
    ]


def _each(databases: Sequence[Database], point_of: Points) -> list[tuple[Database, TableRef]]:
    return [(one, ref) for one in databases for ref in one.tables(point_of(one))]


def table_row(database: Database, ref: TableRef) -> dict[str, Any]:
    table = database.definition(ref)
    return {
        "TABLE_CATALOG": "def",
        "TABLE_SCHEMA": database.shown,
        "TABLE_NAME": ref.name,
        "TABLE_TYPE": "BASE TABLE",
        "ENGINE": "MatrixOne",
        "VERSION": 10,
        "TABLE_ROWS": None if database.limits else ref.rows,
        "DATA_LENGTH": None if database.limits else ref.bytes,
        "TABLE_COLLATION": _COLLATION,
        "TABLE_COMMENT": table.comment,
    }


def _tables(databases: Sequence[Database], point_of: Points) -> list[dict[str, Any]]:
    return [table_row(*one) for one in _each(databases, point_of)]


def _of_tables(make: Callable[[Table], list[dict[str, Any]]]) -> Callable[..., list[dict[str, Any]]]:
    def rows(databases: Sequence[Database], point_of: Points) -> list[dict[str, Any]]:
        found = []
        for database, ref in _each(databases, point_of):
            place = {"TABLE_CATALOG": "def", "TABLE_SCHEMA": database.shown, "TABLE_NAME": ref.name}
            place |= {"INDEX_SCHEMA": database.shown, "CONSTRAINT_CATALOG": "def", "CONSTRAINT_SCHEMA": database.shown}
            found += [{**place, **row} for row in make(database.definition(ref))]
        return found

    return rows


def _usage(table: Table) -> list[dict[str, Any]]:
    rows = [
        {
            "CONSTRAINT_NAME": row["INDEX_NAME"],
            "COLUMN_NAME": row["COLUMN_NAME"],
            "ORDINAL_POSITION": row["SEQ_IN_INDEX"],
        }
        for row in index_rows(table)
        if not row["NON_UNIQUE"]
    ]
    created = created_of(table)
    for key in () if created is None else created.foreign_keys:
        rows += [
            {
                "CONSTRAINT_NAME": key.name,
                "COLUMN_NAME": column,
                "ORDINAL_POSITION": place,
                "POSITION_IN_UNIQUE_CONSTRAINT": place,
                "REFERENCED_TABLE_SCHEMA": key.database or table.database,
                "REFERENCED_TABLE_NAME": key.table,
                "REFERENCED_COLUMN_NAME": referenced,
            }
            for place, (column, referenced) in enumerate(zip(key.columns, key.referenced, strict=False), 1)
        ]
    return rows


def _constraints(table: Table) -> list[dict[str, Any]]:
    names = dict.fromkeys((row["CONSTRAINT_NAME"], "REFERENCED_TABLE_NAME" in row) for row in _usage(table))
    kinds = {
        name: "FOREIGN KEY" if foreign else "PRIMARY KEY" if name == "PRIMARY" else "UNIQUE" for name, foreign in names
    }
    return [{"CONSTRAINT_NAME": name, "CONSTRAINT_TYPE": kind} for name, kind in kinds.items()]


_ROWS: Mapping[str, Callable[..., list[dict[str, Any]]]] = {
    "schemata": _schemata,
    "tables": _tables,
    "columns": _of_tables(column_rows),
    "statistics": _of_tables(index_rows),
    "key_column_usage": _of_tables(_usage),
    "table_constraints": _of_tables(_constraints),
    "engines": lambda databases, point_of: [ENGINE],
    "character_sets": lambda databases, point_of: [CHARACTER_SET],
    "collations": lambda databases, point_of: [COLLATION],
}
