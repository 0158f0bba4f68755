"""Who may read what the program writes: its user alone, unless a mirror is shared (decision sealed-secrets)."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ccpr.service.workspace import Workspace
from tests.support.replica import NAME, Replica, replaying

NOBODY = 65534
OTHERS = 0o077
# Reads, as another user, every file whose name comes on standard input; prints those that could be read.
READER = """
import os, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
for name in sys.stdin.read().splitlines():
    try:
        open(name, "rb").close()
        print(name)
    except PermissionError:
        pass
"""


@pytest.fixture
def replica(recordings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    """With a umask that denies nothing, in a folder that everybody may enter, as pytest's own may not be."""
    with tempfile.TemporaryDirectory(prefix="ccpr-modes-") as name, umask(0):
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("CCPR_HOME", str(folder / "home"))
        monkeypatch.setenv("UPSTREAM_PASSWORD", "111")
        with replaying(recordings / "dml", folder) as replica:
            yield replica


@contextmanager
def umask(bits: int) -> Iterator[None]:
    former = os.umask(bits)
    try:
        yield
    finally:
        os.umask(former)


def open_to_others(folder: Path) -> list[str]:
    return sorted(path.name for path in [folder, *folder.rglob("*")] if path.stat().st_mode & OTHERS)


def read_by_nobody(folder: Path) -> set[str]:
    """Names of the files that another user could read, tried by one where we may become one."""
    if os.geteuid() != 0:
        return {path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o004}
    files = "\n".join(str(path) for path in folder.rglob("*") if path.is_file())
    command = [sys.executable, "-c", READER.format(user=NOBODY)]
    answer = subprocess.run(command, input=files, capture_output=True, text=True, timeout=60, check=True)
    return {Path(name).name for name in answer.stdout.splitlines()}


def modes_by_doctor(replica: Replica) -> dict[str, tuple[str, str]]:
    checks = replica.command("doctor", NAME)["checks"]
    return {check["what"]: (check["result"], check["remedy"]) for check in checks if "modes" in check["what"]}


def test_everything_in_the_state_folder_is_its_users_alone(replica: Replica) -> None:
    replica.subscribe()
    replica.run()
    state = replica.folder / "home"
    with Workspace() as workspace:
        assert workspace.executor.id
        assert workspace.log.row(NAME).subscription_name == NAME
        kinds = {path.relative_to(state).parts[0] for path in state.rglob("*")}
        assert kinds >= {"catalog.db", "catalog.db-wal", "catalog.db-shm", "key", "executors", "mirrors"}
        assert open_to_others(state) == []
    replica.run()
    assert open_to_others(state) == []
    assert read_by_nobody(state) == set()
    assert {result for result, _ in modes_by_doctor(replica).values()} == {"ok"}


def test_a_folder_that_others_may_enter_gets_private_files(replica: Replica) -> None:
    for folder in ("home", "place"):
        (replica.folder / folder).mkdir(0o755)
    replica.subscribe("--mirror", str(replica.folder / "place"))
    replica.run()
    assert open_to_others(replica.folder / "home") == ["home"]
    assert open_to_others(replica.folder / "place") == ["place"]
    assert {result for result, _ in modes_by_doctor(replica).values()} == {"ok"}


def test_a_shared_mirror_is_as_the_umask_says_and_the_state_is_private_all_the_same(replica: Replica) -> None:
    place = replica.folder / "place"
    replica.subscribe("--shared", "--mirror", str(place))
    with umask(0o022):
        replica.run()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))} == {0o755, 0o644}
    assert read_by_nobody(place) == {path.name for path in place.rglob("*") if path.is_file()}
    assert open_to_others(replica.folder / "home") == []
    assert {result for result, _ in modes_by_doctor(replica).values()} == {"ok"}


def test_the_doctor_says_what_others_can_read_and_changes_nothing(replica: Replica) -> None:
    """The state folder and the mirror as version 0.1.0 made them: by the umask alone."""
    state, place = replica.folder / "home", replica.folder / "place"
    replica.subscribe("--mirror", str(place))
    replica.run()
    for path in (state, state / "catalog.db", place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.stat().st_mode for path in place.rglob("*")}
    found = modes_by_doctor(replica)
    assert found["file modes"] == ("warning", f"chmod go= {state}/catalog.db*")
    result, remedy = found["mirror's modes"]
    assert result == "warning"
    assert f"chmod -R go= {place}" in remedy
    assert f"ccpr alter {NAME} --shared" in remedy
    assert {path: path.stat().st_mode for path in place.rglob("*")} == before
    replica.command("alter", NAME, "--shared")
    assert modes_by_doctor(replica)["mirror's modes"][0] == "ok"


def test_the_doctor_says_where_others_cannot_enter_a_shared_mirror(replica: Replica) -> None:
    replica.subscribe("--shared")
    replica.run()
    assert modes_by_doctor(replica)["mirror's modes"] == (
        "warning",
        f"chmod a+x {replica.folder / 'home'}; or `ccpr alter {NAME} --not-shared`.",
    )
    (replica.folder / "home").chmod(0o711)
    assert modes_by_doctor(replica)["mirror's modes"][0] == "ok"
    replica.command("alter", NAME, "--not-shared")
    replica.run()
    replica.command("alter", NAME, "--shared")
    result, remedy = modes_by_doctor(replica)["mirror's modes"]
    assert result == "warning"
    assert remedy == f"chmod -R a+rX {replica.mirror}"
