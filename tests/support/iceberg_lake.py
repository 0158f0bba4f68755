"""A lake of Iceberg tables whose points are committed through its catalog by hand, without an upstream."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import pyarrow as pa
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from ccpr.lake.cleaning import is_checkpoint_due
from ccpr.lake.commit import Lake, PointToPublish
from ccpr.lake.iceberg_jvm import store_properties
from ccpr.lake.lake_catalog import CHANGED, LakeCatalog, TableRow
from ccpr.lake.lake_options import Format, LakeOptions
from ccpr.lake.stores import canonical_url, open_lake
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.mirror import Mirror
from ccpr.relay.client_port import Listen
from ccpr.schema.choices import DdlPolicy
from ccpr.serve.catalog_port import CatalogPort
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.logins import LoginRole, PortLogin, PortLogins
from ccpr.state.settings import TargetSettings
from ccpr.state.table_pointers import TablePointer, TablePointers
from ccpr.state.targets import Target
from tests.support.committing_catalog import CatalogAddress, committing_catalog
from tests.support.values import NOW, a_subscription

NAME, LAKE, DATABASE = "shop", "lake", "shop"
FIELDS = [{"id": 1, "name": "id", "type": "long", "required": False}]
SCHEMA = {"type": "struct", "schema-id": 0, "fields": FIELDS}


def time_of(point: int) -> int:
    """Nanoseconds."""
    return point * 10**9


def row_of(name: str, version: int) -> TableRow:
    """What a point says of a table that it changes."""
    return TableRow(CHANGED, f"{DATABASE}.{name}", 1, crc32(name.encode()), f"{DATABASE}.{name}", version)


@dataclass
class IcebergLake:
    workspace: Workspace
    folder: Path
    target: Target
    address: CatalogAddress

    @property
    def pointers(self) -> TablePointers:
        return TablePointers(self.workspace.log.engine, self.target.task_id, LAKE)

    def pointer(self, name: str) -> TablePointer:
        (found,) = (one for one in self.pointers.all() if one.name == name and not one.gone)
        return found

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.address.token}", **options.pop("headers", {})}
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body)
        url = f"{self.address.uri}/v1/{path}"
        return requests.request(method, url, data=sent, headers=headers, timeout=60, **options)

    def asked(self, method: str, path: str, body: Any = None) -> Any:
        found = self.ask(method, f"{self.address.warehouse}/{path}", body)
        assert found.ok, found.text
        return found.json() if found.content else None

    def reader(self, at: str = "") -> RestCatalog:
        """pyiceberg's client."""
        name = f"{self.address.warehouse}@{at}" if at else self.address.warehouse
        store = store_properties(self.target.uri)
        return RestCatalog("lake", uri=self.address.uri, token=self.address.token, warehouse=name, **store)

    def create(self, *names: str, version: str = "2") -> None:
        for name in names:
            properties = {"format-version": version}
            asked = {"name": name, "schema": SCHEMA, "properties": properties}
            self.asked("POST", f"namespaces/{DATABASE}/tables", asked)

    def changes(self, point: int, rows: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Of one commit that adds rows to tables: the body of transactions/commit."""
        catalog = self.reader()
        found = [_change(catalog.load_table((DATABASE, name)), point, ids) for name, ids in rows.items()]
        return {"table-changes": found}

    def commit(self, point: int, rows: Mapping[str, Sequence[int]]) -> requests.Response:
        body = self.changes(point, rows)
        return self.ask("POST", f"{self.address.warehouse}/transactions/commit", body)

    def publish(self, point: int, rows: Mapping[str, Sequence[int]], **others: TableRow) -> None:
        """A point as the lake publishes it: it changes these tables. Their version is the point."""
        assert self.commit(point, rows).ok
        mine = {name: row_of(name, point) for name in rows}
        self.record(point, *{**mine, **others}.values())

    def record(self, point: int, *rows: TableRow) -> None:
        """In the lake's table of points alone."""
        catalog = LakeCatalog(Lake(open_lake(self.target.uri), cast(Mirror, None), self.target.task_id))
        catalog.read()
        catalog.record(PointToPublish(point, Timestamp(time_of(point)), "s"), rows)
        if catalog.state is not None and is_checkpoint_due(catalog.state):
            catalog.log.write_checkpoint(catalog.state)


def _change(table: Table, point: int, ids: Sequence[int]) -> dict[str, Any]:
    transaction = table.transaction()
    summary = {"ccpr.point": str(point), "ccpr.at": str(time_of(point)), "ccpr.version": str(point)}
    transaction.append(pa.table({"id": pa.array(ids, pa.int64())}), snapshot_properties=summary)
    return {
        "identifier": {"namespace": [DATABASE], "name": table.name()[-1]},
        "requirements": [json.loads(one.model_dump_json()) for one in transaction._requirements],
        "updates": [json.loads(one.model_dump_json()) for one in transaction._updates],
    }


@contextmanager
def served(workspace: Workspace, listen: Listen = Listen("127.0.0.1", 0)) -> Iterator[CatalogPort]:  # noqa: B008
    """As `ccpr serve --catalog` does, with login `reader`, who sees all."""
    logins = PortLogins(workspace.log.engine, workspace.vault)
    logins.add(PortLogin("reader", NOW, LoginRole.READER), password_digest("secret"))
    port = CatalogPort(workspace, listen)
    port.start()
    try:
        yield port
    finally:
        port.stop()


def hold(workspace: Workspace, *holds: Hold) -> None:
    """These points and no others."""
    kept = workspace.of(NAME).kept
    with transaction(workspace.log.engine) as connection:
        before = kept.state()
        kept.write(connection, before, replace(before, revision=before.revision + 1, holds=holds))


def attached(port: CatalogPort, warehouse: str, credential: str = "reader:secret") -> RestCatalog:
    uri = f"http://{port.address}"
    about = {"oauth2-server-uri": f"{uri}/v1/oauth/tokens", "credential": credential}
    return RestCatalog("lake", uri=uri, warehouse=warehouse, **about)


def ids(catalog: RestCatalog, name: str, namespace: str = DATABASE) -> list[int]:
    return sorted(catalog.load_table((namespace, name)).scan().to_arrow().column("id").to_pylist())


@contextmanager
def iceberg_lake(folder: Path, url: str = "") -> Iterator[IcebergLake]:
    """Empty, its catalog served; in the bucket of a URL, or in a folder."""
    with Workspace(folder / "home") as workspace:
        subscription = a_subscription(NAME)
        workspace.log.insert(subscription.to_row(NOW))
        (folder / "lake").mkdir()
        place = canonical_url(url or str(folder / "lake"))
        about = (subscription.task_id, LAKE, place, "", None, TargetSettings(DdlPolicy.FULL), NOW)
        target = Target(*about, lake=LakeOptions(Format.ICEBERG).to_text())
        workspace.of(NAME).targets.add(target)
        with committing_catalog(workspace.log, NAME, target) as address:
            yield IcebergLake(workspace, folder / "lake", target, address)
