"""How far each table has come, and all of them together (requirements, section C).

Every point has a *saved* value, in memory, and a *flushed* one, stored. The iteration saves, does the work, and
flushes with the list of the tables whose work was acknowledged. Only what is on that list moves, and only with the
transaction that carries the work.

    flushed <= saved, but for a global point that was set back by force and not flushed yet
    the flushed global point <= the point of every unfinished table
    a table has reached max(its own flushed point, the flushed global point)

The last line is why only changed and unfinished tables have rows of their own to move: a table that has finished goes
along with the global point. A table is *unfinished* from the flush on that did not have its acknowledgement, and this
is stored with it, until it is deleted or an acknowledgement brings it up to the global point that is to be flushed. An
unfinished table holds the global point back, whatever process comes next; finished tables move on in rows of their own
meanwhile.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import sqlalchemy as sa

from matrixone.schema import Table
from replication.checkpoint.names import real_names, renamed
from replication.checkpoint.store import (
    NOWHERE,
    CheckpointStore,
    GlobalCheckpoint,
    Location,
    TableCheckpoint,
    json_text,
)
from replication.errors import CheckpointNotLoaded, CheckpointSnapshotMissing, PointTooOld, StateUnreadable

Extra = sa.Executable | Callable[[sa.Connection], None]


class SchemaTracker(Protocol):
    """Something that has to know each table as it is at its point."""

    def track(self, table_id: int, table: Table) -> None: ...


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table's names and its description (JSON), without a location."""

    table_id: int
    schema: str
    name: str
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Frozen:
    tables: dict[int, TableCheckpoint]
    all_tables: GlobalCheckpoint


class Checkpoint:
    """The points of one id. Threads may share it: each method holds a lock, which is freed however the method ends
    (C10).

    `load` comes first, and again after CheckpointUnknown; until it has succeeded the others raise CheckpointNotLoaded.
    Where the store fails they raise StateUnavailable or StateUnreadable, and memory is as it was; CheckpointUnknown
    where the failure leaves open whether the store has it.

    Parameters
    ----------
    bind : an engine; or a connection without an open transaction, for a session that holds a lock of its database.
    id : whose points; a task id.
    clock : seconds since 1970.
    """

    def __init__(self, bind: sa.Engine | sa.Connection, id: str, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = CheckpointStore(bind, id, clock), clock
        self._lock = threading.RLock()  # what runs inside a flush may look at the points
        self._loaded = False
        self._start = NOWHERE
        self._last_flush: float | None = None
        self._last_id = 0
        self._set({}, frozenset(), GlobalCheckpoint(NOWHERE))

    # ---- load (C8)

    def load(self) -> None:
        """Take what is stored; it is preferred to a configured start. What was saved and not flushed, or frozen, is
        forgotten: a flush that was interrupted is one that never was.
        """
        with self._lock:
            stored = self._store.load()
            found = stored.all_tables or GlobalCheckpoint(NOWHERE)
            if found.location == NOWHERE:
                found = replace(found, location=self._start)
            self._set(stored.tables, stored.unfinished, found)
            self._loaded = True

    def load_meta(self, start: Location) -> None:
        """Where to start when the store has no global point, as the configuration says. Before `load` or after it."""
        with self._lock:
            before, self._start = self._start, start
            if self._loaded and self._flushed_all.location == before and self._saved_all == self._flushed_all:
                self._flushed_all = self._saved_all = replace(self._flushed_all, location=start)

    # ---- save (C1)

    def save_table_point(
        self, table_id: int, location: Location, *, schema: str, name: str, info: Mapping[str, Any] | None = None
    ) -> None:
        """Say that the table's work up to a location is being done. Nothing is stored, nothing counts as done.

        Parameters
        ----------
        info : the table as it is at the location, `Table.to_json` and whatever else has to be kept with it; None keeps
            what was saved last.

        Raises PointTooOld for a location before the table's saved point or, unless the table is unfinished, before the
        global one; an equal one is accepted.
        """
        if table_id <= 0:
            raise ValueError(f"{table_id} is no table id")
        with self._needed():
            known = self._saved.get(table_id)
            reached = (
                self._flushed_all.location
                if table_id in self._unfinished
                else max(self._saved_all.location, self._flushed_all.location)
            )
            reached = max(known.location, reached) if known else reached
            if location < reached:
                raise PointTooOld(f"{location} is before {reached}", subject=f"table {schema}.{name}, id {table_id}")
            text = known.info_text if info is None and known else None
            self._saved[table_id] = TableCheckpoint(location, schema, name, text if info is None else json_text(info))
            self._touched.add(table_id)

    def save_global_point(self, location: Location) -> None:
        """Say that all tables' work up to a location is being done. Raises PointTooOld for one before the saved one;
        equal is accepted."""
        with self._needed():
            if location < self._saved_all.location:
                raise PointTooOld(
                    f"{location} is before {self._saved_all.location}", subject=f"global point of {self._store.id}"
                )
            self._saved_all = replace(self._saved_all, location=location)

    def save_global_point_forced(self, location: Location) -> None:
        """The one way to go back: finished tables without a later point of their own go back with it, once it is
        flushed. What was frozen before is discarded.
        """
        with self._needed():
            self._pending = {}
            self._saved_all = replace(self._saved_all, location=location)

    # ---- snapshot and flush (C3)

    def snapshot(self, *, forced: bool = False) -> int | None:
        """Freeze what has changed since the last flush, under an id. None if nothing has, unless `forced`. What is
        saved later is not part of it.
        """
        with self._needed():
            tables = {table_id: point for table_id, point in self._saved.items() if self._has_changed(table_id, point)}
            if not (tables or forced or self._saved_all != self._flushed_all):
                return None
            self._last_id += 1
            self._pending[self._last_id] = _Frozen(tables, self._saved_all)
            return self._last_id

    def flush(
        self, snapshot_id: int, acks: Collection[int], extra_sql: Sequence[Extra] = (), *, gone: Collection[int] = ()
    ) -> Location:
        """Store a snapshot in one transaction: `extra_sql` in its order, table points in batches of 100, the global
        point last. Flushed values move when the transaction has committed, and not otherwise. Returns the global point
        that was stored.

        A table that is not in `acks` stays where it is, gets a row that says so, and is unfinished from now on. The
        global point is stored as far as the unfinished tables let it: the least of their points, if that is before the
        frozen one. So nothing is refused for one table's sake, and nothing is claimed for it.

        Parameters
        ----------
        acks : ids of the tables whose work was acknowledged; a table that is not in the snapshot may be in it, and
            does not move.
        extra_sql : what has to be in the same transaction: statements, and functions of the connection. One that
            raises undoes all; what it raises is passed on, and the snapshot can be flushed again.
        gone : ids of tables that are no more at the frozen location; their points are deleted in the same transaction.

        Raises CheckpointSnapshotMissing for an id that is unknown, or older than one that was flushed.
        """
        with self._needed():
            frozen = self._pending.get(snapshot_id)
            if frozen is None:
                raise CheckpointSnapshotMissing(
                    "there is no such snapshot", subject=f"checkpoint {self._store.id}, snapshot {snapshot_id}"
                )
            written, unfinished = self._settle(frozen, set(acks), set(gone))
            flushed = {
                table_id: point for table_id, point in {**self._flushed, **written}.items() if table_id not in gone
            }
            location = min([frozen.all_tables.location, *(flushed[table_id].location for table_id in unfinished)])
            all_tables = _safe_mode_until(replace(frozen.all_tables, location=location), location)
            with self._writing() as connection:
                for extra in extra_sql:
                    if isinstance(extra, sa.Executable):
                        connection.execute(extra)
                    else:
                        extra(connection)
                self._store.delete(connection, gone)
                self._store.write_tables(connection, written, unfinished)
                self._store.write_global(connection, all_tables)
            self._flushed, self._unfinished, self._flushed_all = flushed, unfinished, all_tables
            self._saved_all = _safe_mode_until(self._saved_all, location)
            self._touched.difference_update(acks)
            self._forget(gone)
            self._pending = {key: later for key, later in self._pending.items() if key > snapshot_id}
            self._last_flush = self._clock()
            return location

    def flush_table_schemas(self, tables: Iterable[TableInfo]) -> None:
        """Store tables' names and descriptions, and move no location. One without a point gets that which it has
        reached."""
        with self._needed():
            written = {}
            for table in tables:
                known = self._flushed.get(table.table_id)
                location = known.location if known else self._flushed_all.location
                written[table.table_id] = TableCheckpoint(location, table.schema, table.name, json_text(table.info))
            with self._writing() as connection:
                self._store.write_tables(connection, written, self._unfinished)
            self._flushed = {**self._flushed, **written}
            for table_id, point in written.items():
                for points in self._unstored():
                    old = points.get(table_id)
                    if old is not None:
                        points[table_id] = replace(point, location=old.location)
                self._saved.setdefault(table_id, point)

    def discard_pending_snapshots(self) -> None:
        """Forget what was frozen and not flushed; what was saved stays."""
        with self._lock:
            self._pending = {}

    def last_flush_outdated(self, interval_seconds: float) -> bool:
        """Has this object not flushed for so long? Also when it never has, and when the clock was set back before the
        last flush."""
        with self._lock:
            return self._last_flush is None or not 0 <= self._clock() - self._last_flush <= interval_seconds

    # ---- rollback (C4)

    def rollback(self) -> None:
        """Every saved point, name and description is again what is flushed; points that never were flushed go, and so
        do snapshots."""
        with self._needed():
            self._set(self._flushed, self._unfinished, self._flushed_all)

    # ---- what is known (C5, C8)

    def is_older_than_table_point(self, table_id: int, location: Location) -> bool:
        """Does the table have everything up to this location, so that it can be skipped? True for the very location
        that it has reached.

        Flushed points count, not saved ones: what was begun and not acknowledged is not skipped.
        """
        return location <= self.reached(table_id)

    def reached(self, table_id: int) -> Location:
        """Up to where the table's work is done: its own flushed point or the global one, whichever is later (C2)."""
        with self._needed():
            point = self._flushed.get(table_id)
            return max(point.location, self._flushed_all.location) if point else self._flushed_all.location

    def global_point(self) -> Location:
        """As saved; NOWHERE before the first."""
        with self._needed():
            return self._saved_all.location

    def flushed_global_point(self) -> Location:
        with self._needed():
            return self._flushed_all.location

    def table_points(self) -> dict[int, TableCheckpoint]:
        """By table id, as saved: tables that have a point of their own."""
        with self._needed():
            return dict(self._saved)

    def flushed_table_points(self) -> dict[int, TableCheckpoint]:
        with self._needed():
            return dict(self._flushed)

    def unfinished_tables(self) -> frozenset[int]:
        """Ids of the tables that hold the global point back, by what is flushed."""
        with self._needed():
            return self._unfinished

    def table_schema(self, table_id: int) -> Table | None:
        """The table as it is at its flushed point; None if that was never said. Raises StateUnreadable."""
        with self._needed():
            point = self._flushed.get(table_id)
        return _table(point) if point else None

    def load_into_schema_tracker(self, tracker: SchemaTracker) -> None:
        """Tell of every table that is known at its flushed point. Raises StateUnreadable, and then nothing was told."""
        with self._needed():
            tables = {table_id: _table(point) for table_id, point in self._flushed.items()}
        for table_id, table in tables.items():
            if table is not None:
                tracker.track(table_id, table)

    def reset_connection(self) -> None:
        """Let go of connections to the store, which may be broken; the next statement makes a new one."""
        with self._lock:
            self._store.reset_connection()

    # ---- delete (C6): memory follows when the store has acknowledged

    def delete_table_point(self, table_id: int) -> None:
        """A table that was unfinished no longer holds the global point back."""
        self._delete({table_id})

    def delete_schema_points(self, schema: str) -> None:
        """Points of the tables which by their saved name are in that schema."""
        with self._needed():
            self._delete({table_id for table_id, point in self._saved.items() if point.schema == schema})

    def delete_all_table_points(self) -> None:
        """The global point stays, for all tables."""
        with self._needed():
            with self._writing() as connection:
                self._store.delete_tables(connection)
            self._unfinished = frozenset()
            self._flushed = {}
            self._forget(set(self._saved))

    def clear(self) -> None:
        """Everything of this id; it begins again where it is configured to."""
        with self._needed():
            with self._writing() as connection:
                self._store.clear(connection)
            self._set({}, frozenset(), GlobalCheckpoint(self._start))

    # ---- safe mode (C7)

    def save_safe_mode_exit_point(self, location: Location | None) -> None:
        """After an unclean stop: up to here work may have been done that no point tells of, so it is done in a way
        that can be repeated. Stored with the next flush, and cleared by the flush whose global point reaches it. None,
        or a location that is reached already, ends safe mode.
        """
        with self._needed():
            saved = replace(self._saved_all, safe_mode_exit=location)
            self._saved_all = _safe_mode_until(saved, self._flushed_all.location)

    def flush_safe_mode_exit_point(self) -> None:
        """Store it alone, and move no point."""
        with self._needed():
            written = replace(self._flushed_all, safe_mode_exit=self._saved_all.safe_mode_exit)
            with self._writing() as connection:
                self._store.write_global(connection, written)
            self._flushed_all = written

    def safe_mode_exit_point(self) -> Location | None:
        """As saved; None = safe mode is off."""
        with self._needed():
            return self._saved_all.safe_mode_exit

    # ---- names (C9)

    def check_and_update(self, schemas: Collection[str], tables: Collection[tuple[str, str]]) -> int:
        """Store names as they are really spelled, where a saved one differs in letter case alone; how many were
        repaired. See `checkpoint_names`. Points are kept by table id, so that none can be lost by it or taken for
        another.

        Parameters
        ----------
        schemas : the databases that there are.
        tables : (database, table) that there are.
        """
        with self._needed():
            spelled = real_names(
                {table_id: (point.schema, point.name) for table_id, point in self._saved.items()}, schemas, tables
            )
            written = {
                table_id: renamed(self._flushed[table_id], *names)
                for table_id, names in spelled.items()
                if table_id in self._flushed
            }
            if written:
                with self._writing() as connection:
                    self._store.write_tables(connection, written, self._unfinished)
            self._flushed = {**self._flushed, **written}
            for table_id, names in spelled.items():
                for points in self._unstored():
                    if table_id in points:
                        points[table_id] = renamed(points[table_id], *names)
            return len(spelled)

    # ----

    def _set(
        self, flushed: Mapping[int, TableCheckpoint], unfinished: frozenset[int], all_tables: GlobalCheckpoint
    ) -> None:
        self._flushed, self._saved, self._unfinished = dict(flushed), dict(flushed), unfinished
        self._flushed_all = self._saved_all = all_tables
        self._touched: set[int] = set()  # saved since the last acknowledgement, even if to the same value
        self._pending: dict[int, _Frozen] = {}

    @contextmanager
    def _needed(self) -> Iterator[None]:
        """Hold the lock; memory is what the store has, and more."""
        with self._lock:
            if not self._loaded:
                raise CheckpointNotLoaded("what is stored has to be read first", subject=f"checkpoint {self._store.id}")
            yield

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._store.transaction() as connection:
            yield connection
            self._loaded = (
                False  # during COMMIT nobody knows what is stored, and if it fails nobody will until it is read
            )
        self._loaded = True

    def _unstored(self) -> list[dict[int, TableCheckpoint]]:
        """The points that later flushes are made of."""
        return [self._saved, *(frozen.tables for frozen in self._pending.values())]

    def _has_changed(self, table_id: int, point: TableCheckpoint) -> bool:
        return point != self._flushed.get(table_id) or (table_id in self._unfinished and table_id in self._touched)

    def _settle(
        self, frozen: _Frozen, acks: set[int], gone: set[int]
    ) -> tuple[dict[int, TableCheckpoint], frozenset[int]]:
        """The table points to write, and who is unfinished then.

        A table that was unfinished has finished only if its acknowledged point is not before the frozen global point:
        nothing tells what it missed in between.
        """
        written, unfinished = {}, set(self._unfinished) - gone
        for table_id, point in frozen.tables.items():
            if table_id in gone or not self._has_changed(table_id, point):
                continue
            if table_id in acks:
                written[table_id] = point
                if point.location >= frozen.all_tables.location:
                    unfinished.discard(table_id)
            else:
                known = self._flushed.get(table_id, TableCheckpoint(NOWHERE, point.schema, point.name))
                written[table_id] = replace(known, location=max(known.location, self._flushed_all.location))
                unfinished.add(table_id)
        return written, frozenset(unfinished)

    def _delete(self, table_ids: set[int]) -> None:
        with self._needed():
            with self._writing() as connection:
                self._store.delete(connection, table_ids)
            self._flushed = {table_id: point for table_id, point in self._flushed.items() if table_id not in table_ids}
            self._unfinished -= table_ids
            self._forget(table_ids)

    def _forget(self, table_ids: Collection[int]) -> None:
        """A deleted table is no longer saved, nor frozen: a later flush does not bring it back."""
        for table_id in table_ids:
            self._touched.discard(table_id)
            for points in self._unstored():
                points.pop(table_id, None)


def _safe_mode_until(point: GlobalCheckpoint, reached: Location) -> GlobalCheckpoint:
    """The point, out of safe mode if the end of that is reached."""
    leaves = point.safe_mode_exit
    return replace(point, safe_mode_exit=leaves if leaves and leaves > reached else None)


def _table(point: TableCheckpoint) -> Table | None:
    info = point.info
    try:
        return None if info is None else Table.from_json(info)
    except (TypeError, ValueError, KeyError) as error:
        subject = f"checkpoint of table {point.schema}.{point.name}"
        raise StateUnreadable(f"a table's description cannot be read: {error!r}", subject=subject) from error
