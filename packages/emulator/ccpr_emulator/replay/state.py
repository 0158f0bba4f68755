"""The state of an upstream that plays a recording: its snapshots, its position in the recording, and what was flushed.
See `ccpr.matrixone.server.backing.Backing`.

The n-th new snapshot shows the n-th recorded one; after the last one further snapshots show the last state, each one
second later. Every new snapshot advances the recording: two subscriptions on one emulator share its position.

A recorded list has the names of tables at its snapshot. Over several snapshots a name can mean different tables: after
a rename, a truncate, or a drop and a create. So rows are kept by table id, and have the names at the target snapshot;
objects of tables that do not exist there are skipped, as in the upstream's own difference (docs/upstream.md 5.7).
"""

import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE
from ccpr.matrixone.server.answers import Cell, StatementError
from ccpr.matrixone.server.backing import ServedPublication, Snapshot, can_be_publication, internal, snapshot_not_found
from ccpr_emulator.replay.recording import RecordedSnapshot, Recording

SECOND_NS = 1_000_000_000
# Tables whose rows are in memory until they are flushed. A snapshot does not wait for others (views, partition
# children, fulltext entries).
FLUSHED_KINDS = frozenset({b"r", b"i"})


class ReplayState:
    """Thread-safe. `clock` is in seconds and never goes back.

    A table's rows at recorded snapshot i are on storage when the table was flushed at position i or later, or
    `flush_after` seconds after the recording reached i. Unless `strict_publication`, every valid publication name is
    accepted as the recorded one. A name with a capital, a quote or a semicolon is not valid, so that a client that
    quotes or ends its commands wrongly fails.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        flush_after: float | None,
        strict_publication: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recording = recording
        self.flush_after = flush_after
        self.strict_publication = strict_publication
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshots: dict[str, Snapshot] = {}
        self._created = 0
        self._reached: dict[int, float] = {}
        self._flushed_at: dict[int, int] = {}  # table id -> the latest index at which it was flushed

    @property
    def name(self) -> str:
        return self.recording.name

    @property
    def snapshots_created(self) -> int:
        with self._lock:
            return self._created

    @property
    def now(self) -> int:
        """The position in the recording: a snapshot's index, 0 before any was taken."""
        return max(0, min(self.snapshots_created, len(self.recording.snapshots)) - 1)

    # ---- accounts and publications

    def accounts(self) -> Mapping[str, int]:
        return {"sys": 0, self.recording.publisher: self.recording.account_id}

    def owns_data(self, account: str) -> bool:
        return account == self.recording.publisher

    def publications(self, asked: Sequence[str] = ()) -> Sequence[tuple[str, ServedPublication]]:
        """The recorded publication. If any name is accepted, the names in `asked` are returned as well: a client that
        looks its publication up must find the name that the other statements accept."""
        recorded = self.recording.publication
        names = [recorded.name]
        if not self.strict_publication:
            names = list(dict.fromkeys(filter(can_be_publication, [recorded.name, *asked])))
        return [
            (self.recording.publisher, ServedPublication(name, recorded.database, recorded.tables, recorded.accounts))
            for name in names
        ]

    def publication(self, publisher: str, name: str) -> ServedPublication | None:
        recorded = self.recording.publication
        known = name == recorded.name if self.strict_publication else can_be_publication(name)
        return recorded if known and publisher == self.recording.publisher else None

    def published(self, publisher: str, name: str) -> "ReplayState":
        return self

    # ---- catalog

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> RecordedSnapshot:
        return self.recording.snapshots[self.now if snapshot is None else snapshot.index]

    def catalog_at(self, account: str | None, ts: int | None) -> RecordedSnapshot | None:
        """The newest recorded snapshot at or before a time."""
        if account is not None and not self.owns_data(account):
            return None
        if ts is None:
            return self.recording.snapshots[self.now]
        index = sum(snapshot.ts <= ts for snapshot in self.recording.snapshots) - 1
        return self.recording.snapshots[index] if index >= 0 else None

    # ---- snapshots

    def snapshots(self, account: str) -> Sequence[Snapshot]:
        with self._lock:
            return tuple(self._snapshots.values()) if self.owns_data(account) else ()

    def create_snapshot(
        self, account: str, name: str, level: str, database: str, table: str, *, caller: str, if_not_exists: bool
    ) -> None:
        last = len(self.recording.snapshots) - 1
        with self._lock:
            if name in self._snapshots:
                if if_not_exists:
                    return
                raise internal(f"snapshot {name} already exists")
            index = min(self._created, last)
            recorded = self.recording.snapshots[index]
            if database and not recorded.has_database(database):
                raise internal(f"database {database} does not exist")
            if table and recorded.table(database, table) is None:
                raise internal(f"table {database}.{table} does not exist")
            ts = recorded.ts + max(0, self._created - last) * SECOND_NS
            self._snapshots[name] = Snapshot(name, ts, index, level, database, table)
            self._created += 1
            self._reached.setdefault(index, self._clock())

    def drop_snapshot(self, account: str, name: str, *, if_exists: bool) -> None:
        with self._lock:
            if self._snapshots.pop(name, None) is None and not if_exists:
                raise internal(f"snapshot {name} does not exist")

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        with self._lock:
            snapshot = self._snapshots.get(name)
        if snapshot is None:
            raise snapshot_not_found(name)
        return snapshot

    # ---- flushing and objects

    def flush(self, table_ids: set[int]) -> None:
        with self._lock:
            if not self._created:
                return  # there is nothing in memory before the first snapshot
            index = min(self._created, len(self.recording.snapshots)) - 1
            self._flushed_at.update(dict.fromkeys(table_ids, index))

    def flushable(self) -> set[int]:
        return {table.id for table in self.recording.snapshots[self.now].tables}

    def checkpoint(self) -> None:
        self.flush(self.flushable())

    def collect(self) -> int:
        raise internal("invalid operation: nothing is collected in a recording")

    def is_flushed(self, account: str, snapshot: Snapshot) -> bool:
        recorded = self.recording.snapshots[snapshot.index]
        scope = recorded.scope(snapshot.level, snapshot.database, snapshot.table)
        ids = (
            None if scope is None else {table.id for table in recorded.tables if (table.database, table.name) in scope}
        )
        return self._is_flushed(snapshot.index, ids)

    def _is_flushed(self, index: int, table_ids: set[int] | None = None) -> bool:
        """Whether the rows at recorded snapshot `index` are on storage: of all tables, or of those in `table_ids`.

        A table that does not exist at the present position cannot be flushed any more, and is not waited for.
        """
        alive = {table.id for table in self.recording.snapshots[self.now].tables}
        with self._lock:
            reached = self._reached.get(index)
            if reached is not None and self.flush_after is not None and self._clock() - reached >= self.flush_after:
                return True
            return all(
                self._flushed_at.get(table.id, -1) >= index
                for table in self.recording.snapshots[index].tables
                if table.kind in FLUSHED_KINDS and table.id in alive and (table_ids is None or table.id in table_ids)
            )

    def _shown(self, index: int) -> int:
        """The latest recorded snapshot up to `index` whose rows are on storage; -1 for none. Later rows are in memory
        and in no object."""
        return next((i for i in range(index, -1, -1) if self._is_flushed(i)), -1)

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        recorded = self.recording.snapshots
        for snapshot in recorded[(target if base is None else base).index : target.index + 1]:
            if snapshot.list_error is not None:
                raise StatementError(*snapshot.list_error)
        shown = self._shown(target.index)
        if base is None:
            rows = full_list(recorded, shown, target.index)
        else:
            rows = difference(recorded, base.index, shown, target.index)
        scope = recorded[target.index].scope(target.level, target.database, target.table)
        return rows if scope is None else of_tables(rows, scope)

    def object_size(self, name: str) -> int | None:
        path = self.recording.object_path(name)
        return None if path is None else path.stat().st_size

    def read_object(self, name: str, offset: int, size: int) -> bytes | memoryview:
        """A part of a memory-mapped file, so that 100 MiB can be sent without a copy in this process. A recording's
        files do not change while it is served."""
        path = self.recording.object_path(name)
        if path is None:
            return b""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[offset : offset + size]


Row = tuple[Cell, ...]


def full_list(snapshots: Sequence[RecordedSnapshot], shown: int, target: int) -> list[Row]:
    """The objects on storage at `shown` (<= target; -1 = none), with the names at `target`. Equal to the recorded list
    if both are the same."""
    if shown < 0:
        return []
    recorded = snapshots[shown].object_list
    rows = [] if recorded is None else list(recorded.rows)
    if shown == target:
        return rows
    by_id = _by_table(snapshots[shown], rows)
    return _named(snapshots[target], list(by_id))


def difference(snapshots: Sequence[RecordedSnapshot], base: int, shown: int, target: int) -> list[Row]:
    """The objects created or deleted after snapshot `base` up to `shown`, with the names at `target`. Empty if `shown`
    is not after `base`.

    Adjacent snapshots give the recorded rows unchanged. Otherwise there is one row for each object of a table and kind;
    of several rows the one with a delete is used.
    """
    recorded = snapshots[target].against_previous
    if base + 1 == shown == target and recorded is not None:
        return list(recorded.rows)
    merged: dict[tuple[int, bytes, Cell], tuple[int, Row]] = {}
    for snapshot in snapshots[base + 1 : shown + 1]:
        rows = () if snapshot.against_previous is None else snapshot.against_previous.rows
        for table_id, row in _by_table(snapshot, rows):
            key = (table_id, _object_id(row), row[5])
            known = merged.get(key)
            if known is None or known[1][4] == b"0-0":
                merged[key] = (table_id, row)
    return _named(snapshots[target], list(merged.values()))


def of_tables(rows: Sequence[Row], names: set[tuple[bytes, bytes]]) -> list[Row]:
    """The rows of these (database, table) names."""
    return [row for row in rows if (row[0], row[1]) in names]


def _by_table(snapshot: RecordedSnapshot, rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Rows with their table id; without those whose table is not in the snapshot's `mo_tables`."""
    id_of = snapshot.id_of
    return [(id_of[row[0], row[1]], row) for row in rows if (row[0], row[1]) in id_of]  # type: ignore[index]


def _named(snapshot: RecordedSnapshot, rows: Sequence[tuple[int, Row]]) -> list[Row]:
    name_of = {table.id: (table.database, table.name) for table in snapshot.tables}
    return [(*name_of[table_id], *row[2:]) for table_id, row in rows if table_id in name_of]


def _object_id(row: Row) -> bytes:
    stats = row[2]
    return bytes(stats[:OBJECT_ID_SIZE]) if isinstance(stats, bytes | memoryview) else b""
