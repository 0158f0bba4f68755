"""SHOW: publications, snapshots, databases, variables."""

from datetime import UTC, datetime
from typing import Final

from ccpr.matrixone.server import mo_catalog as catalog
from ccpr.matrixone.server.answers import (
    BLOB_TEXT,
    TIMESTAMP,
    VAR_STRING,
    VARCHAR,
    Cell,
    ResultColumn,
    ResultSet,
    StatementError,
)
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, Login
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.like import Like
from ccpr.matrixone.server.select_values import variables_of
from ccpr.matrixone.server.statements import Show
from ccpr.matrixone.server.upstream import Upstream

PUBLICATION_COLUMNS: Final = {
    "publication": VARCHAR,
    "database": VARCHAR,
    "tables": BLOB_TEXT,
    "sub_account": BLOB_TEXT,
    "subscribed_accounts": BLOB_TEXT,
    "create_time": TIMESTAMP,
    "update_time": TIMESTAMP,
    "comments": BLOB_TEXT,
}


def show(upstream: Upstream, login: Login, statement: Show) -> ResultSet:
    match statement.what:
        case "publications":
            return _publications(upstream, login, statement.like)
        case "publication coverage":
            return _coverage(upstream, login, statement.name)
        case "create publication":
            return _create_publication(upstream, login, statement.name)
        case "snapshots":
            return _snapshots(upstream, login)
        case "databases":
            account = login.account
            owns = upstream.backing.owns_data(account)
            names = [row[0] for row in upstream.backing.catalog(account).databases.rows] if owns else []
            return texts(("Database",), [(name,) for name in (*names, *SYSTEM_DATABASES)])
        case "warnings":
            return texts(("Level", "Code", "Message"), [])
        case "variables" | "session variables" | "global variables":
            like = Like(statement.like if statement.like is not None else "%", ignore_case=True)
            known = [(name, str(value)) for name, value in variables_of(upstream.name).items() if like.matches(name)]
            return texts(("Variable_name", "Value"), known)
        case _:
            raise StatementError(
                1064, f"SQL syntax: the {upstream.name} does not serve SHOW {statement.what.upper()}", "42000"
            )


def _publications(upstream: Upstream, login: Login, like: str | None) -> ResultSet:
    pattern = Like("%" if like is None else like)
    rows: list[tuple[Cell, ...]] = []
    found = upstream.backing.publications()
    # Newest first; with LIKE by name (docs/upstream.md 3.3).
    for publisher, publication in reversed(found) if like is None else sorted(found, key=lambda one: one[1].name):
        if publisher != login.account or not pattern.matches(publication.name):
            continue
        accounts = "*" if publication.admits("*") else ",".join(publication.accounts)
        tables = ",".join(publication.tables) or "*"
        offer = (publication.name, publication.database, tables, accounts)
        rows.append((*offer, "", catalog.CREATED, None, publication.comment))
    return ResultSet(tuple(ResultColumn(name, kind) for name, kind in PUBLICATION_COLUMNS.items()), rows)


def _create_publication(upstream: Upstream, login: Login, name: str) -> ResultSet:
    publication = upstream.backing.publication(login.account, name)
    if publication is None:
        raise internal_error(f"publication '{name}' does not exist")
    tables = f" TABLE {','.join(publication.tables)}" if publication.tables else ""
    accounts = "ALL" if publication.admits("*") else ",".join(publication.accounts)
    text = f"CREATE PUBLICATION {name} DATABASE {publication.database}{tables} ACCOUNT {accounts}"
    return texts(("Publication", "Create Publication"), [(name, text)])


def _snapshots(upstream: Upstream, login: Login) -> ResultSet:
    """The account's snapshots, newest first, without those of the upstream's own replication (docs/upstream.md
    4.3)."""
    rows: list[tuple[Cell, ...]] = []
    for snapshot in reversed(upstream.backing.snapshots(login.account)):
        if not snapshot.name.startswith("ccpr_"):
            at = datetime.fromtimestamp(snapshot.ts // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            time = f"{at}.{snapshot.ts % 1_000_000_000 // 1000:06}"
            rows.append((snapshot.name, time, snapshot.level, login.account, snapshot.database, snapshot.table))
    return texts(("SNAPSHOT_NAME", "TIMESTAMP", "SNAPSHOT_LEVEL", "ACCOUNT_NAME", "DATABASE_NAME", "TABLE_NAME"), rows)


def _coverage(upstream: Upstream, login: Login, name: str) -> ResultSet:
    """The publication is searched by name only, in all accounts (docs/upstream.md 3.3)."""
    backing = upstream.backing
    publisher, publication = next(
        ((p, found) for p, found in backing.publications((name,)) if found.name == name), ("", None)
    )
    if publication is None:
        raise internal_error(f"publication {name} does not exist")
    if not publication.admits(login.account):
        raise internal_error(f"account '{login.account}' is not allowed to access publication '{name}'")
    rows: list[tuple[Cell, ...]] = [(publication.database, table) for table in publication.tables if table]
    if publication.database == "*":
        rows = [("*", "*")]
    elif not publication.tables:
        database = publication.database.encode()
        tables = backing.published(publisher, name).catalog(publisher).tables
        rows = [
            (database, "*"),
            *((database, table.name) for table in tables if table.database == database and table.kind != b"v"),
        ]
    return ResultSet((ResultColumn("Database", VARCHAR), ResultColumn("Table", VARCHAR)), rows)


def texts(names: tuple[str, ...], rows: list[tuple[Cell, ...]] | list[tuple[str, str]]) -> ResultSet:
    return ResultSet(tuple(ResultColumn(name, VAR_STRING, catalog.UTF8) for name in names), rows)
