"""Commits through the catalog: all tables or none, by one of two committers, and what a kill leaves."""

import shutil
from dataclasses import replace
from threading import Barrier, Thread

import pytest

from ccpr.catalog import table_commits
from ccpr.catalog.embedded_catalog import embedded_catalog
from ccpr.state.table_pointers import PointerMove, TablePointers
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


def test_a_kill_between_metadata_and_pointers_leaves_the_tables_as_they_were(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("a", "b")
    assert lake.commit(1, {"a": [1], "b": [1]}).ok
    with monkeypatch.context() as patched:
        patched.setattr(table_commits, "_move", lambda *_: (_ for _ in ()).throw(MemoryError))
        assert lake.commit(2, {"a": [2], "b": [2]}).status_code == 500
    assert ids(lake.reader(), "a") == ids(lake.reader(), "b") == [1]
    assert lake.commit(2, {"a": [2], "b": [2]}).ok
    assert ids(lake.reader(), "a") == ids(lake.reader(), "b") == [1, 2]


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
    again = {"name": "a", "schema": {"type": "struct", "fields": []}}
    answer = lake.ask("POST", f"{lake.address.warehouse}/namespaces/{DATABASE}/tables", again)
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "AlreadyExistsException")
    to = {"namespace": [DATABASE], "name": "b"}
    body = {"source": {"namespace": [DATABASE], "name": "a"}, "destination": to}
    assert lake.ask("POST", f"{lake.address.warehouse}/tables/rename", body).status_code == 409


def test_a_table_goes_on_under_its_new_name_and_a_dropped_one_leaves_its_name(lake: IcebergLake) -> None:
    lake.create("a", "b")
    assert lake.commit(1, {"a": [1], "b": [1]}).ok
    catalog = lake.reader()
    catalog.rename_table((DATABASE, "a"), (DATABASE, "c"))
    assert ids(catalog, "c") == [1]
    catalog.drop_table((DATABASE, "c"))
    assert catalog.list_tables(DATABASE) == [(DATABASE, "b")]
    assert [one.gone for one in lake.pointers.all() if one.name == "c"] == [True]
    shutil.rmtree(lake.folder / f"{DATABASE}.a")
    lake.create("c")
    catalog.drop_table((DATABASE, "c"))
    assert [one.name for one in lake.pointers.all()] == ["b"], "of folders that are gone nothing is remembered"


def test_a_table_whose_metadata_file_is_lost_is_created_anew(lake: IcebergLake) -> None:
    """As after the state database was restored from an older copy, and the older file has been deleted since."""
    lake.create("a")
    assert lake.commit(1, {"a": [1]}).ok
    (lake.folder / lake.pointer("a").metadata).unlink()
    with embedded_catalog(lake.workspace.log, NAME, lake.target) as address:  # nothing is remembered
        fresh = replace(lake, address=address)
        answer = fresh.ask("GET", f"{fresh.address.warehouse}/namespaces/{DATABASE}/tables/a")
        assert answer.status_code == 404
        assert "lost its metadata file" in answer.json()["error"]["message"]
        fresh.create("a")
        assert fresh.commit(2, {"a": [2]}).ok
        assert ids(fresh.reader(), "a") == [2]
