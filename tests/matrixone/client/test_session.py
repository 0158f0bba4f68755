import contextlib
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ccpr.matrixone.client import upstream_session as session_module
from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.column_stream import read_columns
from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.matrixone.client.errors import (
    AccessDenied,
    AnswerTooLong,
    BadAnswer,
    ConnectionLost,
    StatementFailed,
    StatementUnknown,
    TlsFailed,
    UpstreamUnreachable,
)
from ccpr.matrixone.client.upstream_session import Answer, Session, integer, text
from ccpr.matrixone.client.upstream_snapshots import create_snapshot
from ccpr.matrixone.server.answers import BIGINT, ResultColumn, ResultSet
from ccpr.matrixone.server.server import Server
from ccpr_emulator.serving.faults import CutObjectList, CutStatement, FailStatement, Hold
from tests.matrixone.client.conftest import PASSWORD
from tests.support.certificates import self_signed

pytestmark = pytest.mark.integration


@pytest.mark.recordings
def test_cells_arrive_as_bytes_whatever_their_type(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    answer = session.query(upstream_sql.select_tables(0, upstream.database))
    assert answer.columns == upstream_sql.TABLE_COLUMNS
    assert len(answer.types) == len(answer.columns)
    assert all(isinstance(cell, bytes) for row in answer.rows for cell in row)


@pytest.mark.recordings
def test_a_wrong_password_is_refused_at_once_and_appears_nowhere(
    play: Callable[..., Any], caplog: pytest.LogCaptureFixture
):
    upstream = play("dml")
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AccessDenied) as raised:
        upstream.connect(password="wr0ng-secret")
    assert "attempt 1 failed" not in caplog.text
    assert raised.value.number == 1045
    assert raised.value.subject == f"upstream mysql://sys#dump:***@127.0.0.1:{upstream.emulator.port}"
    assert "wr0ng-secret" not in f"{raised.value} {raised.value!r} {raised.value.__cause__} {caplog.text}"


@pytest.mark.recordings
def test_a_session_never_shows_its_password(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    assert PASSWORD not in repr(session)
    with pytest.raises(StatementUnknown) as raised:
        session.query("CREATE ACCOUNT a ADMIN_NAME 'x' IDENTIFIED BY 'top-secret'")
    assert "top-secret" not in str(raised.value)


def test_an_unreachable_port_is_tried_once(caplog: pytest.LogCaptureFixture):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = Endpoint("127.0.0.1", taken.getsockname()[1], "sys", "u")
    with pytest.raises(UpstreamUnreachable) as raised:
        Session(endpoint, "p")
    assert "attempt 1 failed" not in caplog.text
    assert raised.value.number == 2003


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_a_free_descriptor_the_error_says_so(monkeypatch: pytest.MonkeyPatch, number: int):
    def none_left(*_: object, **__: object) -> None:
        raise OSError(number, "Too many open files")

    monkeypatch.setattr(socket, "create_connection", none_left)
    with pytest.raises(UpstreamUnreachable, match="no descriptor is free") as raised:
        Session(Endpoint("127.0.0.1", 6001, "sys", "dump"), PASSWORD)
    assert "ulimit -n" in raised.value.remedy


def test_an_unknown_host_is_unreachable():
    with pytest.raises(UpstreamUnreachable):
        Session(Endpoint("no-such-host.invalid", 6001, "sys", "u"), "p", connect_timeout=5)


@contextlib.contextmanager
def _listener(greeting: bytes | None) -> Iterator[int]:
    """A port where nobody speaks MySQL: says the greeting and hangs up, or with None stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    if greeting is None:
                        held.append(peer)
                    else:
                        peer.sendall(greeting)
                        peer.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        for peer in held:
            peer.close()


def test_a_listener_that_stays_silent_is_an_error_after_the_connect_timeout():
    with _listener(None) as port, pytest.raises(UpstreamUnreachable):
        Session(Endpoint("127.0.0.1", port, "sys", "u"), "p", connect_timeout=0.3, read_timeout=3600)


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        b"\x00",
        b"\x05\x00\x00\x00\x0a8.0\x00",
        b"\x01\x00\x00\x00\x0a",
        b"\xff\xff\xff\x00" + b"x" * 50,
    ],
)
def test_a_listener_that_speaks_something_else_is_not_an_upstream(greeting: bytes):
    with _listener(greeting) as port, pytest.raises(UpstreamUnreachable):
        Session(Endpoint("127.0.0.1", port, "sys", "u"), "p", connect_timeout=1)


@pytest.mark.recordings
def test_encryption_that_is_required_and_not_offered_is_refused(play: Callable[..., Any]):
    upstream = play("dml")
    for mode in ("required", "verify_ca", "verify_identity"):
        with pytest.raises(TlsFailed):
            upstream.connect(tls=Tls(mode))
    for mode in ("disabled", "preferred"):
        assert upstream.connect(tls=Tls(mode)).query("SELECT 1").rows == [(b"1",)]
    with pytest.raises(TlsFailed):
        upstream.connect(tls=Tls("verify_ca", ca="no-such-file.pem"))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path / "upstream.pem", "upstream.test")


@pytest.mark.recordings
def test_the_mode_says_how_much_of_the_certificate_is_checked(play: Callable[..., Any], certificate: Path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    upstream = play("dml", tls=context)
    for tls in (Tls("preferred"), Tls("required"), Tls("verify_ca", ca=str(certificate))):
        session = upstream.connect(tls=tls)
        assert session.query("SELECT 1").rows == [(b"1",)]
        assert session.encrypted
    for tls in (
        Tls("verify_ca"),
        Tls("verify_identity", ca=str(certificate)),
    ):  # an unknown authority; 127.0.0.1 is not upstream.test
        with pytest.raises(TlsFailed):
            upstream.connect(tls=tls)


def test_a_server_that_asks_for_the_password_in_clear_text_does_not_get_it():
    received = []
    handshake = (
        b"\x0a8.0.30\x00\x01\x00\x00\x00"
        + b"a" * 8
        + b"\x00\xff\xf7\x21\x02\x00\xff\x81\x15"
        + b"\x00" * 10
        + b"b" * 12
        + b"\x00"
        b"mysql_native_password\x00"
    )
    switch = b"\xfemysql_clear_password\x00"

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(len(handshake).to_bytes(3, "little") + b"\x00" + handshake)
                received.append(peer.recv(4096))
                peer.sendall(len(switch).to_bytes(3, "little") + b"\x02" + switch)
                received.append(peer.recv(4096))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        endpoint = Endpoint("127.0.0.1", server.getsockname()[1], "sys", "u", tls=Tls("disabled"))
        with pytest.raises(AccessDenied, match="clear text"):
            Session(endpoint, "clear-secret", connect_timeout=60)
        thread.join(60)
    assert len(received) == 2
    assert b"clear-secret" not in b"".join(received)


@pytest.mark.recordings
def test_an_error_of_the_server_leaves_the_connection_in_use(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    with pytest.raises(StatementUnknown):
        session.query("SELECT nothing that is known")
    assert session.query("SELECT 1").rows == [(b"1",)]
    assert upstream.emulator.status().sessions_opened == 1


@pytest.mark.recordings
def test_after_a_broken_answer_the_next_statement_connects_again(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    upstream.emulator.inject(CutStatement("select_mo_tables"))
    with pytest.raises(ConnectionLost):
        session.query(upstream_sql.select_tables(0, upstream.database))
    assert session.query(upstream_sql.select_tables(0, upstream.database)).rows
    assert upstream.emulator.status().sessions_opened == 2


@pytest.mark.recordings
def test_an_upstream_that_falls_silent_is_an_error_after_the_read_timeout(play: Callable[..., Any]):
    upstream = play("dml")
    upstream.emulator.inject(Hold("select_mo_tables", seconds=30.0))
    with Session(upstream.endpoint(), PASSWORD, read_timeout=0.2) as session:
        with pytest.raises(ConnectionLost):  # a longer wait would get the answer
            session.query(upstream_sql.select_tables(0, upstream.database))
        session._timeouts = 60.0, 60.0, 60.0
        assert session.query("SELECT 1").rows == [(b"1",)]


@pytest.mark.recordings
def test_a_read_is_repeated_after_a_lost_connection_and_fails_after_the_last_attempt(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    upstream.emulator.inject(CutStatement("select_mo_tables", times=2))
    assert session.read(upstream_sql.select_tables(0, upstream.database)).rows
    assert upstream.sent("select_mo_tables") == 3
    upstream.emulator.inject(CutStatement("select_mo_tables", times=0))
    with pytest.raises(ConnectionLost):
        session.read(upstream_sql.select_tables(0, upstream.database))
    assert upstream.sent("select_mo_tables") == 3 + 5


@pytest.mark.recordings
def test_a_terminal_error_is_not_repeated(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    upstream.emulator.inject(FailStatement("select_mo_tables", times=0))
    with pytest.raises(StatementFailed):
        session.read(upstream_sql.select_tables(0, upstream.database))
    assert upstream.sent("select_mo_tables") == 1


@pytest.mark.recordings
def test_an_upstream_that_restarts_between_two_reads_is_not_noticed(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    assert session.read("SELECT 1").rows
    upstream.emulator.disconnect_all()
    assert session.read("SELECT 1").rows == [(b"1",)]


@pytest.mark.recordings
def test_an_answer_longer_than_allowed_is_cut_off(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    with pytest.raises(AnswerTooLong, match="longer"):
        session.query(
            upstream_sql.select_columns(0, upstream.database, upstream.emulator.recording.snapshots[0].ts), longest=100
        )
    assert session.query("SELECT 1", longest=1000).rows == [(b"1",)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are read in blocks of a few rows."""
    monkeypatch.setattr(session_module, "read_columns", partial(read_columns, block_bytes=2000))


@pytest.mark.recordings
@pytest.mark.usefixtures("small_blocks")
def test_a_stream_comes_in_blocks_and_says_its_columns_even_when_empty(play: Callable[..., Any]):
    upstream = play("many_tables")
    session = upstream.connect()
    statement = upstream_sql.select_columns(0, upstream.database, upstream.emulator.recording.snapshots[0].ts)
    blocks = list(session.stream(statement))
    whole = session.query(statement)
    assert len(blocks) > 1
    rows = [row for block in blocks for row in zip(*(array.to_pylist() for array in block.arrays), strict=True)]
    assert rows == whole.rows
    (empty,) = session.stream(upstream_sql.select_tables(0, "nowhere"))
    assert (empty.names, empty.rows) == (upstream_sql.TABLE_COLUMNS, 0)
    assert upstream.emulator.status().sessions_opened == 1


@pytest.mark.recordings
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("error")
def test_a_stream_that_is_closed_early_drops_its_connection_and_the_session_goes_on(play: Callable[..., Any]):
    upstream = play("many_tables")
    session = upstream.connect()
    stream = session.stream(upstream_sql.select_tables(0, upstream.database))
    assert next(stream).rows
    with pytest.raises(RuntimeError, match="still being read"):
        session.query("SELECT 1")
    stream.close()
    assert session.query("SELECT 1").rows == [(b"1",)]
    assert upstream.emulator.status().sessions_opened == 2


@pytest.mark.recordings
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("error")
def test_a_stream_that_breaks_raises_and_the_session_goes_on(play: Callable[..., Any]):
    upstream = play("many_tables")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    session.query("SELECT mo_ctl('dn','checkpoint','')")
    upstream.emulator.inject(CutObjectList(after_rows=30))
    statement = upstream_sql.object_list("xr_1", None, upstream.publication.publisher, upstream.publication.name)
    stream = session.stream(statement)
    assert 0 < next(stream).rows <= 30
    with pytest.raises(ConnectionLost):
        list(stream)
    assert sum(block.rows for block in session.stream(statement)) == 60


@pytest.mark.recordings
def test_a_session_can_be_closed_twice_and_used_again(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    session.close()
    session.close()
    assert session.query("SELECT 1").rows == [(b"1",)]


def test_an_answer_is_read_by_the_names_of_its_columns():
    answer = Answer(("a", "b", "c"), (3, 3, 3), [(b"1", b"2", None)])
    assert list(answer.select("c", "a")) == [(None, b"1")]
    assert list(Answer(("DB Name", "A", "a"), (3, 3, 3), [(b"1", b"2", b"3")]).select("a", "db name")) == [(b"2", b"1")]
    with pytest.raises(BadAnswer, match="no column d"):
        answer.select("a", "d")


@pytest.mark.parametrize("cell", [None, b"", b"-", b"1.0", b"1e3", b" 1", b"\xd9\xa1", b"9" * 40])
def test_what_is_not_a_whole_number_is_refused(cell: bytes | None):
    with pytest.raises(BadAnswer):
        integer(cell, "x")
    assert integer(b"-12", "x") == -12


def test_text_that_is_not_utf8_is_refused():
    assert text(None, "x") == ""
    with pytest.raises(BadAnswer):
        text(b"\xff", "x")


class Numbers:
    """An engine and its session for a bare server: answers every SELECT with two rows of one number."""

    def open(self, user: str, connection_id: int) -> "Numbers":
        return self

    def use(self, database: str) -> None: ...

    def split(self, text: bytes) -> list[bytes]:
        return [text]

    def query(self, text: bytes) -> ResultSet | None:
        return ResultSet((ResultColumn("n", BIGINT),), ((1,), (2,))) if text.startswith(b"SELECT") else None

    def close(self) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Server(Numbers())
    server.start()
    yield Endpoint("127.0.0.1", server.port, "sys", "u")
    server.stop()


def broken(member: str, purpose: str) -> str:
    release = f"PyMySQL {pymysql.VERSION_STRING} has no `{member}` that works as before."
    needed = f"ccpr/matrixone/client/upstream_session.py needs it to {purpose}"
    return f"{release} {needed}: see the list above `_Connection` there."


@pytest.mark.parametrize(
    ("member", "purpose"),
    [
        ("_get_server_information", "refuse a server that announces a login with the password in clear text"),
        ("_read_packet", "limit how many bytes of one packet are read"),
        ("_read_bytes", "limit how many bytes of an answer are read"),
        ("_create_ssl_ctx", "encrypt without reading the system's certificates"),
    ],
)
def test_pymysql_calls_the_private_methods_that_a_session_overrides(
    member: str, purpose: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    assert callable(getattr(pymysql.connections.Connection, member, None)), broken(member, purpose)
    calls: list[str] = []
    overriding = getattr(session_module._Connection, member)

    def noted(*arguments: Any) -> Any:
        calls.append(member)
        return overriding(*arguments)

    monkeypatch.setattr(session_module._Connection, member, noted)
    with Session(endpoint, None) as session:
        assert session.query("SELECT 1").rows == [(b"1",), (b"2",)]
    assert calls, broken(member, purpose)


@pytest.mark.parametrize(
    ("member", "purpose"),
    [
        ("_auth_plugin_name", "refuse a login with the password in clear text"),
        ("_read_timeout", "wait for the login no longer than the connect timeout"),
        ("_current_timeout", "set the read timeout for a large row"),
        ("_execute_command", "send a statement and read the answer itself"),
        ("_rfile", "read a large row into one buffer"),
        ("_sock", "see whether the connection is encrypted"),
        ("_force_close", "hang up in the middle of an answer"),
        ("_result", "release the last result"),
    ],
)
def test_pymysql_has_the_private_members_that_a_session_uses(member: str, purpose: str, endpoint: Endpoint):
    with Session(endpoint, None) as session:
        assert hasattr(session._open(), member), broken(member, purpose)


def test_pymysql_has_the_timeouts_and_the_socket_that_a_session_sets(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    at_login: list[float | None] = []
    greeted = session_module._Connection._get_server_information

    def noted(connection: Any) -> None:
        greeted(connection)
        at_login.append(connection._sock.gettimeout())
        assert connection._auth_plugin_name == "mysql_native_password", broken(
            "_auth_plugin_name", "refuse other logins"
        )

    monkeypatch.setattr(session_module._Connection, "_get_server_information", noted)
    with Session(endpoint, None, connect_timeout=3.0, read_timeout=7.0, write_timeout=5.0) as session:
        connection: Any = session._open()
        assert at_login == [3.0], broken("_read_timeout", "wait for the login no longer than the connect timeout")
        assert connection._read_timeout == 7.0, broken("_read_timeout", "read with the read timeout after the login")
        session.query("SELECT 1")
        assert connection._sock.gettimeout() == connection._current_timeout == 7.0, broken(
            "_current_timeout", "set the read timeout for a large row"
        )


def test_pymysql_has_the_private_members_that_read_a_large_row(endpoint: Endpoint):
    with Session(endpoint, None) as session:
        connection: Any = session._open()
        connection._execute_command(0x03, "SELECT 1")
        head = connection._rfile.read(4)
        assert head == b"\x01\x00\x00\x01", broken("_execute_command", "send a statement and read the answer itself")
        assert connection._rfile.readinto(bytearray(1)) == 1, broken("_rfile", "read a large row into one buffer")
        assert connection._rfile.readinto1(bytearray(1)) == 1, broken("_rfile", "read many rows into one buffer")
        connection._force_close()
        assert not connection.open, broken("_force_close", "hang up in the middle of an answer")


def test_pymysql_has_the_results_that_a_session_releases(endpoint: Endpoint):
    with Session(endpoint, None) as session:
        connection: Any = session._open()
        connection.query("SELECT 1")
        result = connection._result
        assert list(result.rows) == [(b"1",), (b"2",)], broken("_result", "release the last result")
        assert connection.take_result() is result, broken("_result", "release the last result")
        assert connection._result is None, broken("_result", "release the last result")
