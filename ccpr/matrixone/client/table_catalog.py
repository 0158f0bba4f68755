"""The upstream's catalog at a snapshot: tables, columns, types, ids.

Source: docs/upstream.md 5.4, 5.5 and "Checked on live clusters" (account sys reads any account's catalog with
`{mo_ts = …}`); docs/format/object-file.md 3.1.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.catalog_cells import (
    creates_ordinary_table,
    ddl_from_created,
    decode_type,
    default_text,
    has_temporary_name,
)
from ccpr.matrixone.client.endpoint import EVERYTHING, Publication
from ccpr.matrixone.client.errors import (
    BadAnswer,
    BadCatalog,
    DatabaseMissing,
    StatementFailed,
    TableMissing,
    UnsupportedTable,
)
from ccpr.matrixone.client.table_partitions import Owners, with_partitions
from ccpr.matrixone.client.upstream_session import Answer, Row, Session, integer, text
from ccpr.matrixone.ddl.definition import enum_members
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import TEXT_TYPES
from ccpr.matrixone.schema import INDEX_TABLE_PREFIX, ROWID, Column, Kind, SqlType, Table

_INDEX_KINDS = frozenset({"i", "fulltext", "metadata", "centroids", "entries", "hnsw_meta", "hnsw_storage"})
_ENUM, _SET = 66, 28
_WITH_DDL = (Kind.TABLE, Kind.PARTITION)
TEMPORARY = "temporary"  # in the place of a relkind
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """One database at one snapshot; or several, see `joined_catalogs`.

    Attributes
    ----------
    database, database_id : name and number (`dat_id`).
    at : the snapshot's timestamp.
    tables : every relation, in order of id: ordinary tables, index tables, partitions and, as kind OTHER, relations
        that are not replicated, and the index tables of partitions.
    partitioned : names of the partitioned tables (of kind TABLE, without rows of their own). The upstream cannot list
        the objects of a database that has one.
    unlisted : by id, why the objects of a table cannot be listed, in a database with a partitioned one.
    unreplicated : name and relkind of every relation of kind OTHER: v view, S sequence, e external, cluster, and
        unknown ones; `temporary` for the temporary tables of sessions and their index tables.
    """

    database: str
    database_id: int
    at: Timestamp
    tables: tuple[Table, ...]
    partitioned: tuple[str, ...] = ()
    unreplicated: tuple[tuple[str, str], ...] = ()
    unlisted: Mapping[int, str] = field(default_factory=dict)


def read_catalog(
    session: Session, publication: Publication, database: str, snapshot_name: str, at: Timestamp
) -> TableCatalog:
    """The database at the snapshot, whose timestamp is `at`. Raises DatabaseMissing, SnapshotGone, BadCatalog."""
    owner = publication.publisher_id
    database_rows = session.read(upstream_sql.select_databases(owner, database, at.physical))
    table_rows = session.read(upstream_sql.select_tables(owner, database, at.physical))
    column_rows = session.read(upstream_sql.select_columns(owner, database, at.physical))
    ddl_rows = _read_ddl(session, publication, database, snapshot_name, table_rows)
    created_rows = None
    if _has_temporary_names(table_rows, database) or _lacks_ddl(table_rows, ddl_rows):
        created_rows = session.read(upstream_sql.select_created(owner, database, at.physical))
    catalog = tables_from_rows(database_rows, table_rows, column_rows, ddl_rows, created_rows, at=at)
    if not catalog.partitioned:
        return catalog
    owners = _read_owners(session, publication, database, at)
    tables, unknown = with_partitions(catalog.tables, catalog.partitioned, owners)
    names = {table.id: table.name for table in tables}
    unlisted = {
        table.id: "the upstream takes no snapshot of a single table with capital letters or one of ' \\ . in its name"
        for table in tables
        if not publication.is_own
        and not all(_has_snapshots(name) for name in (table.name, *(names[part.id] for part in table.partitions)))
    }
    return replace(catalog, tables=tables, unlisted=unlisted | unknown)


def _has_snapshots(table: str) -> bool:
    """Whether the upstream takes snapshots of this table alone (docs/upstream.md 4.1)."""
    return table == table.lower() and not set(table) & set("'\\.")


def _read_owners(session: Session, publication: Publication, database: str, at: Timestamp) -> Owners:
    """Whose partitions and index tables the database's tables are; nothing where the server does not say it."""
    try:
        answer = session.read(upstream_sql.select_extra(publication.publisher_id, database, at.physical))
    except StatementFailed as error:
        _log.info("only the names of the partitions of %s show their table: %s", database, error.text)
        return Owners()
    rows = answer.select(*upstream_sql.EXTRA_COLUMNS)
    return Owners.of((integer(number, "rel_id"), message or b"") for number, message in rows)


def table_ids(session: Session, publication: Publication, database: str, at: Timestamp | None = None) -> dict[str, int]:
    """The ids of everything in the database, at a time or now, that has one, by name: tables, index tables, views,
    sequences. Raises BadAnswer, SnapshotGone."""
    physical = None if at is None else at.physical
    answer = session.read(upstream_sql.select_tables(publication.publisher_id, database, physical))
    return {text(name, "relname"): integer(number, "rel_id") for name, number in answer.select("relname", "rel_id")}


def present_tables(session: Session, publication: Publication, database: str) -> list[Table]:
    """What has columns in the database at present, without texts. Raises BadCatalog, BadAnswer."""
    owner = publication.publisher_id
    tables, columns = (ask(owner, database) for ask in (upstream_sql.select_tables, upstream_sql.select_columns))
    found = _tables(session.read(tables), _columns_by_id(session.read(columns), {}), {}, ())
    return [table for table, _, _ in found]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What changes whenever the definition of a table does."""

    id: int
    name: str
    version: int
    is_partitioned: bool


def table_versions(session: Session, publication: Publication, database: str, at: Timestamp) -> list[TableVersion]:
    """Of everything in the database at a time, as `table_ids`."""
    answer = session.read(upstream_sql.select_versions(publication.publisher_id, database, at.physical))
    return [
        TableVersion(
            integer(number, "rel_id"),
            text(name, "relname"),
            integer(version, "rel_version"),
            _flag(partitioned, f"partitioned of {name!r}"),
        )
        for number, name, version, partitioned in answer.select(*upstream_sql.VERSION_COLUMNS)
    ]


def joined_catalogs(catalogs: Iterable[TableCatalog], at: Timestamp) -> TableCatalog:
    """The catalogs of several databases at a time as one, in which what is not a table has its full name."""
    found = list(catalogs)

    def named(pairs: Iterable[tuple[str, str]], database: str) -> list[tuple[str, str]]:
        return [(f"{database}.{name}", kind) for name, kind in pairs]

    return TableCatalog(
        database=EVERYTHING,
        database_id=0,
        at=at,
        tables=tuple(sorted((table for one in found for table in one.tables), key=lambda table: table.id)),
        partitioned=tuple(f"{one.database}.{name}" for one in found for name in one.partitioned),
        unreplicated=tuple(pair for one in found for pair in named(one.unreplicated, one.database)),
        unlisted={number: reason for one in found for number, reason in one.unlisted.items()},
    )


def temporary_tables(session: Session, publication: Publication, database: str, table_rows: Answer) -> frozenset[int]:
    """The ids of temporary tables and their index tables among the database's rows of `mo_tables` of the present."""
    if not _has_temporary_names(table_rows, database):
        return frozenset()
    created = session.read(upstream_sql.select_created(publication.publisher_id, database))
    return _temporary(table_rows, database, _texts_by_id(created, *upstream_sql.CREATED_COLUMNS))


def index_tables(session: Session, publication: Publication, table_id: int, snapshot_name: str) -> tuple[str, ...]:
    """Names of the hidden tables of a table's indexes, sorted. Call it soon after the snapshot, which does not protect
    their history."""
    rows = index_rows(session, publication, table_id, snapshot_name)
    return tuple(sorted({table for _, _, table in rows} - {""}))


def index_rows(
    session: Session, publication: Publication, table_id: int, snapshot_name: str
) -> tuple[tuple[str, str, str], ...]:
    """A table's indexes as `ccpr.matrixone.schema.Table.indexes` has them. Call it soon after the snapshot."""
    answer = session.read(upstream_sql.indexes(table_id, publication.publisher, publication.name, snapshot_name))
    names = ("name", "algo_table_type", "index_table_name")
    rows = [
        tuple(text(cell or b"", name) for cell, name in zip(row, names, strict=True)) for row in answer.select(*names)
    ]
    return tuple((name, kind, table) for name, kind, table in rows)


def tables_from_rows(
    database_rows: Answer,
    table_rows: Answer,
    column_rows: Answer,
    ddl_rows: Answer | None,
    created_rows: Answer | None = None,
    *,
    at: Timestamp,
) -> TableCatalog:
    """The catalog from rows of mo_database, mo_tables, mo_columns, get_ddl and, where a table has a temporary one's
    name or no DDL text, `select_created`. Columns are found by name; additional ones are ignored."""
    database_id, database = only_database(database_rows, at)
    ddl = _texts_by_id(ddl_rows, "tableid", "tablesql")
    created = _texts_by_id(created_rows, *upstream_sql.CREATED_COLUMNS)
    columns = _columns_by_id(column_rows, {**created, **ddl})
    temporary = _temporary(table_rows, database, created)
    tables, partitioned, unreplicated = [], [], []
    for found_table, relkind, is_partitioned in _tables(table_rows, columns, ddl, temporary):
        table = found_table
        if not table.ddl and table.kind in _WITH_DDL and table.id in created:
            table = replace(table, ddl=ddl_from_created(table, created[table.id]))
        tables.append(table)
        if is_partitioned:
            partitioned.append(table.name)
        if table.kind is Kind.OTHER:
            unreplicated.append((table.name, relkind))
    tables.sort(key=lambda table: table.id)
    return TableCatalog(
        database=database,
        database_id=database_id,
        at=at,
        tables=tuple(tables),
        partitioned=tuple(sorted(partitioned)),
        unreplicated=tuple(sorted(unreplicated)),
    )


def only_database(rows: Answer, at: Timestamp) -> tuple[int, str]:
    """Number and name of the database that the rows of mo_database are about. Raises DatabaseMissing, BadCatalog."""
    found = list(rows.select("dat_id", "datname"))
    if not found:
        raise DatabaseMissing("the database does not exist at this snapshot", subject=f"snapshot at {at}")
    if len(found) > 1:
        raise BadCatalog(f"the database has {len(found)} rows in mo_database", subject=f"snapshot at {at}")
    return integer(found[0][0], "dat_id"), text(found[0][1], "datname")


def labels_of(type_: SqlType, stored: str, declared: tuple[str, ...]) -> tuple[str, ...]:
    """The members of an enum or set column; empty for every other column.

    `stored` is `attr_enum`, the members joined by commas, which is ambiguous if a member contains one. `declared`, the
    members in the DDL text, is used if it gives the same text; otherwise `stored`, which the server itself reads.
    """
    if type_.oid not in (_ENUM, _SET):
        return ()
    return declared if not stored or ",".join(declared) == stored else tuple(stored.split(","))


def kind_of(name: str, relkind: str) -> Kind:
    """The kind of a row of `mo_tables` that is not a temporary table's."""
    if name.startswith(INDEX_TABLE_PREFIX) or relkind in _INDEX_KINDS:
        return Kind.INDEX
    if relkind == "partition":
        return Kind.PARTITION
    return Kind.TABLE if relkind == "r" else Kind.OTHER


def _has_temporary_names(rows: Answer, database: str) -> bool:
    return any(has_temporary_name(text(name, "relname"), database) for (name,) in rows.select("relname"))


def _temporary(rows: Answer, database: str, created: Mapping[int, str]) -> frozenset[int]:
    """Ids of the temporary tables of all sessions, which are in the catalog like others: by their name, unless an
    ordinary CREATE TABLE made a table of such a name. A hidden index table is named so only if its table is temporary.
    """
    found = set()
    for rel_id, relname, relkind in rows.select("rel_id", "relname", "relkind"):
        name = text(relname, "relname")
        if has_temporary_name(name, database):
            number, kind = integer(rel_id, f"rel_id of table {name}"), kind_of(name, text(relkind, "relkind"))
            if kind is Kind.INDEX or not creates_ordinary_table(created.get(number, "")):
                found.add(number)
    return frozenset(found)


def _lacks_ddl(rows: Answer, ddl_rows: Answer | None) -> bool:
    known = set() if ddl_rows is None else {integer(number, "tableid") for (number,) in ddl_rows.select("tableid")}
    return any(
        kind_of(text(name, "relname"), text(relkind, "relkind")) in _WITH_DDL and integer(number, "rel_id") not in known
        for number, name, relkind in rows.select("rel_id", "relname", "relkind")
    )


def _tables(
    rows: Answer, columns: Mapping[int, tuple[Column, ...]], ddl: Mapping[int, str], temporary: Collection[int]
) -> list[tuple[Table, str, bool]]:
    """Each table with its relkind, or `temporary`, and whether it is partitioned."""
    names = ("rel_id", "relname", "reldatabase", "relkind", "rel_comment", "partitioned", "rel_logical_id")
    tables = []
    for rel_id, relname, reldatabase, relkind, comment, partitioned, logical_id in rows.select(*names):
        name, relation = text(relname, "relname"), text(relkind, "relkind")
        what = f"table {name}"
        number = integer(rel_id, f"rel_id of {what}")
        kind = kind_of(name, relation)
        if number in temporary:
            kind, relation = Kind.OTHER, TEMPORARY
        if kind is not Kind.OTHER and not columns.get(number):
            raise BadCatalog("the table has no columns in mo_columns", subject=what)
        table = Table(
            id=number,
            logical_id=integer(logical_id, f"rel_logical_id of {what}"),
            database=text(reldatabase, "reldatabase"),
            name=name,
            kind=kind,
            columns=columns.get(number, ()),
            ddl=ddl.get(number, ""),
            comment=text(comment, f"comment of {what}"),
        )
        tables.append((table, relation, _flag(partitioned, f"partitioned of {what}")))
    return tables


def _columns_by_id(rows: Answer, ddl: Mapping[int, str]) -> dict[int, tuple[Column, ...]]:
    """Table id -> its stored columns: the user's in declared order, then hidden ones; without the row id, which is
    computed."""
    names = (name for name in upstream_sql.COLUMN_COLUMNS if name != "att_relname")
    declared: dict[int, dict[str, tuple[str, ...]]] = {}
    found: dict[int, list[tuple[bool, int, Column]]] = defaultdict(list)
    for rel_id, attname, atttyp, attnum, not_null, dropped, is_hidden, seqnum, stored, default in rows.select(*names):
        name = text(attname, "attname")
        table_id = integer(rel_id, f"att_relname_id of column {name}")
        what = f"column {name} of table {table_id}"
        if name == ROWID or _flag(dropped, f"attisdropped of {what}"):
            continue
        type_ = decode_type(atttyp, what)
        stored_labels = text(stored, f"attr_enum of {what}")
        if (stored_labels or type_.oid == _ENUM) and table_id not in declared:
            declared[table_id] = enum_members(ddl.get(table_id, ""))
        hidden = _flag(is_hidden, f"att_is_hidden of {what}")
        column = Column(
            name=name,
            seqnum=integer(seqnum, f"attr_seqnum of {what}"),
            type=type_,
            hidden=hidden,
            labels=labels_of(type_, stored_labels, declared.get(table_id, {}).get(name, ())),
            nullable=not _flag(not_null, f"attnotnull of {what}"),
            default_text=default_text(default) if type_.oid in TEXT_TYPES else None,
        )
        found[table_id].append((hidden, integer(attnum, f"attnum of {what}"), column))
    return {
        table_id: tuple(column for _, _, column in sorted(columns, key=lambda entry: entry[:2]))
        for table_id, columns in found.items()
    }


def _flag(cell: bytes | None, what: str) -> bool:
    if cell in (b"0", b"false", b""):
        return False
    if cell in (b"1", b"true"):
        return True
    raise BadCatalog(f"{what} is neither 0 nor 1", subject=what)


def _texts_by_id(rows: Answer | None, *names: str) -> dict[int, str]:
    """From the columns of these names, the id's and the text's."""
    found = () if rows is None else rows.select(*names)
    return {integer(number, names[0]): _ddl_text(cell) for number, cell in found}


def _ddl_text(cell: bytes | None) -> str:
    """The DDL text, or nothing if it is not UTF-8: objects are replicated without it, and a target that needs it
    reports that table only."""
    try:
        return text(cell, "tablesql")
    except BadAnswer as error:
        _log.warning("a CREATE TABLE text is skipped: %s", error.message)
        return ""


def _read_ddl(
    session: Session, publication: Publication, database: str, snapshot: str, table_rows: Answer
) -> Answer | None:
    """The CREATE statements of all tables. If the database has an external or cluster table, or one that the server
    cannot print, the whole request fails. Then the tables are read one by one, and a table whose statement cannot be
    read has no DDL text.

    A name with a blank or a quote cannot be part of an internal command: for such a database all databases of the
    account are read, and if that fails no table has an answer here; likewise such a table in the reading one by one.
    Their text is derived from the statement that created them, where that is possible (`ddl_from_created`). Types and
    columns come from the catalog in any case.
    """
    if publication.is_own:
        return _read_own_ddl(session, database, snapshot, table_rows)
    passable = upstream_sql.can_be_word(database)
    ask = (snapshot, publication.publisher, publication.name)
    try:
        return session.read(upstream_sql.ddl(*ask, database if passable else None, None))
    except (UnsupportedTable, StatementFailed) as error:
        _log.info("the DDL of %s is read table by table: %s", database, error.text)
    if not passable:
        return None
    answers = []
    for name, _ in _with_ddl(table_rows):
        if not upstream_sql.can_be_table_word(name):
            continue
        try:
            answers.append(session.read(upstream_sql.ddl(*ask, database, name)))
        except (UnsupportedTable, TableMissing, StatementFailed) as error:
            _log.info("table %s has no DDL text: %s", name, error.text)
    if not answers:
        return None
    return Answer(answers[0].columns, answers[0].types, [row for answer in answers for row in answer.rows])


def _with_ddl(table_rows: Answer) -> list[tuple[str, bytes | None]]:
    """Name and id of what has a CREATE TABLE statement."""
    rows = table_rows.select("relname", "relkind", "rel_id")
    named = [(text(name, "relname"), text(kind, "relkind"), number) for name, kind, number in rows]
    return [(name, number) for name, kind, number in named if kind_of(name, kind) in _WITH_DDL]


def _read_own_ddl(session: Session, database: str, snapshot: str, table_rows: Answer) -> Answer:
    """As `_read_ddl`, of a database of the login's own account, table by table."""
    rows: list[Row] = []
    for name, number in _with_ddl(table_rows):
        try:
            shown = session.read(upstream_sql.show_create_table(database, name, snapshot))
            rows += [(number, shown_text) for (shown_text,) in shown.select("Create Table")]
        except (UnsupportedTable, TableMissing, StatementFailed) as error:
            _log.info("table %s has no DDL text: %s", name, error.text)
    return Answer(("tableid", "tablesql"), (), rows)
