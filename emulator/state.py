"""What a replayed upstream remembers: its snapshots, how far the recording has been played, and what was flushed.

The n-th new snapshot shows the n-th recorded one; after the last, further snapshots show the last again, one second later each. The
recording moves on with every new snapshot, whoever takes it: two subscriptions on one emulator share its time.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from emulator.recording import RecordedSnapshot, Recording
from emulator.wire import StatementError

SECOND_NS = 1_000_000_000
# Tables whose rows lie in memory until they are flushed. Others (views, partition children, fulltext entries) are not waited for.
FLUSHED_KINDS = frozenset({b"r", b"i"})


def internal(text: str) -> StatementError:
    return StatementError(20101, f"internal error: {text}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that a client took.

    Attributes
    ----------
    name : in lower case.
    ts : nanoseconds since 1970.
    index : the recorded snapshot that it shows.
    level : account, database or table; `database` and `table` are empty where the level has none.
    """

    name: str
    ts: int
    index: int
    level: str
    database: str = ""
    table: str = ""


class State:
    """Thread-safe. `clock` is in seconds and never goes back.

    A table's rows at recorded snapshot i are on storage once the table was flushed while the recording stood at i or later, or
    `flush_after` seconds after it got there.
    """

    def __init__(self, recording: Recording, *, flush_after: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self.flush_after = flush_after
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshots: dict[str, Snapshot] = {}
        self._created = 0
        self._reached: dict[int, float] = {}
        self._flushed_at: dict[int, int] = {}  # table id -> the latest index at which it was flushed

    @property
    def created(self) -> int:
        with self._lock:
            return self._created

    @property
    def now(self) -> int:
        """The index where the recording stands; 0 (the first snapshot's state) before any was taken."""
        return max(0, min(self.created, len(self.recording.snapshots)) - 1)

    def recorded(self, index: int | None = None) -> RecordedSnapshot:
        return self.recording.snapshots[self.now if index is None else index]

    def snapshots(self) -> tuple[Snapshot, ...]:
        with self._lock:
            return tuple(self._snapshots.values())

    def create(self, name: str, level: str, database: str, table: str, *, if_not_exists: bool) -> Snapshot:
        """Raises 20101 if the name is taken (with `if_not_exists` the old snapshot stays as it is) or the database or table is not there
        at that moment."""
        last = len(self.recording.snapshots) - 1
        with self._lock:
            known = self._snapshots.get(name)
            if known is not None:
                if if_not_exists:
                    return known
                raise internal(f"snapshot {name} already exists")
            index = min(self._created, last)
            recorded = self.recording.snapshots[index]
            if database and not recorded.has_database(database):
                raise internal(f"database {database} does not exist")
            if table and recorded.table(database, table) is None:
                raise internal(f"table {database}.{table} does not exist")
            ts = recorded.ts + max(0, self._created - last) * SECOND_NS
            snapshot = Snapshot(name, ts, index, level, database, table)
            self._snapshots[name] = snapshot
            self._created += 1
            self._reached.setdefault(index, self._clock())
            return snapshot

    def drop(self, name: str, *, if_exists: bool) -> None:
        with self._lock:
            if self._snapshots.pop(name, None) is None and not if_exists:
                raise internal(f"snapshot {name} does not exist")

    def find(self, name: str) -> Snapshot:
        """Raises the error by which a client knows that a snapshot is gone (spec 5.2)."""
        with self._lock:
            snapshot = self._snapshots.get(name)
        if snapshot is None:
            raise internal(f"failed to query snapshot: internal error: find 0 snapshot records by name({name}), expect only 1")
        return snapshot

    def flush(self, table_ids: set[int]) -> None:
        with self._lock:
            if not self._created:
                return  # nothing has happened yet that could be in memory
            index = min(self._created, len(self.recording.snapshots)) - 1
            self._flushed_at.update(dict.fromkeys(table_ids, index))

    def is_flushed(self, index: int, table_ids: set[int] | None = None) -> bool:
        """Whether the rows at recorded snapshot `index` are on storage: of all tables, or of those of `table_ids` that are flushed at all.

        A table that is gone where the recording stands now cannot be flushed any more and is not waited for.
        """
        alive = {table.id for table in self.recorded().tables}
        with self._lock:
            reached = self._reached.get(index)
            if reached is not None and self.flush_after is not None and self._clock() - reached >= self.flush_after:
                return True
            return all(
                self._flushed_at.get(table.id, -1) >= index
                for table in self.recording.snapshots[index].tables
                if table.kind in FLUSHED_KINDS and table.id in alive and (table_ids is None or table.id in table_ids)
            )

    def shown(self, index: int) -> int:
        """The latest recorded snapshot up to `index` whose rows are on storage; -1 for none. What came later is in memory and in no
        object."""
        return next((i for i in range(index, -1, -1) if self.is_flushed(i)), -1)
