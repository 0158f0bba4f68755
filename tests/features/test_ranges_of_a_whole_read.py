"""A large table in logical mode: read by ranges of its key, each once, whatever is cut off or killed in between."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ccpr
from ccpr.matrixone.client import table_rows
from ccpr.pipeline.logical import reading
from ccpr.pipeline.logical.table_objects import TableObjects
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import CutAnswer
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import run_sql

ROWS = 100
RANGE = 10


class Killed(BaseException):
    """As a signal that ends the process."""


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimulatedUpstream]:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "111")
    for module in (table_rows, reading):
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


def ranges_read(emulator: SimulatedUpstream) -> Counter:
    """How often each table's rows were asked for by a range, and without one."""
    texts = [logged.text for logged in emulator.log() if " FROM `d`." in logged.text and "COUNT" not in logged.text]
    return Counter((text.split("`d`.")[1][1], " WHERE " in text) for text in texts if "MIN(" not in text)


def check_rows(tmp_path: Path) -> None:
    mirror = ccpr.open_mirror(tmp_path / "mirrors" / "s")
    for table in "knt":
        rows: list[Any] = mirror.table(f"d.{table}").to_pylist()
        assert Counter((str(row["id" if table != "n" else "a"]), row["v"]) for row in rows) == Counter(
            (str(number * 7), f"row {number}") for number in range(ROWS)
        )


def test_each_range_is_read_once(emulator: SimulatedUpstream, tmp_path: Path):
    command("run", "s")
    check_rows(tmp_path)
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
