"""A small HTTP server: of the service's pages, and of the catalog of lakes.

Requests are read as hostile: a head of at most 8 KiB within five seconds, a body only of the size that the one who
answers allows, one answer a connection, so many connections at once and no more.
"""

import logging
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ccpr.base.loops import Loop

HEAD_BYTES, HEAD_SECONDS, BODY_SECONDS, ANSWER_SECONDS = 8192, 5.0, 30.0, 10.0
PAUSE_SECONDS = 0.2
_LEFT_BYTES, _LEFT_SECONDS = 1 << 20, 1.0  # of a body that nobody wanted: an answer before its end may get lost
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: its bytes, their type, its status, and other headers."""

    content: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def plain_page(status: int) -> Page:
    return Page(f"{HTTPStatus(status).phrase}\n".encode(), "text/plain; charset=utf-8", status)


class BodyRefused(Exception):
    """It is larger than allowed, of no known size, too slow, or cut."""


class HttpRequest:
    """
    Attributes
    ----------
    path, query : as they were sent, nothing is decoded.
    headers : by name in lower case.
    address : of the other side.
    """

    def __init__(self, head: bytes, connection: socket.socket, begun: bytes = b"", address: str = "") -> None:
        """Raises ValueError for what is no request."""
        lines = head.decode("latin-1").split("\r\n")
        self.method, target, version = lines[0].split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError("another protocol")
        self.path, _, self.query = target.partition("?")
        pairs = (line.partition(":") for line in lines[1:])
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.address = address
        self._connection, self._begun = connection, begun
        self.left = 0 if self.method in ("GET", "HEAD") else self._size()

    def _size(self) -> int:
        """-1: not known."""
        said = self.headers.get("content-length", "0")
        known = "transfer-encoding" not in self.headers and said.isascii() and said.isdecimal() and len(said) < 16
        return int(said) if known else -1

    def body(self, most: int) -> bytes:
        """All of it, once. Raises BodyRefused."""
        if not 0 <= self.left <= most:
            raise BodyRefused("it has no known size" if self.left < 0 else f"it has more than {most} bytes")
        end, parts = time.monotonic() + BODY_SECONDS, [self._begun[: self.left]]
        self.left -= len(parts[0])
        while self.left:
            try:
                self._connection.settimeout(max(end - time.monotonic(), 0.001))
                part = self._connection.recv(min(self.left, 1 << 16))
            except OSError as error:
                raise BodyRefused(f"it does not come: {error}") from error
            if not part:
                raise BodyRefused("it is cut")
            parts.append(part)
            self.left -= len(part)
        return b"".join(parts)


class HttpServer:
    """It answers from `start` to `stop`, each request in a thread of its own; what raises is answered with 500.

    Parameters
    ----------
    tls : for HTTPS.
    """

    def __init__(
        self,
        name: str,
        answer: Callable[[HttpRequest], Page],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        at_once: int = 16,
        answer_seconds: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._answer, self._place, self.tls = answer, (host, port), tls
        self.at_once, self.answer_seconds = at_once, answer_seconds
        self._server: _Server | None = None
        self.loop = Loop(name, self._run)

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.server_address[1]

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return 0 if self._server is None else self._server.refused

    @property
    def open(self) -> int:
        """How many connections there are."""
        return 0 if self._server is None else self._server.open

    def start(self) -> None:
        """Raises OSError, OverflowError."""
        self._server = _Server(self._place, self)
        self.loop.start()

    def stop(self) -> None:
        """May be called twice."""
        if self._server is not None:
            self.loop.ending.set()
            self._server.shutdown()
            self._server.server_close()

    def answer(self, request: HttpRequest) -> Page:
        return self._answer(request)

    def _run(self) -> None:
        assert self._server is not None
        self._server.serve_forever(poll_interval=PAUSE_SECONDS)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, place: tuple[str, int], owner: HttpServer) -> None:
        self.owner, self._room = owner, threading.BoundedSemaphore(owner.at_once)
        self.refused = self.open = 0
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        super().__init__(place, _Handler)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:  # there are no free descriptors: the connection waits, and asking at once again would not help
            time.sleep(PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.refused += 1
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system cannot start another thread
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self.open += 1  # several threads: a number to look at
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open -= 1
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.exception("a request of %s could not be answered", self.owner.loop.name)


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        owner = self.server.owner
        with suppress(OSError):  # the other side has hung up, or is too slow
            self.request.settimeout(HEAD_SECONDS)
            if owner.tls is not None:
                self.request = owner.tls.wrap_socket(self.request, server_side=True)
            try:
                found = _read_head(self.request)
                if found is not None:
                    self._answer(owner, *found)
            finally:
                if owner.tls is not None:
                    self.request.close()  # the wrapped one: the server knows only that below

    def _answer(self, owner: HttpServer, head: bytes, begun: bytes) -> None:
        try:
            request = HttpRequest(head, self.request, begun, self.client_address[0])
        except ValueError:
            self._send(owner, plain_page(400))
            return
        page = plain_page(500)
        try:
            page = owner.answer(request)
        finally:  # an error is logged by the server; the one who asked gets a word
            self._send(owner, Page(b"", page.kind, page.status, page.headers) if request.method == "HEAD" else page)
            self._let_end(request)

    def _send(self, owner: HttpServer, page: Page) -> None:
        self.request.settimeout(owner.answer_seconds or ANSWER_SECONDS)
        self.request.sendall(_head_of(page) + page.content)

    def _let_end(self, request: HttpRequest) -> None:
        """Read a body that nobody wanted: who is still sending would see a broken connection, and no answer."""
        end, left = time.monotonic() + _LEFT_SECONDS, _LEFT_BYTES
        with suppress(OSError):
            while request.left and left > 0 and (seconds := end - time.monotonic()) > 0:
                self.request.settimeout(seconds)
                part = self.request.recv(1 << 16)
                left -= len(part) or left


def _read_head(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Up to the empty line, and what came behind it. None if it is too long or too slow."""
    end, head = time.monotonic() + HEAD_SECONDS, b""
    while b"\r\n\r\n" not in head:
        left = end - time.monotonic()
        if left <= 0 or len(head) >= HEAD_BYTES:
            return None
        connection.settimeout(left)
        part = connection.recv(HEAD_BYTES - len(head))
        if not part:
            return None
        head += part
    head, _, begun = head.partition(b"\r\n\r\n")
    return head, begun


def _head_of(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        *(() if page.status == 204 else (f"Content-Type: {page.kind}", f"Content-Length: {len(page.content)}")),
        *(f"{name}: {value}" for name, value in page.headers.items()),
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
