"""The `__++__internal_*` commands (docs/upstream.md 5): recognised by their prefix, split at white space, without
quoting."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ccpr.matrixone.server.answers import (
    BIGINT,
    BLOB_TEXT,
    INT,
    STRING,
    TINY,
    VAR_STRING,
    VARCHAR,
    Bytes,
    ResultColumn,
    ResultSet,
    StatementError,
)
from ccpr.matrixone.server.backing import (
    Aged,
    Login,
    ServedCatalog,
    Snapshot,
    internal,
    require_publication,
    require_sys,
)
from ccpr.matrixone.server.tokens import is_utf8
from ccpr.matrixone.server.upstream import Upstream

PREFIX: Final = "__++__internal_"
# The command and the words that must follow it, as its error text shows them.
COMMANDS: Final = {
    "get_snapshot_ts": "<snapshot> <publisher> <publication>",
    "get_snapshot_age": "<snapshot> <publisher> <publication>",
    "get_databases": "<snapshot> <publisher> <publication> <level> <database> <table>",
    "get_ddl": "<snapshot> <publisher> <publication> <level> <database> <table>",
    "get_mo_indexes": "<tableid> <publisher> <publication> <snapshot>",
    "check_snapshot_flushed": "<snapshot> <publisher> <publication>",
    "object_list": "<snapshot> <against> <publisher> <publication>",
    "get_object": "<publisher> <publication> <object> <chunk>",
}
OBJECT_LIST_COLUMNS: Final = (
    ResultColumn("db name", VAR_STRING),
    ResultColumn("table name", VAR_STRING),
    ResultColumn("stats", STRING),
    ResultColumn("create_at", VARCHAR),
    ResultColumn("delete_at", VARCHAR),
    ResultColumn("is_tombstone", TINY),
)
OBJECT_COLUMNS: Final = (
    ResultColumn("data", BLOB_TEXT),
    ResultColumn("total_size", BIGINT),
    ResultColumn("chunk_index", INT),
    ResultColumn("total_chunks", INT),
    ResultColumn("is_complete", TINY),
)


def command_of(text: str) -> tuple[str, list[str]] | None:
    """The command and its words; None if the text is not one of these commands."""
    if text[: len(PREFIX)].lower() != PREFIX:
        return None
    word, *rest = text[len(PREFIX) :].split()[:64] or [""]
    return (word.lower(), rest) if word.lower() in COMMANDS else None


def is_known(upstream: Upstream, command: str) -> bool:
    """Whether this upstream has the command of `COMMANDS`: only a relay says how old its data is."""
    return command != "get_snapshot_age" or upstream.name == "relay"


def answer(upstream: Upstream, login: Login, session: int, command: str, words: list[str]) -> ResultSet:
    """The answer to a command of `COMMANDS`; `session` is the number of this login in the counters."""
    expected = COMMANDS[command]
    if len(words) != len(expected.split()):
        raise internal(f"invalid {command} command format, expected {PREFIX}{command} {expected}")
    if not all(map(is_utf8, words)):
        raise internal(f"invalid {command} command: a word is not UTF-8")
    require_sys(login, command)
    publisher, publication = _named(expected, words, "<publisher>"), _named(expected, words, "<publication>")
    require_publication(upstream.backing, login, publisher, publication)
    upstream = replace(upstream, backing=upstream.backing.published(publisher, publication))
    if command == "get_object":
        return _get_object(upstream, session, words[2], words[3])
    handlers: dict[str, Callable[[Upstream, str, list[str]], ResultSet]] = {
        "get_snapshot_ts": _get_snapshot_ts,
        "get_snapshot_age": _get_snapshot_age,
        "get_databases": _get_databases,
        "get_ddl": _get_ddl,
        "get_mo_indexes": _get_mo_indexes,
        "check_snapshot_flushed": _check_snapshot_flushed,
        "object_list": _object_list,
    }
    return handlers[command](upstream, publisher, words)


def _named(expected: str, words: list[str], name: str) -> str:
    return words[expected.split().index(name)]


def _catalog(upstream: Upstream, publisher: str, word: str) -> ServedCatalog:
    """The catalog at the snapshot of this name; `-` is the present."""
    snapshot = None if word == "-" else upstream.backing.find_snapshot(publisher, word)
    return upstream.backing.catalog(publisher, snapshot)


def _get_snapshot_ts(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    return ResultSet(
        (ResultColumn("snapshotts", BIGINT),), ((upstream.backing.find_snapshot(publisher, words[0]).ts,),)
    )


def _get_snapshot_age(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    assert isinstance(upstream.backing, Aged)
    age = upstream.backing.snapshot_age(upstream.backing.find_snapshot(publisher, words[0]))
    return ResultSet((ResultColumn("age", BIGINT),), ((age,),))


def _get_databases(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    snapshot, _, _, level, database, _ = words
    catalog = _catalog(upstream, publisher, snapshot)
    if level in ("database", "table"):
        return ResultSet((ResultColumn("datname", VARCHAR),), (("" if database == "-" else database,),))
    return catalog.databases.result()


def _get_ddl(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    snapshot, _, _, _, database, table = words
    catalog = _catalog(upstream, publisher, snapshot)
    if database != "-" and not catalog.has_database(database):
        raise internal("failed to get database: ExpectedEOB")
    if table != "-" and (database == "-" or catalog.table(database, table) is None):
        raise internal(f"failed to get table: no such table {database}.{table}")
    whole = catalog.ddl.result()
    in_database, in_table = catalog.ddl.position("dbname"), catalog.ddl.position("tablename")
    rows = [
        row
        for row in whole.rows
        if (database == "-" or row[in_database] == database.encode())
        and (table == "-" or row[in_table] == table.encode())
    ]
    in_text = catalog.ddl.position("tablesql")
    unprinted = next((row[in_table] for row in rows if row[in_text] is None), None)
    if isinstance(unprinted, bytes):
        raise internal(f"the CREATE TABLE text of {database}.{unprinted.decode('utf-8', 'replace')} is not known")
    return ResultSet(whole.columns, rows)


def _get_mo_indexes(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    table_id, _, _, snapshot = words
    if not table_id.isdecimal() or len(table_id) > 20:
        raise internal(f"invalid table id: {table_id}")
    catalog = _catalog(upstream, publisher, snapshot)
    return catalog.indexes_of(int(table_id))


def _check_snapshot_flushed(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    snapshot = upstream.backing.find_snapshot(publisher, words[0])
    if snapshot.level == "cluster":
        raise internal(f"invalid snapshot level: {snapshot.level}")
    return ResultSet((ResultColumn("result", TINY),), ((int(upstream.backing.is_flushed(publisher, snapshot)),),))


def _object_list(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    target = _resolve(upstream, publisher, words[0], "snapshot")
    base = None if words[1] == "-" else _resolve(upstream, publisher, words[1], "against snapshot")
    if base is not None and base.ts > target.ts:
        raise internal("invalid timestamp")
    return ResultSet(OBJECT_LIST_COLUMNS, upstream.backing.object_list(publisher, target, base))


def _resolve(upstream: Upstream, publisher: str, word: str, role: str) -> Snapshot:
    try:
        return upstream.backing.find_snapshot(publisher, word)
    except StatementError as error:
        raise internal(f"failed to resolve {role} '{word}': {error.text}") from error


def _get_object(upstream: Upstream, session: int, name: str, chunk_word: str) -> ResultSet:
    """Chunk 0 has the sizes only and no data."""
    if re.fullmatch(r"-?[0-9]{1,9}", chunk_word) is None:
        raise internal(f"invalid chunkIndex: {chunk_word}")
    number = int(chunk_word)
    if number < 0:
        raise StatementError(20301, "invalid input: invalid chunk_index: must be >= 0")
    size = upstream.backing.object_size(name)
    if size is None:
        raise StatementError(20405, f"file {name} is not found")
    chunks = max(1, -(-size // upstream.chunk_bytes))
    if number > chunks:
        raise StatementError(20301, f"invalid input: invalid chunk_index: {number}, file has only {chunks} data chunks")
    data: Bytes = b""
    if number:
        data = upstream.backing.read_object(name, (number - 1) * upstream.chunk_bytes, upstream.chunk_bytes)
        upstream.counters.object_served(session, name, len(data))
    return ResultSet(OBJECT_COLUMNS, ((data, size, number, chunks, int(number == chunks)),))
