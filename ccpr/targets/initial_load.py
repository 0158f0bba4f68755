"""An initial load: the shadow table that it fills, and its pieces, over several connections. It goes on where an
earlier session was interrupted."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Literal

import pyarrow as pa
import pymysql

from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.schema.dialects import Dialect
from ccpr.schema.table_statements import drop_table, make_shadow, shadow_name
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart, TargetTable
from ccpr.targets.encoding import LoadColumn
from ccpr.targets.errors import TargetTableForeign, TargetUnavailable, TargetValueRefused
from ccpr.targets.expected_tables import lacking_defaults, without_defaults
from ccpr.targets.registry import Registry, load_parts, loads
from ccpr.targets.staging import Counted, StageTable
from ccpr.targets.target_session import TargetSession, refused_defaults, typed_error

_DUPLICATE = 1062
_BEAT_SECONDS = 20.0


class ShadowTables:
    """The tables that initial loads fill until they are shown under their names.

    Attributes
    ----------
    fence : of this session's loads.
    """

    def __init__(self, session: TargetSession, registry: Registry, task_id: str) -> None:
        self._session, self._registry, self._task_id = session, registry, task_id
        self.fence = ""

    def name(self, purpose: Literal["load", "old"], table_id: int) -> str:
        return shadow_name(purpose, self._task_id, table_id)

    def of(self, table: TargetTable) -> CreateTable:
        return replace(parse_create_table(table.create), name=self.name("load", table.id))

    def begin(self, table: TargetTable, location: Location, parts: Sequence[LoadPart]) -> tuple[TargetTable, set[str]]:
        """Make the shadow table, or continue one. Returns the table, without the defaults that the server refuses, and
        the keys of the pieces that the shadow table has. The row in `ccpr_loads` is written first: it says that the
        table is ours."""
        shadow = self.of(table)
        with self._session.transaction() as connection:
            begun = self._registry.loads(connection).get(table.id)
            exists = self._session.shown(shadow.quoted_name) is not None
            if exists and begun is None:
                raise TargetTableForeign("the target has a table of this name", subject=f"table {shadow.quoted_name}")
            if exists and begun is not None and begun[0] == location:
                accepted = without_defaults(table, lacking_defaults(begun[1]))
                done = self._registry.parts(connection, table.id)
                # Otherwise it was split into other pieces, and rows would be loaded twice.
                if begun[1].create == accepted.create and done <= {part.key for part in parts}:
                    self._registry.take_load(connection, table.id, self.fence)
                    return accepted, done
            self._registry.begin_load(connection, table, location, self.fence)
        if exists:
            self._session.define(drop_table((shadow.database, shadow.name)))
        return self._make(table, location), set()

    def _make(self, table: TargetTable, location: Location) -> TargetTable:
        """Make the shadow table. Returns the table without the defaults that the server refuses."""
        while True:
            shadow = self.of(table)
            try:
                self._session.define(make_shadow(shadow, shadow.name))
                return table
            except pymysql.err.MySQLError as error:
                accepted = without_defaults(table, refused_defaults(error, shadow))
                if accepted is table:
                    raise
            table = accepted
            with self._session.transaction() as connection:
                self._registry.begin_load(connection, table, location, self.fence)


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
        self._stage: StageTable | None = None
        if session.dialect is Dialect.MATRIXONE:
            self._stage = StageTable.of(f"{session.stages}{table_id}_load", session.dialect, columns, ())
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
            for _ in range(1 if self._stage else min(connections, len(parts)))
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
            with closing(self._session.another()) as connection, self._staging(connection):
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
            lock = "FOR UPDATE" if self._stage else "LOCK IN SHARE MODE"
            query = f"SELECT fence FROM {loads.name} WHERE task_id = %s AND table_id = %s {lock}"
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
            rows = self._store(connection, cursor, self._while_wanted(part.read()))
            cursor.execute(
                f"UPDATE {load_parts.name} SET row_count = %s WHERE task_id = %s AND table_id = %s AND part = %s",
                [rows, *self._place, part.key],
            )
        self._check_wanted()
        connection.commit()
        return rows

    def _store(self, connection, cursor, rows: Iterable[pa.Table | pa.RecordBatch]) -> int:
        stage = self._stage
        if stage is None:
            return connection.load(self._table, self._columns, rows, self._subject)
        counted = Counted(stage.columns)

        def sent() -> Iterator[pa.Table | pa.RecordBatch]:
            for batch in rows:
                counted.add(batch)
                yield batch

        connection.load(stage.quoted, stage.columns, sent(), self._subject)
        cursor.execute(stage.counted)
        counted.check(cursor.fetchall(), self._subject)
        stored = cursor.execute(stage.insert(self._table))
        if stored != counted.rows:
            raise TargetValueRefused(f"{counted.rows} rows were sent, {stored} stored", subject=self._subject)
        cursor.execute(f"DELETE FROM {stage.quoted}")
        return stored

    @contextmanager
    def _staging(self, connection) -> Iterator[None]:
        """The staging table, for the block."""
        if self._stage is None:
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute(self._stage.drop)
            cursor.execute(self._stage.create)
        connection.commit()
        try:
            yield
        finally:
            with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
                connection.rollback()
                cursor.execute(self._stage.drop)
                connection.commit()

    def _while_wanted(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Table | pa.RecordBatch]:
        for batch in rows:
            self._check_wanted()
            yield batch

    def _check_wanted(self) -> None:
        if self._stop.is_set():
            raise TargetUnavailable("another piece of the load failed", subject=self._subject)
