"""Every recorded (table, snapshot): replay → session → mirror → export equals the rows that were true."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ccpr
from ccpr.service.workspace import Workspace
from tests.support.recordings_location import scenarios
from tests.support.replica import NAME, SCENARIOS, Replica, replaying

pytestmark = pytest.mark.recordings


def test_there_are_recordings(recordings: Path) -> None:
    assert SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_table_equals_the_source_at_every_point(scenario: str, recordings: Path, home: Path) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe(*(("--zero-dates", "keep") if scenario.endswith("/zero_dates") else ()))
        assert replica.emulator.status().statements.get("create_snapshot", 0) == 0, "subscribing takes no snapshot"
        last = replica.about.snapshots
        for snapshot in range(1, last + 1):
            outcome = replica.run()
            assert (outcome["lsn"], outcome["point"]) == (snapshot - 1, True)
            assert replica.emulator.status().statements["create_snapshot"] == snapshot, "an iteration takes exactly one"
            replica.assert_equal_to_source(snapshot)
        for snapshot in range(1, last):  # again, back in time, after all has been copied
            replica.assert_equal_to_source(snapshot, at=snapshot - 1)
        assert_changes_are_those_of_rows(replica, last)


def assert_changes_are_those_of_rows(replica: Replica, last: int) -> None:
    """Of each point the same tables have changed for `points`, `history`, `tables` and readers of the mirror: those
    whose rows differ, and those that were defined anew."""
    with closing(Workspace()) as workspace:
        mirror = ccpr.open_mirror(workspace.mirror(NAME).store.url)
    by_point = {one.lsn: set(one.changed) for one in mirror.history()}
    counted = {one["lsn"]: one["tables_changed"] for one in replica.command("points", NAME)}
    history = {one["lsn"]: set(one["tables"]) for one in replica.command("points", "history", NAME, "--last", "99")}
    before: dict[str, pa.Table] = {}
    defined: dict[str, tuple[int, str]] = {}
    changed_at: dict[str, int] = {}
    for lsn in range(last):
        rows = {name: pq.read_table(file) for name, file in replica.in_scope(lsn + 1).items()}
        with closing(Workspace()) as workspace:
            tables = {one.table.qualified_name: one.table for one in workspace.of(NAME).history.tables(lsn).values()}
        found = {name: (tables[name].id, tables[name].ddl) for name in rows}
        other = {name for name in rows if name not in before or not same_rows(before[name], rows[name])}
        redefined = {name for name in rows if found[name] != defined.get(name)}
        assert other <= by_point[lsn] & rows.keys() <= other | redefined, lsn
        assert history[lsn] & rows.keys() == by_point[lsn] & rows.keys(), lsn
        gone = {one for one, _ in defined.values()} - {one for one, _ in found.values()}  # one may have come again
        there = len(by_point[lsn] & rows.keys())
        assert there <= counted[lsn] <= there + len(gone), lsn
        changed_at |= dict.fromkeys(by_point[lsn], lsn)
        of_mirror = {one.name: one.lsn for one in mirror.tables(at=lsn)}
        for one in replica.command("tables", NAME, "--at", str(lsn))["tables"]:
            if one["kind"] == "table":
                assert one["changed_lsn"] == of_mirror[one["table"]] == changed_at[one["table"]]
        before, defined = rows, found


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    return one.equals(other) or (
        one.num_rows == other.num_rows and sorted(map(repr, one.to_pylist())) == sorted(map(repr, other.to_pylist()))
    )


def test_a_list_that_the_upstream_does_not_give_is_an_error(recordings: Path, home: Path) -> None:
    with replaying(recordings / "partitioned", home) as replica:  # which has no lists of single tables, nor extra_info
        replica.subscribe()
        assert replica.run(code=1)["error"]["code"] == "PARTITIONED_TABLE"


def test_an_idle_iteration_advances_the_watermark_and_makes_no_point(recordings: Path, home: Path) -> None:
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        replica.run(), replica.run()
        before = replica.command("subscriptions")[0]
        outcome = replica.run()
        after = replica.command("subscriptions")[0]
        assert (outcome["point"], outcome["objects_copied"], outcome["tables_changed"]) == (False, 0, 0)
        assert after["watermark"] > before["watermark"]
        assert after["iteration_lsn"] == 3
        assert [point["lsn"] for point in replica.command("points", "replica")] == [0, 1]
        replica.assert_equal_to_source(2, at=2)  # the idle iteration's lsn reads as the point before it


def test_a_point_that_is_not_reached_yet_is_an_error(recordings: Path, home: Path) -> None:
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        replica.run()
        for at in ("1", "7", "2999-01-01T00:00:00"):
            error = replica.command(
                "export", "replica", "gd_acc.p", "--out", str(home / "x.parquet"), "--at", at, code=1
            )["error"]
            assert error["code"] == "POINT_NOT_REACHED"
        assert not (home / "x.parquet").exists()


def test_a_time_reads_the_point_of_that_time(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        times = [replica.run()["at"] for _ in range(3)]
        assert replica.command("tables", "replica", "--at", str(times[1]))["lsn"] == 1
        assert replica.command("tables", "replica", "--at", str(times[2] - 1))["lsn"] == 1
        error = replica.command("tables", "replica", "--at", str(times[0] - 1), code=1)["error"]
        assert error["code"] == "POINT_GONE"


def test_the_upstream_keeps_two_snapshots_and_no_more(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        for _ in range(4):
            replica.run()
            assert len(replica.emulator.status().snapshots) <= 2
        names = sorted(replica.emulator.status().snapshots)
        assert [name.split("_")[2] for name in names] == ["2", "3"]


def test_objects_of_index_tables_are_copied_on_request_only(recordings: Path, home: Path) -> None:
    with replaying(recordings / "keys", home) as replica:
        replica.subscribe("--with-indexes")
        outcome = replica.run()
        assert outcome["objects_copied"] == outcome["objects_total"] == 13
        index = next(
            table["table"] for table in replica.command("tables", "replica")["tables"] if table["kind"] == "index"
        )
        assert replica.export(index).num_rows > 0


def test_zero_dates_are_null_to_readers_unless_they_are_kept(recordings: Path, home: Path) -> None:
    newer = next((path for path in scenarios().values() if path.endswith("/zero_dates")), None)
    if newer is None:
        pytest.skip("no recordings of 4.2.0")
    with replaying(recordings / newer, home) as replica:
        replica.subscribe()
        replica.run()
        expected = pq.read_table(replica.in_scope(1)["gd_zero.z"])
        zero = sum(cell == b"0000-00-00" or cell is None for cell in expected.column("d").to_pylist())
        assert zero == replica.export("gd_zero.z").column("d").null_count > 0
