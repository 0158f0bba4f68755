"""How far each table has come, and all tables together. Source: docs/requirements.md C; decision
points-move-on-acknowledgement.

Every point has a *saved* value in memory and a *flushed* value in the database. The iteration saves, does the work,
and flushes with the list of the tables whose work was acknowledged. Only the points of these tables move, in the
transaction of the work. It always holds:

    flushed <= saved, except for a global point that was set back by force and not flushed yet
    the flushed global point <= the point of every unfinished table
    a table has reached max(its own flushed point, the flushed global point)

Because of the last line only changed and unfinished tables have a point of their own to move; a finished table moves
with the global point. A table becomes *unfinished* by a flush without its acknowledgement, which is stored with its
point. It stays so, in later processes too, until it is deleted, or is acknowledged at the global point to be flushed or
later. The global point does not move past the point of an unfinished table; finished tables move on by points of
their own.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from ccpr.base.clock import Clock, wall_clock
from ccpr.matrixone.schema import Table
from ccpr.state.checkpoint.checkpoint_store import (
    NOWHERE,
    CheckpointStore,
    DescribedTable,
    ExtraSql,
    FrozenPoints,
    GlobalCheckpoint,
    Location,
    SchemaTracker,
    TableCheckpoint,
    json_text,
    real_names,
    respelled,
)
from ccpr.state.errors import CheckpointNotLoaded, CheckpointSnapshotMissing, PointTooOld


class Checkpoint:
    """The points of one id. Threads may share it: each method holds a lock, which is freed however the method ends
    (C10).

    `load` has to be called first, and again after CheckpointUnknown; until then the other methods raise
    CheckpointNotLoaded. If the database fails they raise StateUnavailable or StateUnreadable, and memory is unchanged;
    or CheckpointUnknown, if it is not known whether the database has committed.

    Parameters
    ----------
    bind : an engine; or a connection without an open transaction, if its session holds a lock of the database.
    id : the task id of the subscription.
    clock : seconds since 1970.
    """

    def __init__(self, bind: sa.Engine | sa.Connection, id: str, clock: Clock = wall_clock) -> None:
        self._store, self._clock = CheckpointStore(bind, id, clock), clock
        self._lock = threading.RLock()  # re-entrant: `extra_sql` of a flush may read the points
        self._loaded = False
        self._start = NOWHERE
        self._last_flush: float | None = None
        self._last_id = 0
        self._set({}, frozenset(), GlobalCheckpoint(NOWHERE))

    # ---- load (C8)

    def load(self, *, described: bool = True) -> None:
        """Read what is stored, which takes precedence over a configured start. Points that were saved or frozen and not
        flushed are forgotten: an interrupted flush counts as one that never happened.

        Parameters
        ----------
        described : read the descriptions of tables, too. Without it they stay as they are stored, where nobody saves
            another one; those who ask for one get CheckpointNotLoaded.
        """
        with self._lock:
            stored = self._store.load(described=described)
            found = stored.all_tables or GlobalCheckpoint(NOWHERE)
            if found.location == NOWHERE:
                found = replace(found, location=self._start)
            self._set(stored.tables, stored.unfinished, found)
            self._loaded = True

    def load_meta(self, start: Location) -> None:
        """Set the configured start, used if no global point is stored. May be called before or after `load`."""
        with self._lock:
            before, self._start = self._start, start
            if self._loaded and self._flushed_all.location == before and self._saved_all == self._flushed_all:
                self._flushed_all = self._saved_all = replace(self._flushed_all, location=start)

    # ---- save (C1)

    def save_table_point(
        self, table_id: int, location: Location, *, schema: str, name: str, info: Mapping[str, Any] | None = None
    ) -> None:
        """The table's work up to a location has begun. Nothing is stored yet, and nothing counts as done.

        Parameters
        ----------
        info : the table as it is at the location: `Table.to_json` and whatever else has to be stored with it. None
            keeps what was saved last.

        Raises PointTooOld for a location before the table's saved point or, unless the table is unfinished, before the
        global point; an equal location is accepted.
        """
        if table_id <= 0:
            raise ValueError(f"{table_id} is not a table id")
        with self._loaded_points():
            known, reached = self._saved.get(table_id), [self._flushed_all.location]
            reached += [] if table_id in self._unfinished else [self._saved_all.location]
            reached = max(*reached, known.location) if known else max(reached)
            if location < reached:
                raise PointTooOld(f"{location} is before {reached}", subject=f"table {schema}.{name}, id {table_id}")
            point = known or TableCheckpoint(location, schema, name)
            if info is not None:
                point = replace(point, info_text=json_text(info), described=True)
            self._saved[table_id] = replace(point, location=location, schema=schema, name=name)
            self._touched.add(table_id)

    def save_global_point(self, location: Location) -> None:
        """The work of all tables up to a location has begun.

        Raises PointTooOld for a location before the saved one; an equal location is accepted.
        """
        with self._loaded_points():
            if location < self._saved_all.location:
                raise PointTooOld(
                    f"{location} is before {self._saved_all.location}", subject=f"global point of {self._store.id}"
                )
            self._saved_all = replace(self._saved_all, location=location)

    def save_global_point_forced(self, location: Location) -> None:
        """Set the global point back, which nothing else does. With the next flush, finished tables without a later
        point of their own go back, too. Discards frozen points.
        """
        with self._loaded_points():
            self._pending = {}
            self._saved_all = replace(self._saved_all, location=location)

    # ---- snapshot and flush (C3)

    def snapshot(self, *, forced: bool = False) -> int | None:
        """Freeze the points that have changed since the last flush, and return an id for `flush`. None if nothing has
        changed, unless `forced`. What is saved later is not part of it.
        """
        with self._loaded_points():
            tables = {table_id: point for table_id, point in self._saved.items() if self._has_changed(table_id, point)}
            if not (tables or forced or self._saved_all != self._flushed_all):
                return None
            self._last_id += 1
            self._pending[self._last_id] = FrozenPoints(tables, self._saved_all)
            return self._last_id

    def flush(
        self,
        snapshot_id: int,
        acks: Collection[int],
        extra_sql: Sequence[ExtraSql] = (),
        *,
        gone: Collection[int] = (),
    ) -> Location:
        """Store frozen points in one transaction: `extra_sql` in its order, table points in batches of 100, the global
        point last. Flushed values move if the transaction commits. Returns the global point that was stored.

        A table that is not in `acks` stays where it is, gets a row that says so, and is unfinished from now on. The
        global point is stored at the frozen location, or at the least point of the unfinished tables if that is before.
        So one table without acknowledgement does not stop the others, and does not count as done.

        Parameters
        ----------
        acks : ids of the tables whose work was acknowledged. A table that has no frozen point may be among them; it
            does not move.
        extra_sql : statements, and functions of the connection, for the same transaction. If one raises, everything is
            rolled back, the error is passed on, and the same points can be flushed again.
        gone : ids of tables that do not exist any more at the frozen location. Their points are deleted.

        Raises CheckpointSnapshotMissing for an id that is unknown, or older than one that was flushed.
        """
        with self._loaded_points():
            frozen = self._pending.get(snapshot_id)
            if frozen is None:
                raise CheckpointSnapshotMissing(
                    "there is no such snapshot", subject=f"checkpoint {self._store.id}, snapshot {snapshot_id}"
                )
            written, unfinished = self._outcome(frozen, set(acks), set(gone))
            flushed = {
                table_id: point for table_id, point in {**self._flushed, **written}.items() if table_id not in gone
            }
            location = min([frozen.all_tables.location, *(flushed[table_id].location for table_id in unfinished)])
            all_tables = replace(frozen.all_tables, location=location).safe_mode_until(location)
            with self._writing() as connection:
                for extra in extra_sql:
                    _ = connection.execute(extra) if isinstance(extra, sa.Executable) else extra(connection)
                self._store.delete(connection, gone)
                self._store.write_tables(connection, written, unfinished)
                self._store.write_global(connection, all_tables)
            self._flushed, self._unfinished, self._flushed_all = flushed, unfinished, all_tables
            self._saved_all = self._saved_all.safe_mode_until(location)
            self._touched.difference_update(acks)
            self._forget(gone)
            self._pending = {key: later for key, later in self._pending.items() if key > snapshot_id}
            self._last_flush = self._clock()
            return location

    def flush_table_schemas(self, tables: Iterable[DescribedTable]) -> None:
        """Store names and descriptions of tables without moving a location. A table without a point gets one at the
        location that it has reached."""
        with self._loaded_points():
            written = {}
            for table in tables:
                known = self._flushed.get(table.table_id)
                location = known.location if known else self._flushed_all.location
                written[table.table_id] = TableCheckpoint(location, table.schema, table.name, json_text(table.info))
            with self._writing() as connection:
                self._store.write_tables(connection, written, self._unfinished)
            self._flushed = {**self._flushed, **written}
            for points in self._unstored():
                known = written.keys() & points.keys()
                points.update({key: replace(written[key], location=points[key].location) for key in known})
            self._saved = {**written, **self._saved}

    def discard_pending_snapshots(self) -> None:
        """Forget what was frozen and not flushed. What was saved stays."""
        with self._lock:
            self._pending = {}

    def last_flush_outdated(self, interval_seconds: float) -> bool:
        """Whether the last flush is longer ago, there was none, or the clock has been set back behind it."""
        with self._lock:
            return self._last_flush is None or not 0 <= self._clock() - self._last_flush <= interval_seconds

    # ---- rollback (C4)

    def rollback(self) -> None:
        """Reset saved points, names and descriptions to what is flushed. Removes points that were never flushed, and
        discards frozen ones."""
        with self._loaded_points():
            self._set(self._flushed, self._unfinished, self._flushed_all)

    # ---- what is known (C5, C8)

    def is_older_than_table_point(self, table_id: int, location: Location) -> bool:
        """Whether the table has everything up to and including this location, so that work for it can be skipped.

        Flushed points count, not saved ones: work that was begun and not acknowledged is not skipped.
        """
        return location <= self.reached(table_id)

    def reached(self, table_id: int) -> Location:
        """Up to where the table's work is done: the later of its own flushed point and the global one (C2)."""
        with self._loaded_points():
            point = self._flushed.get(table_id)
            return max(point.location, self._flushed_all.location) if point else self._flushed_all.location

    def global_point(self) -> Location:
        """The saved global point; NOWHERE before the first."""
        with self._loaded_points():
            return self._saved_all.location

    def flushed_global_point(self) -> Location:
        """NOWHERE before the first."""
        with self._loaded_points():
            return self._flushed_all.location

    def table_points(self) -> dict[int, TableCheckpoint]:
        """The saved points, by table id, of the tables that have a point of their own."""
        with self._loaded_points():
            return dict(self._saved)

    def flushed_table_points(self) -> dict[int, TableCheckpoint]:
        """The flushed points, by table id, of the tables that have a point of their own."""
        with self._loaded_points():
            return dict(self._flushed)

    def unfinished_tables(self) -> frozenset[int]:
        """Ids of the tables at which the global point waits, by what is flushed."""
        with self._loaded_points():
            return self._unfinished

    def table_schema(self, table_id: int) -> Table | None:
        """The table as it is at its flushed point; None if it is not known. Raises StateUnreadable."""
        with self._loaded_points():
            point = self._flushed.get(table_id)
        return point.table if point else None

    def load_into_schema_tracker(self, tracker: SchemaTracker) -> None:
        """Call the tracker with every table that is known at its flushed point.

        Raises StateUnreadable before the first call.
        """
        with self._loaded_points():
            tables = {table_id: point.table for table_id, point in self._flushed.items()}
        for table_id, table in tables.items():
            if table is not None:
                tracker.track(table_id, table)

    def reset_connection(self) -> None:
        """Close connections to the database, which may be broken. The next statement opens a new one."""
        with self._lock:
            self._store.reset_connection()

    # ---- delete (C6): memory follows when the database has committed

    def delete_table_point(self, table_id: int) -> None:
        """Delete the point of a table. If the table was unfinished, the global point no longer waits for it."""
        self._delete({table_id})

    def delete_schema_points(self, schema: str) -> None:
        """Delete the points of the tables that are in this schema by their saved names."""
        with self._loaded_points():
            self._delete({table_id for table_id, point in self._saved.items() if point.schema == schema})

    def delete_all_table_points(self) -> None:
        """Delete all table points. The global point stays, and counts for all tables."""
        with self._loaded_points():
            with self._writing() as connection:
                self._store.delete_tables(connection)
            self._unfinished = frozenset()
            self._flushed = {}
            self._forget(set(self._saved))

    def clear(self) -> None:
        """Delete all points of this id. It begins again at the configured start."""
        with self._loaded_points():
            with self._writing() as connection:
                self._store.clear(connection)
            self._set({}, frozenset(), GlobalCheckpoint(self._start))

    # ---- safe mode (C7)

    def save_safe_mode_exit_point(self, location: Location | None) -> None:
        """Turn on safe mode up to a location: after an unclean stop, work up to there may have been done that no point
        shows, so it is done in a way that may be repeated.

        Stored with the next flush, and cleared by the flush whose global point reaches it. None, or a location that is
        already reached, ends safe mode.
        """
        with self._loaded_points():
            saved = replace(self._saved_all, safe_mode_exit=location)
            self._saved_all = saved.safe_mode_until(self._flushed_all.location)

    def flush_safe_mode_exit_point(self) -> None:
        """Store only the end of safe mode; no point moves."""
        with self._loaded_points():
            written = replace(self._flushed_all, safe_mode_exit=self._saved_all.safe_mode_exit)
            with self._writing() as connection:
                self._store.write_global(connection, written)
            self._flushed_all = written

    def safe_mode_exit_point(self) -> Location | None:
        """The saved end of safe mode; None = safe mode is off."""
        with self._loaded_points():
            return self._saved_all.safe_mode_exit

    # ---- names (C9)

    def check_and_update(self, schemas: Collection[str], tables: Collection[tuple[str, str]]) -> int:
        """Correct names that differ from the real ones in letter case only (see `real_names`). Returns how many.

        The key of a point is the table id, so no point can be lost or confused with another.

        Parameters
        ----------
        schemas : the databases that exist.
        tables : the (database, table) pairs that exist.
        """
        with self._loaded_points():
            spelled = real_names(self._saved, schemas, tables)
            written = respelled(self._flushed, spelled)
            if written:
                with self._writing() as connection:
                    self._store.write_tables(connection, written, self._unfinished)
            self._flushed = {**self._flushed, **written}
            for points in self._unstored():
                points.update(respelled(points, spelled))
            return len(spelled)

    # ----

    def _set(
        self, flushed: Mapping[int, TableCheckpoint], unfinished: frozenset[int], all_tables: GlobalCheckpoint
    ) -> None:
        self._flushed, self._saved, self._unfinished = dict(flushed), dict(flushed), unfinished
        self._flushed_all = self._saved_all = all_tables
        self._touched: set[int] = set()  # saved since the last acknowledgement, also with the same value
        self._pending: dict[int, FrozenPoints] = {}

    @contextmanager
    def _loaded_points(self) -> Iterator[None]:
        """Holds the lock. Raises CheckpointNotLoaded."""
        with self._lock:
            if not self._loaded:
                raise CheckpointNotLoaded("the stored state must be read first", subject=f"checkpoint {self._store.id}")
            yield

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._store.transaction() as connection:
            yield connection
            self._loaded = False  # if COMMIT fails, what is stored is unknown until it is read again
        self._loaded = True

    def _unstored(self) -> list[dict[int, TableCheckpoint]]:
        """The points that later flushes will store."""
        return [self._saved, *(frozen.tables for frozen in self._pending.values())]

    def _has_changed(self, table_id: int, point: TableCheckpoint) -> bool:
        flushed = self._flushed.get(table_id)
        differs = point is not flushed and point != flushed
        return differs or (table_id in self._unfinished and table_id in self._touched)

    def _outcome(
        self, frozen: FrozenPoints, acks: set[int], gone: set[int]
    ) -> tuple[dict[int, TableCheckpoint], frozenset[int]]:
        """The table points that a flush writes, and the ids of the tables that are unfinished after it.

        An unfinished table has finished only if its acknowledged point is not before the frozen global point: what it
        missed in between is not known.
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
        with self._loaded_points():
            with self._writing() as connection:
                self._store.delete(connection, table_ids)
            self._flushed = {table_id: point for table_id, point in self._flushed.items() if table_id not in table_ids}
            self._unfinished -= table_ids
            self._forget(table_ids)

    def _forget(self, table_ids: Collection[int]) -> None:
        """Remove deleted tables from saved and frozen points, so that a later flush does not store them again."""
        for table_id in table_ids:
            self._touched.discard(table_id)
            for points in self._unstored():
                points.pop(table_id, None)
