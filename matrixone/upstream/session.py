"""One MySQL connection to the upstream, whose answers are bytes and whose failures are typed.

Source: upstream-interface.md 2, 5.1 and 13; spark.md section 4. A session belongs to one thread at a time.
"""

import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import pymysql
from pymysql.connections import Connection
from pymysql.constants import COMMAND, CR
from pymysql.cursors import SSCursor

from matrixone.upstream.endpoint import Endpoint, Tls
from matrixone.upstream.errors import AnswerTooLong, BadAnswer, UpstreamError, classify
from matrixone.upstream.retry import DEFAULT_RETRY, Policy, with_retry
from matrixone.upstream.single_row import Cells, read_single_row

Row = tuple[bytes | None, ...]
_Result = TypeVar("_Result")
ROWS_A_CHUNK = 10_000
READ_SECONDS = (
    120.0  # a list that is read from checkpoints may make the upstream wait for a minute before its first byte
)
LONGEST_ANSWER = 1 << 30  # bytes; a catalog with a million columns stays far below it
_PACKET = 128 << 20  # above the 100 MiB of an object's chunk
_SERVER_NUMBERS = 1000, 2000, 3000  # server errors start at 1000; 2000 to 2999 are the client library's own
_PANIC = 1105
# What PyMySQL raises, besides its own errors, when the bytes are not what the protocol says.
_NOT_THE_PROTOCOL = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    NameError,
    ArithmeticError,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result set.

    Attributes
    ----------
    columns : names, in the order of the answer.
    types : MySQL type codes, one a column.
    rows : cells as bytes, as the text protocol gave them; None for NULL.
    """

    columns: tuple[str, ...]
    types: tuple[int, ...]
    rows: list[Row]

    def places(self, *names: str) -> tuple[int, ...]:
        """Where these columns stand, whatever the case of their names' letters, as everywhere in MySQL. Raises
        BadAnswer for one that is missing; more columns than asked for are fine.
        """
        found = {name.lower(): place for place, name in reversed(list(enumerate(self.columns)))}
        missing = [name for name in names if name.lower() not in found]
        if missing:
            raise BadAnswer(
                f"the answer has no column {', '.join(missing)}",
                subject=f"answer with columns {', '.join(self.columns)}",
            )
        return tuple(found[name.lower()] for name in names)

    def select(self, *names: str) -> Iterator[Row]:
        """The rows, with these columns only, in this order."""
        places = self.places(*names)
        return (tuple(row[place] for place in places) for row in self.rows)


def integer(cell: bytes | None, what: str) -> int:
    """A whole number from its text. Raises BadAnswer."""
    if cell is None or not cell.removeprefix(b"-").isdigit() or len(cell) > 20:
        raise BadAnswer(f"{what} is not a whole number: {cell!r:.60}", subject=what)
    return int(cell)


def text(cell: bytes | None, what: str) -> str:
    """UTF-8 text; NULL is empty. Raises BadAnswer."""
    try:
        return (cell or b"").decode()
    except UnicodeDecodeError as error:
        raise BadAnswer(f"{what} is not UTF-8", subject=what) from error


class Session:
    """A login at the upstream. Use it as a context manager.

    After a failed read the connection is dropped, since what follows on it could belong to the old answer, and the
    next statement connects anew. An error that the server itself reports leaves the connection in step and in use.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        password: str | None,
        *,
        connect_timeout: float,
        read_timeout: float,
        write_timeout: float,
        retry: Policy,
    ) -> None:
        self.endpoint = endpoint
        self.retry = retry
        self._password = (password or "").encode()  # PyMySQL itself would encode it as Latin-1
        self._timeouts = connect_timeout, read_timeout, write_timeout
        self._connection: _Connection | None = None
        self._streaming = False

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        password: str | None,
        *,
        connect_timeout: float = 10.0,
        read_timeout: float = READ_SECONDS,
        write_timeout: float = 60.0,
        retry: Policy = DEFAULT_RETRY,
    ) -> Self:
        """Log in, once: an unreachable host or a wrong password is an error at once.

        Times are seconds. `connect_timeout` bounds each wait until the login is done; afterwards `read_timeout` is the
        longest silence that is borne, not the time of a whole answer. Raises UpstreamUnreachable, AccessDenied,
        TlsFailed.
        """
        session = cls(
            endpoint,
            password,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            write_timeout=write_timeout,
            retry=retry,
        )
        session._open()
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.endpoint.masked()})"

    def query(self, sql: str, *, longest: int = LONGEST_ANSWER) -> Answer:
        """Run one statement, once, and read its whole answer (of at most `longest` bytes, else AnswerTooLong)."""

        def read(connection: _Connection) -> Answer:
            with connection.allowance(longest):
                connection.query(sql)
            return _answer(connection)

        return self._run(sql, read)

    def read(self, sql: str, *, longest: int = LONGEST_ANSWER, also: tuple[type[Exception], ...] = ()) -> Answer:
        """`query`, repeated after transient errors: only for statements that may run twice."""
        return with_retry(lambda: self.query(sql, longest=longest), self.retry, also=also)

    def read_row(self, sql: str, *, longest: int) -> Cells:
        """The cells of an answer of one row, by the names of the columns; repeated after transient errors.

        For large cells: all are views of one buffer. Raises AnswerTooLong for more than `longest` bytes, BadAnswer if
        it is not one row.
        """
        return with_retry(
            lambda: self._run(sql, lambda connection: connection.read_single_row(sql, longest)), self.retry
        )

    def _run(self, sql: str, read: "Callable[[_Connection], _Result]") -> _Result:
        """What `read` gets out of the connection; its failure is typed, and leaves no half of an answer on the
        connection."""
        connection = self._open()
        done = False
        try:
            result = read(connection)
            done = True
        except (pymysql.err.MySQLError, *_NOT_THE_PROTOCOL) as error:
            done = _in_step(error)
            raise _typed(error, sql) from error
        finally:  # also for an interrupt
            if not done:
                self._drop()
        return result

    def stream(self, sql: str, rows: int = ROWS_A_CHUNK) -> Iterator[Answer]:
        """Run one statement, once, and give its answer in chunks of that many rows; at least one, without rows where
        there are none.

        Nothing else can run on the session until the end. A stream that is given up, or that fails, drops the
        connection.
        """
        connection = self._open()
        cursor = connection.cursor(_Stream)
        self._streaming = True
        done = False
        try:
            cursor.execute(sql)
            columns, types = _columns(cursor.description)
            chunk = _whole(cursor.fetchmany(rows), len(columns))
            yield Answer(columns, types, chunk)
            while chunk:
                chunk = _whole(cursor.fetchmany(rows), len(columns))
                if chunk:
                    yield Answer(columns, types, chunk)
            done = True
        except (pymysql.err.MySQLError, *_NOT_THE_PROTOCOL) as error:
            raise _typed(error, sql) from error
        finally:
            self._streaming = False
            cursor.abandon()
            if not done:
                self._drop()

    @property
    def encrypted(self) -> bool:
        """Is what goes over the connection encrypted? Connects if need be."""
        return self._open().encrypted

    def close(self) -> None:
        """Log out. The session may be used again: it then connects anew."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _open(self) -> "_Connection":
        if self._streaming:
            raise RuntimeError("an answer is still being read on this session")
        if self._connection is None or not self._connection.open:
            self._connection = _connect(self.endpoint, self._password, self._timeouts)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()


def _typed(error: Exception, sql: str) -> UpstreamError:
    return classify(error if isinstance(error, pymysql.err.MySQLError) else _out_of_step(error), sql)


def _out_of_step(error: Exception) -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(2027, f"the answer is not MySQL protocol: {type(error).__name__}")


def _in_step(error: Exception) -> bool:
    """Whether the server answered with an error of its own, after which the connection can go on. Not after a panic."""
    number = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
    first, lost, after = _SERVER_NUMBERS
    return isinstance(number, int) and number >= first and not lost <= number < after and number != _PANIC


def _columns(description: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    described = description or ()
    return tuple(_name(column[0]) for column in described), tuple(column[1] for column in described)


def _name(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _answer(connection: "_Connection") -> Answer:
    result = connection.take_result()
    columns, types = _columns(result.description)
    return Answer(columns, types, _whole(result.rows or (), len(columns)))


def _whole(rows: Iterable[Row], width: int) -> list[Row]:
    """The rows; raises ValueError if one has another number of cells: PyMySQL takes a packet that ends early for a
    short row."""
    found = list(rows)
    if any(len(row) != width for row in found):
        raise ValueError(f"a row has not {width} cells")
    return found


class _Allowance:
    """While it is open, the connection reads no more than so many bytes: an answer must not fill the memory."""

    def __init__(self, connection: "_Connection", size: int) -> None:
        self._connection, self._size = connection, size

    def __enter__(self) -> None:
        self._connection.left = self._size

    def __exit__(self, *_: object) -> None:
        self._connection.left = None


class _Stream(SSCursor):
    """An unbuffered cursor that can be left in the middle: PyMySQL's own would read the rest of the answer first."""

    _result: Any
    connection: Any

    def abandon(self) -> None:
        if self._result is not None:
            self._result.unbuffered_active = False
        self.connection = None


class _Refused:
    """Stands in for the ways of logging in that hand the password over in the clear, or nearly so, to whoever asks for
    it.

    The SHA-2 ones are among them: through TLS they send the password as it is, and without it encrypted with a key
    that the server names.
    """

    def __init__(self, connection: Connection) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        raise pymysql.err.OperationalError(
            1045, "the server asks for the password in clear text, or nearly so, which is refused"
        )


_NATIVE_LOGIN = "mysql_native_password"  # MatrixOne's only one
_REFUSED_LOGINS = dict.fromkeys(
    ("mysql_clear_password", "mysql_old_password", "dialog", "sha256_password", "caching_sha2_password"), _Refused
)


_Wire: Any = Connection  # the published type stubs leave out what is overridden below


class _Connection(_Wire):
    """PyMySQL's connection with a short time-out for the handshake, a bound on what is read, and a way to hang up
    without reading on."""

    left: int | None = None

    def connect(self, sock: Any = None) -> None:
        timeouts, self._read_timeout = (
            self._read_timeout,
            self.connect_timeout,
        )  # a listener that stays silent fails as fast as none
        try:
            super().connect(sock)
        finally:
            self._read_timeout = timeouts

    def _get_server_information(self) -> None:
        super()._get_server_information()
        if self._auth_plugin_name in _REFUSED_LOGINS:  # else the first answer would hold the password already
            self._auth_plugin_name = _NATIVE_LOGIN

    def _read_packet(self, *kind: Any) -> Any:
        """PyMySQL joins frames of 16 MiB for as long as they come: a packet is bounded where the answer as a whole is
        not."""
        if self.left is not None:
            return super()._read_packet(*kind)
        self.left = _PACKET
        try:
            return super()._read_packet(*kind)
        finally:
            self.left = None

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        return sslp if isinstance(sslp, ssl.SSLContext) else _unchecked()  # without a context of ours: `preferred`

    def allowance(self, size: int) -> _Allowance:
        return _Allowance(self, size)

    def read_single_row(self, sql: str, longest: int) -> Cells:
        self._execute_command(COMMAND.COM_QUERY, sql)
        if self._current_timeout != self._read_timeout:
            self._sock.settimeout(self._read_timeout)
            self._current_timeout = self._read_timeout
        try:
            return read_single_row(self._rfile, longest)
        except OSError as error:  # a time-out or a reset
            raise pymysql.err.OperationalError(
                CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})"
            ) from error

    @property
    def encrypted(self) -> bool:
        return isinstance(self._sock, ssl.SSLSocket)

    def abandon(self) -> None:
        self._force_close()

    def take_result(self) -> Any:
        """The last result, which the connection would otherwise hold on to until the next one: 100 MiB where it is a
        chunk."""
        result, self._result = self._result, None
        return result

    def _read_bytes(self, num_bytes: int) -> bytes:
        if self.left is not None:
            self.left -= num_bytes
            if self.left < 0:
                self._force_close()
                raise AnswerTooLong("the answer is longer than it can be", subject="answer of the upstream")
        return super()._read_bytes(num_bytes)


def _connect(endpoint: Endpoint, password: bytes, timeouts: tuple[float, float, float]) -> _Connection:
    connect_timeout, read_timeout, write_timeout = timeouts
    about = f"upstream {endpoint.masked()}"
    try:
        return _Connection(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.login,
            password=password,
            autocommit=True,
            use_unicode=False,
            conv={},
            charset="utf8mb4",
            max_allowed_packet=_PACKET,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            write_timeout=write_timeout,
            program_name="ccpr",
            auth_plugin_map=_REFUSED_LOGINS,
            **tls_arguments(endpoint.tls),
        )
    except pymysql.err.MySQLError as error:
        raise classify(error, "connect", connecting=True, subject=about) from error
    except _NOT_THE_PROTOCOL as error:
        raise classify(_out_of_step(error), "connect", connecting=True, subject=about) from error
    except OSError as error:  # certificate files that cannot be read
        raise classify(
            pymysql.err.OperationalError(2026, str(error)), "connect", connecting=True, subject=about
        ) from error


def tls_arguments(tls: Tls) -> dict[str, Any]:
    """What PyMySQL has to be given for this way of encrypting. Raises OSError for certificate files that cannot be
    read."""
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred":
        return {}
    if tls.mode == "required":
        context = _unchecked()
    else:
        context = ssl.create_default_context(cafile=tls.ca)
        context.verify_flags &= (
            ~ssl.VERIFY_X509_STRICT
        )  # the certificates that MySQL-like servers make for themselves would not pass
        context.check_hostname = tls.mode == "verify_identity"
        context.verify_mode = ssl.CERT_REQUIRED
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, keyfile=tls.key)
    return {"ssl": context}


def _unchecked() -> ssl.SSLContext:
    """Encryption without a look at the certificate. The default context would read the system's authorities, which
    takes 27 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


__all__ = ["Answer", "Row", "Session", "classify", "integer", "text", "tls_arguments", "with_retry"]
