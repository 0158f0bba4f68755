"""Old points that a person drops: when a manifest of theirs is damaged, or space is needed."""

from pathlib import Path

import pytest

from ccpr.service.workspace import Workspace
from tests.support.replica import NAME, Replica


@pytest.fixture
def lsns(replica: Replica) -> list[int]:
    for _ in range(2):
        replica.run()
    return [point["lsn"] for point in replica.command("points", NAME)]


def test_points_with_a_damaged_manifest_are_given_up_and_the_newer_ones_stay(replica: Replica, lsns: list[int]) -> None:
    table = replica.command("tables", NAME, "--at", str(lsns[0]))["tables"][0]
    manifest = replica.mirror / table["manifest"]
    manifest.chmod(0o600)
    manifest.write_bytes(b"not what was written")
    words = ("query", NAME, table["table"], "--at", str(lsns[0]))
    error = replica.command(*words, code=1)["error"]
    assert error["code"] == "MIRROR_DAMAGED"
    assert "points drop NAME --before LSN" in error["remedy"]
    assert replica.command("points", "drop", NAME, "--before", str(lsns[1]), "--yes") == {"lsns": lsns[:1]}
    left = replica.command("points", NAME)
    assert [point["lsn"] for point in left] == lsns[1:]
    assert replica.command(*words, code=1)["error"]["code"] == "POINT_GONE"
    replica.assert_equal_to_source(3)


def test_nothing_is_dropped_without_a_yes_and_never_the_newest(replica: Replica, lsns: list[int]) -> None:
    assert replica.command("points", "drop", NAME, "--before", str(lsns[1]), code=4)["error"]["code"] == "NOT_CONFIRMED"
    error = replica.command("points", "drop", NAME, "--before", str(lsns[-1] + 1), "--yes", code=1)["error"]
    assert error["code"] == "POINTS_NEEDED"
    assert [point["lsn"] for point in replica.command("points", NAME)] == lsns
    replica.assert_equal_to_source(3)


def test_files_of_dropped_points_go_as_those_that_expire_do(replica: Replica, lsns: list[int]) -> None:
    def files() -> set[Path]:
        return {path for path in replica.mirror.rglob("*") if path.is_file()}

    before = files()
    replica.command("points", "drop", NAME, "--before", str(lsns[-1]), "--yes")
    assert before - files() == set(), "a reader may have them open"
    with Workspace() as workspace:
        assert workspace.mirror(NAME).point(lsns[-1]).lsn == lsns[-1]
