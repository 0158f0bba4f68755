"""The faults of the kill matrix. Each is a function that tries the scene's next iteration with the fault striking when
a place is reached, repairs what it broke, and returns the attempt's outcome: `killed`, `done`, or an error's code. A
fault that finds nothing to strike at a place returns NOTHING_TO_STRIKE.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.local_store import LocalStore
from ccpr.pipeline.step_names import Step
from ccpr.state.context import Context
from ccpr_emulator.serving.faults import CutObject, CutObjectList, CutStatement, DamagedByte, Fault
from tests.kill_matrix.places import AT, BETWEEN_OBJECTS, Place, Reach
from tests.kill_matrix.scene import CHUNK_BYTES, LAST_HOUR, NEWEST, Scene, invoke, iterate
from tests.support.patching import replaced
from tests.support.shop import NAME, TARGET

DAY = 86_400.0
SECONDS = 1200  # of a machine that others use, too
NOTHING_TO_STRIKE = "–"
# Methods of a store that change it. The others only read; `put` is `begin`, and `sync` writes nothing by itself.
STORE_WRITES = ("begin", "put_together", "replace", "delete", "delete_folder", "sweep")

# An iteration in its own process, in which something happens when a place is reached.
DRIVER = """
import os, resource, signal, sys
from contextlib import closing
from unittest.mock import patch
from ccpr.matrixone.errors import CcprError
from ccpr.service.workspace import Workspace
from ccpr.state import database
from tests.kill_matrix.places import BY_KEY, Reach
from tests.kill_matrix.scene import iterate

def act():
    {action}

reach = Reach(act)
try:
    with (
        patch.object(database, "RETRY_SECONDS", 1.0),
        closing(Workspace()) as workspace,
        BY_KEY[sys.argv[1]].watched(reach) as progress,
    ):
        outcome = iterate(workspace, progress)
except CcprError as error:
    outcome = error.code
print(bool(reach), outcome)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
# What a full disk does: a write fails.
NO_FILE_MAY_GROW = "resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))"


def killed(scene: Scene, place: Place) -> str:
    """kill -9."""
    outcome = _in_own_process(place, KILL)
    assert outcome == "killed"
    if place is BETWEEN_OBJECTS:
        scene.arrived = scene.objects()
    return outcome


def store_full(scene: Scene, place: Place) -> str:
    """No file can grow any more: not in the mirror, nor the catalog database's where it is SQLite."""
    return _in_own_process(place, NO_FILE_MAY_GROW)


def store_read_only(scene: Scene, place: Place) -> str:
    """The mirror's store refuses every change."""
    files: dict[Path, tuple[int, int]] = {}
    reach = Reach(lambda: files.update(_files_of(scene.mirror)))

    def refusing(original: Callable) -> Callable:
        def method(store: LocalStore, *arguments: object, **options: object) -> object:
            if reach:
                raise StoreFailed(f"cannot write: {os.strerror(errno.EROFS)}", subject=store.url)
            return original(store, *arguments, **options)

        return method

    with ExitStack() as patches:
        for name in STORE_WRITES:
            patches.enter_context(replaced("ccpr.mirror.local_store", f"LocalStore.{name}", refusing))
        outcome = scene.attempt(place, reach)
    if place in AT.values():  # elsewhere threads are writing
        assert _files_of(scene.mirror) == files, "something was written by another way"
    return outcome


def connection_cut(scene: Scene, place: Place) -> str:
    """The answer to the step's own statement breaks off in the middle. Elsewhere all connections with the upstream
    break."""
    in_the_middle: dict[Place, Fault] = {
        AT[Step.CATALOG]: CutStatement("create_snapshot", after_effect=True),
        AT[Step.OBJECT_LIST]: CutObjectList(after_rows=1),
        AT[Step.COPY]: CutObject(after_bytes=700),
        AT[Step.RELEASE]: CutStatement("drop_snapshot", after_effect=True),
    }

    def cut() -> None:
        if place in in_the_middle:
            scene.upstream.inject(in_the_middle[place])
        else:
            scene.upstream.disconnect_all()

    outcome = scene.attempt(place, Reach(cut))
    unspent = scene.upstream._upstream.faults.strike(lambda fault: True)
    assert unspent == [], "the statement was never asked"
    return outcome


def upstream_restarted(scene: Scene, place: Place) -> str:
    """The upstream stops when the place is reached, and is back for the next run with all that it had stored."""
    outcome = scene.attempt(place, Reach(scene.upstream.stop))
    scene.upstream.restart()
    return outcome


def database_restarted(scene: Scene, place: Place) -> str:
    """The server with the catalog database and the target is killed when the place is reached, and started again at
    once."""
    assert scene.catalog is not None
    return scene.attempt(place, Reach(scene.catalog.restart))


def target_gone(scene: Scene, place: Place) -> str:
    """The target's server is killed when the place is reached, and is back for the next run."""
    server = scene.shop.place.server
    try:
        return scene.attempt(place, Reach(server.kill))
    finally:
        server.start()


def target_restarted(scene: Scene, place: Place) -> str:
    """The target's server is killed when the place is reached, and started again at once."""
    return scene.attempt(place, Reach(scene.shop.place.server.restart))


def clock_forward(scene: Scene, place: Place) -> str:
    """Our clock jumps ahead by a day: every lease looks expired."""
    return _with_jump(scene, place, DAY)


def clock_back(scene: Scene, place: Place) -> str:
    """Our clock jumps back by a day: the times that we wrote are in the future."""
    return _with_jump(scene, place, -DAY)


def second_executor(scene: Scene, place: Place) -> str:
    """When the place is reached, another executor, for which our lease has expired, takes over the subscription and
    finishes its iteration."""

    def take_over() -> None:
        with scene.workspace(lambda: time.time() + DAY) as other:
            iterate(other)

    return scene.attempt(place, Reach(take_over))


def object_corrupted(scene: Scene, place: Place) -> str:
    """From the place on, a byte of an object arrives flipped; the object and the byte are random."""
    fault = _detectable_damage(scene)
    try:
        return scene.attempt(place, Reach(lambda: scene.upstream.inject(fault)))
    finally:
        scene.upstream.clear_faults()


def mirror_corrupted(scene: Scene, place: Place) -> str:
    """When the place is reached, a random byte of a random object in the mirror is flipped. `ccpr verify
    --repair` leads out."""

    def flip() -> None:
        path = scene.mirror / "objects" / scene.rng.choice(sorted(scene.before))
        content = bytearray(path.read_bytes())
        content[scene.rng.randrange(len(content))] ^= 1 << scene.rng.randrange(8)
        path.unlink()  # what is mapped stays as it is
        path.write_bytes(content)

    outcome = scene.attempt(place, Reach(flip))
    _led_out("verify", NAME, "--repair")
    return outcome


def open_snapshot_gone(scene: Scene, place: Place) -> str:
    """The snapshot of the open iteration vanishes upstream. There is none before it is taken, nor after the commit."""
    dropped = []

    def drop() -> None:
        if opened := Context.from_text(scene.row().context).open:
            scene.storage.drop_snapshot(opened.name)
            dropped.append(opened.name)

    outcome = scene.attempt(place, Reach(drop))
    return outcome if dropped else NOTHING_TO_STRIKE


def base_snapshot_gone(scene: Scene, place: Place) -> str:
    """The snapshot of the last point vanishes upstream; the subscription's policy allows a comparison with a full
    list."""

    def drop() -> None:
        current = Context.from_text(scene.row().context).current
        assert current is not None
        scene.storage.drop_snapshot(current.name)

    return scene.attempt(place, Reach(drop))


# ---- restored states: a copy that was made at the place comes back after the iteration


def database_older(scene: Scene, place: Place) -> str:
    """The catalog database is restored."""
    copies: list[Path | None] = []
    _done(scene, place, lambda: copies.append(scene.copy_database()))
    scene.restore_database(copies[0])
    return _restored(scene)


def mirror_older(scene: Scene, place: Place) -> str:
    """The mirror is restored."""
    copies: list[Path | None] = []
    _done(scene, place, lambda: copies.append(scene.copy_mirror()))
    scene.restore_mirror(copies[0])
    return _restored(scene)


def both_and_database_oldest(scene: Scene, place: Place) -> str:
    """Both are restored; the database from a copy of the first point."""
    copies: list[Path | None] = []
    _done(scene, place, lambda: copies.append(scene.copy_mirror()))
    scene.restore_mirror(copies[0])
    scene.restore_database(scene.first_database)
    return _restored(scene)


def both_and_mirror_oldest(scene: Scene, place: Place) -> str:
    """Both are restored; the mirror from a copy of the first point."""
    copies: list[Path | None] = []
    _done(scene, place, lambda: copies.append(scene.copy_database()))
    scene.restore_database(copies[0])
    scene.restore_mirror(scene.first_mirror)
    return _restored(scene)


def key_lost(scene: Scene, place: Place) -> str:
    """The key file is deleted when the place is reached. The logins have to be given again."""
    scene.attempt(place, Reach((scene.home / "key").unlink))
    return _restored(scene)


Strike = Callable[[Scene, Place], str]


@dataclass(frozen=True)
class Row:
    """A row of the matrix.

    Attributes
    ----------
    retain : which points the subscription keeps: an option of `ccpr alter` and its value; none = all.
    catalog : whether the catalog database is a MariaDB.
    """

    strike: Strike
    retain: tuple[str, ...] = ()
    catalog: bool = False

    @property
    def label(self) -> str:
        kept = " ".join(self.retain).removeprefix("--")
        return self.strike.__name__.replace("_", " ") + (f", {kept}" if kept else "")


ROWS: tuple[Row, ...] = (
    Row(killed),
    Row(connection_cut),
    Row(upstream_restarted),
    Row(store_full),
    Row(store_read_only),
    Row(database_restarted, catalog=True),
    Row(target_restarted),
    Row(target_gone),
    Row(clock_forward),
    Row(clock_back),
    Row(second_executor),
    Row(object_corrupted),
    Row(mirror_corrupted),
    Row(open_snapshot_gone),
    Row(base_snapshot_gone),
    Row(killed, retain=NEWEST),
    Row(store_full, retain=NEWEST),
    Row(clock_forward, retain=NEWEST),
    Row(clock_back, retain=NEWEST),
    Row(second_executor, retain=NEWEST),
    Row(clock_forward, retain=LAST_HOUR),
    Row(clock_back, retain=LAST_HOUR),
    Row(database_older),
    Row(mirror_older),
    Row(both_and_database_oldest),
    Row(both_and_mirror_oldest),
    Row(key_lost),
)


def _files_of(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of change of each file."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def _with_jump(scene: Scene, place: Place, seconds: float) -> str:
    reach = Reach()
    return scene.attempt(place, reach, clock=lambda: time.time() + (seconds if reach else 0.0))


def _in_own_process(place: Place, action: str) -> str:
    words = [sys.executable, "-c", DRIVER.format(action=action), place.key]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ended.returncode == -signal.SIGKILL:
        return "killed"
    assert ended.returncode == 0, ended.stderr
    *_, reached, outcome = ended.stdout.split()  # log lines come before them
    assert reached == "True", f"{place.label} was never reached: {outcome}"
    return outcome


def _detectable_damage(scene: Scene) -> DamagedByte:
    """A random byte of a random object that is to come, such that the format or the list contradicts the flipped one.
    The format has no checksum, so there are others (docs/reliability.md)."""
    coming = sorted(scene.objects_to_come().items())
    while True:
        name, stats = scene.rng.choice(coming)
        content = bytearray(scene.storage.files.read(name) or b"")
        offset = scene.rng.randrange(min(len(content), CHUNK_BYTES))
        for first in range(offset, len(content), CHUNK_BYTES):
            content[first] ^= 0xFF
        try:
            ObjectFile(pa.py_buffer(bytes(content)), subject=name).check(ObjectStats.parse(stats), inflate=True)
        except (ObjectDamaged, ObjectMismatch):
            return DamagedByte(offset, object_name=name)
        except ObjectUnsupported:  # it might be of a later release: copied as it is
            continue


def _done(scene: Scene, place: Place, action: Callable[[], object]) -> None:
    assert scene.attempt(place, Reach(action)) == "done"


def _restored(scene: Scene) -> str:
    """`ccpr run` until it ends without an error, each error led out of as it says; the errors' codes."""
    codes: list[str] = []
    while (code := scene.run()) is not None:
        assert code not in codes[-1:], f"{code} again: what it says does not lead out"
        codes.append(code)
        LEADS_OUT[code](scene)
    return ", ".join(codes) or "done"


def _led_out(*words: str) -> None:
    exit_code, document = invoke(*words)
    assert exit_code == 0, document


def _adopt(scene: Scene) -> None:
    _led_out("state", "adopt", NAME)


def _give_logins(scene: Scene) -> None:
    _led_out("alter", NAME, "--from", scene.shop.source)
    _led_out("target", "alter", NAME, TARGET, "--to", scene.shop.to)


# What the errors of a restored state say that leads out of them (docs/how-to/recover.md).
LEADS_OUT: dict[str, Callable[[Scene], None]] = {
    "MIRROR_AHEAD": _adopt,
    "MIRROR_BEHIND": _adopt,
    "MIRROR_FOREIGN": _adopt,
    "STATE_UNREADABLE": _give_logins,
    "TARGET_AHEAD": Scene.replace_target,
}
