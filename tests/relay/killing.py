"""A relay and a downstream as processes of their own that kill themselves at a statement: the relay at one that it
answers, the downstream at one that it sends."""

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ccpr.relay.relay_server import RelaySession
from ccpr.service.workspace import Workspace
from tests.support import native_client
from tests.support.native_client import NativeClient
from tests.support.relayed import relaying

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Strike:
    """When a process kills itself: at the nth statement of a kind, before it or after it was answered."""

    kind: str
    number: int
    after: bool


def kind_of(text: str) -> str:
    """The command of a statement."""
    words = text.split()
    return words[0] if words[0].startswith("__++__") else " ".join(words[:2])


@dataclass
class Counted:
    """Counts the statements of a process, and tells each to the process that watches."""

    strike: Strike | None
    watcher: Connection
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._seen = Counter[str]()

    def call(self, text: str, execute: Callable[[], Any]) -> Any:
        with self.lock:
            kind = kind_of(text)
            self._seen[kind] += 1
            is_struck = self.strike is not None and (kind, self._seen[kind]) == (self.strike.kind, self.strike.number)
            self.watcher.send(kind)
        if is_struck and self.strike is not None and not self.strike.after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = execute()
        if is_struck:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def relay_process(port: int, folder: Path, counted: Counted) -> None:
    """Serves a state folder. To be run in a process of its own."""
    query = RelaySession.query

    def struck(session: RelaySession, text: bytes) -> Any:
        return counted.call(text.decode(), lambda: query(session, text))

    RelaySession.query = struck
    with closing(Workspace(folder)) as workspace, relaying(workspace, port=port):
        _serve(counted)


def downstream_process(port: int, folder: Path, counted: Counted) -> None:
    """What a MatrixOne does. To be run in a process of its own."""
    send = native_client._rows
    native_client._rows = lambda upstream, sql: counted.call(sql, lambda: send(upstream, sql))
    with NativeClient(port, folder):
        _serve(counted)


def _serve(counted: Counted) -> None:
    counted.watcher.send("")  # it serves
    threading.Event().wait()


class Mortal:
    """A process that is started again whenever it has killed itself.

    Attributes
    ----------
    kinds : of the statements of all its lives.
    deaths : how often it killed itself.
    """

    def __init__(self, target: Callable[[int, Path, Counted], None], port: int, folder: Path) -> None:
        self._target, self._port, self._folder = target, port, folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self.kinds, self.deaths = Counter[str](), 0
        self._process: Any = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def living(self, strike: Strike | None) -> Iterator[None]:
        """Until the end of the block; `strike` is for the first life."""
        self.kinds.clear()
        self.deaths = 0
        self._start(strike)
        try:
            yield
        finally:
            self._process.terminate()
            if self._thread is not None:
                self._thread.join(WAIT_SECONDS)
        assert self._process.exitcode == -signal.SIGTERM

    def _start(self, strike: Strike | None) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        self._process = self._context.Process(
            target=_run, args=(self._target, self._port, self._folder, strike, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        assert ours.poll(WAIT_SECONDS)
        assert ours.recv() == ""
        self._thread = threading.Thread(target=self._watch, args=(ours, self._process), daemon=True)
        self._thread.start()

    def _watch(self, statements: Connection, process: Any) -> None:
        try:
            while True:
                self.kinds[statements.recv()] += 1
        except EOFError:
            process.join(WAIT_SECONDS)
        if process.exitcode == -signal.SIGKILL:
            self.deaths += 1
            self._start(None)


def _run(
    target: Callable[[int, Path, Counted], None], port: int, folder: Path, strike: Strike | None, watcher: Connection
) -> None:
    target(port, folder, Counted(strike, watcher))
