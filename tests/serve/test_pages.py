"""The service's pages against hostile requests: each is answered or hung up on, and the next one is served."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from ccpr.base import http_server as module
from ccpr.base.http_server import Page
from ccpr.serve.pages import AT_ONCE, Pages
from ccpr.service.errors import ServiceNotServed
from tests.support.ports import all_of
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def pages() -> Iterator[Pages]:
    def broken() -> Page:
        raise ZeroDivisionError

    served = Pages({"/ok": lambda: Page(b"{}"), "/sick": lambda: Page(b"no", status=503), "/broken": broken})
    served.start()
    yield served
    served.stop()


def get(pages: Pages, path: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{pages.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def send(pages: Pages, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", pages.port), 30) as connection:
        connection.sendall(content)
        return all_of(connection)


def test_pages_are_served_with_their_status(pages: Pages) -> None:
    assert get(pages, "/ok?x=1") == (200, b"{}")
    assert get(pages, "/sick") == (503, b"no")
    assert get(pages, "/nothing")[0] == 404
    assert get(pages, "/broken")[0] == 500
    assert get(pages, "/ok") == (200, b"{}")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /ok HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"GET /ok HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
        (b"GET /ok HTTP/1.1\r\nHost: evil.example:9275\r\n\r\n", b"403"),
        (b"GET /ok HTTP/1.1\r\n\r\n", b"403"),
        (b"GET /ok HTTP/1.1\r\nHost: [::1]:9275\r\n\r\n", b"200"),
        (b"GET /ok HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"200"),
        (b"GET ../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET\r\n\r\n", b"400"),
        (b"\xff\x00\x1b[2J\r\n\r\n", b"400"),
        (b"GET " + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", b""),
    ],
)
def test_a_request_that_is_not_one_of_ours_is_refused(pages: Pages, request_bytes: bytes, status: bytes) -> None:
    assert send(pages, request_bytes)[9:12] == status
    assert get(pages, "/ok") == (200, b"{}")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("ccpr.example.com", b"200"),
        ("CCPR.Example.com.:9275", b"200"),
        ("monitor", b"200"),
        ("localhost", b"200"),
        ("192.0.2.7:80", b"200"),
        ("example.com", b"403"),
        ("evil.ccpr.example.com", b"403"),
        ("ccpr.example.com.evil.example", b"403"),
        ("", b"403"),
    ],
)
def test_names_that_were_allowed_are_this_machine(host: str, status: bytes) -> None:
    served = Pages({"/ok": lambda: Page(b"{}")}, allowed_hosts=["ccpr.example.com", "Monitor."])
    served.start()
    try:
        assert send(served, f"GET /ok HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())[9:12] == status
    finally:
        served.stop()


def test_connections_that_say_nothing_are_hung_up_on_and_no_more_than_a_few_are_kept(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.5)
    silent = [socket.create_connection(("127.0.0.1", pages.port), 30) for _ in range(AT_ONCE * 3)]
    try:
        for connection in silent:
            assert connection.recv(1) == b""
        monkeypatch.undo()
        assert get(pages, "/ok") == (200, b"{}")
    finally:
        for connection in silent:
            connection.close()


def test_a_page_that_many_ask_for_at_once_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.serve.pages.PAUSE_SECONDS", 600.0)
    made = []

    def slow() -> Page:
        made.append(1)
        until(lambda: served.open == 8, "all have asked")
        return Page(b"done")

    served = Pages({"/slow": slow})
    served.start()
    try:
        threads = [threading.Thread(target=get, args=(served, "/slow")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [1]
    finally:
        served.stop()


def test_a_port_that_is_taken_is_an_error(pages: Pages) -> None:
    with pytest.raises(ServiceNotServed):
        Pages({}, port=pages.port).start()


def test_a_system_without_free_threads_does_not_use_up_the_places(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(AT_ONCE + 1):
            send(pages, b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert get(pages, "/ok") == (200, b"{}")
