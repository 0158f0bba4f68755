"""A connection of the server side of the MySQL protocol: handshake, login, commands, text result sets.

Before a login a connection is a stranger's. It has LOGIN_SECONDS for all of it, however it spreads its bytes.

Prepared statements are served if the session takes them (`PreparingSession`); MatrixOne's internal statements cannot be
prepared (docs/upstream.md 5.1). DEPRECATE_EOF, compression and session tracking are not advertised.
"""

import hmac
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Final, Protocol, TypeVar, runtime_checkable

from pymysql.constants import CLIENT, COMMAND

from ccpr.matrixone.server.answers import Answer, Done, FramedRows, LocalFile, ResultSet, StatementError
from ccpr.matrixone.server.packets import (
    AUTOCOMMIT,
    EOF,
    OK,
    Channel,
    Fields,
    ProtocolError,
    column_definition,
    encoded,
    eof_of,
    error_of,
    length_prefix,
    ok_of,
    row_of,
)
from ccpr.matrixone.server.prepared import Parameter, PreparedStatements, binary_row_of
from ccpr.matrixone.server.wrong_passwords import Guesses, native_scramble, proves

T = TypeVar("T")
SERVER_VERSION: Final = "8.0.30-MatrixOne-v1.3.0"
NATIVE_PASSWORD: Final = b"mysql_native_password"
LOGIN_LIMIT_BYTES: Final = 64 * 1024
LOGIN_SECONDS: Final = 10.0
FAREWELL_SECONDS: Final = 0.5
FAREWELL_BYTES: Final = 1024 * 1024
FILE_LIMIT_BYTES: Final = 1024**3

OFFERED: Final = (
    (CLIENT.LONG_PASSWORD | CLIENT.FOUND_ROWS | CLIENT.LONG_FLAG | CLIENT.CONNECT_WITH_DB | CLIENT.LOCAL_FILES)
    | (CLIENT.PROTOCOL_41 | CLIENT.TRANSACTIONS | CLIENT.SECURE_CONNECTION | CLIENT.MULTI_RESULTS)
    | (CLIENT.PLUGIN_AUTH | CLIENT.CONNECT_ATTRS | CLIENT.PLUGIN_AUTH_LENENC_CLIENT_DATA)
    | CLIENT.MULTI_STATEMENTS  # a recording answers several statements with a syntax error, a simulated one in turn
)
COM_RESET_CONNECTION: Final = 31

_log = logging.getLogger(__name__)


class ServerSession(Protocol):
    """One login. Its methods are called from one thread."""

    def use(self, database: str) -> None: ...
    def split(self, text: bytes) -> Sequence[bytes]:
        """The statements of a packet; a session that answers no more than one returns the text."""
        ...

    def query(self, text: bytes) -> Answer | None: ...
    def close(self) -> None: ...


@runtime_checkable
class PreparingSession(Protocol):
    """A session that takes prepared statements too."""

    def prepare(self, text: bytes) -> int:
        """How many parameters the statement has. Raises `StatementError`."""
        ...

    def execute(self, text: bytes, parameters: Sequence[Parameter]) -> Answer | None:
        """The answer; `FramedRows` are those of the binary protocol."""
        ...

    def reset(self) -> None:
        """As after the login: a pool hands the connection to somebody else."""
        ...


class Engine(Protocol):
    def open(self, user: str, connection_id: int) -> ServerSession:
        """A session for a login with the right password. Raises `StatementError` to refuse it."""
        ...


class Host(Protocol):
    """What a connection asks of its server; see `ccpr.matrixone.server.server.Server`."""

    engine: Engine
    password: str | None
    tls: ssl.SSLContext | None
    max_packet_bytes: int
    digests: Callable[[str], bytes | None] | None
    guesses: Guesses | None
    require_tls: bool
    stalled_seconds: float | None

    def admitted(self) -> AbstractContextManager[None]: ...
    def replace_socket(self, connection_id: int, sock: socket.socket) -> None: ...
    def wait(self, seconds: float) -> None: ...
    def logged_in(self, connection_id: int) -> None: ...


class Connection:
    """One client, from its greeting to its end. `run` serves it on the thread that calls it."""

    channel_type = Channel

    def __init__(self, server: Host, sock: socket.socket, connection_id: int, address: str) -> None:
        self.server = server
        self.id = connection_id
        self.address = address
        self.channel = self.channel_type(sock)
        # No byte of the salt may be 0: clients read it as text.
        self.salt = bytes(byte % 127 + 1 for byte in os.urandom(20))
        self._prepared = PreparedStatements()
        self._last = Done()  # of the statements without rows: the session's state

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
        if not flags & CLIENT.PROTOCOL_41:
            raise ProtocolError(1043, "bad handshake: protocol 4.1 is needed")
        if flags & CLIENT.SSL and len(payload) == 32:
            if self.server.tls is None:
                raise ProtocolError(1043, "bad handshake: TLS is not offered here")
            self._encrypt(self.server.tls)
            fields = Fields(channel.read(LOGIN_LIMIT_BYTES))
            flags = fields.number(4)
        elif self.server.require_tls:
            raise StatementError(3159, "connections without TLS are not accepted here")
        fields.take(4 + 1 + 23)
        user = fields.until_zero().decode("utf-8", "replace")
        proof = _proof(fields, flags)
        database = (
            fields.until_zero().decode("utf-8", "replace") if flags & CLIENT.CONNECT_WITH_DB and fields.left else ""
        )
        plugin = fields.until_zero() if flags & CLIENT.PLUGIN_AUTH and fields.left else NATIVE_PASSWORD
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
        capabilities = OFFERED | (CLIENT.SSL if self.server.tls else 0)
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
                raise ProtocolError(1047, "an empty command")
            command = payload[0]
            if command == COMMAND.COM_QUIT:
                return
            if command in (COMMAND.COM_STMT_CLOSE, COMMAND.COM_STMT_SEND_LONG_DATA):  # they have no answer
                self._prepared.note(command == COMMAND.COM_STMT_CLOSE, payload)
                continue
            try:
                self._command(session, command, payload)
            except StatementError as error:
                self._error(error.number, error.state, error.text)
            channel.flush()

    def _command(self, session: ServerSession, command: int, payload: bytes) -> None:
        if command == COMMAND.COM_QUERY:
            statements = _asked(partial(session.split, payload[1:]))
            for number, statement in enumerate(statements, 1):
                self._answer(_asked(partial(session.query, statement)), has_more=number < len(statements))
        elif command in (COMMAND.COM_PING, COM_RESET_CONNECTION):
            if command == COM_RESET_CONNECTION and isinstance(session, PreparingSession):
                _asked(session.reset)
                self._prepared, self._last = PreparedStatements(), Done()
            self.channel.write(OK)
        elif command == COMMAND.COM_INIT_DB:
            _asked(partial(session.use, payload[1:].decode("utf-8", "replace")))
            self.channel.write(OK)
        elif command == COMMAND.COM_SET_OPTION:
            self.channel.write(EOF)
        elif command == COMMAND.COM_STATISTICS:
            self.channel.write(b"Uptime: 0")
        elif command == COMMAND.COM_STMT_PREPARE and isinstance(session, PreparingSession):
            count = _asked(partial(session.prepare, payload[1:]))
            for part in self._prepared.add(payload[1:], count):
                self.channel.write(part)
        elif command == COMMAND.COM_STMT_EXECUTE and isinstance(session, PreparingSession):
            text, parameters = self._prepared.bound(payload)
            self._answer(_asked(partial(session.execute, text, parameters)), binary=True)
        elif command == COMMAND.COM_STMT_RESET and isinstance(session, PreparingSession):
            self._prepared.reset(payload)
            self.channel.write(OK)
        elif command == COMMAND.COM_STMT_PREPARE:
            raise StatementError(1295, "prepared statements are not served here: send the statement as text")
        elif command == COMMAND.COM_FIELD_LIST:
            raise StatementError(1047, "field lists are not served here: ask mo_catalog.mo_columns", "08S01")
        else:
            raise StatementError(1047, f"unknown command {command}", "08S01")

    def _answer(self, result: Answer | None, *, has_more: bool = False, binary: bool = False) -> None:
        channel = self.channel
        if isinstance(result, LocalFile):
            result = _asked(partial(result.then, self._receive_file(result.name)))
        if not isinstance(result, ResultSet | FramedRows):
            self._last = result or Done()
            channel.write(ok_of(self._last, has_more=has_more))
            return
        channel.write(length_prefix(len(result.columns)))
        for column in result.columns:
            channel.write(column_definition(column))
        channel.write(eof_of(self._last, has_more=False))
        if isinstance(result, FramedRows):
            self._write_frames(result)
        elif binary:
            for row in result.rows:
                channel.write(binary_row_of(result.columns, row))
        else:
            self.write_rows(result)
        channel.write(eof_of(self._last, has_more=has_more))

    def _write_frames(self, result: FramedRows) -> None:
        channel, frames = self.channel, result.frames(self.channel.sequence)
        channel.deadline = None if result.seconds is None else time.monotonic() + result.seconds
        try:
            while (found := _asked(partial(next, frames, None))) is not None:
                channel.write_frames(*found)
        finally:
            channel.deadline = None
            channel.sock.settimeout(self.server.stalled_seconds)

    def write_rows(self, result: ResultSet) -> None:
        for row in result.rows:
            self.channel.write(*row_of(row))

    def _receive_file(self, name: str) -> bytes:
        """A file of the client's, which refuses by sending nothing."""
        channel = self.channel
        channel.write(b"\xfb" + encoded(name))
        channel.flush()
        parts: list[bytes] = []
        while part := channel.read(self.server.max_packet_bytes):
            parts.append(part)
            if sum(map(len, parts)) > FILE_LIMIT_BYTES:
                raise ProtocolError(1153, f"a file of more than {FILE_LIMIT_BYTES} bytes is not taken")
        return b"".join(parts)

    def _error(self, number: int, state: str, text: str) -> None:
        self.channel.write(error_of(number, state, text))
        self.channel.flush()


def _asked(ask: Callable[[], T]) -> T:
    """What a session says. Whatever it raises that is no answer becomes an error of the statement: a defect of ours
    must not cost a client its connection."""
    try:
        return ask()
    except (StatementError, ConnectionError):  # the second ends the connection
        raise
    except Exception as error:
        _log.exception("a statement could not be answered")
        text = f"internal error: DEFECT: a statement could not be answered: {type(error).__name__}"
        raise StatementError(20101, text) from error


def _proof(fields: Fields, flags: int) -> bytes:
    """What a login sends to prove that it knows the password."""
    if flags & CLIENT.PLUGIN_AUTH_LENENC_CLIENT_DATA:
        return fields.length_encoded()
    if flags & CLIENT.SECURE_CONNECTION:
        return fields.take(fields.number(1))
    return fields.until_zero()
