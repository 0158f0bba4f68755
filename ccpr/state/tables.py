"""All tables of the catalog database. Their names and those of their columns are persisted and never change.

The meaning of the columns is described where rows become values: `log_rows`, `history`, `ledger`, `quarantine`,
`targets`, `checkpoint.checkpoint_store`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem

METADATA = sa.MetaData()
_MYSQL_DIALECTS = ("mysql", "mariadb")


class LongText(sa.TypeDecorator):
    """LONGTEXT in MySQL, whose dialect is imported only where it is the database's."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine:
        if dialect.name not in _MYSQL_DIALECTS:
            return super().load_dialect_impl(dialect)
        from sqlalchemy.dialects.mysql import LONGTEXT

        return dialect.type_descriptor(LONGTEXT())


class UtcTime(sa.TypeDecorator):
    """A time to the microsecond; in the database UTC, without a time zone."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine:
        if dialect.name not in _MYSQL_DIALECTS:
            return super().load_dialect_impl(dialect)
        from sqlalchemy.dialects.mysql import DATETIME

        return dialect.type_descriptor(DATETIME(fsp=6))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


# The same in all databases: text without a length (five VARCHAR(5000) are more than a row of MySQL may have), times to
# the microsecond, names compared byte for byte as SQLite does.
LONG_TEXT = LongText()
UTC_TIME = UtcTime()
_MYSQL = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}
TABLE_OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value for dialect in _MYSQL_DIALECTS for name, value in _MYSQL.items()
}
mo_ccpr_log = sa.Table(
    "mo_ccpr_log",
    METADATA,
    sa.Column("task_id", sa.String(36), primary_key=True),
    sa.Column("subscription_name", sa.String(60), nullable=False),
    sa.Column("subscription_account_name", sa.String(300), nullable=False),  # the publisher
    sa.Column("sync_level", sa.String(16), nullable=False),
    sa.Column("account_id", sa.BigInteger, nullable=False),  # the publisher's
    sa.Column("db_name", LONG_TEXT, nullable=False),
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("upstream_conn", LONG_TEXT, nullable=False),
    sa.Column("sync_config", LONG_TEXT, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("iteration_state", sa.SmallInteger, nullable=False),
    sa.Column("iteration_lsn", sa.BigInteger, nullable=False),
    sa.Column("watermark", sa.BigInteger, nullable=False),
    sa.Column("context", LONG_TEXT),
    sa.Column("cn_uuid", sa.String(64)),
    sa.Column("error_message", LONG_TEXT),
    sa.Column("created_at", UTC_TIME, nullable=False),
    sa.Column("drop_at", UTC_TIME),
    sa.Column("updated_at", UTC_TIME, nullable=False),
    sa.Column("publication_name", sa.String(64), nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("lease_expires_at", sa.BigInteger, nullable=False),  # milliseconds since 1970; 0 = free
    sa.Column("live_name", sa.String(60)),  # the name; null for a dropped subscription, so that it is free again
    sa.Column("epoch", sa.String(16)),  # as in the mirror's identity; null until the mirror has one
    sa.Column("mirror_url", LONG_TEXT),  # where the mirror was last written, with the host of a folder; for messages
    sa.UniqueConstraint("live_name", name="ccpr_live_name"),
)


def _of_subscriptions(name: str, *items: SchemaItem) -> sa.Table:
    """A table with rows of subscriptions: the task id is the first column of its key."""
    return sa.Table(name, METADATA, sa.Column("task_id", sa.String(36), primary_key=True), *items)


checkpoints = sa.Table(
    "ccpr_checkpoints",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),  # a task id
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),  # 0 = the global point
    sa.Column("table_schema", LONG_TEXT, nullable=False),  # the database's name
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("lsn", sa.BigInteger, nullable=False),
    sa.Column("snapshot_ts", sa.BigInteger, nullable=False),  # nanoseconds, the upstream's clock
    sa.Column("exit_safe_lsn", sa.BigInteger),  # like the next one, in the global row only
    sa.Column("exit_safe_ts", sa.BigInteger),
    sa.Column("table_info", LONG_TEXT),  # JSON
    # False if changes up to a later location are pending, for which the global point waits, too.
    sa.Column("is_finished", sa.Boolean, nullable=False),
    sa.Column("is_global", sa.Boolean, nullable=False),
    sa.Column("create_time", UTC_TIME, nullable=False),
    sa.Column("update_time", UTC_TIME, nullable=False),
)
points = _of_subscriptions(
    "ccpr_points",
    sa.Column("lsn", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("snapshot_ts", sa.BigInteger, nullable=False),
    sa.Column("snapshot", sa.String(64), nullable=False),
    sa.Column("committed_at", UTC_TIME, nullable=False),
    sa.Column("ledger", sa.String(255), nullable=False),
    sa.Column("file", sa.String(255)),  # path of the point's file in the mirror
    sa.Column("tables_changed", sa.BigInteger, nullable=False),
    sa.Column("objects_copied", sa.BigInteger, nullable=False),
    sa.Column("bytes_copied", sa.BigInteger, nullable=False),
)
point_definitions = _of_subscriptions(  # a row for each point that has some: views, sequences
    "ccpr_point_definitions",
    sa.Column("lsn", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("file", sa.String(255), nullable=False),  # its path in the mirror, which points may share
)
table_points = _of_subscriptions(
    "ccpr_table_points",
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("lsn", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("gone", sa.Boolean, nullable=False),
    sa.Column("database_name", LONG_TEXT, nullable=False),
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("table_schema", LONG_TEXT, nullable=False),
    sa.Column("manifest", sa.String(255), nullable=False),
    sa.Column("parts", LONG_TEXT),  # JSON: paths of the files that the manifest goes on from; null = none
    sa.Column("same_since", sa.BigInteger),  # lsn of the last change of rows or definition; null = this one
    sa.Column("objects", sa.BigInteger, nullable=False),
    sa.Column("appendable", sa.BigInteger, nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
)
quarantine = _of_subscriptions(
    "ccpr_quarantine",
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("database_name", LONG_TEXT, nullable=False),
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("since_lsn", sa.BigInteger, nullable=False),  # the first iteration that could not move it
    sa.Column("first_failed_at", UTC_TIME, nullable=False),
    sa.Column("last_failed_at", UTC_TIME, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("code", sa.String(64), nullable=False),
    sa.Column("message", LONG_TEXT, nullable=False),
    sa.Column("subject", LONG_TEXT, nullable=False),
    sa.Column("remedy", LONG_TEXT, nullable=False),
)
behind_tables = _of_subscriptions(
    "ccpr_behind",
    sa.Column("lsn", sa.BigInteger, primary_key=True, autoincrement=False),  # a point
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("database_name", LONG_TEXT, nullable=False),  # as the table is called at that point upstream
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("stands_at", sa.BigInteger),  # the newest point that shows the table; null = none does
)
targets = _of_subscriptions(
    "ccpr_targets",
    sa.Column("target_name", sa.String(60), primary_key=True),
    sa.Column("uri", LONG_TEXT, nullable=False),  # without the password
    sa.Column("sealed_password", LONG_TEXT, nullable=False),
    sa.Column("dialect", sa.String(16), nullable=False),
    sa.Column("ddl_policy", sa.String(16), nullable=False),
    sa.Column("as_text", LONG_TEXT, nullable=False),  # JSON: names `table.column`
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created_at", UTC_TIME, nullable=False),
    sa.Column("lsn", sa.BigInteger),  # the point at which all tables are that are not behind
    sa.Column("snapshot_ts", sa.BigInteger),
    sa.Column("needed_lsn", sa.BigInteger),  # the oldest point from which a table has still to be synced
    sa.Column("behind", LONG_TEXT, nullable=False),  # JSON: tables at older points
    sa.Column("attempts", sa.BigInteger, nullable=False),  # consecutive failed ones
    sa.Column("first_failed_at", UTC_TIME),
    sa.Column("last_failed_at", UTC_TIME),
    sa.Column("failure", LONG_TEXT),  # JSON
    sa.Column("duplicate_keys", sa.String(16)),  # what to do with two rows of one key; null = error
    sa.Column("source_database", LONG_TEXT),  # of several that are subscribed to; null = the only one
    sa.Column("max_drop", sa.BigInteger),  # how many tables are dropped at once; null = fewer than half
    sa.Column("lake", LONG_TEXT),  # JSON: how the lake is kept; null = it is a database
    sa.Column("verified_at", UTC_TIME),  # when it last said itself where it is
)
objects = _of_subscriptions(
    "ccpr_objects",
    sa.Column("object_name", sa.String(42), primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
)
references = _of_subscriptions(
    "ccpr_object_references",
    sa.Column("object_name", sa.String(42), primary_key=True),
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("from_lsn", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("until_lsn", sa.BigInteger),  # the first point that no longer names the object; null = still named
    sa.Index("ccpr_references_by_table", "task_id", "table_id"),
    sa.Index("ccpr_references_by_end", "task_id", "until_lsn"),
)
garbage = _of_subscriptions(
    "ccpr_garbage",
    sa.Column("path", sa.String(255), primary_key=True),
    # Seconds since 1970 by the upstream's clock. Until then readers may finish with a dropped point.
    sa.Column("due_at", sa.BigInteger, nullable=False),
)
holds = _of_subscriptions(
    "ccpr_holds",
    sa.Column("hold_name", sa.String(64), primary_key=True),
    sa.Column("lsn", sa.BigInteger, nullable=False),  # a point that no rule lets go
    sa.Column("held_until", sa.BigInteger),  # nanoseconds, the upstream's clock; null = until it is released
    sa.Column("created_at", UTC_TIME, nullable=False),
)
kept_points = _of_subscriptions(  # a row for each point before the chain
    "ccpr_kept_points",
    sa.Column("lsn", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("next_lsn", sa.BigInteger, nullable=False),  # of the point that came directly after it
    sa.Column("next_ts", sa.BigInteger, nullable=False),
)
kept = _of_subscriptions(  # what the mirror's head names besides the newest point
    "ccpr_kept",
    sa.Column("revision", sa.BigInteger, nullable=False),  # grows with each file
    sa.Column("file", sa.String(255), nullable=False),
    sa.Column("chain_from", sa.BigInteger, nullable=False),  # points of a lesser lsn are in the file, the others linked
)
figures = _of_subscriptions(  # of the rows of a table at a point
    "ccpr_figures",
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("lsn", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("row_sum", sa.String(64), nullable=False),  # see ccpr.mirror.row_sums; empty: they were counted only
    sa.Column("basis", sa.String(16), nullable=False),
    sa.Column("made_by", sa.String(16), nullable=False),  # who read the rows: commit, target, drill, verify
    sa.Column("made_at", UTC_TIME, nullable=False),
)
drills = _of_subscriptions(
    "ccpr_drills",
    sa.Column("started_at", UTC_TIME, primary_key=True),
    sa.Column("ended_at", UTC_TIME, nullable=False),
    sa.Column("lsn", sa.BigInteger, nullable=False),  # of the point that was restored
    sa.Column("snapshot_ts", sa.BigInteger, nullable=False),
    sa.Column("place", LONG_TEXT, nullable=False),  # where to, without a password
    sa.Column("tables", sa.BigInteger, nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),  # of the mirror's objects
    sa.Column("compared", sa.BigInteger, nullable=False),  # tables whose figures had been recorded before
    sa.Column("differences", LONG_TEXT, nullable=False),  # JSON: by table, how it differed
    sa.Column("failure", LONG_TEXT),  # JSON
)
copies = _of_subscriptions(  # a row for each second copy of a mirror
    "ccpr_copies",
    sa.Column("copy_id", sa.String(16), primary_key=True),  # of the place
    sa.Column("place", LONG_TEXT, nullable=False),  # URL, without a key
    sa.Column("encrypt", LONG_TEXT, nullable=False),  # where the key is
    sa.Column("started_at", UTC_TIME, nullable=False),  # of the last attempt
    sa.Column("copied_at", UTC_TIME),  # when the last good one began
    sa.Column("lsn", sa.BigInteger),  # of the newest point that the copy had then
    sa.Column("snapshot_ts", sa.BigInteger),
    sa.Column("attempts", sa.BigInteger, nullable=False),  # that failed since
    sa.Column("failure", LONG_TEXT),  # JSON
)
scrubs = _of_subscriptions(
    "ccpr_scrubs",
    sa.Column("position", sa.String(42), nullable=False),  # the last object that was read; empty at the beginning
    sa.Column("began_at", UTC_TIME, nullable=False),  # of this round
    sa.Column("last_began_at", UTC_TIME),  # of the last one that came to its end
    sa.Column("repaired", sa.BigInteger, nullable=False),
    sa.Column("damaged", LONG_TEXT, nullable=False),  # JSON: path and reason
)
copy_scrubs = _of_subscriptions(  # the same of each second copy
    "ccpr_copy_scrubs",
    sa.Column("copy_id", sa.String(16), primary_key=True),  # of the place
    sa.Column("position", sa.String(42), nullable=False),
    sa.Column("began_at", UTC_TIME, nullable=False),
    sa.Column("last_began_at", UTC_TIME),
    sa.Column("repaired", sa.BigInteger, nullable=False),
    sa.Column("damaged", LONG_TEXT, nullable=False),
)
pins = _of_subscriptions(
    "ccpr_pins",
    sa.Column("snapshot_name", sa.String(64), primary_key=True),  # in lower case
    sa.Column("lsn", sa.BigInteger, nullable=False),  # the point that it shows
    sa.Column("snapshot_ts", sa.BigInteger, nullable=False),  # of that point
    sa.Column("scope", sa.String(16), nullable=False),  # database or table
    sa.Column("table_name", LONG_TEXT, nullable=False),  # empty for a database
    sa.Column("created_at", UTC_TIME, nullable=False),
    sa.Column("seen_at", UTC_TIME, nullable=False),  # when its owner last asked for anything
    sa.Column("login_name", sa.String(64)),  # whose it is, a login of the relay in lower case; null: not known
)
relay_users = sa.Table(
    "ccpr_relay_users",
    METADATA,
    sa.Column("user_name", sa.String(60), primary_key=True),
    sa.Column("sealed_digest", LONG_TEXT, nullable=False),  # of the password, as the protocol compares it
    sa.Column("created_at", UTC_TIME, nullable=False),
    sa.Column("publications", LONG_TEXT),  # that it may use, as a JSON list, in lower case; null: all
    sa.Column("role", sa.String(16)),  # `relay`, `reader` or `operator`; null: of the relay, before there were others
    sa.Column("limits", LONG_TEXT),  # of a reader, as JSON: tables, hidden columns, conditions of rows
)
followers = _of_subscriptions(
    "ccpr_followers",
    sa.Column("follower_name", sa.String(60), primary_key=True),
    sa.Column("uri", LONG_TEXT, nullable=False),  # of the other cluster, without the password
    sa.Column("sealed_password", LONG_TEXT, nullable=False),
    sa.Column("sealed_login", LONG_TEXT, nullable=False),  # with what that cluster logs in at the relay
    sa.Column("database_name", LONG_TEXT, nullable=False),  # there
    sa.Column("relay_address", LONG_TEXT, nullable=False),  # as that cluster sees it
    sa.Column("stage", sa.String(16), nullable=False),
    sa.Column("created_at", UTC_TIME, nullable=False),
    sa.Column("downstream_task", sa.String(36)),  # id of its subscription there
    sa.Column("asked_at", UTC_TIME),  # when that cluster last answered; the next four are its answer
    sa.Column("downstream_state", sa.SmallInteger),
    sa.Column("iterations", sa.BigInteger),
    sa.Column("watermark", sa.BigInteger),
    sa.Column("downstream_error", LONG_TEXT),
    sa.Column("resumes", sa.BigInteger, nullable=False),  # in a row, without progress
    sa.Column("resumed_at", UTC_TIME),
    sa.Column("attempts", sa.BigInteger, nullable=False),  # consecutive ones to ask it that failed
    sa.Column("first_failed_at", UTC_TIME),
    sa.Column("last_failed_at", UTC_TIME),
    sa.Column("failure", LONG_TEXT),  # JSON
    sa.Column("promoted_lsn", sa.BigInteger),  # the point that is being promoted
    sa.Column("database_id", sa.BigInteger),  # of its database there: another one of that name is not ours
    sa.Column("copy_id", sa.BigInteger),  # of the writable copy that takes its place
    sa.Column("approved_lsn", sa.BigInteger),  # up to this point it may drop however many tables
)
iceberg_tables = _of_subscriptions(  # a row for each Iceberg table of a lake
    "ccpr_iceberg_tables",
    sa.Column("target_name", sa.String(60), primary_key=True),
    sa.Column("table_uuid", sa.String(36), primary_key=True),
    sa.Column("database_name", LONG_TEXT, nullable=False),
    sa.Column("table_name", LONG_TEXT, nullable=False),
    sa.Column("metadata_file", LONG_TEXT, nullable=False),  # the newest, below the lake
    sa.Column("snapshot_ts", sa.BigInteger),  # time of the point that it shows; null = it has no rows to show yet
    sa.Column("gone", sa.Boolean, nullable=False),  # dropped; older points still show it
    sa.Column("log_version", sa.BigInteger),  # of the lake's own log, that it shows; null = it must be looked at
)
versions = sa.Table("ccpr_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))


def create_tables(connection: sa.Connection) -> None:
    """Create those that are missing."""
    if connection.dialect.name in _MYSQL_DIALECTS:
        set_mysql_options(METADATA.tables.values())
    METADATA.create_all(connection)


def set_mysql_options(tables: Iterable[sa.Table]) -> None:
    """What MySQL has to be told when it creates them. Where the tables are defined it would import MySQL's dialect."""
    for table in tables:
        table.dialect_kwargs.update(TABLE_OPTIONS)
