"""The server side of the MySQL protocol: who gets a connection. One thread a connection; on loopback unless told
otherwise. What is too many is refused by the thread that accepts, at once and without a thread of its own.

`Server(engine)` serves any `Engine`: an engine opens a session for each login, and a session answers statements with a
`ResultSet`, with None (OK without rows) or by raising `StatementError`. Nothing here depends on MatrixOne.
"""

import errno
import ipaddress
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.connection import Connection, Engine
from ccpr.matrixone.server.packets import error_of
from ccpr.matrixone.server.wrong_passwords import Guesses

JOIN_SECONDS: Final = 5.0  # of all threads together
ACCEPT_PAUSE_SECONDS: Final = 0.05
# What the system says when it has no room for another connection: no client gets in then.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    """A connection; `address` is whose it is, as `peer_of` says it."""

    sock: socket.socket
    thread: threading.Thread
    address: str
    logged_in: bool = False


class Server:
    """Listens when it is constructed; `start` serves, `stop` ends every connection and joins the threads.

    Parameters
    ----------
    engine : answers the statements.
    port : 0 for a free one, which is then in `port`.
    password : of every login; None admits any password.
    tls : a server-side context with which TLS is offered to clients.
    max_packet_bytes : of one incoming statement.
    max_connections : at once, logged in or not.
    max_logins : connections from one address at once that have not logged in yet; None = as many as connections.
    host : the address to listen at.
    digests : the `password_digest` of a login's password, or None for a login that does not exist; in the place of
        `password`.
    guesses : what it is told of right and wrong passwords, and how long the answer to a wrong one waits.
    require_tls : whether logins without TLS are refused.
    max_sessions : logins at once; None = as many as connections.
    stalled_seconds : after which a connection ends on which nothing moves; None = never.
    """

    connection_type = Connection

    def __init__(
        self,
        engine: Engine,
        *,
        port: int = 0,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        max_packet_bytes: int = 64 * 1024 * 1024,
        max_connections: int = 512,
        max_logins: int | None = None,
        host: str = "127.0.0.1",
        digests: Callable[[str], bytes | None] | None = None,
        guesses: Guesses | None = None,
        require_tls: bool = False,
        max_sessions: int | None = None,
        stalled_seconds: float | None = None,
    ) -> None:
        self.engine = engine
        self.password = password
        self.tls = tls
        self.max_packet_bytes = max_packet_bytes
        self.max_connections = max_connections
        self.max_logins = max_connections if max_logins is None else max_logins
        self.digests = digests
        self.guesses = guesses
        self.require_tls = require_tls
        self.max_sessions = max_connections if max_sessions is None else max_sessions
        self.stalled_seconds = stalled_seconds
        self._sessions = 0
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._last_id = 0
        self._refused = 0
        self._no_room: str | None = None
        self._stopping = threading.Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=256)
        self._wake, self._alarm = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name="wire-accept", daemon=True)
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        self._acceptor.start()

    def stop(self) -> None:
        self._stopping.set()
        self._alarm.send(b"x")
        end = time.monotonic() + JOIN_SECONDS
        if self._acceptor.ident is not None:
            self._acceptor.join(JOIN_SECONDS)
        connections = self._connections()
        self.disconnect_all()
        for one in connections:
            one.thread.join(max(0.0, end - time.monotonic()))
        for sock in (self._listener, self._wake, self._alarm):
            sock.close()

    def disconnect_all(self) -> int:
        """Break every open connection, as a restart of the upstream would. Returns how many."""
        connections = self._connections()
        for one in connections:
            with suppress(OSError):  # it has ended already
                one.sock.shutdown(socket.SHUT_RDWR)
        return len(connections)

    @property
    def open_connections(self) -> int:
        return len(self._connections())

    @property
    def open_sessions(self) -> int:
        return self._sessions

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return self._refused

    @property
    def trouble(self) -> str | None:
        """Why no client gets in at this moment; None if clients do."""
        if self._acceptor.ident is not None and not self._acceptor.is_alive() and not self._stopping.is_set():
            return "the thread that accepts connections has ended"
        return self._no_room

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """One of the sessions that there may be at once. Raises StatementError 1040."""
        with self._lock:
            if self._sessions >= self.max_sessions:
                raise StatementError(1040, f"too many connections: {self.max_sessions} sessions are open", "08004")
            self._sessions += 1
        try:
            yield
        finally:
            with self._lock:
                self._sessions -= 1

    def replace_socket(self, connection_id: int, sock: socket.socket) -> None:
        """The connection continues over TLS: `stop` must break the new socket, since the old one has no descriptor."""
        with self._lock:
            self._open[connection_id].sock = sock

    def address_of(self, connection_id: int) -> str:
        """Of the client of an open connection."""
        with self._lock:
            return self._open[connection_id].address

    def wait(self, seconds: float) -> None:
        """Until then, or until the server stops."""
        self._stopping.wait(seconds)

    def logged_in(self, connection_id: int) -> None:
        """From now on the connection is none of those of its address that may become a login."""
        with self._lock:
            self._open[connection_id].logged_in = True

    def _connections(self) -> list[_Open]:
        with self._lock:
            return list(self._open.values())

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._stopping.is_set():
                if not any(key.fileobj is self._listener for key, _ in selector.select()):
                    continue
                try:
                    sock, peer = self._listener.accept()
                except OSError as error:  # the client hung up before it was accepted, or there are no free descriptors
                    if error.errno in NO_ROOM:
                        self._have_no_room(error.strerror or str(error))
                    time.sleep(ACCEPT_PAUSE_SECONDS)
                    continue
                self._no_room = None
                try:
                    self._take(sock, peer_of(peer))
                except OSError:  # the client has hung up
                    sock.close()

    def _have_no_room(self, why: str) -> None:
        if self._no_room is None:
            _log.error("no connection can be accepted: %s", why)
        self._no_room = f"no connection can be accepted: {why}"

    def _take(self, sock: socket.socket, address: str) -> None:
        with self._lock:
            excess = self._excess(address)
        if excess:
            self._refused += 1
            _refuse(sock, excess)
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with self._lock:
            self._last_id += 1
            connection_id = self._last_id
            thread = threading.Thread(
                target=self._serve, args=(sock, connection_id, address), name=f"wire-{connection_id}", daemon=True
            )
            self._open[connection_id] = _Open(sock, thread, address)
        try:
            thread.start()
        except RuntimeError as error:  # the system cannot start another thread
            with self._lock:
                del self._open[connection_id]
            sock.close()
            self._have_no_room(str(error))

    def _excess(self, address: str) -> str:
        """Of what another connection from there would be one too many; empty if of nothing."""
        if len(self._open) >= self.max_connections:
            return "too many connections"
        waiting = sum(one.address == address and not one.logged_in for one in self._open.values())
        return f"too many connections: {waiting} from {address} do not log in" if waiting >= self.max_logins else ""

    def _serve(self, sock: socket.socket, connection_id: int, address: str) -> None:
        connection = self.connection_type(self, sock, connection_id, address)
        try:
            connection.run()
        except OSError:
            # The client hung up (`Hangup`, a reset, a TLS alert), or what is sent cannot be read any more: only this
            # thread ends.
            return
        finally:
            with self._lock:
                self._open.pop(connection_id, None)
            connection.channel.sock.close()


def _refuse(sock: socket.socket, why: str) -> None:
    """Say it in the place of a greeting, and close. Nothing is waited for."""
    payload = error_of(1040, "08004", why)
    with suppress(OSError):
        sock.setblocking(False)
        sock.send(len(payload).to_bytes(3, "little") + b"\0" + payload)
    sock.close()


def peer_of(peer: tuple[Any, ...]) -> str:
    """The owner of an address: of IPv4 the address itself, of IPv6 its first 64 bits, as one owner has all in them."""
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
