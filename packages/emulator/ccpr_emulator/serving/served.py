"""An upstream that is served on a port: starting, stopping, counters and faults."""

import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Self

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.upstream import Release
from ccpr_emulator.serving.cut_connection import CutByFault, CutServer
from ccpr_emulator.serving.emulated_upstream import EmulatedUpstream, EmulatorStatus, Ending, Logged
from ccpr_emulator.serving.emulator_session import EmulatorLogins
from ccpr_emulator.serving.faults import Fault


def canceled(kind: str) -> NoReturn:
    """What a MatrixOne that is stopped answers mostly (docs/reliability.md, "What servers say")."""
    raise StatementError(1815 if kind == "login" else 1105, "context canceled")


def _killed(kind: str) -> NoReturn:
    raise CutByFault(f"killed before the answer to {kind}")


class ServedUpstream:
    """A server for an upstream, on 127.0.0.1 unless `options` (of `ccpr.matrixone.server.server.Server`) say otherwise.
    Use it as a context manager, or call `start` and `stop`.

    `crashed` is set when the fault `Crash` has stopped it; call `stop` and `restart` then. Raises OSError if the port
    is in use.
    """

    def __init__(
        self, upstream: EmulatedUpstream, *, port: int, password: str | None, tls: ssl.SSLContext | None, **options: Any
    ) -> None:
        self._upstream = upstream
        self._serve = partial(CutServer, EmulatorLogins(upstream), password=password, tls=tls, **options)
        self._server = self._serve(port=port)
        self.crashed = threading.Event()
        upstream.on_crash.append(self._crash)

    def _crash(self) -> None:
        self._server.crash()
        self.crashed.set()

    @property
    def port(self) -> int:
        return self._server.port

    def on_crash(self, act: Callable[[], object]) -> None:
        """Call `act` after the fault `Crash` has stopped the server."""
        self._upstream.on_crash.append(act)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """Clear the faults, end every connection and wait for the threads."""
        self._upstream.faults.clear()
        self._server.stop()

    def shut_down(self, seconds: float = 0.3, answer: Ending = canceled) -> None:
        """An orderly stop. For so many seconds running and new statements and new logins get an `answer`: those that
        were being executed have had their effect, those that waited have not. Then connections and the port are closed.
        """
        self._upstream.ending = answer
        self._upstream.faults.clear()
        time.sleep(seconds)
        self.stop()

    def kill(self) -> None:
        """As `kill -9`: connections are reset, and what waits or is asked for later is never executed."""
        self._upstream.ending = _killed
        self._server.crash(reset=True)
        self.stop()

    def restart(self) -> None:
        """Serve the same upstream again at the same port, after `stop`, `shut_down` or `kill`. Its rows, its snapshots
        and flushed tables stay."""
        self.crashed.clear()
        self._upstream.starts += 1
        self._upstream.ending = None
        self._server = self._serve(port=self.port)
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def status(self) -> EmulatorStatus:
        return self._upstream.status()

    def log(self) -> tuple[Logged, ...]:
        """The last 10,000 statements, oldest first."""
        return tuple(self._upstream.log)

    def inject(self, *faults: Fault) -> None:
        self._upstream.inject(*faults)

    @property
    def faults_left(self) -> bool:
        """Whether a fault has not struck as often as it will. Those that always strike, or for a time, do not count."""
        return self._upstream.faults.left

    def clear_faults(self) -> None:
        self._upstream.faults.clear()

    def upgrade(self, release: Release) -> None:
        """Answer like this release from now on. Connections break, as a restart breaks them."""
        self._upstream.release = release
        self.disconnect_all()

    def disconnect_all(self) -> int:
        """Break every open connection; returns how many. New connections are served."""
        return self._server.disconnect_all()
