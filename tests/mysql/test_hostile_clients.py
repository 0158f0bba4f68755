"""What the relay's hostile clients do, done to the port for MySQL clients: slow, huge, cut and many connections, junk,
and statements without an end. Each ends by name, and others are answered meanwhile."""

import socket
import struct
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pymysql
import pytest

from ccpr.matrixone.server import connection as module
from ccpr.matrixone.server.server import Server
from ccpr.mysql.replica_server import MOST_SESSIONS, MOST_STATEMENT_BYTES
from ccpr.relay.client_port import MOST_LOGINS
from tests.matrixone.server.test_server import HOSTILE
from tests.mysql.conftest import PASSWORD, Served
from tests.support.ports import all_of
from tests.support.waiting import LIMIT_SECONDS, until

pytestmark = pytest.mark.integration


def answers(served: Served) -> None:
    assert served.ask("SELECT COUNT(*) FROM a") == [(3,)]


def opened(served: Served) -> socket.socket:
    """A connection that has its greeting."""
    made = socket.create_connection(("127.0.0.1", served.server.port), 30)
    made.recv(1000)
    return made


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_in_the_place_of_a_login_end_their_connection_only(served: Served, what: str) -> None:
    with opened(served) as sock:
        try:
            sock.sendall(HOSTILE[what])
            sock.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass
        answer = all_of(sock)
        assert not answer or answer[4] == 0xFF
    answers(served)


def test_a_login_that_drips_ends_in_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGIN_SECONDS", 0.6)
    with opened(served) as slow:
        end = time.monotonic() + 30
        try:
            while time.monotonic() < end:
                slow.sendall(b"\x60")
                time.sleep(0.05)
        except OSError:
            pass
        assert time.monotonic() < end, "each byte has begun the time anew"
    monkeypatch.undo()
    answers(served)


@pytest.mark.parametrize(
    "junk",
    [
        b"\0\0\0\0",
        b"\x01\0\0\x05\x0e",
        b"\xff" * 1000,
        b"\x05\0\0\0\x03",
        b"\x01\0\0\0\x17",  # EXECUTE of nothing
        b"\x05\0\0\0\x17\xff\xff\xff\xff",
        b"\x0a\0\0\0\x17" + b"\x01\0\0\0" + b"\0" * 5,
        b"\x07\0\0\0\x18\x01\0\0\0\0\0",  # a piece of a long parameter of no statement
        b"\x05\0\0\0\x19\x01\0\0\0",
        b"\x02\0\0\0\x63\0",
        b"\x03\0\0\0\x03\xff\xfe",
        b"\x04\0\0\0\x16?\xff?",
    ],
)
def test_junk_after_a_login_is_an_error_and_costs_nobody_else(served: Served, junk: bytes) -> None:
    with closing(served.connect()) as connection:
        sock = connection._sock
        sock.settimeout(30)
        sock.sendall(junk)
        sock.shutdown(socket.SHUT_WR)
        answer = all_of(sock)
        assert not answer or answer[4] == 0xFF, answer[:200]
        connection._force_close()
    answers(served)


def test_long_parameters_have_an_end(served: Served) -> None:
    with closing(served.connect()) as connection:
        connection._execute_command(0x16, "SELECT n FROM a WHERE v = ?")
        pieces = [connection._read_packet() for _ in range(3)]
        number = pieces[0].get_all_data()[1:5]
        for _ in range(80):
            connection._next_seq_id = 0
            connection.write_packet(b"\x18" + number + struct.pack("<H", 0) + b"x" * (1 << 19))
        connection._next_seq_id = 0
        connection.write_packet(b"\x17" + number + b"\0" + struct.pack("<I", 1) + b"\0\x01\xfd\0")
        with pytest.raises(pymysql.MySQLError) as caught:
            connection._read_packet()
        assert caught.value.args[0] in (1210, 1153)
        connection._force_close()
    answers(served)


def test_a_huge_statement_is_refused_and_the_server_goes_on(served: Served) -> None:
    for text in (
        "SELECT '" + "x" * (MOST_STATEMENT_BYTES + 10) + "'",
        "SELECT " + ",".join(["1"] * 40_000),
        "SELECT n FROM a WHERE n IN (" + ",".join(map(str, range(100_000))) + ")",
        "SELECT " + "(" * 70 + "1" + ")" * 70,
        "SHOW TABLES LIKE '" + "%_" * 50_000 + "'",
        "SET sql_mode = '" + "ANSI," * 50_000 + "'",
        "KILL " + "9" * 100_000,
        "CREATE SUBSCRIPTION " + "s" * 100_000,
        "SELECT * FROM information_schema.tables WHERE TABLE_NAME IN (" + ",".join(["'x'"] * 30_000) + ")",
    ):
        began = time.monotonic()
        with suppress(pymysql.MySQLError):
            assert served.ask(text) == [], text[:40]
        assert time.monotonic() - began < 20, text[:40]
    answers(served)


def test_a_flood_of_connections_keeps_nobody_out_for_long(served: Served) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(opened(served)) for _ in range(MOST_LOGINS)]
        with pytest.raises(pymysql.MySQLError, match="do not log in"):
            served.connect()
        assert served.server.refused >= 1
        strangers[0].close()
        until(lambda: _can_log_in(served), "a place that is free again")
    until(lambda: _can_log_in(served), "the end of the flood")
    with ExitStack() as stack:
        for _ in range(MOST_SESSIONS):
            stack.enter_context(closing(served.connect()))
        with pytest.raises(pymysql.MySQLError, match=f"{MOST_SESSIONS} sessions are open"):
            served.connect()
    until(lambda: served.server.sessions == 0, "the end of the sessions")
    answers(served)


def _can_log_in(served: Served) -> bool:
    try:
        served.connect().close()
    except pymysql.MySQLError:
        return False
    return True


def test_wrong_passwords_are_answered_slowly_and_a_right_one_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, over = list[float](), threading.Event()

    def wait(_: Server, seconds: float) -> None:
        waits.append(seconds)
        assert not seconds or over.wait(LIMIT_SECONDS)

    monkeypatch.setattr(Server, "wait", wait)

    def wrong() -> None:
        with pytest.raises(pymysql.MySQLError, match="Access denied"):
            pymysql.connect(host="127.0.0.1", port=served.server.port, user="reader", password="no")

    threads = [threading.Thread(target=wrong) for _ in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: len(waits) == 5, "the wrong passwords")  # a right one would end their row
    answers(served)
    assert sum(thread.is_alive() for thread in threads) >= 2
    over.set()
    for thread in threads:
        thread.join(60)
    assert sorted(waits) == [0.0, 0.0, 0.0, 0.5, 1.0], "the right one does not wait"
    assert served.server.wrong_passwords == 5


def test_a_client_that_is_cut_in_the_middle_of_rows_frees_its_place(served: Served) -> None:
    rows = ", ".join(f"a AS a{n}" for n in range(13))
    for _ in range(6):  # more than run at once
        connection = served.connect()
        connection._execute_command(0x03, f"SELECT a0.v, a1.v FROM {rows}")
        for _ in range(5):  # how many columns, both of them, their end, a row
            assert connection._read_packet()
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection._force_close()
    answers(served)
    until(lambda: served.server.sessions == 0, "the end of the sessions")


def joined(table: str, count: int) -> str:
    return ", ".join(f"{table} AS a{n}" for n in range(count))


ENDLESS = {
    "rows": f"SELECT COUNT(*) FROM {joined('a', 30)}",
    "groups": f"SELECT COUNT(*) FROM (SELECT DISTINCT CONCAT({', '.join(f'a{n}.v' for n in range(18))}) AS k "
    f"FROM {joined('a', 18)}) AS q",
    "an order": f"SELECT a0.v FROM {joined('a', 20)} ORDER BY a0.v, a1.v, a2.v, a3.v, a4.v",
    "a text": f"SELECT GROUP_CONCAT(a0.v) FROM {joined('a', 20)}",
    "names": f"SELECT * FROM {joined('information_schema.columns', 40)}",
}
NAMED = (1038, 3024, 1104)


@pytest.mark.parametrize("what", ENDLESS)
def test_a_statement_without_an_end_is_stopped_by_name_and_takes_bounded_memory(served: Served, what: str) -> None:
    before = _resident()
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(served.connect())) for _ in range(4)]
        for client in clients:
            client.query("SET max_execution_time = 3000")
        numbers = list[int]()

        def ask(client: pymysql.Connection) -> None:
            try:
                with client.cursor() as cursor:
                    cursor.execute(ENDLESS[what])
            except pymysql.MySQLError as error:
                numbers.append(error.args[0])

        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(numbers) == 4
        assert set(numbers) <= set(NAMED), numbers
    assert _resident() - before < 1_200 << 20
    answers(served)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_password_is_in_no_thread_of_the_server(served: Served) -> None:
    """Only its digest is known there."""
    assert PASSWORD not in repr(vars(served.server))
