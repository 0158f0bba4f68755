"""One MySQL connection to the upstream: answers are bytes, errors are typed.

Source: docs/upstream.md 2 and 5.1. A session belongs to one thread at a time.
"""

import errno
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

import pymysql
from pymysql.constants import COMMAND, CR

from ccpr.matrixone.client.answer_packets import Cells, read_single_row, too_long
from ccpr.matrixone.client.classification import classify
from ccpr.matrixone.client.column_stream import AnswerColumns, column_places, read_columns
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.errors import BadAnswer, UpstreamError, UpstreamUnreachable
from ccpr.matrixone.client.limits import StallLimit, WatchedReader, stall_limit
from ccpr.matrixone.client.login_guard import NOT_THE_PROTOCOL, GuardedConnection, out_of_step, tls_arguments
from ccpr.matrixone.client.retry import DEFAULT_RETRY, Policy, with_retry
from ccpr.matrixone.errors import Terminal

Row = tuple[bytes | None, ...]
_Result = TypeVar("_Result")
READ_SECONDS = 120.0  # an object list that the upstream reads from checkpoints can take a minute to its first byte
LONGEST_ANSWER = 1 << 30  # bytes; a catalog with a million columns is far smaller
_PACKET = 128 << 20  # above the 100 MiB of an object's chunk
_SERVER_NUMBERS = 1000, 2000, 3000  # server errors start at 1000; 2000 to 2999 are the client library's own
_PANIC = 1105
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_MORE_DESCRIPTORS = "Let the process have more open files: `ulimit -n` of its shell, or LimitNOFILE= of its unit."


@dataclass(frozen=True, slots=True)
class Answer:
    """A result set.

    Attributes
    ----------
    columns : names, in the order of the answer.
    types : MySQL type codes, one a column.
    rows : cells as the bytes of the text protocol; None for NULL.
    """

    columns: tuple[str, ...]
    types: tuple[int, ...]
    rows: list[Row]

    def places(self, *names: str) -> tuple[int, ...]:
        """The positions of these columns, as `column_places`. Raises BadAnswer."""
        return column_places(self.columns, names)

    def select(self, *names: str) -> Iterator[Row]:
        """The rows with only these columns, in this order."""
        places = self.places(*names)
        return (tuple(row[place] for place in places) for row in self.rows)


def integer(cell: bytes | None, what: str, *, least: int = -(2**63), greatest: int = 2**63 - 1) -> int:
    """A whole number from its text; by default one of 64 bits, which is what the state database stores. Raises
    BadAnswer."""
    if cell is None or not cell.removeprefix(b"-").isdigit() or len(cell) > 20:
        raise BadAnswer(f"{what} is not a whole number: {cell!r:.60}", subject=what)
    number = int(cell)
    if not least <= number <= greatest:
        raise BadAnswer(f"{what} is not between {least} and {greatest}: {number}", subject=what)
    return number


def text(cell: bytes | None, what: str) -> str:
    """UTF-8 text; NULL is empty. Raises BadAnswer."""
    try:
        return (cell or b"").decode()
    except UnicodeDecodeError as error:
        raise BadAnswer(f"{what} is not UTF-8", subject=what) from error


class Session:
    """A login at the upstream. Use it as a context manager.

    After a failed read the connection is closed, since the next bytes could belong to the old answer; the next
    statement connects again. So it is after an error that may pass, since a new login may reach another node. After
    other errors that the server itself reports the connection stays in use.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        password: str | None,
        *,
        connect_timeout: float = 10.0,
        read_timeout: float = READ_SECONDS,
        write_timeout: float = 60.0,
        retry: Policy = DEFAULT_RETRY,
        slowest: StallLimit | None = None,
    ) -> None:
        """Log in, without retries: an unreachable host or a wrong password is an error at once.

        Times are seconds. `connect_timeout` bounds each wait until the login is done; afterwards `read_timeout` is the
        longest wait for the next bytes, not for a whole answer. An answer that comes slower than `slowest` (None: as
        the environment says) is ConnectionStalled. Raises UpstreamUnreachable, AccessDenied, TlsFailed.
        """
        self.endpoint = endpoint
        self.retry = retry
        self._password = (password or "").encode()  # PyMySQL would encode it as Latin-1
        self._timeouts = connect_timeout, read_timeout, write_timeout
        self._slowest = slowest or stall_limit()
        self._connection: _Connection | None = None
        self.opened = 0  # how many connections there have been
        self._streaming = False
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.endpoint.masked()})"

    def query(
        self, sql: str, *, longest: int = LONGEST_ANSWER, answers: tuple[type[UpstreamError], ...] = ()
    ) -> Answer:
        """Run one statement, without retries, and read its whole answer. Raises AnswerTooLong for more than `longest`
        bytes. `answers`: errors that are an answer to it, so the connection stays in use after them."""

        def read(connection: _Connection) -> Answer:
            with connection.allowance(longest):
                connection.query(sql)
            return _answer(connection)

        return self._run(sql, read, answers)

    def read(
        self,
        sql: str,
        *,
        longest: int = LONGEST_ANSWER,
        also: tuple[type[Exception], ...] = (),
        answers: tuple[type[UpstreamError], ...] = (),
    ) -> Answer:
        """`query`, repeated after transient errors and those of `also`: only for statements that may run twice."""
        return with_retry(lambda: self.query(sql, longest=longest, answers=answers), self.retry, also=also)

    def read_row(self, sql: str, *, longest: int) -> Cells:
        """The cells of an answer of one row, by the names of the columns; repeated after transient errors.

        For large cells: all are views of one buffer. Raises AnswerTooLong for more than `longest` bytes, BadAnswer for
        another number of rows.
        """
        return with_retry(
            lambda: self._run(sql, lambda connection: connection.read_single_row(sql, longest)), self.retry
        )

    def _run(
        self, sql: str, read: "Callable[[_Connection], _Result]", answers: tuple[type[UpstreamError], ...] = ()
    ) -> _Result:
        """The result of `read` on the connection. Its errors are typed, and the connection is closed if part of an
        answer may be left on it."""
        connection = self._open()
        done = False
        try:
            result = read(connection)
            done = True
        except (pymysql.err.MySQLError, *NOT_THE_PROTOCOL) as error:
            typed = _typed(error, sql)
            done = _in_step(error) and isinstance(typed, (Terminal, *answers))
            raise typed from error
        finally:  # also after KeyboardInterrupt
            if not done:
                self._drop()
        return result

    def stream(self, sql: str, *, longest: int = LONGEST_ANSWER) -> Iterator[AnswerColumns]:
        """Run one statement, without retries, and yield its answer as columns, some MB at a time: no more is in
        memory. An empty answer is one piece without rows. Raises AnswerTooLong for more than `longest` bytes.

        Nothing else can run on the session until the end. If the stream fails, or is closed before its end, the
        connection is closed.
        """
        connection = self._open()
        self._streaming = True
        done = False
        try:
            yield from connection.read_columns(sql, longest)
            done = True
        except (pymysql.err.MySQLError, *NOT_THE_PROTOCOL) as error:
            raise _typed(error, sql) from error
        finally:
            self._streaming = False
            if not done:
                self._drop()

    def wake(self) -> None:
        """Before a session is used that was idle: if the server has ended the connection, connect again. Without it the
        first statement would fail, and one that may not run twice is not repeated. Raises as the constructor."""
        connection = self._connection
        if connection is not None and connection.open:
            try:
                connection.ping(reconnect=False)
            except (pymysql.err.MySQLError, *NOT_THE_PROTOCOL):
                self._drop()
        self._open()

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted. Connects if there is no connection."""
        return self._open().encrypted

    def close(self) -> None:
        """Log out. If the session is used again, it connects again."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _open(self) -> "_Connection":
        if self._streaming:
            raise RuntimeError("an answer is still being read on this session")
        if self._connection is None or not self._connection.open:
            self._connection = _connect(self.endpoint, self._password, self._timeouts, self._slowest)
            self.opened += 1
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._force_close()


def _typed(error: Exception, sql: str) -> UpstreamError:
    return classify(error if isinstance(error, pymysql.err.MySQLError) else out_of_step(error), sql)


def _in_step(error: Exception) -> bool:
    """Whether the error is one that the server reported, after which the connection can be used. Not after a panic."""
    number = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
    first, lost, after = _SERVER_NUMBERS
    return isinstance(number, int) and number >= first and not lost <= number < after and number != _PANIC


def _answer(connection: "_Connection") -> Answer:
    """Raises ValueError for a row with another number of cells: PyMySQL reads a packet that ends early as a short
    row."""
    result = connection.take_result()
    described = result.description or ()
    rows: list[Row] = list(result.rows or ())
    if any(len(row) != len(described) for row in rows):
        raise ValueError(f"a row does not have {len(described)} cells")
    return Answer(tuple(column[0] for column in described), tuple(column[1] for column in described), rows)


# PyMySQL has no public way to do the following, so private members of it are overridden and used here. Tests in
# tests/matrixone/client/test_session.py fail if a version of PyMySQL no longer has them, or uses them differently.
#   _read_bytes, _read_packet                         limit how many bytes of an answer, and of one packet, are read
#   _execute_command, _rfile                          watch how fast an answer comes
#   _execute_command, _rfile, _sock, _current_timeout read a large row, or many rows, without PyMySQL's copies of them
#   _force_close                                      hang up in the middle of an answer
#   _result                                           release a large result


class _Connection(GuardedConnection):
    """A guarded connection with limits for what is read and how slowly, and a way to hang up in the middle of an
    answer."""

    left: int | None = None  # bytes that may still be read; None for no limit
    _reader: io.BufferedReader | None = None
    _watched: WatchedReader | None = None

    def __init__(self, slowest: StallLimit, **options: Any) -> None:
        self._slowest = slowest
        super().__init__(**options)

    def connect(self, sock: Any = None) -> None:
        # A login is a few short packets: one that takes longer than the connection may take does not end.
        slowest, self._slowest = self._slowest, replace(self._slowest, seconds=self.connect_timeout)
        try:
            super().connect(sock)
        finally:
            self._slowest = slowest

    @property
    def _rfile(self) -> Any:
        return self._reader

    @_rfile.setter
    def _rfile(self, file: Any) -> None:
        self._watched = None if file is None else WatchedReader(file.detach(), self._slowest)
        self._reader = None if self._watched is None else io.BufferedReader(self._watched)

    def _execute_command(self, command: int, sql: Any) -> None:
        super()._execute_command(command, sql)
        if self._watched is not None:
            self._watched.begin(self._slowest)

    def _read_packet(self, *kind: Any) -> Any:
        """Limits a packet where there is no limit for the whole answer: PyMySQL joins frames of 16 MiB for as long as
        they arrive."""
        if self.left is not None:
            return super()._read_packet(*kind)
        with self.allowance(_PACKET):
            return super()._read_packet(*kind)

    @contextmanager
    def allowance(self, size: int) -> Iterator[None]:
        """Inside it at most so many bytes are read, so that an answer cannot fill the memory."""
        self.left = size
        try:
            yield
        finally:
            self.left = None

    def read_single_row(self, sql: str, longest: int) -> Cells:
        with self._answer_to(sql) as stream:
            return read_single_row(stream, longest)

    def read_columns(self, sql: str, longest: int) -> Iterator[AnswerColumns]:
        with self._answer_to(sql) as stream:
            yield from read_columns(stream, longest)

    @contextmanager
    def _answer_to(self, sql: str) -> Iterator[Any]:
        """Sends the statement; what comes is read from the stream. A timeout and a reset are a lost connection."""
        self._execute_command(COMMAND.COM_QUERY, sql)
        if self._current_timeout != self._read_timeout:
            self._sock.settimeout(self._read_timeout)
            self._current_timeout = self._read_timeout
        try:
            yield self._rfile
        except OSError as error:
            raise pymysql.err.OperationalError(
                CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})"
            ) from error

    def take_result(self) -> Any:
        """The last result. The connection releases it; it would otherwise keep it until the next one."""
        result, self._result = self._result, None
        return result

    def _read_bytes(self, num_bytes: int) -> bytes:
        if self.left is not None:
            self.left -= num_bytes
            if self.left < 0:
                self._force_close()
                too_long()
        return super()._read_bytes(num_bytes)


def _connect(
    endpoint: Endpoint, password: bytes, timeouts: tuple[float, float, float], slowest: StallLimit
) -> _Connection:
    connect_timeout, read_timeout, write_timeout = timeouts
    about = f"upstream {endpoint.masked()}"
    try:
        return _Connection(
            slowest,
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
            sha2=False,
            **tls_arguments(endpoint.tls),
        )
    except pymysql.err.MySQLError as error:
        if getattr(getattr(error, "original_exception", None), "errno", None) in _NO_DESCRIPTORS:
            raise UpstreamUnreachable(
                "no descriptor is free for the connection", subject=about, remedy=_MORE_DESCRIPTORS
            ) from error
        raise classify(error, "connect", connecting=True, subject=about) from error
    except NOT_THE_PROTOCOL as error:
        raise classify(out_of_step(error), "connect", connecting=True, subject=about) from error
    except OSError as error:  # certificate files that cannot be read
        raise classify(
            pymysql.err.OperationalError(2026, str(error)), "connect", connecting=True, subject=about
        ) from error
