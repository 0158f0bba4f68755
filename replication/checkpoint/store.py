"""Where checkpoints are stored: the table `ccpr_checkpoints`, in the database that also gets the data or names it
(section C).

Nothing here knows of subscriptions or leases, so that the same table serves the mirror, in the catalog database, and a
destination that is a database, in that database. `checkpoints.create(engine, checkfirst=True)` makes the table alone.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql, sqlite

from matrixone.errors import CcprError
from replication.errors import CheckpointUnknown, StateUnreadable
from replication.state.database import fetch, repeatable, transaction, typed
from replication.state.tables import checkpoints

BATCH = 100  # table points a statement (requirement C3)
_GLOBAL = 0  # no table of MatrixOne has this id

_KEPT = ("id", "table_id", "is_global", "create_time")
_WRITTEN_AGAIN = [column.name for column in checkpoints.columns if column.name not in _KEPT]


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """How far something has come; ordered.

    Attributes
    ----------
    lsn : the iteration's number.
    snapshot_ts : its snapshot's time on the upstream's clock, nanoseconds.
    """

    lsn: int
    snapshot_ts: int


NOWHERE = Location(-1, 0)  # before the first iteration


@dataclass(frozen=True, slots=True)
class TableCheckpoint:
    """A table point: a location and the table as it is there.

    Attributes
    ----------
    schema, name : the database's name and the table's. Names only; the id is the key.
    info_text : the table's description as JSON, None if it was not said.
    """

    location: Location
    schema: str
    name: str
    info_text: str | None = field(default=None, repr=False)

    @property
    def info(self) -> dict[str, Any] | None:
        """As it was saved. Raises StateUnreadable."""
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


@dataclass(frozen=True, slots=True)
class GlobalCheckpoint:
    """The global point. `safe_mode_exit` is where safe mode ends, None when it is off (requirement C7)."""

    location: Location
    safe_mode_exit: Location | None = None


@dataclass(frozen=True, slots=True)
class StoredCheckpoints:
    """What the store has of one id. `unfinished` are the ids of tables for which changes up to a later location wait."""

    all_tables: GlobalCheckpoint | None
    tables: dict[int, TableCheckpoint]
    unfinished: frozenset[int]


class CheckpointStore:
    """The rows of one id.

    Parameters
    ----------
    bind : an engine; or a connection without an open transaction, where the rows have to be written by the session
        that holds a lock.
    clock : seconds since 1970.
    """

    def __init__(self, bind: sa.Engine | sa.Connection, id: str, clock: Callable[[], float]) -> None:
        self._bind, self._clock = bind, clock
        self.id = id

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """All or nothing. Raises what the block raises, StateUnavailable or StateUnreadable if the database fails
        before the end of the block, and CheckpointUnknown if it fails after: then it may have committed.
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
    def load(self) -> StoredCheckpoints:
        with self._begin() as connection:
            rows = fetch(connection, sa.select(checkpoints).where(checkpoints.c.id == self.id))
        all_tables, tables, unfinished = None, {}, set()
        for row in rows:
            location = Location(row.lsn, row.snapshot_ts)
            if row.table_id == _GLOBAL:
                leaves = None if row.exit_safe_lsn is None else Location(row.exit_safe_lsn, row.exit_safe_ts)
                all_tables = GlobalCheckpoint(location, leaves)
            else:
                tables[row.table_id] = TableCheckpoint(location, row.table_schema, row.table_name, row.table_info)
                if not row.is_finished:
                    unfinished.add(row.table_id)
        return StoredCheckpoints(all_tables, tables, frozenset(unfinished))

    def write_tables(
        self, connection: sa.Connection, tables: Mapping[int, TableCheckpoint], unfinished: Collection[int]
    ) -> None:
        """In the order of the ids, a batch a statement."""
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
        ]
        for start in range(0, len(rows), BATCH):
            connection.execute(self._upsert(), rows[start : start + BATCH])

    def write_global(self, connection: sa.Connection, point: GlobalCheckpoint) -> None:
        leaves = point.safe_mode_exit
        exit_safe = {"exit_safe_lsn": leaves.lsn, "exit_safe_ts": leaves.snapshot_ts} if leaves else {}
        connection.execute(self._upsert(), self._row(_GLOBAL, point.location, **exit_safe))

    def delete(self, connection: sa.Connection, table_ids: Iterable[int]) -> None:
        ids = sorted(table_ids)
        for start in range(0, len(ids), BATCH):
            of_id = (checkpoints.c.id == self.id, checkpoints.c.table_id.in_(ids[start : start + BATCH]))
            connection.execute(checkpoints.delete().where(*of_id))

    def delete_tables(self, connection: sa.Connection) -> None:
        """Every row but the global one."""
        connection.execute(checkpoints.delete().where(checkpoints.c.id == self.id, checkpoints.c.table_id != _GLOBAL))

    def clear(self, connection: sa.Connection) -> None:
        connection.execute(checkpoints.delete().where(checkpoints.c.id == self.id))

    def reset_connection(self) -> None:
        """The next statement goes over a new connection. A database in memory, which lives as long as its connection,
        is lost by it."""
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
        now = datetime.fromtimestamp(self._clock(), UTC).replace(tzinfo=None)
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
            "is_global": table_id == _GLOBAL,
            "create_time": now,
            "update_time": now,
            **values,
        }

    def _upsert(self) -> sa.Executable:
        """An INSERT that keeps `create_time` where the row is there already."""
        if self._bind.dialect.name == "sqlite":
            insert = sqlite.insert(checkpoints)
            again = {name: insert.excluded[name] for name in _WRITTEN_AGAIN}
            return insert.on_conflict_do_update(index_elements=[checkpoints.c.id, checkpoints.c.table_id], set_=again)
        insert = mysql.insert(checkpoints)
        return insert.on_duplicate_key_update({name: insert.inserted[name] for name in _WRITTEN_AGAIN})


def json_text(info: Mapping[str, Any]) -> str:
    """As a description is stored: equal ones give equal texts."""
    return json.dumps(info, ensure_ascii=False, sort_keys=True)
