"""The pages of a service: a small HTTP server for /healthz, /metrics and /status.

Requests are read as hostile: only GET and HEAD of a known path, a head of at most 8 KiB within five seconds, one answer
a connection, a few connections at once. A request that names another host than this machine, or one that was allowed,
is refused, so that a web page elsewhere cannot read the answers through a user's browser (DNS rebinding).
"""

import ipaddress
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ccpr.base.loops import Loop
from ccpr.service.errors import ServiceNotServed

HEAD_BYTES, HEAD_SECONDS, ANSWER_SECONDS = 8192, 5.0, 10.0
AT_ONCE = 16
_KEPT_SECONDS = 0.2
_WORDS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
          500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip
_log = logging.getLogger(__name__)


class Page:
    """An answer: its status, its type and its bytes."""

    def __init__(self, content: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.content, self.kind, self.status = content, kind, status


class Pages:
    """A component that serves pages.

    Parameters
    ----------
    pages : by path; each is made when it is asked for, by one request at a time.
    allowed_hosts : names by which this machine is asked, besides localhost, its addresses and `host`.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Page]],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        self._pages = {path: _OneAtATime(make) for path, make in pages.items()}
        self._host, self._wanted = host, port
        self._allowed = frozenset(filter(None, map(_plain_name, ("localhost", host, *allowed_hosts))))
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._server: _Server | None = None
        self.loop = Loop("pages", self._run)

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.server_address[1]

    def start(self) -> None:
        """Raises ServiceNotServed."""
        try:
            self._server = _Server((self._host, self._wanted), self._answer, self._room)
        except (OSError, OverflowError) as error:
            raise ServiceNotServed(str(error), subject=f"{self._host}:{self._wanted}") from error
        self.loop.start()

    def stop(self) -> None:
        if self._server is not None:
            self.loop.ending.set()
            self._server.shutdown()
            self._server.server_close()

    def _run(self) -> None:
        assert self._server is not None
        self._server.serve_forever()

    def _answer(self, head: bytes) -> Page:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _plain(400)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if not _is_here(headers.get("host", ""), self._allowed):
            return _plain(403)
        if words[0] not in ("GET", "HEAD"):
            return _plain(405)
        page = self._pages.get(words[1].partition("?")[0])
        if page is None:
            return _plain(404)
        found = page()
        return Page(b"", found.kind, found.status) if words[0] == "HEAD" else found


class _OneAtATime:
    """Makes a page, for one request at a time; those that came meanwhile get the same, so that asking often costs
    nothing more."""

    def __init__(self, make: Callable[[], Page]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made = 0.0
        self._page: Page | None = None

    def __call__(self) -> Page:
        asked = time.monotonic()
        with self._lock:
            if self._page is None or self._made + _KEPT_SECONDS < asked:
                began = time.monotonic()
                self._page = self._make()
                self._made = began
            return self._page


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False
    request_queue_size = 32

    def __init__(
        self, address: tuple[str, int], answer: Callable[[bytes], Page], room: threading.BoundedSemaphore
    ) -> None:
        self.answer, self._room = answer, room
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _PageHandler)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:  # there are no free descriptors: the connection waits, and asking at once again would not help
            time.sleep(_KEPT_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system cannot start another thread
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.exception("a page could not be made")


class _PageHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        with suppress(OSError):  # the other side has hung up, or is too slow
            head = _read_head(self.request)
            if head is None:
                return
            page = _plain(500)
            try:
                page = self.server.answer(head)
            finally:  # an error is logged by the server; the one who asked gets a word
                self.request.settimeout(ANSWER_SECONDS)
                self.request.sendall(_head_of(page) + page.content)


def _read_head(connection: socket.socket) -> bytes | None:
    """Up to the empty line. None if it is too long or too slow."""
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
    return head.partition(b"\r\n\r\n")[0]


def _head_of(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {_WORDS[page.status]}",
        f"Content-Type: {page.kind}",
        f"Content-Length: {len(page.content)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _plain(status: int) -> Page:
    return Page(f"{_WORDS[status]}\n".encode(), "text/plain; charset=utf-8", status)


def _plain_name(name: str) -> str:
    return name.lower().rstrip(".")


def _is_here(named: str, allowed: frozenset[str]) -> bool:
    """Whether the Host header names this machine: by an allowed name, or by an address as such."""
    host = named.rpartition(":")[0] if named.count(":") == 1 else named
    host = _plain_name(host.partition("]")[0].removeprefix("["))
    if host in allowed:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
