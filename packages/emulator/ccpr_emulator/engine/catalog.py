"""The catalog rows of a simulated upstream at a tick, with the columns and types of recorded catalogs."""

import json
from datetime import UTC, datetime

from ccpr.matrixone.client.catalog_cells import encode_type
from ccpr.matrixone.objects import types
from ccpr.matrixone.protobuf import varint
from ccpr.matrixone.schema import ROWID, Column, SqlType
from ccpr.matrixone.server.answers import BIGINT, VARCHAR, Cell
from ccpr.matrixone.server.backing import INDEX_COLUMNS, CatalogAnswer, CatalogTable, ServedCatalog
from ccpr.matrixone.server.mo_catalog import (
    MO_ROLE,
    MO_ROLE_PRIVS,
    MO_ROLE_RULE,
    MO_USER_DEFINED_FUNCTION,
    columns_of,
)
from ccpr_emulator.engine.databases import SYS
from ccpr_emulator.engine.definitions import Attributes, Definition, create_table
from ccpr_emulator.engine.entries import INDEX, PARTITION, TABLE, VIEW, DatabaseEntry, TableEntry
from ccpr_emulator.engine.storage import Storage

MO_DATABASE = columns_of("dat_id datname dat_catalog_name dat_createsql owner creator created_time account_id dat_type")
MO_TABLES = columns_of(
    "rel_id relname reldatabase reldatabase_id relpersistence relkind rel_comment rel_createsql created_time creator "
    "owner account_id partitioned partition_info viewdef constraint rel_version catalog_version rel_logical_id "
    "extra_info"
)
MO_COLUMNS = columns_of(
    "att_uniq_name account_id att_database_id att_database att_relname_id att_relname attname atttyp attnum att_length "
    "attnotnull atthasdef att_default attisdropped att_constraint_type att_is_unsigned att_is_auto_increment "
    "att_comment att_is_hidden attr_has_update attr_update attr_is_clusterby attr_seqnum attr_enum attr_has_generated "
    "attr_generated"
)
DDL = {"dbname": VARCHAR, "tablename": VARCHAR, "tableid": BIGINT, "tablesql": VARCHAR}
_NULL_DEFAULT = b"\x18\x01"
_PARTITIONED, _INDEX_TABLE, _PARTITION = 1, 2, 4


def catalog_at(storage: Storage, tick: int, account: str | None) -> ServedCatalog:
    """The catalog of an account, or of all, at a tick. The caller holds the storage's lock."""
    databases = [entry for entry in storage.databases if entry.exists_at(tick) and account in (None, entry.account)]
    shown = [
        (entry, entry.definition_at(tick)) for entry in storage.tables if account in (None, entry.database.account)
    ]
    tables = [(entry, definition) for entry, definition in shown if definition is not None]
    database_rows = [_database_row(storage, entry) for entry in databases]
    ddl_rows = [_ddl_row(entry, definition) for entry, definition in tables if entry.kind not in (INDEX, VIEW)]
    table_rows = [_table_row(storage, entry, definition) for entry, definition in tables]
    column_rows = [row for entry, definition in tables for row in _column_rows(storage, entry, definition)]
    return ServedCatalog(
        databases=CatalogAnswer.of({"datname": VARCHAR}, [(entry.name,) for entry in databases]),
        ddl=CatalogAnswer.of(DDL, ddl_rows),
        indexes={entry.id: _index_answer(entry, definition) for entry, definition in tables},
        mo_database=CatalogAnswer.of(MO_DATABASE, database_rows),
        mo_tables=CatalogAnswer.of(MO_TABLES, table_rows),
        mo_columns=CatalogAnswer.of(MO_COLUMNS, column_rows),
        tables=tuple(
            CatalogTable(
                entry.id,
                entry.logical_id,
                definition.database.encode(),
                definition.name.encode(),
                _relkind(entry).encode(),
            )
            for entry, definition in tables
        ),
        own={
            "mo_user_defined_function": CatalogAnswer.of(MO_USER_DEFINED_FUNCTION, storage.functions),
            "mo_role_privs": CatalogAnswer.of(MO_ROLE_PRIVS, storage.role_privileges),
            "mo_role": CatalogAnswer.of(MO_ROLE, storage.roles),
            "mo_role_rule": CatalogAnswer.of(MO_ROLE_RULE, storage.row_rules),
        }
        if account in (None, SYS)
        else {},
    )


def _time(storage: Storage, tick: int) -> str:
    return datetime.fromtimestamp(storage.clock.time(tick).physical // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _database_row(storage: Storage, entry: DatabaseEntry) -> tuple[Cell, ...]:
    created, account = _time(storage, entry.created), storage.accounts[entry.account]
    return entry.id, entry.name, "def", f"create database `{entry.name}`", 0, 1, created, account, entry.kind


def _ddl_row(entry: TableEntry, definition: Definition) -> tuple[Cell, ...]:
    return definition.database, definition.name, entry.id, create_table(definition, published=True)


def _key_name(entry: TableEntry, definition: Definition) -> str:
    """A view has no key column, not even a hidden one."""
    return "" if entry.kind == VIEW else definition.key.name


def _default(column: Column, attributes: Attributes) -> tuple[int, bytes]:
    """`atthasdef` and `att_default`: a message; field 2 is the text, and 3 whether NULL is allowed. (Field 1,
    the expression as a plan, is skipped.)"""
    text = attributes.default.encode()
    written = b"\x12" + varint(len(text)) + text if text else b""
    return int(column.nullable or bool(text)), written + (_NULL_DEFAULT if column.nullable else b"")


def _index_answer(entry: TableEntry, definition: Definition) -> CatalogAnswer:
    """One row for each indexed column; a secondary index has one more for the key that is appended to it."""
    rows: list[tuple[Cell, ...]] = []
    for index in definition.indexes:
        rows += [(entry.id, index.name, "", index.table)] * (len(index.columns) + (not index.unique))
    if entry.kind != INDEX:
        rows += [(entry.id, "PRIMARY", "", "")] * len(definition.primary_key)
    return CatalogAnswer.of({column.name: column.type for column in INDEX_COLUMNS}, rows)


def _table_row(storage: Storage, entry: TableEntry, definition: Definition) -> tuple[Cell, ...]:
    owner = storage.accounts[entry.database.account]
    names = (
        entry.id,
        definition.name,
        definition.database,
        entry.database.id,
        "",
        _relkind(entry),
        definition.comment,
        definition.create_sql,
    )
    view = (
        json.dumps({"Stmt": definition.create_sql, "DefaultDatabase": definition.database}) if definition.query else ""
    )
    return (
        *names,
        _time(storage, entry.created),
        1,
        0,
        owner,
        int(definition.partitioning is not None),
        "",
        view,
        "",
        definition.version,
        1,
        entry.logical_id,
        _extra(entry, definition),
    )


def _extra(entry: TableEntry, definition: Definition) -> bytes:
    """`extra_info`: field 12 says what kind of table it is, 14 whose hidden table."""
    features = _INDEX_TABLE if entry.kind == INDEX else _PARTITION if entry.kind == PARTITION else 0
    if definition.partitioning is not None:
        return b"\x60" + varint(_PARTITIONED)
    if entry.parent is None:
        return b""
    return b"\x60" + varint(features) + b"\x70" + varint(entry.parent.id)


def _relkind(entry: TableEntry) -> str:
    """A partition that was truncated looks like an ordinary table."""
    return TABLE if entry.kind == PARTITION and entry.parent is None else entry.kind


def _column_rows(storage: Storage, entry: TableEntry, definition: Definition) -> list[tuple[Cell, ...]]:
    last = max((column.seqnum for column in definition.columns), default=-1) + 1
    columns = (*definition.columns, Column(ROWID, last, SqlType(types.ROWID), hidden=True, nullable=False))
    rows: list[tuple[Cell, ...]] = []
    for number, column in enumerate(columns, 1):
        owner = (
            f"{entry.id}-{column.name}",
            storage.accounts[entry.database.account],
            entry.database.id,
            definition.database,
        )
        table = (entry.id, definition.name, column.name, encode_type(column.type), number, 20)
        attributes = definition.attributes_of(column.name)
        default = (int(not column.nullable), *_default(column, attributes), 0)
        constraint = "" if column.name == ROWID else "p" if column.name == _key_name(entry, definition) else "n"
        is_cluster = int(bool(definition.cluster_by) and column == definition.sort_key)
        is_fake = int(column.hidden and constraint == "p" and not definition.primary_key)
        counts = int(bool(is_fake) or attributes.auto_increment)
        update = attributes.on_update
        flags = (constraint, 0, counts, attributes.comment, int(column.hidden), int(bool(update)), update, is_cluster)
        generated = (int(bool(attributes.generated)), attributes.generated)
        rows.append((*owner, *table, *default, *flags, column.seqnum, ",".join(column.labels), *generated))
    return rows
