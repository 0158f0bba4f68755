"""Servers that try to get the password, or to fill our memory."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count

import pytest

from ccpr.matrixone.client import upstream_session as session_module
from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.matrixone.client.errors import (
    AccessDenied,
    AnswerTooLong,
    ConnectionLost,
    ConnectionStalled,
    SnapshotOutcomeUnknown,
    UpstreamUnreachable,
)
from ccpr.matrixone.client.limits import StallLimit, WatchedReader
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import Transient
from tests.hostile.targets.client import greeting_payload

pytestmark = pytest.mark.integration

_SECRET = "clear-secret"
_OK = b"\x07\0\0\2\0\0\0\2\0\0\0"


def _packet(sequence: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((sequence,)) + payload


@contextmanager
def serving(*answers: bytes) -> Iterator[tuple[Endpoint, list[bytes]]]:
    """A server that sends its first answer at once and one more after each message that it receives; and the messages
    received."""
    received: list[bytes] = []

    def serve() -> None:
        peer, _ = server.accept()
        peer.settimeout(60)
        with peer:
            for answer in answers:
                peer.sendall(answer)
                received.append(peer.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Endpoint("127.0.0.1", server.getsockname()[1], "sys", "u", tls=Tls("disabled")), received
        thread.join(60)


@pytest.mark.parametrize("plugin", [b"sha256_password", b"caching_sha2_password"])
@pytest.mark.parametrize("announced", [True, False])
def test_a_server_that_asks_for_a_key_exchange_does_not_get_the_password(plugin: bytes, announced: bool) -> None:
    """The server itself would choose the key."""
    greeting = _packet(0, greeting_payload(plugin if announced else b"mysql_native_password"))
    switch = _packet(2, b"\xfe" + plugin + b"\0" + b"s" * 20 + b"\0")
    with serving(greeting, switch) as (endpoint, received), pytest.raises(AccessDenied, match="clear text"):
        Session(endpoint, _SECRET, connect_timeout=60)
    assert b"mysql_native_password" in received[0]
    assert received[1] == b"", "the client hangs up and sends nothing more"


def test_a_packet_that_never_ends_is_cut_off_while_streaming() -> None:
    endless = b"\xff\xff\xff\x01" + bytes(100)  # the first frame of 16 MiB, which is already too much
    with serving(_packet(0, greeting_payload()), _OK, _packet(1, _OK[4:]), endless) as (endpoint, _):
        session = Session(endpoint, _SECRET, connect_timeout=60, read_timeout=60)
        with pytest.raises(ConnectionLost, match="not MySQL protocol"):
            list(session.stream("SELECT 1"))


def test_a_packet_that_never_ends_is_cut_off_at_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_PACKET", 1 << 20)
    with serving(b"\xff\xff\xff\x00" + bytes(100)) as (endpoint, _), pytest.raises(AnswerTooLong):
        Session(endpoint, _SECRET, connect_timeout=60)


@contextmanager
def dripping(seconds: float, *, login: bool = False) -> Iterator[Endpoint]:
    """A server that sends its answers (with `login` already the greeting) byte by byte, one in so many seconds."""

    def drip(peer: socket.socket, content: bytes) -> None:
        for place in range(len(content)):
            peer.sendall(content[place : place + 1])
            time.sleep(seconds)

    column = b"\x03def\0\0\0\1c\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0"
    end, row = b"\xfe\0\0\2\0", b"\x7c" + b"1" * 124
    answer = _packet(1, b"\1") + _packet(2, column) + _packet(3, end) + _packet(4, row) + _packet(5, end)

    def serve() -> None:
        peer, _ = server.accept()
        with peer, suppress(OSError):
            greeting = _packet(0, greeting_payload())
            if login:
                drip(peer, greeting)
            else:
                peer.sendall(greeting)
            for content in (_OK, _packet(1, _OK[4:])):
                peer.recv(1 << 16)
                peer.sendall(content)
            while peer.recv(1 << 16):
                drip(peer, answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield Endpoint("127.0.0.1", server.getsockname()[1], "sys", "u", tls=Tls("disabled"))


_SLOWEST = StallLimit(least_bytes=1000, seconds=0.5)


@pytest.mark.parametrize(
    "read",
    [
        lambda session: session.query("SELECT 1"),
        lambda session: session.read_row("SELECT 1", longest=1 << 20),
        lambda session: list(session.stream("SELECT 1")),
    ],
)
def test_a_server_that_drips_an_answer_does_not_hold_the_session(read: Callable[[Session], object]) -> None:
    """Each byte comes within the read timeout."""
    with dripping(0.05) as endpoint:
        session = Session(endpoint, "x", connect_timeout=60, read_timeout=60, retry=NO_RETRY, slowest=_SLOWEST)
        with pytest.raises(ConnectionStalled, match="fewer than 1000") as raised:  # else the answer would arrive
            read(session)
        assert isinstance(raised.value, Transient)


def test_a_snapshot_whose_answer_drips_may_exist_or_not() -> None:
    with dripping(0.05) as endpoint:
        session = Session(endpoint, "x", connect_timeout=60, read_timeout=60, retry=NO_RETRY, slowest=_SLOWEST)
        with pytest.raises(SnapshotOutcomeUnknown):
            session.query("CREATE SNAPSHOT IF NOT EXISTS `xr_1` FOR DATABASE `d` FROM `sys` PUBLICATION `p`")


def test_a_login_that_drips_is_an_upstream_that_cannot_be_reached() -> None:
    with dripping(0.05, login=True) as endpoint, pytest.raises(UpstreamUnreachable):
        Session(endpoint, "x", connect_timeout=0.5, read_timeout=60)


def test_an_answer_that_is_slow_and_not_too_slow_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking = partial(next, count(0.0, 0.01))  # each byte takes that long, however busy the machine is
    monkeypatch.setattr(session_module, "WatchedReader", partial(WatchedReader, clock=ticking))
    with dripping(0.001) as endpoint:
        slowest = StallLimit(least_bytes=10, seconds=0.5)
        session = Session(endpoint, "x", connect_timeout=60, read_timeout=60, retry=NO_RETRY, slowest=slowest)
        row = session.read_row("SELECT 1", longest=1 << 20)
        assert {name: bytes(cell or b"") for name, cell in row.items()} == {"c": b"1" * 124}
