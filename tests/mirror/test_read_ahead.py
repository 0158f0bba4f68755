"""Reading by several threads gives what reading by one does, errors included; SQL over it as well."""

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.mirror import duckdb_rows
from ccpr.mirror.duckdb_rows import batches_ahead
from ccpr.mirror.sql import PointDatabase
from ccpr.mirror.table_read import plan_read
from ccpr_emulator.engine.storage import Storage
from tests.support.decoded_columns import note_decoded
from tests.support.simulated_mirror import SimulatedMirror

ROWS = 5000


@pytest.fixture(params=["folder", "bucket"])
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> SimulatedMirror:
    """A table of many objects, with deleted rows in each; every object is a share of its own. Out of a folder one
    thread reads them, as out of a bucket several."""
    monkeypatch.setattr(duckdb_rows, "SHARE_BYTES", 1)
    simulated = SimulatedMirror(Storage(object_rows=256), tmp_path / "mirror")
    storage = simulated.storage
    storage.create_database("b")
    storage.create_table("b", "t", {"id": "bigint", "name": "varchar(40)"}, primary_key=["id"])
    for start in range(0, ROWS, 500):
        numbers = list(range(start, start + 500))
        with storage.begin() as transaction:
            transaction.insert("b", "t", {"id": numbers, "name": [f"n{number % 100}" for number in numbers]})
        storage.flush("b", "t")
    with storage.begin() as transaction:
        transaction.delete("b", "t", pc.field("id").isin(list(range(0, ROWS, 3))))
    simulated.take_points()
    point = simulated.points[-1]
    monkeypatch.setattr(simulated.mirror, "point", lambda at=None: point, raising=False)
    if request.param == "bucket":
        monkeypatch.setattr(simulated.mirror.store, "folder", None)
    return simulated


def test_several_threads_give_the_rows_of_one(simulated: SimulatedMirror) -> None:
    read = plan_read(simulated.mirror, "b.t")
    assert len(set(read.shares(1).column("task").to_pylist())) > 8
    one = pa.Table.from_batches(read.batches(mirror=simulated.mirror), read.schema).sort_by("id")
    several = pa.Table.from_batches(batches_ahead(read, simulated.mirror), read.schema).sort_by("id")
    assert several.equals(one)
    assert one.column("id").to_pylist() == [number for number in range(ROWS) if number % 3]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("id >= 1000 AND id < 1003", 2),
        ("id > 4990", sum(number % 3 > 0 for number in range(4991, ROWS))),
        ("name = 'n7' AND id < 300", 2),
        ("id = 3", 0),
        ("id < 0", 0),
    ],
)
def test_blocks_that_are_left_out_hold_no_row_that_is_wanted(
    simulated: SimulatedMirror, where: str, count: int
) -> None:
    with PointDatabase(simulated.mirror, simulated.points[-1], "b") as database:
        found = database.query(f"SELECT id FROM t WHERE {where}").read_all()
    assert found.num_rows == count


def test_a_reader_that_stops_early_ends_the_threads(simulated: SimulatedMirror) -> None:
    before = set(threading.enumerate())
    batches = batches_ahead(plan_read(simulated.mirror, "b.t"), simulated.mirror)
    assert all(next(batches).num_rows > 0 for _ in range(3))
    assert set(threading.enumerate()) - before
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert next(batches, None) is None
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("simulated", ["folder"], indirect=True)
def test_out_of_a_folder_the_batches_come_in_order(simulated: SimulatedMirror) -> None:
    read = plan_read(simulated.mirror, "b.t")
    assert list(batches_ahead(read, simulated.mirror)) == list(read.batches(mirror=simulated.mirror))


@pytest.mark.parametrize("simulated", ["folder"], indirect=True)
def test_who_takes_one_batch_out_of_a_folder_has_few_decoded(
    simulated: SimulatedMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = note_decoded(monkeypatch)
    batches = batches_ahead(plan_read(simulated.mirror, "b.t", columns=["name"]), simulated.mirror)
    assert next(batches).num_rows > 0
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert 1 <= len(decoded) <= 1 + 2 + 4


@pytest.mark.parametrize("simulated", ["folder"], indirect=True)
def test_values_of_one_size_need_no_thread(simulated: SimulatedMirror) -> None:
    before = set(threading.enumerate())
    batches = batches_ahead(plan_read(simulated.mirror, "b.t", columns=["id"]), simulated.mirror)
    assert next(batches).num_rows > 0
    assert set(threading.enumerate()) <= before


def test_a_missing_file_is_the_error_of_the_query(simulated: SimulatedMirror, tmp_path: Path) -> None:
    names = plan_read(simulated.mirror, "b.t").shares(1).column("name").to_pylist()
    (tmp_path / "mirror" / "objects" / names[len(names) // 2]).unlink()
    with (
        PointDatabase(simulated.mirror, simulated.points[-1], "b") as database,
        pytest.raises(CcprError) as raised,
    ):
        pa.Table.from_batches(database.batches("SELECT count(name) FROM t")[1])
    assert raised.value.code != "QUERY_FAILED"


def test_to_count_rows_no_column_is_decoded(simulated: SimulatedMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = note_decoded(monkeypatch)
    with PointDatabase(simulated.mirror, simulated.points[-1], "b") as database:
        assert database.query("SELECT count(*) AS n FROM t").read_all().to_pylist() == [{"n": 3333}]
        assert not decoded
        assert database.query("SELECT count(*) AS n FROM t WHERE name = 'n7'").read_all().to_pylist() == [{"n": 34}]
        assert {one.column for one in decoded} == {"name"}
        assert database.query("DESCRIBE t").read_all().column("column_name").to_pylist() == ["id", "name"]


def test_columns_may_be_called_as_the_one_that_counts_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = SimulatedMirror(Storage(), tmp_path / "mirror")
    simulated.storage.create_database("b")
    simulated.storage.create_table(
        "b", "t", {"__CCPR_row": "bigint", "__ccpr_row_": "bigint"}, primary_key=["__CCPR_row"]
    )
    with simulated.storage.begin() as transaction:
        transaction.insert("b", "t", {"__CCPR_row": [1, 2], "__ccpr_row_": [3, 4]})
    simulated.take_points()
    point = simulated.points[-1]
    monkeypatch.setattr(simulated.mirror, "point", lambda at=None: point, raising=False)
    with PointDatabase(simulated.mirror, point, "b") as database:
        assert database.query("SELECT * FROM t ORDER BY 1").read_all().to_pylist() == [
            {"__CCPR_row": 1, "__ccpr_row_": 3},
            {"__CCPR_row": 2, "__ccpr_row_": 4},
        ]
        assert database.query("SELECT count(*) AS n FROM t WHERE __ccpr_row = 2").read_all().to_pylist() == [{"n": 1}]
