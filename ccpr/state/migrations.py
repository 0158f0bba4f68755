"""The version of the catalog database and the steps from each version to the next. Forward only: a database of a newer
version is refused.

Only changed tables need a step: missing tables are created anyway. In SQLite a step and its version number are one
transaction. MySQL commits every statement that changes a table, so each statement of a step checks what is there or
may run twice, and an interrupted step runs again from its start. One process migrates at a time, the others wait
(`exclusive`). Source: decision state-folder.
"""

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa

from ccpr.state.database import create_engine, exclusive, place, repeatable, typed
from ccpr.state.errors import StateUnreadable
from ccpr.state.pins import give_to_followers
from ccpr.state.tables import (
    METADATA,
    create_tables,
    followers,
    mo_ccpr_log,
    pins,
    points,
    relay_users,
    table_points,
    targets,
    versions,
)

SCHEMA_VERSION = 10
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
    _refuse_newer(engine, version)
    with exclusive(engine, "schema") as connection:
        version = _version(connection)  # again: another process may have migrated it meanwhile
        _refuse_newer(engine, version)
        if version is not None:
            for number in range(version + 1, SCHEMA_VERSION + 1):
                _STEPS[number](connection)
        create_tables(connection)
        _create_view(connection)
        if version != SCHEMA_VERSION:
            connection.execute(versions.insert().values(version=SCHEMA_VERSION))


def _refuse_newer(engine: sa.Engine, version: int | None) -> None:
    if version is not None and version > SCHEMA_VERSION:
        text = f"the catalog database is of version {version}, this program knows up to {SCHEMA_VERSION}"
        raise StateUnreadable(
            text,
            subject=place(engine),
            remedy="Use a version of this program at least as new as the one that wrote it.",
        )


def _version(connection: sa.Connection) -> int | None:
    """None if there is no table yet."""
    look = sa.inspect(connection)
    if (
        look.has_table(versions.name)
        and (found := connection.scalar(sa.select(sa.func.max(versions.c.version)))) is not None
    ):
        return int(found)
    if look.has_table(mo_ccpr_log.name) and not _has_column(connection, mo_ccpr_log.name, "live_name"):
        return 1  # interrupted between its tables and its number
    return None


def _missing(connection: sa.Connection) -> bool:
    look = sa.inspect(connection)
    return bool(set(METADATA.tables) - set(look.get_table_names())) or VIEW not in look.get_view_names()


def _create_view(connection: sa.Connection) -> None:
    """The configuration of the subscriptions, under the name that O3 gives it."""
    if VIEW not in sa.inspect(connection).get_view_names():
        connection.exec_driver_sql(
            f"CREATE VIEW {VIEW} AS SELECT {', '.join(VIEW_COLUMNS)} FROM mo_ccpr_log WHERE live_name IS NOT NULL"
        )


def _has_column(connection: sa.Connection, table: str, column: str) -> bool:
    return any(found["name"] == column for found in sa.inspect(connection).get_columns(table))


# ---- 2: a dropped subscription's name is free again; types that fit a row of MySQL; names compared byte for byte

_COLUMNS_1 = (
    "task_id, subscription_name, subscription_account_name, sync_level, account_id, db_name, table_name, "
    "upstream_conn, sync_config, state, iteration_state, iteration_lsn, watermark, context, cn_uuid, error_message, "
    "created_at, drop_at, updated_at, publication_name, fence, lease_expires_at"
)
_SQLITE_LOG_2 = """
CREATE TABLE mo_ccpr_log (
    task_id VARCHAR(36) NOT NULL PRIMARY KEY,
    subscription_name VARCHAR(60) NOT NULL,
    subscription_account_name VARCHAR(300) NOT NULL,
    sync_level VARCHAR(16) NOT NULL,
    account_id BIGINT NOT NULL,
    db_name TEXT NOT NULL,
    table_name TEXT NOT NULL,
    upstream_conn TEXT NOT NULL,
    sync_config TEXT NOT NULL,
    state SMALLINT NOT NULL,
    iteration_state SMALLINT NOT NULL,
    iteration_lsn BIGINT NOT NULL,
    watermark BIGINT NOT NULL,
    context TEXT,
    cn_uuid VARCHAR(64),
    error_message TEXT,
    created_at DATETIME NOT NULL,
    drop_at DATETIME,
    updated_at DATETIME NOT NULL,
    publication_name VARCHAR(64) NOT NULL,
    fence BIGINT NOT NULL,
    lease_expires_at BIGINT NOT NULL,
    live_name VARCHAR(60),
    CONSTRAINT ccpr_live_name UNIQUE (live_name)
)"""
_MYSQL_MODIFY_2: Mapping[str, str] = {
    "mo_ccpr_log": (
        "MODIFY db_name LONGTEXT NOT NULL, MODIFY table_name LONGTEXT NOT NULL, "
        "MODIFY upstream_conn LONGTEXT NOT NULL, MODIFY error_message LONGTEXT, "
        "MODIFY created_at DATETIME(6) NOT NULL, MODIFY drop_at DATETIME(6), MODIFY updated_at DATETIME(6) NOT NULL"
    ),
    "ccpr_points": "MODIFY committed_at DATETIME(6) NOT NULL",
    "ccpr_table_points": "MODIFY database_name LONGTEXT NOT NULL, MODIFY table_name LONGTEXT NOT NULL",
    "ccpr_objects": "",
    "ccpr_object_references": "",
    "ccpr_garbage": "",
    "ccpr_schema": "",
}


def _to_2(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        # SQLite cannot drop a unique key, so the table is created again.
        connection.exec_driver_sql("ALTER TABLE mo_ccpr_log RENAME TO mo_ccpr_log_1")
        connection.exec_driver_sql(_SQLITE_LOG_2)
        copied = f"SELECT {_COLUMNS_1}, CASE WHEN state = 3 THEN NULL ELSE subscription_name END FROM mo_ccpr_log_1"
        connection.exec_driver_sql(f"INSERT INTO mo_ccpr_log ({_COLUMNS_1}, live_name) {copied}")
        connection.exec_driver_sql("DROP TABLE mo_ccpr_log_1")
        return
    present = set(sa.inspect(connection).get_table_names())
    for table, changes in _MYSQL_MODIFY_2.items():
        if table not in present:
            continue
        if changes:  # before the conversion: a row of VARCHAR(5000) fits in latin1, but not in utf8mb4
            connection.exec_driver_sql(f"ALTER TABLE {table} {changes}")
        connection.exec_driver_sql(f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    if not _has_column(connection, "mo_ccpr_log", "live_name"):
        connection.exec_driver_sql(
            "ALTER TABLE mo_ccpr_log ADD COLUMN live_name VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        )
    connection.exec_driver_sql("UPDATE mo_ccpr_log SET live_name = subscription_name WHERE state <> 3")
    indexes = {index["name"]: index["column_names"] for index in sa.inspect(connection).get_indexes("mo_ccpr_log")}
    for name, columns in indexes.items():
        if columns == ["subscription_name"]:
            connection.exec_driver_sql(f"ALTER TABLE mo_ccpr_log DROP INDEX `{name}`")
    if "ccpr_live_name" not in indexes:
        connection.exec_driver_sql("ALTER TABLE mo_ccpr_log ADD CONSTRAINT ccpr_live_name UNIQUE (live_name)")


# ---- 3: columns that 0.1.0 did not have. Rows that it wrote have null in them, or the column's default

_ADDED_3: tuple[sa.Column, ...] = (
    targets.c.duplicate_keys,
    points.c.file,
    mo_ccpr_log.c.epoch,
    mo_ccpr_log.c.mirror_url,
)


def _to_3(connection: sa.Connection) -> None:
    _add(connection, _ADDED_3)


# ---- 4: by which databases of other clusters are known

_ADDED_4: tuple[sa.Column, ...] = (followers.c.database_id, followers.c.copy_id)


def _to_4(connection: sa.Connection) -> None:
    _add(connection, _ADDED_4)


# ---- 5: targets of one of several databases

_ADDED_5: tuple[sa.Column, ...] = (targets.c.source_database,)


def _to_5(connection: sa.Connection) -> None:
    _add(connection, _ADDED_5)


# ---- 6: what a login of the relay may use, whose a snapshot is, how many tables targets and followers drop at once

_ADDED_6: tuple[sa.Column, ...] = (
    pins.c.login_name,
    relay_users.c.publications,
    targets.c.max_drop,
    followers.c.approved_lsn,
)


def _to_6(connection: sa.Connection) -> None:
    _add(connection, _ADDED_6)
    if {pins.name, followers.name} <= set(sa.inspect(connection).get_table_names()):
        give_to_followers(connection)


# ---- 7: lakes among the targets

_ADDED_7: tuple[sa.Column, ...] = (targets.c.lake,)


def _to_7(connection: sa.Connection) -> None:
    _add(connection, _ADDED_7)


# ---- 8: points that stay by themselves; a version before would drop them


def _to_8(_: sa.Connection) -> None:
    """Nothing changes but the number: the tables are new."""


# ---- 9: when a target last said where it is

_ADDED_9: tuple[sa.Column, ...] = (targets.c.verified_at,)


def _to_9(connection: sa.Connection) -> None:
    _add(connection, _ADDED_9)


# ---- 10: manifests that have parts; a version before would delete these with the points that wrote them

_ADDED_10: tuple[sa.Column, ...] = (table_points.c.parts,)


def _to_10(connection: sa.Connection) -> None:
    _add(connection, _ADDED_10)


def _add(connection: sa.Connection, columns: Sequence[sa.Column]) -> None:
    """A table that does not exist is created later, with these columns."""
    present = set(sa.inspect(connection).get_table_names())
    for column in columns:
        if column.table.name in present and not _has_column(connection, column.table.name, column.name):
            added = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {added}")


_STEPS: Mapping[int, Callable[[sa.Connection], None]] = {
    2: _to_2,
    3: _to_3,
    4: _to_4,
    5: _to_5,
    6: _to_6,
    7: _to_7,
    8: _to_8,
    9: _to_9,
    10: _to_10,
}
