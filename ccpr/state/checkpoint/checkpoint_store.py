"""The table `ccpr_checkpoints`, in which checkpoints are stored. Source: docs/requirements.md C.

It is in the same database as what the checkpoint is about, so that both are committed together: for the mirror in the
catalog database, for a target in the target's database. Nothing here depends on subscriptions or leases.
`checkpoints.create(engine, checkfirst=True)` creates this table only.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import exc

from ccpr.base.clock import Clock, utc_now
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Table
from ccpr.state.database import batches, fetch, repeatable, transaction, typed
from ccpr.state.errors import CheckpointNotLoaded, CheckpointUnknown, StateUnreadable
from ccpr.state.tables import checkpoints

ExtraSql = sa.Executable | Callable[[sa.Connection], None]
BATCH = 100  # table points in one statement (C3)
GLOBAL_ID = 0  # of the global point: no table of MatrixOne has this id

_PLACES = (
    "table_id",
    "table_schema",
    "table_name",
    "lsn",
    "snapshot_ts",
    "exit_safe_lsn",
    "exit_safe_ts",
    "is_finished",
)
_STORED_WITHOUT = sa.select(*(checkpoints.c[name] for name in _PLACES)).where(checkpoints.c.id == sa.bindparam("of"))
_STORED = _STORED_WITHOUT.add_columns(checkpoints.c.table_info)
_KEPT = ("id", "table_id", "is_global", "create_time")
_UPDATED = [column.name for column in checkpoints.columns if column.name not in _KEPT]


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """How far something has come; ordered.

    Attributes
    ----------
    lsn : number of the iteration.
    snapshot_ts : time of its snapshot in nanoseconds, by the upstream's clock.
    """

    lsn: int
    snapshot_ts: int


NOWHERE = Location(-1, 0)  # before the first iteration


@dataclass(frozen=True, slots=True)
class TableCheckpoint:
    """A table point of a checkpoint: a location, and the table as it is there.

    Attributes
    ----------
    schema, name : names of the database and the table. They are not the key; the table id is.
    info_text : the table's description as JSON; None if it is not known.
    described : False if the description was not read; the stored one stays.
    """

    location: Location
    schema: str
    name: str
    info_text: str | None = field(default=None, repr=False)
    described: bool = True

    @property
    def info(self) -> dict[str, Any] | None:
        """The description as it was saved. Raises StateUnreadable; CheckpointNotLoaded if it was not read."""
        if not self.described:
            raise CheckpointNotLoaded("the descriptions of tables were not read", subject=f"{self.schema}.{self.name}")
        if self.info_text is None:
            return None
        try:
            value = json.loads(self.info_text)
            if not isinstance(value, dict):
                raise TypeError("it is not a JSON object")
        except (TypeError, ValueError, RecursionError) as error:
            subject = f"checkpoint of table {self.schema}.{self.name}"
            raise StateUnreadable(f"a table's description cannot be read: {error}", subject=subject) from error
        return value

    @property
    def table(self) -> Table | None:
        """The table as it is there; None if it is not known. Raises StateUnreadable; CheckpointNotLoaded."""
        info = self.info
        try:
            return None if info is None else Table.from_json(info)
        except (TypeError, ValueError, KeyError) as error:
            subject = f"checkpoint of table {self.schema}.{self.name}"
            raise StateUnreadable(f"a table's description cannot be read: {error!r}", subject=subject) from error


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A table's names and description (JSON), without a location."""

    table_id: int
    schema: str
    name: str
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GlobalCheckpoint:
    """The global point of a checkpoint: the location that every finished table has reached.

    Attributes
    ----------
    safe_mode_exit : where safe mode ends; None if it is off (C7).
    """

    location: Location
    safe_mode_exit: Location | None = None

    def safe_mode_until(self, reached: Location) -> "GlobalCheckpoint":
        """The point, without safe mode if its end is reached."""
        leaves = self.safe_mode_exit
        return replace(self, safe_mode_exit=leaves if leaves and leaves > reached else None)


@dataclass(frozen=True, slots=True)
class FrozenPoints:
    """The saved points at the time of a `snapshot`."""

    tables: dict[int, TableCheckpoint]
    all_tables: GlobalCheckpoint


class SchemaTracker(Protocol):
    """Is called with each table as it is at its point."""

    def track(self, table_id: int, table: Table) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredCheckpoints:
    """The stored points of one id.

    Attributes
    ----------
    all_tables : the global point; None if it was never stored.
    tables : table points by table id.
    unfinished : ids of the tables for which changes up to a later location are pending.
    """

    all_tables: GlobalCheckpoint | None
    tables: dict[int, TableCheckpoint]
    unfinished: frozenset[int]


class CheckpointStore:
    """Reads and writes the rows of one id.

    Parameters
    ----------
    bind : an engine; or a connection without an open transaction, if the rows have to be written by the session that
        holds a lock.
    clock : seconds since 1970.
    """

    def __init__(self, bind: sa.Engine | sa.Connection, id: str, clock: Clock) -> None:
        self._bind, self._clock = bind, clock
        self.id = id

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction. Raises what the block raises; StateUnavailable or StateUnreadable if the database fails before
        the end of the block; CheckpointUnknown if it fails after that, since it may then have committed.
        """
        at_commit = False
        try:
            with self._begin() as connection:
                yield connection
                at_commit = True
        except (CcprError, exc.DBAPIError) as error:
            if not at_commit:
                raise
            raise CheckpointUnknown(
                f"the database failed at COMMIT: {error}", subject=f"checkpoint {self.id}"
            ) from error

    @repeatable
    def load(self, *, described: bool = True) -> StoredCheckpoints:
        """With the descriptions of tables, or without. Raises StateUnavailable, StateUnreadable."""
        with self._begin() as connection:
            rows = fetch(connection, _STORED if described else _STORED_WITHOUT, of=self.id)
        all_tables, tables, unfinished = None, {}, set()
        locations = cache(Location)  # tables that were new together have the same
        for table_id, schema, name, lsn, at, exit_lsn, exit_at, is_finished, *info in rows:
            if table_id == GLOBAL_ID:
                leaves = None if exit_lsn is None else Location(exit_lsn, exit_at)
                all_tables = GlobalCheckpoint(Location(lsn, at), leaves)
            else:
                text = info[0] if info else None
                tables[table_id] = TableCheckpoint(locations(lsn, at), schema, name, text, described)
                if not is_finished:
                    unfinished.add(table_id)
        return StoredCheckpoints(all_tables, tables, frozenset(unfinished))

    def write_tables(
        self, connection: sa.Connection, tables: Mapping[int, TableCheckpoint], unfinished: Collection[int]
    ) -> None:
        """Write table points in the order of their ids, a batch in one statement; last those whose descriptions were
        not read."""
        for described in (True, False):
            rows = [
                self._row(
                    table_id,
                    point.location,
                    table_schema=point.schema,
                    table_name=point.name,
                    table_info=point.info_text,
                    is_finished=table_id not in unfinished,
                )
                for table_id, point in sorted(tables.items())
                if point.described is described
            ]
            for batch in batches(rows, BATCH):
                connection.execute(_upsert(self._bind.dialect.name, described=described), batch)

    def write_global(self, connection: sa.Connection, point: GlobalCheckpoint) -> None:
        leaves = point.safe_mode_exit
        exit_safe = {"exit_safe_lsn": leaves.lsn, "exit_safe_ts": leaves.snapshot_ts} if leaves else {}
        connection.execute(_upsert(self._bind.dialect.name), self._row(GLOBAL_ID, point.location, **exit_safe))

    def delete(self, connection: sa.Connection, table_ids: Iterable[int]) -> None:
        """Delete table points."""
        for batch in batches(sorted(table_ids), BATCH):
            of_id = (checkpoints.c.id == self.id, checkpoints.c.table_id.in_(batch))
            connection.execute(checkpoints.delete().where(*of_id))

    def delete_tables(self, connection: sa.Connection) -> None:
        """Delete all table points; the global point stays."""
        connection.execute(checkpoints.delete().where(checkpoints.c.id == self.id, checkpoints.c.table_id != GLOBAL_ID))

    def clear(self, connection: sa.Connection) -> None:
        """Delete all points."""
        connection.execute(checkpoints.delete().where(checkpoints.c.id == self.id))

    def reset_connection(self) -> None:
        """Close the connection; the next statement uses a new one. A database in memory, which exists as long as its
        connection, is lost."""
        if isinstance(self._bind, sa.Engine):
            self._bind.dispose()
        else:
            self._bind.invalidate()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        if isinstance(self._bind, sa.Engine):
            with transaction(self._bind) as connection:
                yield connection
            return
        with typed(self._bind.engine), self._bind.begin():
            yield self._bind

    def _row(self, table_id: int, location: Location, **values: object) -> dict[str, object]:
        now = utc_now(self._clock)
        return {
            "table_schema": "",
            "table_name": "",
            "exit_safe_lsn": None,
            "exit_safe_ts": None,
            "table_info": None,
            "is_finished": True,
            "id": self.id,
            "table_id": table_id,
            "lsn": location.lsn,
            "snapshot_ts": location.snapshot_ts,
            "is_global": table_id == GLOBAL_ID,
            "create_time": now,
            "update_time": now,
            **values,
        }


@cache
def _upsert(dialect: str, *, described: bool = True) -> sa.Executable:
    """An INSERT that updates a row that exists, but for `create_time`, and for a description that was not read."""
    changed = [name for name in _UPDATED if described or name != checkpoints.c.table_info.name]
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        insert = sqlite.insert(checkpoints)
        updated = {name: insert.excluded[name] for name in changed}
        return insert.on_conflict_do_update(index_elements=[checkpoints.c.id, checkpoints.c.table_id], set_=updated)
    from sqlalchemy.dialects import mysql  # imported only where it is the database's

    insert = mysql.insert(checkpoints)
    return insert.on_duplicate_key_update({name: insert.inserted[name] for name in changed})


def json_text(info: Mapping[str, Any]) -> str:
    """A description as it is stored. Equal descriptions give equal texts."""
    return json.dumps(info, ensure_ascii=False, sort_keys=True)


def real_names(
    points: Mapping[int, TableCheckpoint], schemas: Collection[str], tables: Collection[tuple[str, str]]
) -> dict[int, tuple[str, str]]:
    """By table id the right (database, table) of those points whose names have to be corrected.

    A name stays as it is if it exists, if several existing names could be meant, and if another point already has the
    right one.
    """
    names = {table_id: (point.schema, point.name) for table_id, point in points.items()}
    taken, spelled = set(names.values()), {}
    for table_id, old in sorted(names.items()):
        schema = _real(old[0], schemas)
        new = (schema, _real(old[1], [name for database, name in tables if database == schema]))
        if new != old and new not in taken:
            taken.add(new)
            spelled[table_id] = new
    return spelled


def respelled(
    points: Mapping[int, TableCheckpoint], names: Mapping[int, tuple[str, str]]
) -> dict[int, TableCheckpoint]:
    """Those of the points that have another name, under that."""
    return {table_id: _renamed(points[table_id], *name) for table_id, name in names.items() if table_id in points}


def _renamed(point: TableCheckpoint, schema: str, name: str) -> TableCheckpoint:
    """The point under another name, also in its description."""
    info = point.info
    if info is not None and (info.get("database"), info.get("name")) == (point.schema, point.name):
        info = {**info, "database": schema, "name": name}
    return replace(point, schema=schema, name=name, info_text=None if info is None else json_text(info))


def _real(name: str, names: Collection[str]) -> str:
    """The one of `names` that differs from the name in letter case only; else the name."""
    if name in names:
        return name
    found = [other for other in names if other.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else name
