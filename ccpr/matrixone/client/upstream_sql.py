"""The text of every statement that is sent upstream: docs/upstream.md 3 to 5. No other module has such a text.

There are two ways of writing names. SQL statements quote them. Internal commands (`__++__internal_…`) are split at
white space by the server and have no quoting, so a name with a blank or a quote cannot be passed and is refused here.
Publication, publisher and snapshot names are stored and sent in lower case.
"""

import re
from collections.abc import Iterable

from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.matrixone.client.errors import BadWord
from ccpr.matrixone.sql.quoting import in_backquotes, quote_string

_WORD = re.compile(r"[^\s'\"`]+")
_TABLE_WORD = re.compile(r"[^\s']+")  # what the server takes as the name of a table
NOTHING = "-"  # in internal commands: no name


def _columns(names: str) -> tuple[str, ...]:
    return tuple(names.split())


DATABASE_COLUMNS = ("dat_id", "datname", "account_id", "dat_type")
TABLE_COLUMNS = _columns(
    "rel_id relname reldatabase reldatabase_id relkind rel_comment account_id partitioned rel_logical_id"
)
VERSION_COLUMNS = ("rel_id", "relname", "rel_version", "partitioned")
CREATED_COLUMNS = ("rel_id", "rel_createsql")
EXTRA_COLUMNS = ("rel_id", "extra_info")
VIEW_COLUMNS = ("relname", "rel_createsql", "viewdef")
FUNCTION_COLUMNS = ("name", "args", "rettype", "body", "language")
GRANT_COLUMNS = ("role_name", "obj_type", "obj_id", "privilege_name", "with_grant_option")
ROW_RULE_COLUMNS = ("role_id", "rule_name", "rule")
ROLE_COLUMNS = ("role_id", "role_name")
SEQUENCE_COLUMNS = _columns("last_seq_num min_value max_value start_value increment_value cycle is_called")
COLUMN_COLUMNS = _columns(
    "att_relname_id att_relname attname atttyp attnum attnotnull attisdropped att_is_hidden attr_seqnum attr_enum "
    "att_default"
)
NAME_COLUMNS = ("rel_id", "relname", "relkind")
# What a checksum of the catalog is made of. What else the server prints DDL texts from, comments of columns for
# example, raises `rel_version`.
SUMMED_TABLE_COLUMNS = TABLE_COLUMNS + _columns(
    "relpersistence rel_createsql partition_info viewdef constraint rel_version catalog_version"
)
SUMMED_COLUMN_COLUMNS = tuple(name for name in COLUMN_COLUMNS if name != "att_relname")  # which the tables have
SUM_COLUMNS = ("number", "checksum")
PUBLICATION_COLUMNS = ("account_id", "account_name", "pub_name", "database_name", "table_list", "account_list")


def can_be_word(name: str) -> bool:
    """Whether this name can be part of an internal command."""
    return _WORD.fullmatch(name) is not None and name != NOTHING


def can_be_table_word(name: str) -> bool:
    """Whether this name of a table can be part of `ddl`."""
    return _TABLE_WORD.fullmatch(name) is not None and name != NOTHING


def word(name: str, what: str) -> str:
    """A name inside an internal command, as it is. Raises BadWord."""
    if not can_be_word(name):
        raise BadWord(f"the {what} name cannot be passed to the upstream", subject=f"{what} {name!r}")
    return name


def stored_word(name: str, what: str) -> str:
    """A publication, publisher or snapshot name: the server stores it in lower case."""
    return word(name.lower(), what)


identifier = in_backquotes  # a name inside a SQL statement


def string(text: str) -> str:
    """A text literal inside a SQL statement."""
    return quote_string(text, escape_lines=False)


def _through(publisher: str, publication: str) -> str:
    return f"{stored_word(publisher, 'publisher')} {stored_word(publication, 'publication')}"


def _shown_by(snapshot: str, publisher: str, publication: str) -> str:
    return f"{stored_word(snapshot, 'snapshot')} {_through(publisher, publication)}"


def _snapshot(name: str) -> str:
    return identifier(stored_word(name, "snapshot"))


def _from(publisher: str, publication: str | None) -> str:
    if publication is None:  # the login's account has it
        return ""
    owner, name = identifier(stored_word(publisher, "publisher")), identifier(stored_word(publication, "publication"))
    return f" FROM {owner} PUBLICATION {name}"


# -- snapshots


def create_snapshot(
    snapshot: str, database: str, publisher: str, publication: str | None, table: str | None = None
) -> str:
    """Of the whole database, or of one table of it."""
    scope = f"DATABASE {identifier(database)}" if table is None else f"TABLE {identifier(database)} {identifier(table)}"
    return f"CREATE SNAPSHOT IF NOT EXISTS {_snapshot(snapshot)} FOR {scope}{_from(publisher, publication)}"


def create_account_snapshot(snapshot: str, account: str) -> str:
    """Of all databases of an account. Account sys has it, and it protects the account that it names, as one through a
    publication would not."""
    whose = identifier(stored_word(account, "account"))
    return f"CREATE SNAPSHOT IF NOT EXISTS {_snapshot(snapshot)} FOR ACCOUNT {whose}"


def drop_snapshot(snapshot: str, publisher: str = "", publication: str | None = None) -> str:
    """The account that has the snapshot needs no publication."""
    return f"DROP SNAPSHOT IF EXISTS {_snapshot(snapshot)}{_from(publisher, publication)}"


def snapshot_timestamp(snapshot: str, publisher: str, publication: str) -> str:
    return f"__++__internal_get_snapshot_ts {_shown_by(snapshot, publisher, publication)}"


def own_snapshot_timestamp(snapshot: str) -> str:
    """For the account that has the snapshot."""
    return f"SELECT ts FROM mo_catalog.mo_snapshots WHERE sname = {string(stored_word(snapshot, 'snapshot'))}"


def snapshot_age(snapshot: str, publisher: str, publication: str) -> str:
    """Only a relay answers it (decision lag-is-age)."""
    return f"__++__internal_get_snapshot_age {_shown_by(snapshot, publisher, publication)}"


def snapshot_flushed(snapshot: str, publisher: str, publication: str) -> str:
    return f"__++__internal_check_snapshot_flushed {_shown_by(snapshot, publisher, publication)}"


def flush(table_id: int) -> str:
    return f"SELECT mo_ctl('dn','flush','{table_id:d}')"


CHECKPOINT = "SELECT mo_ctl('dn','checkpoint','')"  # flushes all tables of the cluster


# -- the rows of the login's own database


def select_rows(database: str, table: str, columns: Iterable[str], snapshot: str, where: str = "") -> str:
    """`where`: a condition, of `in_range` for example; empty for all rows."""
    names = ", ".join(map(identifier, columns))
    return f"SELECT {names} FROM {_at(database, table, snapshot)}{where and f' WHERE {where}'}"


def select_sums(database: str, table: str, expressions: Iterable[str], snapshot: str) -> str:
    return f"SELECT {', '.join(expressions)} FROM {_at(database, table, snapshot)}"


def count_rows(database: str, table: str, snapshot: str) -> str:
    return f"SELECT COUNT(*) FROM {_at(database, table, snapshot)}"


def select_places(database: str, table: str, snapshot: str) -> str:
    """How many rows there are, and a digest of where the server has them: two snapshots of a table of which both are
    equal have the same rows (docs/upstream.md, "Where rows lie")."""
    return f"SELECT COUNT(*), BIT_XOR(HASH_VALUE(__mo_rowid)) FROM {_at(database, table, snapshot)}"


def select_ends(database: str, table: str, column: str, snapshot: str) -> str:
    """The least and the greatest value of a column."""
    return f"SELECT MIN({identifier(column)}), MAX({identifier(column)}) FROM {_at(database, table, snapshot)}"


def in_range(column: str, first: int | None, stop: int | None) -> str:
    """The condition that a whole number is at least `first` and below `stop`; None: no such limit."""
    limits = ((">=", first), ("<", stop))
    return " AND ".join(f"{identifier(column)} {sign} {limit:d}" for sign, limit in limits if limit is not None)


def branch_diff(
    database: str, table: str, newer: str, older: str, *, before: str | None = None, count: bool = False
) -> str:
    """The rows of a table that differ between two snapshots of the login's own account, or their number. `before`: the
    table's name at the older one, if it has another."""
    compared = f"{_at(database, table, newer)} AGAINST {_at(database, before or table, older)}"
    return f"DATA BRANCH DIFF {compared}{' OUTPUT COUNT' if count else ''}"


def _at(database: str, table: str, snapshot: str) -> str:
    shown = string(stored_word(snapshot, "snapshot"))
    return f"{identifier(database)}.{identifier(table)} {{SNAPSHOT = {shown}}}"


UTC_SESSION = "SET time_zone = '+00:00'"  # from now on the session prints timestamps in UTC


# -- the database at a snapshot


def databases(publisher: str, publication: str, database: str) -> str:
    """At present, not at a snapshot. The server returns the database's name without looking it up, so this only shows
    whether the login may run internal commands."""
    level = "account" if database == EVERYTHING else "database"
    scope = database if level == "database" and can_be_word(database) else NOTHING
    return f"__++__internal_get_databases {NOTHING} {_through(publisher, publication)} {level} {scope} {NOTHING}"


def ddl(snapshot: str, publisher: str, publication: str, database: str | None, table: str | None) -> str:
    """The CREATE statements of one table; of all tables of the database (table None); of all databases (both None)."""
    level = "account" if database is None else "database" if table is None else "table"
    scope = NOTHING if database is None else word(database, "database")
    if table is not None and not can_be_table_word(table):
        raise BadWord("the table name cannot be passed to the upstream", subject=f"table {table!r}")
    single = NOTHING if table is None else table
    return f"__++__internal_get_ddl {_shown_by(snapshot, publisher, publication)} {level} {scope} {single}"


def show_create_table(database: str, table: str, snapshot: str) -> str:
    """For a login of the account that has the database."""
    return f"SHOW CREATE TABLE {identifier(database)}.{identifier(table)} {{snapshot = {string(snapshot)}}}"


OWN_ACCOUNT = "SELECT current_account_name(), current_account_id()"


def indexes(table_id: int, publisher: str, publication: str, snapshot: str) -> str:
    through, shown = _through(publisher, publication), stored_word(snapshot, "snapshot")
    return f"__++__internal_get_mo_indexes {table_id:d} {through} {shown}"


def object_list(snapshot: str, against: str | None, publisher: str, publication: str) -> str:
    older = NOTHING if against is None else stored_word(against, "snapshot")
    return f"__++__internal_object_list {stored_word(snapshot, 'snapshot')} {older} {_through(publisher, publication)}"


def get_object(publisher: str, publication: str, name: str, chunk: int) -> str:
    return f"__++__internal_get_object {_through(publisher, publication)} {word(name, 'object')} {chunk:d}"


# -- catalog tables


def _select(columns: Iterable[str], table: str, physical: int | None, where: str = "") -> str:
    """Of a table of the catalog, at a time or now."""
    at = "" if physical is None else f" {{mo_ts = {physical:d}}}"
    return f"SELECT {', '.join(columns)} FROM mo_catalog.{table}{at}{where and f' WHERE {where}'}"


def _of(account_id: int, database: str, column: str = "reldatabase") -> str:
    return f"account_id = {account_id:d} AND {column} = {string(database)}"


def select_databases(account_id: int, database: str, physical: int | None = None) -> str:
    return _select(DATABASE_COLUMNS, "mo_database", physical, _of(account_id, database, "datname"))


def select_all_databases(account_id: int, physical: int | None = None) -> str:
    return _select(DATABASE_COLUMNS, "mo_database", physical, f"account_id = {account_id:d}")


def select_versions(account_id: int, database: str, physical: int) -> str:
    """The version of each table of the database, which every change of its definition raises."""
    return _select(VERSION_COLUMNS, "mo_tables", physical, _of(account_id, database))


def select_tables(account_id: int, database: str, physical: int | None = None, table: str | None = None) -> str:
    single = "" if table is None else f" AND relname = {string(table)}"
    return _select(TABLE_COLUMNS, "mo_tables", physical, _of(account_id, database) + single)


def select_names(account_id: int, database: str, physical: int) -> str:
    """Of all that `select_tables` has."""
    return _select(NAME_COLUMNS, "mo_tables", physical, _of(account_id, database))


def checksum_tables(account_id: int, database: str, physical: int | None) -> str:
    """How many rows `select_tables` has, and a checksum of them that does not depend on their order."""
    return _select(_checksum(SUMMED_TABLE_COLUMNS), "mo_tables", physical, _of(account_id, database))


def checksum_columns(account_id: int, database: str, physical: int) -> str:
    """The same of `select_columns`."""
    return _select(_checksum(SUMMED_COLUMN_COLUMNS), "mo_columns", physical, _of(account_id, database, "att_database"))


def _checksum(columns: Iterable[str]) -> tuple[str, str]:
    """The number of rows and the XOR of an MD5 of each, 128 bits (docs/upstream.md, "Checksums of the catalog"). Each
    value has its length before it, -1 for NULL, so that no two rows have the same text."""
    values = ", ".join(f"COALESCE(LENGTH({name}), -1), {name}" for name in map(identifier, columns))
    count, checksum = SUM_COLUMNS
    digest = f"CAST(UNHEX(MD5(CONCAT_WS(',', {values}))) AS BINARY(16))"
    return f"COUNT(*) AS {count}", f"BIT_XOR({digest}) AS {checksum}"


def select_created(account_id: int, database: str, physical: int | None = None) -> str:
    """The statements that created the database's tables."""
    return _select(CREATED_COLUMNS, "mo_tables", physical, _of(account_id, database))


def select_views(account_id: int, database: str, physical: int) -> str:
    """The texts of the database's views."""
    return _select(VIEW_COLUMNS, "mo_tables", physical, f"{_of(account_id, database)} AND relkind = 'v'")


def select_sequence(database: str, name: str, physical: int) -> str:
    """The row of a sequence of the login's own account."""
    place = f"{identifier(database)}.{identifier(name)}"
    return f"SELECT {', '.join(SEQUENCE_COLUMNS)} FROM {place} {{mo_ts = {physical:d}}}"


def select_functions(database: str, physical: int) -> str:
    """Functions of the login's own account."""
    return _select(FUNCTION_COLUMNS, "mo_user_defined_function", physical, f"db = {string(database)}")


def select_grants(physical: int) -> str:
    """What the roles of the login's own account may do, in all of its databases."""
    return _select(GRANT_COLUMNS, "mo_role_privs", physical, "obj_type IN ('database', 'table', 'view')")


def select_row_rules(physical: int | None = None) -> str:
    """Which rows the roles of the login's own account see."""
    return _select(ROW_RULE_COLUMNS, "mo_role_rule", physical)


def select_roles(physical: int | None = None) -> str:
    """The roles of the login's own account."""
    return _select(ROLE_COLUMNS, "mo_role", physical)


def select_extra(account_id: int, database: str, physical: int) -> str:
    """What the server remembers of the database's tables, among it whose partitions they are."""
    return _select(EXTRA_COLUMNS, "mo_tables", physical, _of(account_id, database))


def select_columns(account_id: int, database: str, physical: int | None = None, column: str | None = None) -> str:
    """Of all tables of the database; with `column` those of this name."""
    single = "" if column is None else f" AND attname = {string(column)}"
    return _select(COLUMN_COLUMNS, "mo_columns", physical, _of(account_id, database, "att_database") + single)


def select_snapshots(prefix: str) -> str:
    """Names of the login's own account that begin so. `_` stands for any character: what comes has to be checked."""
    return f"SELECT sname FROM mo_catalog.mo_snapshots WHERE sname LIKE {string(prefix + '%')}"


# -- accounts and publications


def select_account(name: str) -> str:
    return f"SELECT account_id FROM mo_catalog.mo_account WHERE account_name = {string(name.lower())}"


ALL_ACCOUNTS = "SELECT account_id, account_name FROM mo_catalog.mo_account"


def select_owners(database: str) -> str:
    """The numbers of the accounts that have a database of this name."""
    return f"SELECT account_id FROM mo_catalog.mo_database WHERE datname = {string(database)}"


def select_publication(publisher: str, publication: str, physical: int | None = None) -> str:
    where = f"account_name = {string(publisher.lower())} AND pub_name = {string(publication.lower())}"
    return _select(PUBLICATION_COLUMNS, "mo_pubs", physical, where)


def select_publications(database: str | None = None) -> str:
    """Publications of the database, and of whole accounts; None: all."""
    where = "" if database is None else f"database_name IN ({string(database)}, '*')"
    return _select(PUBLICATION_COLUMNS, "mo_pubs", None, where)


def show_coverage(publication: str) -> str:
    return f"SHOW PUBLICATION COVERAGE {identifier(stored_word(publication, 'publication'))}"


SERVER_VERSION = "SELECT version()"

SERVER_KIND = "SELECT @@version_comment"

SERVER_TIME = "SELECT utc_timestamp()"

CURRENT_ROLE = "SELECT current_role_name()"


# -- probes: what the answer, or the error, says of the upstream

PROBE_LOGICAL_ID = "SELECT rel_logical_id FROM mo_catalog.mo_tables LIMIT 1"

PROBE_ZERO_DATE = "SELECT DATE('0000-00-00')"


def probe_checksum() -> str:
    """Of a database that every login sees."""
    return checksum_tables(0, "mo_catalog", None)


PROBE_FLUSH = "SELECT mo_ctl('dn','flush','ccpr')"  # an error in any case: there is no table of that name


# -- for messages: what an admin of the publishing account has to run; never sent


def create_publication(publication: str, database: str, table: str | None, accounts: str) -> str:
    single = "" if table is None else f" TABLE {identifier(table)}"
    scope = EVERYTHING if database == EVERYTHING else identifier(database)
    return f"CREATE PUBLICATION {identifier(publication)} DATABASE {scope}{single} ACCOUNT {accounts}"


def publish_tables(publication: str, database: str, tables: Iterable[str]) -> str:
    names = ", ".join(identifier(table) for table in tables)
    return f"ALTER PUBLICATION {identifier(publication)} DATABASE {identifier(database)} TABLE {names}"


def admit_account(publication: str, account: str | None) -> str:
    """`account` None: all accounts."""
    change = "ALL" if account is None else f"ADD {identifier(account)}"
    return f"ALTER PUBLICATION {identifier(publication)} ACCOUNT {change}"
