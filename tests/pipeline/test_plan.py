"""A plan's id stands for all that decides what is done."""

from dataclasses import replace

import pyarrow as pa
import pytest

from ccpr.base.errors import Failure
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_catalog import TableCatalog
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.plan import IterationPlan, make_plan
from ccpr.pipeline.results import Listed
from ccpr.schema.table_changes import diff_catalogs
from ccpr.state.settings import Settings
from tests.support.values import a_subscription, a_table

REF = SnapshotRef("xr_abc_4_1", 4, 1, physical=1000)
FAILURE = Failure("OBJECT_GONE", "it is gone", "object x", "look")
T, U = a_table(1, "t"), a_table(2, "u")


def rows(*objects: tuple[int, str, int]) -> pa.Table:
    values = [
        {"table_id": table_id, "name": name, "size": size, "stats": b"s" * size} for table_id, name, size in objects
    ]
    return pa.Table.from_pylist(values, LISTED_SCHEMA)


def catalog(before: list[Table], after: list[Table], others: tuple[Table, ...] = ()) -> CatalogDiff:
    found = TableCatalog("db", 1, Timestamp(1000), (*after, *others))
    return CatalogDiff.of(found, {table.id: table for table in after}, diff_catalogs(before, after))


LISTED = Listed(ObjectDiff(rows((1, "a", 10), (1, "b", 20), (2, "c", 5)), rows((1, "z", 7))))


def plan(**changed) -> IterationPlan:
    given = {
        "subscription": a_subscription(),
        "ref": REF,
        "catalog": catalog([T, U], [T, U]),
        "listed": LISTED,
    } | changed
    return make_plan(**given, objects=3, size=35)


def test_a_plan_names_tables_objects_and_bytes() -> None:
    found = plan()
    assert [(entry.table, entry.added, entry.removed, entry.bytes) for entry in found.tables] == [
        ("db.t", 2, 1, 30),
        ("db.u", 1, 0, 5),
    ]
    assert (found.objects, found.bytes, found.changes, found.destructive) == (3, 35, (), ())


def test_the_order_of_a_list_does_not_matter() -> None:
    turned = Listed(ObjectDiff(LISTED.diff.added.take([2, 0, 1]), LISTED.diff.removed))
    assert plan(listed=turned).id == plan().id


@pytest.mark.parametrize(
    "changed",
    [
        {"ref": replace(REF, name="xr_abc_4_2", attempt=2)},
        {"ref": replace(REF, physical=1001)},
        {"catalog": catalog([T, U], [replace(T, name="renamed"), U])},
        {"listed": Listed(ObjectDiff(rows((1, "a", 10), (1, "b", 20)), LISTED.diff.removed))},
        {"listed": Listed(ObjectDiff(rows((1, "a", 10), (1, "b", 21), (2, "c", 5)), LISTED.diff.removed))},
        {"listed": Listed(ObjectDiff(LISTED.diff.added, LISTED.diff.added))},
        {"listed": replace(LISTED, refetched=rows((1, "q", 1)))},
        {"listed": replace(LISTED, base_lost="lost")},
        {"listed": replace(LISTED, failures={1: FAILURE})},
        {"subscription": replace(a_subscription(), settings=Settings(with_indexes=True))},
        {"subscription": replace(a_subscription(), settings=Settings(consistency="isolated"))},
        {"subscription": replace(a_subscription(), database="other")},
        {"subscription": replace(a_subscription(), task_id="00000000-0000-4000-8000-000000000002")},
    ],
)
def test_what_decides_changes_the_id(changed: dict) -> None:
    assert plan(**changed).id != plan().id


@pytest.mark.parametrize(
    "settings", [Settings(sync_interval=5), Settings(retain=3), Settings(max_mb_s=1.0), Settings(resync_limit=9)]
)
def test_how_it_is_done_does_not(settings: Settings) -> None:
    assert plan(subscription=replace(a_subscription(), settings=settings)).id == plan().id


def test_changes_are_typed_and_destructive_ones_marked() -> None:
    truncated = a_table(5, "u", logical_id=2)
    left = replace(a_table(3, "moved"), name="moved_away")
    before = [T, U, a_table(3, "moved"), a_table(4, "dropped")]
    changed = catalog(before, [replace(T, name="renamed"), truncated, a_table(6, "new")], others=(left,))
    found = plan(catalog=changed, listed=Listed(LISTED.diff.without({2}), failures={6: FAILURE}))
    assert found.failures == {"db.new": FAILURE}
    told = {(change.kind, change.table, change.before, change.destructive) for change in found.changes}
    assert told == {
        ("renamed", "db.renamed", "db.t", False),
        ("truncated", "db.u", None, True),
        ("left_scope", "db.moved", None, True),
        ("dropped", "db.dropped", None, True),
        ("created", "db.new", None, False),
    }
    assert {change.table for change in found.destructive} == {"db.u", "db.moved", "db.dropped"}


@pytest.mark.parametrize(
    ("columns", "rows_come", "kind"),
    [("ab", True, "rewritten"), ("ab", False, "truncated"), ("a", True, "truncated"), ("a", False, "truncated")],
)
def test_an_alter_that_copies_is_no_loss_of_rows_and_a_truncate_is(columns: str, rows_come: bool, kind: str) -> None:
    after = a_table(5, "u", logical_id=2, columns=columns)
    listed = Listed(ObjectDiff(rows((5, "n", 9)) if rows_come else LISTED_SCHEMA.empty_table(), rows()))
    (change,) = plan(catalog=catalog([T, U], [T, after]), listed=listed).changes
    assert (change.kind, change.destructive) == (kind, kind == "truncated")


def test_a_change_has_the_lines_of_the_definition_that_differ() -> None:
    before = replace(T, ddl="CREATE TABLE `t` (\n  `a` int,\n  `b` int\n)")
    after = replace(T, ddl="CREATE TABLE `t` (\n  `a` bigint,\n  `b` int\n)")
    (change,) = plan(catalog=catalog([before, U], [after, U])).changes
    assert (change.kind, change.destructive) == ("altered", False)
    assert change.diff.splitlines()[3:] == [" CREATE TABLE `t` (", "-  `a` int,", "+  `a` bigint,", "   `b` int", " )"]


def test_index_tables_are_named_as_such_and_not_copied_unless_asked_for() -> None:
    index = a_table(3, "__mo_index_secondary_1", kind=Kind.INDEX)
    found = catalog([T, U], [T, U, index])
    listed = Listed(ObjectDiff(rows((1, "a", 10), (3, "i", 20)), rows()))
    assert [(entry.kind, entry.copied) for entry in plan(catalog=found, listed=listed).tables] == [
        ("index", False),
        ("table", True),
    ]
    (change,) = plan(catalog=found, listed=listed).changes
    assert change.index
    indexed = replace(a_subscription(), settings=Settings(with_indexes=True))
    assert all(entry.copied for entry in plan(subscription=indexed, catalog=found, listed=listed).tables)
