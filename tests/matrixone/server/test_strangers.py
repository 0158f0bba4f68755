"""Connections that have not logged in: they end in time, what is too many is refused at once, and no room for them is
noticed."""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pymysql
import pytest

from ccpr.matrixone.server import connection as module
from ccpr.matrixone.server.server import Server, peer_of
from tests.matrixone.server.test_server import serving
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

GENEROUS = 60.0


def stranger(server: Server, source: str = "127.0.0.1") -> socket.socket:
    """A connection that has its greeting, or what was said instead."""
    made = socket.create_connection(("127.0.0.1", server.port), GENEROUS, (source, 0))
    assert made.recv(1, socket.MSG_PEEK)
    return made


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + GENEROUS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_closed(made: socket.socket, piece: bytes) -> bool:
    """Send a piece; whether the other end has closed."""
    try:
        made.sendall(piece)
    except OSError:
        return True
    return False


@contextmanager
def impatient(monkeypatch: pytest.MonkeyPatch, **options: object) -> Iterator[Server]:
    monkeypatch.setattr(module, "LOGIN_SECONDS", 0.6)
    with serving(**options) as (server, _):
        yield server


@pytest.mark.parametrize("head", [b"\x60\xea\x00\x01", b"", b"\x20\x00\x00\x01" + b"\x00\x8a\x00\x00" + bytes(28)])
def test_a_login_ends_in_time_however_slowly_it_comes(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, head: bytes
) -> None:
    with impatient(monkeypatch) as server, stranger(server) as slow:
        end, piece = time.monotonic() + GENEROUS, head
        while not is_closed(slow, piece):
            assert time.monotonic() < end, "each byte has begun the time anew"
            time.sleep(0.05)
            piece = b"x"
        monkeypatch.undo()
        assert connect(server.port).one("length") == b"6"
        eventually(lambda: server.open_connections == 1)


def test_a_login_that_was_refused_ends_in_time_whatever_it_goes_on_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    with impatient(monkeypatch) as server, stranger(server) as slow:
        end, piece = time.monotonic() + GENEROUS, b"\x00\x00\x00\x09"  # a packet out of step
        while not is_closed(slow, piece):
            assert time.monotonic() < end
            time.sleep(0.05)
            piece = b"x"
        eventually(lambda: server.open_connections == 0)


def test_what_is_too_many_is_refused_and_closed_at_once(connect: Connect) -> None:
    with serving(max_connections=2) as (server, _):
        held = [stranger(server) for _ in range(2)]
        for number in range(1, 20):
            with stranger(server) as other:
                said = b""
                while piece := other.recv(1000):  # to its end: it was closed
                    said += piece
                assert b"too many connections" in said
            assert server.refused == number
            assert server.open_connections == 2
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("wire-")]
        assert len(threads) < 20
        held.pop().close()
        eventually(lambda: server.open_connections == 1)
        assert connect(server.port).one("length") == b"6"
        held.pop().close()


def test_one_address_does_not_take_the_place_of_others(connect: Connect) -> None:
    with serving(max_connections=20, max_logins=3) as (server, _):
        ours = [connect(server.port) for _ in range(8)]  # who has logged in is not counted
        held = [stranger(server) for _ in range(3)]
        with pytest.raises(pymysql.err.OperationalError, match=r"too many connections: 3 from 127\.0\.0\.1"):
            connect(server.port)
        other: Client = connect(server.port, bind_address="127.0.0.2")
        assert other.one("length") == b"6"
        held.pop().close()
        eventually(lambda: server.open_connections == 11)
        assert connect(server.port).one("length") == b"6"
        assert all(client.one("length") == b"6" for client in ours)
        for one in held:
            one.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_no_room_for_a_connection_is_noticed_and_passes(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, number: int
) -> None:
    accept = socket.socket.accept
    with serving() as (server, _):

        def full(self: socket.socket) -> object:
            if self is server._listener:
                raise OSError(number, os.strerror(number))
            return accept(self)

        assert server.trouble is None
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "accept", full)
            waiting = socket.create_connection(("127.0.0.1", server.port), GENEROUS)
            eventually(lambda: server.trouble)
            assert os.strerror(number) in (server.trouble or "")
        with waiting:
            assert waiting.recv(5), "it has waited, and is served"
        eventually(lambda: server.trouble is None)
        assert connect(server.port).one("length") == b"6"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_that_nobody_accepts_any_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> None:
        raise SystemExit

    with serving() as (server, _):
        monkeypatch.setattr(server, "_take", end)
        socket.create_connection(("127.0.0.1", server.port)).close()
        eventually(lambda: server.trouble)
        assert "has ended" in (server.trouble or "")


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_whose_an_address_is(address: str, whose: str) -> None:
    assert peer_of((address, 4711)) == whose
