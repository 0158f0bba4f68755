"""A catalog database or a mirror that was restored from an older copy, moved, lost, or belongs to another: nothing is
written, the error says what to do, and that leads back to a replica that equals the source (docs/how-to/recover.md)."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ccpr.service.workspace import Workspace
from tests.support.replica import NAME, Replica


def refused(replica: Replica, *words: str) -> Any:
    return replica.command(*words, code=1)["error"]


def copied(path: Path) -> Path:
    copy = path.with_name(f"{path.name}.copy")
    shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    return copy


def restore(copy: Path, path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    copy.rename(path)


def catalog(replica: Replica) -> Path:
    with closing(Workspace()) as workspace:  # so that the file is complete
        workspace.log.rows()
    return replica.folder / "home" / "catalog.db"


def test_a_catalog_database_that_is_older_than_its_mirror_is_refused_and_can_adopt_its_points(replica: Replica) -> None:
    copy = copied(catalog(replica))
    for _ in range(2):
        replica.run()
    restore(copy, catalog(replica))
    for words in (("run", NAME), ("tables", NAME), ("verify", NAME)):
        error = refused(replica, *words)
        assert error["code"] == "MIRROR_AHEAD"
        assert "ccpr state adopt" in error["remedy"]
    adopted = replica.command("state", "adopt", NAME)
    assert (adopted["points"], adopted["newest_point"], adopted["newest_before"]) == (3, 2, 0)
    assert replica.command("verify", NAME, "--deep")["damages"] == []
    replica.run()
    for snapshot in (1, 2, 3, 4):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)
    assert replica.command("verify", NAME)["damages"] == []


def test_a_mirror_that_is_older_than_its_catalog_database_is_refused_and_goes_on_from_its_newest_point(
    replica: Replica,
) -> None:
    copy = copied(replica.mirror)
    for _ in range(2):
        replica.run()
    restore(copy, replica.mirror)
    error = refused(replica, "run", NAME)
    assert (error["code"], "ccpr state adopt" in error["remedy"]) == ("MIRROR_BEHIND", True)
    replica.command("state", "adopt", NAME)
    outcome = replica.run("--allow-resync")
    assert outcome["lsn"] == 3, "numbers are not used twice"
    replica.assert_equal_to_source(1, at=0)
    replica.assert_equal_to_source(4, at=3)
    assert replica.command("verify", NAME)["damages"] == []


def test_two_histories_do_not_mix(replica: Replica) -> None:
    """The database goes back, a new history is begun with a mirror that went back, too; then the old mirror returns."""
    old_database, old_mirror = copied(catalog(replica)), copied(replica.mirror)
    replica.run()
    lost = replica.mirror.rename(replica.folder / "lost")
    restore(old_database, catalog(replica))
    old_mirror.rename(replica.mirror)
    replica.run("--allow-resync")
    replica.run()
    shutil.rmtree(replica.mirror)
    lost.rename(replica.mirror)
    assert refused(replica, "run", NAME)["code"] in ("MIRROR_AHEAD", "MIRROR_BEHIND")
    assert refused(replica, "tables", NAME)["code"] in ("MIRROR_AHEAD", "MIRROR_BEHIND")


def test_a_mirror_that_is_not_mounted_is_missing_also_for_an_idle_run(replica: Replica, tmp_path: Path) -> None:
    away = replica.mirror.rename(tmp_path / "away")
    for words in (("run", NAME), ("tables", NAME), ("verify", NAME)):
        error = refused(replica, *words)
        assert error["code"] == "MIRROR_MISSING"
        assert str(replica.mirror) in error["message"], "where it was"
    assert not replica.mirror.exists(), "nothing was made in its place"
    assert replica.command("subscriptions")[0]["state"] == "failing", "it is tried again until it is there"
    away.rename(replica.mirror)
    replica.run()
    replica.assert_equal_to_source(2)


def test_a_mirror_that_was_moved_is_found_when_its_place_is_named(replica: Replica, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert refused(replica, "alter", NAME, "--mirror", str(elsewhere))["code"] == "MIRROR_MISSING"
    replica.mirror.rename(elsewhere)
    replica.command("alter", NAME, "--mirror", str(elsewhere))
    replica.run()
    replica.assert_equal_to_source(2)
    assert not replica.mirror.exists()


def test_another_state_folder_cannot_write_to_a_mirror(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in replica.mirror.rglob("*") if path.is_file()}
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "other"))
    replica.subscribe("--mirror", str(tmp_path / "empty"))
    (tmp_path / "empty").symlink_to(replica.mirror)  # as a mount to the wrong place
    assert refused(replica, "run", NAME)["code"] == "MIRROR_FOREIGN"
    assert refused(replica, "state", "adopt", NAME)["code"] == "MIRROR_FOREIGN"
    assert {path: path.read_bytes() for path in replica.mirror.rglob("*") if path.is_file()} == before


def test_a_former_catalog_database_cannot_go_on_with_a_mirror_that_was_taken_over(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, home = tmp_path / "state.json", replica.folder / "home"
    replica.command("state", "export", NAME, "--out", str(file))
    new = tmp_path / "new"
    (new / "mirrors").mkdir(parents=True)
    shutil.copy(home / "key", new / "key")
    (new / "mirrors" / NAME).symlink_to(replica.mirror)  # one mirror on a shared disk
    monkeypatch.setenv("CCPR_HOME", str(new))
    replica.command("state", "import", str(file))
    monkeypatch.setenv("CCPR_HOME", str(home))
    assert refused(replica, "run", NAME)["code"] == "MIRROR_FOREIGN"
    monkeypatch.setenv("CCPR_HOME", str(new))
    replica.run("--allow-resync")
    assert replica.command("verify", NAME)["damages"] == []


def test_an_export_that_is_older_than_the_mirror_gives_login_and_settings(replica: Replica, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    replica.command("state", "export", NAME, "--out", str(file))
    for _ in range(2):
        replica.run()
    for path in catalog(replica).parent.glob("catalog.db*"):
        path.unlink()
    assert refused(replica, "state", "import", str(file))["code"] == "MIRROR_CONTRADICTS_STATE"
    replica.command("state", "import", str(file), "--adopt")
    assert [point["lsn"] for point in replica.command("points", NAME)] == [0, 1, 2]
    replica.run()
    for snapshot in (1, 2, 3, 4):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)


def test_names_of_snapshots_do_not_repeat(replica: Replica) -> None:
    copy, mirror = copied(catalog(replica)), copied(replica.mirror)
    replica.run()
    lost = names(replica)
    restore(copy, catalog(replica))
    restore(mirror, replica.mirror)
    replica.run("--allow-resync")
    assert len(lost & names(replica)) == 1, "that of the point which both have"


def names(replica: Replica) -> set[str]:
    return {json.loads(path.read_text())["snapshot"] for path in (replica.mirror / "points").iterdir()}
