"""The pages of a service: /healthz, /metrics and /status for programs, `/` for a browser.

Only GET and HEAD of a known path are answered. A request that names another host than this machine, or one that was
allowed, is refused, so that a web page elsewhere cannot read the answers through a user's browser (DNS rebinding).
"""

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from html import escape

from ccpr.base.http_server import PAUSE_SECONDS, HttpRequest, HttpServer, Page, plain_page
from ccpr.base.wording import seconds_text
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.lag import LagMeter
from ccpr.service.errors import ServiceNotServed
from ccpr.service.follower_status import FollowerStatus
from ccpr.service.status import SubscriptionStatus, TargetStatus, read_all
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LastError

AT_ONCE = 16


class Pages(HttpServer):
    """A component that serves pages. `pages`: by path; each is made when it is asked for, by one request at a time.
    `allowed_hosts`: names by which this machine is asked, besides localhost, its addresses and `host`."""

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


# ---- the page `/`: all subscriptions, their targets and followers
#
# It needs no script, and shows itself again every five seconds.

_KIND = "text/html; charset=utf-8"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4em 1em .4em 0;"
    "border-bottom:1px solid #ddd}th{font-weight:600}.ok{color:#176b2c}.bad{color:#b3261e;font-weight:600}"
    ".wait{color:#8a5a00}.small{color:#555;font-size:13px}code{background:#f3f3f3;padding:0 .2em}"
)
_COLUMNS = ("subscription", "state", "point", "lag", "targets", "followers", "what is wrong, and what to do")


class Overview:
    """Makes the page."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._meter = workspace, LagMeter(workspace.clock)

    def __call__(self) -> Page:
        now = self._workspace.clock()
        try:
            found = read_all(self._workspace, self._meter)
        except CcprError as error:
            told = f"<p class=bad>{escape(error.code)}: {escape(error.message)}</p><p>{escape(error.remedy)}</p>"
            return Page(_whole(told, now), _KIND, 503)
        rows = "".join(_row(status, now) for status in found)
        head = "".join(f"<th>{escape(name)}" for name in _COLUMNS)
        bad = [status.name for status in found if not status.ok]
        summary = f"<span class=bad>{len(bad)} not ok</span>" if bad else "<span class=ok>all ok</span>"
        counted = f"{len(found)} subscription{'' if len(found) == 1 else 's'}"
        table = f"<table><tr>{head}</tr>{rows}</table>" if found else "<p>See <code>ccpr subscribe</code>.</p>"
        return Page(_whole(f"<p>{counted}, {summary}</p>{table}", now), _KIND)


def _whole(content: str, now: float) -> bytes:
    links = " · ".join(f"<a href={path}>{path}</a>" for path in ("/status", "/healthz", "/metrics"))
    page = (
        "<!DOCTYPE html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>"
        f"<title>ccpr</title><style>{_STYLE}</style><h1>Replication</h1>{content}"
        f"<p class=small>as of {_time(now)} · {links}</p></html>\n"
    )
    return page.encode()


def _row(status: SubscriptionStatus, now: float) -> str:
    kind = "ok" if status.ok else "bad"
    cells = (
        f"<b>{escape(status.name)}</b><br><span class=small>{escape(status.scope)} at {escape(status.upstream)}</span>",
        f"<span class={kind}>{escape(status.state)}</span>",
        "-" if status.newest_point is None else str(status.newest_point),
        _lag(status.lag_seconds),
        "<br>".join(_named(one, one.trouble or one.state) for one in status.targets) or "-",
        "<br>".join(_named(one, one.state) for one in status.followers) or "-",
        "".join(_troubles(status, now)) or "-",
    )
    return f"<tr>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def _lag(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def _named(one: TargetStatus | FollowerStatus, state: str) -> str:
    kind = "ok" if one.ok else "bad"
    return f"{escape(one.name)}: <span class={kind}>{escape(state)}</span>, lag {_lag(one.lag_seconds)}"


def _troubles(status: SubscriptionStatus, now: float) -> Iterator[str]:
    if status.last_error is not None:
        yield _error("", status.last_error)
    if status.next_attempt is not None and status.last_error is not None:
        yield f"<div class=small>next attempt in {seconds_text(max(0.0, status.next_attempt - now))}</div>"
    for table in status.quarantined:
        yield _said(f"table {table.table}", table.code, table.message, table.remedy, table.since)
    for target in status.targets:
        if target.last_error is not None:
            yield _error(f"target {target.name}", target.last_error)
        for behind in target.behind:
            remedy = "; ".join(behind.statements) or behind.failure.remedy
            yield _said(f"{target.name}: {behind.table}", behind.failure.code, behind.failure.message, remedy)
    for follower in status.followers:
        if follower.last_error is not None:
            yield _error(f"follower {follower.name}", follower.last_error)
    yield from (f"<div class=wait>{escape(warning)}</div>" for warning in _texts(status))


def _texts(status: SubscriptionStatus) -> Iterable[str]:
    waiting = () if status.waiting is None else (status.waiting.text,)
    return (*waiting, *status.warnings, *status.care.troubles)


def _error(what: str, error: LastError) -> str:
    return _said(what, error.code, error.message, error.remedy, error.first)


def _said(what: str, code: str, message: str, remedy: str, since: float | None = None) -> str:
    about = f"{escape(what)}: " if what else ""
    when = "" if since is None else f" <span class=small>since {_time(since)}</span>"
    told = f"<div>{about}<span class=bad>{escape(code)}</span>: {escape(message)}{when}</div>"
    return f"{told}<div class=small>remedy: {escape(remedy)}</div>"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
