"""The faults of the kill matrix. Each is a function that tries the scene's next iteration with the fault striking when
a step begins, heals what it broke, and returns what the attempt came to: `killed`, `done`, or an error's code.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from unittest.mock import patch

from replication.errors import StoreFailed
from replication.iteration.steps import Step
from replication.mirror.local_store import LocalStore
from replication.state.context import Context
from tests.kill_matrix.scene import Scene, iterate
from wire.faults import CutObject, CutObjectList, CutStatement, DamagedByte, Fault

DAY = 86_400.0
SECONDS = 120

# An iteration in a process of its own, in which something happens when a step begins.
DRIVER = """
import os, resource, signal, sys
from contextlib import closing
from matrixone.errors import CcprError
from replication.iteration.steps import Step
from replication.service.workspace import Workspace
from tests.kill_matrix.scene import iterate

def on_step(step):
    if step == Step[sys.argv[1]]:
        {deed}

try:
    with closing(Workspace()) as workspace:
        iterate(workspace, on_step)
except CcprError as error:
    print(error.code)
else:
    print("done")
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
NO_FILE_MAY_GROW = (
    "resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))"  # what a full disk does: a write fails
)


def killed(scene: Scene, step: Step) -> str:
    """kill -9."""
    return _in_process_of_its_own(step, KILL)


def store_full(scene: Scene, step: Step) -> str:
    """No file can grow any more, the catalog database's neither where it is SQLite."""
    return _in_process_of_its_own(step, NO_FILE_MAY_GROW)


def store_read_only(scene: Scene, step: Step) -> str:
    """The mirror's store takes nothing any more."""

    def refuse(store: LocalStore, name: str, *rest: object, **options: object) -> None:
        raise StoreFailed(f"cannot write: {os.strerror(errno.EROFS)}", subject=f"{store.url}/{name}")

    begun = _Begun(step)
    methods = [name for name in ("put", "replace", "put_many") if hasattr(LocalStore, name)]
    patches = [patch.object(LocalStore, name, _when(begun, refuse, getattr(LocalStore, name))) for name in methods]
    for each in patches:
        each.start()
    try:
        return scene.attempt(begun)
    finally:
        for each in patches:
            each.stop()


def connection_cut(scene: Scene, step: Step) -> str:
    """Every connection breaks when the step begins, and the answer to its own statement breaks off in the middle."""
    in_the_middle: dict[Step, Fault] = {
        Step.CATALOG: CutStatement("create_snapshot", after_effect=True),
        Step.OBJECT_LIST: CutObjectList(after_rows=1),
        Step.COPY: CutObject(after_bytes=700),
        Step.RELEASE: CutStatement("drop_snapshot", after_effect=True),
    }

    def cut() -> None:
        scene.emulator.disconnect_all()
        if step in in_the_middle:
            scene.emulator.inject(in_the_middle[step])

    try:
        return _struck(scene, step, cut)
    finally:
        scene.emulator.clear_faults()


def upstream_restarted(scene: Scene, step: Step) -> str:
    """The upstream goes away when the step begins, and is back for the next run; what it had stored is there."""
    came_to = _struck(scene, step, scene.emulator.stop)
    scene.emulator.restart()
    return came_to


def database_restarted(scene: Scene, step: Step) -> str:
    """The server with the catalog database is killed when the step begins, and started again at once."""
    assert scene.database is not None
    return _struck(scene, step, scene.database.restart)


def clock_forward(scene: Scene, step: Step) -> str:
    """Our clock jumps by a day: every lease looks over."""
    return _with_jump(scene, step, DAY)


def clock_back(scene: Scene, step: Step) -> str:
    """Our clock jumps back by a day: what we wrote lies in the future."""
    return _with_jump(scene, step, -DAY)


def second_executor(scene: Scene, step: Step) -> str:
    """Another executor, for which our lease is over, takes the subscription when the step begins, and ends its
    iteration."""

    def take_over() -> None:
        with scene.workspace(lambda: time.time() + DAY) as other:
            iterate(other, _nothing)

    return _struck(scene, step, take_over)


def object_corrupted(scene: Scene, step: Step) -> str:
    """From the step on, a byte of every object arrives flipped."""
    try:
        return _struck(scene, step, lambda: scene.emulator.inject(DamagedByte(offset=70)))
    finally:
        scene.emulator.clear_faults()


def open_snapshot_gone(scene: Scene, step: Step) -> str:
    """The snapshot of the open iteration vanishes upstream."""

    def drop() -> None:
        if opened := Context.from_text(scene.row().context).open:
            scene.emulator.drop_snapshot(opened.name)

    return _struck(scene, step, drop)


def base_snapshot_gone(scene: Scene, step: Step) -> str:
    """The snapshot of the last point vanishes upstream; the subscription's policy allows to compare with a full list."""

    def drop() -> None:
        if current := Context.from_text(scene.row().context).current:
            scene.emulator.drop_snapshot(current.name)

    return _struck(scene, step, drop)


Strike = Callable[[Scene, Step], str]
STRIKES: tuple[Strike, ...] = (
    killed,
    connection_cut,
    upstream_restarted,
    store_full,
    store_read_only,
    database_restarted,
    clock_forward,
    clock_back,
    second_executor,
    object_corrupted,
    open_snapshot_gone,
    base_snapshot_gone,
)


class _Begun:
    """An `on_step` that remembers whether a step has begun, and does something when it does for the first time."""

    def __init__(self, step: Step, deed: Callable[[], object] = lambda: None) -> None:
        self._step, self._deed, self._begun = step, deed, False

    def __call__(self, step: Step) -> None:
        if step == self._step and not self._begun:
            self._begun = True
            self._deed()

    def __bool__(self) -> bool:
        return self._begun


def _struck(scene: Scene, step: Step, deed: Callable[[], object]) -> str:
    """The attempt with the deed done when the step begins; the cell fails if it never does."""
    begun = _Begun(step, deed)
    came_to = scene.attempt(begun)
    assert begun, f"step {step.label} never began"
    return came_to


def _when(begun: _Begun, refuse: Callable, original: Callable) -> Callable:
    def method(*args: object, **options: object) -> object:
        return (refuse if begun else original)(*args, **options)

    return method


def _with_jump(scene: Scene, step: Step, seconds: float) -> str:
    begun = _Begun(step)
    return scene.attempt(begun, clock=lambda: time.time() + (seconds if begun else 0.0))


def _in_process_of_its_own(step: Step, deed: str) -> str:
    words = [sys.executable, "-c", DRIVER.format(deed=deed), step.name]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ended.returncode == -signal.SIGKILL:
        return "killed"
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()[-1]  # before it stand log lines


def _nothing(step: Step) -> None:
    """Of another executor nothing is asked."""
