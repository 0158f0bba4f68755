"""An initial load: the shadow table that it fills, and its pieces, over several connections. It goes on where an
earlier session was interrupted."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Literal

import pyarrow as pa
import pymysql

from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.mirror.row_sums import RowSum, Summing
from ccpr.schema.alterations import drop_table, make_shadow, shadow_name
from ccpr.schema.choices import Dialect
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart, SplitRows, TargetTable
from ccpr.targets.encoding import LoadColumn
from ccpr.targets.errors import TargetTableForeign, TargetUnavailable, TargetValueRefused
from ccpr.targets.expected_tables import lacking_defaults, without_defaults
from ccpr.targets.loading_connection import LoadingConnection
from ccpr.targets.registry import Registry, load_parts, loads
from ccpr.targets.staging import Counted, StageTable
from ccpr.targets.target_session import DUPLICATE, TargetSession, TaskLogin, refused_defaults, typed_error

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


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The shadow table that pieces are loaded into, each in a transaction with its row in `ccpr_load_parts`; can be
    pickled.

    The connections that load do not have the lock. None of them may go on when the lock is lost and another session
    loads the table. So each piece's transaction locks the load's row in `ccpr_loads` and checks that it contains
    `fence`; a session that takes over the load first writes another fence there.

    Attributes
    ----------
    table : its name is quoted.
    login : of tasks.
    """

    task_id: str
    table_id: int
    fence: str
    table: str
    columns: tuple[LoadColumn, ...]
    subject: str
    login: TaskLogin | None = None

    def stage(self, stages: str, dialect: Dialect) -> StageTable | None:
        """What a connection loads into first; `stages`: what its name begins with."""
        if dialect is not Dialect.MATRIXONE:
            return None
        return StageTable.of(f"{stages}{self.table_id}_load", dialect, self.columns, ())

    def load_in_task(self, pieces: Sequence[tuple[str, SplitRows]]) -> Iterator[RowSum]:
        """In a task: load some pieces, by their keys. Those that another attempt has loaded have no rows, and no
        sum."""
        assert self.login is not None
        with self.login.session(self.subject) as session:
            stage = self.stage(session.stages, session.dialect)
            with staging(session.raw, stage):
                for key, rows in pieces:
                    summing = Summing.of_users(rows.split.shape.upsert_schema)
                    parts = (part.upserts for part in rows.parts(summing.add))
                    stored = self.load(session.raw, stage, key, parts)
                    yield RowSum(0) if stored is None else summing.row_sum()

    def load(
        self,
        connection: LoadingConnection,
        stage: StageTable | None,
        key: str,
        rows: Iterable[pa.Table | pa.RecordBatch],
        check: Callable[[], None] = lambda: None,
    ) -> int | None:
        """One piece; how many rows, None if it was there. Its own row is written first: its unique key makes a second
        writer of the same piece wait, and then refuses it. `check` is called before the commit."""
        place = self.task_id, self.table_id
        with connection.cursor() as cursor:
            counted = None if stage is None else self._stage(connection, cursor, stage, rows)
            lock = "LOCK IN SHARE MODE" if stage is None else "FOR UPDATE"
            cursor.execute(f"SELECT fence FROM {loads.name} WHERE task_id = %s AND table_id = %s {lock}", place)
            if cursor.fetchall() != ((self.fence,),):
                raise TargetUnavailable("another session has taken the load over", subject=self.subject)
            try:
                cursor.execute(
                    f"INSERT INTO {load_parts.name} (task_id, table_id, part, row_count) VALUES (%s, %s, %s, 0)",
                    [*place, key],
                )
            except pymysql.err.IntegrityError as error:
                if error.args[0] != DUPLICATE:
                    raise
                connection.rollback()
                return None
            if stage is None or counted is None:
                stored = connection.load(self.table, self.columns, rows, self.subject)
            else:
                stored = cursor.execute(stage.insert(self.table))
                if stored != counted.rows:
                    what = f"{counted.rows} rows were sent, {stored} stored"
                    raise TargetValueRefused(what, subject=self.subject)
            cursor.execute(
                f"UPDATE {load_parts.name} SET row_count = %s WHERE task_id = %s AND table_id = %s AND part = %s",
                [stored, *place, key],
            )
        check()
        connection.commit()
        return stored

    def _stage(self, connection, cursor, stage: StageTable, rows: Iterable[pa.Table | pa.RecordBatch]) -> Counted:
        """In a transaction of its own: the load's row is not locked meanwhile."""
        counted = Counted(stage.columns)

        def sent() -> Iterator[pa.Table | pa.RecordBatch]:
            for batch in rows:
                counted.add(batch)
                yield batch

        cursor.execute(f"DELETE FROM {stage.quoted}")
        connection.load(stage.quoted, stage.columns, sent(), self.subject)
        cursor.execute(stage.counted)
        counted.check(cursor.fetchall(), self.subject)
        connection.commit()
        return counted


@contextmanager
def staging(connection: LoadingConnection, stage: StageTable | None) -> Iterator[None]:
    """The staging table, for the block."""
    if stage is None:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(stage.drop)
        cursor.execute(stage.create)
    connection.commit()
    try:
        yield
    finally:
        with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
            connection.rollback()
            cursor.execute(stage.drop)
            connection.commit()


class InitialLoad:
    """Loads pieces over several connections of this process, see `LoadedTable`.

    Attributes
    ----------
    pieces : how many it has loaded.
    """

    def __init__(self, session: TargetSession, table: LoadedTable) -> None:
        self._session, self._table, self._subject = session, table, table.subject
        self._stage = table.stage(session.stages, session.dialect)
        self._stop = threading.Event()
        self._problems: list[BaseException] = []
        self._rows = self.pieces = 0
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
            with closing(self._session.another()) as connection, staging(connection, self._stage):
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
        rows = self._table.load(connection, self._stage, part.key, self._while_wanted(part.read()), self._check_wanted)
        if rows is None:
            return 0
        with self._lock:
            self.pieces += 1
        return rows

    def _while_wanted(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Table | pa.RecordBatch]:
        for batch in rows:
            self._check_wanted()
            yield batch

    def _check_wanted(self) -> None:
        if self._stop.is_set():
            raise TargetUnavailable("another piece of the load failed", subject=self._subject)
