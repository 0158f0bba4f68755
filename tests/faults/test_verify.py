"""`ccpr verify` and `ccpr snapshots`: damage is found, repaired while the upstream has the object, else reported with
the points that it affects."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from ccpr_emulator.serving.faults import FailStatement, MissingObject
from tests.support.replica import Replica, replaying


@pytest.fixture
def replica(recordings: Path, home: Path):
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        for _ in range(3):
            replica.run()
        yield replica


def an_object(replica: Replica) -> Path:
    return max((replica.mirror / "objects").iterdir(), key=lambda path: path.stat().st_size)


def test_a_mirror_without_damage_is_sound(replica: Replica) -> None:
    for options in ([], ["--deep"]):
        found = replica.command("verify", "replica", *options)
        assert found["sound"]
        assert found["damages"] == []
        assert found["objects"] == len(list((replica.mirror / "objects").iterdir())) > 3
        assert found["manifests"] == 3


@pytest.mark.parametrize("harm", ["flipped", "shorter", "missing"])
def test_a_damaged_object_is_fetched_again(harm: str, replica: Replica) -> None:
    path = an_object(replica)
    content = bytearray(path.read_bytes())
    path.unlink()
    if harm == "flipped":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif harm == "shorter":
        path.write_bytes(content[:-1])
    found = replica.command("verify", "replica", "--repair")
    assert found["sound"]
    assert [damage["repaired"] for damage in found["damages"]] == [True]
    assert replica.command("verify", "replica", "--deep")["damages"] == []
    replica.assert_equal_to_source(3)


@pytest.mark.parametrize("pattern", ["head.json", "mirror.json", "points/*002-*", "points/*001-*", "points/*000-*"])
@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_a_damaged_file_of_the_mirrors_own_is_written_again(pattern: str, harm: str, replica: Replica) -> None:
    (path,) = replica.mirror.glob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink() if harm == "missing" else path.write_bytes(content)
    if (pattern, harm) == ("mirror.json", "missing"):  # whose it is, nobody can tell
        assert replica.command("verify", "replica", code=1)["error"]["code"] == "MIRROR_FOREIGN"
        replica.command("state", "adopt", "replica")
    else:
        found = replica.command("verify", "replica", "--repair")
        assert found["sound"]
        repaired = [damage["repaired"] for damage in found["damages"]]
        assert repaired == ([] if (pattern, harm) == ("head.json", "missing") else [True])
    assert replica.command("verify", "replica", "--deep")["damages"] == []
    for snapshot in (1, 2, 3):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)
    replica.run()
    replica.assert_equal_to_source(4)


def test_without_repair_nothing_is_written_whatever_is_damaged(replica: Replica) -> None:
    (point,) = replica.mirror.glob("points/*002-*")
    content = bytearray(point.read_bytes())
    content[len(content) // 2] ^= 1
    point.write_bytes(content)
    missing = an_object(replica)
    missing.unlink()
    (replica.mirror / "objects" / "left-by-nobody").write_bytes(b"x")
    before = everything(replica)
    found = replica.command("verify", "replica", code=1)
    damages = {damage["path"]: damage for damage in found["damages"]}
    assert set(damages) == {f"points/{point.name}", f"objects/{missing.name}"}
    assert not any(damage["repaired"] for damage in damages.values())
    assert set(damages[f"points/{point.name}"]["points"]) == {"0", "1", "2"}, "the newest leads to those before it"
    assert found["strays"] == 1
    assert everything(replica) == before
    shown = CliRunner().invoke(app, ["verify", "replica"])
    assert shown.exit_code == 1
    assert "ccpr verify replica --repair" in shown.output.replace("\n", " ")
    assert everything(replica) == before
    assert replica.command("verify", "replica", "--repair")["sound"]
    assert replica.command("verify", "replica")["damages"] == []
    replica.assert_equal_to_source(3)


def everything(replica: Replica) -> tuple[dict[str, bytes], list[str]]:
    """The files of the mirror, and all rows of the catalog database."""
    files = {str(path): path.read_bytes() for path in replica.mirror.rglob("*") if path.is_file()}
    with closing(sqlite3.connect(replica.folder / "home" / "catalog.db")) as catalog:
        return files, list(catalog.iterdump())


def test_an_object_that_the_upstream_no_longer_has_is_reported_with_the_points_it_damages(replica: Replica) -> None:
    path = an_object(replica)
    path.unlink()
    replica.emulator.inject(MissingObject(path.name))
    found = replica.command("verify", "replica", "--repair", code=1)
    (damage,) = found["damages"]
    assert damage["path"] == f"objects/{path.name}"
    assert not damage["repaired"]
    assert set(damage["points"]) <= {"0", "1", "2"}
    assert all(tables == ["gd_dml.acc"] for tables in damage["points"].values())
    assert "0" in damage["points"], "the largest object is in every point from the first on"


def test_a_damaged_manifest_is_reported_with_its_point(replica: Replica) -> None:
    manifest = sorted((replica.mirror / "manifests").rglob("*.arrow"))[1]
    manifest.write_bytes(b"nothing")
    found = replica.command("verify", "replica", code=1)
    assert [list(damage["points"]) for damage in found["damages"]] == [["1"]]


def test_snapshots_left_over_upstream_are_shown_and_dropped_on_request(replica: Replica) -> None:
    text = "internal error: do not have privilege to execute the statement"
    replica.emulator.inject(FailStatement("drop_snapshot", text=text, times=1))
    replica.run()
    held = {entry["name"]: entry for entry in replica.command("snapshots", "replica")}
    orphans = [name for name, entry in held.items() if entry["role"] == "orphan"]
    assert sorted(entry["role"] for entry in held.values()) == ["current", "orphan", "previous"]
    assert all(entry["exists"] for entry in held.values())
    after = replica.command("snapshots", "replica", "--orphans")
    assert sorted(entry["role"] for entry in after) == ["current", "previous"]
    assert not set(orphans) & set(replica.emulator.status().snapshots)
    replica.run()
    replica.assert_equal_to_source(5)
