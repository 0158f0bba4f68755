"""Which tables a point does not show."""

from ccpr.matrixone.client.table_catalog import TableCatalog
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Table
from ccpr.mirror.points import LaggingTable
from ccpr.pipeline.building import tables_behind
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.schema.table_changes import diff_catalogs
from tests.support.values import a_table


def catalog(before: list[Table], after: list[Table]) -> CatalogDiff:
    found = TableCatalog("db", 1, Timestamp(1), tuple(after))
    return CatalogDiff.of(found, {table.id: table for table in after}, diff_catalogs(before, after))


def test_a_table_is_at_the_last_point_that_shows_it() -> None:
    t, u, new = a_table(1, "t"), a_table(2, "u"), a_table(3, "new")
    diff = catalog([t, u], [t, u, new])
    assert tables_behind(diff, {1, 3}, {1, 2}, {}, 7) == {
        1: LaggingTable("db", "t", 7),
        3: LaggingTable("db", "new", None),
    }
    later = tables_behind(diff, {1, 3}, {1, 2}, {1: LaggingTable("db", "t", 4), 3: LaggingTable("db", "new", None)}, 7)
    assert later == {1: LaggingTable("db", "t", 4), 3: LaggingTable("db", "new", None)}, "it has not moved since"
    assert tables_behind(diff, set(), {1, 2}, {1: LaggingTable("db", "t", 4)}, 7) == {}


def test_a_renamed_table_is_behind_by_its_new_name() -> None:
    t, renamed = a_table(1, "t"), a_table(1, "other")
    assert tables_behind(catalog([t], [renamed]), {1}, {1}, {}, 7) == {1: LaggingTable("db", "other", 7)}


def test_the_old_one_of_a_truncated_table_that_fails_stays_and_is_behind() -> None:
    old, new, newer = a_table(1, "t"), a_table(5, "t", logical_id=1), a_table(9, "t", logical_id=1)
    behind = tables_behind(catalog([old], [new]), {5}, {1}, {}, 7)
    assert behind == {1: LaggingTable("db", "t", 7)}
    assert tables_behind(catalog([old], [newer]), {9}, {1}, behind, 8) == behind, "truncated again meanwhile"
