"""Spark's DataFrames of a mirror have the rows that the process reads itself."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ccpr
from tests.api.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def ordered(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in rows.column_names if name in ("__ccpr_kind", "id")])


def test_a_table_is_read_at_a_point_with_filters(
    spark: "SparkSession", shop: Shop, mirror: ccpr.Mirror, orders: ccpr.Table
) -> None:
    filters = [("id", ">=", 1990), ("customer", "is not null"), ("id", "not in", [1995, 2400])]
    for at in (1, 2, None, mirror.points()[0], "2026-11-21T09:10"):
        frame = ccpr.read_table(spark, mirror, "shop.orders", at=at, filters=filters, columns=["id", "total"])
        assert frame.columns == ["id", "total"]
        wanted = orders.to_arrow(at, filters=filters, columns=["id", "total"])
        assert ordered(frame.toArrow()).equals(ordered(wanted))
        assert wanted.num_rows > 0
    whole = ccpr.read_table(spark, shop.root, "shop.orders")
    assert whole.count() == whole.where("id >= 0").count() == 2490
    assert ccpr.read_table(spark, str(shop.root), "shop.customers", hidden=True).columns[-1] == "__mo_fake_pk_col"


def test_what_cannot_be_read_is_a_typed_error_before_spark_starts(
    spark: "SparkSession", mirror: ccpr.Mirror, tmp_path: Path
) -> None:
    with pytest.raises(ccpr.BadFilter, match="cannot be compared"):
        ccpr.read_table(spark, mirror, "shop.orders", filters=[("id", "=", "5")])
    with pytest.raises(ccpr.TableMissingInMirror):
        ccpr.read_table(spark, mirror, "shop.nope")
    with pytest.raises(ccpr.BadOption):
        ccpr.read_table(spark, mirror, "shop.orders", columns="id")
    with pytest.raises(ccpr.MirrorNotFound):
        ccpr.read_table(spark, tmp_path / "nowhere", "shop.orders")
    with pytest.raises(ccpr.BadOption, match="later than until"):
        ccpr.read_changes(spark, mirror, "shop.orders", 3, 1)


def test_a_mirror_that_workers_cannot_see_is_a_typed_error(mirror: ccpr.Mirror) -> None:
    class Conf:
        def get(self, name: str, default: str) -> str:
            return "spark://far:7077"

    class Session:
        conf = Conf()

    for read in (
        lambda: ccpr.read_table(Session(), mirror, "shop.orders"),  # pyright: ignore[reportArgumentType]
        lambda: ccpr.read_changes(Session(), mirror, "shop.orders", 1),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ccpr.StoreNotShared, match="spark://far:7077"):
            read()


def test_changes_are_those_of_the_process(spark: "SparkSession", shop: Shop, mirror: ccpr.Mirror) -> None:
    storage = shop.storage
    storage.truncate("shop", "orders")
    shop.insert(range(100, 200))
    shop.publish()  # 4
    storage.drop_table("shop", "orders")
    storage.create_table("shop", "a.b`c", {"k.1": "int", "k`2": "varchar(9)", "v": "int"}, primary_key=["k.1", "k`2"])
    with storage.begin() as transaction:
        transaction.insert("shop", "a.b`c", {"k.1": [1, 2, 3], "k`2": ["a", "b", "c"], "v": [1, 2, 3]})
    shop.publish()  # 5
    storage.truncate("shop", "a.b`c")
    with storage.begin() as transaction:
        transaction.insert("shop", "a.b`c", {"k.1": [2, 3], "k`2": ["b", "x"], "v": [0, 0]})
    shop.publish()  # 6
    for name, since, until, counts in (
        ("shop.orders", 1, 2, (505, 10)),
        ("shop.orders", 2, 3, (0, 0)),
        ("shop.orders", None, 1, (2000, 0)),
        ("shop.orders", 3, 4, (100, 2390)),
        ("shop.orders", 4, 5, (0, 100)),
        ("shop.a.b`c", 5, 6, (2, 2)),
    ):
        frame = ccpr.read_changes(spark, mirror, name, since, until)
        rows = frame.toArrow()
        kinds = rows.column("__ccpr_kind").to_pylist()
        assert (kinds.count("upsert"), kinds.count("delete")) == counts, name
        ours = mirror.table(name, until if since is None else since).changes(since, until).to_arrow()
        assert rows.column_names == ours.column_names
        by = [(column, "ascending") for column in ours.column_names[:3]]
        assert rows.cast(ours.schema).sort_by(by).equals(ours.sort_by(by)), name


@pytest.mark.in_turn
def test_a_session_of_ours_reads(spark: "SparkSession", mirror: ccpr.Mirror, tmp_path: Path) -> None:
    """The process has a session already, which is what a second call gets."""
    session = ccpr.spark_session(cache=tmp_path / "java")
    frame = ccpr.read_table(session, mirror, "shop.orders", columns=["id"])
    assert frame.agg({"id": "max"}).collect()[0][0] == 2499
    loaded = session.read.format("matrixone").option("mirror", mirror.url).option("table", "shop.orders").load()
    assert pc.max(loaded.toArrow().column("id")).as_py() == 2499
