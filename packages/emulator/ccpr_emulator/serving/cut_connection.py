"""A connection that breaks where a fault says: in the middle of a row, or in the place of an answer."""

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

from ccpr.matrixone.server.answers import ResultSet
from ccpr.matrixone.server.connection import Connection
from ccpr.matrixone.server.packets import Channel, Views, row_of
from ccpr.matrixone.server.server import Server


class CutByFault(ConnectionError):
    """An injected fault breaks the connection at this byte."""


@dataclass(frozen=True, slots=True)
class CutRows(ResultSet):
    """A result set that ends after `whole_rows` rows and `next_bytes` bytes of the next one, counted on the wire."""

    whole_rows: int = 0
    next_bytes: int = 0


@dataclass
class CutChannel(Channel):
    """`allowance` is how many bytes may still be sent before `CutByFault`; None = no limit. To be set directly after
    `flush`."""

    allowance: int | None = None

    def flush(self) -> None:
        if self.allowance is not None:
            if self.pending_bytes > self.allowance:
                self.send(list(Views(map(memoryview, self.pending)).take(self.allowance)))
                raise CutByFault("cut as asked")
            self.allowance -= self.pending_bytes
        super().flush()


class CutConnection(Connection):
    channel: CutChannel
    channel_type = CutChannel

    def write_rows(self, result: ResultSet) -> None:
        if not isinstance(result, CutRows):
            super().write_rows(result)
            return
        channel = self.channel
        for number, row in enumerate(result.rows):
            if number == result.whole_rows:
                channel.flush()
                channel.allowance = result.next_bytes
            channel.write(*row_of(row))
        if channel.allowance is not None:
            channel.flush()
            raise CutByFault("cut at the end of the rows")


class CutServer(Server):
    connection_type = CutConnection

    def crash(self, *, reset: bool = False) -> None:
        """Stop at once without closing cleanly: connections break, or are reset, new ones are refused. `stop` does the
        rest."""
        self._stopping.set()
        self._alarm.send(b"x")
        self._listener.shutdown(socket.SHUT_RDWR)
        if not reset:
            self.disconnect_all()
            return
        for one in self._connections():
            with suppress(OSError):  # it has ended already
                one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.sock.shutdown(socket.SHUT_RD)  # with only that shut it is reset when its thread closes it
