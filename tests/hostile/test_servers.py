"""Servers that try to get the password, or to fill our memory."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from matrixone.upstream import session as session_module
from matrixone.upstream.endpoint import Endpoint, Tls
from matrixone.upstream.errors import AccessDenied, AnswerTooLong
from matrixone.upstream.session import Session
from tests.hostile.targets.client import greeting_payload

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
        peer.settimeout(5)
        with peer:
            for answer in answers:
                peer.sendall(answer)
                received.append(peer.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Endpoint("127.0.0.1", server.getsockname()[1], "sys", "u", tls=Tls("disabled")), received
        thread.join(10)


@pytest.mark.parametrize("plugin", [b"sha256_password", b"caching_sha2_password"])
@pytest.mark.parametrize("announced", [True, False])
def test_a_server_that_asks_for_a_key_exchange_does_not_get_the_password(plugin: bytes, announced: bool) -> None:
    """The server itself would choose the key."""
    greeting = _packet(0, greeting_payload(plugin if announced else b"mysql_native_password"))
    switch = _packet(2, b"\xfe" + plugin + b"\0" + b"s" * 20 + b"\0")
    with serving(greeting, switch) as (endpoint, received), pytest.raises(AccessDenied, match="clear text"):
        Session.connect(endpoint, _SECRET, connect_timeout=5)
    assert b"mysql_native_password" in received[0]
    assert received[1] == b"", "the client hangs up and sends nothing more"


def test_a_packet_that_never_ends_is_cut_off_while_streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_PACKET", 1 << 20)
    endless = b"\xff\xff\xff\x01" + bytes(100)  # the first frame of 16 MiB, which is already too much
    with serving(_packet(0, greeting_payload()), _OK, _packet(1, _OK[4:]), endless) as (endpoint, _):
        session = Session.connect(endpoint, _SECRET, connect_timeout=5, read_timeout=5)
        with pytest.raises(AnswerTooLong):
            list(session.stream("SELECT 1"))


def test_a_packet_that_never_ends_is_cut_off_at_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_PACKET", 1 << 20)
    with serving(b"\xff\xff\xff\x00" + bytes(100)) as (endpoint, _), pytest.raises(AnswerTooLong):
        Session.connect(endpoint, _SECRET, connect_timeout=5)
