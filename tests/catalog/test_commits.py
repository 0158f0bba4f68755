"""What commits move: all pointers or none, of one of two committers."""

from dataclasses import replace
from threading import Barrier, Thread

import pytest

from ccpr.state.table_pointers import PointerMove, TablePointers
from tests.support.committing_catalog import committing_catalog
from tests.support.iceberg_lake import DATABASE, NAME, IcebergLake, ids

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("version", ["2", "3"])
def test_what_is_committed_is_read_by_pyiceberg(lake: IcebergLake, version: str) -> None:
    lake.create("a", "b", version=version)
    if version == "3":  # pyiceberg does not write it
        return
    for point in (1, 2, 3):
        assert lake.commit(point, {"a": [point], "b": [point, -point]}).status_code == 204
    catalog = lake.reader()
    assert catalog.list_namespaces() == [(DATABASE,)]
    assert sorted(catalog.list_tables(DATABASE)) == [(DATABASE, "a"), (DATABASE, "b")]
    assert ids(catalog, "a") == [1, 2, 3]
    assert ids(catalog, "b") == [-3, -2, -1, 1, 2, 3]
    assert [one.at for one in lake.pointers.all()] == [3 * 10**9] * 2
    assert catalog.table_exists((DATABASE, "a"))
    assert not catalog.table_exists((DATABASE, "c"))


def test_of_two_committers_at_once_one_is_refused_and_no_row_is_lost(lake: IcebergLake) -> None:
    lake.create("a", "b")
    assert lake.commit(1, {"a": [0], "b": [0]}).ok
    statuses, together = [], Barrier(4)

    def commit(number: int) -> None:
        body = lake.changes(2, {"a": [number], "b": [number]})
        together.wait()
        statuses.append((lake.ask("POST", f"{lake.address.warehouse}/transactions/commit", body).status_code, number))

    threads = [Thread(target=commit, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = (number for status, number in statuses if status == 204)
    assert sorted(status for status, _ in statuses) == [204, 409, 409, 409]
    assert ids(lake.reader(), "a") == ids(lake.reader(), "b") == [0, won]
    for name in ("a", "b"):
        files = list((lake.folder / f"{DATABASE}.{name}" / "metadata").glob("*.metadata.json"))
        assert len(files) == 3, "those that were refused leave none"


def test_a_commit_that_was_prepared_on_an_older_state_is_refused(lake: IcebergLake) -> None:
    lake.create("a", "b")
    old = lake.changes(1, {"a": [1], "b": [1]})
    assert lake.commit(1, {"b": [2]}).ok
    answer = lake.ask("POST", f"{lake.address.warehouse}/transactions/commit", old)
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "CommitFailedException")
    assert lake.pointer("a").at is None, "nothing of it is there"


def test_a_move_whose_end_was_not_known_may_run_again(lake: IcebergLake) -> None:
    lake.create("a")
    before = lake.pointer("a")
    assert lake.commit(1, {"a": [1]}).ok
    after = lake.pointer("a")
    pointers: TablePointers = lake.pointers
    assert pointers.move([PointerMove(before, after)])
    assert not pointers.move([PointerMove(before, None)])
    assert lake.pointer("a") == after


def test_a_name_is_that_of_one_table(lake: IcebergLake) -> None:
    lake.create("a", "b")
    a, b = lake.pointer("a"), lake.pointer("b")
    assert not lake.pointers.move([PointerMove(a, replace(a, name="b"))])
    assert lake.pointers.move([PointerMove(a, replace(a, name="b")), PointerMove(b, replace(b, gone=True))])
    assert lake.pointers.move([PointerMove(replace(a, name="b"), a), PointerMove(replace(b, gone=True), b)])


def test_a_table_whose_metadata_file_is_lost_is_created_anew(lake: IcebergLake) -> None:
    """As after the state database was restored from an older copy, and the older file has been deleted since."""
    lake.create("a")
    assert lake.commit(1, {"a": [1]}).ok
    (lake.folder / lake.pointer("a").metadata).unlink()
    with committing_catalog(lake.workspace.log, NAME, lake.target) as address:  # nothing is remembered
        fresh = replace(lake, address=address)
        answer = fresh.ask("GET", f"{fresh.address.warehouse}/namespaces/{DATABASE}/tables/a")
        assert answer.status_code == 404
        assert "lost its metadata file" in answer.json()["error"]["message"]
        fresh.create("a")
        assert fresh.commit(2, {"a": [2]}).ok
        assert ids(fresh.reader(), "a") == [2]
