"""Servers that want the password, and what the sessions with an upstream, a target and a catalog database send them."""

import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.matrixone.client.errors import AccessDenied, UpstreamUnreachable
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import CcprError
from ccpr.state.database import create_engine, transaction
from ccpr.state.errors import StateUnreadable
from ccpr.targets.address import Address
from ccpr.targets.errors import TargetTlsFailed, TargetUnavailable, TargetWantsPassword
from ccpr.targets.target_session import TargetSession

pytestmark = pytest.mark.integration

SECRET = "S3cret, in clear text"
NONCE = b"abcdefghijklmnopqrst"
NATIVE, SHA2, SHA256 = b"mysql_native_password", b"caching_sha2_password", b"sha256_password"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OK = b"\0\0\0\2\0\0\0"
_SSL, _CAPABILITIES = 1 << 11, 0x00AFF7FF & ~(1 << 11)


@dataclass
class Server:
    """A server for one login.

    Attributes
    ----------
    greeting, switch : the login that it announces, and the one that it asks for then (empty: none).
    fast : whether it says that the first exchange of caching_sha2_password is enough.
    received : the packets that it got, decrypted where they were encrypted for its key.
    """

    greeting: bytes
    switch: bytes = b""
    tls: ssl.SSLContext | None = None
    fast: bool = False
    port: int = 0
    received: list[bytes] = field(default_factory=list)
    _sequence: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator["Server"]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
            thread.start()
            yield self
        thread.join(60)

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            peer, _ = listener.accept()
            peer.settimeout(60)
            with peer:
                self._send(peer, self._greeting(), sequence=0)
                packet = self._receive(peer)
                if self.tls is not None and len(packet) == 32:
                    peer = self.tls.wrap_socket(peer, server_side=True)
                    packet = self._receive(peer)
                if self.switch:
                    self._send(peer, b"\xfe" + self.switch + b"\0" + NONCE + b"\0")
                    packet = self._receive(peer)
                if (self.switch or self.greeting) == SHA2:
                    self._send(peer, b"\1\3" if self.fast else b"\1\4")
                    if not self.fast and self._receive(peer) == b"\2":
                        public = KEY.public_key()
                        form = serialization.PublicFormat.SubjectPublicKeyInfo
                        self._send(peer, b"\1" + public.public_bytes(serialization.Encoding.PEM, form))
                        self._decrypt(self._receive(peer))
                self._send(peer, OK)
                while self._receive(peer):
                    self._send(peer, OK)

    def _greeting(self) -> bytes:
        capabilities = _CAPABILITIES | (_SSL if self.tls is not None else 0)
        low, high = (capabilities & 0xFFFF).to_bytes(2, "little"), (capabilities >> 16).to_bytes(2, "little")
        salt = NONCE[:8] + b"\0" + low + b"\x21\x02\0" + high + b"\x15" + bytes(10) + NONCE[8:] + b"\0"
        return b"\x0a8.0.36\0" + bytes(4) + salt + self.greeting + b"\0"

    def _send(self, peer: socket.socket, payload: bytes, sequence: int | None = None) -> None:
        number = self._sequence + 1 if sequence is None else sequence
        self._sequence = number
        peer.sendall(len(payload).to_bytes(3, "little") + bytes((number,)) + payload)

    def _receive(self, peer: socket.socket) -> bytes:
        head = self._exactly(peer, 4)
        payload = self._exactly(peer, int.from_bytes(head[:3], "little"))
        if head:
            self._sequence = head[3]
            self.received.append(payload)
        return payload

    def _exactly(self, peer: socket.socket, size: int) -> bytes:
        """So many bytes and no more: what comes after a request for encryption is not for this socket. Fewer at the
        end."""
        read = b""
        while len(read) < size and (chunk := peer.recv(size - len(read))):
            read += chunk
        return read

    def _decrypt(self, packet: bytes) -> None:
        masked = KEY.decrypt(packet, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
        self.received.append(bytes(byte ^ NONCE[place % 20] for place, byte in enumerate(masked)))


def to_upstream(port: int, tls: Tls) -> None:
    Session(Endpoint("127.0.0.1", port, "sys", "u", tls=tls), SECRET, connect_timeout=60).close()


def to_target(port: int, tls: Tls) -> None:
    address = Address(Endpoint("127.0.0.1", port, "sys", "u", tls=tls, account_named=False), "d")
    session = TargetSession(address, SECRET, "task")
    try:
        session.open(60)
    finally:
        session.close()


def to_catalog(port: int, tls: Tls) -> None:
    """A catalog's URL knows `preferred`, and the authority."""
    options = f"?ssl_ca={tls.ca}&ssl_check_hostname=false" if tls.ca else ""
    engine = create_engine(f"mysql+pymysql://u:{quote(SECRET)}@127.0.0.1:{port}/d{options}")
    with transaction(engine):
        pass


SESSIONS = {"upstream": to_upstream, "target": to_target, "catalog": to_catalog}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for the name `db.test`, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "db.test")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1)
    )
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture(scope="module")
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


WANTING = [
    (greeting, switch)
    for greeting in (NATIVE, SHA2, SHA256)
    for switch in (SHA2, SHA256, b"mysql_clear_password", b"mysql_old_password", b"dialog")
] + [(SHA2, b""), (SHA256, b"")]


@pytest.mark.parametrize("mode", ["disabled", "preferred", "preferred with TLS", "required"])
@pytest.mark.parametrize(("greeting", "switch"), WANTING)
@pytest.mark.parametrize("kind", SESSIONS)
def test_a_server_that_was_not_verified_never_gets_the_password(
    kind: str, greeting: bytes, switch: bytes, mode: str, tls: ssl.SSLContext
) -> None:
    encrypted = mode in ("preferred with TLS", "required")
    wanted = Tls("required" if mode == "required" else "disabled" if mode == "disabled" else "preferred")
    server = Server(greeting, switch, tls if encrypted else None)
    with server.running(), contextlib.suppress(CcprError, TypeError):
        SESSIONS[kind](server.port, wanted)
    assert server.received
    assert not [packet for packet in server.received if SECRET.encode() in packet]
    assert b"\2" not in server.received, "it did not ask for the server's key either"


@pytest.mark.parametrize("switch", [SHA2, SHA256])
def test_the_error_says_what_to_do(switch: bytes) -> None:
    for kind, error in (("upstream", AccessDenied), ("target", TargetWantsPassword), ("catalog", StateUnreadable)):
        with Server(NATIVE, switch).running() as server, pytest.raises(error, match="clear text") as raised:
            SESSIONS[kind](server.port, Tls())
        assert SECRET not in str(raised.value)
        assert kind == "upstream" or "ca=FILE" in raised.value.remedy


@pytest.mark.parametrize("switch", [SHA2, SHA256])
def test_a_database_whose_certificate_was_checked_gets_it(
    switch: bytes, certificate: Path, tls: ssl.SSLContext
) -> None:
    for connect in (to_target, to_catalog):
        server = Server(NATIVE, switch, tls)
        with server.running(), contextlib.suppress(CcprError, TypeError):  # after the login it is not a database
            connect(server.port, Tls("verify_ca", ca=str(certificate)))
        assert SECRET.encode() + b"\0" in server.received
    server = Server(NATIVE, switch, tls)
    with server.running(), pytest.raises(TargetTlsFailed):  # 127.0.0.1 is not db.test
        to_target(server.port, Tls("verify_identity", ca=str(certificate)))
    assert not [packet for packet in server.received if SECRET.encode() in packet]
    server = Server(NATIVE, switch, tls)
    with server.running(), pytest.raises(AccessDenied):  # a MatrixOne does not ask for it
        to_upstream(server.port, Tls("verify_ca", ca=str(certificate)))
    assert not [packet for packet in server.received if SECRET.encode() in packet]


@pytest.mark.parametrize("greeting", [NATIVE, SHA2])
def test_the_first_exchange_of_caching_sha2_is_a_digest_that_the_server_can_check(greeting: bytes) -> None:
    server = Server(greeting, SHA2, fast=True)
    with server.running(), contextlib.suppress(CcprError):
        to_target(server.port, Tls())
    once = hashlib.sha256(SECRET.encode()).digest()
    mask = hashlib.sha256(hashlib.sha256(once).digest() + NONCE).digest()
    assert server.received[1] == bytes(left ^ right for left, right in zip(once, mask, strict=True))
    assert len(server.received) > 2, "the session goes on"


def test_encryption_that_is_required_and_not_there_is_an_error_of_its_own() -> None:
    with Server(NATIVE).running() as server, pytest.raises(TargetTlsFailed):
        to_target(server.port, Tls("required"))
    with pytest.raises(TargetTlsFailed):
        to_target(1, Tls("verify_ca", ca="no-such-file.pem"))


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\0\0\0\x0a8.0\0", b"\1\0\0\0\x0a"])
@pytest.mark.parametrize(("connect", "error"), [(to_upstream, UpstreamUnreachable), (to_target, TargetUnavailable)])
def test_a_listener_that_speaks_something_else_is_unavailable(
    greeting: bytes, connect: Callable[[int, Tls], None], error: type[CcprError]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(greeting)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(error):
            connect(listener.getsockname()[1], Tls())
        thread.join(60)
