"""A REST catalog that takes commits, as those of others do, over the tables of a lake: updates and requirements as the
specification has them, applied by pyiceberg. What it reads of them is the product's."""

import hmac
import json
import re
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataUtil,
    TableMetadataV1,
    TableMetadataV3,
    new_table_metadata,
)
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import IcebergBaseModel

from ccpr.base.http_server import HttpRequest, HttpServer, Page
from ccpr.catalog.login_tokens import Caller, LoginTokens
from ccpr.catalog.refusals import Refusal, bad_request, json_bytes, no_table
from ccpr.catalog.rest_routes import RestRoutes, WarehouseRequest
from ccpr.catalog.warehouses import Identifier, LiveView, Warehouse, Warehouses, WarehouseView, loaded
from ccpr.lake.iceberg import AT, VERSION
from ccpr.lake.lake_catalog import new_folder
from ccpr.mirror.store import is_name
from ccpr.state.log import CcprLog
from ccpr.state.logins import LoginRole, PortLogin
from ccpr.state.table_pointers import PointerMove, TablePointer
from ccpr.state.targets import Target
from tests.support.values import NOW

T = TypeVar("T")
_MOST_BYTES, _LONGEST_NAME = 64 << 20, 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OLD_GO = "write.metadata.delete-after-commit.enabled"
_NUMBER = re.compile(r"/metadata/([0-9]{1,9})-")
_MILLISECOND = 1_000_000  # nanoseconds
# What pyiceberg's models raise for a value that is none of theirs: ValidationError is a ValueError.
_BAD = (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RecursionError, OverflowError)


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """What a commit asks of one table; `requirements` and `updates` as they were sent."""

    table: Identifier
    requirements: Any
    updates: Any


@dataclass(frozen=True, slots=True)
class _Written:
    """New metadata of a table."""

    move: PointerMove
    content: bytes
    unneeded: tuple[str, ...] = ()  # older metadata files

    @property
    def pointer(self) -> TablePointer:
        assert self.move.after is not None
        return self.move.after


def create_table(warehouse: Warehouse, table: Identifier, asked: Mapping[str, Any]) -> bytes:
    """A new table, or with `stage-create` what it would be: a LoadTableResult. One whose metadata file is lost is none.
    Raises Refusal, CcprError."""

    known = AllTables(warehouse).tables()
    before = known.get(table)
    if before is not None and warehouse.content(before) is not None:
        raise _exists(".".join(table))
    taken = {one.folder for one in known.values() if one is not before}
    location = asked.get("location") or warehouse.store.location(new_folder(*table, 0, taken))
    with _understood():
        spec, order = asked.get("partition-spec"), asked.get("write-order")
        metadata = new_table_metadata(
            Schema.model_validate(asked["schema"]),
            PartitionSpec.model_validate(spec) if spec else UNPARTITIONED_PARTITION_SPEC,
            SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            str(location).rstrip("/"),
            {str(name): str(value) for name, value in (asked.get("properties") or {}).items()},
        )
    written = _written(warehouse, table, before, metadata)
    if asked.get("stage-create") is True:
        return loaded(None, written.content)
    gone = () if before is None else (PointerMove(before, None),)
    _write(warehouse, [written], gone)
    return loaded(warehouse.store.location(written.pointer.metadata), written.content)


def commit_tables(warehouse: Warehouse, changes: Sequence[AskedCommit]) -> list[bytes]:
    """All changes together. LoadTableResults, in their order. A table that is `assert-create` is made. Raises Refusal,
    CcprError."""
    known = AllTables(warehouse).tables()
    if len({change.table for change in changes}) < len(changes):
        raise bad_request("a table is named twice in one commit")
    lost = [one for change in changes if (one := known.get(change.table)) and warehouse.content(one) is None]
    found = [_changed(warehouse, one, None if (now := known.get(one.table)) in lost else now) for one in changes]
    moved = [one for one in found if one.move.before != one.move.after]
    _write(warehouse, moved, [PointerMove(one, None) for one in lost])
    return [loaded(warehouse.store.location(one.pointer.metadata), one.content) for one in found]


def rename_table(warehouse: Warehouse, table: Identifier, to: Identifier) -> None:
    """Raises Refusal, CcprError."""
    known = AllTables(warehouse).tables()
    if (before := known.get(table)) is None:
        raise no_table(".".join(table))
    if to in known:
        raise _exists(".".join(to))
    _move(warehouse, [PointerMove(before, replace(before, database=to[0], name=to[1]))])


def drop_table(warehouse: Warehouse, table: Identifier) -> None:
    """It is gone from now on; a point before, which is kept, still shows it. Files go with the lake's folders. Raises
    Refusal, CcprError."""
    if (before := AllTables(warehouse).tables().get(table)) is None:
        raise no_table(".".join(table))
    after = None if before.at is None else replace(before, gone=True)
    gone = (one for one in warehouse.pointers.all() if one.gone)
    forgotten = [one for one in gone if warehouse.store.files.size(one.metadata) is None]
    _move(warehouse, [PointerMove(before, after), *(PointerMove(one, None) for one in forgotten)])


def _changed(warehouse: Warehouse, change: AskedCommit, pointer: TablePointer | None) -> _Written:

    name = ".".join(change.table)
    content = None if pointer is None else warehouse.content(pointer)
    with _understood():
        requirements = _parsed(tuple[TableRequirement, ...], change.requirements)
        updates = _parsed(tuple[TableUpdate, ...], change.updates)
    base: TableMetadata | None = None if content is None else TableMetadataUtil.parse_raw(content.decode())
    if base is None and not any(one.type == "assert-create" for one in requirements):
        raise no_table(name)
    try:
        for requirement in requirements:
            requirement.validate(base)
    except CommitFailedException as error:
        raise _conflict(f"table {name}: {error}") from error
    with _understood():
        metadata = update_table_metadata(
            TableMetadataV1.model_construct(last_column_id=-1, schema=Schema()) if base is None else base,
            updates,
            enforce_validation=base is None,
            metadata_location=None if pointer is None else warehouse.store.location(pointer.metadata),
        )
    if base is not None and (metadata.location != base.location or metadata.table_uuid != base.table_uuid):
        raise bad_request(f"table {name}: its location and its uuid stay")
    if pointer is not None and content is not None and metadata == base:
        return _Written(PointerMove(pointer, pointer), content)
    return _written(warehouse, change.table, pointer, metadata, base)


def _written(
    warehouse: Warehouse,
    table: Identifier,
    before: TablePointer | None,
    metadata: TableMetadata,
    base: TableMetadata | None = None,
) -> _Written:
    """Nothing is written yet."""

    folder = _folder_of(warehouse, metadata.location)
    name = _new_name(folder, before if base is not None else None)
    pointer = TablePointer(str(metadata.table_uuid), *table, name, _point_of(metadata), version=_version_of(metadata))
    if isinstance(metadata, TableMetadataV3) and metadata.next_row_id is None:  # pyiceberg only reads it
        numbered = ((one.first_row_id or 0) + (one.added_rows or 0) for one in metadata.snapshots)
        metadata = metadata.model_copy(update={"next_row_id": max(numbered, default=0)})
    content = IcebergBaseModel.model_dump_json(metadata).encode()  # the class of version 3 refuses to be written
    unneeded = ()
    if base is not None and metadata.properties.get(_OLD_GO) == "true":
        named = {one.metadata_file for one in metadata.metadata_log}
        old = (one.metadata_file for one in base.metadata_log if one.metadata_file not in named)
        own = warehouse.store.location(f"{folder}/metadata/")
        unneeded = tuple(f"{folder}/metadata/{one.removeprefix(own)}" for one in old if one.startswith(own))
    return _Written(PointerMove(before if base is not None else None, pointer), content, unneeded)


def _new_name(folder: str, before: TablePointer | None) -> str:
    """Of a metadata file that takes the place of one."""
    number = None if before is None else _NUMBER.search(before.metadata)
    return f"{folder}/metadata/{int(number[1]) + 1 if number else 0:05}-{uuid.uuid4()}.metadata.json"


def _version_of(metadata: TableMetadata) -> int | None:
    snapshot = metadata.current_snapshot()
    said = None if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties.get(VERSION)
    return int(said) if said and said.isdecimal() and len(said) < 20 else None


def _point_of(metadata: TableMetadata) -> int | None:
    """The time of the point that the newest snapshot shows; without one of ours, that of the snapshot."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return None
    said = None if snapshot.summary is None else snapshot.summary.additional_properties.get(AT)
    return int(said) if said and said.isdecimal() and len(said) < 20 else snapshot.timestamp_ms * _MILLISECOND


def _write(warehouse: Warehouse, written: Sequence[_Written], others: Iterable[PointerMove] = ()) -> None:
    for one in written:
        warehouse.store.create(one.pointer.metadata, one.content)
    try:
        _move(warehouse, [*(one.move for one in written), *others])
    except Refusal:
        for one in written:
            warehouse.store.files.delete(one.pointer.metadata)
        raise


def _move(warehouse: Warehouse, moves: Sequence[PointerMove]) -> None:
    if moves and not warehouse.pointers.move(moves):
        raise _conflict("another commit has changed one of the tables, or their names")


def _folder_of(warehouse: Warehouse, location: str) -> str:
    lake = warehouse.store.location("")
    folder = location.removeprefix(lake).rstrip("/")
    if not location.startswith(lake) or "/" in folder or not is_name(folder):
        raise bad_request(f"the location {location:.300} is no folder of the lake {lake}")
    return folder


def _conflict(message: str) -> Refusal:
    return Refusal(409, "CommitFailedException", message)


def _exists(name: str) -> Refusal:
    return Refusal(409, "AlreadyExistsException", f"table {name:.200} exists already")


def _parsed(kind: type[T], value: Any) -> T:

    return TypeAdapter(kind).validate_python(value)


@contextmanager
def _understood() -> Iterator[None]:
    """What a client sent and Iceberg does not allow is its mistake."""
    try:
        yield
    except _BAD as error:
        raise bad_request(f"{type(error).__name__}: {error!s:.600}") from error


class AllTables(LiveView):
    """Those without a snapshot, too."""

    @cached_property
    def _tables(self) -> dict[Identifier, TablePointer]:
        return {(one.database, one.name): one for one in self._warehouse.pointers.all() if not one.gone}


class _Committing(WarehouseRequest):
    @cached_property
    def view(self) -> WarehouseView:
        return super().view if "@" in self.prefix else AllTables(self.warehouse)

    def answer(self, parts: list[str]) -> Page:
        match (self.request.method, *parts):
            case ("POST", "namespaces"):
                return self._new_namespace()
            case ("POST", "namespaces", namespace, "tables"):
                return self._new_table(namespace)
            case ("POST", "namespaces", namespace, "tables", table):
                return self._update(namespace, table)
            case ("DELETE", "namespaces", namespace, "tables", table):
                drop_table(self.warehouse, (_name(namespace), _name(table)))
                return Page(b"", status=204)
            case ("POST", "tables", "rename"):
                asked = self._json()
                rename_table(self.warehouse, _identifier(asked.get("source")), _identifier(asked.get("destination")))
                return Page(b"", status=204)
            case ("POST", "transactions", "commit"):
                commit_tables(self.warehouse, _changes(self._json()))
                return Page(b"", status=204)
        return super().answer(parts)

    def _database(self, namespace: str) -> tuple[str, WarehouseView]:
        try:
            return super()._database(namespace)
        except Refusal:
            if "@" in self.prefix + namespace:
                raise
            return namespace, self.view  # its tables are about to be made

    def _json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.request.body(_MOST_BYTES) or b"{}")
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
            raise _exists(names[0])
        return Page(json_bytes({"namespace": names, "properties": {}}))  # it is there with its first table

    def _new_table(self, namespace: str) -> Page:
        asked = self._json()
        return Page(create_table(self.warehouse, (_name(namespace), _name(asked.get("name"))), asked))

    def _update(self, namespace: str, table: str) -> Page:
        asked = self._json()
        change = AskedCommit((_name(namespace), _name(table)), asked.get("requirements"), asked.get("updates"))
        return Page(commit_tables(self.warehouse, [change])[0])


class _CommittingRoutes(RestRoutes):
    endpoints = (
        *RestRoutes.endpoints,
        "POST /v1/{prefix}/namespaces",
        "POST /v1/{prefix}/namespaces/{namespace}/tables",
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "POST /v1/{prefix}/tables/rename",
        "POST /v1/{prefix}/transactions/commit",
    )

    def of_warehouse(self, request: HttpRequest, caller: Caller, prefix: str) -> WarehouseRequest:
        return _Committing(self, request, caller, prefix)


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """What a client of a REST catalog is told: its properties `uri`, `token` and `warehouse`."""

    uri: str
    warehouse: str
    token: str = field(repr=False)


@contextmanager
def committing_catalog(log: CcprLog, subscription: str, target: Target) -> Iterator[CatalogAddress]:
    """Served on this machine until the end of the block, to who has the token."""
    token = secrets.token_urlsafe(32)
    routes = _CommittingRoutes(Warehouses(log), cast(LoginTokens, _OneToken(token)))
    server = HttpServer("committing-catalog", routes.answer, at_once=16, answer_seconds=60.0)
    server.start()
    try:
        yield CatalogAddress(f"http://127.0.0.1:{server.port}", f"{subscription}.{target.name}", token)
    finally:
        server.stop()


@dataclass(frozen=True, slots=True)
class _OneToken:
    token: str

    def caller(self, token: str, address: str) -> Caller | None:
        known = hmac.compare_digest(token.encode(), self.token.encode())
        return Caller(PortLogin("committer", NOW, LoginRole.OPERATOR)) if known else None

    def grant(self, request: HttpRequest, body: bytes) -> Page:
        raise Refusal(400, "BadRequestException", "this catalog grants no tokens")


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
