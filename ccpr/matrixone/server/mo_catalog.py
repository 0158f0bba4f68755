"""`mo_catalog`: databases, tables and columns as the backing has them, and the few tables that follow from them.

Without `{mo_ts = …}` a statement sees the present. For a recording that is the state of the newest snapshot that was
taken, or of the first one if none was taken yet.
"""

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from ccpr.matrixone.server.answers import (
    BIGINT,
    BLOB_TEXT,
    INT,
    SMALL,
    STRING,
    TIMESTAMP,
    TINY,
    VAR_STRING,
    VARCHAR,
    Cell,
    ResultColumn,
    ResultSet,
    StatementError,
    text_of_cell,
)
from ccpr.matrixone.server.backing import CatalogAnswer, Login, ServedCatalog, internal
from ccpr.matrixone.server.like import Like
from ccpr.matrixone.server.statements import Condition, Select
from ccpr.matrixone.server.tokens import Literal_
from ccpr.matrixone.server.upstream import Upstream

UTF8: Final = 33
BINARY: Final = 63
CREATED: Final = "2026-01-01 00:00:00"
# The types of the columns that are no VAR_STRING: a name has one type in all tables.
_TYPES: Final = {
    **dict.fromkeys(("all_table", "attisdropped", "att_is_auto_increment", "att_is_hidden", "att_is_unsigned"), TINY),
    **dict.fromkeys(("atthasdef", "attnotnull", "attr_has_generated", "attr_has_update", "attr_is_clusterby"), TINY),
    **dict.fromkeys(("partitioned", "with_grant_option"), TINY),
    "attr_seqnum": SMALL,
    **dict.fromkeys(("account_id", "att_length", "attnum", "catalog_version", "creator", "function_id"), INT),
    **dict.fromkeys(("operation_user_id", "owner", "privilege_id", "rel_version", "role_id"), INT),
    **dict.fromkeys(("att_database_id", "att_relname_id", "dat_id", "database_id", "obj_id", "rel_id"), BIGINT),
    **dict.fromkeys(("rel_logical_id", "reldatabase_id", "ts"), BIGINT),
    **dict.fromkeys(("created_time", "granted_time", "update_time"), TIMESTAMP),
    **dict.fromkeys(("account_list", "args", "body", "comment", "comments", "partition_info"), BLOB_TEXT),
    **dict.fromkeys(("rel_createsql", "rule", "table_list"), BLOB_TEXT),
    **dict.fromkeys(("att_constraint_type", "level"), STRING),
}


def columns_of(names: str) -> dict[str, int]:
    """Columns of `mo_catalog` with their types, in this order."""
    return {name: _TYPES.get(name, VAR_STRING) for name in names.split()}


MO_ACCOUNT: Final = columns_of("account_id account_name")
MO_PUBS: Final = columns_of(
    "account_id account_name pub_name database_name database_id all_table table_list account_list created_time "
    "update_time owner creator comment"
)
MO_SNAPSHOTS: Final = columns_of("snapshot_id sname ts level account_name database_name table_name obj_id kind")
MO_USER_DEFINED_FUNCTION: Final = columns_of("function_id name owner args rettype body language db definer")
MO_ROLE_PRIVS: Final = columns_of(
    "role_id role_name obj_type obj_id privilege_id privilege_name privilege_level operation_user_id granted_time "
    "with_grant_option"
)
MO_ROLE: Final = columns_of("role_id role_name creator owner created_time comments")
MO_ROLE_RULE: Final = columns_of("role_id rule_name rule")
_DATABASES: Final = {"mo_database": "datname", "mo_tables": "reldatabase", "mo_columns": "att_database"}
# What every catalog has, at every time: the database of the catalog, in account sys, and its first tables.
_SYSTEM_DATABASE: Final[Mapping[str, Cell]] = {
    "dat_id": 1,
    "datname": b"mo_catalog",
    "dat_catalog_name": b"def",
    "dat_createsql": b"create database mo_catalog",
    "owner": 0,
    "creator": 0,
    "created_time": CREATED.encode(),
    "account_id": 0,
    "dat_type": b"",
}
_SYSTEM_TABLE: Final[Mapping[str, Cell]] = {
    "reldatabase": b"mo_catalog",
    "reldatabase_id": 1,
    "relpersistence": b"true",
    "relkind": b"r",
    "rel_comment": b"",
    "rel_createsql": b"",
    "created_time": CREATED.encode(),
    "creator": 0,
    "owner": 0,
    "account_id": 0,
    "partitioned": 0,
    "partition_info": b"",
    "viewdef": b"",
    "constraint": b"",
    "rel_version": 0,
    "catalog_version": 1,
    "extra_info": b"",
}
_SYSTEM: Final[Mapping[str, Sequence[Mapping[str, Cell]]]] = {
    "mo_database": (_SYSTEM_DATABASE,),
    "mo_tables": tuple(
        {**_SYSTEM_TABLE, "rel_id": number, "rel_logical_id": number, "relname": name}
        for number, name in enumerate((b"mo_database", b"mo_tables", b"mo_columns"), 1)
    ),
}
_OWN: Final = {
    "mo_user_defined_function": MO_USER_DEFINED_FUNCTION,
    "mo_role_privs": MO_ROLE_PRIVS,
    "mo_role": MO_ROLE,
    "mo_role_rule": MO_ROLE_RULE,
}
TABLES: Final = ("mo_database", "mo_tables", "mo_columns", "mo_account", "mo_pubs", "mo_snapshots", *_OWN)


def select(upstream: Upstream, login: Login, current_database: str, statement: Select) -> ResultSet:
    """The answer to a SELECT. Raises 1146 for a table that is not served, 20301 for a column that does not exist."""
    database = statement.database or current_database.lower()
    if database != "mo_catalog" or statement.table not in TABLES:
        raise StatementError(
            1146,
            f"no such table {database}.{statement.table}: the {upstream.name} serves these of mo_catalog: "
            f"{', '.join(TABLES)}",
            "42S02",
        )
    return chosen(rows_of(upstream, login, statement), statement)


def chosen(answer: CatalogAnswer, statement: Select) -> ResultSet:
    """What a SELECT chooses of the rows of its table."""
    rows = list(answer.rows)
    for one in statement.conditions:  # one after another: most statements have one that leaves few rows
        place, holds = _position(answer, one.column), _test_of(one)
        rows = [row for row in rows if holds(row[place])]
    for column, descending in reversed(statement.order):
        position = _position(answer, column)
        rows.sort(key=lambda row, at=position: _order_key(row[at]), reverse=descending)
    rows = rows[statement.offset :][: statement.limit]
    if statement.checksum:
        places = [_position(answer, column) for column in statement.checksum]
        (_, number), (_, checksum) = statement.columns
        columns = ResultColumn(number, BIGINT, BINARY), ResultColumn(checksum, VARCHAR, BINARY)
        return ResultSet(columns, ((len(rows), checksum_of(rows, places)),))
    if statement.count:
        return ResultSet((ResultColumn(statement.columns[0][1], BIGINT, BINARY),), ((len(rows),),))
    wanted = statement.columns or tuple((name, name) for name in answer.columns)
    places = [_position(answer, column) for column, _ in wanted]
    columns = tuple(_column(shown, answer.types[place]) for place, (_, shown) in zip(places, wanted, strict=True))
    return ResultSet(columns, [tuple(row[place] for place in places) for row in rows])


def checksum_of(rows: Iterable[Sequence[Cell]], places: Sequence[int]) -> bytes:
    """The XOR of an MD5 of each row: of the cells at these places, each after its length, which is -1 for NULL. Of no
    rows 16 zero bytes."""
    found = 0
    for row in rows:
        cells = [_bytes(cell) if cell is not None else None for cell in map(row.__getitem__, places)]
        text = b",".join(b"-1" if cell is None else b"%d,%b" % (len(cell), cell) for cell in cells)
        found ^= int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest())
    return found.to_bytes(16)


def _column(name: str, kind: int) -> ResultColumn:
    return ResultColumn(name, kind, UTF8 if kind in (BLOB_TEXT, VAR_STRING, STRING) else BINARY)


def _position(answer: CatalogAnswer, column: str) -> int:
    if column not in answer.columns:
        raise StatementError(20301, f"invalid input: column {column} does not exist")
    return answer.position(column)


def rows_of(upstream: Upstream, login: Login, statement: Select) -> CatalogAnswer:
    """The rows of a table of `TABLES` that a login sees at the statement's time."""
    if statement.table == "mo_pubs":
        return _mo_pubs(upstream, login, statement)
    if statement.table == "mo_account":
        return _mo_account(upstream, login)
    if statement.table == "mo_snapshots":
        return _mo_snapshots(upstream, login)
    catalog = _catalog(upstream, login, statement)
    if catalog is None:
        return replace(_named(upstream.backing.catalog(login.account), statement.table), rows=())  # its columns
    _refuse_missing(catalog, statement)
    return _named(catalog, statement.table)


def _refuse_missing(catalog: ServedCatalog, statement: Select) -> None:
    """Raises if the statement is about a database that is missing: its conditions on the database's name admit it. One
    without such a condition is about what is there; but not one about a time, for it replicates what it reads."""
    tests = [_test_of(one) for one in statement.conditions if one.column == _DATABASES.get(statement.table)]
    if statement.table in _DATABASES and (tests or statement.mo_ts is not None):
        for name, why in catalog.missing.items():
            if all(holds(name.encode()) for holds in tests):
                raise internal(why)


def _named(catalog: ServedCatalog, table: str) -> CatalogAnswer:
    if table in _OWN:
        return catalog.own.get(table) or CatalogAnswer.of(_OWN[table], ())
    answer = {"mo_database": catalog.mo_database, "mo_tables": catalog.mo_tables, "mo_columns": catalog.mo_columns}
    return _with_system(answer[table], _SYSTEM.get(table, ()))


def _with_system(answer: CatalogAnswer, own: Sequence[Mapping[str, Cell]]) -> CatalogAnswer:
    """With the rows that every catalog has, which recordings and engines lack."""
    rows = tuple(tuple(row.get(column) for column in answer.columns) for row in own)
    return replace(answer, rows=(*rows, *answer.rows))


def _catalog(upstream: Upstream, login: Login, statement: Select) -> ServedCatalog | None:
    """The rows that a login sees: an account its own, sys all. None for a time at which there is nothing."""
    backing = upstream.backing
    if statement.snapshot is None:
        return backing.catalog_at(None if login.is_sys else login.account, statement.mo_ts)
    if not backing.owns_data(login.account):
        raise internal(f"find 0 snapshot records by name({statement.snapshot}), expect only 1")
    found = backing.find_snapshot(login.account, statement.snapshot.lower())
    return backing.catalog(login.account, found)


def _mo_account(upstream: Upstream, login: Login) -> CatalogAnswer:
    if not login.is_sys:
        raise internal("do not have privilege to execute the statement")
    return CatalogAnswer.of(MO_ACCOUNT, sorted((number, name) for name, number in upstream.backing.accounts().items()))


def _mo_pubs(upstream: Upstream, login: Login, statement: Select) -> CatalogAnswer:
    if not login.is_sys:
        raise internal("do not have privilege to execute the statement")
    asked = [
        v
        for c in statement.conditions
        if c.column == "pub_name" and c.test in ("=", "in")
        for v in c.values
        if isinstance(v, str)
    ]
    accounts, catalog_of = upstream.backing.accounts(), cache(upstream.backing.catalog)
    rows: list[tuple[Cell, ...]] = []
    for publisher, publication in upstream.backing.publications(asked):
        database_id = 0 if publication.database == "*" else catalog_of(publisher).database_id(publication.database)
        tables = ",".join(publication.tables) if publication.tables else "*"
        rest = (int(not publication.tables), tables, ",".join(publication.accounts), CREATED, None, 0, 0, "")
        rows.append((accounts[publisher], publisher, publication.name, publication.database, database_id, *rest))
    return CatalogAnswer.of(MO_PUBS, rows)


def _mo_snapshots(upstream: Upstream, login: Login) -> CatalogAnswer:
    """Each account has its own table, and a publication's snapshots are in that of the publisher (docs/upstream.md
    4.3): other logins see none."""
    rows: list[tuple[Cell, ...]] = []
    for snapshot in upstream.backing.snapshots(login.account):
        object_id: Cell = snapshot.object_id
        if object_id is None:
            catalog = upstream.backing.catalog(login.account, snapshot)
            table = catalog.table(snapshot.database, snapshot.table)
            if table is None:
                object_id = upstream.backing.catalog(login.account).database_id(snapshot.database)
            else:
                object_id = table.logical_id
        unique = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{snapshot.name} {snapshot.ts}"))
        owner = login.account
        if snapshot.level == "account" and login.is_sys:  # sys may take snapshots of other accounts
            owner = next((name for name, id_ in upstream.backing.accounts().items() if id_ == object_id), owner)
        names = (owner, snapshot.database, snapshot.table)
        rows.append((unique, snapshot.name, snapshot.ts, snapshot.level, *names, object_id, "user"))
    return CatalogAnswer.of(MO_SNAPSHOTS, rows)


def _test_of(condition: Condition) -> Callable[[Cell], bool]:
    """Whether a cell satisfies a condition; NULL satisfies only `is null`. Numbers are compared with the number in a
    text, texts byte by byte."""
    test, values = condition.test, condition.values
    if test == "is null":
        return lambda cell: cell is None
    if test == "is not null":
        return lambda cell: cell is not None
    if test in ("like", "not like"):
        like = Like(str(values[0]))
        return lambda cell: cell is not None and like.matches(text_of_cell(cell)) == (test == "like")
    if test in ("=", "in"):
        among = _among(values)
        return lambda cell: cell is not None and among(cell)
    if None in values:
        return lambda cell: False
    if test in ("!=", "not in"):
        among = _among(values)
        return lambda cell: cell is not None and not among(cell)
    orders: dict[str, Callable[[int], bool]] = {
        "<": lambda order: order < 0,
        "<=": lambda order: order <= 0,
        ">": lambda order: order > 0,
        ">=": lambda order: order >= 0,
    }
    fits = orders[test]
    return lambda cell: cell is not None and fits(_compare(cell, values[0]))


def _among(values: Sequence[Literal_]) -> Callable[[Cell], bool]:
    """Whether a cell is equal to one of these, however many they are."""
    known = [value for value in values if value is not None]
    numbers = {int(str(value)) for value in known if _is_number(value)}
    texts = {_bytes(value) for value in known}
    no_numbers = {_bytes(value) for value in known if not _is_number(value)}

    def among(cell: Cell) -> bool:
        if isinstance(cell, int):
            return cell in numbers or (bool(no_numbers) and _bytes(cell) in no_numbers)
        return (cell if isinstance(cell, bytes) else _bytes(cell)) in texts

    return among


def _is_number(value: Literal_) -> bool:
    return isinstance(value, int) or re.fullmatch(r"-?[0-9]{1,40}", str(value)) is not None


def _compare(cell: Cell, value: Literal_) -> int:
    if isinstance(cell, int) and _is_number(value):
        number = int(str(value))
        return (cell > number) - (cell < number)
    left, right = _bytes(cell), _bytes(value)
    return (left > right) - (left < right)


def _bytes(cell: Cell) -> bytes:
    return bytes(cell) if isinstance(cell, bytes | memoryview) else str(cell).encode("utf-8", "surrogateescape")


def _order_key(cell: Cell) -> tuple[int, int, bytes]:
    """NULLs first, then numbers, then texts."""
    if cell is None:
        return 0, 0, b""
    return (1, cell, b"") if isinstance(cell, int) else (2, 0, text_of_cell(cell).encode("utf-8", "surrogateescape"))
