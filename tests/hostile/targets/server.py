"""Hostile clients of the emulator's server: whatever they send, it answers the next client."""

import contextlib
import random
import socket
import threading
from typing import Any

from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.matrixone.client.upstream_session import Session
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.hostile.mutate import boundary, mutated, packed, unpacked
from tests.support.recordings_location import SAMPLE

_LOGIN = (
    (0x00AFA205 | 1 << 19).to_bytes(4, "little")
    + bytes.fromhex("00000001 2d")
    + bytes(23)
    + b"sys#dump\0\x00mysql_native_password\0"
)
_STATEMENTS = (
    b"SELECT 1",
    b"select @@version_comment, database()",
    b"SHOW PUBLICATIONS",
    b"__++__internal_object_list xr_1 - sys pub",
    b"__++__internal_get_object sys pub 01a1fbac-5a80-712b-9341-80a436fbe589_00000 1",
    b"CREATE SNAPSHOT IF NOT EXISTS xr_1 FOR DATABASE db FROM sys PUBLICATION pub",
    b"SELECT dat_id FROM mo_catalog.mo_database {mo_ts = 17} WHERE datname = 'a\\'b' AND account_id = 0",
    b"SELECT mo_ctl('dn','flush','1')",
    b"SET NAMES utf8mb4",
)
_COMMANDS = (1, 2, 3, 3, 3, 3, 3, 4, 9, 14, 22, 25, 27, 31, 0, 255)
_RETRY_SECONDS = 60.0
_HEALTH_EVERY = 50


class HostileClients:
    """An input: the pieces that the client sends, one after the other, without reading an answer in between."""

    name = "clients"
    decoded_bytes = 0

    def __init__(self) -> None:
        self._broken: list[str] = []
        threading.excepthook = self._note
        self._emulator = RecordedUpstream(SAMPLE / "cut_inside_object")
        self._emulator.start()
        self._runs = 0

    def _note(self, arguments: Any) -> None:
        self._broken.append(f"{arguments.exc_type.__name__}: {arguments.exc_value}")

    def make(self, chance: random.Random) -> bytes:
        login = _frame(1, _LOGIN)
        pieces = [login if chance.random() < 0.8 else mutated(login, chance)]
        for _ in range(chance.randrange(4)):
            statement = chance.choice(_STATEMENTS)
            if chance.random() < 0.6:
                statement = mutated(statement, chance, _STATEMENTS)
            command = bytes((chance.choice(_COMMANDS),)) + statement
            packet = _frame(0, command)
            if chance.random() < 0.3:
                packet = chance.choice(
                    (
                        boundary(3, chance).to_bytes(3, "little") + b"\0" + command,
                        _frame(chance.randrange(256), command),
                        _frame(0, b""),
                        mutated(packet, chance),
                        b"\xff\xff\xff\x00" + command,
                    )
                )
            pieces.append(packet)
        return packed(pieces)

    def run(self, data: bytes) -> str:
        with (
            socket.create_connection(("127.0.0.1", self._emulator.port), timeout=_RETRY_SECONDS) as sock,
            contextlib.suppress(ConnectionError),
        ):
            for piece in unpacked(data):
                sock.sendall(piece)
            with contextlib.suppress(OSError):  # the server may have closed the connection already
                sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        self._runs += 1
        if self._runs % _HEALTH_EVERY == 1:
            self._is_alive()
        assert not self._broken, self._broken
        return "rows"

    def _is_alive(self) -> None:
        endpoint = Endpoint("127.0.0.1", self._emulator.port, "sys", "dump", tls=Tls("disabled"))
        with Session(endpoint, None, read_timeout=_RETRY_SECONDS) as session:
            assert session.query("SELECT 1").rows

    def close(self) -> None:
        self._is_alive()
        self._emulator.stop()
        threading.excepthook = threading.__excepthook__


def _frame(sequence: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((sequence,)) + payload
