"""The `__++__internal_*` commands (spec/upstream-interface.md 5): told by their first byte, split at white space, nothing quoted."""

import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from emulator import differences, faults
from emulator.access import Login, require_publication, require_sys
from emulator.recording import RecordedSnapshot
from emulator.state import Snapshot, internal
from emulator.upstream import Upstream
from emulator.wire import BIGINT, BLOB_TEXT, INT, STRING, TINY, VAR_STRING, VARCHAR, Column, Cut, Result, StatementError

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
    Column("db name", VAR_STRING),
    Column("table name", VAR_STRING),
    Column("stats", STRING),
    Column("create_at", VARCHAR),
    Column("delete_at", VARCHAR),
    Column("is_tombstone", TINY),
)
OBJECT_COLUMNS: Final = (
    Column("data", BLOB_TEXT),
    Column("total_size", BIGINT),
    Column("chunk_index", INT),
    Column("total_chunks", INT),
    Column("is_complete", TINY),
)


def command_of(text: str) -> tuple[str, list[str]] | None:
    """The command and its words; None if the text is none of these commands."""
    if text[: len(PREFIX)].lower() != PREFIX:
        return None
    word, *rest = text[len(PREFIX) :].split()[:64] or [""]
    return (word.lower(), rest) if word.lower() in COMMANDS else None


def answer(upstream: Upstream, login: Login, session: int, command: str, words: list[str]) -> Result:
    """The answer to a command of `COMMANDS`; `session` is the number that counters know this login by."""
    expected = COMMANDS[command]
    if len(words) != len(expected.split()):
        raise internal(f"invalid {command} command format, expected {PREFIX}{command} {expected}")
    require_sys(login, command)
    publisher, publication = _named(expected, words, "<publisher>"), _named(expected, words, "<publication>")
    require_publication(upstream.recording, login, publisher, publication, strict=upstream.strict_publication)
    if command == "get_object":
        return _get_object(upstream, session, words[2], words[3])
    handlers: dict[str, Callable[[Upstream, list[str]], Result]] = {
        "get_snapshot_ts": _get_snapshot_ts,
        "get_databases": _get_databases,
        "get_ddl": _get_ddl,
        "get_mo_indexes": _get_mo_indexes,
        "check_snapshot_flushed": _check_snapshot_flushed,
        "object_list": _object_list,
    }
    return handlers[command](upstream, words)


def _named(expected: str, words: list[str], name: str) -> str:
    return words[expected.split().index(name)]


def _recorded(upstream: Upstream, word: str) -> RecordedSnapshot:
    """The recorded snapshot that a word names; `-` is the present."""
    return upstream.state.recorded(None if word == "-" else upstream.state.find(word).index)


def _get_snapshot_ts(upstream: Upstream, words: list[str]) -> Result:
    return Result((Column("snapshotts", BIGINT),), ((upstream.state.find(words[0]).ts,),))


def _get_databases(upstream: Upstream, words: list[str]) -> Result:
    snapshot, _, _, level, database, _ = words
    recorded = _recorded(upstream, snapshot)
    if level in ("database", "table"):
        return Result((Column("datname", VARCHAR),), (("" if database == "-" else database,),))
    return recorded.databases.result()


def _get_ddl(upstream: Upstream, words: list[str]) -> Result:
    snapshot, _, _, _, database, table = words
    recorded = _recorded(upstream, snapshot)
    if database != "-" and not recorded.has_database(database):
        raise internal(f"failed to get database: database {database} does not exist")
    if table != "-" and (database == "-" or recorded.table(database, table) is None):
        raise internal(f"failed to get table: table {database}.{table} does not exist")
    whole = recorded.ddl.result()
    in_database, in_table = recorded.ddl.position("dbname"), recorded.ddl.position("tablename")
    rows = [
        row
        for row in whole.rows
        if (database == "-" or row[in_database] == database.encode()) and (table == "-" or row[in_table] == table.encode())
    ]
    return Result(whole.columns, rows)


def _get_mo_indexes(upstream: Upstream, words: list[str]) -> Result:
    table_id, _, _, snapshot = words
    if not table_id.isdecimal() or len(table_id) > 20:
        raise internal(f"invalid table id: {table_id}")
    return _recorded(upstream, snapshot).indexes_of(int(table_id))


def _check_snapshot_flushed(upstream: Upstream, words: list[str]) -> Result:
    snapshot = upstream.state.find(words[0])
    scope = _scope(upstream, snapshot)
    recorded = upstream.state.recorded(snapshot.index)
    ids = None if scope is None else {table.id for table in recorded.tables if (table.database, table.name) in scope}
    return Result((Column("result", TINY),), ((int(upstream.state.is_flushed(snapshot.index, ids)),),))


def _scope(upstream: Upstream, snapshot: Snapshot) -> set[tuple[bytes, bytes]] | None:
    """(database, table) names that the snapshot's level covers; None for all."""
    recorded = upstream.state.recorded(snapshot.index)
    database = snapshot.database.encode()
    if snapshot.level == "account":
        return None
    if snapshot.level == "database":
        return {(table.database, table.name) for table in recorded.tables if table.database == database}
    table = recorded.table(snapshot.database, snapshot.table)
    indexes = recorded.index_table_names(table.id) if table is not None else set()
    return {(database, snapshot.table.encode())} | {(database, name) for name in indexes}


def _object_list(upstream: Upstream, words: list[str]) -> Result:
    state, recorded = upstream.state, upstream.recording.snapshots
    target = _resolve(upstream, words[0], "snapshot")
    base = None if words[1] == "-" else _resolve(upstream, words[1], "against snapshot")
    if base is not None and base.ts > target.ts:
        raise internal("invalid timestamp")
    shown = state.shown(target.index)
    asked = recorded[target.index : target.index + 1] if base is None else recorded[base.index : target.index + 1]
    for snapshot in asked:
        if snapshot.list_error is not None:
            raise StatementError(*snapshot.list_error)
    if base is None:
        rows = differences.full_list(recorded, shown, target.index)
    else:
        rows = differences.difference(recorded, base.index, shown, target.index)
    scope = _scope(upstream, target)
    if scope is not None:
        rows = differences.of_tables(rows, scope)
    cut = None
    for fault in upstream.faults.strike(lambda fault: isinstance(fault, faults.CutObjectList) and fault.after_rows < len(rows)):
        if isinstance(fault, faults.CutObjectList):
            cut = Cut(fault.after_rows, 40)
    return Result(OBJECT_LIST_COLUMNS, rows, cut)


def _resolve(upstream: Upstream, word: str, role: str) -> Snapshot:
    try:
        return upstream.state.find(word)
    except StatementError as error:
        raise internal(f"failed to resolve {role} '{word}': {error.text}") from error


def _get_object(upstream: Upstream, session: int, name: str, chunk_word: str) -> Result:
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
                fault.after_bytes if isinstance(fault, faults.CutObject) else fault.offset if isinstance(fault, faults.DamagedByte) else -1
            )
            return least < len(data)
        return False

    path = upstream.recording.object_path(name)
    size = path.stat().st_size if path is not None else 0
    chunks = max(1, -(-size // upstream.chunk_bytes))
    data: bytes | memoryview = b""
    if path is not None and chunk:
        if chunk > chunks:
            raise StatementError(20301, f"invalid input: invalid chunk_index: {chunk}, file has only {chunks} data chunks")
        data = _read(path, (chunk - 1) * upstream.chunk_bytes, upstream.chunk_bytes)
    cut = None
    shown_size, shown_chunks = size, chunks
    for fault in upstream.faults.strike(about_this):
        if isinstance(fault, faults.MissingObject):
            path = None
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
    if path is None:
        raise StatementError(20405, f"file {name} is not found")
    if chunk:
        upstream.counters.object_served(session, name, len(data))
    return Result(OBJECT_COLUMNS, ((data, shown_size, chunk, shown_chunks, int(chunk == chunks)),), cut)


def _read(path: Path, offset: int, size: int) -> bytes | memoryview:
    """A part of a file, mapped: a hundred MiB go to the socket without a copy in this process. A recording's files do not change while it
    is served."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[offset : offset + size]
