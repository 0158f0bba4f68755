"""The routes of Iceberg's REST catalog, as its specification has them: what is read, what is answered.

Of a path nothing becomes a file's name: it is looked up among names that are known. Who may commit is the process that
publishes the lake, with a token that it made for itself; everybody else reads.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote_plus

from ccpr.base.http_server import BodyRefused, HttpRequest, Page
from ccpr.base.loops import unexpected
from ccpr.catalog.refusals import Refusal, bad_request, forbidden, json_bytes, no_namespace, no_table
from ccpr.catalog.table_commits import AskedCommit, commit_tables, create_table, drop_table, rename_table
from ccpr.catalog.table_keys import Keys
from ccpr.catalog.warehouses import Identifier, LiveView, Warehouse, Warehouses, WarehouseView
from ccpr.matrixone.errors import CcprError, Transient
from ccpr.state.logins import LoginRole, PortLogin

SMALL_BYTES, COMMIT_BYTES = 1 << 20, 64 << 20  # of a body
_LONGEST_NAME = 255
_SEPARATOR = "\x1f"  # between the levels of a namespace; ours have one
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
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
_WRITES = (
    "POST /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a login, or this process itself. `committer`: the warehouse that it publishes."""

    login: PortLogin | None = None
    committer: str = ""

    def check(self, subscription: str, warehouse: str) -> None:
        """Raises Refusal for a lake that it may not use."""
        if self.login is None:
            permitted = warehouse == self.committer
        else:
            names = self.login.publications
            permitted = names is None or subscription.lower() in names
        if not permitted:
            raise Refusal(404, "NoSuchWarehouseException", f"warehouse {warehouse:.200} does not exist")

    def sees(self, table: Identifier) -> bool:
        return self.login is None or self.login.role is LoginRole.OPERATOR or self.login.limits.shows(*table)


class Callers(Protocol):
    """Who has which token."""

    def caller(self, token: str, address: str) -> Caller | None:
        """Raises Refusal, CcprError."""
        ...

    def grant(self, request: HttpRequest, body: bytes) -> Page:
        """What POST /v1/oauth/tokens answers. Raises Refusal, CcprError."""
        ...


class RestRoutes:
    """Thread-safe.

    Parameters
    ----------
    answered : called with the status of each answer.
    """

    def __init__(
        self, warehouses: Warehouses, callers: Callers, answered: Callable[[int], None] = lambda status: None
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
        return _CatalogRequest(self, request, caller, parts[1]).answer(parts[2:])

    def _config(self, request: HttpRequest, caller: Caller) -> Page:
        name = _asked_of(request, "warehouse") or caller.committer
        if not name:
            raise bad_request("name a warehouse: SUBSCRIPTION.LAKE, or SUBSCRIPTION.LAKE@POINT")
        wanted, pinned, point = name.partition("@")
        warehouse = self.warehouses.find(wanted)
        caller.check(warehouse.subscription, warehouse.name)
        prefix = warehouse.name
        if pinned:
            prefix += f"@{self.warehouses.time_of(warehouse, point)}"
        endpoints = [*_READS, *(_WRITES if caller.committer and not pinned else ())]
        return Page(json_bytes({"defaults": {}, "overrides": {"prefix": prefix}, "endpoints": endpoints}))


@dataclass(frozen=True)
class _CatalogRequest:
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
        if self.caller.committer:
            return LiveView(self.warehouse, unborn=True)
        return LiveView(self.warehouse, held=partial(self.routes.warehouses.held, self.warehouse))

    def _pinned(self, point: str) -> WarehouseView:
        warehouses = self.routes.warehouses
        return warehouses.pinned(self.warehouse, warehouses.time_of(self.warehouse, point))

    def answer(self, parts: list[str]) -> Page:
        method = self.request.method
        match (method, *parts):
            case ("GET", "namespaces"):
                return self._namespaces()
            case ("POST", "namespaces"):
                return self._new_namespace()
            case ("GET" | "HEAD", "namespaces", namespace):
                self._database(namespace)
                return Page(json_bytes({"namespace": [namespace], "properties": {}}))
            case ("GET", "namespaces", namespace, "tables"):
                return self._tables(namespace)
            case ("POST", "namespaces", namespace, "tables"):
                return self._new_table(namespace)
            case ("GET" | "HEAD", "namespaces", namespace, "tables", table):
                return self._load(namespace, table)
            case ("GET", "namespaces", namespace, "tables", table, "credentials"):
                return Page(json_bytes({"storage-credentials": self._keys(*self._table(namespace, table))}))
            case ("POST", "namespaces", namespace, "tables", table):
                return self._update(namespace, table)
            case ("DELETE", "namespaces", namespace, "tables", table):
                drop_table(self._writable(), (_name(namespace), _name(table)))
                return Page(b"", status=204)
            case ("POST", "namespaces", _, "tables", _, "metrics"):
                return Page(b"", status=204)  # of a client's scan: nobody asks for them
            case ("POST", "tables", "rename"):
                asked = self._json()
                rename_table(self._writable(), _identifier(asked.get("source")), _identifier(asked.get("destination")))
                return Page(b"", status=204)
            case ("POST", "transactions", "commit"):
                commit_tables(self._writable(), _changes(self._json()))
                return Page(b"", status=204)
        raise _no_route(self.request)

    # ---- reading

    def _shown(self, view: WarehouseView) -> list[Identifier]:
        return sorted(table for table in view.tables() if self.caller.sees(table))

    def _database(self, namespace: str) -> tuple[str, WarehouseView]:
        """The database of a namespace, and where it is read: `shop@7` is database shop at point 7. Raises Refusal."""
        if any(database == namespace for database, _ in self._shown(self.view)):
            return namespace, self.view
        database, at, point = namespace.rpartition("@")
        if at and "@" not in self.prefix:
            view = self._pinned(point)
            if any(one == database for one, _ in self._shown(view)):
                return database, view
        if self.caller.committer:
            return namespace, self.view  # its tables are about to be made
        raise no_namespace(namespace)

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
        database, view = self._database(namespace)
        if not self.caller.sees((database, table)):
            raise no_table(f"{namespace}.{table}")
        return (database, table), view

    def _keys(self, table: Identifier, view: WarehouseView) -> list[Keys]:
        """For the files of a table that the caller sees. The committer has its own."""
        return [] if self.caller.committer else self.routes.warehouses.keys.of(self.warehouse.store, view.folder(table))

    def _load(self, namespace: str, table: str) -> Page:
        found, view = self._table(namespace, table)
        asked = "vended-credentials" in self.request.headers.get("x-iceberg-access-delegation", "")
        return Page(view.load(found, self._keys(found, view) if asked else ()))

    # ---- writing

    def _writable(self) -> Warehouse:
        if not self.caller.committer or "@" in self.prefix:
            raise forbidden("the tables of a lake change with their upstream only")
        return self.warehouse

    def _json(self) -> dict[str, Any]:
        self._writable()
        try:
            found = json.loads(self.request.body(COMMIT_BYTES) or b"{}")
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is no JSON: {error!s:.200}") from error
        if not isinstance(found, dict):
            raise bad_request("the body is no JSON object")
        return found

    def _new_namespace(self) -> Page:
        names = self._json().get("namespace")
        if not isinstance(names, list) or len(names) != 1:
            raise bad_request("a namespace has one level: a database")
        if any(one.database == _name(names[0]) for one in self.warehouse.pointers.all() if not one.gone):
            raise Refusal(409, "AlreadyExistsException", f"namespace {names[0]:.200} exists already")
        return Page(json_bytes({"namespace": names, "properties": {}}))  # it is there with its first table

    def _new_table(self, namespace: str) -> Page:
        asked = self._json()
        return Page(create_table(self._writable(), (_name(namespace), _name(asked.get("name"))), asked))

    def _update(self, namespace: str, table: str) -> Page:
        asked = self._json()
        change = AskedCommit((_name(namespace), _name(table)), asked.get("requirements"), asked.get("updates"))
        return Page(commit_tables(self._writable(), [change])[0])


def _asked_of(request: HttpRequest, name: str) -> str:
    """A parameter; empty if it is not there. Raises Refusal."""
    try:
        return parse_qs(request.query, max_num_fields=16).get(name, [""])[0]
    except ValueError as error:
        raise bad_request("the query has too many parameters") from error


def _no_route(request: HttpRequest) -> Refusal:
    return Refusal(404, "NotFoundException", f"this catalog has no {request.method:.16} {request.path:.200}")


def _name(value: object) -> str:
    """Of a database or a table. Raises Refusal."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or _CONTROL.search(value):
        raise bad_request(f"{value!r:.100} is no name of a database or table")
    return value


def _identifier(value: object) -> Identifier:
    if not isinstance(value, dict) or not isinstance(value.get("namespace"), list) or len(value["namespace"]) != 1:
        raise bad_request("a table is named by a namespace of one level and a name")
    return _name(value["namespace"][0]), _name(value.get("name"))


def _changes(asked: dict[str, Any]) -> list[AskedCommit]:
    changes = asked.get("table-changes")
    if not isinstance(changes, list) or not changes or not all(isinstance(one, dict) for one in changes):
        raise bad_request("table-changes is no list of changes")
    return [
        AskedCommit(_identifier(one.get("identifier")), one.get("requirements"), one.get("updates")) for one in changes
    ]
