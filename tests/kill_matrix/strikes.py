"""The faults of the kill matrix. Each is a function that tries the scene's next iteration with the fault striking when
a step begins, repairs what it broke, and returns the attempt's outcome: `killed`, `done`, or an error's code. A fault
that finds nothing to strike at a step returns NOTHING_TO_STRIKE.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

from replication.errors import StoreFailed
from replication.iteration.steps import Step
from replication.mirror.local_store import LocalStore
from replication.state.context import Context
from tests.kill_matrix.scene import Scene, iterate
from wire.faults import CutObject, CutObjectList, CutStatement, DamagedByte, Fault

DAY = 86_400.0
SECONDS = 120
NOTHING_TO_STRIKE = "–"
# Methods of a store that change it. The others only read; `sync` writes nothing by itself.
STORE_WRITES = ("put", "put_together", "replace", "delete", "delete_folder", "sweep")

# An iteration in its own process, in which something happens when a step begins.
DRIVER = """
import os, resource, signal, sys
from contextlib import closing
from matrixone.errors import CcprError
from replication.iteration.steps import Step
from replication.service.workspace import Workspace
from tests.kill_matrix.scene import iterate

began = False

def on_step(step):
    global began
    if step == Step[sys.argv[1]]:
        began = True
        {action}

try:
    with closing(Workspace()) as workspace:
        iterate(workspace, on_step)
except CcprError as error:
    print(began, error.code)
else:
    print(began, "done")
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
# What a full disk does: a write fails.
NO_FILE_MAY_GROW = "resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))"


def killed(scene: Scene, step: Step) -> str:
    """kill -9."""
    return _in_own_process(step, KILL)


def store_full(scene: Scene, step: Step) -> str:
    """No file can grow any more: not in the mirror, nor the catalog database's where it is SQLite."""
    return _in_own_process(step, NO_FILE_MAY_GROW)


def store_read_only(scene: Scene, step: Step) -> str:
    """The mirror's store refuses every change."""

    def refuse(store: LocalStore, *arguments: object, **options: object) -> None:
        raise StoreFailed(f"cannot write: {os.strerror(errno.EROFS)}", subject=store.url)

    begun = _Begun(step)
    with ExitStack() as patches:
        for name in STORE_WRITES:
            refusing = _when(begun, refuse, getattr(LocalStore, name))
            patches.enter_context(patch.object(LocalStore, name, refusing))
        return _struck(scene, begun)


def connection_cut(scene: Scene, step: Step) -> str:
    """The answer to the step's own statement breaks off in the middle. A step without a statement of its own begins
    with all connections broken."""
    in_the_middle: dict[Step, Fault] = {
        Step.CATALOG: CutStatement("create_snapshot", after_effect=True),
        Step.OBJECT_LIST: CutObjectList(after_rows=1),
        Step.COPY: CutObject(after_bytes=700),
        Step.RELEASE: CutStatement("drop_snapshot", after_effect=True),
    }

    def cut() -> None:
        if step in in_the_middle:
            scene.emulator.inject(in_the_middle[step])
        else:
            scene.emulator.disconnect_all()

    outcome = _struck(scene, _Begun(step, cut))
    assert scene.replica.unspent_faults() == [], "the statement was never asked"
    return outcome


def upstream_restarted(scene: Scene, step: Step) -> str:
    """The upstream stops when the step begins, and is back for the next run with all that it had stored."""
    outcome = _struck(scene, _Begun(step, scene.emulator.stop))
    scene.emulator.restart()
    return outcome


def database_restarted(scene: Scene, step: Step) -> str:
    """The server with the catalog database is killed when the step begins, and started again at once."""
    assert scene.database is not None
    return _struck(scene, _Begun(step, scene.database.restart))


def clock_forward(scene: Scene, step: Step) -> str:
    """Our clock jumps ahead by a day: every lease looks expired."""
    return _with_jump(scene, step, DAY)


def clock_back(scene: Scene, step: Step) -> str:
    """Our clock jumps back by a day: the times that we wrote are in the future."""
    return _with_jump(scene, step, -DAY)


def second_executor(scene: Scene, step: Step) -> str:
    """When the step begins, another executor, for which our lease has expired, takes over the subscription and
    finishes its iteration."""

    def take_over() -> None:
        with scene.workspace(lambda: time.time() + DAY) as other:
            iterate(other, lambda step: None)

    return _struck(scene, _Begun(step, take_over))


def object_corrupted(scene: Scene, step: Step) -> str:
    """From the step on, a byte of every object arrives flipped."""
    try:
        return _struck(scene, _Begun(step, lambda: scene.emulator.inject(DamagedByte(offset=70))))
    finally:
        scene.emulator.clear_faults()


def open_snapshot_gone(scene: Scene, step: Step) -> str:
    """The snapshot of the open iteration vanishes upstream. There is none before it is taken, nor after the commit."""
    dropped = []

    def drop() -> None:
        if opened := Context.from_text(scene.row().context).open:
            scene.emulator.drop_snapshot(opened.name)
            dropped.append(opened.name)

    outcome = _struck(scene, _Begun(step, drop))
    return outcome if dropped else NOTHING_TO_STRIKE


def base_snapshot_gone(scene: Scene, step: Step) -> str:
    """The snapshot of the last point vanishes upstream; the subscription's policy allows a comparison with a full
    list."""

    def drop() -> None:
        current = Context.from_text(scene.row().context).current
        assert current is not None
        scene.emulator.drop_snapshot(current.name)

    return _struck(scene, _Begun(step, drop))


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
    """An `on_step` that remembers whether a step has begun, and calls `action` when it begins for the first time."""

    def __init__(self, step: Step, action: Callable[[], object] = lambda: None) -> None:
        self.step, self._action, self._begun = step, action, False

    def __call__(self, step: Step) -> None:
        if step == self.step and not self._begun:
            self._begun = True
            self._action()

    def __bool__(self) -> bool:
        return self._begun


def _struck(scene: Scene, begun: _Begun, clock: Callable[[], float] | None = None) -> str:
    """The outcome of the attempt. The cell fails if its step never began: then the fault has not struck."""
    outcome = scene.attempt(begun, clock)
    assert begun, f"step {begun.step.label} never began"
    return outcome


def _when(begun: _Begun, refuse: Callable, original: Callable) -> Callable:
    def method(*args: object, **options: object) -> object:
        return (refuse if begun else original)(*args, **options)

    return method


def _with_jump(scene: Scene, step: Step, seconds: float) -> str:
    begun = _Begun(step)
    return _struck(scene, begun, clock=lambda: time.time() + (seconds if begun else 0.0))


def _in_own_process(step: Step, action: str) -> str:
    words = [sys.executable, "-c", DRIVER.format(action=action), step.name]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ended.returncode == -signal.SIGKILL:
        return "killed"
    assert ended.returncode == 0, ended.stderr
    *_, step_began, outcome = ended.stdout.split()  # log lines come before them
    assert step_began == "True", f"step {step.label} never began"
    return outcome
