"""A connection to a target that can send rows: LOAD DATA LOCAL from memory, and never a file.

The protocol lets the server ask for a file by any name at any time. This connection answers a single request: the one
for the random name that is in the statement under way, with the rows of that statement. Any other request ends the
connection.
"""

import secrets
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pymysql
from pymysql import connections
from pymysql.constants import COMMAND, CR

from ccpr.matrixone.client.login_guard import NOT_THE_PROTOCOL, GuardedConnection, out_of_step, tls_arguments
from ccpr.matrixone.errors import CcprError
from ccpr.targets.address import Address
from ccpr.targets.encoding import LoadColumn, encode, load_statement
from ccpr.targets.errors import FileRequestRefused, TargetKeyRefused, TargetTlsFailed, TargetValueRefused

_PACKET = 256 << 10
_LONGEST_ANSWER = 1 << 30  # bytes; what a target answers is about its definitions, never rows
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 3600  # the answer to an INSERT … SELECT of a large delta takes its time
_SQL_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
# Rows from a slow store may take long. A reader of a table must not block us, and all others that wait after us, for a
# day.
_TIMEOUTS = (
    "wait_timeout = 3600, net_read_timeout = 3600, net_write_timeout = 3600, "
    "lock_wait_timeout = 60, innodb_lock_wait_timeout = 60"
)
# A server's own settings could disable warnings, limit a statement's seconds, or refuse DELETE without WHERE.
_PLAIN = "max_error_count = 64, sql_safe_updates = 0 /*M!, max_statement_time = 0 */"
_SETTINGS = f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00', {_TIMEOUTS}, {_PLAIN}"
# MatrixOne knows neither the timeouts of InnoDB nor comments that are run, and keeps its own isolation.
_SETTINGS_OF_MATRIXONE = f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00', wait_timeout = 3600"
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_SHOWN_WARNINGS = 3
_DUPLICATE = 1062


_pymysql: Any = connections


class LoadingConnection(GuardedConnection):
    """A guarded connection with `load` in place of files. Bytes that do not follow the protocol, and answers beyond
    what a target can have to say, end it with PyMySQL's OperationalError."""

    subject: str
    _left: int | None = None  # bytes that may still be read; None for no limit

    def __init__(
        self,
        address: Address,
        password: str | None,
        *,
        connect_seconds: float = _CONNECT_SECONDS,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        """Connects. Raises pymysql's errors, TargetTlsFailed, FileRequestRefused."""
        self.subject = f"target {address.masked()}"
        try:
            tls = tls_arguments(address.endpoint.tls)
        except OSError as error:
            raise TargetTlsFailed(f"a certificate file cannot be read: {error}", subject=self.subject) from error
        super().__init__(
            sha2=True,
            host=address.endpoint.host,
            port=address.endpoint.port,
            user=address.endpoint.login,
            password=(password or "").encode(),
            database=address.database,
            charset="utf8mb4",
            local_infile=True,
            connect_timeout=connect_seconds,
            read_timeout=answer_seconds,
            write_timeout=answer_seconds,
            program_name="ccpr",
            defer_connect=True,
            **tls,
        )
        # The server knows that we can send rows, but PyMySQL itself must never open the file that it asks for.
        self._local_infile = False
        with self._bounded():
            self.connect()

    def connect(self, sock: Any = None) -> None:
        timeout, self._read_timeout = self._read_timeout, self.connect_timeout
        try:
            super().connect(sock)
            of_matrixone = "matrixone" in self.get_server_info().lower()
            for statement in (_SETTINGS_OF_MATRIXONE,) if of_matrixone else (_SETTINGS, _ISOLATION):
                self.query(statement)
        except pymysql.err.OperationalError as error:
            cause = getattr(error, "original_exception", None)
            if isinstance(cause, ssl.SSLError) or error.args[0] == CR.CR_SSL_CONNECTION_ERROR:
                raise TargetTlsFailed(f"{cause or error.args[1]}"[:500], subject=self.subject) from error
            raise
        finally:
            self._read_timeout = timeout

    def _read_query_result(self, unbuffered: bool = False) -> int:
        with self._bounded():
            try:
                return super()._read_query_result(unbuffered)
            except RuntimeError as error:  # PyMySQL's error for a request that it does not answer
                self._force_close()
                raise FileRequestRefused(
                    "the server asked for a file where none was offered", subject=self.subject
                ) from error

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """The block reads an answer: at most _LONGEST_ANSWER bytes, and by the protocol."""
        before, self._left = self._left, _LONGEST_ANSWER
        try:
            yield
        except NOT_THE_PROTOCOL as error:
            self._force_close()
            raise out_of_step(error) from error
        finally:
            self._left = before

    def _read_bytes(self, num_bytes: int) -> bytes:
        if self._left is not None:
            self._left -= num_bytes
            if self._left < 0:
                self._force_close()
                raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, "the answer is longer than it can be")
        return super()._read_bytes(num_bytes)

    def changed(self, statement: str, arguments: Sequence[object] | None = None) -> int:
        """Run one statement. Returns how many rows it changed."""
        with self.cursor() as cursor:
            return cursor.execute(statement, arguments)

    def rows(self, statement: str, arguments: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        with self.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    def load(
        self, table: str, columns: tuple[LoadColumn, ...], rows: Iterable[pa.Table | pa.RecordBatch], subject: str
    ) -> int:
        """Append rows to a table (its name is quoted). Returns how many. The caller's transaction has to be rolled back
        after an error.

        LOAD DATA LOCAL turns bad values and duplicate keys into warnings, in strict mode too: any warning is
        TargetValueRefused. Raises what `rows` raises, DeltaUnfit, FileRequestRefused, pymysql's errors.
        """
        sent = 0

        def counted() -> Iterable[pa.Table | pa.RecordBatch]:
            nonlocal sent
            for piece in rows:
                sent += piece.num_rows
                yield piece

        token = f"ccpr-{secrets.token_hex(16)}"
        result = self._exchange(load_statement(token, table, columns), token, encode(counted(), columns, subject))
        if result.warning_count or result.affected_rows != sent:
            raise self._complaint(sent, result.affected_rows, subject)
        return sent

    def _exchange(self, statement: str, token: str, pieces: Iterable[pa.Buffer]) -> Any:
        self._execute_command(COMMAND.COM_QUERY, statement)
        with self._bounded():
            packet = self._read_packet()
            if not packet.is_load_local_packet():
                self._force_close()
                raise pymysql.err.OperationalError(CR.CR_COMMANDS_OUT_OF_SYNC, "the server did not ask for the rows")
            asked = _pymysql.LoadLocalPacketWrapper(packet).filename
        if asked != token.encode():
            self._force_close()
            raise FileRequestRefused(
                "the server asked for another file than the rows it was offered", subject=self.subject
            )
        problem: BaseException | None = None
        try:
            for piece in pieces:
                view = memoryview(piece)
                for start in range(0, len(view), _PACKET):
                    self.write_packet(view[start : start + _PACKET])
        except CcprError as error:  # of the rows: end them for the server, and the caller rolls back what was sent
            problem = error
        except BaseException:
            self._force_close()
            raise
        if problem is not None:
            with suppress(pymysql.err.MySQLError):
                self._end_of_rows()
            raise problem
        return self._end_of_rows()

    def _end_of_rows(self) -> Any:
        self.write_packet(b"")
        answer = _pymysql.MySQLResult(self)
        with self._bounded():
            answer._read_ok_packet(self._read_packet())
        answer.connection = None
        if answer.server_status is not None:
            self.server_status = answer.server_status
        return answer

    def _complaint(self, sent: int, stored: int, subject: str) -> TargetValueRefused:
        shown: list[Any] = []
        with suppress(pymysql.err.MySQLError), self.cursor() as cursor:
            cursor.execute(f"SHOW WARNINGS LIMIT {_SHOWN_WARNINGS}")
            shown = list(cursor.fetchall())
        reason = "; ".join(str(message)[:200] for _, _, message in shown) or f"{sent} rows were sent, {stored} stored"
        kind = TargetKeyRefused if any(number == _DUPLICATE for _, number, _ in shown) else TargetValueRefused
        return kind(f"the target does not store a value as it is: {reason}", subject=subject)
