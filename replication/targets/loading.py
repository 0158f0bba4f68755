"""A connection to a target that can send rows: LOAD DATA LOCAL from memory, and never a file.

The protocol lets the server ask for a file by any name at any time. This connection answers a single request: the one
for the random name that is in the statement under way, with the rows of that statement. Any other request ends the
connection.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql import connections
from pymysql.connections import Connection
from pymysql.constants import COMMAND, CR

from matrixone.errors import CcprError
from matrixone.upstream.session import tls_arguments
from replication.targets.address import Address
from replication.targets.encoding import LoadColumn, encode, load_statement
from replication.targets.errors import FileRequestRefused, TargetValueRefused

_PACKET = 256 << 10
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
SETTINGS = f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00', {_TIMEOUTS}, {_PLAIN}"
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_SHOWN_WARNINGS = 3


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Replaces the login methods that send the password in clear text."""

    connection: Connection

    def authenticate(self, packet: object) -> None:
        raise pymysql.err.OperationalError(1045, "the server asks for the password in clear text, which is refused")


_REFUSED_LOGINS = dict.fromkeys(("mysql_clear_password", "mysql_old_password", "dialog"), _Refusal)
_Wire: Any = Connection  # the published type stubs lack what is used below
_pymysql: Any = connections


class LoadingConnection(_Wire):
    """PyMySQL's connection, with `load` in place of files."""

    subject: str

    def __init__(self, address: Address, password: str | None, *, connect_seconds: float = _CONNECT_SECONDS) -> None:
        """Connects. Raises pymysql's errors, and FileRequestRefused."""
        self.subject = f"target {address.masked()}"
        super().__init__(
            host=address.endpoint.host,
            port=address.endpoint.port,
            user=address.endpoint.login,
            password=(password or "").encode(),
            database=address.database,
            charset="utf8mb4",
            local_infile=True,
            connect_timeout=connect_seconds,
            read_timeout=_ANSWER_SECONDS,
            write_timeout=_ANSWER_SECONDS,
            program_name="ccpr",
            auth_plugin_map=_REFUSED_LOGINS,
            init_command=SETTINGS,
            defer_connect=True,
            **tls_arguments(address.endpoint.tls),
        )
        # The server knows that we can send rows, but PyMySQL itself must never open the file that it asks for.
        self._local_infile = False
        self.connect()

    def connect(self, sock: Any = None) -> None:
        # A listener that stays silent fails as fast as no listener.
        timeout, self._read_timeout = self._read_timeout, self.connect_timeout
        try:
            super().connect(sock)
            self.query(ISOLATION)
        finally:
            self._read_timeout = timeout

    def _read_query_result(self, unbuffered: bool = False) -> int:
        try:
            return super()._read_query_result(unbuffered)
        except RuntimeError as error:  # PyMySQL's error for a request that it does not answer
            self._force_close()
            raise FileRequestRefused(
                "the server asked for a file where none was offered", subject=self.subject
            ) from error

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
            raise TargetValueRefused(self._complaint(sent, result.affected_rows), subject=subject)
        return sent

    def _exchange(self, statement: str, token: str, pieces: Iterable[pa.Buffer]) -> Any:
        self._execute_command(COMMAND.COM_QUERY, statement)
        packet = self._read_packet()
        if not packet.is_load_local_packet():
            self._force_close()
            raise pymysql.err.OperationalError(CR.CR_COMMANDS_OUT_OF_SYNC, "the server did not ask for the rows")
        if _pymysql.LoadLocalPacketWrapper(packet).filename != token.encode():
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
        answer._read_ok_packet(self._read_packet())
        answer.connection = None
        if answer.server_status is not None:
            self.server_status = answer.server_status
        return answer

    def _complaint(self, sent: int, stored: int) -> str:
        shown: list[Any] = []
        with suppress(pymysql.err.MySQLError), self.cursor() as cursor:
            cursor.execute(f"SHOW WARNINGS LIMIT {_SHOWN_WARNINGS}")
            shown = list(cursor.fetchall())
        reason = "; ".join(str(message)[:200] for _, _, message in shown) or f"{sent} rows were sent, {stored} stored"
        return f"the target does not store a value as it is: {reason}"
