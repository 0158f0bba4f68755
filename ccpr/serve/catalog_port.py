"""The catalog of lakes for engines, as a component of `ccpr serve`: read only, with the logins of MySQL clients."""

import ssl
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from ccpr.base.http_server import HttpServer
from ccpr.catalog.login_tokens import LoginTokens
from ccpr.catalog.rest_routes import RestRoutes
from ccpr.catalog.warehouses import Warehouses
from ccpr.serve.listening import for_strangers
from ccpr.serve.metrics import metrics_of_port
from ccpr.service.errors import ServiceNotServed
from ccpr.service.running import CATALOGS, PortMark
from ccpr.service.workspace import Workspace
from ccpr.state.logins import PortLogins

MOST_CONNECTIONS, ANSWER_SECONDS = 64, 60.0
_RESULTS = "done", "refused", "failed"


class Place(Protocol):
    """Where it listens (`ccpr.relay.client_port.Listen`)."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def context(self) -> ssl.SSLContext | None: ...


class CatalogPort(Collector):
    """It serves from `start` to `stop`, and counts requests as Prometheus reads them."""

    def __init__(self, workspace: Workspace, place: Place) -> None:
        self._home, self._place = workspace.home, place
        self._tokens = LoginTokens(PortLogins(workspace.log.engine, workspace.vault))
        self._results, self._mark = Counter[str](), None
        routes = RestRoutes(Warehouses(workspace.log), self._tokens, self._count)
        self._server = HttpServer(
            "catalog",
            routes.answer,
            place.host,
            place.port,
            at_once=for_strangers(MOST_CONNECTIONS),
            answer_seconds=ANSWER_SECONDS,
        )
        self.loop = self._server.loop

    @property
    def address(self) -> str:
        return f"{self._place.host}:{self._server.port}"

    @property
    def sessions(self) -> int:
        return self._server.open

    @property
    def refused(self) -> int:
        return self._server.refused

    @property
    def wrong_passwords(self) -> int:
        return self._tokens.guesses.wrong_passwords

    def start(self) -> None:
        """Raises ServiceNotServed, RelayListen, RelayTls, StateUnreadable."""
        self._server.tls = self._place.context()
        try:
            self._server.start()
        except (OSError, OverflowError) as error:
            subject = f"{self._place.host}:{self._place.port}"
            raise ServiceNotServed(str(error), subject=subject, remedy="Choose another --catalog.") from error
        try:
            self._mark = PortMark(self._home, CATALOGS, self.address)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.remove()
        self._server.stop()

    def _count(self, status: int) -> None:
        self._results["done" if status < 400 else "refused" if status < 500 else "failed"] += 1
        if (mark := self._mark) is not None:
            counts = {
                "requests": sum(self._results[name] for name in _RESULTS),
                "refused": self._results["refused"] + self.refused,
                "wrong passwords": self.wrong_passwords,
            }
            with suppress(OSError, ValueError):  # it stops, or the disk is full
                mark.note(counts)

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "ccpr_catalog_requests", "Requests; result is done, refused or failed.", labels=["result"]
        )
        for result in _RESULTS:
            requests.add_metric([result], self._results[result])
        yield requests
        yield from metrics_of_port("ccpr_catalog", self)
