"""An upstream that is served on a port: starting, stopping, counters and faults."""

import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from wire.faults import Fault
from wire.server import Server
from wire.session import Logins
from wire.status import Logged, Status
from wire.upstream import Release, Upstream


class Served:
    """A server for an upstream, on 127.0.0.1 unless `options` (of `wire.server.Server`) say otherwise. Use it as a
    context manager, or call `start` and `stop`.

    `crashed` is set when the fault `Crash` has stopped it; call `stop` and `restart` then. Raises OSError if the port
    is in use.
    """

    def __init__(
        self, upstream: Upstream, *, port: int, password: str | None, tls: ssl.SSLContext | None, **options: Any
    ) -> None:
        self._upstream = upstream
        self._serve = partial(Server, Logins(upstream), password=password, tls=tls, **options)
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

    def restart(self) -> None:
        """Serve the same upstream again at the same port, after `stop`. Its snapshots and flushed tables stay."""
        self.crashed.clear()
        self._server = self._serve(port=self.port)
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def status(self) -> Status:
        return self._upstream.status()

    def log(self) -> tuple[Logged, ...]:
        """The last 10,000 statements, oldest first."""
        return self._upstream.counters.log()

    def inject(self, *faults: Fault) -> None:
        self._upstream.faults.put(*faults)

    def clear_faults(self) -> None:
        self._upstream.faults.clear()

    def upgrade(self, release: Release) -> None:
        """Answer like this release from now on. Connections break, as a restart breaks them."""
        self._upstream.release = release
        self.disconnect_all()

    def disconnect_all(self) -> int:
        """Break every open connection; returns how many. New connections are served."""
        return self._server.disconnect_all()
