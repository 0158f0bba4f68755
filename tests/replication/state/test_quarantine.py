"""Which tables a point does not show, and what is remembered of those that failed."""

from datetime import timedelta

import sqlalchemy as sa

from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Kind, Table
from matrixone.upstream.catalog import Catalog
from replication.failure import Failure
from replication.iteration.building import tables_behind
from replication.iteration.catalog_diff import CatalogDiff
from replication.maintenance.retention import Retention
from replication.mirror.points import LaggingTable, TableRef
from replication.schema.table_changes import diff_catalogs
from replication.state.database import transaction
from replication.state.history import GlobalPoint, TablePoint, as_mirror_point
from replication.state.migrations import open_database
from replication.state.quarantine import Quarantine
from tests.replication.values import NOW, a_table


def point(lsn: int) -> GlobalPoint:
    return GlobalPoint(lsn, Timestamp(lsn), f"xr_{lsn}", NOW + timedelta(minutes=lsn), "", 0, 0, 0)


FAILURE = Failure("OBJECT_GONE", "it is gone", "object x", "look")


def catalog(before: list[Table], after: list[Table]) -> CatalogDiff:
    found = Catalog("db", 1, Timestamp(1), tuple(after))
    return CatalogDiff(found, {table.id: table for table in after}, diff_catalogs(before, after), ())


def test_a_table_stands_at_the_last_point_that_shows_it() -> None:
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


def test_failures_are_counted_from_the_first_and_forgotten_with_success() -> None:
    quarantine = Quarantine(open_database("sqlite://"), "task")
    t, u = a_table(1, "t"), a_table(2, "u")
    other = Failure("OBJECT_DAMAGED", "it is bad", "object y", "look")

    def end(lsn: int, **failed: Failure) -> list[tuple[str, str, int, int]]:
        tables = {"t": t, "u": u}
        with transaction(quarantine.engine) as connection:
            by_id = {tables[name].id: (tables[name], why) for name, why in failed.items()}
            quarantine.write(connection, lsn, NOW + timedelta(hours=lsn), by_id)
        return [
            (entry.qualified_name, entry.failure.code, entry.since_lsn, entry.attempts)
            for entry in quarantine.entries()
        ]

    assert end(3, t=FAILURE) == [("db.t", "OBJECT_GONE", 3, 1)]
    assert end(4, t=other, u=FAILURE) == [("db.t", "OBJECT_DAMAGED", 3, 2), ("db.u", "OBJECT_GONE", 4, 1)]
    first, second = quarantine.entries()
    assert (first.first_failed_at, first.last_failed_at) == (NOW + timedelta(hours=3), NOW + timedelta(hours=4))
    assert second.failure == FAILURE
    assert end(5, u=FAILURE) == [("db.u", "OBJECT_GONE", 4, 2)]
    assert end(6) == []


def test_what_points_do_not_show_is_kept_by_point_and_let_go_with_it() -> None:
    quarantine = Quarantine(open_database("sqlite://"), "task")
    others = Quarantine(quarantine.engine, "another")
    late, new = LaggingTable("db", "t", 3), LaggingTable("db", "new", None)
    with transaction(quarantine.engine) as connection:
        quarantine.write_behind(connection, 4, {1: late})
        quarantine.write_behind(connection, 6, {1: late, 2: new})
        others.write_behind(connection, 4, {9: late})
    assert quarantine.behind(4) == {1: late}
    assert quarantine.behind(5) == {}
    assert quarantine.behind_by_point() == {4: {1: late}, 6: {1: late, 2: new}}
    with transaction(quarantine.engine) as connection:
        quarantine.drop_before(connection, 6)
    assert quarantine.behind_by_point() == {6: {1: late, 2: new}}
    assert others.behind(4) == {9: late}
    with quarantine.engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM ccpr_behind")) == 3


def test_a_point_shows_no_table_that_is_behind_even_where_it_is_written_in_full() -> None:
    refs = {
        number: TableRef(number, "db", f"t{number}", Kind.TABLE, 3, f"manifests/{number}/3-1.arrow", 1, 1, 1)
        for number in (1, 2)
    }
    tables = {number: TablePoint(a_table(number, f"t{number}"), ref, 3) for number, ref in refs.items()}
    shown = as_mirror_point(point(9), tables, {1: LaggingTable("db", "t1", 3)})
    assert shown.tables == {2: refs[2]}
    assert shown.behind == {1: LaggingTable("db", "t1", 3)}


def test_retention_keeps_the_newest_point_that_shows_a_table_which_is_behind() -> None:
    points = [point(lsn) for lsn in range(10)]
    rule = Retention(points=2)
    assert rule.oldest_kept(points, 0.0) == 8
    assert (
        rule.oldest_kept(
            points, 0.0, [LaggingTable("db", "t", 5), LaggingTable("db", "u", 9), LaggingTable("db", "new", None)]
        )
        == 5
    )
    assert Retention().oldest_kept(points, 0.0, [LaggingTable("db", "t", 5)]) is None
