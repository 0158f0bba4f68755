"""A resync restores what is lost on either side. It is done on request only, and its cost is shown first."""

from pathlib import Path

import pytest

from ccpr.cli.interrupts import NOT_CONFIRMED
from tests.support.replica import NAME, Replica, replaying
from tests.support.settings import setting

TABLE = "gd_dml.acc"


@pytest.fixture
def replica(recordings: Path, home: Path):
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        for _ in range(3):
            replica.run()
        yield replica


def objects(replica: Replica) -> list[Path]:
    """The objects that the newest point needs."""
    from ccpr.service.workspace import Workspace

    mirror = Workspace().mirror(NAME)
    (ref,) = mirror.point().tables.values()
    return [replica.mirror / "objects" / listed.stats.name for listed in mirror.manifest(ref).listed_objects()]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


def test_a_resync_shows_what_is_missing_and_fetches_it_once_confirmed(replica: Replica) -> None:
    for path in objects(replica)[:2]:
        path.unlink()
    asked = replica.command("resync", NAME, code=NOT_CONFIRMED)
    assert asked["outcome"] is None
    assert asked["plan"]["objects"] >= 2
    done = replica.command("resync", NAME, "--yes")
    assert done["plan"]["id"] == asked["plan"]["id"]
    assert done["outcome"]["objects_copied"] == done["plan"]["objects"]
    replica.assert_equal_to_source(4)
    assert replica.command("verify", NAME)["damages"] == []
    replica.run()
    replica.assert_equal_to_source(5)


@pytest.mark.parametrize("harm", [flip, Path.unlink])
def test_a_resync_of_a_table_checks_its_files_and_fetches_damaged_ones(harm, replica: Replica) -> None:
    harm(objects(replica)[0])
    done = replica.command("resync", NAME, "--table", TABLE, "--yes")
    assert done["outcome"]["point"]
    assert replica.command("verify", NAME, "--deep")["sound"]
    for snapshot in range(1, 5):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)


def test_a_resync_that_is_not_confirmed_leaves_nothing_over(replica: Replica) -> None:
    objects(replica)[0].unlink()
    taken = replica.emulator.status().statements["create_snapshot"]
    replica.command("resync", NAME, "--table", TABLE, code=NOT_CONFIRMED)
    assert list(replica.mirror.glob("work/*/*")) == []
    replica.run()
    created = replica.emulator.status().statements["create_snapshot"]
    assert created == taken + 1, "the run goes on with the same snapshot"
    damages = replica.command("verify", NAME, code=1)["damages"]
    assert damages, "and fetches nothing that it was not asked for"
    replica.command("verify", NAME, "--repair")
    replica.assert_equal_to_source(4)


def test_a_lost_manifest_is_reported_with_its_table_and_rebuilt(replica: Replica) -> None:
    for manifest in (replica.mirror / "manifests").rglob("*.arrow"):
        manifest.unlink()
    error = replica.run(code=1)["error"]
    assert error["code"] == "MIRROR_DAMAGED"
    assert TABLE in error["subject"]
    assert "resync" in error["remedy"]
    replica.command("resync", NAME, "--table", TABLE, "--yes")
    replica.assert_equal_to_source(5)
    replica.run()
    replica.assert_equal_to_source(6)


def test_a_lost_object_is_reported_with_its_table(replica: Replica) -> None:
    objects(replica)[0].unlink()
    out = str(replica.folder / "x.parquet")
    error = replica.command("export", NAME, TABLE, "--out", out, code=1)["error"]
    assert error["code"] == "MIRROR_DAMAGED"
    assert TABLE in error["subject"]
    replica.command("resync", NAME, "--table", TABLE, "--yes")
    replica.assert_equal_to_source(4)


def test_an_unknown_table_is_refused_and_nothing_else_happens(replica: Replica) -> None:
    error = replica.command("resync", NAME, "--table", "gd_dml.nothing", "--yes", code=1)["error"]
    assert error["code"] == "TABLE_NOT_IN_POINT"
    assert replica.command("subscriptions")[0]["state"] == "idle"
    replica.run()
    replica.assert_equal_to_source(4)


@pytest.mark.parametrize(("limit", "goes_on"), [(0, False), (1000, False), (10**9, True)])
def test_a_lost_base_snapshot_is_resynced_without_asking_up_to_the_limit(
    limit: int, goes_on: bool, replica: Replica
) -> None:
    setting("resync_limit", limit)
    for name in list(replica.emulator.status().snapshots):
        replica.emulator.drop_snapshot(name)
    outcome = replica.run(code=0 if goes_on else 1)
    if not goes_on:
        assert outcome["error"]["code"] == "BASE_SNAPSHOT_LOST"
        replica.assert_equal_to_source(3)
        replica.run("--allow-resync")
    replica.assert_equal_to_source(4 if goes_on else 5)
