"""What a MatrixOne does that subscribes to an upstream, as a server of its own: its statements and their order as
recorded on the wire, its table of tasks, its chunk workers. The objects are kept as they come, and rows are read from
them by our reader, so that a copy can be compared with its source.

Docs: docs/upstream.md, "A MatrixOne behind the relay". It does not rewrite appendable objects. It refuses what a
MatrixOne could not do: an object of a table that it does not have, one that comes twice, a delete of one that it lacks.
In a folder it survives its process, as a MatrixOne does: what was committed is there, and files that had been fetched.
"""

import pickle
import re
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pymysql

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, not_after
from ccpr.matrixone.schema import Table
from ccpr.matrixone.server.answers import ResultColumn, ResultSet, StatementError
from ccpr.matrixone.server.server import Server
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr_emulator.serving.cut_connection import CutByFault
from tests.support.recorded import timestamp_of, visible_batches

WORKERS = 4
PAUSE = 0.2  # seconds between iterations; a MatrixOne looks each ten
_SUBSCRIBE = re.compile(
    r"CREATE DATABASE `(?P<database>[^`]+)` FROM 'mysql://(?P<user>[^:]+):(?P<password>[^@]+)@(?P<host>[^:]+):"
    r"(?P<port>[0-9]+)' (?P<publisher>\w+) PUBLICATION `(?P<publication>[^`]+)` SYNC INTERVAL 2"
)
_FIGURES = re.compile(r"SELECT (?P<figures>COUNT\(\*\).*) FROM `(?P<database>[^`]+)`\.`(?P<table>[^`]+)`")
_FIGURE = re.compile(r"COUNT\(`([^`]+)`\)|SUM\(CAST\(`([^`]+)` AS DECIMAL\(38, [0-9]+\)\)\)|SUM\(LENGTH\(`([^`]+)`\)\)")
_CLONE = re.compile("CREATE DATABASE `(?P<database>[^`]+)` CLONE `(?P<source>[^`]+)`")
_CELL = 253


@dataclass
class NativeTable:
    """A table of a copy: its id and text upstream, its objects by number and kind."""

    id: int
    text: bytes
    objects: dict[tuple[bytes, bool], tuple[ObjectStats, Timestamp]] = field(default_factory=dict)


@dataclass(frozen=True)
class UpstreamLogin:
    """Gives connections."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)

    def __call__(self) -> Any:
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            use_unicode=False,
            conv={},
            autocommit=None,
        )


@dataclass
class NativeTask:
    """A row of `mo_ccpr_log`."""

    id: str
    database: str
    publication: str
    upstream: Callable[[], Any]
    state: int = 0
    lsn: int = 0
    watermark: int = 0
    error: str = ""
    tables: dict[str, NativeTable] = field(default_factory=dict)


class Databases(dict[str, NativeTask | None]):
    """By name. Each that is made gets a number that none has had."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}

    def __setitem__(self, name: str, of: NativeTask | None) -> None:
        self.numbers[name] = max(self.numbers.values(), default=270_000) + 1
        super().__setitem__(name, of)


class NativeCopies:
    """What a MatrixOne has of its upstreams: tasks, databases, files; in memory, or in a folder."""

    definitions: dict[str, Table] = {}  # noqa: RUF012  # by name, for counting: set by a test

    def __init__(self, folder: Path | None = None) -> None:
        self.tasks: dict[str, NativeTask] = {}
        self.databases = Databases()
        self.files: dict[str, bytes] = {}
        self._folder = folder
        if folder is not None:
            (folder / "objects").mkdir(parents=True, exist_ok=True)
            self.files = {path.name: path.read_bytes() for path in (folder / "objects").iterdir() if not path.suffix}
            if (folder / "committed").exists():
                databases: dict[str, NativeTask | None]
                self.tasks, databases, numbers = pickle.loads((folder / "committed").read_bytes())
                self.databases.update(databases)
                self.databases.numbers = numbers

    def commit(self) -> None:
        """What is there now, is there after a kill."""
        if self._folder is not None:
            _write(self._folder / "committed", pickle.dumps((self.tasks, dict(self.databases), self.databases.numbers)))

    def keep_file(self, name: str, content: bytes) -> None:
        if self._folder is not None:
            _write(self._folder / "objects" / name, content)
        self.files[name] = content

    def rows(self, database: str, definition: Table, at: Timestamp) -> list[Any]:
        """The rows of a table."""
        task = self.databases[database]
        assert task is not None
        listed = [
            ListedObject(stats, created, None, tombstone)
            for (_, tombstone), (stats, created) in task.tables[definition.name].objects.items()
        ]
        batches = visible_batches(listed, self._open, definition.user_columns, at)
        return [row for batch in batches for row in batch.to_pylist()]

    def _open(self, name: str, sums: bytes | None = None) -> ObjectFile:
        return ObjectFile(self.files[name], subject=name)


class NativeClient(NativeCopies):
    """A server for the statements of `ccpr.relay.downstream`. `cut` ends the connection at the statement of this
    number, counted over all sessions: before it, or after its effect. `cut_at` does so at the first that begins with a
    text, and calls `on_cut`."""

    def __init__(self, port: int = 0, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.statements: list[str] = []
        self.cut: tuple[int, bool] | None = None
        self.cut_at: tuple[str, bool] | None = None
        self.reads_abort_column = True  # as one of August 2026 does
        self.on_cut: Callable[[], object] = lambda: None
        self.before_iteration: Callable[[], object] = lambda: None
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self.password = "111"
        self._server = Server(self, port=port, digests=lambda user: password_digest(self.password))
        self._worker = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return self._server.port

    def __enter__(self) -> Self:
        self._server.start()
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._worker.join(60)
        self._server.stop()

    # ---- as a server

    def open(self, user: str, connection_id: int) -> "NativeClient":
        return self

    def use(self, database: str) -> None:
        raise StatementError(1049, "no database is used here")

    def close(self) -> None:
        """Of a session."""

    def split(self, text: bytes) -> list[bytes]:
        return [text]

    def query(self, text: bytes) -> ResultSet | None:
        with self._lock:
            self.statements.append(text.decode())
            number, (at, after) = len(self.statements), self.cut or (0, False)
            if self.cut_at is not None and text.decode().startswith(self.cut_at[0]):
                (at, after), self.cut_at = (number, self.cut_at[1]), None
            if number == at and not after:
                raise self._cut()
            try:
                answer = self._answer(text.decode())
            except pymysql.MySQLError as error:
                raise StatementError(20101, f"internal error: {error.args[1]}") from error
            if answer is None:
                self.commit()
            if number == at:
                raise self._cut()
            return answer

    def _cut(self) -> CutByFault:
        self.on_cut()
        return CutByFault("cut as asked")

    def _answer(self, text: str) -> ResultSet | None:
        if text.startswith("SELECT task_id"):
            rows = [
                (task.id, task.database, task.publication, task.state, task.lsn, task.watermark, task.error)
                for task in self.tasks.values()
            ]
            return _result(7, rows)
        if found := re.fullmatch(r"SELECT dat_id FROM mo_catalog.mo_database WHERE datname = '([^']+)'", text):
            return _result(1, [(self.databases.numbers[found[1]],)] if found[1] in self.databases else [])
        if found := _SUBSCRIBE.fullmatch(text):
            self._subscribe(found)
            return None
        if found := re.fullmatch(r"DROP CCPR SUBSCRIPTION IF EXISTS '([^']+)'", text):
            self.tasks.pop(found[1], None)
            return None
        if found := re.fullmatch(r"RESUME CCPR SUBSCRIPTION '([^']+)'", text):
            if found[1] not in self.tasks:
                raise StatementError(20101, f"internal error: no subscription found with task_id '{found[1]}'")
            self.tasks[found[1]].state, self.tasks[found[1]].error = 0, ""
            return None
        if found := _CLONE.fullmatch(text):
            source = self.databases.get(found["source"])
            if found["database"] in self.databases or source is None:
                raise StatementError(20101, "internal error: database exists, or does not")
            self.databases[found["database"]] = replace(source, database=found["database"])
            return None
        if found := re.fullmatch(r"DROP DATABASE IF EXISTS `([^`]+)`", text):
            if any(task.database == found[1] for task in self.tasks.values()):
                raise StatementError(22401, "ccpr shared object is read-only")
            self.databases.pop(found[1], None)
            return None
        if found := _FIGURES.fullmatch(text):
            figures = self._figures(found["database"], found["table"], found["figures"])
            return _result(len(figures), [figures])
        if text == "SELECT uuid_v7()":
            if not self.reads_abort_column:
                raise StatementError(20105, "not supported: function or operator 'uuid_v7'")
            return _result(1, [(str(uuid.uuid4()),)])
        if text.lower().startswith(("set ", "select 1", "rollback", "commit")):
            return None
        raise StatementError(1064, f"not a statement of a downstream: {text[:80]}", "42000")

    def _subscribe(self, found: re.Match[str]) -> None:
        connect = UpstreamLogin(found["host"], int(found["port"]), found["user"], found["password"])
        database, publication = found["database"], found["publication"]
        if database in self.databases:
            raise StatementError(20101, f"internal error: db '{database}' already exists locally")
        with closing(connect()) as upstream:
            covered = _rows(upstream, f"SHOW PUBLICATION COVERAGE `{publication}`")
            if (database.encode(), b"*") not in covered:
                raise StatementError(20101, f"internal error: database '{database}' is not covered")
            of = f"sys {publication}"
            _rows(upstream, f"__++__internal_get_databases - {of} database {database} -")
            for row in _rows(upstream, f"__++__internal_get_ddl - {of} database {database} -"):
                _rows(upstream, f"__++__internal_get_mo_indexes {int(row[2])} {of} -")
        task = NativeTask(str(uuid.uuid4()), database, publication, connect)
        self.tasks[task.id] = self.databases[database] = task

    # ---- as a client

    def _run(self) -> None:
        while not self._stopped.wait(PAUSE):
            for task in list(self.tasks.values()):
                if task.state == 0:
                    try:
                        self.before_iteration()
                        self.iterate(task)
                    except (pymysql.MySQLError, OSError) as error:
                        task.error = f"R:{error}"
                    except (StatementError, AssertionError) as error:
                        task.state, task.error = 1, f"N:{error}"

    def iterate(self, task: NativeTask) -> None:
        """One iteration; all of it or nothing is seen."""
        name, of = f"ccpr_{task.id}_{task.lsn}", f"sys {task.publication}"
        with closing(task.upstream()) as upstream:
            create = f"CREATE SNAPSHOT IF NOT EXISTS `{name}` FOR DATABASE {task.database} FROM sys PUBLICATION "
            _rows(upstream, f"{create}{task.publication}")
            at = int(_rows(upstream, f"__++__internal_get_snapshot_ts {name} {of}")[0][0])
            base = "-"
            if task.lsn:
                base = f"ccpr_{task.id}_{task.lsn - 1}"
                _rows(upstream, f"__++__internal_get_snapshot_ts {base} {of}")
            if task.lsn > 1:
                old = f"ccpr_{task.id}_{task.lsn - 2}"
                _rows(upstream, f"DROP SNAPSHOT IF EXISTS `{old}` FROM sys PUBLICATION {task.publication}")
            assert _rows(upstream, f"__++__internal_check_snapshot_flushed {name} {of}") == [(b"1",)]
            _rows(upstream, f"__++__internal_get_databases {name} {of} database {task.database} -")
            tables = self._tables(task, upstream, name)
            listed = _rows(upstream, f"__++__internal_object_list {name} {base} {of}")
            self._apply(task, tables, listed, Timestamp(at))
        with self._lock:
            task.tables, task.watermark, task.error = tables, at, ""
            task.lsn += 1
            self.commit()

    def _tables(self, task: NativeTask, upstream: Any, name: str) -> dict[str, NativeTable]:
        """A table of another id or name is dropped and created again, with its hidden tables."""
        of, tables, hidden = f"sys {task.publication}", {}, set()
        for _, table, number, text in _rows(upstream, f"__++__internal_get_ddl {name} {of} database {task.database} -"):
            known = task.tables.get(table.decode())
            fresh = known is None or known.id != int(number)
            tables[table.decode()] = NativeTable(int(number), text) if fresh or known is None else _copy(known)
            assert fresh or known is None or known.text == text, "an ALTER in place, which is another table here"
            for row in _rows(upstream, f"__++__internal_get_mo_indexes {int(number)} {of} {name}"):
                index = row[3].decode()
                if index and index not in hidden:
                    hidden.add(index)
                    before = None if fresh else task.tables.get(index)
                    tables[index] = NativeTable(0, b"") if before is None else _copy(before)
        return tables

    def _apply(self, task: NativeTask, tables: dict[str, NativeTable], listed: list[Any], at: Timestamp) -> None:
        rows: dict[tuple[str, bytes, bool], Any] = {}
        for row in listed:
            key = (row[1].decode(), row[2][:18], row[5] == b"1")
            if key not in rows or row[4] != b"0-0":
                rows[key] = row
        live = {key: row for key, row in rows.items() if row[4] == b"0-0"}
        names = {ObjectStats.parse(row[2]).name for row in live.values()}
        with ThreadPoolExecutor(WORKERS) as pool:
            for name, content in pool.map(lambda one: self._fetch(task, one), sorted(names - self.files.keys())):
                self.keep_file(name, content)
        for (table, number, tombstone), row in rows.items():
            assert table in tables, f"no such table {table}"
            stats, objects = ObjectStats.parse(row[2]), tables[table].objects
            if row[4] != b"0-0":
                assert (number, tombstone) in objects or stats.appendable, f"no object {stats.name} in {table}"
                objects.pop((number, tombstone), None)
                continue
            assert (number, tombstone) not in objects, f"object {stats.name} comes twice in {table}"
            created = timestamp_of(row[3])
            assert created is not None
            assert not stats.appendable or self._has_rows(stats.name, at), f"{stats.name}: nil pointer"
            objects[number, tombstone] = (stats, created)

    def _has_rows(self, name: str, at: Timestamp) -> bool:
        """Of an object without rows a MatrixOne of August 2026 commits one without a place, and its server ends."""
        file = self._open(name)
        times = [file.commit_timestamps(block.number) for block in file.blocks]
        return any(of_block is None or bool(not_after(of_block, at).any()) for of_block in times)

    def _fetch(self, task: NativeTask, name: str) -> tuple[str, bytes]:
        of = f"sys {task.publication}"
        with closing(task.upstream()) as upstream:
            ((_, size, _, chunks, _),) = _rows(upstream, f"__++__internal_get_object {of} {name} 0")
            parts = [
                _rows(upstream, f"__++__internal_get_object {of} {name} {number}")[0][0]
                for number in range(1, int(chunks) + 1)
            ]
        content = b"".join(parts)
        assert len(content) == int(size)
        return name, content

    # ---- what is there

    def count(self, database: str, table: str) -> int:
        task = self.databases.get(database)
        if task is None or table not in task.tables:
            raise StatementError(1146, f"Table '{database}.{table}' doesn't exist", "42S02")
        return len(self.rows(database, self.definitions[table], Timestamp(task.watermark)))

    def _figures(self, database: str, table: str, wanted: str) -> tuple[Any, ...]:
        """COUNT(*), then values, sums and lengths of columns."""
        task, figures = self.databases[database], [self.count(database, table)]
        assert task is not None
        rows: list[Any] = []
        if _FIGURE.search(wanted):
            rows = self.rows(database, self.definitions[table], Timestamp(task.watermark))
        for counted, summed, measured in _FIGURE.findall(wanted):
            values = [row[counted or summed or measured] for row in rows]
            there = [value for value in values if value is not None]
            if measured:
                there = [len(value.encode() if isinstance(value, str) else value) for value in there]
            figures.append(len(there) if counted else sum(there))
        return tuple(figures)

    def wait_for(self, watermark: int, seconds: float = 120.0) -> NativeTask:
        """Until the only task has a point."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (task,) = self.tasks.values()
            assert task.state == 0, task.error
            if task.watermark >= watermark:
                return task
            time.sleep(0.02)
        raise AssertionError(f"not there: {task}")


def _copy(table: NativeTable) -> NativeTable:
    return NativeTable(table.id, table.text, dict(table.objects))


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing is there after a kill."""
    path.with_suffix(".unfinished").write_bytes(content)
    path.with_suffix(".unfinished").replace(path)


def _rows(upstream: Any, sql: str) -> list[Any]:
    with upstream.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _result(columns: int, rows: Any) -> ResultSet:
    return ResultSet(tuple(ResultColumn(f"c{number}", _CELL) for number in range(columns)), rows)
