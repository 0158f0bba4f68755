"""Changes as a pipeline takes them: applied one after the other they give the table of each point, whatever happened to
it. What each event does to a table is tested in tests/mirror/delta/test_between.py."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ccpr
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.mirror.delta.split import DeltaPart
from ccpr.mirror.mirror import Mirror
from tests.api.shop import START, Shop
from tests.support.delta_truth import Rows, applied, row_texts
from tests.support.recorded import Snapshot
from tests.support.recorded_mirror import database_of_recording
from tests.support.spark_fixtures import RecordedMirror


def rows_of(changes: ccpr.Changes, kind: str) -> list[dict[str, Any]]:
    rows = changes.to_arrow()
    return rows.filter(pc.equal(rows.column("__ccpr_kind"), kind)).sort_by("id").to_pylist()


# ---- what they are


def test_changes_are_upserts_and_deletes_by_key(orders: ccpr.Table, shop: Shop) -> None:
    changes = orders.changes(since=1, until=2)
    assert (changes.table, changes.since, changes.until) == ("shop.orders", 1, 2)
    assert (changes.before, changes.after, changes.replaced) == ("shop.orders", "shop.orders", False)
    assert changes.key == ("id",)
    assert changes.schema.names == ["__ccpr_kind", "id", "customer", "total", "placed"]
    assert repr(changes) == "<ccpr.Changes of shop.orders from 1 to 2>"
    upserts, deletes = rows_of(changes, "upsert"), rows_of(changes, "delete")
    assert [row["id"] for row in upserts] == [*range(10, 15), *range(2000, 2500)]
    assert {row["customer"] for row in upserts[:5]} == {"changed"}
    assert [row["id"] for row in deletes] == list(range(10))
    assert all(row["total"] is None and row["customer"] is None for row in deletes)
    assert changes.upserts.column_names == orders.schema.names
    assert changes.upserts.sort_by("id").to_pylist() == [
        {name: value for name, value in row.items() if name != "__ccpr_kind"} for row in upserts
    ]
    assert changes.deletes.sort_by("id").to_pylist() == [{"id": number} for number in range(10)]
    assert changes.upserts is changes.upserts, "computed once"


def test_a_merge_changes_nothing(orders: ccpr.Table) -> None:
    changes = orders.changes(since=2, until=3)
    assert changes.to_arrow().num_rows == 0
    assert changes.to_arrow().schema.equals(changes.schema)
    assert orders.changes(3).to_arrow().num_rows == 0


def test_points_of_changes_are_named_as_elsewhere(orders: ccpr.Table, mirror: ccpr.Mirror) -> None:
    one, two, _ = mirror.points()
    wanted = orders.changes(1, 2).to_arrow().sort_by("id")
    for since, until in ((one, two), ("1", "2"), (one.time, two.time), (one.time + timedelta(seconds=1), "2")):
        changes = orders.changes(since, until)
        assert (changes.since, changes.until) == (1, 2)
        assert changes.to_arrow().sort_by("id").equals(wanted)
    assert orders.changes(since=2).until == 3
    assert orders.changes(since="2026-11-21T09:10").since == 1
    assert orders.changes(since=START + timedelta(minutes=10)).since == 1


def test_without_since_all_rows_are_upserts(orders: ccpr.Table, shop: Shop) -> None:
    changes = orders.changes(None)
    assert (changes.since, changes.before, changes.deletes.num_rows) == (None, None, 0)
    assert changes.upserts.sort_by("id").equals(shop.rows(shop.published[-1]))


def test_changes_backwards_are_a_typed_error(orders: ccpr.Table) -> None:
    with pytest.raises(ccpr.BadOption, match="since is point 3, which is later than until, point 1"):
        orders.changes(3, 1)


def test_a_table_that_neither_point_has_is_a_typed_error(mirror: ccpr.Mirror) -> None:
    customers = mirror.table("shop.customers")
    assert customers.changes(1).upserts.num_rows == 1
    with pytest.raises(
        ccpr.TableMissingInMirror, match=r"table shop\.customers up to point 2.*Its tables are shop\.orders"
    ):
        customers.changes(1, 2)


def test_a_table_without_a_key_has_the_servers(mirror: ccpr.Mirror) -> None:
    changes = mirror.table("shop.customers").changes(2)
    assert changes.key == ("__mo_fake_pk_col",)
    assert changes.upserts.column_names == ["name", "since", "__mo_fake_pk_col"]


def test_changes_are_streamed(shop: Shop, orders: ccpr.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_object = Mirror.open_object

    def counted(mirror: Mirror, name: str, sums: bytes | None) -> ObjectFile:
        opened.append(name)
        return open_object(mirror, name, sums)

    shop.insert(range(100_000, 100_000 + 70_000))
    shop.publish()
    monkeypatch.setattr(Mirror, "open_object", counted)
    reader = orders.changes(3).to_batches()
    assert isinstance(reader, pa.RecordBatchReader)
    before = len(opened)
    batches = list(reader)
    assert len(opened) > before, "rows are read when batches are taken"
    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 70_000


# ---- a pipeline


def follow(mirror: ccpr.Mirror, name: str, lsns: list[int | None]) -> dict[Any, dict[str, Any]]:
    """A copy of a table, kept by its changes: what a pipeline does. Deletes come last on purpose."""
    copy: dict[Any, dict[str, Any]] = {}
    table = mirror.table(name, at=lsns[1])
    for since, until in pairwise(lsns):
        changes = table.changes(since, until)
        (key,) = changes.key
        for row in changes.upserts.to_pylist():
            copy[row[key]] = row
        for row in changes.deletes.to_pylist():
            del copy[row[key]]  # a key that is not there would be an error
    return copy


def test_a_copy_that_is_kept_by_changes_is_the_table(shop: Shop, mirror: ccpr.Mirror) -> None:
    storage = shop.storage
    shop.update(pc.field("id") > 2400, customer="late")
    shop.publish()  # 4
    storage.truncate("shop", "orders")
    shop.insert(range(100, 200))
    shop.publish()  # 5
    storage.add_column("shop", "orders", "note", "varchar(20)")
    shop.delete(pc.field("id") < 110)
    shop.publish()  # 6
    storage.drop_table("shop", "orders")
    shop.publish()  # 7
    shop.create()
    shop.insert(range(150, 160))
    shop.publish()  # 8
    every = [None, *(point.lsn for point in mirror.points())]
    for lsns in (every, every[::2], [None, 8], [None, 1, 8], [None, 4, 6, 8], [None, 3, 7, 8]):
        copy = follow(mirror, "shop.orders", lsns)
        last = lsns[-1]
        assert last is not None
        rows = shop.rows(shop.published[last - 1]).to_pylist() if last != 7 else []
        assert [copy[key] for key in sorted(copy)] == rows, lsns
    assert mirror.table("shop.orders").changes(3, 7).after is None
    assert mirror.table("shop.orders").changes(7, 8).before is None
    assert mirror.table("shop.orders").changes(6, 8).replaced


def test_a_renamed_table_is_followed_under_either_name(shop: Shop, mirror: ccpr.Mirror) -> None:
    shop.storage.rename_table("shop", "orders", "old_orders")
    shop.insert(range(5000, 5005), "old_orders")
    shop.publish()
    for name, at in (("shop.orders", 3), ("shop.old_orders", None)):
        changes = mirror.table(name, at).changes(3)
        assert (changes.table, changes.before, changes.after) == ("shop.old_orders", "shop.orders", "shop.old_orders")
        assert (changes.upserts.num_rows, changes.deletes.num_rows, changes.replaced) == (5, 0, False)


def renamed(shop: Shop, *names: tuple[str, str]) -> None:
    for former, later in names:
        shop.storage.rename_column("shop", "orders", former, later)


def test_names_of_columns_that_mean_another_one_bring_all_rows(shop: Shop, mirror: ccpr.Mirror) -> None:
    """Whoever keeps a copy by names has other values in every row."""
    shop.storage.add_column("shop", "orders", "payer", "varchar(20)", in_place=True)
    shop.update(pc.field("id") > 2400, payer="somebody")
    shop.publish()  # 4
    renamed(shop, ("customer", "x"), ("payer", "customer"), ("x", "payer"))
    shop.publish()  # 5
    shop.update(pc.field("id") > 2450, customer="else")
    renamed(shop, ("payer", "buyer"))
    shop.publish()  # 6
    shop.storage.drop_column("shop", "orders", "buyer", in_place=True)
    shop.storage.add_column("shop", "orders", "buyer", "varchar(20)", in_place=True)
    shop.publish()  # 7
    for last in (5, 6, 7):
        for lsns in ([None, *range(1, last + 1)], [None, 4, last]):
            copy = follow(mirror, "shop.orders", lsns)
            rows = mirror.table("shop.orders", last).to_arrow().sort_by("id").to_pylist()
            assert [copy[key] for key in sorted(copy)] == rows, lsns
    table = mirror.table("shop.orders")
    replaced = [table.changes(since, since + 1).replaced for since in range(3, 7)]
    assert replaced == [False, True, True, True], "a column that comes is no other one"
    numbers = [
        {field.name: field.metadata[b"PARQUET:field_id"] for field in list(table.changes(4, until).schema)[1:]}
        for until in (4, 5)
    ]
    assert numbers[0]["customer"] == numbers[1]["payer"]
    assert table.changes(4, 5).to_arrow().schema.field("payer").metadata == {b"PARQUET:field_id": numbers[1]["payer"]}


def test_another_key_is_a_typed_error_that_says_to_read_the_table(shop: Shop, orders: ccpr.Table) -> None:
    shop.storage.drop_table("shop", "orders")
    shop.storage.create_table("shop", "orders", {"id": "bigint", "line": "int"}, primary_key=["id", "line"])
    shop.publish()
    with pytest.raises(ccpr.KeyChanged, match=r"another key: id int64 before, id int64, line int32 after") as changed:
        orders.changes(3)
    assert "as a whole" in changed.value.remedy


def test_a_point_that_is_no_longer_retained_is_a_typed_error(shop: Shop, orders: ccpr.Table) -> None:
    mirror = shop.simulated.mirror
    files, head = list(mirror.point_files().all()), mirror.published_head()
    assert head is not None
    second = mirror.write_point(shop.published[1], shop.published[1].tables, [])
    third = mirror.write_point(shop.published[2], {}, [replace(files[1], path=second)])
    mirror.publish_head(replace(head, oldest_point=2, point=third))
    (shop.root / files[2].path).rename(shop.root / "gone")
    with pytest.raises(ccpr.PointGone, match="point 1 is before the oldest point, 2"):
        orders.changes(1)
    assert orders.changes(2).to_arrow().num_rows == 0


# ---- recordings


@pytest.mark.slow
@pytest.mark.recordings
@pytest.mark.parametrize(
    "scenario",
    ["all_types", "cut_inside_object", "ddl", pytest.param("dml", marks=pytest.mark.long), "keys", "table_level"],
)
def test_changes_between_recorded_points_lead_from_one_to_the_other(
    recordings: Path, recorded_mirror: RecordedMirror, scenario: str
) -> None:
    mirror = ccpr.open_mirror(recorded_mirror(scenario).store.url)
    database = database_of_recording(recordings / scenario)
    compared = 0
    points = mirror.points()
    for one, two in (*combinations(points, 2), *((None, point) for point in points)):
        snapshot = Snapshot(recordings / scenario / f"snapshot-{two.lsn:03}")
        for name in snapshot.expected_tables():
            try:
                changes = mirror.table(f"{database}.{name}", two).changes(one, two)
            except ccpr.KeyChanged:
                assert name == "reborn", "it was dropped and created again with another key"
                continue
            check(mirror, changes)
            compared += 1
    assert compared


def check(mirror: ccpr.Mirror, changes: ccpr.Changes) -> None:
    assert changes.after is not None
    hidden, key = changes.key == ("__mo_fake_pk_col",), list(changes.key)
    after = mirror.table(changes.after, changes.until).to_arrow(hidden=hidden).select(changes.upserts.column_names)
    assert after.schema.equals(changes.upserts.schema)
    if changes.before is None:
        assert sorted(row_texts(changes.upserts)) == sorted(row_texts(after))
        assert changes.deletes.num_rows == 0
        return
    before = mirror.table(changes.before, changes.since).to_arrow(hidden=hidden)
    if changes.replaced:
        assert sorted(row_texts(changes.upserts)) == sorted(row_texts(after))
        gone = set(row_texts(before.select(key))) - set(row_texts(after.select(key)))
        assert sorted(row_texts(changes.deletes)) == sorted(gone)
        return
    missing = [name for name in after.column_names if name not in before.column_names]
    for name in missing:  # null in rows that did not change
        before = before.append_column(name, pa.nulls(before.num_rows, after.schema.field(name).type))
    part = DeltaPart(changes.upserts, changes.deletes)
    result = applied(part, Rows(before.select(after.column_names), changes.key))
    assert sorted(row_texts(result)) == sorted(row_texts(after))
