"""How rows get into a table: a delta by way of temporary tables in one session, an initial load directly, over several
connections.

A delta is staged in two temporary tables of the session that applies it: one for new and changed rows, one for deleted
keys. They are not written to the binary log, do not end the transaction when they are made, and vanish with the
session, however it ends.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

import pyarrow as pa
import pymysql

from matrixone.ddl.definition import CreateTable, format_create_table
from matrixone.sql.quoting import quote_name, quote_names
from replication.targets.base import LoadPart, MoreRowsThere, Rows
from replication.targets.encoding import LoadColumn
from replication.targets.errors import TargetUnavailable
from replication.targets.registry import load_parts, loads
from replication.targets.session import TargetSession, typed_error

_BATCH_BYTES = 16 << 20  # parts are combined up to this size: a statement costs as much as some thousand rows
_DUPLICATE = 1062
_BEAT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Staged:
    """How many rows are staged for `Staging.merge`; `replaced` of the upserts have keys that the table has, None if
    that is not known."""

    upserts: int
    deletes: int
    replaced: int | None = None


class Staging:
    """The temporary tables for one table's delta.

    Parameters
    ----------
    create : the table's definition in the target.
    columns : of `create`, in its order.
    """

    def __init__(
        self, session: TargetSession, create: CreateTable, columns: tuple[LoadColumn, ...], table_id: int, subject: str
    ) -> None:
        self._session, self._create, self._columns, self._subject = session, create, columns, subject
        self._key_columns = tuple(column for column in columns if column.name in create.primary_key)
        self._names = f"ccpr_stage_{table_id}", f"ccpr_stage_{table_id}_keys"

    def fill(self, parts: Iterable[Rows]) -> Staged:
        """Make the tables and send the rows, in a transaction of their own. Raises what `parts` and
        `LoadingConnection.load` raise."""
        with self._session.transaction():
            for name, columns in self._tables():
                self._session.run(f"DROP TEMPORARY TABLE IF EXISTS {quote_name(name)}")
                self._session.run(self._definition(name, columns))
            upserts, deletes = _Batches(), _Batches()
            counts = [0, 0]
            replaced: int | None = 0
            for part in parts:
                replaced = None if replaced is None or part.replaced is None else replaced + part.replaced
                for place, (batches, rows) in enumerate(((upserts, part.upserts), (deletes, part.deletes))):
                    if batches.add(rows):
                        counts[place] += self._send(place, batches)
            for place, batches in enumerate((upserts, deletes)):
                counts[place] += self._send(place, batches)
        return Staged(counts[0], counts[1], replaced)

    def merge(self, staged: Staged, *, keys_are_unique: bool = False) -> int:
        """Delete by staged keys, then insert: this order allows rows that swap the values of a unique column. Runs in
        the caller's transaction.

        Returns how many of the keys that were to be deleted were there. Raises MoreRowsThere if more keys of upserts
        were there than are known to be, unless `keys_are_unique`.
        """
        table, key = self._create.quoted_name, self._create.primary_key
        found = [0, 0]
        for place, count in enumerate((staged.upserts, staged.deletes)):
            if count:
                on = " AND ".join(f"t.{quote_name(column)} = s.{quote_name(column)}" for column in key)
                name = quote_name(self._names[place])
                found[place] = self._session.run(f"DELETE t FROM {name} s STRAIGHT_JOIN {table} t ON {on}")
        if not keys_are_unique and staged.replaced is not None and found[0] > staged.replaced:
            raise MoreRowsThere
        if staged.upserts:
            columns = quote_names([column.name for column in self._columns])
            self._session.run(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {quote_name(self._names[0])}")
        return found[1]

    def drop(self) -> None:
        with self._session.transaction():
            for name in self._names:
                self._session.run(f"DROP TEMPORARY TABLE IF EXISTS {quote_name(name)}")

    def _tables(self) -> Iterator[tuple[str, tuple[LoadColumn, ...]]]:
        return zip(self._names, (self._columns, self._key_columns), strict=True)

    def _send(self, place: int, batches: "_Batches") -> int:
        rows = batches.take()
        if not rows:
            return 0
        columns = self._columns if place == 0 else self._key_columns
        return self._session.raw.load(quote_name(self._names[place]), columns, rows, self._subject)

    def _definition(self, name: str, columns: tuple[LoadColumn, ...]) -> str:
        plain = tuple(replace(column.target, default=None, invisible=False, comment="") for column in columns)
        text = format_create_table(CreateTable(name, plain, options=self._create.options))
        return text.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1)


class _Batches:
    def __init__(self) -> None:
        self._rows: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> bool:
        """True if there are enough to be sent."""
        if rows.num_rows:
            self._rows.append(rows)
            self._bytes += rows.nbytes
        return self._bytes >= _BATCH_BYTES

    def take(self) -> list[pa.Table]:
        rows, self._rows, self._bytes = self._rows, [], 0
        return rows


class InitialLoad:
    """Loads pieces into a shadow table over several connections; each piece with its row in `ccpr_load_parts`.

    These connections do not have the lock. None of them may go on when the lock is lost and another session loads the
    table. So each piece's transaction locks the load's row in `ccpr_loads` and checks that it contains `fence`; a
    session that takes over the load first writes another fence there.
    """

    def __init__(
        self,
        session: TargetSession,
        task_id: str,
        table_id: int,
        fence: str,
        table: str,
        columns: tuple[LoadColumn, ...],
        subject: str,
    ) -> None:
        self._session, self._columns, self._table, self._subject = session, columns, table, subject
        self._fence = fence
        self._place = task_id, table_id
        self._stop = threading.Event()
        self._problems: list[BaseException] = []
        self._rows = 0
        self._lock = threading.Lock()

    def run(self, parts: Sequence[LoadPart], connections: int) -> int:
        """Load all pieces. Returns the number of rows. After an error complete pieces are there, and no part of one."""
        waiting: SimpleQueue[LoadPart] = SimpleQueue()
        for part in parts:
            waiting.put(part)
        threads = [
            threading.Thread(target=self._drain, args=(waiting,), daemon=True)
            for _ in range(min(connections, len(parts)))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join(_BEAT_SECONDS)
                while thread.is_alive():
                    self._session.beat()
                    thread.join(_BEAT_SECONDS)
        finally:  # also if this thread is interrupted: the others end within their piece
            self._stop.set()
        if self._problems:
            raise self._problems[0]
        return self._rows

    def _drain(self, waiting: "SimpleQueue[LoadPart]") -> None:
        try:
            with closing(self._session.another()) as connection:
                while not self._stop.is_set():
                    rows = self._piece(connection, waiting.get_nowait())
                    with self._lock:
                        self._rows += rows
        except Empty:
            pass
        except pymysql.err.MySQLError as error:
            self._fail(typed_error(error, self._subject))
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._stop.set()
        self._problems.append(error)

    def _piece(self, connection, part: LoadPart) -> int:
        """The piece's own row is written first: its unique key makes a second writer of the same piece wait, and then
        refuses it."""
        with connection.cursor() as cursor:
            query = f"SELECT fence FROM {loads.name} WHERE task_id = %s AND table_id = %s LOCK IN SHARE MODE"
            cursor.execute(query, self._place)
            if cursor.fetchall() != ((self._fence,),):
                raise TargetUnavailable("another session has taken the load over", subject=self._subject)
            try:
                cursor.execute(
                    f"INSERT INTO {load_parts.name} (task_id, table_id, part, row_count) VALUES (%s, %s, %s, 0)",
                    [*self._place, part.key],
                )
            except pymysql.err.IntegrityError as error:
                if error.args[0] != _DUPLICATE:
                    raise
                connection.rollback()
                return 0
            rows = connection.load(self._table, self._columns, self._while_wanted(part.read()), self._subject)
            cursor.execute(
                f"UPDATE {load_parts.name} SET row_count = %s WHERE task_id = %s AND table_id = %s AND part = %s",
                [rows, *self._place, part.key],
            )
        self._check_wanted()
        connection.commit()
        return rows

    def _while_wanted(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Table | pa.RecordBatch]:
        for batch in rows:
            self._check_wanted()
            yield batch

    def _check_wanted(self) -> None:
        if self._stop.is_set():
            raise TargetUnavailable("another piece of the load failed", subject=self._subject)
