"""The pages of a service: /healthz, /metrics and /status.

Only GET and HEAD of a known path are answered. A request that names another host than this machine, or one that was
allowed, is refused, so that a web page elsewhere cannot read the answers through a user's browser (DNS rebinding).
"""

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from ccpr.base.http_server import PAUSE_SECONDS, HttpRequest, HttpServer, Page, plain_page
from ccpr.service.errors import ServiceNotServed

AT_ONCE = 16


class Pages(HttpServer):
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
        super().__init__("pages", self._page, host, port, at_once=AT_ONCE)
        self._pages = {path: _OneAtATime(make) for path, make in pages.items()}
        self._subject = f"{host}:{port}"
        self._allowed = frozenset(filter(None, map(_plain_name, ("localhost", host, *allowed_hosts))))

    def start(self) -> None:
        """Raises ServiceNotServed."""
        try:
            super().start()
        except (OSError, OverflowError) as error:
            raise ServiceNotServed(str(error), subject=self._subject) from error

    def _page(self, request: HttpRequest) -> Page:
        if not _is_here(request.headers.get("host", ""), self._allowed):
            return plain_page(403)
        if request.method not in ("GET", "HEAD"):
            return plain_page(405)
        page = self._pages.get(request.path)
        return plain_page(404) if page is None else page()


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
            if self._page is None or self._made + PAUSE_SECONDS < asked:
                began = time.monotonic()
                self._page = self._make()
                self._made = began
            return self._page


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
