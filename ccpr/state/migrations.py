"""The version of the catalog database and the steps from each version to the next. Forward only: a database of a newer
version is refused.

Only changed tables need a step: missing tables are created anyway. In SQLite a step and its version number are one
transaction. MySQL commits every statement that changes a table, so each statement of a step checks what is there or
may run twice, and an interrupted step runs again from its start. One process migrates at a time, the others wait
(`exclusive`). Source: decision state-folder.
"""

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from ccpr.state.database import create_engine, exclusive, place, repeatable, typed
from ccpr.state.errors import StateUnreadable
from ccpr.state.tables import LONG_TEXT, METADATA, create_tables, iceberg_tables, versions

SCHEMA_VERSION = 13
OLDEST = 10  # of release 0.2.0, which migrates those before
VIEW = "mo_sync_configs"
# As docs/requirements.md N1 and O3 have it.
VIEW_COLUMNS = (
    "task_id",
    "subscription_name",
    "sync_level",
    "db_name",
    "table_name",
    "upstream_conn",
    "sync_config",
    "state",
    "iteration_state",
    "iteration_lsn",
    "context",
    "cn_uuid",
    "error_message",
    "created_at",
    "updated_at",
)


def open_database(url: str) -> sa.Engine:
    """Connect, and create or migrate the tables. Raises StateUnreadable, StateUnavailable."""
    engine = create_engine(url)
    repeatable(migrate)(engine)
    return engine


def migrate(engine: sa.Engine) -> None:
    """Create what is missing and migrate what is older.

    Raises StateUnavailable; StateUnreadable, also for a newer version.
    """
    with typed(engine), engine.connect() as connection:
        version = _version(connection)
        if version == SCHEMA_VERSION and not _missing(connection):
            return
    _refuse_other(engine, version)
    with exclusive(engine, "schema") as connection:
        version = _version(connection)  # again: another process may have migrated it meanwhile
        _refuse_other(engine, version)
        if version is not None:
            for number in range(version + 1, SCHEMA_VERSION + 1):
                _STEPS[number](connection)
        create_tables(connection)
        _create_view(connection)
        if version != SCHEMA_VERSION:
            connection.execute(versions.insert().values(version=SCHEMA_VERSION))


def _refuse_other(engine: sa.Engine, version: int | None) -> None:
    if version is None or OLDEST <= version <= SCHEMA_VERSION:
        return
    if version > SCHEMA_VERSION:
        remedy = "Use a version of this program at least as new as the one that wrote it."
    else:
        remedy = "Run `ccpr run NAME` of each subscription with release 0.2.0 first, then this release."
    text = f"the catalog database is of version {version}, this program knows {OLDEST} to {SCHEMA_VERSION}"
    raise StateUnreadable(text, subject=place(engine), remedy=remedy)


def _version(connection: sa.Connection) -> int | None:
    """None if there is no number yet."""
    if not sa.inspect(connection).has_table(versions.name):
        return None
    found = connection.scalar(sa.select(sa.func.max(versions.c.version)))
    return None if found is None else int(found)


def _missing(connection: sa.Connection) -> bool:
    look = sa.inspect(connection)
    return bool(set(METADATA.tables) - set(look.get_table_names())) or VIEW not in look.get_view_names()


def _create_view(connection: sa.Connection) -> None:
    """The configuration of the subscriptions, under the name that O3 gives it."""
    if VIEW not in sa.inspect(connection).get_view_names():
        connection.exec_driver_sql(
            f"CREATE VIEW {VIEW} AS SELECT {', '.join(VIEW_COLUMNS)} FROM mo_ccpr_log WHERE live_name IS NOT NULL"
        )


def _to_11(connection: sa.Connection) -> None:
    """The last change of a table's rows. What is there has null: each table changed where its manifest was written."""
    _add(connection, "ccpr_table_points", "same_since BIGINT")


def _to_12(connection: sa.Connection) -> None:
    """What a login is for, and what a reader sees. What is there has null: it is of the relay."""
    text = LONG_TEXT.compile(connection.dialect)
    _add(connection, "ccpr_relay_users", "role VARCHAR(16)")
    _add(connection, "ccpr_relay_users", f"limits {text}")


def _to_13(connection: sa.Connection) -> None:
    """Which version of the lake's log an Iceberg table shows. What is there has null: it is looked at once."""
    if sa.inspect(connection).has_table(iceberg_tables.name):
        _add(connection, iceberg_tables.name, "log_version BIGINT")


def _add(connection: sa.Connection, table: str, column: str) -> None:
    if column.split()[0] not in {one["name"] for one in sa.inspect(connection).get_columns(table)}:
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column}")


# Steps to each version after OLDEST, by its number. A step may run twice.
_STEPS: Mapping[int, Callable[[sa.Connection], None]] = {11: _to_11, 12: _to_12, 13: _to_13}
