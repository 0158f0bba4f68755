"""The catalog database: where subscriptions, leases and checkpoints are kept. SQLite in WAL mode when nothing is configured (architecture
9).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects.mysql import LONGTEXT

from replication.errors import StateUnreadable

METADATA = sa.MetaData()
LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
SCHEMA_VERSION = 1

versions = sa.Table("ccpr_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))


def open_database(url: str) -> sa.Engine:
    """Connect, make what is missing, check the version. Raises StateUnreadable."""
    engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    if engine.dialect.name == "sqlite":
        if engine.url.database:
            Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
        event.listen(engine, "connect", _sqlite_settings)
        event.listen(engine, "begin", _sqlite_begin)
    try:
        METADATA.create_all(engine)
        with engine.begin() as connection:
            found = connection.scalar(sa.select(sa.func.max(versions.c.version)))
            if found is None:
                connection.execute(versions.insert().values(version=SCHEMA_VERSION))
    except exc.DBAPIError as error:
        raise StateUnreadable(f"the catalog database cannot be used: {error.orig}", subject=engine.url.render_as_string()) from error
    if found is not None and found > SCHEMA_VERSION:
        text = f"the catalog database is of version {found}, this program knows up to {SCHEMA_VERSION}"
        raise StateUnreadable(text, subject=engine.url.render_as_string(), remedy="Use a program at least as new as the one that wrote it.")
    return engine


@contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction whose failures are typed."""
    try:
        with engine.begin() as connection:
            yield connection
    except exc.OperationalError as error:
        raise StateUnreadable(f"the catalog database failed: {error.orig}", subject=engine.url.render_as_string()) from error


def _sqlite_settings(connection, _record) -> None:
    connection.isolation_level = None  # we begin transactions ourselves: the driver's own begin comes too late to lock what is read first
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # a committed point survives a power cut
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.close()


def _sqlite_begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
