"""A catalog for one lake, inside the process that publishes it: what Iceberg's own library commits through."""

import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ccpr.base.http_server import HttpRequest, HttpServer, Page
from ccpr.catalog.refusals import Refusal
from ccpr.catalog.rest_routes import Caller, RestRoutes
from ccpr.catalog.warehouses import Warehouses
from ccpr.state.log import CcprLog
from ccpr.state.targets import Target

ANSWER_SECONDS, AT_ONCE = 60.0, 16


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """What a client of the REST catalog is told: its properties `uri`, `token` and `warehouse`."""

    uri: str
    warehouse: str
    token: str = field(repr=False)


@contextmanager
def embedded_catalog(log: CcprLog, subscription: str, target: Target) -> Iterator[CatalogAddress]:
    """Serve the lake's tables on this machine until the end of the block, to who has the token, which may also commit.

    A commit of several tables (POST transactions/commit) is one transaction. A table without a snapshot is shown to the
    committer only. Of a snapshot's summary `ccpr.at` is the time of its point, nanoseconds by the upstream's clock, and
    `ccpr.version` the version of the lake's own log that it shows: by it readers find the snapshot of a point. A table
    whose metadata file is lost does not exist for the committer, and can be created anew. Raises OSError.
    """
    warehouse, token = f"{subscription}.{target.name}", secrets.token_urlsafe(32)
    routes = RestRoutes(Warehouses(log), _OneToken(token, Caller(committer=warehouse)))
    server = HttpServer("lake-catalog", routes.answer, at_once=AT_ONCE, answer_seconds=ANSWER_SECONDS)
    server.start()
    try:
        yield CatalogAddress(f"http://127.0.0.1:{server.port}", warehouse, token)
    finally:
        server.stop()


@dataclass(frozen=True, slots=True)
class _OneToken:
    token: str
    holder: Caller

    def caller(self, token: str, address: str) -> Caller | None:
        return self.holder if hmac.compare_digest(token.encode(), self.token.encode()) else None

    def grant(self, request: HttpRequest, body: bytes) -> Page:
        raise Refusal(400, "BadRequestException", "this catalog grants no tokens")
