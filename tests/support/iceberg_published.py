"""A lake of Iceberg tables beside Delta's, published from a mirror without a service around it, and its readers."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table.snapshots import Snapshot

from ccpr.catalog.own_tables import OwnTables
from ccpr.catalog.warehouses import Warehouses
from ccpr.lake.commit import Lake
from ccpr.lake.iceberg import IcebergCatalog, IcebergChange, IcebergTables
from ccpr.lake.iceberg_jvm import IcebergJvm, running_jvm, store_properties
from ccpr.lake.iceberg_rest import RestTables
from ccpr.lake.lake_options import Format, LakeOptions
from ccpr.lake.lake_sync import LakeSync
from ccpr.lake.stores import open_lake
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.points import Point
from ccpr.pipeline.spark.java import find_java
from ccpr.schema.choices import DdlPolicy
from ccpr.service.workspace import Workspace
from ccpr.state.settings import TargetSettings
from ccpr.state.table_pointers import TablePointers
from ccpr.state.targets import Target
from tests.support.committing_catalog import CatalogAddress, committing_catalog
from tests.support.lake_readers import assert_same_rows, truth
from tests.support.lakes import TASK, Published
from tests.support.values import NOW, a_subscription

NAME, LAKE = "shop", "lake"


@cache
def java(cache_folder: Path) -> Path:
    return find_java(cache_folder).home / "bin" / "java"


def jvm(*, s3: bool = False) -> IcebergJvm:
    """Of this process."""
    return running_jvm(lambda: java(Path.home() / ".cache" / "matrixone-ccpr" / "java"), s3=s3)


@dataclass
class IcebergPublished(Published):
    """
    Attributes
    ----------
    version : of Iceberg's format.
    home : of the state that has the catalog; None: beside the lake.
    wrapped : what the tables' catalog is used through.
    url : of a bucket, which the lake is in.
    rest : the catalog is another program's.
    held : times of points that are held.
    """

    version: int = 2
    home: Path | None = None
    wrapped: Any = None
    commits: list[int] = field(default_factory=list)  # how many tables each transaction had
    url: str = ""
    rest: bool = False
    held: frozenset[int] = frozenset()

    def lake(self) -> Lake:
        found = super().lake()
        return replace(found, store=open_lake(self.url)) if self.url else found

    def of_store(self) -> dict[str, str]:
        return store_properties(self.lake().store.url) if self.url else {}

    @contextmanager
    def state(self) -> Iterator[tuple[Workspace, Target]]:
        with Workspace(self.at_home) as workspace:
            if not workspace.log.rows():
                workspace.log.insert(replace(a_subscription(NAME), task_id=TASK).to_row(NOW))
                about = (TASK, LAKE, self.lake().store.url, "", None, TargetSettings(DdlPolicy.FULL), NOW)
                workspace.of(NAME).targets.add(Target(*about, lake=LakeOptions(Format.ICEBERG).to_text()))
            yield workspace, workspace.of(NAME).targets.lake(LAKE)

    @contextmanager
    def catalog(self) -> Iterator[CatalogAddress]:
        with self.state() as (workspace, target), committing_catalog(workspace.log, NAME, target) as address:
            yield address

    def opened(self, lake: Lake) -> IcebergTables:
        """In a catalog of their own, or with `rest` in that as in another program's. It ends with the tables."""
        ends, running = ExitStack(), jvm(s3=bool(self.url))
        if self.rest:
            at = ends.enter_context(self.catalog())
            properties = {"uri": at.uri, "token": at.token, "warehouse": at.warehouse} | self.of_store()
            catalog: Any = RestTables(lake, self.version, running, properties)
        else:
            workspace, target = ends.enter_context(self.state())
            catalog = OwnTables(Warehouses(workspace.log).of(NAME, target), running, self.of_store())
        found = IcebergTables(lake, self.version, running, cast(Any, _Counted(catalog, self)))
        weakref.finalize(found, ends.close)
        return found

    def sync(self, point: Point, watermark: int | None = None) -> LakeSync:
        found = super().sync(point, watermark)
        about = (found.lake, found.scope, found.newest, found.later, found.watermark, found.retention)
        return LakeSync(*about, self.opened, None if self.rest else self.shown_versions, self.held)

    def shown_versions(self) -> dict[str, int]:
        with Workspace(self.at_home) as workspace:
            return TablePointers(workspace.log.engine, TASK, LAKE).shown() if workspace.log.rows() else {}

    @property
    def at_home(self) -> Path:
        return self.home or self.folder.with_name(f"{self.folder.name}-home")

    def assert_pinned(self, *points: Point) -> None:
        """All tables at each of the points, by pyiceberg, as the catalog pins them."""
        with self.catalog() as at:
            for point in points:
                login = {"uri": at.uri, "token": at.token, "warehouse": f"{at.warehouse}@{point.lsn}"}
                found = RestCatalog("lake", **login, **self.of_store())
                wanted = {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
                listed = {".".join(name) for space in found.list_namespaces() for name in found.list_tables(space)}
                assert listed == wanted
                for name in wanted:
                    rows = found.load_table(name).scan().to_arrow()
                    expected = truth(self.mirror, point, name, self.reading)
                    assert_same_rows(rows, expected, f"pyiceberg: {name} at lsn {point.lsn}")

    def snapshots(self) -> dict[tuple[str, str], list[Snapshot]]:
        """Of each table of the live catalog, by its name and metadata file, oldest first."""
        with self.catalog() as at:
            found = RestCatalog("lake", uri=at.uri, token=at.token, warehouse=at.warehouse)
            names = [name for space in found.list_namespaces() for name in found.list_tables(space)]
            tables = [(name, found.load_table(name)) for name in names]
            return {(".".join(name), table.metadata_location): table.metadata.snapshots for name, table in tables}

    def assert_each_version_once(self) -> None:
        """No table has two snapshots of one version of Delta's log."""
        for name, found in self.snapshots().items():
            versions = [marks(one)["ccpr.version"] for one in found]
            assert len(set(versions)) == len(versions), (name, versions)

    def live(self, name: str) -> pa.Table:
        with self.catalog() as at:
            found = RestCatalog("lake", uri=at.uri, token=at.token, warehouse=at.warehouse)
            return found.load_table(name).scan().to_arrow()


@dataclass
class _Counted:
    """A catalog whose transactions are counted, and go through `wrapped` of the lake."""

    inner: IcebergCatalog
    lake: IcebergPublished

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, changes: Sequence[IcebergChange]) -> Mapping[str, CcprError]:
        self.lake.commits.append(sum(one.asked is not None for one in changes))
        failed = dict[str, CcprError]()
        if self.lake.wrapped is None:
            failed.update(self.inner.commit(changes))
        else:
            self.lake.wrapped(lambda: failed.update(self.inner.commit(changes)))
        return failed


def marks(snapshot: Snapshot) -> dict[str, str]:
    """What its summary says."""
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties
