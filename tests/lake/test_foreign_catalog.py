"""A lake whose tables are in a catalog that is not ours, Apache Iceberg's own: the rows of every point, kills, and the
commit of another writer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from ccpr.lake.iceberg import IcebergChange
from ccpr.lake.iceberg_jvm import catalog_properties
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from tests.support.committing_catalog import CatalogAddress
from tests.support.foreign_catalog import foreign_catalog
from tests.support.iceberg_published import IcebergPublished, java, marks
from tests.support.lake_readers import assert_same_rows, truth
from tests.support.lakes import Killed

pytestmark = pytest.mark.long


@dataclass
class _Elsewhere(IcebergPublished):
    uri: str = ""

    @contextmanager
    def catalog(self) -> Iterator[CatalogAddress]:
        found = catalog_properties(f"{self.uri}?warehouse=main")
        yield CatalogAddress(found["uri"], found["warehouse"], "nobody")

    def assert_live(self, point: Point) -> None:
        catalog = RestCatalog("foreign", uri=self.uri)
        wanted = {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
        assert wanted <= {".".join(name) for name in catalog.list_tables("shop")}
        for name in wanted:
            rows = catalog.load_table(name).scan().to_arrow()
            assert_same_rows(rows, truth(self.mirror, point, name, self.reading), f"{name} at lsn {point.lsn}")


@pytest.fixture
def elsewhere(mirrored: tuple[Mirror, list[Point]], tmp_path: Path) -> Iterator[_Elsewhere]:
    """Nothing yet."""
    found = java(Path.home() / ".cache" / "matrixone-ccpr" / "java")
    with foreign_catalog(found, tmp_path) as uri:
        yield _Elsewhere(mirrored[0], tmp_path / "lake", readers=(), rest=True, uri=uri)


@pytest.mark.parametrize("version", [2, 3])
def test_its_tables_have_the_rows_of_every_point(elsewhere: _Elsewhere, points: list[Point], version: int) -> None:
    elsewhere = replace(elsewhere, version=version)
    for point in points:
        elsewhere.publish(point)
        elsewhere.assert_live(point)
    elsewhere.assert_each_version_once()
    keyed = RestCatalog("foreign", uri=elsewhere.uri).load_table("shop.keyed")
    said = {int(marks(one)["ccpr.point"]): one.snapshot_id for one in keyed.metadata.snapshots}
    assert len(said) > 2
    for point in points:
        if point.lsn in said:
            rows = keyed.scan(snapshot_id=said[point.lsn]).to_arrow()
            assert_same_rows(rows, truth(elsewhere.mirror, point, "shop.keyed"), f"keyed at lsn {point.lsn}")


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_a_kill_around_the_transaction_repeats_no_commit(
    elsewhere: _Elsewhere, points: list[Point], behind: bool
) -> None:
    def dying(commit: Callable[[], None]) -> None:
        if behind:
            commit()
        raise Killed

    for point in points[:4]:
        with pytest.raises(Killed):
            replace(elsewhere, wrapped=dying).publish(point)
        elsewhere.publish(point)
        elsewhere.assert_live(point)
    elsewhere.assert_each_version_once()


def test_a_transaction_of_which_a_part_was_made_is_completed(
    elsewhere: _Elsewhere, points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog without transactions may commit some of the tables before it is killed."""

    def partly(self: Any, changes: Sequence[IcebergChange]) -> Mapping[str, CcprError]:
        self.inner.commit([one for one in changes if one.asked is not None][:1])
        raise Killed

    for point in points[:4]:
        with monkeypatch.context() as patched:
            patched.setattr("tests.support.iceberg_published._Counted.commit", partly)
            with pytest.raises(Killed):
                elsewhere.publish(point)
        elsewhere.publish(point)
        elsewhere.assert_live(point)
    elsewhere.assert_each_version_once()


def test_a_foreign_commit_stops_the_table_alone_until_it_is_rebuilt(elsewhere: _Elsewhere, points: list[Point]) -> None:
    elsewhere.publish(points[0])
    table = RestCatalog("foreign", uri=elsewhere.uri).load_table("shop.keyed")
    table.append(table.scan(limit=1).to_arrow())
    result = elsewhere.sync(points[1]).run()
    assert [(one.table, one.failure.code) for one in result.behind] == [("shop.keyed", "LAKE_CHANGED")]
    assert elsewhere.sync(points[1]).rebuild("shop.keyed").behind == ()
    elsewhere.assert_live(points[1])
    elsewhere.publish(points[2])
    elsewhere.assert_live(points[2])
