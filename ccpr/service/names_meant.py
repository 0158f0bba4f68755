"""Names of databases and tables upstream that are like one which is not there: asked for only after an error."""

from collections.abc import Iterator
from contextlib import contextmanager

from ccpr.base.wording import meant
from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import DatabaseMissing, TableMissing, UpstreamError
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.schema import SYSTEM_DATABASES

_MOST_ACCOUNTS = 20  # whose databases are looked through
_HIDDEN = "__mo_"  # what the server makes besides the user's tables


@contextmanager
def similar_names(session: Session, database: str, table: str | None, publisher: str | None) -> Iterator[None]:
    """A DatabaseMissing or TableMissing of the block gets what there is of similar names before its remedy."""
    try:
        yield
    except DatabaseMissing as error:
        error.remedy = _advice(database, _databases(session, publisher), "databases", error.remedy)
        raise
    except TableMissing as error:
        error.remedy = _advice(table or "", _tables(session, database, publisher), "tables", error.remedy)
        raise


def _advice(typed: str, found: set[str], kind: str, remedy: str) -> str:
    return f"{meant(typed, found, kind, of='The upstream')} {remedy}" if found else remedy


def _databases(session: Session, publisher: str | None) -> set[str]:
    """Empty if they cannot be looked up."""
    try:
        found = set[str]()
        for account in _accounts(session, publisher):
            answer = session.read(upstream_sql.select_all_databases(account))
            found |= {text(cell, "datname") for (cell,) in answer.select("datname")}
    except UpstreamError:
        return set()
    return found - set(SYSTEM_DATABASES)


def _tables(session: Session, database: str, publisher: str | None) -> set[str]:
    try:
        found = set[str]()
        for account in _accounts(session, publisher):
            answer = session.read(upstream_sql.select_tables(account, database))
            found |= {text(cell, "relname") for (cell,) in answer.select("relname")}
    except UpstreamError:
        return set()
    return {name for name in found if not name.startswith(_HIDDEN)}


def _accounts(session: Session, publisher: str | None) -> list[int]:
    answer = session.read(upstream_sql.ALL_ACCOUNTS)
    found = [
        (text(name, "account_name"), integer(number, "account_id"))
        for name, number in answer.select("account_name", "account_id")
    ]
    chosen = [number for name, number in found if publisher is None or name.lower() == publisher.lower()]
    return chosen[:_MOST_ACCOUNTS]
