"""The `__++__internal_*` commands (spec/upstream-interface.md 5): told by their first byte, split at white space,
nothing quoted."""

import re
from collections.abc import Callable
from typing import Final

from wire import faults
from wire.access import Login, require_publication, require_sys
from wire.backing import ServedCatalog, Snapshot, internal
from wire.server import (
    BIGINT,
    BLOB_TEXT,
    INT,
    STRING,
    TINY,
    VAR_STRING,
    VARCHAR,
    Cut,
    ResultColumn,
    ResultSet,
    StatementError,
)
from wire.upstream import Upstream

PREFIX: Final = "__++__internal_"
# Command and the words that must follow it, as the error text names them.
COMMANDS: Final = {
    "get_snapshot_ts": "<snapshot> <publisher> <publication>",
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
    """The command and its words; None if the text is none of these commands."""
    if text[: len(PREFIX)].lower() != PREFIX:
        return None
    word, *rest = text[len(PREFIX) :].split()[:64] or [""]
    return (word.lower(), rest) if word.lower() in COMMANDS else None


def answer(upstream: Upstream, login: Login, session: int, command: str, words: list[str]) -> ResultSet:
    """The answer to a command of `COMMANDS`; `session` is the number that counters know this login by."""
    expected = COMMANDS[command]
    if len(words) != len(expected.split()):
        raise internal(f"invalid {command} command format, expected {PREFIX}{command} {expected}")
    require_sys(login, command)
    publisher, publication = _named(expected, words, "<publisher>"), _named(expected, words, "<publication>")
    require_publication(upstream.backing, login, publisher, publication)
    if command == "get_object":
        return _get_object(upstream, session, words[2], words[3])
    handlers: dict[str, Callable[[Upstream, str, list[str]], ResultSet]] = {
        "get_snapshot_ts": _get_snapshot_ts,
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
    """The catalog at the snapshot that a word names; `-` is the present."""
    snapshot = None if word == "-" else _find(upstream, publisher, word)
    return upstream.backing.catalog(publisher, snapshot)


def _find(upstream: Upstream, publisher: str, name: str) -> Snapshot:
    if upstream.faults.strike(lambda fault: isinstance(fault, faults.SnapshotCollected) and fault.name in ("", name)):
        raise internal(
            f"failed to query snapshot: internal error: find 0 snapshot records by name({name}), expect only 1"
        )
    return upstream.backing.find_snapshot(publisher, name)


def _get_snapshot_ts(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    return ResultSet((ResultColumn("snapshotts", BIGINT),), ((_find(upstream, publisher, words[0]).ts,),))


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
        raise internal(f"failed to get database: database {database} does not exist")
    if table != "-" and (database == "-" or catalog.table(database, table) is None):
        raise internal(f"failed to get table: table {database}.{table} does not exist")
    whole = catalog.ddl.result()
    in_database, in_table = catalog.ddl.position("dbname"), catalog.ddl.position("tablename")
    rows = [
        row
        for row in whole.rows
        if (database == "-" or row[in_database] == database.encode())
        and (table == "-" or row[in_table] == table.encode())
    ]
    return ResultSet(whole.columns, rows)


def _get_mo_indexes(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    table_id, _, _, snapshot = words
    if not table_id.isdecimal() or len(table_id) > 20:
        raise internal(f"invalid table id: {table_id}")
    return _catalog(upstream, publisher, snapshot).indexes_of(int(table_id))


def _check_snapshot_flushed(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    snapshot = _find(upstream, publisher, words[0])
    if snapshot.level == "cluster":
        raise internal(f"invalid snapshot level: {snapshot.level}")
    return ResultSet((ResultColumn("result", TINY),), ((int(upstream.backing.is_flushed(publisher, snapshot)),),))


def _object_list(upstream: Upstream, publisher: str, words: list[str]) -> ResultSet:
    target = _resolve(upstream, publisher, words[0], "snapshot")
    base = None if words[1] == "-" else _resolve(upstream, publisher, words[1], "against snapshot")
    if base is not None and base.ts > target.ts:
        raise internal("invalid timestamp")
    if base is not None and upstream.faults.strike(lambda fault: isinstance(fault, faults.StaleRead)):
        raise StatementError(22101, f"stale read, min TS is {target.ts}-0, receive {base.ts}-0")
    rows = upstream.backing.object_list(publisher, target, base)
    cut = None
    for fault in upstream.faults.strike(
        lambda fault: isinstance(fault, faults.CutObjectList) and fault.after_rows < len(rows)
    ):
        if isinstance(fault, faults.CutObjectList):
            cut = Cut(fault.after_rows, 40)
    return ResultSet(OBJECT_LIST_COLUMNS, rows, cut)


def _resolve(upstream: Upstream, publisher: str, word: str, role: str) -> Snapshot:
    try:
        return _find(upstream, publisher, word)
    except StatementError as error:
        raise internal(f"failed to resolve {role} '{word}': {error.text}") from error


def _get_object(upstream: Upstream, session: int, name: str, chunk_word: str) -> ResultSet:
    if re.fullmatch(r"-?[0-9]{1,9}", chunk_word) is None:
        raise internal(f"invalid chunkIndex: {chunk_word}")
    chunk = int(chunk_word)
    if chunk < 0:
        raise StatementError(20301, "invalid input: invalid chunk_index: must be >= 0")

    def about_this(fault: faults.Fault) -> bool:
        if isinstance(fault, faults.MissingObject | faults.WrongTotalSize | faults.WrongTotalChunks):
            return fault.object_name in ("", name)
        if isinstance(fault, faults.CutObject | faults.WrongChunkLength | faults.DamagedByte):
            if fault.object_name not in ("", name) or chunk == 0:
                return False
            least = (
                fault.after_bytes
                if isinstance(fault, faults.CutObject)
                else fault.offset
                if isinstance(fault, faults.DamagedByte)
                else -1
            )
            return least < len(data)
        return False

    stored = upstream.backing.object_size(name)
    size = stored or 0
    chunks = max(1, -(-size // upstream.chunk_bytes))
    data: bytes | memoryview = b""
    if stored is not None and chunk:
        if chunk > chunks:
            raise StatementError(
                20301, f"invalid input: invalid chunk_index: {chunk}, file has only {chunks} data chunks"
            )
        data = upstream.backing.read_object(name, (chunk - 1) * upstream.chunk_bytes, upstream.chunk_bytes)
    cut = None
    shown_size, shown_chunks = size, chunks
    for fault in upstream.faults.strike(about_this):
        if isinstance(fault, faults.MissingObject):
            stored = None
        elif isinstance(fault, faults.WrongTotalSize):
            shown_size += fault.difference
        elif isinstance(fault, faults.WrongTotalChunks):
            shown_chunks += fault.difference
        elif isinstance(fault, faults.CutObject):
            cut = Cut(0, fault.after_bytes)
        elif isinstance(fault, faults.WrongChunkLength):
            data = bytes(data[: max(0, len(data) + fault.difference)]) + bytes(max(0, fault.difference))
        elif isinstance(fault, faults.DamagedByte):
            data = b"".join((data[: fault.offset], bytes((data[fault.offset] ^ 0xFF,)), data[fault.offset + 1 :]))
    if stored is None:
        raise StatementError(20405, f"file {name} is not found")
    if chunk:
        upstream.counters.object_served(session, name, len(data))
    return ResultSet(OBJECT_COLUMNS, ((data, shown_size, chunk, shown_chunks, int(chunk == chunks)),), cut)
