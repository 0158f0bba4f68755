"""A point's tables as the answers of an upstream's catalog: what `get_ddl`, `get_mo_indexes` and the catalog tables
of MatrixOne would say, as far as a replicator asks (docs/upstream.md 5 and "Checked on live clusters")."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from ccpr.matrixone.client.catalog_cells import default_cell, encode_type
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.server.answers import BIGINT, VARCHAR, Cell
from ccpr.matrixone.server.backing import INDEX_COLUMNS, CatalogAnswer, CatalogTable, ServedCatalog, internal
from ccpr.matrixone.server.mo_catalog import columns_of
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.relay.errors import IndexTablesMissing, RelayText
from ccpr.relay.served_points import ServedPoint
from ccpr.relay.texts import served_text

DDL: Final = {"dbname": VARCHAR, "tablename": VARCHAR, "tableid": BIGINT, "tablesql": VARCHAR}
MO_DATABASE: Final = columns_of("dat_id datname account_id dat_type")
MO_TABLES: Final = columns_of(
    "rel_id relname reldatabase reldatabase_id relkind rel_comment rel_createsql account_id partitioned rel_logical_id"
)
MO_COLUMNS: Final = columns_of(
    "account_id att_database att_relname_id att_relname attname atttyp attnum attnotnull att_default attisdropped "
    "att_is_hidden attr_seqnum attr_enum"
)
_RELKINDS: Final = {Kind.TABLE: "r", Kind.INDEX: "i", Kind.PARTITION: "partition"}
_ACCOUNT: Final = 0
_log = logging.getLogger(__name__)


def served_catalog(
    state: ServedPoint | None,
    database: str,
    database_id: int,
    *,
    name: str,
    writable: bool,
    replica: bool,
    next_numbers: Mapping[int, int | None] | None = None,
) -> ServedCatalog:
    """The catalog at a point; None for a mirror that has none yet.

    Parameters
    ----------
    database, database_id : how the database is called there, and its number.
    name : of the subscription, for messages.
    writable : without the mark of a replica (`ccpr.relay.texts`).
    replica : with the ids that a MatrixOne is shown (`ServedPoint.replica_id`).
    next_numbers : of AUTO_INCREMENT, by table id, where the texts are to say them.
    """
    tables = [] if state is None else sorted(state.tables.values(), key=lambda table: table.id)
    numbers = next_numbers or {}
    ids = {table.id: state.replica_id(table.id) if replica and state is not None else table.id for table in tables}
    return ServedCatalog(
        databases=CatalogAnswer.of({"datname": VARCHAR}, [(database,)]),
        ddl=CatalogAnswer.of(
            DDL,
            [
                (database, table.name, ids[table.id], _ddl_or_none(table, database, writable, numbers.get(table.id)))
                for table in tables
                if table.kind is not Kind.INDEX
            ],
        ),
        indexes=_Indexes(state, ids, name),
        mo_database=CatalogAnswer.of(MO_DATABASE, [(database_id, database, _ACCOUNT, "")]),
        mo_tables=CatalogAnswer.of(
            MO_TABLES, [_table_row(table, ids[table.id], database, database_id) for table in tables]
        ),
        mo_columns=CatalogAnswer.of(
            MO_COLUMNS, [row for table in tables for row in _column_rows(table, ids[table.id], database)]
        ),
        tables=tuple(
            CatalogTable(
                ids[table.id], table.logical_id, database.encode(), table.name.encode(), _RELKINDS[table.kind].encode()
            )
            for table in tables
        ),
    )


def _table_row(table: Table, number: int, database: str, database_id: int) -> tuple[Cell, ...]:
    names = (number, table.name, database, database_id, _RELKINDS[table.kind], table.comment, table.ddl or None)
    return *names, _ACCOUNT, 0, table.logical_id


def _column_rows(table: Table, number: int, database: str) -> Iterator[tuple[Cell, ...]]:
    for place, column in enumerate(table.columns, 1):
        names = (_ACCOUNT, database, number, table.name, column.name, encode_type(column.type), place)
        flags = (int(not column.nullable), default_cell(column.default_text), 0, int(column.hidden))
        yield *names, *flags, column.seqnum, ",".join(column.labels)


def _ddl_or_none(table: Table, database: str, writable: bool, next_number: int | None) -> str | None:
    """None makes `get_ddl` fail: to leave the table out would drop it at the other end."""
    try:
        return served_text(table, database, writable=writable, next_number=next_number)
    except RelayText as error:
        _log.warning("%s: %s", error.subject, error.message)
        return None


class _Indexes(Mapping[int, CatalogAnswer]):
    """The rows of `get_mo_indexes` by table id. Asking for those of a table whose indexes are not known is an error: a
    MatrixOne would have hidden tables without rows, and answer queries by them."""

    def __init__(self, state: ServedPoint | None, ids: Mapping[int, int], name: str) -> None:
        tables = {} if state is None else state.tables
        self._by_id = {ids[table_id]: table for table_id, table in tables.items() if table.kind is not Kind.INDEX}
        self._name = name

    def __getitem__(self, number: int) -> CatalogAnswer:
        table = self._by_id[number]
        try:
            check_index_tables(table, self._name)
        except IndexTablesMissing as error:
            raise internal(f"{error.message} ({error.subject}). {error.remedy}") from error
        rows = [(number, *row) for row in table.indexes or ()]
        return CatalogAnswer.of({column.name: column.type for column in INDEX_COLUMNS}, rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)


def check_index_tables(table: Table, name: str) -> None:
    """Raises IndexTablesMissing for a table that has indexes by its text, or may have them since that cannot be read,
    if the mirror of subscription `name` does not have their tables."""
    if table.indexes is not None:
        return
    subject = f"table {table.qualified_name}"
    with suppress(DdlUnreadable):
        if not create_table_of(table).indexes:
            return
    if table.partitions:
        raise IndexTablesMissing(
            "it is partitioned and has indexes; a mirror does not have the index tables of partitions",
            subject=subject,
            remedy="Drop its indexes at the source, where the subscription was made with --with-indexes; then "
            f"`ccpr run {name}`.",
        )
    raise IndexTablesMissing(
        "the mirror does not have the tables of its indexes",
        subject=subject,
        remedy=f"If {name} was made with --with-indexes, run it once more: `ccpr run {name}`. If not, make another "
        "subscription with `ccpr subscribe … --with-indexes`.",
    )
