"""information_schema and mo_catalog as tables that DuckDB reads: what clients ask of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.server.answers import BIGINT, INT, SMALL, TINY, text_of_cell
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, CatalogAnswer
from ccpr_emulator.engine.catalog import catalog_at
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import SEQUENCE, TABLE, VIEW, TableEntry
from ccpr_emulator.engine.storage import Storage

Made = tuple[dict[str, pa.DataType], list[tuple[Any, ...]]]  # of a table, its columns and rows
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


def _made(names: str, rows: Iterable[Mapping[str, Any]], numbers: str = "") -> Made:
    """Columns, which are texts but for `numbers`, and rows: what one does not name is NULL."""
    columns = {name: pa.int64() if name in numbers.split() else pa.string() for name in names.split()}
    return columns, [tuple(row.get(name) for name in columns) for row in rows]


def _named(definition: Definition) -> dict[str, Any]:
    return {"TABLE_CATALOG": "def", "TABLE_SCHEMA": definition.database, "TABLE_NAME": definition.name}


def _schemata(storage: Storage, account: str) -> Made:
    names = "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH"
    own = [
        entry.name for entry in storage.databases if entry.account == account and entry.exists_at(storage.clock.last)
    ]
    fixed = {"CATALOG_NAME": "def", "DEFAULT_CHARACTER_SET_NAME": "utf8mb4", "DEFAULT_COLLATION_NAME": "utf8mb4_bin"}
    return _made(names, ({**fixed, "SCHEMA_NAME": name} for name in sorted({*own, *SYSTEM_DATABASES})))


_KINDS = {TABLE: "BASE TABLE", VIEW: "VIEW", SEQUENCE: "SEQUENCE"}


def _tables(storage: Storage, account: str) -> Made:
    names = (
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION ROW_FORMAT TABLE_ROWS AVG_ROW_LENGTH "
        "DATA_LENGTH MAX_DATA_LENGTH INDEX_LENGTH DATA_FREE AUTO_INCREMENT CREATE_TIME UPDATE_TIME CHECK_TIME "
        "TABLE_COLLATION CHECKSUM CREATE_OPTIONS TABLE_COMMENT"
    )
    lengths = "AVG_ROW_LENGTH DATA_LENGTH MAX_DATA_LENGTH INDEX_LENGTH DATA_FREE"
    fixed = {"ENGINE": "Tae", "VERSION": 10, "ROW_FORMAT": "Compressed", "CREATE_OPTIONS": ""}
    fixed |= {"TABLE_COLLATION": "utf8mb4_bin", **dict.fromkeys(lengths.split(), 0)}
    rows = []
    for entry, definition in relations(storage, account):
        rows.append({**_named(definition), **fixed, "TABLE_TYPE": _KINDS[entry.kind]})
        rows[-1]["TABLE_ROWS"] = len(entry.stored.visible(storage.clock.last))
        rows[-1] |= {"CREATE_TIME": _created_at(storage, entry), "TABLE_COMMENT": definition.comment}
        if any(found.auto_increment for found in definition.attributes.values()):
            rows[-1]["AUTO_INCREMENT"] = entry.next_auto
    return _made(names, rows, f"VERSION TABLE_ROWS {lengths} AUTO_INCREMENT CHECKSUM")


def _created_at(storage: Storage, entry: TableEntry) -> str:
    seconds = storage.clock.time(entry.created).physical // 1_000_000_000
    return str(pa.scalar(seconds, pa.timestamp("s")).as_py())


def _columns(storage: Storage, account: str) -> Made:
    names = (
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION COLUMN_DEFAULT IS_NULLABLE DATA_TYPE "
        "CHARACTER_MAXIMUM_LENGTH CHARACTER_OCTET_LENGTH NUMERIC_PRECISION NUMERIC_SCALE DATETIME_PRECISION "
        "CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY EXTRA PRIVILEGES COLUMN_COMMENT "
        "GENERATION_EXPRESSION SRS_ID"
    )
    rows = []
    for _, definition in relations(storage, account):
        for position, column in enumerate(definition.user_columns, 1):
            name, oid, width, scale = column.name, column.type.oid, column.type.width, column.type.scale
            kind, attributes = definition.type_texts[name], definition.attributes_of(name)
            row = {**_named(definition), "COLUMN_NAME": name, "ORDINAL_POSITION": position, "COLUMN_TYPE": kind}
            row |= {"COLUMN_DEFAULT": default_of(definition, name), "IS_NULLABLE": "YES" if column.nullable else "NO"}
            row["DATA_TYPE"] = kind.split("(")[0].split(" ")[0].lower()
            row |= {"COLUMN_KEY": key_of(definition, name), "EXTRA": extra_of(definition, name)}
            row |= {"COLUMN_COMMENT": attributes.comment, "GENERATION_EXPRESSION": attributes.generated}
            row["PRIVILEGES"] = "select,insert,update,references"
            if oid in _TEXT_LENGTHS:
                row |= {"CHARACTER_MAXIMUM_LENGTH": width, "CHARACTER_OCTET_LENGTH": width * 4}
            if oid in types.TEXT_TYPES:
                row |= {"CHARACTER_SET_NAME": "utf8mb4", "COLLATION_NAME": "utf8mb4_bin"}
            if oid in types.MAX_PRECISION:
                row |= {"NUMERIC_PRECISION": width, "NUMERIC_SCALE": scale}
            if oid in (types.TIME, types.DATETIME, types.TIMESTAMP):
                row["DATETIME_PRECISION"] = scale
            rows.append(row)
    numbers = "ORDINAL_POSITION CHARACTER_MAXIMUM_LENGTH CHARACTER_OCTET_LENGTH NUMERIC_PRECISION NUMERIC_SCALE"
    return _made(names, rows, f"{numbers} DATETIME_PRECISION SRS_ID")


def _key_parts(definition: Definition) -> Iterator[tuple[str, bool, int, str]]:
    """(index, unique, position, column) of the primary key and the indexes."""
    for number, name in enumerate(definition.primary_key, 1):
        yield "PRIMARY", True, number, name
    for index in definition.indexes:
        for number, name in enumerate(index.columns, 1):
            yield index.name, index.unique, number, name


def _statistics(storage: Storage, account: str) -> Made:
    names = (
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX COLUMN_NAME COLLATION "
        "CARDINALITY SUB_PART PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT"
    )
    fixed = {"COLLATION": "A", "CARDINALITY": 0, "INDEX_TYPE": "", "COMMENT": "", "INDEX_COMMENT": ""}
    rows = []
    for _, d in relations(storage, account):
        for index, unique, position, column in _key_parts(d):
            rows.append({**_named(d), **fixed, "INDEX_SCHEMA": d.database, "INDEX_NAME": index})
            rows[-1] |= {"NON_UNIQUE": int(not unique), "SEQ_IN_INDEX": position, "COLUMN_NAME": column}
            rows[-1]["NULLABLE"] = "YES" if d.column(column).nullable else ""
    return _made(names, rows, "NON_UNIQUE SEQ_IN_INDEX CARDINALITY SUB_PART")


def _key_column_usage(storage: Storage, account: str) -> Made:
    names = (
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME "
        "ORDINAL_POSITION POSITION_IN_UNIQUE_CONSTRAINT REFERENCED_TABLE_SCHEMA REFERENCED_TABLE_NAME "
        "REFERENCED_COLUMN_NAME"
    )
    rows = (
        {**_constraint(d, index), "COLUMN_NAME": column, "ORDINAL_POSITION": position}
        for _, d in relations(storage, account)
        for index, unique, position, column in _key_parts(d)
        if unique
    )
    return _made(names, rows, "ORDINAL_POSITION POSITION_IN_UNIQUE_CONSTRAINT")


def _constraint(definition: Definition, index: str) -> dict[str, Any]:
    names = {"CONSTRAINT_CATALOG": "def", "CONSTRAINT_SCHEMA": definition.database, "CONSTRAINT_NAME": index}
    return {**_named(definition), **names}


def _table_constraints(storage: Storage, account: str) -> Made:
    names = "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME CONSTRAINT_TYPE ENFORCED"
    rows = (
        {
            **_constraint(d, index),
            "CONSTRAINT_TYPE": "PRIMARY KEY" if index == "PRIMARY" else "UNIQUE",
            "ENFORCED": "YES",
        }
        for _, d in relations(storage, account)
        for index, unique, position, _ in _key_parts(d)
        if unique and position == 1
    )
    return _made(names, rows)


def _views(storage: Storage, account: str) -> Made:
    names = "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION CHECK_OPTION IS_UPDATABLE DEFINER SECURITY_TYPE"
    fixed = {"CHECK_OPTION": "NONE", "IS_UPDATABLE": "NO", "DEFINER": "root@%", "SECURITY_TYPE": "DEFINER"}
    fixed |= {"CHARACTER_SET_CLIENT": "utf8mb4", "COLLATION_CONNECTION": "utf8mb4_bin"}
    views = (d for entry, d in relations(storage, account) if entry.kind == VIEW)
    rows = ({**_named(d), **fixed, "VIEW_DEFINITION": d.query} for d in views)
    return _made(f"{names} CHARACTER_SET_CLIENT COLLATION_CONNECTION", rows)


def _fixed(names: str, *rows: tuple[Any, ...]) -> Callable[[Storage, str], Made]:
    return lambda storage, account: (dict.fromkeys(names.split(), pa.string()), list(rows))


def information(storage: Storage, account: str, name: str) -> list[dict[str, Any]]:
    """The rows of a table of information_schema, by column."""
    with storage.lock:
        columns, rows = _TABLES[name](storage, account)
        return [dict(zip(columns, row, strict=True)) for row in rows]


ENGINES = ("Tae", "DEFAULT", "MatrixOne's storage engine, simulated", "YES", "NO", "NO")
_TABLES: dict[str, Callable[[Storage, str], Made]] = {
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
