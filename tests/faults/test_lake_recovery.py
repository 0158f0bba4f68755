"""A lake beside what goes wrong: an older state that is back, a table in quarantine, several databases, the service."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import MissingObject
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.faults.test_isolated import changed_tables, isolated, new_objects
from tests.features.test_serve import Upstream, running
from tests.features.test_serve import upstream as upstream
from tests.support.lake_readers import READERS, assert_same_rows, truth
from tests.support.replica import NAME, command, replaying, source_uri
from tests.support.simulated import SimulatedSource
from tests.support.waiting import until


def lake_of(name: str) -> Any:
    (found,) = command("target", "status", name)
    return found


def assert_shows(mirror: Path, name: str) -> None:
    """Every table of the newest point, by every reader."""
    opened = Mirror(open_store(str(mirror)))
    point, tables = opened.point(), {table["table"]: table for table in lake_of(name)["tables"]}
    assert set(tables) == {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
    for qualified_name, table in tables.items():
        for reader in READERS.values():
            found = reader(table["uri"], table["version"])
            assert_same_rows(found, truth(opened, point, qualified_name), f"{qualified_name} at {point.lsn}")


def saved(home: Path) -> Path:
    """A copy of the whole state folder, mirrors included."""
    with closing(Workspace()) as workspace:  # so that its files are complete
        workspace.log.rows()
    return Path(shutil.copytree(home / "home", home / "saved"))


def restore(copy: Path, home: Path) -> None:
    shutil.rmtree(home / "home")
    copy.rename(home / "home")


def test_a_state_that_was_restored_from_an_older_copy_goes_on_where_the_lake_is(home: Path) -> None:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "d")

    def insert(*numbers: int) -> None:
        with storage.begin() as transaction:
            transaction.insert("d", "t", {"n": list(numbers)})

    with SimulatedUpstream(storage) as emulator:
        source = SimulatedSource(storage, emulator, home, "d")
        source.subscribe()
        command("target", "add", "s", "lake", "--to", (home / "lake").as_uri())
        insert(1, 2)
        command("run", "s")
        copy = saved(home)
        for number in (3, 4):
            insert(number)
            command("run", "s")
        before = lake_of("s")
        restore(copy, home)
        stopped = command("target", "sync", "s", "lake", code=1)["error"]
        assert stopped["code"] == "LAKE_AHEAD"
        assert lake_of("s")["tables"] == before["tables"], "readers never see less"
        insert(5)
        outcome = command("run", "s", "--allow-resync")
        assert outcome["targets"][0]["error"] is None
        assert outcome["lsn"] <= before["lsn"], "the number was used before"
        assert_shows(source.mirror_folder(), "s")
        assert lake_of("s")["tables"][0]["rows"] == 5


@pytest.mark.recordings
def test_a_table_in_quarantine_keeps_its_version_and_returns(recordings: Path, home: Path) -> None:
    with isolated(recordings, "many_tables", home) as replica:
        command("target", "add", NAME, "lake", "--to", (home / "lake").as_uri())
        replica.run()
        table = changed_tables(replica, 2)[0]
        replica.emulator.inject(*(MissingObject(name) for name in new_objects(replica, table, 2)))
        assert replica.run()["quarantined"] == [table]
        shown = {one["table"]: one for one in lake_of(NAME)["tables"]}
        assert (shown[table]["behind"], shown[table]["lsn"]) == (True, 0)
        points = {point["lsn"]: point["lakes"]["lake"] for point in command("points", NAME, "--lake")}
        assert points[0][table]["version"] == 0
        assert points[1][table]["version"] is None, "it does not show this point"
        replica.emulator.clear_faults()
        assert replica.run()["quarantined"] == []
        assert_shows(replica.mirror, NAME)


def test_several_databases_are_one_lake(home: Path) -> None:
    storage = Storage()
    for database in ("crm", "shop"):
        storage.create_database(database)
        storage.create_table(database, "item", {"id": "int not null"}, primary_key=["id"])
        with storage.begin() as transaction:
            transaction.insert(database, "item", {"id": [1, 2, len(database)]})
    storage.create_publication("p", "*")
    with SimulatedUpstream(storage) as emulator:
        command("subscribe", "s", "--from", source_uri(emulator.port), "--database", "crm,shop")
        command("target", "add", "s", "lake", "--to", (home / "lake").as_uri())
        command("target", "add", "s", "one", "--to", (home / "one").as_uri(), "--database", "crm")
        command("run", "s")
        found = {
            lake["lake"]: {table["table"] for table in lake["tables"]} for lake in command("target", "status", "s")
        }
        assert found == {"lake": {"crm.item", "shop.item"}, "one": {"crm.item"}}
        for database in ("crm", "shop"):
            assert READERS["delta-rs"](str(home / "lake" / f"{database}.item"), 0).num_rows == 3


def test_the_service_publishes_each_point(home: Path, upstream: Upstream) -> None:
    upstream.subscribe("one", "d")
    command("target", "add", "one", "lake", "--to", (home / "lake").as_uri())
    upstream.insert("d", 1, 2)
    with running():
        until(lambda: rows_in_lake("one") == 2, "the first point is in the lake")
        upstream.insert("d", 3)
        until(lambda: rows_in_lake("one") == 3, "the second point is in the lake")
    assert_shows(home / "home" / "mirrors" / "one", "one")


def rows_in_lake(name: str) -> int:
    return sum(table["rows"] for table in lake_of(name)["tables"])


@pytest.mark.recordings
def test_a_lake_whose_place_is_gone_is_published_again_from_the_newest_point(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        command("target", "add", NAME, "lake", "--to", (home / "lake").as_uri())
        replica.run(), replica.run()
        shutil.rmtree(home / "lake")
        replica.run()
        assert_shows(replica.mirror, NAME)
