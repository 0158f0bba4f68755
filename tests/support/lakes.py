"""A simulated upstream that is spoken to in SQL, its replica, and lakes that are published from it."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pymysql

from ccpr.lake.commit import Lake
from ccpr.lake.deletion_vectors import CommitVectors, serialized, z85
from ccpr.lake.lake_catalog import LakeCatalog, LakeContents, contents_of
from ccpr.lake.lake_options import DEFAULT_RULES, TableRules
from ccpr.lake.lake_sync import LakeResult, LakeScope, LakeSync
from ccpr.lake.stores import LakeStore
from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.retention.retention import Retention
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, iterate, subscribed
from tests.support.lake_readers import READERS, assert_same_rows, truth

DATABASE, TASK = "shop", "01900000-0000-7000-8000-000000000001"
ALL, EVERYTHING = Retention(), LakeScope()


@dataclass
class Source:
    """An upstream with the database `shop`, and its replica."""

    workspace: Workspace
    connection: Any

    def sql(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def point(self, *statements: str) -> Point:
        """The point after some statements; it is another one than before."""
        self.sql(*statements)
        assert iterate(self.workspace).point
        return self.mirror.point()

    @property
    def mirror(self) -> Mirror:
        return self.workspace.mirror(NAME)


@contextmanager
def source(folder: Path, *schema: str, storage: Storage | None = None) -> Iterator[Source]:
    with SimulatedUpstream(storage or Storage()) as emulator:
        login = {"user": "root", "password": "any"}
        connection = pymysql.connect(host="127.0.0.1", port=emulator.port, autocommit=True, **login)
        with connection, subscribed(emulator.port, folder, DATABASE) as workspace:
            found = Source(workspace, connection)
            found.sql(f"CREATE DATABASE {DATABASE}", *schema, f"CREATE PUBLICATION p DATABASE {DATABASE} ACCOUNT ALL")
            yield found


@dataclass
class Published:
    """A lake in a folder, published from a mirror without a service around it.

    Attributes
    ----------
    shown : by lsn and table, the folder and the version.
    """

    mirror: Mirror
    folder: Path
    rules: TableRules = DEFAULT_RULES
    reading: Reading = DEFAULT_READING
    retention: Retention = ALL
    readers: Sequence[str] = tuple(READERS)
    store: Any = None
    confirm: Callable[[], None] = lambda: None
    scope: LakeScope = EVERYTHING
    shown: dict[int, dict[str, tuple[str, int]]] = field(default_factory=dict)

    def lake(self) -> Lake:
        store = self.store or LocalStore(self.folder, shared=True)
        return Lake(LakeStore(store, store), self.mirror, TASK, self.rules, self.reading, confirm=self.confirm)

    def sync(self, point: Point, watermark: int | None = None) -> LakeSync:
        """A sync up to a point, not begun."""

        def later(at: int) -> list[Point]:
            return [one for one in self.mirror.points() if at < one.at.physical <= point.at.physical]

        limit = point.at.physical if watermark is None else watermark
        return LakeSync(self.lake(), self.scope, point, later, limit, self.retention)

    def publish(self, point: Point, watermark: int | None = None) -> LakeResult:
        """Up to a point; every table shows it."""
        sync = self.sync(point, watermark)
        result = sync.run()
        assert result.behind == (), result.behind
        self.note(sync.contents)
        return result

    def note(self, contents: LakeContents) -> None:
        newest = contents.newest
        assert newest is not None
        self.shown[newest.lsn] = {
            entry.name: (entry.folder, entry.version)
            for entry in contents.tables.values()
            if not entry.dropped and not entry.behind
        }

    def contents(self) -> LakeContents:
        """What the lake says of itself."""
        return LakeCatalog(self.lake()).read()

    def note_all(self, *points: Point) -> None:
        """What the table of points says of some of them."""
        catalog = LakeCatalog(self.lake())
        catalog.read()
        for point in points:
            self.note(contents_of(catalog.rows, point.at.physical))

    def assert_shows(self, *points: Point) -> None:
        """Each table at each of the points, by every reader, in the version of that point."""
        for point in points:
            wanted = {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
            assert set(self.shown[point.lsn]) == wanted
            for name, (folder, version) in self.shown[point.lsn].items():
                expected = truth(self.mirror, point, name, self.reading)
                for reader in self.readers:
                    found = READERS[reader](str(self.folder / folder), version)
                    what = f"{reader}: {name} at lsn {point.lsn}, version {version} of {folder}"
                    assert_same_rows(found, expected, what)

    def assert_each_point_once(self) -> None:
        """No table has two commits of one point."""
        for log in self.folder.glob("*/_delta_log"):
            ats = [
                json.loads(path.read_text().partition("\n")[0])["commitInfo"]["ccpr"]["at"]
                for path in sorted(log.glob("*.json"))
            ]
            assert ats == sorted(set(ats)), log

    def version(self, table: str) -> int:
        """The newest of a table's folder."""
        return max(int(path.stem) for path in (self.folder / table / "_delta_log").glob("*.json"))

    def actions(self, table: str, version: int) -> list[dict[str, Any]]:
        path = self.folder / table / "_delta_log" / f"{version:020}.json"
        return [json.loads(line) for line in path.read_text().splitlines()]


class VectorsInLog(CommitVectors):
    """Vectors as former releases wrote small ones."""

    def add(self, rows: np.ndarray) -> dict[str, Any] | None:
        if not len(rows):
            return None
        data = serialized(rows)
        where = {"storageType": "i", "pathOrInlineDv": z85(data)}
        return {**where, "sizeInBytes": len(data), "cardinality": len(rows)}


class Killed(BaseException):
    """The process ends here."""


@dataclass
class DyingStore:
    """A store whose process is killed at its n-th change, before it or behind it."""

    inner: LocalStore
    at: int
    behind: bool
    changes: int = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in ("put", "put_together", "replace", "create", "delete", "delete_folder"):
            return found

        def change(*args: Any, **options: Any) -> Any:
            number, self.changes = self.changes, self.changes + 1
            if number == self.at and not self.behind:
                raise Killed
            result = found(*args, **options)
            if number == self.at:
                raise Killed
            return result

        return change


def with_rules(published: Published, folder: Path, **changes: Any) -> Published:
    """Another lake of the same mirror."""
    return replace(published, folder=folder, shown={}, **changes)
