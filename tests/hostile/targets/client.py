"""Hostile servers: our session reads a handshake and answers that break the protocol."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.matrixone.client.object_answers import get_object, object_list
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.retry import Retry
from ccpr.matrixone.client.table_catalog import read_catalog
from ccpr.matrixone.client.table_rows import read_differences
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Column, SqlType
from tests.hostile.mutate import boundary, mutated, packed, unpacked

SECONDS = 0.3
_ONCE = Retry(attempts=1, first_pause=0.0, longest_pause=0.0, jitter=0.0)
_PUBLICATION = Publication("pub", "sys", 0)
_NAME = "01a1fbac-5a80-712b-9341-80a436fbe589_00000"
OK, _EOF = b"\0\0\0\2\0\0\0", b"\xfe\0\0\2\0"
SECRET = b"a secret password"


class HostileServers:
    """An input: a byte that says what the client asks, the greeting, the answer to the login, and the answers to the
    statements."""

    name = "servers"
    decoded_bytes = 0

    def __init__(self) -> None:
        self.received = b""

    def make(self, chance: random.Random) -> bytes:
        ask = chance.randrange(len(_ASKS))
        answers = [_good(ask, chance) for _ in range(3)]
        greeting, login = greeted(chance)
        if chance.random() < 0.75:
            answers[0] = bad_answer(answers[0], chance)
        return packed([bytes((ask,)), greeting, login, packet(1, OK), *answers])  # an OK for SET NAMES

    def run(self, data: bytes) -> str:
        ask, *answers = unpacked(data)
        self.received = b""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(SECONDS)
            thread = threading.Thread(target=self._serve, args=(listener, answers), daemon=True)
            thread.start()
            try:
                self.talk(listener.getsockname()[1], ask[0])
            finally:
                thread.join()
                assert SECRET not in self.received, "the password went over the wire"
        return "rows"

    def talk(self, port: int, ask: int) -> None:
        """Log in, and ask what the number says."""
        endpoint = Endpoint("127.0.0.1", port, "sys", "dump", tls=Tls("disabled"))
        times = {"connect_timeout": SECONDS, "read_timeout": SECONDS, "write_timeout": SECONDS}
        with Session(endpoint, SECRET.decode(), **times, retry=_ONCE) as session:
            _ASKS[ask % len(_ASKS)](session)

    def _serve(self, listener: socket.socket, answers: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(SECONDS / 5)
                for answer in answers:
                    sock.sendall(answer)
                    if not self._receive(sock):
                        break
                sock.shutdown(socket.SHUT_WR)
                self._receive(sock)

    def _receive(self, sock: socket.socket) -> bool:
        """Whether the client sent something more."""
        with contextlib.suppress(TimeoutError):
            received = sock.recv(1 << 16)
            self.received += received
            return bool(received)
        return False

    def close(self) -> None:
        pass


def _ask_chunk(session: Session) -> None:
    for chunk in get_object(session, _PUBLICATION, _NAME, 300):
        assert len(chunk) <= 300


def _ask_list(session: Session) -> None:
    for batch in object_list(session, "xr_1", _PUBLICATION, against=None):
        batch.validate(full=True)


_KINDS = {
    "i": (types.INT32, 32, -1), "u": (types.UINT64, 64, -1), "b": (types.BIT, 10, -1), "d": (types.DECIMAL64, 9, 2),
    "t": (types.TIME, 6, 6), "m": (types.DATETIME, 6, 6), "x": (types.TEXT, 0, 0), "v": (types.VECF32, 2, 0),
    "f": (types.FLOAT64, 0, -1), "e": (types.ENUM, 0, 0),
}  # fmt: skip
_ROW = (
    b"t",
    b"UPDATE",
    b"1",
    b"2",
    b"\0\5",
    b"1.50",
    b"-10:00:00.500000",
    b"2026-01-01 10:00:00",
    b"x",
    b"[1, 2]",
    b"NaN",
    b"2",
)


def _ask_difference(session: Session) -> None:
    columns = [Column(name, place, SqlType(*kind)) for place, (name, kind) in enumerate(_KINDS.items())]
    for batch in read_differences(session, "DATA BRANCH DIFF", columns):
        batch.validate(full=True)


_ASKS: tuple[Callable[[Session], Any], ...] = (
    lambda session: session.query("SELECT 1"),
    lambda session: list(session.stream("SELECT 1")),
    _ask_chunk,
    _ask_list,
    lambda session: upstream_snapshots.snapshot_timestamp(session, "xr_1", _PUBLICATION),
    lambda session: read_catalog(session, _PUBLICATION, "db", "xr_1", Timestamp(5)),
    lambda session: upstream_snapshots.drop_snapshot(session, "xr_1", _PUBLICATION),
    _ask_difference,
)
_COLUMNS: tuple[tuple[bytes, ...], ...] = (
    (b"a",),
    (b"a", b"b"),
    (b"data", b"total_size", b"chunk_index", b"total_chunks", b"is_complete"),
    (b"db name", b"table name", b"stats", b"create_at", b"delete_at", b"is_tombstone"),
    (b"snapshotts",),
    (b"dat_id", b"datname"),
    (),
    (b"diff t against t", b"flag", *(name.encode() for name in _KINDS)),
)


def _good(ask: int, chance: random.Random) -> bytes:
    """A valid answer to what will be asked."""
    columns = _COLUMNS[ask]
    if not columns:
        return packet(1, OK)
    rows: list[tuple[bytes | None, ...]] = [
        tuple(chance.randbytes(chance.randrange(40)) for _ in columns) for _ in range(chance.randrange(4))
    ]
    if ask == 2:
        rows = [(bytes(300), b"300", b"1", b"1", b"1")]
    elif ask == 3:
        rows = [(b"db", b"t", bytes(154), b"1-0", b"0-0", b"1"), (b"db", None, bytes(154), b"1-0", b"0-0", b"0")]
    elif ask == 4:
        rows = [(chance.choice((b"17", b"-1", b"9" * 19, None)),)]
    elif ask == 7:
        rows = [
            _ROW,
            *([(*_ROW[:2], *chance.choices((*_ROW, None, b""), k=len(_KINDS)))] if chance.random() < 0.5 else []),
        ]
    return result_set(columns, rows)


def result_set(columns: tuple[bytes, ...], rows: list[tuple[bytes | None, ...]]) -> bytes:
    payloads = [_length(len(columns))]
    payloads += [
        b"\3def\0\0\0" + _text(name) + _text(name) + b"\x0c\x21\0\xff\xff\0\0\xfd\0\0\0\0\0" for name in columns
    ]
    payloads += [_EOF, *(b"".join(b"\xfb" if cell is None else _text(cell) for cell in row) for row in rows), _EOF]
    return b"".join(packet(1 + number, payload) for number, payload in enumerate(payloads))


def greeted(chance: random.Random) -> tuple[bytes, bytes]:
    """A greeting and the answer to the login; one of them is bad at times."""
    greeting, login, choice = packet(0, greeting_payload()), packet(2, OK), chance.random()
    if choice < 0.12:
        greeting = _bad_packet(greeting, chance)
    elif choice < 0.25:
        login = chance.choice(_LOGINS) if chance.random() < 0.6 else _bad_packet(login, chance)
    return greeting, login


def bad_answer(answer: bytes, chance: random.Random) -> bytes:
    packets = _packets(answer)
    edit = chance.randrange(9)
    if edit == 0:
        return mutated(answer, chance)
    if edit == 1:  # a wrong number of columns
        packets[0] = packet(1, _length(boundary(chance.choice((1, 2, 3, 8)), chance)))
    elif edit == 2:  # a frame with a wrong length
        number = chance.randrange(len(packets))
        packets[number] = boundary(3, chance).to_bytes(3, "little") + packets[number][3:]
    elif edit == 3:
        number = chance.randrange(len(packets))
        packets[number] = packets[number][:3] + bytes((chance.randrange(256),)) + packets[number][4:]
    elif edit == 4:
        odd = (
            b"\xff",
            b"\xff\x51",
            b"\xff\x51\x04#",
            b"\xff\x85\x4e#HY000" + chance.randbytes(30),
            b"\xff\xff\xff#\xff\xff\xff\xff\xff\xf0",
        )
        number = chance.randrange(len(packets))
        packets[number] = packet(1 + number, chance.choice(odd))
    elif edit == 5:
        del packets[chance.randrange(len(packets)) :]
    elif edit == 6:
        chance.shuffle(packets)
    elif edit == 7:
        odd = (
            b"\xfb/etc/passwd",
            b"",
            b"\xfe",
            b"\xfe" + bytes(8),
            b"\xfd\xff\xff\xff",
            b"\xfe" + b"\xff" * 8,
            b"\0" * 3,
            b"\xfb",
        )
        number = chance.randrange(len(packets))
        packets[number] = packet(1 + number, chance.choice(odd))
    else:
        number = chance.randrange(len(packets))
        payload = mutated(packets[number][4:] or b"\0", chance)
        packets[number] = packet(1 + number, payload[:60_000])
    return b"".join(packets)


def _bad_packet(good: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return packet(good[3], mutated(good[4:], chance)[:60_000])
    return mutated(good, chance)


def greeting_payload(plugin: bytes = b"mysql_native_password", capabilities: int = 0x00AFF7FF & ~(1 << 11)) -> bytes:
    low, high = (capabilities & 0xFFFF).to_bytes(2, "little"), (capabilities >> 16).to_bytes(2, "little")
    salt = b"abcdefghijklmnopqrst"
    return (
        b"\x0a8.0.30-MatrixOne\0"
        + bytes(4)
        + salt[:8]
        + b"\0"
        + low
        + b"\x21\x02\0"
        + high
        + b"\x15"
        + bytes(10)
        + salt[8:]
        + b"\0"
        + plugin
        + b"\0"
    )


def _switch(plugin: bytes) -> bytes:
    return b"\xfe" + plugin + b"\0" + b"abcdefghijklmnopqrst\0"


def packet(sequence: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((sequence & 0xFF,)) + payload


def _packets(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        length = 4 + int.from_bytes(data[at : at + 3], "little")
        found.append(data[at : at + length])
        at += length
    return found


def _length(number: int) -> bytes:
    return bytes((number,)) if number < 0xFB else b"\xfe" + number.to_bytes(8, "little")


def _text(value: bytes) -> bytes:
    return _length(len(value)) + value


_PLUGINS = (
    b"mysql_clear_password",
    b"mysql_old_password",
    b"dialog",
    b"caching_sha2_password",
    b"sha256_password",
    b"client_ed25519",
    b"\xff\xfe",
    b"",
)
_LOGINS = (
    *(packet(2, _switch(plugin)) for plugin in _PLUGINS),
    packet(2, b"\1\4"),
    packet(2, b"\1\3"),
    packet(2, b"\xfe"),
    packet(2, b"\xff"),
)
