"""An iteration in a process of its own that is killed before any of its effects."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ccpr.service.workspace import Workspace
from tests.histories.replicating import NAME
from tests.support import driving
from tests.support.patching import replaced

METHODS = {  # statements upstream, and files of the mirror
    "ccpr.matrixone.client.upstream_session": ("Session._run", "Session.stream"),
    "ccpr.mirror.local_store": ("LocalStore._place", "LocalStore._replace", "LocalStore.delete"),
}


def iterate_and_die(home: Path, number: int, name: str = NAME) -> None:
    """kill -9 before the effect of this number: a statement, a commit to the catalog database, or a file. What follows
    one of them is before the next. Ends if there are fewer."""
    numbers, lock = count(), threading.Lock()

    def strike(*_: object) -> None:
        with lock:
            if next(numbers) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(*arguments: object, **options: object) -> object:
            strike()
            return original(*arguments, **options)

        return method

    with ExitStack() as held:
        for module, paths in METHODS.items():
            for path in paths:
                held.enter_context(replaced(module, path, counted))
        sa.event.listen(sa.Engine, "commit", strike)
        with closing(Workspace(home)) as workspace:
            driving.iterate(workspace, name)
