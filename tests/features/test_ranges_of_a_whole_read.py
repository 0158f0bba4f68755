"""A large table in logical mode: read by ranges of its key, each once, whatever is cut off or killed in between; by
threads of the process, or by tasks."""

import os
import pickle
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ccpr
from ccpr.base.carrying import Work
from ccpr.matrixone.client import table_rows
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.pipeline import results
from ccpr.pipeline.logical import reading
from ccpr.pipeline.logical.table_objects import TableObjects
from ccpr.pipeline.spark import engine
from ccpr.pipeline.spark.carry import carry_in_tasks
from ccpr.pipeline.spark.engine import Copier
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import CutAnswer
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import run_sql

PASSWORD = "hush-7b31-upstream"
ROWS = 100
RANGE = 10

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """As a signal that ends the process."""


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimulatedUpstream]:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))
    monkeypatch.setenv("UPSTREAM_PASSWORD", PASSWORD)
    for module in (table_rows, results):
        monkeypatch.setattr(module, "RANGE_ROWS", RANGE)
    storage = Storage()
    storage.create_account("acc1")
    storage.create_database("d", account="acc1")
    with SimulatedUpstream(storage) as served:
        served.upgrade("4.2")
        values = ",".join(f"({number * 7},'row {number}')" for number in range(ROWS))
        run_sql(
            served.port, "d", "create table k (id int primary key, v varchar(20))", f"insert into k values {values}",
            "create table n (a int, v varchar(20))", f"insert into n values {values}",
            "create table t (id varchar(9) primary key, v varchar(20))", f"insert into t values {values}",
            user="acc1#admin",
        )  # fmt: skip
        uri = f"mysql://acc1#admin:env:UPSTREAM_PASSWORD@127.0.0.1:{served.port}"
        command("subscribe", "s", "--from", uri, "--database", "d", "--max-sessions", "3")
        yield served


def carried(work: Work, here: object, beat: Callable[[], None]) -> list[Any]:
    """As tasks get it and give it back, a piece a task, without Spark."""
    beat()
    function, pieces = pickle.loads(pickle.dumps((work.function, work.pieces)))
    return [pickle.loads(pickle.dumps(done)) for piece in pieces for done in function([piece])]


def killed_task(content: bytes, objects: int) -> None:
    """A task whose process ends after so many objects; to be run in a process of its own."""
    put, left = TableObjects.put_rows, [objects]

    def put_rows(*arguments: Any) -> Any:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return put(*arguments)

    TableObjects.put_rows = put_rows  # pyright: ignore[reportAttributeAccessIssue]
    function, piece = pickle.loads(content)
    list(function([piece]))


def ranges_read(emulator: SimulatedUpstream) -> Counter:
    """How often each table's rows were asked for by a range, and without one."""
    texts = [logged.text for logged in emulator.log() if " FROM `d`." in logged.text and "COUNT" not in logged.text]
    return Counter((text.split("`d`.")[1][1], " WHERE " in text) for text in texts if "MIN(" not in text)


def check_rows(tmp_path: Path, name: str = "s") -> None:
    mirror = ccpr.open_mirror(tmp_path / "mirrors" / name)
    for table in "knt":
        rows: list[Any] = mirror.table(f"d.{table}").to_pylist()
        assert Counter((str(row["id" if table != "n" else "a"]), row["v"]) for row in rows) == Counter(
            (str(number * 7), f"row {number}") for number in range(ROWS)
        )


def check_objects(tmp_path: Path, name: str = "s") -> None:
    """Each range is an object, and there is no other."""
    mirror = Mirror(open_store((tmp_path / "mirrors" / name).as_uri()))
    found = {ref.name: mirror.manifest(ref).objects for ref in mirror.point().tables.values()}
    assert {table: rows.num_rows for table, rows in found.items()} == {"k": 10, "n": 10, "t": 1}
    assert len(list(mirror.store.names("objects"))) == 21


@pytest.mark.parametrize("by_tasks", [False, True])
def test_each_range_is_read_once(
    emulator: SimulatedUpstream, tmp_path: Path, by_tasks: bool, monkeypatch: pytest.MonkeyPatch
):
    if by_tasks:
        monkeypatch.setattr(Copier, "carry", lambda _, *work: carried(*work))
        monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "key"))
    command("run", "s")
    check_rows(tmp_path)
    check_objects(tmp_path)
    assert ranges_read(emulator) == {("k", True): 10, ("n", True): 10, ("t", False): 1}
    run_sql(emulator.port, "d", "update k set v = 'new' where id = 7", user="acc1#admin")
    command("run", "s")
    assert ranges_read(emulator) == {("k", True): 10, ("n", True): 10, ("t", False): 1}  # the rest by differences
    assert ccpr.open_mirror(tmp_path / "mirrors" / "s").table("d.k").count() == ROWS


def test_a_range_that_was_cut_off_is_read_again_and_no_other(emulator: SimulatedUpstream, tmp_path: Path):
    emulator.inject(CutAnswer(120, "select", 2))
    command("run", "s")
    check_rows(tmp_path)
    assert sum(ranges_read(emulator).values()) <= 21 + 2


def test_ranges_that_were_read_are_not_read_again_by_the_next_process(
    emulator: SimulatedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put, left = TableObjects.put_rows, [13]

    def put_rows(objects: TableObjects, *arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return put(objects, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(TableObjects, "put_rows", put_rows)
        with pytest.raises(Killed):
            command("run", "s")
    before = ranges_read(emulator)
    command("run", "s")
    check_rows(tmp_path)
    again = ranges_read(emulator) - before
    assert 0 < sum(again.values()) < 14
    command("verify", "s", "--deep")


def test_rows_that_disagree_with_their_number_leave_nothing_to_be_taken_up(
    emulator: SimulatedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(reading, "count_at", lambda *_: ROWS + 1)
        assert "ROWS_DISAGREE" in str(command("run", "s", code=1))
    assert not list(tmp_path.rglob("read-*-*.arrow"))
    command("run", "s")
    check_rows(tmp_path)


@pytest.mark.kills
def test_a_task_that_is_killed_is_repeated_without_the_ranges_that_it_had_read(
    emulator: SimulatedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def carry(_: Copier, work: Work, *others: Any) -> list[Any]:
        process = get_context("spawn").Process(
            target=killed_task, args=(pickle.dumps((work.function, work.pieces[0])), 2)
        )
        process.start()
        process.join(120)
        assert process.exitcode == -signal.SIGKILL
        return carried(work, *others)

    monkeypatch.setattr(Copier, "carry", carry)
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "key"))
    command("run", "s")
    check_rows(tmp_path)
    check_objects(tmp_path)
    assert ranges_read(emulator) == {("k", True): 11, ("n", True): 11, ("t", False): 1}
    command("verify", "s", "--deep")


@pytest.mark.spark
def test_tasks_of_spark_read_the_ranges(
    emulator: SimulatedUpstream,
    spark: "SparkSession",
    key_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    keys = key_file, tmp_path / "key"
    shutil.copy(*(keys if key_file.exists() else keys[::-1]))
    monkeypatch.setattr(engine, "spark_session", lambda settings: spark)
    functions = list[bytes]()

    def tasks(session: object, work: Work, *others: Any) -> list[Any]:
        functions.append(pickle.dumps((work.function, work.pieces)))
        return carry_in_tasks(spark, work, *others)

    monkeypatch.setattr(engine, "carry_in_tasks", tasks)
    uri = f"mysql://acc1#admin:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
    command("subscribe", "two", "--from", uri, "--database", "d", "--max-sessions", "3", "--allow-overlap")
    command("run", "two", "--engine", "spark")
    check_rows(tmp_path, "two")
    check_objects(tmp_path, "two")
    assert ranges_read(emulator) == {("k", True): 10, ("n", True): 10, ("t", False): 1}
    assert len(functions) == 2
    assert not [one for one in functions if PASSWORD.encode() in one]
