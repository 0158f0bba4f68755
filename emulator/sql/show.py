"""SHOW and DESCRIBE on a simulated upstream.

SHOW [FULL] TABLES [FROM d] [LIKE 'pattern']   SHOW CREATE TABLE t      SHOW CREATE DATABASE d
SHOW [FULL] COLUMNS FROM t    DESC t           SHOW INDEX FROM t
"""

import re
from collections.abc import Callable, Iterator, Sequence

from emulator.engine.definitions import Definition, create_table
from emulator.engine.storage import Storage
from emulator.sql.ddl import table_name
from matrixone.sql.quoting import in_backquotes
from wire.catalog import UTF8, like_pattern
from wire.server import VAR_STRING, Cell, ResultColumn, ResultSet, StatementError
from wire.statements import Tokens

_KINDS = {
    "tables": "show_tables",
    "columns": "show_columns",
    "fields": "show_columns",
    "index": "show_index",
    "indexes": "show_index",
    "keys": "show_index",
}


def kind_of(words: Sequence[str]) -> str | None:
    """The kind of a statement by its first three words, in lower case."""
    first, second, third = words
    if first in ("desc", "describe"):
        return "describe"
    if first != "show":
        return None
    if second == "create":
        return f"show_create_{third}" if third in ("table", "database") else None
    return _KINDS.get(third if second == "full" else second)


def is_kind(kind: str) -> bool:
    return kind in ("describe", "show_create_table", "show_create_database", *_KINDS.values())


def parse(kind: str, tokens: Tokens, storage: Storage, account: str, database: str) -> Callable[[], ResultSet]:
    """Read the statement; what is returned answers it. Raises StatementError."""
    tokens.next()
    if kind == "show_tables":
        return _tables(tokens, storage, account, database)
    if kind == "show_create_database":
        tokens.next()
        tokens.next()
        name = storage.database(tokens.name().lower(), account=account).name
        return lambda: _texts(("Database", "Create Database"), [(name, f"CREATE DATABASE {in_backquotes(name)}")])
    if kind == "show_create_table":
        tokens.next()
        tokens.next()
    elif kind != "describe":
        tokens.accept("full")
        tokens.next()
        if not tokens.accept("from"):
            tokens.expect("in")
    names = table_name(tokens, database, needs_database=False)
    if kind in ("show_columns", "show_index") and (tokens.accept("from") or tokens.accept("in")):
        names = tokens.name().lower(), names[1]
    if not names[0]:
        raise StatementError(1046, "No database selected", "3D000")
    definition = storage.table(*names, account=account).definition
    if kind == "show_create_table":
        text = create_table(definition).replace(f"{in_backquotes(definition.database)}.", "", 1)
        return lambda: _texts(("Table", "Create Table"), [(definition.name, text)])
    if kind == "show_index":
        return lambda: _texts(
            ("Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name"), list(_indexed(definition))
        )
    return lambda: _texts(("Field", "Type", "Null", "Key", "Default", "Extra", "Comment"), list(_columns(definition)))


def _tables(tokens: Tokens, storage: Storage, account: str, database: str) -> Callable[[], ResultSet]:
    full = tokens.accept("full")
    tokens.next()
    if tokens.accept("from") or tokens.accept("in"):
        database = tokens.name().lower()
    pattern = tokens.text() if tokens.accept("like") else "%"
    if not database:
        raise StatementError(1046, "No database selected", "3D000")
    like = re.compile(like_pattern(pattern), re.DOTALL)

    def answer() -> ResultSet:
        names = sorted(
            definition.name
            for _, definition in storage.tables_at(storage.now, account=account)
            if definition.database == database.lower() and like.fullmatch(definition.name)
        )
        if full:
            return _texts((f"Tables_in_{database}", "Table_type"), [(name, "BASE TABLE") for name in names])
        return _texts((f"Tables_in_{database}",), [(name,) for name in names])

    return answer


def _columns(definition: Definition) -> Iterator[tuple[Cell, ...]]:
    unique = {index.columns[0] for index in definition.indexes if index.unique}
    indexed = {index.columns[0] for index in definition.indexes}
    for column in definition.user_columns:
        name = column.name
        key = "PRI" if name in definition.primary_key else "UNI" if name in unique else "MUL" if name in indexed else ""
        yield name, definition.type_texts[name].upper(), "YES" if column.nullable else "NO", key, None, "", ""


def _indexed(definition: Definition) -> Iterator[tuple[Cell, ...]]:
    for number, name in enumerate(definition.primary_key, 1):
        yield definition.name, 0, "PRIMARY", number, name
    for index in definition.indexes:
        for number, name in enumerate(index.columns, 1):
            yield definition.name, int(not index.unique), index.name, number, name


def _texts(names: tuple[str, ...], rows: list[tuple[Cell, ...]]) -> ResultSet:
    return ResultSet(tuple(ResultColumn(name, VAR_STRING, UTF8) for name in names), rows)
