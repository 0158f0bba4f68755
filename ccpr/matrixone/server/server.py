"""The server side of the MySQL protocol: handshake, login, text result sets. One thread a connection; on loopback
unless told otherwise.

Before a login a connection is a stranger's. It has LOGIN_SECONDS for all of it, however it spreads its bytes; what is
too many is refused by the thread that accepts, at once and without a thread of its own.

`Server(engine)` serves any `Engine`: an engine opens a session for each login, and a session answers statements with a
`ResultSet`, with None (OK without rows) or by raising `StatementError`. Nothing here depends on MatrixOne. Only the
text protocol is served: prepared statements are an error, since MatrixOne's internal statements cannot be prepared
anyway (docs/upstream.md 5.1). DEPRECATE_EOF, compression and session tracking are not advertised.
"""

import errno
import hashlib
import hmac
import ipaddress
import logging
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from ccpr.matrixone.server.answers import (
    BIGINT,
    BLOB_TEXT,
    INT,
    SMALL,
    TIMESTAMP,
    TINY,
    Answer,
    Cell,
    Done,
    LocalFile,
    ResultColumn,
    ResultSet,
    StatementError,
    Streamed,
)
from ccpr.matrixone.server.guesses import Guesses
from ccpr.matrixone.server.packets import Buffer, Channel, CutByFault, Fields, ProtocolError, length_prefix, prefixed
from ccpr.matrixone.server.variables import SERVER_VERSION

T = TypeVar("T")
NATIVE_PASSWORD: Final = b"mysql_native_password"
LOGIN_LIMIT_BYTES: Final = 64 * 1024
LOGIN_SECONDS: Final = 10.0
FAREWELL_SECONDS: Final = 0.5
FAREWELL_BYTES: Final = 1024 * 1024
FILE_LIMIT_BYTES: Final = 1024**3
JOIN_SECONDS: Final = 5.0
ACCEPT_PAUSE_SECONDS: Final = 0.05
# What the system says when it has no room for another connection: nobody gets in then.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# Capability bits.
LONG_PASSWORD: Final = 1 << 0
FOUND_ROWS: Final = 1 << 1
LONG_FLAG: Final = 1 << 2
CONNECT_WITH_DB: Final = 1 << 3
LOCAL_FILES: Final = 1 << 7
PROTOCOL_41: Final = 1 << 9
SSL: Final = 1 << 11
TRANSACTIONS: Final = 1 << 13
SECURE_CONNECTION: Final = 1 << 15
MULTI_STATEMENTS: Final = 1 << 16  # a recording answers several statements with a syntax error, a simulated one in turn
MULTI_RESULTS: Final = 1 << 17
PLUGIN_AUTH: Final = 1 << 19
CONNECT_ATTRS: Final = 1 << 20
LENENC_AUTH: Final = 1 << 21
OFFERED: Final = (
    LONG_PASSWORD
    | FOUND_ROWS
    | LONG_FLAG
    | CONNECT_WITH_DB
    | LOCAL_FILES
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PLUGIN_AUTH
    | CONNECT_ATTRS
    | LENENC_AUTH
)

IN_TRANSACTION: Final = 1
AUTOCOMMIT: Final = 2
MORE_RESULTS: Final = 8
OK: Final = b"\x00\x00\x00" + AUTOCOMMIT.to_bytes(2, "little") + b"\x00\x00"
EOF: Final = b"\xfe\x00\x00" + AUTOCOMMIT.to_bytes(2, "little")
EOF_WITH_MORE: Final = b"\xfe\x00\x00" + (AUTOCOMMIT | MORE_RESULTS).to_bytes(2, "little")

QUIT, INIT_DB, QUERY, FIELD_LIST, STATISTICS = 1, 2, 3, 4, 9
PING, STMT_PREPARE, STMT_CLOSE, SET_OPTION, RESET_CONNECTION = 14, 22, 25, 27, 31

_log = logging.getLogger(__name__)
_DISPLAY_LENGTH = {TINY: 4, SMALL: 6, INT: 11, TIMESTAMP: 26, BIGINT: 20, BLOB_TEXT: 0xFFFFFFFF}


class ServerSession(Protocol):
    """One login. Its methods are called from one thread."""

    def use(self, database: str) -> None: ...
    def split(self, text: bytes) -> Sequence[bytes]:
        """The statements of a packet; a session that answers no more than one returns the text."""
        ...

    def query(self, text: bytes) -> Answer | None: ...
    def close(self) -> None: ...


class Engine(Protocol):
    def open(self, user: str, connection_id: int) -> ServerSession:
        """A session for a login with the right password. Raises `StatementError` to refuse it."""
        ...


def password_digest(password: str) -> bytes:
    """What a server has to keep of a password to check logins: SHA1(SHA1(password)), 20 bytes. It is no password, but
    who has it and has listened to a login can log in."""
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).digest()


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
        if self._acceptor.ident is not None:
            self._acceptor.join(JOIN_SECONDS)
        connections = self._connections()
        self.disconnect_all()
        for one in connections:
            one.thread.join(JOIN_SECONDS)
        for sock in (self._listener, self._wake, self._alarm):
            sock.close()

    def crash(self, *, reset: bool = False) -> None:
        """Stop at once without closing cleanly: connections break, new ones are refused. `stop` does the rest."""
        self._stopping.set()
        self._alarm.send(b"x")
        self._listener.shutdown(socket.SHUT_RDWR)
        self.disconnect_all(reset=reset)

    def disconnect_all(self, *, reset: bool = False) -> int:
        """Break every open connection, as a restart of the upstream would. Returns how many. With `reset` the clients
        see a connection that was reset, and not one that was closed."""
        connections = self._connections()
        for one in connections:
            try:
                if reset:
                    one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # A connection of which only the reading end is shut is reset when its thread closes it.
                one.sock.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended already
        return len(connections)

    @property
    def open_connections(self) -> int:
        return len(self._connections())

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return self._refused

    @property
    def trouble(self) -> str | None:
        """Why nobody gets in at this moment; None if everybody does."""
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
        connection = _Connection(self, sock, connection_id, address)
        try:
            connection.run()
        except OSError:
            # The client hung up (`Hangup`, a reset, a TLS alert), or a fault breaks the connection (`CutByFault`): only
            # this thread ends.
            return
        finally:
            with self._lock:
                self._open.pop(connection_id, None)
            connection.channel.sock.close()


class _Connection:
    def __init__(self, server: Server, sock: socket.socket, connection_id: int, address: str) -> None:
        self.server = server
        self.id = connection_id
        self.address = address
        self.channel = Channel(sock)
        # No byte of the salt may be 0: clients read it as text.
        self.salt = bytes(byte % 127 + 1 for byte in os.urandom(20))

    def run(self) -> None:
        with ExitStack() as admitted:
            try:
                session = self._log_in(admitted)
            except (ProtocolError, StatementError) as error:
                self._part(error.number, error.state, error.text)
                return
            try:
                self.channel.sock.settimeout(self.server.stalled_seconds)
                self._obey(session)
            except ProtocolError as error:
                self._part(error.number, error.state, error.text)

    def _part(self, number: int, state: str, text: str) -> None:
        """Send the error, then close so that the peer can read it: closing with unread bytes would reset the connection
        and lose the text."""
        sock = self.channel.sock
        self.channel.deadline = time.monotonic() + FAREWELL_SECONDS
        self._error(number, state, text)
        sock.shutdown(socket.SHUT_WR)
        drained = 0
        while drained < FAREWELL_BYTES:
            self.channel.hurry()
            piece = sock.recv(65536)
            if not piece:
                break
            drained += len(piece)

    def _log_in(self, admitted: ExitStack) -> ServerSession:
        channel = self.channel
        channel.deadline = time.monotonic() + LOGIN_SECONDS
        self._greet()
        payload = channel.read(LOGIN_LIMIT_BYTES)
        fields = Fields(payload)
        flags = fields.number(4)
        if not flags & PROTOCOL_41:
            raise ProtocolError(1043, "08S01", "bad handshake: protocol 4.1 is needed")
        if flags & SSL and len(payload) == 32:
            if self.server.tls is None:
                raise ProtocolError(1043, "08S01", "bad handshake: TLS is not offered here")
            self._encrypt(self.server.tls)
            fields = Fields(channel.read(LOGIN_LIMIT_BYTES))
            flags = fields.number(4)
        elif self.server.require_tls:
            raise StatementError(3159, "connections without TLS are not accepted here")
        fields.take(4 + 1 + 23)
        user = fields.until_zero().decode("utf-8", "replace")
        proof = _proof(fields, flags)
        database = fields.until_zero().decode("utf-8", "replace") if flags & CONNECT_WITH_DB and fields.left else ""
        plugin = fields.until_zero() if flags & PLUGIN_AUTH and fields.left else NATIVE_PASSWORD
        if plugin != NATIVE_PASSWORD:
            channel.write(b"\xfe" + NATIVE_PASSWORD + b"\0" + self.salt + b"\0")
            channel.flush()
            proof = channel.read(LOGIN_LIMIT_BYTES)
        self._check_password(user, proof)
        admitted.enter_context(self.server.admitted())
        session = self.server.engine.open(user, self.id)
        admitted.callback(session.close)
        if database:
            _asked(partial(session.use, database))
        channel.write(OK)
        channel.flush()
        channel.deadline = None
        self.server.logged_in(self.id)
        return session

    def _greet(self) -> None:
        capabilities = OFFERED | (SSL if self.server.tls else 0)
        self.channel.write(
            b"\x0a" + SERVER_VERSION.encode() + b"\0" + self.id.to_bytes(4, "little") + self.salt[:8] + b"\0",
            (capabilities & 0xFFFF).to_bytes(2, "little") + b"\x2d" + AUTOCOMMIT.to_bytes(2, "little"),
            (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10),
            self.salt[8:] + b"\0" + NATIVE_PASSWORD + b"\0",
        )
        self.channel.flush()

    def _encrypt(self, context: ssl.SSLContext) -> None:
        # No byte after the handshake packet was read, so the client's TLS hello is still in the socket.
        self.channel.hurry()  # the handshake is one operation
        self.channel.sock = context.wrap_socket(self.channel.sock, server_side=True)
        self.channel.vectored = False
        self.server.replace_socket(self.id, self.channel.sock)

    def _check_password(self, user: str, proof: bytes) -> None:
        if self.server.digests is not None:
            right = proves(proof, self.server.digests(user), self.salt)
        elif self.server.password is None:
            right = True
        else:
            password = self.server.password.encode()
            expected = native_scramble(password, self.salt) if password else b""
            right = hmac.compare_digest(proof.rstrip(b"\0") if not expected else proof, expected)
        guesses = self.server.guesses
        if right and guesses is not None:
            guesses.right(user, self.address)
        if not right:
            if guesses is not None:
                self.server.wait(guesses.wrong(user, self.address))
            used = "YES" if proof else "NO"
            raise StatementError(1045, f"Access denied for user '{user}'@'127.0.0.1' (using password: {used})", "28000")

    def _obey(self, session: ServerSession) -> None:
        channel = self.channel
        while True:
            channel.sequence = 0
            payload = channel.read(self.server.max_packet_bytes)
            if not payload:
                raise ProtocolError(1047, "08S01", "an empty command")
            command = payload[0]
            if command == QUIT:
                return
            if command == STMT_CLOSE:
                continue  # has no answer
            try:
                self._command(session, command, payload)
            except StatementError as error:
                self._error(error.number, error.state, error.text)
            channel.flush()

    def _command(self, session: ServerSession, command: int, payload: bytes) -> None:
        if command == QUERY:
            statements = _asked(partial(session.split, payload[1:]))
            for number, statement in enumerate(statements, 1):
                self._answer(_asked(partial(session.query, statement)), has_more=number < len(statements))
        elif command in (PING, RESET_CONNECTION):
            self.channel.write(OK)
        elif command == INIT_DB:
            _asked(partial(session.use, payload[1:].decode("utf-8", "replace")))
            self.channel.write(OK)
        elif command == SET_OPTION:
            self.channel.write(EOF)
        elif command == STATISTICS:
            self.channel.write(b"Uptime: 0")
        elif command == STMT_PREPARE:
            raise StatementError(1295, "prepared statements are not served here: send the statement as text")
        elif command == FIELD_LIST:
            raise StatementError(1047, "field lists are not served here: ask mo_catalog.mo_columns", "08S01")
        else:
            raise StatementError(1047, f"unknown command {command}", "08S01")

    def _answer(self, result: Answer | None, *, has_more: bool = False) -> None:
        channel = self.channel
        if isinstance(result, LocalFile):
            result = _asked(partial(result.then, self._receive_file(result.name)))
        if not isinstance(result, ResultSet):
            channel.write(_ok(result or Done(), has_more=has_more))
            return
        eof = EOF_WITH_MORE if has_more else EOF
        channel.write(length_prefix(len(result.columns)))
        for column in result.columns:
            channel.write(_column_definition(column))
        channel.write(EOF)
        for number, row in enumerate(result.rows):
            if result.cut is not None and result.cut.rows == number:
                channel.flush()
                channel.allowance = result.cut.bytes
            channel.write(*_row(row))
        if result.cut is not None and channel.allowance is not None:
            channel.flush()
            raise CutByFault("cut at the end of the rows")
        channel.write(eof)

    def _receive_file(self, name: str) -> bytes:
        """A file of the client's, which refuses by sending nothing."""
        channel = self.channel
        channel.write(b"\xfb" + _encoded(name))
        channel.flush()
        parts: list[bytes] = []
        while part := channel.read(self.server.max_packet_bytes):
            parts.append(part)
            if sum(map(len, parts)) > FILE_LIMIT_BYTES:
                raise ProtocolError(1153, "08S01", f"a file of more than {FILE_LIMIT_BYTES} bytes is not taken")
        return b"".join(parts)

    def _error(self, number: int, state: str, text: str) -> None:
        self.channel.write(_error_of(number, state, text))
        self.channel.flush()


def _asked(ask: Callable[[], T]) -> T:
    """What a session says. Whatever it raises that is no answer becomes an error of the statement: a defect of ours
    must not cost a client its connection."""
    try:
        return ask()
    except (StatementError, ConnectionError):  # the second: a fault cuts the connection
        raise
    except Exception as error:
        _log.exception("a statement could not be answered")
        text = f"internal error: DEFECT: a statement could not be answered: {type(error).__name__}"
        raise StatementError(20101, text) from error


def _encoded(text: str) -> bytes:
    """As it came: what was no UTF-8 in a statement is none in its answer."""
    return text.encode("utf-8", "surrogateescape")


def _error_of(number: int, state: str, text: str) -> bytes:
    return b"\xff" + number.to_bytes(2, "little") + b"#" + state.encode().ljust(5)[:5] + text.encode("utf-8", "replace")


def _refuse(sock: socket.socket, why: str) -> None:
    """Say it in the place of a greeting, and close. Nothing is waited for."""
    payload = _error_of(1040, "08004", why)
    with suppress(OSError):
        sock.setblocking(False)
        sock.send(len(payload).to_bytes(3, "little") + b"\0" + payload)
    sock.close()


def peer_of(peer: tuple[Any, ...]) -> str:
    """Whose an address is: one of IPv4 is somebody's, of IPv6 the first 64 bits are, who has all addresses in them."""
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)


def _proof(fields: Fields, flags: int) -> bytes:
    """What a login sends to prove that it knows the password."""
    if flags & LENENC_AUTH:
        return fields.length_encoded()
    if flags & SECURE_CONNECTION:
        return fields.take(fields.number(1))
    return fields.until_zero()


def _ok(done: Done, *, has_more: bool) -> bytes:
    state = AUTOCOMMIT * done.autocommit | IN_TRANSACTION * done.in_transaction | MORE_RESULTS * has_more
    numbers = length_prefix(done.affected) + length_prefix(done.insert_id)
    return b"\x00" + numbers + state.to_bytes(2, "little") + b"\x00\x00"


def native_scramble(password: bytes, salt: bytes) -> bytes:
    """The proof of mysql_native_password: SHA1(password) XOR SHA1(salt + SHA1(SHA1(password)))."""
    once = hashlib.sha1(password).digest()
    mask = hashlib.sha1(salt + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def proves(proof: bytes, digest: bytes | None, salt: bytes) -> bool:
    """Whether the proof is that of the password with this `password_digest`; never for a login that does not exist."""
    known = bytes(20) if digest is None else digest
    mask = hashlib.sha1(salt + known).digest()
    once = bytes(a ^ b for a, b in zip(proof, mask, strict=False))
    return hmac.compare_digest(hashlib.sha1(once).digest(), known) and len(proof) == 20 and digest is not None


def _column_definition(column: ResultColumn) -> bytes:
    name = column.name.encode("utf-8", "replace")  # clients decode it
    length = _DISPLAY_LENGTH.get(column.type, 65535)
    tail = column.charset.to_bytes(2, "little") + length.to_bytes(4, "little") + bytes((column.type,)) + bytes(5)
    return prefixed(b"def") + b"\0\0\0" + prefixed(name) + prefixed(name) + b"\x0c" + tail


def _row(cells: Sequence[Cell]) -> list[Buffer | Streamed]:
    parts: list[Buffer | Streamed] = []
    for cell in cells:
        if cell is None:
            parts.append(b"\xfb")
            continue
        value = cell if isinstance(cell, bytes | memoryview | Streamed) else _encoded(str(cell))
        parts.append(length_prefix(len(value)))
        parts.append(value)
    return parts
