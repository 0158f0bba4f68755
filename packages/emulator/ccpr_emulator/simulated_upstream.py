"""Serves a simulated upstream over the MySQL protocol, on loopback: the same statements as
`ccpr_emulator.recorded_upstream`, answered by `ccpr_emulator.engine.storage`.

Use::

    storage = Storage()                               # fill it: see `ccpr_emulator.engine.storage`
    # listens on 127.0.0.1:emulator.port, in threads of this process
    with SimulatedUpstream(storage) as emulator:
        ...                                           # and change it at any time, by its Python API or by SQL

A snapshot is flushed when its tables are (by `mo_ctl`, by size, by `Storage.flush`, or `flush_after` seconds after
the commit). Object lists and differences follow docs/upstream.md 5.7: a difference includes both ends, and has no old
objects of tables that are gone or have a new id.
"""

import ssl
from collections.abc import Mapping, Sequence
from functools import partial

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.server.answers import Cell, StatementError
from ccpr.matrixone.server.backing import ServedCatalog, ServedPublication, Snapshot, snapshot_not_found
from ccpr.matrixone.server.upstream import CHUNK_BYTES
from ccpr_emulator.engine.catalog import catalog_at
from ccpr_emulator.engine.storage import Storage, TakenSnapshot
from ccpr_emulator.engine.stored_table import StoredObject
from ccpr_emulator.serving.emulated_upstream import EmulatedUpstream
from ccpr_emulator.serving.served import ServedUpstream
from ccpr_emulator.sql.session import SqlSession

NEVER = "0-0"
_DELETE_MARK = 0x08  # in the flags of stats


class EngineBacking:
    """See `ccpr.matrixone.server.backing.Backing`. Ticks are the indices of snapshots."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @property
    def name(self) -> str:
        return "simulated"

    @property
    def snapshots_created(self) -> int:
        return self.storage.snapshots_created

    def accounts(self) -> Mapping[str, int]:
        with self.storage.lock:
            return dict(self.storage.accounts)

    def owns_data(self, account: str) -> bool:
        return account in self.storage.accounts

    def publications(self, asked: Sequence[str] = ()) -> Sequence[tuple[str, ServedPublication]]:
        names = {name.lower() for name in asked}
        with self.storage.lock:
            return [
                (publisher, publication)
                for (publisher, name), publication in self.storage.publications.items()
                if not names or name in names
            ]

    def publication(self, publisher: str, name: str) -> ServedPublication | None:
        return self.storage.publications.get((publisher, name))

    def published(self, publisher: str, name: str) -> "EngineBacking":
        return self

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        with self.storage.lock:
            return catalog_at(self.storage, self.storage.clock.last if snapshot is None else snapshot.index, account)

    def catalog_at(self, account: str | None, ts: int | None) -> ServedCatalog | None:
        with self.storage.lock:
            clock = self.storage.clock
            return catalog_at(self.storage, clock.last if ts is None else clock.tick(Timestamp(ts)), account)

    def snapshots(self, account: str) -> Sequence[Snapshot]:
        with self.storage.lock:
            return [self._shown(taken) for (owner, _), taken in self.storage.snapshots.items() if owner == account]

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        taken = self.storage.snapshots.get((account, name))
        if taken is None:
            raise snapshot_not_found(name)
        return self._shown(taken)

    def _shown(self, taken: TakenSnapshot) -> Snapshot:
        at = self.storage.clock.time(taken.tick)
        return Snapshot(taken.name, at.physical, taken.tick, taken.level, taken.database, taken.table, taken.protects)

    def create_snapshot(
        self, account: str, name: str, level: str, database: str, table: str, *, caller: str, if_not_exists: bool
    ) -> None:
        with self.storage.lock:
            if if_not_exists and (account, name) in self.storage.snapshots:
                return
            self.storage.create_snapshot(name, level, database, table, account=account, caller=caller)

    def drop_snapshot(self, account: str, name: str, *, if_exists: bool) -> None:
        with self.storage.lock:
            if not if_exists or (account, name) in self.storage.snapshots:
                self.storage.drop_snapshot(name, account=account)

    def flush(self, table_ids: set[int]) -> None:
        self.storage.flush_ids(table_ids)

    def flushable(self) -> set[int]:
        """Includes dropped tables: see `is_flushed`."""
        with self.storage.lock:
            return {entry.id for entry in self.storage.tables}

    def checkpoint(self) -> None:
        self.storage.checkpoint()

    def collect(self) -> int:
        return self.storage.collect()

    def is_flushed(self, account: str, snapshot: Snapshot) -> bool:
        """Whether no table of the scope, including one that was dropped since, has a row in memory that the snapshot
        sees. That a flush by id still writes a dropped table is an assumption: no recording shows it.
        """
        self.storage.flush_due()
        with self.storage.lock:
            ids = self._scope(account, snapshot)
            stored = (entry for entry in self.storage.tables if entry.id in ids and not entry.partitions)
            waiting = (entry.stored.oldest_in_memory() for entry in stored)
            return all(oldest > snapshot.index for oldest in waiting)

    def _scope(self, account: str, snapshot: Snapshot) -> set[int]:
        catalog = self.catalog(account, snapshot)
        names = catalog.scope(snapshot.level, snapshot.database, snapshot.table)
        return {table.id for table in catalog.tables if names is None or (table.database, table.name) in names}

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        self.storage.flush_due()
        with self.storage.lock:
            ids, upto = self._scope(account, target), target.index
            rows: list[tuple[Cell, ...]] = []
            for entry in self.storage.tables:
                if entry.id not in ids or (definition := entry.definition_at(upto)) is None:
                    continue
                if entry.partitions:
                    raise StatementError(1105, "internal error: panic not implemented: ")
                since = None if base is None else base.index
                for first, last in self._parts(since, upto):
                    listed = (stored for stored in entry.stored.objects if _is_listed(stored, first, last))
                    rows.extend(self._row(definition.database, definition.name, stored, last) for stored in listed)
            return rows

    def _parts(self, since: int | None, upto: int) -> list[tuple[int | None, int]]:
        """A difference that starts before the checkpoint has two parts. An object may be in both; the row with a delete
        is right (docs/upstream.md 5.7)."""
        middle = self.storage.checkpointed
        return [(since, upto)] if since is None or not since < middle < upto else [(since, middle), (middle, upto)]

    def _row(self, database: str, table: str, stored: StoredObject, upto: int) -> tuple[Cell, ...]:
        clock = self.storage.clock
        deleted = str(clock.time(stored.deleted)) if stored.deleted <= upto else NEVER
        created, stats = str(clock.time(stored.created)), stored.written.stats
        if (
            self.storage.files.abort_column and stored.deleted <= upto
        ):  # as after 4.2: the entry of the delete is marked
            stats = stats[:-1] + bytes((stats[-1] | _DELETE_MARK,))
        return database, table, stats, created, deleted, int(stored.tombstones is not None)

    def object_size(self, name: str) -> int | None:
        content = self.storage.files.read(name)
        return None if content is None else len(content)

    def read_object(self, name: str, offset: int, size: int) -> bytes | memoryview:
        content = self.storage.files.read(name)
        return b"" if content is None else memoryview(content)[offset : offset + size]


def _is_listed(stored: StoredObject, base: int | None, upto: int) -> bool:
    """Without a base: whether the object is live. With a base: whether it was created or deleted from `base` to `upto`,
    both included."""
    if base is None:
        return stored.created <= upto < stored.deleted
    return base <= stored.created <= upto or base <= stored.deleted <= upto


class SimulatedUpstream(ServedUpstream):
    """A server for a storage. A context manager; or call `start` and `stop`.

    Parameters
    ----------
    storage : see `ccpr_emulator.engine.storage`; a new, empty one if None.
    port : 0 for a free one.
    password : of every login; None admits any.
    chunk_bytes : size of get_object's chunks.
    may_flush : False refuses mo_ctl, as for a role without the privilege.
    tls : a server-side context, to offer TLS.

    Raises OSError if the port is in use.
    """

    def __init__(
        self,
        storage: Storage | None = None,
        *,
        port: int = 0,
        password: str | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        may_flush: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.storage = storage or Storage()
        upstream = EmulatedUpstream(
            EngineBacking(self.storage), chunk_bytes, may_flush, sql=partial(SqlSession, self.storage)
        )
        super().__init__(upstream, port=port, password=password, tls=tls)
