"""information_schema and mo_catalog as tables that DuckDB reads: what clients ask of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import BIGINT, INT, SMALL, TINY, text_of_cell
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, CatalogAnswer
from ccpr_emulator.engine.catalog import catalog_at
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import SEQUENCE, TABLE, VIEW, TableEntry
from ccpr_emulator.engine.storage import Storage

Rows = list[tuple[Any, ...]]
_NUMBERS = {TINY: pa.int64(), SMALL: pa.int64(), INT: pa.int64(), BIGINT: pa.int64()}
_TEXT_LENGTHS = frozenset((types.CHAR, types.VARCHAR, types.BINARY, types.VARBINARY))


def system_table(storage: Storage, account: str, database: str, name: str) -> pa.Table | None:
    """A table of a system database; None if there is none of the name."""
    with storage.lock:
        if database == "mo_catalog":
            return _catalog_table(storage, account, name)
        make = _TABLES.get(name) if database == "information_schema" else None
        if make is None:
            return None
        columns, rows = make(storage, account)
        arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(columns.values())]
        return pa.table(arrays, names=list(columns))


def _catalog_table(storage: Storage, account: str, name: str) -> pa.Table | None:
    catalog = catalog_at(storage, storage.clock.last, None if account == "sys" else account)
    answers = {"mo_database": catalog.mo_database, "mo_tables": catalog.mo_tables, "mo_columns": catalog.mo_columns}
    return _as_arrow(answers[name]) if name in answers else None


def _as_arrow(answer: CatalogAnswer) -> pa.Table:
    arrays = []
    for place, kind in enumerate(answer.types):
        values = [row[place] for row in answer.rows]
        if kind in _NUMBERS:
            arrays.append(
                pa.array([None if value is None else int(text_of_cell(value)) for value in values], pa.int64())
            )
            continue
        try:
            arrays.append(pa.array([None if value is None else text_of_cell(value) for value in values], pa.string()))
        except UnicodeDecodeError:
            arrays.append(pa.array(values, pa.binary()))
    return pa.table(arrays, names=list(answer.columns))


def relations(storage: Storage, account: str) -> list[tuple[TableEntry, Definition]]:
    """The tables, views and sequences of an account, by name."""
    found = storage.tables_at(storage.now, account=account, kinds=(TABLE, VIEW, SEQUENCE))
    return sorted(found, key=lambda one: (one[1].database, one[1].name))


def data_type(definition: Definition, column: Column) -> str:
    """The word of a column's type: `varchar`, `decimal`."""
    return definition.type_texts[column.name].split("(")[0].split(" ")[0].lower()


def key_of(definition: Definition, column: str) -> str:
    """`Key` of SHOW COLUMNS."""
    if column in definition.primary_key:
        return "PRI"
    if any(index.columns == (column,) and index.unique for index in definition.indexes):
        return "UNI"
    return "MUL" if any(index.columns[0] == column for index in definition.indexes) else ""


def default_of(definition: Definition, column: str) -> str | None:
    """A default as clients read it: a text without its quotes."""
    text = definition.attributes_of(column).default
    if not text or text.lower() == "null":
        return None
    return text[1:-1].replace("''", "'") if text[0] == text[-1] == "'" and len(text) > 1 else text


def extra_of(definition: Definition, column: str) -> str:
    attributes = definition.attributes_of(column)
    if attributes.auto_increment:
        return "auto_increment"
    if attributes.generated:
        return "STORED GENERATED" if attributes.is_stored else "VIRTUAL GENERATED"
    return f"DEFAULT_GENERATED on update {attributes.on_update}" if attributes.on_update else ""


def _schemata(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    names = ("CATALOG_NAME", "SCHEMA_NAME", "DEFAULT_CHARACTER_SET_NAME", "DEFAULT_COLLATION_NAME", "SQL_PATH")
    own = [
        entry.name for entry in storage.databases if entry.account == account and entry.exists_at(storage.clock.last)
    ]
    rows: Rows = [("def", name, "utf8mb4", "utf8mb4_bin", None) for name in sorted({*own, *SYSTEM_DATABASES})]
    return dict.fromkeys(names, pa.string()), rows


_KINDS = {TABLE: "BASE TABLE", VIEW: "VIEW", SEQUENCE: "SEQUENCE"}


def _tables(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    text, number = pa.string(), pa.int64()
    columns = {
        "TABLE_CATALOG": text, "TABLE_SCHEMA": text, "TABLE_NAME": text, "TABLE_TYPE": text, "ENGINE": text,
        "VERSION": number, "ROW_FORMAT": text, "TABLE_ROWS": number, "AVG_ROW_LENGTH": number, "DATA_LENGTH": number,
        "MAX_DATA_LENGTH": number, "INDEX_LENGTH": number, "DATA_FREE": number, "AUTO_INCREMENT": number,
        "CREATE_TIME": text, "UPDATE_TIME": text, "CHECK_TIME": text, "TABLE_COLLATION": text, "CHECKSUM": number,
        "CREATE_OPTIONS": text, "TABLE_COMMENT": text,
    }  # fmt: skip
    rows: Rows = []
    for entry, definition in relations(storage, account):
        count = len(entry.stored.visible(storage.clock.last))
        created = created_at(storage, entry)
        counts = any(found.auto_increment for found in definition.attributes.values())
        rows.append(
            (
                "def",
                definition.database,
                definition.name,
                _KINDS[entry.kind],
                "Tae",
                10,
                "Compressed",
                count,
                0,
                0,
                0,
                0,
                0,
                entry.next_auto if counts else None,
                created,
                None,
                None,
                "utf8mb4_bin",
                None,
                "",
                definition.comment,
            )
        )
    return columns, rows


def created_at(storage: Storage, entry: TableEntry) -> str:
    seconds = storage.clock.time(entry.created).physical // 1_000_000_000
    return str(pa.scalar(seconds, pa.timestamp("s")).as_py())


def _columns(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    text, number = pa.string(), pa.int64()
    columns = {
        "TABLE_CATALOG": text, "TABLE_SCHEMA": text, "TABLE_NAME": text, "COLUMN_NAME": text,
        "ORDINAL_POSITION": number, "COLUMN_DEFAULT": text, "IS_NULLABLE": text, "DATA_TYPE": text,
        "CHARACTER_MAXIMUM_LENGTH": number, "CHARACTER_OCTET_LENGTH": number, "NUMERIC_PRECISION": number,
        "NUMERIC_SCALE": number, "DATETIME_PRECISION": number, "CHARACTER_SET_NAME": text, "COLLATION_NAME": text,
        "COLUMN_TYPE": text, "COLUMN_KEY": text, "EXTRA": text, "PRIVILEGES": text, "COLUMN_COMMENT": text,
        "GENERATION_EXPRESSION": text, "SRS_ID": number,
    }  # fmt: skip
    rows: Rows = []
    for _, definition in relations(storage, account):
        for position, column in enumerate(definition.user_columns, 1):
            oid, width, scale = column.type.oid, column.type.width, column.type.scale
            length = width if oid in _TEXT_LENGTHS else None
            digits = width if oid in types.MAX_PRECISION else None
            is_time = oid in (types.TIME, types.DATETIME, types.TIMESTAMP)
            is_text = oid in types.TEXT_TYPES
            attributes = definition.attributes_of(column.name)
            rows.append(
                (
                    "def",
                    definition.database,
                    definition.name,
                    column.name,
                    position,
                    default_of(definition, column.name),
                    "YES" if column.nullable else "NO",
                    data_type(definition, column),
                    length,
                    None if length is None else length * 4,
                    digits,
                    None if digits is None else scale,
                    scale if is_time else None,
                    "utf8mb4" if is_text else None,
                    "utf8mb4_bin" if is_text else None,
                    definition.type_texts[column.name],
                    key_of(definition, column.name),
                    extra_of(definition, column.name),
                    "select,insert,update,references",
                    attributes.comment,
                    attributes.generated,
                    None,
                )
            )
    return columns, rows


def key_parts(definition: Definition) -> Iterator[tuple[str, bool, int, str]]:
    """(index, unique, position, column) of the primary key and the indexes."""
    for number, name in enumerate(definition.primary_key, 1):
        yield "PRIMARY", True, number, name
    for index in definition.indexes:
        for number, name in enumerate(index.columns, 1):
            yield index.name, index.unique, number, name


def _statistics(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    text, number = pa.string(), pa.int64()
    columns = {
        "TABLE_CATALOG": text, "TABLE_SCHEMA": text, "TABLE_NAME": text, "NON_UNIQUE": number, "INDEX_SCHEMA": text,
        "INDEX_NAME": text, "SEQ_IN_INDEX": number, "COLUMN_NAME": text, "COLLATION": text, "CARDINALITY": number,
        "SUB_PART": number, "PACKED": text, "NULLABLE": text, "INDEX_TYPE": text, "COMMENT": text,
        "INDEX_COMMENT": text,
    }  # fmt: skip
    rows: Rows = [
        (
            "def",
            d.database,
            d.name,
            int(not unique),
            d.database,
            index,
            position,
            column,
            "A",
            0,
            None,
            None,
            "YES" if d.column(column).nullable else "",
            "",
            "",
            "",
        )
        for _, d in relations(storage, account)
        for index, unique, position, column in key_parts(d)
    ]
    return columns, rows


def _key_column_usage(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    text, number = pa.string(), pa.int64()
    columns = {
        "CONSTRAINT_CATALOG": text, "CONSTRAINT_SCHEMA": text, "CONSTRAINT_NAME": text, "TABLE_CATALOG": text,
        "TABLE_SCHEMA": text, "TABLE_NAME": text, "COLUMN_NAME": text, "ORDINAL_POSITION": number,
        "POSITION_IN_UNIQUE_CONSTRAINT": number, "REFERENCED_TABLE_SCHEMA": text, "REFERENCED_TABLE_NAME": text,
        "REFERENCED_COLUMN_NAME": text,
    }  # fmt: skip
    rows: Rows = [
        ("def", d.database, index, "def", d.database, d.name, column, position, None, None, None, None)
        for _, d in relations(storage, account)
        for index, unique, position, column in key_parts(d)
        if unique
    ]
    return columns, rows


def _table_constraints(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    names = ("CONSTRAINT_CATALOG", "CONSTRAINT_SCHEMA", "CONSTRAINT_NAME", "TABLE_SCHEMA", "TABLE_NAME")
    rows: Rows = [
        ("def", d.database, index, d.database, d.name, "PRIMARY KEY" if index == "PRIMARY" else "UNIQUE", "YES")
        for _, d in relations(storage, account)
        for index, unique, position, _ in key_parts(d)
        if unique and position == 1
    ]
    return dict.fromkeys((*names, "CONSTRAINT_TYPE", "ENFORCED"), pa.string()), rows


def _views(storage: Storage, account: str) -> tuple[dict[str, pa.DataType], Rows]:
    names = ("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "VIEW_DEFINITION", "CHECK_OPTION", "IS_UPDATABLE")
    rows: Rows = [
        ("def", d.database, d.name, d.query, "NONE", "NO", "root@%", "DEFINER", "utf8mb4", "utf8mb4_bin")
        for entry, d in relations(storage, account)
        if entry.kind == VIEW
    ]
    more = ("DEFINER", "SECURITY_TYPE", "CHARACTER_SET_CLIENT", "COLLATION_CONNECTION")
    return dict.fromkeys((*names, *more), pa.string()), rows


def _fixed(names: str, *rows: tuple[Any, ...]) -> Callable[[Storage, str], tuple[dict[str, pa.DataType], Rows]]:
    return lambda storage, account: (dict.fromkeys(names.split(), pa.string()), list(rows))


ENGINES = ("Tae", "DEFAULT", "MatrixOne's storage engine, simulated", "YES", "NO", "NO")
_TABLES: dict[str, Callable[[Storage, str], tuple[dict[str, pa.DataType], Rows]]] = {
    "schemata": _schemata,
    "tables": _tables,
    "columns": _columns,
    "statistics": _statistics,
    "key_column_usage": _key_column_usage,
    "table_constraints": _table_constraints,
    "views": _views,
    "engines": _fixed("ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS", ENGINES),
    "character_sets": _fixed(
        "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN", ("utf8mb4", "utf8mb4_bin", "UTF-8 Unicode", "4")
    ),
    "collations": _fixed(
        "COLLATION_NAME CHARACTER_SET_NAME ID IS_DEFAULT IS_COMPILED SORTLEN",
        ("utf8mb4_bin", "utf8mb4", "46", "Yes", "Yes", "1"),
    ),
    "triggers": _fixed("TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION EVENT_OBJECT_SCHEMA "
                       "EVENT_OBJECT_TABLE ACTION_STATEMENT ACTION_TIMING CREATED"),
    "routines": _fixed("SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE DATA_TYPE "
                       "ROUTINE_DEFINITION ROUTINE_COMMENT DEFINER CREATED LAST_ALTERED IS_DETERMINISTIC "
                       "DTD_IDENTIFIER"),
    "parameters": _fixed("SPECIFIC_CATALOG SPECIFIC_SCHEMA SPECIFIC_NAME ORDINAL_POSITION PARAMETER_MODE "
                         "PARAMETER_NAME DATA_TYPE"),
    "events": _fixed("EVENT_CATALOG EVENT_SCHEMA EVENT_NAME DEFINER EVENT_DEFINITION STATUS"),
    "partitions": _fixed("TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PARTITION_NAME SUBPARTITION_NAME PARTITION_METHOD "
                         "PARTITION_EXPRESSION PARTITION_DESCRIPTION TABLE_ROWS PARTITION_ORDINAL_POSITION"),
    "referential_constraints": _fixed("CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME UNIQUE_CONSTRAINT_SCHEMA "
                                      "UNIQUE_CONSTRAINT_NAME MATCH_OPTION UPDATE_RULE DELETE_RULE TABLE_NAME "
                                      "REFERENCED_TABLE_NAME"),
    "check_constraints": _fixed("CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME CHECK_CLAUSE"),
    "user_privileges": _fixed("GRANTEE TABLE_CATALOG PRIVILEGE_TYPE IS_GRANTABLE"),
    "schema_privileges": _fixed("GRANTEE TABLE_CATALOG TABLE_SCHEMA PRIVILEGE_TYPE IS_GRANTABLE"),
    "table_privileges": _fixed("GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PRIVILEGE_TYPE IS_GRANTABLE"),
    "plugins": _fixed("PLUGIN_NAME PLUGIN_VERSION PLUGIN_STATUS PLUGIN_TYPE"),
    "files": _fixed("FILE_ID FILE_NAME FILE_TYPE TABLESPACE_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME"),
}  # fmt: skip
