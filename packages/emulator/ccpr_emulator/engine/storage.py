"""A small storage engine that behaves like the upstream's: every history of a table can be simulated, and its rows at
any time are known.

Use::

    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", "orders", {"id": "bigint", "note": "varchar(40)"}, primary_key=["id"])
    with storage.begin() as txn:
        txn.insert("shop", "orders", {"id": [1, 2], "note": ["a", None]})
    storage.flush("shop", "orders")
    storage.rows_at("shop", "orders", storage.now)      # the true rows, at any time since the table exists
    storage.create_publication("p", "shop")             # then serve it: `ccpr_emulator.simulated_upstream`

Its behaviour is that of recordings of a real upstream (docs/format/object-file.md, docs/upstream.md). Rows of a commit
are in memory until a flush; larger inserts and deletes become objects of a compute node at once (see
`ccpr_emulator.engine.stored_table`). Databases are in `ccpr_emulator.engine.databases`, DDL is in
`ccpr_emulator.engine.tables` and the files that it names. Views, foreign keys, fulltext indexes, defaults and generated
columns are definitions here; what they do is in `ccpr_emulator.sql`. There are no vector indexes. All rows are kept for
ever, so a long history needs memory: for each row once, and for the files that are not collected yet.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import internal
from ccpr_emulator.engine.altered_tables import AlteredTables
from ccpr_emulator.engine.databases import SYS
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.object_files import OBJECT_ROWS
from ccpr_emulator.engine.partitioned_tables import PartitionedTables
from ccpr_emulator.engine.stored_table import ALIVE, MergeConflict, StoredObject
from ccpr_emulator.engine.transaction import CreateAt, Transaction

CN_ROWS = 8192


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """`protects` is the `obj_id` that garbage collection looks at (docs/upstream.md 4.3); `tick` is the state that the
    snapshot shows."""

    name: str
    account: str
    tick: int
    level: str
    database: str
    table: str
    protects: int


@dataclass(eq=False)
class Merge:
    """A merge in progress, which sees the rows as of its start. `commit` replaces the old objects with the new ones."""

    storage: "Storage"
    entry: TableEntry
    sources: list[StoredObject]
    started: int
    by_cn: bool

    def commit(self) -> None:
        """Raises MergeConflict if the objects were merged, or the table dropped, meanwhile."""
        with self.storage.lock:
            if self.entry.dropped != ALIVE:
                raise MergeConflict("the table is gone")
            tick = self.storage.clock.next()
            self.entry.stored.merge(self.entry.definition, self.sources, self.started, tick, by_cn=self.by_cn)


class Storage(PartitionedTables, AlteredTables):
    """The rows, objects and snapshots of an upstream's tables.

    Parameters
    ----------
    now : the clock, nanoseconds since 1970.
    seed : of object and index names.
    cn_rows : inserts and deletes of at least so many rows in one transaction are written as objects by the compute
        node.
    flush_rows : a table with at least so many rows and deletes in memory is flushed after a commit.
    flush_after : seconds (of `now`) after which `flush_due` flushes what is in memory; None = only on request.
    object_rows : the most rows of one object of a merge.
    create_at : when an appendable object is created: at the commit of its first row, or as in MatrixOne 4.2 when the
        first transaction that writes into it is prepared (`Transaction.prepare`): before that, and also if it is
        rolled back.
    abort_column : as after MatrixOne 4.2, appendable objects and tombstones say which rows are of aborted transactions.
        Rows and deletes of a transaction that is rolled back after it was prepared are then in objects, too. Lists mark
        the stats of deleted objects.
    wkb : geometries are stored as WKB, as since MatrixOne 4.0.0-rc3, and not as WKT.
    """

    def __init__(
        self,
        *,
        now: Callable[[], int] = time.time_ns,
        seed: int = 0,
        cn_rows: int = CN_ROWS,
        flush_rows: int = 100_000,
        flush_after: float | None = None,
        object_rows: int = OBJECT_ROWS,
        create_at: CreateAt = "commit",
        abort_column: bool = False,
        wkb: bool = False,
    ) -> None:
        super().__init__(now, seed, cn_rows, object_rows)
        self.files.abort_column, self.files.wkb = abort_column, wkb
        self.create_at: CreateAt = create_at
        self.flush_rows, self.flush_after = flush_rows, flush_after
        self.snapshots: dict[tuple[str, str], TakenSnapshot] = {}
        self.snapshots_created = 0
        self.checkpointed = 0  # tick
        self._now = now

    # ---- transactions and true rows

    def begin(self, account: str = SYS) -> Transaction:
        with self.lock:
            return Transaction(self, account)

    def rows_at(self, database: str, table: str, at: Timestamp, *, account: str = SYS) -> pa.Table:
        """The true rows of a table at a time, user columns only. The names are those of that time.

        Raises StatementError 1146 if there was no such table.
        """
        with self.lock:
            tick = self.clock.tick(at)
            for entry in self.tables:
                definition = entry.definition_at(tick)
                if definition is not None and (entry.database.account, definition.database, definition.name) == (
                    account,
                    database,
                    table,
                ):
                    return entry.stored.values(entry.stored.visible(tick), definition.user_columns)
        raise StatementError(1146, f"no such table {database}.{table}", "42S02")

    # ---- flush, merge, collect

    def flush(self, database: str, table: str, *, account: str = SYS) -> bool:
        """Write the table, index tables included, into objects; False if there was nothing in memory."""
        with self.lock:
            entry = self.table(database, table, account=account)
            return self.flush_ids({part.id for part in entry.parts})

    def flush_ids(self, table_ids: Iterable[int]) -> bool:
        wanted = set(table_ids)
        with self.lock:
            flushed = [self._flush(entry) for entry in self.tables if entry.id in wanted]
            return any(flushed)

    def checkpoint(self) -> None:
        """Flush all tables. A difference of object lists that starts before the checkpoint has two parts: up to the
        checkpoint, and after it."""
        with self.lock:
            self.flush_ids([entry.id for entry in self.tables])
            self.checkpointed = self.clock.next()

    def replay_wal(self) -> None:
        """What a restart of the upstream leaves of the times at which appendable objects were created (4.2)."""
        with self.lock:
            for entry in self.tables:
                entry.stored.replay_wal(self.checkpointed)

    def flush_due(self) -> None:
        """Flush what has been in memory for `flush_after` seconds."""
        if self.flush_after is None:
            return
        with self.lock:
            limit = Timestamp(self._now() - int(self.flush_after * 1e9))
            for entry in self.tables:
                oldest = entry.stored.oldest_in_memory()
                if oldest != ALIVE and self.clock.time(oldest) <= limit:
                    self._flush(entry)

    def flush_full(self, entries: Iterable[TableEntry]) -> None:
        """Flush the tables that have too much in memory."""
        for entry in entries:
            for part in entry.parts:
                if part.stored.in_memory >= self.flush_rows:
                    self._flush(part)

    def start_merge(
        self, database: str, table: str, *, by_cn: bool = False, newest: int | None = None, account: str = SYS
    ) -> Merge | None:
        """Start to merge the table's data objects (or only the `newest` ones); None if there are none. Other commits
        are possible before its own."""
        with self.lock:
            entry = self.with_objects(database, table, account=account)
            sources = entry.stored.mergeable()
            sources = sources if newest is None else sources[-newest:]
            return Merge(self, entry, sources, self.clock.last, by_cn) if sources else None

    def merge(
        self, database: str, table: str, *, by_cn: bool = False, newest: int | None = None, account: str = SYS
    ) -> bool:
        """Merge at once; False if there is nothing to merge."""
        with self.lock:
            started = self.start_merge(database, table, by_cn=by_cn, newest=newest, account=account)
            if started is not None:
                started.commit()
            return started is not None

    def merge_tombstones(self, database: str, table: str, *, account: str = SYS) -> bool:
        with self.lock:
            entry = self.with_objects(database, table, account=account)
            return entry.stored.merge_tombstones(entry.definition, self.clock.next())

    def tidy(self, most: int = 16) -> int:
        """What a real upstream does by itself, now: tables with more than `most` live objects of a kind are merged, and
        garbage is collected. Returns how many tables were merged."""
        merged = 0
        for entry in list(self.tables):
            with self.lock:
                if entry.dropped != ALIVE or entry.partitions:
                    continue
                sources, tick = entry.stored.mergeable(), self.clock.last
                tombstones = sum(one.tombstones is not None and one.live for one in entry.stored.objects)
                if len(sources) > most:
                    Merge(self, entry, sources, tick, by_cn=False).commit()
                if tombstones > most:
                    entry.stored.merge_tombstones(entry.definition, self.clock.next())
                merged += max(len(sources), tombstones) > most
        self.collect()
        return merged

    def collect(self) -> int:
        """Garbage collection: remove deleted objects, and those of dropped tables, that no snapshot protects. Returns
        their number."""
        with self.lock:
            return sum(self._collect(entry) for entry in self.tables)

    def _collect(self, entry: TableEntry) -> int:
        ticks = [snapshot.tick for snapshot in self.snapshots.values() if self._protects(snapshot, entry)]

        def is_needed(stored: StoredObject) -> bool:
            end = min(stored.deleted, entry.dropped)
            return end == ALIVE or any(stored.created <= tick < end for tick in ticks)

        return entry.stored.collect(is_needed)

    def _protects(self, snapshot: TakenSnapshot, entry: TableEntry) -> bool:
        """By level and number, as in docs/upstream.md 4.3: an account snapshot protects the account that took it, a
        table snapshot the database of the table whose *physical* id is the recorded logical one."""
        if snapshot.level == "cluster":
            return True
        if snapshot.level == "account":
            return self.accounts[entry.database.account] == snapshot.protects
        if snapshot.level == "database":
            return entry.database.id == snapshot.protects
        return any(other.id == snapshot.protects and other.database is entry.database for other in self.tables)

    # ---- snapshots

    def create_snapshot(
        self,
        name: str,
        level: str = "database",
        database: str = "",
        table: str = "",
        *,
        account: str = SYS,
        caller: str | None = None,
    ) -> TakenSnapshot:
        """`caller` is the account that runs the statement, if it is another (through a publication). Raises 20101."""
        with self.lock:
            if (account, name) in self.snapshots:
                raise internal(f"snapshot {name} already exists")
            protects = self.accounts[caller or account]
            if level not in ("cluster", "account"):
                found = next((entry for entry in self._databases(account) if entry.name == database), None)
                if found is None:
                    raise internal(f"database {database} does not exist")
                protects = found.id
            if level == "table":
                if not self._exists(database, table, account):
                    raise internal(f"table {database}.{table} does not exist")
                protects = self.with_objects(database, table, account=account).logical_id
            snapshot = TakenSnapshot(name, account, self.clock.next(whole=True), level, database, table, protects)
            self.snapshots[account, name] = snapshot
            self.snapshots_created += 1
            return snapshot

    def drop_snapshot(self, name: str, *, account: str = SYS) -> None:
        with self.lock:
            if self.snapshots.pop((account, name), None) is None:
                raise internal(f"snapshot {name} does not exist")

    def _flush(self, entry: TableEntry) -> bool:
        """Also flushes a dropped table: a snapshot may see its rows, and what is flushed stays as long as the
        snapshot."""
        has_objects = not entry.partitions and bool(entry.stored.in_memory)
        return has_objects and entry.stored.flush(entry.definition, self.clock.next())
