"""Rows that are inserted one at a time: each is a commit of its own, with a tick, but they become Arrow together,
before anything else of the storage is used.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ccpr_emulator.engine.clock import Clock
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.live_keys import Key
from ccpr_emulator.engine.stored_table import ALIVE
from ccpr_emulator.engine.transaction import CreateAt, DuplicateEntry, as_rows

FULL_ROWS = 8192
ToColumn = Callable[[list[Any]], pa.Array]


class SingleRowTables(Protocol):
    """What single rows need of the storage."""

    clock: Clock
    create_at: CreateAt
    flush_rows: int
    late: "LateRows | None"
    lock: "StorageLock"

    def flush_full(self, entries: Any) -> None: ...


class LateRows:
    """Single rows of one table that are committed and not Arrow yet. `columns` are given for each user column; a
    function makes an array of a column's values."""

    def __init__(self, entry: TableEntry, columns: dict[str, ToColumn]) -> None:
        self.entry = entry
        self.columns = columns
        self.rows: list[tuple[Any, ...]] = []
        self.ticks: list[int] = []

    def store(self) -> None:
        values = zip(self.columns.items(), zip(*self.rows, strict=True), strict=True)
        arrays = {name: to_column(list(column)) for (name, to_column), column in values}
        added = self.entry.with_hidden_columns(as_rows(self.entry.definition, arrays))
        self.entry.insert(added, np.array(self.ticks, np.int64), by_cn=False, keyed=True)


class StorageLock:
    """The storage's lock. Who takes it finds no late rows: they are stored first."""

    def __init__(self, store_late: Callable[[], None]) -> None:
        self._store_late = store_late
        self.raw = threading.RLock()

    def __enter__(self) -> "StorageLock":
        self.raw.acquire()
        try:
            self._store_late()
        except BaseException:
            self.raw.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.raw.release()


def insert_single(
    storage: SingleRowTables,
    entry: TableEntry,
    columns: dict[str, ToColumn],
    row: tuple[Any, ...],
    keys: dict[str, Key],
) -> bool:
    """Commit one row. `keys` are its keys by name, as `ccpr_emulator.engine.live_keys` has them. False, and nothing is
    done, if the table was changed or has to be written in another way. Raises DuplicateEntry.
    """
    if storage.create_at != "commit" or entry.partitions:
        return False
    late = storage.late
    if late is None or late.entry is not entry or late.columns is not columns:
        with storage.lock:
            if entry.dropped != ALIVE or entry.live_keys(storage.clock.last) is None:
                return False
            late = storage.late = LateRows(entry, columns)
    with storage.lock.raw:
        if storage.late is not late or entry.dropped != ALIVE:
            return False
        live = entry.live_keys(storage.clock.last)
        if live is None:
            return False
        for name, key in keys.items():
            if key is not None and key in live.rows[name]:
                raise DuplicateEntry(entry.definition.name, name)
        number = entry.stored.count + len(late.rows)
        for name, key in keys.items():
            if key is not None:
                live.rows[name][key] = number
        late.rows.append(row)
        late.ticks.append(storage.clock.next())
        if len(late.rows) >= min(storage.flush_rows, FULL_ROWS):
            with storage.lock:
                storage.flush_full([entry])
        return True
