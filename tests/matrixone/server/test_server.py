import ipaddress
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mysql.connector
import pymysql
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ccpr.matrixone.server.answers import BLOB_TEXT, ResultColumn, ResultSet, StatementError
from ccpr.matrixone.server.packets import MAX_FRAME, OK, Channel
from ccpr.matrixone.server.server import Server
from ccpr.matrixone.server.wrong_passwords import native_scramble
from tests.support.waiting import until
from tests.support.wire_client import Connect

pytestmark = pytest.mark.integration

BLOB = (ResultColumn("data", BLOB_TEXT), ResultColumn("after", 8))


@dataclass
class Echo:
    """Answers `size N` with a cell of N bytes, `length` with the statement's length, `fail N text` with an error."""

    closed: list[int] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    def open(self, user: str, connection_id: int) -> "EchoSession":
        self.users.append(user)
        return EchoSession(self, connection_id)


@dataclass
class EchoSession:
    engine: Echo
    number: int

    def use(self, database: str) -> None:
        if database == "nowhere":
            raise StatementError(1049, "Unknown database nowhere", "42000")

    def split(self, text: bytes) -> list[bytes]:
        return [text]

    def query(self, text: bytes) -> ResultSet | None:
        words = text.split(b" ", 2)
        if words[0] == b"size":
            size = int(words[1])
            pattern = bytes(range(256))
            return ResultSet(BLOB, ((memoryview(pattern * (size // 256 + 1))[:size], size), (None, 7)))
        if words[0] == b"length":
            return ResultSet((ResultColumn("length", 8),), ((len(text),),))
        if words[0] == b"fail":
            raise StatementError(int(words[1]), words[2].decode(), "XY123")
        return None

    def close(self) -> None:
        self.engine.closed.append(self.number)


@contextmanager
def serving(**options: object) -> Iterator[tuple[Server, Echo]]:
    engine = Echo()
    server = Server(engine, **options)  # type: ignore[arg-type]
    server.start()
    try:
        yield server, engine
    finally:
        server.stop()


@pytest.mark.parametrize(
    "size",
    [
        *(0, 1, 250, 251, 65535, 65536),
        # The row's payload is 4 (below 16 MiB) or 9 bytes of length, the cell, and the second cell with its one byte
        # of length.
        *(MAX_FRAME - 4 - 9 - 1, MAX_FRAME - 4 - 9, MAX_FRAME - 4 - 9 + 1),
        *(MAX_FRAME - 5, MAX_FRAME, MAX_FRAME + 1),
        *(2 * MAX_FRAME - 9 - 9 - 1, 2 * MAX_FRAME - 9 - 9, 2 * MAX_FRAME - 9 - 9 + 1),
        *(17_000_000, 50_000_000),
    ],
)
def test_a_cell_of_any_size_arrives_whole(connect: Connect, size: int) -> None:
    with serving() as (server, _):
        client = connect(server.port)
        (data, after), last = client.rows(f"size {size}")
        assert data is not None
        assert len(data) == size
        assert data == (bytes(range(256)) * (size // 256 + 1))[:size]
        assert after == str(size).encode()
        assert last == (None, b"7")
        assert client.one("length") == b"6"  # the connection is still in step


def test_a_statement_beyond_sixteen_megabytes_is_joined(connect: Connect) -> None:
    with serving() as (server, _):
        client = connect(server.port)
        for size in (
            MAX_FRAME - 1,
            MAX_FRAME,
            20_000_000,
        ):  # with the command byte: one frame and an empty one, two frames
            text = "length ".ljust(size - 1, "x")
            assert client.one(text) == str(len(text)).encode()


def test_a_statement_beyond_the_cap_ends_the_connection_and_not_the_server(connect: Connect) -> None:
    with serving(max_packet_bytes=1000) as (server, _):
        client = connect(server.port)
        assert client.error("length " + "x" * 2000)[0] in (1153, 2006, 2013)
        assert connect(server.port).one("length") == b"6"


@pytest.mark.parametrize("number", [1, 1105, 20101, 22101, 32767])
def test_errors_have_any_number_and_state(connect: Connect, number: int) -> None:
    with serving() as (server, _):
        client = connect(server.port)
        assert client.error(f"fail {number} what went wrong: é") == (number, "what went wrong: é")
        assert client.one("length") == b"6"


def test_the_password_is_checked(connect: Connect) -> None:
    with serving(password="p:@ssé") as (server, engine):
        assert connect(server.port, password="p:@ssé".encode()).one("length") == b"6"
        for wrong in ("p", "", b"\0" * 20):
            with pytest.raises(pymysql.err.OperationalError) as caught:
                connect(server.port, password=wrong)
            assert caught.value.args[0] == 1045
            assert "ssé" not in caught.value.args[1]
        assert len(engine.users) == 1


def test_an_empty_password_is_a_password_too(connect: Connect) -> None:
    with serving(password="") as (server, _):
        assert connect(server.port, password="").one("length") == b"6"
        with pytest.raises(pymysql.err.OperationalError):
            connect(server.port, password="x")


def test_a_database_is_named_at_login_and_later(connect: Connect) -> None:
    with serving() as (server, _):
        client = connect(server.port, database="somewhere")
        client.connection.select_db(b"elsewhere")
        with pytest.raises(pymysql.err.OperationalError, match="Unknown database"):
            client.connection.select_db(b"nowhere")
        with pytest.raises(pymysql.err.OperationalError, match="Unknown database"):
            connect(server.port, database="nowhere")


@pytest.mark.parametrize("pure", [True, False] if mysql.connector.HAVE_CEXT else [True])
def test_mysql_connector_works(pure: bool) -> None:
    with serving(password="secret") as (server, engine):
        connection = mysql.connector.connect(
            host="127.0.0.1",
            port=server.port,
            user="acc#u",
            password="secret",
            use_pure=pure,
            ssl_disabled=True,
            autocommit=True,
        )
        cursor = connection.cursor()
        cursor.execute("size 3")
        assert cursor.fetchone() == ("\0\1\2", 3)  # it takes character set 0 for text
        cursor.fetchall()
        connection.ping()
        connection.close()
        assert engine.users == ["acc#u"]


@pytest.mark.parametrize("plugin", [b"caching_sha2_password", b"sha256_password"])
def test_clients_of_other_plugins_are_switched_to_native_password(plugin: bytes) -> None:
    with serving(password="secret") as (server, _), socket.create_connection(("127.0.0.1", server.port)) as sock:
        channel = Channel(sock)
        channel.read(1000)
        flags = 0x200 | 0x8000 | 0x80000
        channel.write(struct.pack("<IIB23x", flags, 1 << 24, 45), b"root\0", b"\x20" + bytes(32), plugin + b"\0")
        channel.flush()
        switch = channel.read(1000)
        assert switch[0] == 0xFE
        name, salt, _ = switch[1:].split(b"\0")
        assert name == b"mysql_native_password"
        assert len(salt) == 20
        channel.write(native_scramble(b"secret", salt))
        channel.flush()
        assert channel.read(1000) == OK


def test_what_is_not_served_gets_a_clean_error(connect: Connect) -> None:
    with serving() as (server, _), socket.create_connection(("127.0.0.1", server.port)) as sock:
        channel = _logged_in(sock)
        for command, number in ((b"\x16select 1", 1295), (b"\x04t\0", 1047), (b"\x11user", 1047), (b"\xfe", 1047)):
            assert _ask(channel, command)[:3] == b"\xff" + number.to_bytes(2, "little")
        assert _ask(channel, b"\x0e") == OK  # ping
        assert _ask(channel, b"\x1f") == OK  # reset connection
        channel.sequence = 0
        channel.write(b"\x19\0\0\0\0")  # closing a prepared statement has no answer
        channel.flush()
        assert _ask(channel, b"\x0e") == OK


def test_rows_with_charset_zero_say_so(connect: Connect) -> None:
    with serving() as (server, _):
        client = connect(server.port)
        with client.connection.cursor() as cursor:
            cursor.execute("size 1")
            assert [column.charsetnr for column in cursor._result.fields] == [0, 0]


HOSTILE = {
    "nothing": b"",
    "half a header": b"\x05\0",
    "a header and no body": b"\xff\xff\xff\x01",
    "the wrong sequence number": b"\x04\0\0\x07abcd",
    "an empty login": b"\0\0\0\x01",
    "a short login": b"\x04\0\0\x01\0\x82\0\0",
    "an old protocol": b"\x0a\0\0\x01" + bytes(10),
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a user without an end": b"\x28\0\0\x01" + struct.pack("<IIB23x", 0x8200, 1 << 24, 45) + b"rootroot",
    "a proof longer than the packet": b"\x28\0\0\x01" + struct.pack("<IIB23x", 0x8200, 1 << 24, 45) + b"root\0\xffab",
    "a proof of 2^63 bytes": b"\x2f\0\0\x01"
    + struct.pack("<IIB23x", 0x208200, 1 << 24, 45)
    + b"root\0\xfe"
    + b"\xff" * 9,
    "a malformed length": b"\x28\0\0\x01" + struct.pack("<IIB23x", 0x208200, 1 << 24, 45) + b"root\0\xffab",
    "TLS without an offer": b"\x20\0\0\x01" + struct.pack("<IIB23x", 0x8A00, 1 << 24, 45),
    "a login of a megabyte": b"\0\0\x10\x01" + bytes(1 << 20),
    "zeros": bytes(100_000),
    "ones": b"\xff" * 100_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_end_their_connection_only(connect: Connect, what: str) -> None:
    with serving() as (server, engine):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.settimeout(60)
            sock.recv(1000)
            try:
                sock.sendall(HOSTILE[what])
                sock.shutdown(socket.SHUT_WR)
                answer = _everything(sock)
            except ConnectionError:
                answer = b""
            if answer:
                assert answer[4] == 0xFF  # an error packet and nothing behind it
                assert len(answer) == 4 + int.from_bytes(answer[:3], "little")
        assert connect(server.port).one("length") == b"6"
        assert engine.users == ["root"]


@pytest.mark.parametrize(
    "junk", [b"\0\0\0\0", b"\x01\0\0\x05\x0e", b"\xff" * 1000, b"\x05\0\0\0\x03", b"\0\0\0\0\0\0\0\0"]
)
def test_hostile_bytes_after_the_login_end_their_connection_only(connect: Connect, junk: bytes) -> None:
    with serving() as (server, engine):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            channel = _logged_in(sock)
            sock.sendall(junk)
            sock.shutdown(socket.SHUT_WR)
            answer = _everything(channel.sock)
            assert not answer or answer[4] == 0xFF
        assert connect(server.port).one("length") == b"6"
        until(lambda: 1 in engine.closed, "its end", pause=0.01)


def test_a_client_that_dies_in_a_row_ends_its_thread(connect: Connect) -> None:
    with serving() as (server, engine):
        sock = socket.create_connection(("127.0.0.1", server.port))
        channel = _logged_in(sock)
        channel.sequence = 0
        channel.write(b"\x03size 90000000")
        channel.flush()
        sock.recv(100_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        until(lambda: engine.closed == [1], "its end", pause=0.01)
        assert connect(server.port).one("length") == b"6"


def test_too_many_connections_are_refused(connect: Connect) -> None:
    with serving(max_connections=2) as (server, _):
        connect(server.port)
        connect(server.port)
        with pytest.raises(pymysql.err.OperationalError, match="too many connections"):
            connect(server.port)


def _threads() -> set[threading.Thread]:
    """Those of servers; other tests of this process may have left some of their own kind."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("wire-")}


def test_stop_ends_open_connections_and_all_threads(connect: Connect) -> None:
    before = _threads()
    with serving() as (server, engine):
        clients = [connect(server.port) for _ in range(5)]
        assert len(_threads() - before) >= 6
    assert _threads() <= before
    assert sorted(engine.closed) == [1, 2, 3, 4, 5]
    for client in clients:
        assert client.error("length")[0] in (0, 2006, 2013)


def test_it_listens_on_loopback_only() -> None:
    with serving() as (server, _):
        assert server._listener.getsockname()[0] == "127.0.0.1"


def test_tls_is_taken_by_clients_that_ask_for_it(connect: Connect, tmp_path: Path) -> None:
    certificate, key = _self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(tls=context, password="secret") as (server, engine):
        for options in (
            {"ssl_ca": str(certificate), "ssl_verify_cert": True},
            {"ssl_ca": str(certificate), "ssl_verify_identity": True},
        ):
            client = connect(server.port, password="secret", **options)
            assert isinstance(client.connection._sock, ssl.SSLSocket)
            (data, _), _ = client.rows("size 17000000")
            assert data == (bytes(range(256)) * 70_000)[:17_000_000]
        plain = connect(server.port, password="secret", ssl_disabled=True)
        assert plain.one("length") == b"6"
        with pytest.raises(pymysql.err.OperationalError, match="certificate"):  # of an unknown authority
            connect(server.port, password="secret", ssl={"verify_mode": "required"}, ssl_verify_cert=True)
    until(lambda: len(engine.closed) == 3, "their ends", pause=0.01)


def _self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=400))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(private)
    return folder / "server.pem", folder / "server.key"


def _logged_in(sock: socket.socket) -> Channel:
    channel = Channel(sock)
    channel.read(1000)
    channel.write(struct.pack("<IIB23x", 0x8200, 1 << 24, 45), b"root\0\0")
    channel.flush()
    assert channel.read(1000) == OK
    return channel


def _ask(channel: Channel, command: bytes) -> bytes:
    channel.sequence = 0
    channel.write(command)
    channel.flush()
    return channel.read(10_000)


def _everything(sock: socket.socket) -> bytes:
    received = b""
    while piece := sock.recv(65536):
        received += piece
    return received
