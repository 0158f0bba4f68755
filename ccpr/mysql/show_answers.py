"""SHOW, DESCRIBE and the variables that clients ask for when they connect, and in their trees of databases."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from ccpr.matrixone.server.answers import VAR_STRING, ResultColumn, ResultSet, StatementError
from ccpr.matrixone.server.like import Like
from ccpr.matrixone.server.select_values import variables_of
from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.mirror.points import TableRef
from ccpr.mysql.catalog_tables import (
    CHARACTER_SET,
    COLLATION,
    ENGINE,
    INFORMATION_SCHEMA,
    MO_CATALOG,
    column_rows,
    index_rows,
    table_row,
)
from ccpr.mysql.replicas import Database
from ccpr.mysql.statement_text import refused

_UTF8 = 45
_CHARSETS: Final = frozenset(("utf8", "utf8mb3", "utf8mb4"))
VARIABLES: Final[Mapping[str, str | int]] = {
    **variables_of("ccpr"),
    "version_comment": "matrixone-ccpr, a replica of MatrixOne to read from",
    "collation_connection": "utf8mb4_bin",
    "read_only": 1,
    "transaction_read_only": 1,
    "sql_select_limit": 2**64 - 1,
    "max_execution_time": 0,
    "have_ssl": "DISABLED",
    "query_cache_type": "OFF",
    "query_cache_size": 0,
    "performance_schema": 0,
    "socket": "",
}
# What a client may set, since it changes no answer: with these values, or (None) with any. Texts are compared by bytes,
# whatever collation a connection has.
_ANY_VALUE: Final = (
    "autocommit collation_connection sql_mode transaction_isolation tx_isolation transaction_read_only "
    "net_write_timeout net_read_timeout wait_timeout interactive_timeout sql_quote_show_create foreign_key_checks "
    "unique_checks sql_safe_updates profiling lock_wait_timeout innodb_lock_wait_timeout max_allowed_packet "
    "session_track_schema session_track_system_variables session_track_state_change session_track_transaction_info "
    "collation_server collation_database sql_big_selects max_join_size sql_notes sql_warnings sql_log_bin sql_log_off "
    "optimizer_switch sort_buffer_size join_buffer_size tmp_table_size max_heap_table_size query_cache_type "
    "default_storage_engine"
)
_CHARSETS_SET: Final = "names character_set_client character_set_connection character_set_server character_set_database"
SETTABLE: Final[Mapping[str, frozenset[str] | None]] = {
    **dict.fromkeys(_ANY_VALUE.split()),
    **dict.fromkeys(_CHARSETS_SET.split(), _CHARSETS),
    "character_set_results": _CHARSETS | {"null", ""},
    "time_zone": frozenset(("system", "utc", "+00:00", "+0:00")),
    "sql_auto_is_null": frozenset("0"),
    "group_concat_max_len": frozenset(("1024",)),
}
# Of sql_mode: with them a statement would mean something else.
_MODES: Final = (
    "ansi ansi_quotes no_backslash_escapes high_not_precedence real_as_float pad_char_to_full_length "
    "time_truncate_fractional no_unsigned_subtraction oracle mssql db2 postgresql maxdb"
)
MODES_REFUSED: Final = frozenset(_MODES.split())


class ShowingSession(Protocol):
    """What a session knows."""

    user: str
    number: int
    address: str
    database: str

    def databases(self) -> Mapping[str, Database]: ...
    def refs(self, database: Database) -> Sequence[TableRef]: ...
    def known(self, name: str) -> Database: ...


def show(session: ShowingSession, text: str) -> ResultSet:
    """The answer to SHOW, DESCRIBE and DESC. Raises StatementError, StatementRefused."""
    tokens = Tokens(text, "port for MySQL clients")
    if tokens.accept("describe") or tokens.accept("desc"):
        if tokens.at("select", "with"):
            raise refused("EXPLAIN")
        return _columns(session, tokens, full=False)
    tokens.accept("show")
    full = tokens.accept("full") or tokens.accept("extended")
    for words, answer in _SHOWN.items():
        if tokens.accept(*words.split()):
            return answer(session, tokens, full)
    raise refused(f"SHOW {tokens.next() if not tokens.at_end() else '':.30}".strip())


def texts(head: str | Sequence[str], rows: Iterable[Sequence[Any]]) -> ResultSet:
    """`head` has the columns' names, in one text with commas between."""
    cells = [tuple(None if cell is None else str(cell) for cell in row) for row in rows]
    names = head.split(",") if isinstance(head, str) else head
    return ResultSet(tuple(ResultColumn(name, VAR_STRING, _UTF8) for name in names), cells)


def _databases(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    names = [INFORMATION_SCHEMA, MO_CATALOG, *(one.shown for one in session.databases().values())]
    return texts("Database", [(name,) for name in _liked(tokens, sorted(names))])


def _tables(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    database, names = _of_database(session, tokens), list[str]()
    if database.lower() not in (INFORMATION_SCHEMA, MO_CATALOG):
        names = [ref.name for ref in session.refs(session.known(database))]
    cells = ("BASE TABLE",) if full else ()
    head = [f"Tables_in_{database}", "Table_type"][: 1 + full]
    return texts(head, [(one, *cells) for one in _liked(tokens, names)])


def _columns(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    if not tokens.accept("from"):
        tokens.accept("in")
    database, ref = _table(session, tokens)
    rows = column_rows(database.definition(ref))
    if not tokens.at_end() and not tokens.at("like", ";", "where"):  # DESCRIBE t column
        wanted = [tokens.text() if tokens.kind == "text" else tokens.name()]
    else:
        wanted = _liked(tokens, [row["COLUMN_NAME"] for row in rows])
    head = "Field,Type,Null,Key,Default,Extra"
    keys = ["COLUMN_NAME", "COLUMN_TYPE", "IS_NULLABLE", "COLUMN_KEY", "COLUMN_DEFAULT", "EXTRA"]
    if full:
        head = "Field,Type,Collation,Null,Key,Default,Extra,Privileges,Comment"
        keys = [*keys[:2], "COLLATION_NAME", *keys[2:], "PRIVILEGES", "COLUMN_COMMENT"]
    return texts(head, [[row[key] for key in keys] for row in rows if row["COLUMN_NAME"] in wanted])


def _indexes(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    if not tokens.accept("from"):
        tokens.expect("in")
    database, ref = _table(session, tokens)
    head = "Table,Non_unique,Key_name,Seq_in_index,Column_name,Collation,Cardinality,Sub_part,Packed,Null,Index_type"
    keys = (
        "NON_UNIQUE",
        "INDEX_NAME",
        "SEQ_IN_INDEX",
        "COLUMN_NAME",
        "COLLATION",
        "",
        "",
        "",
        "NULLABLE",
        "INDEX_TYPE",
    )
    rows = index_rows(database.definition(ref))
    return texts(f"{head},Comment,Index_comment", [[ref.name, *(row.get(key) for key in keys), "", ""] for row in rows])


def _create_table(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    """A bool is what tools know of it, as everywhere."""
    database, ref = _table(session, tokens)
    table = database.definition(ref)
    ddl = re.sub(r"(?m)^(\s+`(?:[^`]|``)+`) bool(?:ean)?\b", r"\1 tinyint(1)", table.ddl, flags=re.IGNORECASE)
    return texts("Table,Create Table", [(ref.name, ddl)])


def _create_database(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    name = session.known(tokens.name()).shown
    return texts("Database,Create Database", [(name, f"CREATE DATABASE {quote_name(name)}")])


def _status(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    database = session.known(_of_database(session, tokens))
    refs = {ref.name: ref for ref in session.refs(database)}
    head = (
        "Name,Engine,Version,Row_format,Rows,Avg_row_length,Data_length,Max_data_length,Index_length,Data_free,"
        "Auto_increment,Create_time,Update_time,Check_time,Collation,Checksum,Create_options,Comment"
    )
    keys = {"Name": "TABLE_NAME", "Rows": "TABLE_ROWS"}
    rows = [table_row(database, refs[name]) for name in _liked(tokens, list(refs))]
    names = [keys.get(one, one.upper()) for one in head.split(",")]
    return texts(head, [[row.get(one, row.get(f"TABLE_{one}")) for one in names] for row in rows])


def _variables(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    found = sorted(VARIABLES)
    if tokens.accept("where"):
        wanted = set[str]()
        while True:
            if tokens.name().lower() != "variable_name":
                raise refused("SHOW VARIABLES WHERE of something else than names")
            if tokens.accept("in", "("):
                wanted.add(tokens.text().lower())
                while tokens.accept(","):
                    wanted.add(tokens.text().lower())
                tokens.expect(")")
            elif tokens.accept("like"):
                like = Like(tokens.text(), ignore_case=True)
                wanted |= {name for name in found if like.matches(name)}
            else:
                tokens.expect("=")
                wanted.add(tokens.text().lower())
            if not tokens.accept("or"):
                break
        found = [name for name in found if name in wanted]
    return texts("Variable_name,Value", [(name, VARIABLES[name]) for name in _liked(tokens, found, ignore_case=True)])


def _grants(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    return texts(f"Grants for {session.user}@%", [(f"GRANT SELECT ON *.* TO `{session.user}`@`%`",)])


def _processes(session: ShowingSession, tokens: Tokens, full: bool) -> ResultSet:
    """Itself: others are nobody's business."""
    row = session.number, session.user, session.address, session.database or None, "Query", 0, "", None
    return texts("Id,User,Host,db,Command,Time,State,Info", [row])


def _fixed(head: str, *row: str | int) -> Any:
    """What is the same for all, whatever is asked of it: one row, or none."""
    return lambda session, tokens, full: texts(head, [row] if row else [])


_ROUTINES = _fixed("Db,Name,Type,Definer,Modified,Created")
_SHOWN: Mapping[str, Any] = {
    **dict.fromkeys(("databases", "schemas"), _databases),
    "tables": _tables,
    "table status": _status,
    **dict.fromkeys(("columns", "fields"), _columns),
    **dict.fromkeys(("index", "indexes", "keys"), _indexes),
    "create table": _create_table,
    **dict.fromkeys(("create database", "create schema"), _create_database),
    **dict.fromkeys(("variables", "session variables", "global variables"), _variables),
    **dict.fromkeys(("status", "session status", "global status"), _fixed("Variable_name,Value")),
    "grants": _grants,
    "privileges": _fixed("Privilege,Context,Comment", "Select", "Tables", "To read rows"),
    "processlist": _processes,
    "errors": _fixed("Level,Code,Message"),
    **dict.fromkeys(("procedure status", "function status"), _ROUTINES),
    "triggers": _fixed("Trigger,Event,Table,Statement,Timing,Created"),
    "events": _fixed("Db,Name,Definer,Time zone,Type"),
    "plugins": _fixed("Name,Status,Type,Library,License"),
    "collation": _fixed("Collation,Charset,Id,Default,Compiled,Sortlen", *COLLATION.values()),
    **dict.fromkeys(
        ("character set", "charset"),
        _fixed("Charset,Description,Default collation,Maxlen", *CHARACTER_SET.values()),
    ),
    "engines": _fixed("Engine,Support,Comment,Transactions,XA,Savepoints", *ENGINE.values()),
}


def _liked(tokens: Tokens, names: Sequence[str], *, ignore_case: bool = False) -> list[str]:
    if tokens.accept("like"):
        like = Like(tokens.text(), ignore_case=ignore_case)
        names = [name for name in names if like.matches(name)]
    tokens.accept(";")
    if not tokens.at_end():
        raise refused(f"SHOW … {tokens.next():.20}")
    return list(names)


def _of_database(session: ShowingSession, tokens: Tokens) -> str:
    if tokens.accept("from") or tokens.accept("in"):
        return tokens.name()
    return session.database


def _table(session: ShowingSession, tokens: Tokens) -> tuple[Database, TableRef]:
    name, database = tokens.name(), session.database
    if tokens.accept("."):
        database, name = name, tokens.name()
    elif tokens.accept("from") or tokens.accept("in"):
        database = tokens.name()
    found = session.known(database)
    for ref in session.refs(found):
        if ref.name.lower() == name.lower():
            return found, ref
    raise StatementError(1146, f"Table '{database}.{name}' doesn't exist", "42S02")
