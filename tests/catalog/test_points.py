"""All tables at one point: what a pinned warehouse and a namespace `db@point` show, and what they rather refuse."""

import time
from threading import Event, Thread

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.update import RemoveSnapshotsUpdate

from ccpr.catalog import warehouses
from ccpr.catalog.warehouses import Warehouses
from ccpr.lake.lake_catalog import BEHIND, DROPPED, CatalogEntry, TableRow, read_points
from ccpr.mirror.kept_points import Hold
from ccpr.state.table_pointers import PointerMove
from tests.support.iceberg_lake import DATABASE, NAME, IcebergLake, attached, hold, ids, row_of, served, time_of
from tests.support.values import NOW
from tests.support.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.integration
A_FEW = 100  # pairs of reads; the measured ten thousand are in docs/how-to/attach-engines.md


def test_a_pinned_warehouse_shows_all_tables_at_its_point_while_points_come(lake: IcebergLake) -> None:
    lake.create("a", "b", "c")
    lake.publish(1, {"a": [1], "b": [1]})
    lake.publish(2, {"a": [2]})
    lake.publish(3, {"a": [3], "b": [3], "c": [3]})
    first, second, newest = lake.reader("1"), lake.reader("2"), lake.reader("newest")
    lake.publish(4, {"a": [4], "c": [4]})
    assert (ids(first, "a"), ids(first, "b")) == ([1], [1])
    assert (ids(second, "a"), ids(second, "b")) == ([1, 2], [1])
    assert (ids(newest, "a"), ids(newest, "b"), ids(newest, "c")) == ([1, 2, 3], [1, 3], [3])
    assert sorted(first.list_tables(DATABASE)) == [(DATABASE, "a"), (DATABASE, "b")]
    with pytest.raises(NoSuchTableError):
        first.load_table((DATABASE, "c"))
    live = lake.reader()
    assert ids(live, "a", f"{DATABASE}@2") == [1, 2]
    assert sorted(live.list_tables(f"{DATABASE}@2")) == [(f"{DATABASE}@2", "a"), (f"{DATABASE}@2", "b")]
    assert ids(live, "a") == [1, 2, 3, 4]
    table = second.load_table((DATABASE, "a"))
    assert [one.summary["ccpr.point"] for one in table.snapshots() if one.summary] == ["1", "2"]
    locations = {one.load_table((DATABASE, "a")).metadata_location for one in (first, second, newest, live)}
    assert len(locations) == 4, "by which clients keep metadata"


def test_what_the_lake_says_of_a_point_is_asked_and_never_guessed(lake: IcebergLake) -> None:
    """A table that was behind, dropped or renamed; a snapshot that has expired."""
    lake.create("a", "b")
    lake.publish(1, {"a": [1], "b": [1]})
    gone = row_of("b", 1)
    behind = TableRow(BEHIND, gone.table, gone.table_id, gone.logical_id, gone.path, None)
    lake.publish(2, {"a": [2]}, b=behind)
    lake.publish(3, {"a": [3], "b": [3]})
    with pytest.raises(NoSuchTableError, match="not shown at that point"):
        lake.reader("2").load_table((DATABASE, "b"))
    assert ids(lake.reader("3"), "b") == [1, 3]
    lake.reader().drop_table((DATABASE, "b"))
    dropped = TableRow(DROPPED, gone.table, gone.table_id, gone.logical_id, gone.path, 4)
    lake.publish(4, {"a": [4]}, b=dropped)
    assert lake.reader("4").list_tables(DATABASE) == [(DATABASE, "a")]
    assert ids(lake.reader("3"), "b") == [1, 3], "of which the files are there"
    catalog = lake.reader()
    expired = catalog.load_table((DATABASE, "a")).snapshots()[1].snapshot_id
    update = RemoveSnapshotsUpdate(snapshot_ids=[expired])
    body = {"requirements": [], "updates": [update.model_dump(by_alias=True)]}
    lake.asked("POST", f"namespaces/{DATABASE}/tables/a", body)
    with pytest.raises(NoSuchTableError, match="not kept at that point"):
        lake.reader("2").load_table((DATABASE, "a"))
    assert ids(lake.reader("1"), "a") == [1]


def test_a_point_of_a_restored_state_is_not_taken_for_the_one_that_was_attached(lake: IcebergLake) -> None:
    """Its number is counted anew, its time is not."""
    lake.create("a")
    lake.publish(1, {"a": [1]})
    lake.publish(2, {"a": [2]})
    attached_before = lake.reader("2")
    prefix = attached_before.properties["prefix"]
    assert prefix == f"{lake.address.warehouse}@{time_of(2)}"
    assert ids(attached_before, "a") == [1, 2]


@pytest.mark.parametrize(("point", "status"), [("9", 404), ("x", 400), ("-1", 400)])
def test_a_point_that_is_none_is_refused(lake: IcebergLake, point: str, status: int) -> None:
    lake.create("a")
    lake.publish(1, {"a": [1]})
    answer = lake.ask("GET", f"config?warehouse={lake.address.warehouse}@{point}")
    assert answer.status_code == status
    for path in (f"/namespaces/{DATABASE}@{point}/tables", f"@{point}/namespaces"):
        assert lake.ask("GET", f"{lake.address.warehouse}{path}").status_code == status


def test_the_newest_point_is_looked_up_once(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake of hundreds of points takes long to read, and a client asks several times for each table."""
    lake.create("a", "b")
    lake.publish(1, {"a": [1], "b": [1]})
    reads = []
    monkeypatch.setattr(warehouses, "read_points", lambda *about: reads.append(1) or read_points(*about))
    found = Warehouses(lake.workspace.log)
    warehouse = found.of(NAME, lake.target)

    def newest() -> tuple[int, dict[str, int]]:
        at = found.time_of(warehouse, "newest")
        return at, {name: version for (_, name), (_, version) in found.pinned(warehouse, at).tables().items()}

    assert [newest() for _ in range(3)] == [(time_of(1), {"a": 1, "b": 1})] * 3
    assert len(reads) == 1
    assert lake.commit(2, {"a": [2]}).ok
    assert newest() == (time_of(1), {"a": 1, "b": 1}), "the lake does not say yet that it shows the point"
    lake.record(2, row_of("a", 2))
    assert [newest() for _ in range(3)] == [(time_of(2), {"a": 2, "b": 1})] * 3
    assert len(reads) == 3


@pytest.mark.parametrize("namespace", [DATABASE, f"{DATABASE}@1"])
def test_something_of_a_table_is_no_table(lake: IcebergLake, namespace: str) -> None:
    """Spark asks for `shop.a.changes`, and only where it is no table for `shop.a`."""
    lake.create("a")
    lake.publish(1, {"a": [1]})
    answer = lake.ask("GET", f"{lake.address.warehouse}/namespaces/{namespace}%1Fa/tables/changes")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchTableException")


@pytest.mark.in_turn
def test_no_pair_of_reads_at_a_point_is_torn(lake: IcebergLake) -> None:
    """Each point adds a row with its number to both tables."""
    lake.create("a", "b")
    lake.publish(1, {"a": [1], "b": [1]})
    ended = Event()

    def publish() -> None:
        point = 1
        while not ended.is_set():
            point += 1
            lake.publish(point, {"a": [point], "b": [point]})
            time.sleep(0.01)

    def newest(catalog, name: str) -> str:
        snapshot = catalog.load_table((DATABASE, name)).current_snapshot()
        return snapshot.summary["ccpr.point"]

    thread = Thread(target=publish)
    thread.start()
    try:
        with served(lake.workspace) as port:
            seen, reads, end = set(), 0, time.monotonic() + LIMIT_SECONDS
            while (reads < A_FEW or len(seen) <= 2) and time.monotonic() < end:
                reads += 1
                catalog = attached(port, "shop@newest")
                pair = newest(catalog, "a"), newest(catalog, "b")
                assert pair[0] == pair[1]
                seen.add(pair[0])
    finally:
        ended.set()
        thread.join()
    assert len(seen) > 2, "points came meanwhile"


def test_held_points_are_tags_for_readers(lake: IcebergLake) -> None:
    lake.create("a", "b", "c")
    lake.publish(1, {"a": [1], "b": [1]})
    gone = row_of("b", 1)
    lake.publish(2, {"a": [2]}, b=TableRow(BEHIND, gone.table, gone.table_id, gone.logical_id, gone.path, None))
    lake.publish(3, {"a": [3], "b": [3], "c": [3]})
    holds = [Hold(name, lsn, None, NOW) for name, lsn in (("eve", 1), ("late", 2), ("main", 1), ("other", 9))]
    hold(lake.workspace, *holds)
    with served(lake.workspace) as port:

        def tags(name: str) -> dict[str, list[int]]:
            table = attached(port, "shop").load_table((DATABASE, name))
            found = {}
            for tag in table.metadata.refs.keys() - {"main"}:
                snapshot = table.snapshot_by_name(tag)
                assert snapshot is not None
                found[tag] = sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist())
            return found

        assert tags("a") == {"eve": [1], "late": [1, 2]}
        assert tags("b") == {"eve": [1]}, "it did not show the other"
        assert tags("c") == {}
        assert ids(attached(port, "shop"), "a") == [1, 2, 3], "a hold called main is none"
        hold(lake.workspace, Hold("eve", 3, None, NOW))
        assert (tags("a"), tags("c")) == ({"eve": [1, 2, 3]}, {"eve": [3]})
        hold(lake.workspace)
        assert tags("a") == {}


def test_names_with_dots_and_signs_are_found_again(lake: IcebergLake) -> None:
    from ccpr.catalog.warehouses import identifier_of
    from ccpr.lake.lake_catalog import new_folder

    for database, name in (("a.b", "c.d"), ("x", "y.z"), ("ü/%", "@7"), (".", "..")):
        folder = new_folder(database, name, 1, ())
        entry = CatalogEntry(1, 1, f"{database}.{name}", folder, 1, 1, 1, 1, 1, "", False, "")
        assert identifier_of(entry.name, entry.folder) == (database, name)


def test_an_older_copy_of_the_state_shows_its_own_point_and_none_wrongly(lake: IcebergLake) -> None:
    """Until the next sync brings the tables to where the lake is."""
    lake.create("a", "b")
    lake.publish(1, {"a": [1], "b": [1]})
    older = [lake.pointer("a"), lake.pointer("b")]
    lake.publish(2, {"a": [2], "b": [2]})
    newer = [lake.pointer("a"), lake.pointer("b")]
    assert lake.pointers.move([PointerMove(*pair) for pair in zip(newer, older, strict=True)])
    assert (ids(lake.reader(), "a"), ids(lake.reader(), "b")) == ([1], [1])
    assert lake.reader("newest").properties["prefix"].endswith(f"@{time_of(1)}")
    with pytest.raises(NoSuchTableError, match="not kept at that point"):
        lake.reader("2").load_table((DATABASE, "a"))
    summary = lake.reader().load_table((DATABASE, "a")).current_snapshot().summary
    assert summary["ccpr.version"] == "1", "by which the next sync knows"
