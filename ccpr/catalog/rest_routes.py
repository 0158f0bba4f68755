"""The routes of Iceberg's REST catalog, as its specification has them: what is read, what is answered.

Of a path nothing becomes a file's name: it is looked up among names that are known. Nobody commits here: the tables of
a lake change with their upstream (`ccpr.catalog.own_tables`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from urllib.parse import parse_qs, unquote_plus

from ccpr.base.http_server import BodyRefused, HttpRequest, Page
from ccpr.base.loops import unexpected
from ccpr.catalog.login_tokens import Caller, LoginTokens
from ccpr.catalog.refusals import Refusal, bad_request, forbidden, json_bytes, no_namespace, no_table
from ccpr.catalog.table_keys import Keys
from ccpr.catalog.warehouses import Identifier, LiveView, Warehouse, Warehouses, WarehouseView
from ccpr.matrixone.errors import CcprError, Transient

SMALL_BYTES = 1 << 20  # of a body
_LONGEST_NAME = 255
_LEVEL = "\x1f"  # between the levels of a namespace; a database is one of one level
_READS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
)


class RestRoutes:
    """Thread-safe.

    Parameters
    ----------
    answered : called with the status of each answer.
    """

    endpoints = _READS

    def __init__(
        self, warehouses: Warehouses, callers: LoginTokens, answered: Callable[[int], None] = lambda status: None
    ) -> None:
        self.warehouses, self.callers, self._answered = warehouses, callers, answered

    def answer(self, request: HttpRequest) -> Page:
        try:
            with unexpected():
                page = self._answer(request)
        except CcprError as error:
            busy = isinstance(error, Transient) and request.method in ("GET", "HEAD")
            kind = "ServiceUnavailableException" if busy else "ServiceFailureException"  # a commit may be there
            page = Refusal(503 if busy else 500, kind, f"{error.code}: {error.message}").page()
        self._answered(page.status)
        return page

    def _answer(self, request: HttpRequest) -> Page:
        try:
            return self._routed(request)
        except Refusal as refusal:
            return refusal.page()
        except BodyRefused as error:
            status = HTTPStatus.LENGTH_REQUIRED if request.left < 0 else HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            return Refusal(status, "BadRequestException", f"the body is refused: {error}").page()

    def _routed(self, request: HttpRequest) -> Page:
        # Java writes a blank as a plus, others as %20; a plus itself is %2B of all of them.
        parts = [unquote_plus(part, errors="replace") for part in request.path.rstrip("/").split("/")[1:]]
        if parts[:1] != ["v1"] or any(not 0 < len(part) <= 2 * _LONGEST_NAME for part in parts):
            raise Refusal(404, "NotFoundException", "there is nothing here: the catalog is below /v1")
        if parts[1:] == ["oauth", "tokens"] and request.method == "POST":
            return self.callers.grant(request, request.body(SMALL_BYTES))
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = self.callers.caller(token.strip(), request.address) if kind.lower() == "bearer" else None
        if caller is None:
            raise Refusal(401, "NotAuthorizedException", "a valid bearer token is needed: see /v1/oauth/tokens")
        if parts[1:] == ["config"] and request.method == "GET":
            return self._config(request, caller)
        if len(parts) < 3:
            raise _no_route(request)
        return self.of_warehouse(request, caller, parts[1]).answer(parts[2:])

    def of_warehouse(self, request: HttpRequest, caller: Caller, prefix: str) -> "WarehouseRequest":
        return WarehouseRequest(self, request, caller, prefix)

    def _config(self, request: HttpRequest, caller: Caller) -> Page:
        name = _asked_of(request, "warehouse")
        if not name:
            raise bad_request("name a warehouse: SUBSCRIPTION.LAKE, or SUBSCRIPTION.LAKE@POINT")
        wanted, pinned, point = name.partition("@")
        warehouse = self.warehouses.find(wanted)
        caller.check(warehouse.subscription, warehouse.name)
        prefix = warehouse.name
        if pinned:
            prefix += f"@{self.warehouses.time_of(warehouse, point)}"
        found = {"defaults": {}, "overrides": {"prefix": prefix}, "endpoints": self.endpoints}
        return Page(json_bytes(found))


@dataclass(frozen=True)
class WarehouseRequest:
    """A request in one warehouse."""

    routes: RestRoutes
    request: HttpRequest
    caller: Caller
    prefix: str

    @cached_property
    def warehouse(self) -> Warehouse:
        found = self.routes.warehouses.find(self.prefix.partition("@")[0])
        self.caller.check(found.subscription, found.name)
        return found

    @cached_property
    def view(self) -> WarehouseView:
        _, pinned, point = self.prefix.partition("@")
        if pinned:
            return self._pinned(point)
        return LiveView(self.warehouse, held=partial(self.routes.warehouses.held, self.warehouse))

    def _pinned(self, point: str) -> WarehouseView:
        warehouses = self.routes.warehouses
        return warehouses.pinned(self.warehouse, warehouses.time_of(self.warehouse, point))

    def answer(self, parts: list[str]) -> Page:
        method = self.request.method
        match (method, *parts):
            case ("GET", "namespaces"):
                return self._namespaces()
            case ("GET" | "HEAD", "namespaces", namespace):
                self._database(namespace)
                return Page(json_bytes({"namespace": [namespace], "properties": {}}))
            case ("GET", "namespaces", namespace, "tables"):
                return self._tables(namespace)
            case ("GET" | "HEAD", "namespaces", namespace, "tables", table):
                return self._load(namespace, table)
            case ("GET", "namespaces", namespace, "tables", table, "credentials"):
                return Page(json_bytes({"storage-credentials": self._keys(*self._table(namespace, table))}))
            case ("POST", "namespaces", _, "tables", _, "metrics"):
                return Page(b"", status=204)  # of a client's scan: nobody asks for them
            case ("POST" | "DELETE", "namespaces" | "tables" | "transactions", *_):
                raise forbidden("the tables of a lake change with their upstream only")
        raise _no_route(self.request)

    def _shown(self, view: WarehouseView) -> list[Identifier]:
        return sorted(table for table in view.tables() if self.caller.sees(table))

    def _find(self, namespace: str) -> tuple[str, WarehouseView] | None:
        """The database of a namespace, and where it is read: `shop@7` is database shop at point 7. Raises Refusal."""
        if any(database == namespace for database, _ in self._shown(self.view)):
            return namespace, self.view
        database, at, point = namespace.rpartition("@")
        if at and "@" not in self.prefix and _LEVEL not in point:
            view = self._pinned(point)
            if any(one == database for one, _ in self._shown(view)):
                return database, view
        return None

    def _database(self, namespace: str) -> tuple[str, WarehouseView]:
        """As `_find`. Raises Refusal."""
        if (found := self._find(namespace)) is None:
            raise no_namespace(namespace)
        return found

    def _namespaces(self) -> Page:
        parent = _asked_of(self.request, "parent")
        if parent:
            self._database(parent)
        databases = [] if parent else sorted({database for database, _ in self._shown(self.view)})
        return Page(json_bytes({"namespaces": [[one] for one in databases]}))

    def _tables(self, namespace: str) -> Page:
        database, view = self._database(namespace)
        names = [name for one, name in self._shown(view) if one == database]
        return Page(json_bytes({"identifiers": [{"namespace": [namespace], "name": name} for name in names]}))

    def _table(self, namespace: str, table: str) -> tuple[Identifier, WarehouseView]:
        """Raises Refusal: also of a namespace that is none it says that there is no table. Only then Spark looks at
        `shop.orders.changes` as at something of table `shop.orders`."""
        found = self._find(namespace)
        if found is None or not self.caller.sees((found[0], table)):
            raise no_table(f"{namespace.replace(_LEVEL, '.')}.{table}")
        database, view = found
        return (database, table), view

    def _keys(self, table: Identifier, view: WarehouseView) -> list[Keys]:
        """For the files of a table that the caller sees."""
        return self.routes.warehouses.keys.of(self.warehouse.store, view.folder(table))

    def _load(self, namespace: str, table: str) -> Page:
        found, view = self._table(namespace, table)
        asked = "vended-credentials" in self.request.headers.get("x-iceberg-access-delegation", "")
        return Page(view.load(found, self._keys(found, view) if asked else ()))


def _asked_of(request: HttpRequest, name: str) -> str:
    """A parameter; empty if it is not there. Raises Refusal."""
    try:
        return parse_qs(request.query, max_num_fields=16).get(name, [""])[0]
    except ValueError as error:
        raise bad_request("the query has too many parameters") from error


def _no_route(request: HttpRequest) -> Refusal:
    return Refusal(404, "NotFoundException", f"this catalog has no {request.method:.16} {request.path:.200}")
