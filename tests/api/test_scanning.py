"""A table that is not there is said at once; a scan reads nothing until it is asked; rows are counted undecoded."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ccpr
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import FIRST_INSTANT
from tests.api.shop import Shop
from tests.support.decoded_columns import Decoded, note_decoded

ID = pc.field("id")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the objects that are opened."""
    names: list[str] = []
    open_object = Mirror.open_object

    def counted(mirror: Mirror, name: str, sums: bytes | None) -> ObjectFile:
        names.append(name)
        return open_object(mirror, name, sums)

    monkeypatch.setattr(Mirror, "open_object", counted)
    return names


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> set[Decoded]:
    return note_decoded(monkeypatch)


# ---- a table by its name


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("shop.ordres", r"Did you mean shop\.orders\?"),
        ("orders", r"Did you mean shop\.orders\?"),
        ("Shop.ORDERS", r"Did you mean shop\.orders\?"),
        ("crm.people", r"Its tables are shop\.customers, shop\.orders\."),
    ],
)
def test_a_name_that_no_table_has_fails_at_once_and_names_those_like_it(
    mirror: ccpr.Mirror, typed: str, said: str, opened: list[str]
) -> None:
    with pytest.raises(ccpr.errors.TableMissingInMirror, match=said) as missing:
        mirror.table(typed)
    assert missing.value.code == "TABLE_NOT_IN_POINT"
    assert "at=…" in missing.value.remedy
    assert not opened


def test_a_column_that_is_not_there_is_said_with_one_like_it(orders: ccpr.Table) -> None:
    with pytest.raises(ccpr.errors.TableMissingInMirror, match=r"no column custmer .*Did you mean customer\?"):
        orders.scan(columns=["custmer"])
    with pytest.raises(ccpr.errors.BadFilter, match=r"no column Total .*Did you mean total\?"):
        orders.scan(filters=[("Total", ">", 1)])


def test_a_table_that_only_older_points_show_is_opened_at_one_of_them(shop: Shop, mirror: ccpr.Mirror) -> None:
    shop.storage.drop_table("shop", "orders")
    shop.publish()
    with pytest.raises(ccpr.errors.TableMissingInMirror, match="at point 4"):
        mirror.table("shop.orders")
    orders = mirror.table("shop.orders", at=2)
    assert repr(orders) == f"<ccpr.Table shop.orders at point 2 of {mirror.url}>"
    assert (orders.lsn, orders.count(), orders.count(at=1)) == (2, 2490, 2000)
    assert orders.to_arrow().num_rows == pa.table(orders).num_rows == 2490
    changes = orders.changes(since=2)
    assert (changes.until, changes.after, changes.deletes.num_rows) == (4, None, 2490), "up to the newest point"
    with pytest.raises(ccpr.errors.TableMissingInMirror, match="at point 4"):
        orders.scan(at=4)


def test_a_table_that_is_opened_at_a_point_stays_there(shop: Shop, mirror: ccpr.Mirror) -> None:
    newest, fixed = mirror.table("shop.orders"), mirror.table("shop.orders", at=mirror.point())
    shop.insert(range(5000, 5003))
    shop.publish()
    assert (newest.count(), fixed.count()) == (2493, 2490)
    assert fixed.scan(columns=["id"]).to_arrow().num_rows == 2490


# ---- points: numbers are versions


def test_a_number_is_a_version_and_a_datetime_a_time(orders: ccpr.Table, mirror: ccpr.Mirror) -> None:
    for at in (2, "2", np.int64(2), np.uint8(2), mirror.point(2)):
        assert orders.scan(at).lsn == 2
    time = mirror.point(2).time
    for at in (time, time.replace(tzinfo=None), time.isoformat(), str(int(time.timestamp() * 1e9) + 10**6)):
        assert orders.scan(at).lsn == 2
    with pytest.raises(ccpr.errors.PointNotReached, match=r"point 1795253400 is not reached"):
        orders.scan(int(datetime(2026, 11, 21, 9, 30, tzinfo=UTC).timestamp()))
    for number in (FIRST_INSTANT, time_ns := int(time.timestamp()) * 10**9, np.int64(time_ns)):
        with pytest.raises(ccpr.errors.BadOption, match=r"a number is a point.*Give a time as a datetime"):
            orders.scan(number)
    with pytest.raises(ccpr.errors.BadOption, match=r"at = 1\.5 \(float\)"):
        orders.scan(1.5)  # pyright: ignore[reportArgumentType]


# ---- laziness, limits


def test_a_scan_opens_no_file_until_rows_are_asked_for(
    shop: Shop, orders: ccpr.Table, mirror: ccpr.Mirror, opened: list[str]
) -> None:
    scan = mirror.scan("shop.orders", columns=["id"], filters=[("id", ">=", 2000)])
    assert (scan.table, scan.lsn, scan.limit, scan.schema.names) == ("shop.orders", 3, None, ["id"])
    assert repr(scan) == "<ccpr.Scan of shop.orders at point 3>"
    assert not opened
    shop.insert(range(5000, 5003))
    shop.publish()
    for _ in range(2):
        assert scan.to_arrow().num_rows == scan.count() == 500, "the point was fixed by the call"
        assert pa.table(scan).num_rows == 500
    assert opened
    assert orders.count(filters=[("id", ">=", 2000)]) == 503


def test_a_limit_reads_no_more_files_than_it_needs(orders: ccpr.Table, opened: list[str]) -> None:
    assert orders.to_arrow(at=2).num_rows == 2490
    every = set(opened)
    opened.clear()
    assert orders.to_arrow(at=2, limit=7).num_rows == 7
    assert set(opened) < every
    for limit, rows in ((0, 0), (1, 1), (2489, 2489), (2490, 2490), (10**6, 2490), (None, 2490)):
        scan = orders.scan(2, limit=limit)
        assert scan.to_arrow().num_rows == scan.count() == rows
    scan = orders.scan(filters=[("id", "<", 100)], limit=60)
    assert max(scan.to_arrow().column("id").to_pylist()) < 100
    assert scan.to_polars().height == scan.to_pandas().shape[0] == scan.count() == 60
    for wrong in (-1, True, 1.5, "7"):
        with pytest.raises(ccpr.errors.BadOption, match="is not a number of rows"):
            orders.to_arrow(limit=wrong)  # pyright: ignore[reportArgumentType]


def test_a_keyword_that_no_scan_has_is_named(orders: ccpr.Table) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colums'"):
        orders.to_arrow(colums=["id"])  # pyright: ignore[reportCallIssue]


# ---- counting


def test_rows_are_counted_without_decoding_one(shop: Shop, orders: ccpr.Table, decoded: set[Decoded]) -> None:
    for at, rows in ((1, 2000), (2, 2490), (3, 2490)):
        assert orders.count(at) == orders.scan(at).count() == rows
    assert orders.count(filters=[("id", ">=", 0)]) == 2490, "every block is within the filter"
    assert orders.count(filters=[("id", "is not null")]) == 2490
    assert orders.count(filters=[("id", "<", 0)]) == orders.count(filters=[("id", "is null")]) == 0
    assert not decoded
    assert orders.count(1, filters=[("id", "<", 1500), ("placed", "is not null")]) == 1500
    assert {one.column for one in decoded} == {"id", "placed"}, "only what filters are on"
    decoded.clear()
    assert shop.rows(shop.published[0]).num_rows == 2000
    assert orders.count(1, filters=[("customer", "is null")]) == 286
    assert {one.column for one in decoded} == {"customer"}


COLUMNS = {
    "n": "int",
    "big": "bigint",
    "text": "varchar(60)",
    "day": "date",
    "moment": "datetime",
    "amount": "decimal(12,2)",
}
DAY, MOMENT = datetime(1970, 1, 1).date(), datetime(1970, 1, 1)


def row_of(number: int, missing: frozenset[str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "n": number,
        "big": number * 10**12 - 5,
        "text": ("ü" * 40)[: number % 41] + str(number),
        "day": DAY + timedelta(days=number),
        "moment": MOMENT + timedelta(hours=number),
        "amount": pa.scalar(number, pa.decimal128(12, 2)).as_py(),
    }
    return {name: None if name in missing else value for name, value in values.items()}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Inserts of rows in a stretch, some with nulls, and deletes of stretches."""
    steps: list[tuple[str, Any]] = []
    for begin in range(draw(st.integers(1, 4))):
        first = begin * 40
        missing = frozenset(draw(st.sets(st.sampled_from([name for name in COLUMNS if name != "n"]), max_size=2)))
        some = draw(st.integers(0, 40))
        steps.append(("insert", [row_of(first + at, missing if at < some else frozenset()) for at in range(40)]))
        if draw(st.booleans()):
            low = draw(st.integers(0, first + 40))
            steps.append(("delete", (low, low + draw(st.integers(0, 30)))))
    return steps


def a_filter(draw: st.DrawFn) -> tuple[Any, ...]:
    name = draw(st.sampled_from(list(COLUMNS)))
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]))
    if operator.startswith("is "):
        return name, operator
    values = [
        row_of(draw(st.sampled_from([-5, 0, 1, 39, 40, 41, 77, 80, 159, 160])), frozenset())[name] for _ in range(3)
    ]
    return name, operator, values if "in" in operator else values[0]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_count_is_the_number_of_rows_that_are_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shop = Shop(Path(tmp_path_factory.mktemp("counted")))
    shop.storage.create_table("shop", "t", COLUMNS, primary_key=["n"])
    for step, what in data.draw(histories()):
        if step == "insert":
            with shop.storage.begin() as transaction:
                transaction.insert("shop", "t", what)
            if data.draw(st.booleans()):
                shop.storage.flush("shop", "t")
        else:
            low, high = what
            shop.delete((pc.field("n") >= low) & (pc.field("n") < high), "t")
        if data.draw(st.booleans()):
            shop.publish()
    shop.storage.flush("shop", "t")
    if data.draw(st.booleans()):
        shop.storage.merge("shop", "t")
    shop.publish()
    table = ccpr.open_mirror(shop.root).table("shop.t")
    for _ in range(6):
        filters = [a_filter(data.draw) for _ in range(data.draw(st.integers(0, 2)))]
        at = data.draw(st.sampled_from(shop.published)).lsn
        assert table.count(at, filters=filters) == table.to_arrow(at, filters=filters).num_rows, (at, filters)
