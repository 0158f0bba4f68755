"""Loads and changes that tasks carry: the same rows as by the process, whatever attempts of tasks there are."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.base.carrying import Carry, Work, WorkKind
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.schema import DEFAULT_READING, Table
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.row_sums import RowSum, Summing
from ccpr.pipeline.spark import carry
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.credentials import KEY_FILE_VARIABLE, Vault
from ccpr.targets.base import Applied, LoadPart, TargetTable
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import TargetDenied, TargetUnavailable
from ccpr.targets.expected_tables import ExpectedTables, target_of
from ccpr.targets.source_rows import SplitRows, part_key
from ccpr_emulator.engine.storage import Storage
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import MatrixOneServer, matrixone_server
from tests.support.simulated_mirror import SimulatedMirror
from tests.targets.target_database import Place, TargetServer, new_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
COLUMNS = {"id": "bigint not null", "v": "varchar(20)", "u": "bigint"}
ROWS, OBJECTS, SPLIT_ROWS = 2000, 8, 300
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class History:
    """A table at two points; can be pickled. Between them a quarter of its rows was deleted, and another one has new
    values, which swap those of the unique column `u`."""

    url: str
    table: Table
    points: tuple[TableAt, ...]
    rows: tuple[Rows, ...]

    def splits(self, lsn: int) -> list[SplitRows]:
        mirror, before = Mirror(open_store(self.url)), None if lsn == 0 else self.points[0]
        delta = table_delta(mirror, before, self.points[lsn], split_rows=SPLIT_ROWS)
        found = [SplitRows(self.url, split, DEFAULT_READING) for split in delta.splits()]
        assert len(found) > 2
        return found

    def row_sum(self) -> RowSum:
        """Of the first point's."""
        columns = self.table.user_columns
        summing, cells = Summing(arrow_schema(columns)), zip(*self.rows[0], strict=True)
        summing.add(pa.table([list(values) for values in cells], schema=arrow_schema(columns)))
        return summing.row_sum()

    def location(self, lsn: int) -> Location:
        return Location(lsn, self.points[lsn].at.physical)

    def target_table(self, place: Place) -> TargetTable:
        return target_of(self.table, place.server.dialect, place.database)

    def target(self, place: Place, vault: Vault, carrier: Carry) -> DatabaseTarget:
        sealed = vault.seal(place.server.password, place.address.endpoint)
        own = ExpectedTables(lambda: [self.table])
        words = place.address, place.server.password, "task"
        return DatabaseTarget(*words, own=own, carry=carrier, sealed_password=sealed, lock_seconds=5)

    def load(self, target: DatabaseTarget, place: Place) -> Applied:
        parts = [LoadPart(part_key(rows.split), partial(_upserts, rows), rows) for rows in self.splits(0)]
        return target.create(self.target_table(place), parts, self.location(0))

    def bring(self, target: DatabaseTarget, place: Place, lsn: int) -> tuple[int, int]:
        """Rows that were written, and deleted."""
        if lsn == 0:
            done = self.load(target, place)
        else:
            splits = self.splits(lsn)
            parts = (part for rows in splits for part in rows.parts())
            done = target.apply(self.table.id, parts, self.location(lsn), rows=splits)
            assert done.missing == 0
        return done.upserted, done.deleted


def _upserts(rows: SplitRows) -> Iterator[pa.Table]:
    return (part.upserts for part in rows.parts())


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    storage = Storage(cn_rows=100)
    storage.create_database("d")
    storage.create_table("d", "t", COLUMNS, primary_key=["id"], unique={"u": ["u"]})
    ids = np.arange(ROWS)

    def insert(numbers: np.ndarray, word: str, unique: np.ndarray) -> None:
        with storage.begin() as transaction:
            texts = [f"{word} {number}" for number in numbers.tolist()]
            transaction.insert("d", "t", pa.table({"id": numbers, "v": texts, "u": unique}))

    def change() -> None:
        with storage.begin() as transaction:
            transaction.delete("d", "t", pc.field("id").isin(ids[::2].tolist()))
        insert(ids[::4], "second", ids[::4][::-1])

    for share in np.array_split(ids, OBJECTS):
        insert(share, "first", share)
    mirror = SimulatedMirror(storage, tmp_path_factory.mktemp("mirror"))
    mirror.take_points(change)
    (table_id,) = mirror.points[0].tables
    table = mirror.mirror.manifest(mirror.points[0].tables[table_id]).table
    found = []
    for point in mirror.points:  # the engine's own rows, never decoded from objects
        rows = mirror.rows(point, table_id, table.user_columns)
        found.append(sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)))
    ats = tuple(TableAt.of(point, table_id) for point in mirror.points)
    return History(mirror.mirror.store.url, table, ats, tuple(found))


@pytest.fixture
def vault(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    """The key as workers find it: by its path."""
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(key_file))
    return Vault(key_file)


@pytest.fixture(scope="module")
def matrixone() -> Iterator[MatrixOneServer]:
    with matrixone_server() as server:
        yield server


@pytest.fixture(params=["mariadb", "matrixone"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: TargetServer = request.getfixturevalue(request.param)
    with new_database(server) as place:
        yield place


def pickled(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> list[Any]:
    """As tasks get it and give it back, a piece a task, without Spark."""
    function = pickle.loads(pickle.dumps(work.function))
    beat()
    return [pickle.loads(pickle.dumps(done)) for piece in work.pieces for done in function(_copied([piece]))]


def _copied(pieces: Sequence[Any]) -> list[Any]:
    return pickle.loads(pickle.dumps(pieces))


def assert_there(place: Place, rows: Rows) -> None:
    """By the server's own client where there is one; and no staging table is left."""
    assert {name for (name,) in place.query("SHOW TABLES")} >= {"t"}
    assert not [name for (name,) in place.query("SHOW TABLES") if "stage" in name]
    if isinstance(place.server, MariaDb):
        server = place.server
        login = ["--no-defaults", f"--host={server.host}", f"--port={server.port}", f"--user={server.user}"]
        query = ["--skip-ssl", "--batch", "--skip-column-names", place.database, "--execute", "SELECT * FROM t"]
        environment = {**os.environ, "MYSQL_PWD": server.password}
        shown = subprocess.run(["mariadb", *login, *query], env=environment, check=True, capture_output=True, text=True)
        assert sorted(shown.stdout.splitlines()) == sorted("\t".join(map(str, row)) for row in rows)
    assert sorted(place.query("SELECT * FROM t")) == rows


def test_a_load_and_a_change_by_tasks_are_those_of_the_process(place: Place, history: History, vault: Vault) -> None:
    with history.target(place, vault, pickled) as target:
        loaded = history.load(target, place)
        assert (loaded.upserted, loaded.row_sum) == (ROWS, history.row_sum())
        assert_there(place, history.rows[0])
        assert place.query("SELECT COUNT(*) FROM ccpr_load_parts") == [(0,)]
        assert history.bring(target, place, 1) == (ROWS // 4, ROWS // 4)
        assert_there(place, history.rows[1])
        assert target.points() == {history.table.id: history.location(1)}


def test_attempts_of_one_task_at_the_same_time_write_once(place: Place, history: History, vault: Vault) -> None:
    """As with speculation, or where a lost worker goes on unseen: only what one of them gives back counts."""

    found: list[list[Any]] = []

    def three_times(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> list[Any]:
        found.clear()

        def attempt() -> None:
            found.append(pickled(work, here, lambda: None))

        threads = [threading.Thread(target=attempt) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        attempt()
        assert len(found) == 3
        return found[1]

    with history.target(place, vault, three_times) as target:
        # Each row was stored by one of them: the second to end may have stored all, and then has their sum.
        assert history.load(target, place).row_sum in (None, history.row_sum())
        assert sum(part.rows for attempt in found for part in attempt) == ROWS
        assert_there(place, history.rows[0])
        history.bring(target, place, 1)
        assert_there(place, history.rows[1])


def test_what_tasks_have_done_is_kept_or_thrown_away_where_the_process_goes_on(
    place: Place, history: History, vault: Vault
) -> None:
    def half(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        for piece in work.pieces[::2]:
            list(work.function(_copied([piece])))
        return here()

    with history.target(place, vault, half) as target:
        assert history.load(target, place).row_sum is None
        assert_there(place, history.rows[0])
        assert history.bring(target, place, 1) == (ROWS // 4, ROWS // 4)
        assert_there(place, history.rows[1])


def test_a_late_task_of_a_load_that_another_session_has_taken_over_stores_nothing(
    place: Place, history: History, vault: Vault
) -> None:
    late: list[Callable[[], Any]] = []

    def interrupted(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        list(work.function(_copied(work.pieces[:1])))
        late.append(lambda: list(work.function(_copied(work.pieces))))
        raise InterruptedError

    with history.target(place, vault, interrupted) as target, pytest.raises(InterruptedError):
        history.bring(target, place, 0)
    with history.target(place, vault, pickled) as target:
        target.begin(history.location(0))

        def taken(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
            with pytest.raises(TargetUnavailable, match="another session has taken the load over"):
                late[0]()
            return pickled(work, here, beat)

        target._carry = taken
        assert history.bring(target, place, 0)[0] < ROWS  # a piece was there
        assert_there(place, history.rows[0])


def _die(history: History, place: Place, key_file: Path, lsn: int, when: str) -> None:
    """To be run in a process of its own."""
    os.environ[KEY_FILE_VARIABLE] = str(key_file)

    def carried(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> list[Any]:
        pieces = work.pieces if when == "after" else work.pieces[:2]
        for piece in pieces:
            list(work.function(_copied([piece])))
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    with history.target(place, Vault(key_file), carried) as target:
        history.bring(target, place, lsn)


@pytest.mark.kills
@pytest.mark.parametrize("when", ["between", "after"])
def test_a_driver_that_is_killed_between_staging_and_commit_is_repeated(
    mariadb: MariaDb, history: History, vault: Vault, key_file: Path, when: str
) -> None:
    context = multiprocessing.get_context("spawn")
    with new_database(mariadb) as place:
        other = replace(place, server=replace(mariadb, process=None))
        for lsn in (0, 1):
            process = context.Process(target=_die, args=(history, other, key_file, lsn, when))
            process.start()
            process.join(120)
            assert process.exitcode == -signal.SIGKILL
            left = [name for (name,) in place.query("SHOW TABLES") if "stage" in name]
            assert bool(left) == (lsn == 1)
            assert lsn == 0 or sorted(place.query("SELECT * FROM t")) == history.rows[0]
            with history.target(place, vault, pickled) as target:
                history.bring(target, place, lsn)
                assert_there(place, history.rows[lsn])


@pytest.mark.spark
def test_tasks_of_spark_load_and_change(
    mariadb: MariaDb,
    history: History,
    vault: Vault,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carry, "TASK_BYTES", 1)
    monkeypatch.setattr(carry, "_BEAT_SECONDS", 0.001)  # no job ends within it
    beats: list[None] = []
    tasks = Copier(tmp_path, "spark", own_session=lambda: spark)

    def carried(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        assert mariadb.password.encode() not in pickle.dumps((work.function, work.pieces))
        return tasks.carry(work, pytest.fail, lambda: beats.append(beat()))

    with new_database(mariadb) as place, history.target(place, vault, carried) as target:
        for lsn in (0, 1):
            history.bring(target, place, lsn)
            assert_there(place, history.rows[lsn])
    assert beats


@pytest.mark.in_turn
@pytest.mark.spark
def test_the_process_goes_on_where_workers_cannot_but_not_without_its_lock(
    mariadb: MariaDb, history: History, vault: Vault, spark: "SparkSession", tmp_path: Path
) -> None:
    """Workers may not reach, or not be allowed, what the process is."""
    settings = SparkSettings(tmp_path / "java", "spark://127.0.0.1:1")
    asked, auto = (Copier(tmp_path, one, settings=settings, own_session=lambda: spark) for one in ("spark", "auto"))
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "rates.json").write_text(json.dumps({"start": [0.001], "load process nowhere": [1]}))
    with new_database(mariadb) as place, history.target(place, vault, asked.carry) as target:
        target._sealed = vault.seal("wrong", place.address.endpoint)
        with pytest.raises(TargetDenied):
            history.bring(target, place, 0)
    denied = Work(WorkKind.LOAD, "nowhere", (history.url,), _denied, [1, 2], [1, 1])
    assert list(auto.carry(denied, lambda: ["by the process"])) == ["by the process"]

    def losing() -> None:
        raise TargetUnavailable("the lock is lost", subject="target")

    with pytest.raises(TargetUnavailable, match="the lock is lost"):
        list(auto.carry(replace(denied, function=_slow), pytest.fail, losing))


def _denied(pieces: Sequence[int]) -> Iterator[int]:
    raise TargetDenied("this host is not allowed", subject="target")


def _slow(pieces: Sequence[int]) -> Iterator[int]:
    time.sleep(10)
    yield from pieces
