"""SHOW and DESCRIBE on a simulated upstream.

SHOW [FULL] TABLES [FROM d] [LIKE 'pattern']   SHOW CREATE TABLE | VIEW | DATABASE      SHOW TABLE STATUS [FROM d]
SHOW CREATE TABLE t {snapshot = 's'}
SHOW [FULL] COLUMNS FROM t    DESC t [column]  SHOW INDEX FROM t                        SHOW SEQUENCES
and what clients ask when they connect: ENGINES, COLLATION, CHARSET, STATUS, PROCESSLIST, GRANTS, PRIVILEGES, PLUGINS,
PROCEDURE STATUS, FUNCTION STATUS, TRIGGERS, EVENTS, WARNINGS, ERRORS.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ccpr.matrixone.objects import types
from ccpr.matrixone.server.answers import BIGINT, VAR_STRING, Cell, ResultColumn, ResultSet, StatementError
from ccpr.matrixone.server.backing import Login, internal
from ccpr.matrixone.server.like import Like
from ccpr.matrixone.server.mo_catalog import UTF8
from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.server.upstream import Release
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr_emulator.engine.definitions import Definition, create_table
from ccpr_emulator.engine.entries import SEQUENCE, TABLE, VIEW, TableEntry
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.names import table_name
from ccpr_emulator.sql.system import ENGINES, default_of, extra_of, information, key_of, relations

_KINDS = {
    "tables": "show_tables",
    "columns": "show_columns",
    "fields": "show_columns",
    "index": "show_index",
    "indexes": "show_index",
    "keys": "show_index",
    "sequences": "show_sequences",
}
_COLLATION = ("Collation", "Charset", "Id", "Default", "Compiled", "Sortlen")
_ROUTINE = ("Db", "Name", "Type", "Definer", "Modified", "Created", "Security_type", "Comment")
# What is the same for all users: columns and rows, by the words after SHOW.
_FIXED: dict[str, tuple[tuple[str, ...], list[tuple[Cell, ...]]]] = {
    "engines": (("Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"), [ENGINES]),
    "storage": (("Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"), [ENGINES]),
    "collation": (_COLLATION, [("utf8mb4_bin", "utf8mb4", "46", "Yes", "Yes", "1")]),
    "charset": (
        ("Charset", "Description", "Default collation", "Maxlen"),
        [("utf8mb4", "UTF-8 Unicode", "utf8mb4_bin", "4")],
    ),
    "privileges": (("Privilege", "Context", "Comment"), []),
    "plugins": (("Name", "Status", "Type", "Library", "License"), []),
    "procedure": (_ROUTINE, []),
    "function": (_ROUTINE, []),
    "triggers": (("Trigger", "Event", "Table", "Statement", "Timing", "Created"), []),
    "events": (("Db", "Name", "Definer", "Time zone", "Type", "Status"), []),
    "status": (("Variable_name", "Value"), [("Uptime", "1"), ("Threads_connected", "1")]),
    "errors": (("Level", "Code", "Message"), []),
    "profiles": (("Query_ID", "Duration", "Query"), []),
    "open": (("Database", "Table", "In_use", "Name_locked"), []),
    "master": (("File", "Position"), []),
    "slave": (("Slave_IO_State",), []),
    "replica": (("Replica_IO_State",), []),
    "binary": (("Log_name", "File_size"), []),
}
_FIXED["character"] = _FIXED["charset"]


class Shown(Protocol):
    """What SHOW needs of a session."""

    login: Login
    database: str
    number: int
    release: Release

    @property
    def storage(self) -> Storage: ...


def kind_of(words: Sequence[str]) -> str | None:
    """The kind of a statement by its first three words, in lower case."""
    first, second, third = words
    if first in ("desc", "describe"):
        return "describe" if second not in ("select", "insert", "update", "delete", "with") else None
    if first != "show":
        return None
    if second == "create":
        return f"show_create_{third}" if third in ("table", "database", "view", "schema") else None
    if (second, third) == ("table", "status"):
        return "show_table_status"
    word = third if second in ("full", "global", "session", "extended") else second
    if word in ("processlist", "grants"):
        return f"show_{word}"
    if word in _FIXED and word != "create":
        return f"show_{word}"
    return _KINDS.get(word)


def parse(kind: str, tokens: Tokens, session: Shown) -> Callable[[], ResultSet]:
    """Read the statement; what is returned answers it. Raises StatementError."""
    storage, account, database = session.storage, session.login.account, session.database
    tokens.next()
    is_full = False
    word = kind.removeprefix("show_")
    if word in _FIXED or word in ("processlist", "grants"):
        tokens.skip_rest()
        return lambda: _fixed(word, session)
    if kind in ("show_tables", "show_table_status", "show_sequences"):
        return _tables(kind, tokens, storage, account, database)
    if kind in ("show_create_database", "show_create_schema"):
        tokens.next()
        tokens.next()
        tokens.accept("if", "not", "exists")
        name = storage.database(tokens.name().lower(), account=account).name
        return lambda: _texts(("Database", "Create Database"), [(name, f"CREATE DATABASE {in_backquotes(name)}")])
    if kind in ("show_create_table", "show_create_view"):
        tokens.next()
        tokens.next()
    elif kind != "describe":
        tokens.accept("full")
        tokens.accept("extended")
        is_full = tokens.tokens[1].is_word("FULL")
        tokens.next()
        if not tokens.accept("from"):
            tokens.expect("in")
    names = table_name(tokens, database, needs_database=False)
    if kind in ("show_columns", "show_index") and (tokens.accept("from") or tokens.accept("in")):
        names = tokens.name().lower(), names[1]
    if not names[0]:
        raise StatementError(1046, "No database selected", "3D000")
    if kind == "show_create_table" and (tick := snapshot_tick(tokens, session)) is not None:
        found = table_at(session, *names, tick)
        return lambda: _create(*found)
    entry = storage.find(*names, account=account)
    if entry is None:
        entry = storage.table(*names, account=account)
    if kind in ("show_create_table", "show_create_view"):
        return lambda: _create(entry, entry.definition)
    if kind == "show_index":
        like, keep = None, _where_key(tokens)
        return lambda: _index_rows(storage, account, (entry.definition.database, entry.definition.name), keep)
    like = tokens.text() if tokens.accept("like") else None
    if like is None and kind == "describe" and not tokens.at_end() and not tokens.at(";"):
        like = tokens.next()
    pattern = Like(like if like is not None else "%", ignore_case=True)
    rows = [row for row in _columns(entry.definition) if pattern.matches(str(row[0]))]
    if kind == "show_columns" and is_full:
        names = ("Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment")
        is_text = {column.name: column.type.oid in types.TEXT_TYPES for column in entry.definition.columns}
        rights = "select,insert,update,references"
        full = [(*row[:2], "utf8mb4_bin" if is_text[str(row[0])] else None, *row[2:6], rights, row[6]) for row in rows]
        return lambda: _texts(names, full)
    return lambda: _texts(("Field", "Type", "Null", "Key", "Default", "Extra", "Comment"), rows)


def _where_key(tokens: Tokens) -> str | None:
    """``WHERE Key_name = 'x'``: all that clients ask of an index list."""
    if not tokens.accept("where"):
        return None
    tokens.name()
    tokens.expect("=")
    return tokens.text()


def _fixed(word: str, session: Shown) -> ResultSet:
    user = f"{session.login.user}"
    if word == "processlist":
        columns = ("Id", "User", "Host", "db", "Command", "Time", "State", "Info")
        return _texts(
            columns, [(session.number, user, "127.0.0.1", session.database, "Query", 0, "", "SHOW PROCESSLIST")]
        )
    if word == "grants":
        return _texts((f"Grants for {user}@localhost",), [(f"GRANT ALL ON *.* TO `{user}`@`localhost`",)])
    return _texts(*_FIXED[word])


def snapshot_tick(tokens: Tokens, session: Shown) -> int | None:
    """The tick of a snapshot of the session's account, if one is named here: `{snapshot = 'name'}`. Raises 20101 if
    there is none of that name."""
    if not tokens.accept("{"):
        return None
    tokens.expect("snapshot", "=")
    name = tokens.text()
    tokens.expect("}")
    taken = session.storage.snapshots.get((session.login.account, name.lower()))
    if taken is None:
        raise internal(f"find 0 snapshot records by name({name}), expect only 1")
    return taken.tick


def table_at(
    session: Shown, database: str, table: str, tick: int, kinds: Sequence[str] = (TABLE,)
) -> tuple[TableEntry, Definition]:
    """A table of the session's account at a snapshot's tick. Raises 1064."""
    at = session.storage.clock.time(tick)
    for entry, definition in session.storage.tables_at(at, account=session.login.account, kinds=kinds):
        if (definition.database, definition.name) == (database, table):
            return entry, definition
    raise StatementError(1064, f'SQL parser error: table "{table}" does not exist', "42000")


def _create(entry: TableEntry, definition: Definition) -> ResultSet:
    if entry.kind == VIEW:
        columns = ("View", "Create View", "character_set_client", "collation_connection")
        return _texts(columns, [(definition.name, definition.create_sql, "utf8mb4", "utf8mb4_bin")])
    if entry.kind == SEQUENCE:
        return _texts(("Table", "Create Table"), [(definition.name, definition.create_sql)])
    text = create_table(definition, constraints=True).replace(f"{in_backquotes(definition.database)}.", "", 1)
    return _texts(("Table", "Create Table"), [(definition.name, text)])


def _tables(kind: str, tokens: Tokens, storage: Storage, account: str, database: str) -> Callable[[], ResultSet]:
    full = tokens.accept("full")
    tokens.next()
    tokens.accept("status")
    if tokens.accept("from") or tokens.accept("in"):
        database = tokens.name().lower()
    pattern = "%"
    wanted: tuple[str, ...] = ()
    if tokens.accept("like"):
        pattern = tokens.text()
    elif tokens.accept("where"):
        field = tokens.name().lower()
        if tokens.accept("like"):
            pattern = tokens.text()
        elif tokens.accept("in"):
            tokens.expect("(")
            wanted = (tokens.text(),)
            while tokens.accept(","):
                wanted += (tokens.text(),)
            tokens.expect(")")
        else:
            tokens.expect("=")
            wanted = (tokens.text(),)
        if field != "table_type":
            pattern, wanted = (wanted[0] if wanted else pattern), ()
    if not database:
        raise StatementError(1046, "No database selected", "3D000")
    like = Like(pattern)

    def answer() -> ResultSet:
        found = [
            (entry, definition)
            for entry, definition in relations(storage, account)
            if definition.database == database.lower() and like.matches(definition.name)
        ]
        if kind == "show_sequences":
            return _texts(("Names", "Data Type"), [(d.name, "BIGINT") for entry, d in found if entry.kind == SEQUENCE])
        if kind == "show_table_status":
            return _status(storage, account, [(definition.database, definition.name) for _, definition in found])
        kinds = {VIEW: "VIEW", SEQUENCE: "SEQUENCE"}
        rows = [(definition.name, kinds.get(entry.kind, "BASE TABLE")) for entry, definition in found]
        rows = [row for row in rows if not wanted or row[1] in wanted]
        if full:
            return _texts((f"Tables_in_{database}", "Table_type"), rows)
        return _texts((f"Tables_in_{database}",), [row[:1] for row in rows])

    return answer


_STATUS = (
    "Name Engine Row_format Rows Avg_row_length Data_length Max_data_length Index_length Data_free Auto_increment "
    "Create_time Update_time Check_time Collation Checksum Create_options Comment"
)
_INDEX = (
    "Table Non_unique Key_name Seq_in_index Column_name Collation Cardinality Sub_part Packed Null Index_type Comment "
    "Index_comment Index_params Visible Expression"
)


def _projected(shown: str, names: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> ResultSet:
    """Rows of information_schema; `names` has what a column is called there, if it is called otherwise."""
    columns = tuple(shown.split())
    return _texts(columns, [tuple(row.get(names.get(name, name.upper())) for name in columns) for row in rows])


def _status(storage: Storage, account: str, tables: Sequence[tuple[str, str]]) -> ResultSet:
    names = {"Name": "TABLE_NAME", "Rows": "TABLE_ROWS", "Collation": "TABLE_COLLATION", "Comment": "TABLE_COMMENT"}
    found = information(storage, account, "tables")
    rows = (row for row in found if (row["TABLE_SCHEMA"], row["TABLE_NAME"]) in tables)
    return _projected(_STATUS, names, ({**row, "ROW_FORMAT": "Dynamic"} for row in rows))


def _columns(definition: Definition) -> Iterator[tuple[Cell, ...]]:
    for column in definition.user_columns:
        name = column.name
        shown = definition.type_texts[name].upper() if not column.labels else definition.type_texts[name]
        null, comment = "YES" if column.nullable else "NO", definition.attributes_of(name).comment
        more = key_of(definition, name), default_of(definition, name), extra_of(definition, name)
        yield name, shown, null, *more, comment


def _index_rows(storage: Storage, account: str, table: tuple[str, str], key: str | None) -> ResultSet:
    names, fixed = {"Table": "TABLE_NAME", "Key_name": "INDEX_NAME"}, {"INDEX_PARAMS": "", "VISIBLE": "YES"}
    found = information(storage, account, "statistics")
    rows = [row for row in found if (row["TABLE_SCHEMA"], row["TABLE_NAME"]) == table]
    return _projected(
        _INDEX, {**names, "Null": "NULLABLE"}, ({**row, **fixed} for row in rows if key in (None, row["INDEX_NAME"]))
    )


def _texts(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> ResultSet:
    numbers = {place for row in rows for place, cell in enumerate(row) if isinstance(cell, int)}
    columns = (
        ResultColumn(name, BIGINT, 63) if place in numbers else ResultColumn(name, VAR_STRING, UTF8)
        for place, name in enumerate(names)
    )
    return ResultSet(tuple(columns), list(rows))
