"""Rows as Polars, pandas and DuckDB: the same values as Arrow's, of all types; an error where a package is missing."""

import sys
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ccpr
from tests.api.shop import Shop
from tests.support.recorded_mirror import database_of_recording
from tests.support.spark_fixtures import RecordedMirror


@pytest.fixture(scope="module")
def every_type(request: pytest.FixtureRequest) -> ccpr.Table:
    """A recorded table with a column of each type, nulls and extremes."""
    mirror: RecordedMirror = request.getfixturevalue("recorded_mirror")
    recordings: Path = request.getfixturevalue("recordings")
    database = database_of_recording(recordings / "all_types")
    return ccpr.open_mirror(mirror("all_types").store.url).table(f"{database}.every_type")


@pytest.mark.recordings
def test_polars_has_all_values_of_all_types(every_type: ccpr.Table) -> None:
    rows, frame = every_type.to_arrow(), every_type.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == rows.column_names
    assert frame.equals(pl.DataFrame(rows))
    back = frame.to_arrow().cast(rows.schema)
    assert back.equals(rows)


@pytest.mark.recordings
def test_pandas_has_all_values_of_all_types(every_type: ccpr.Table) -> None:
    rows, frame = every_type.to_arrow(), every_type.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == rows.column_names
    assert len(frame) == rows.num_rows > 0
    for name in rows.column_names:
        assert frame[name].isna().sum() == rows.column(name).null_count, name
    whole = [field.name for field in rows.schema if not pa.types.is_list(field.type)]
    back = pa.Table.from_pandas(frame[whole], schema=rows.select(whole).schema, preserve_index=False)
    assert back.replace_schema_metadata(None).equals(rows.select(whole))


@pytest.mark.recordings
def test_duckdb_has_all_values_of_all_types(every_type: ccpr.Table) -> None:
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        relation = every_type.to_duckdb(connection)
        rows = every_type.to_arrow()
        assert relation.columns == rows.column_names
        back = connection.sql("SELECT * FROM every_type").to_arrow_table()
        for name in rows.column_names:
            kind = rows.schema.field(name).type
            if pa.types.is_duration(kind):  # an interval there, of months, days and microseconds
                continue
            assert back.column(name).cast(kind).equals(rows.column(name)), name


def test_frames_take_what_the_others_take(orders: ccpr.Table, shop: Shop) -> None:
    options = {"at": 2, "columns": ["id", "total"], "filters": [("id", "in", [5, 15, 2400])]}
    rows = orders.to_arrow(**options)
    assert sorted(rows.column("id").to_pylist()) == [15, 2400]
    assert orders.to_polars(**options).equals(pl.DataFrame(rows))
    assert orders.to_pandas(**options)["id"].tolist() == rows.column("id").to_pylist()
    with duckdb.connect() as connection:
        assert orders.to_duckdb(connection, **options).to_arrow_table().cast(rows.schema).equals(rows)


def test_an_empty_result_has_the_columns(orders: ccpr.Table) -> None:
    nothing = [("id", "<", -1)]
    assert orders.to_arrow(filters=nothing).schema.equals(orders.schema)
    assert orders.to_polars(filters=nothing).columns == orders.schema.names
    assert list(orders.to_pandas(filters=nothing).columns) == orders.schema.names
    with duckdb.connect() as connection:
        assert orders.to_duckdb(connection, filters=nothing).fetchall() == []


# ---- DuckDB


def test_a_registered_table_is_read_by_each_query_and_shows_one_point(orders: ccpr.Table, shop: Shop) -> None:
    with duckdb.connect() as connection:
        orders.to_duckdb(connection)
        orders.to_duckdb(connection, "before", at=1)
        count = "SELECT count(*), sum(total) FROM orders"
        first = connection.sql(count).fetchall()
        assert first == connection.sql(count).fetchall()
        assert first[0][0] == 2490
        shop.insert(range(9000, 9010))
        shop.publish()
        assert connection.sql(count).fetchall() == first, "the point is that of the registration"
        joined = "SELECT count(*) FROM orders JOIN before USING (id)"
        assert connection.sql(joined).fetchall() == [(1990,)]
        assert connection.sql("SELECT customer FROM orders WHERE id = 11").fetchall() == [("changed",)]


@pytest.mark.parametrize("name", ["orders", "My orders", 'quoted"name', "shop.orders"])
def test_a_registered_table_may_have_any_name(orders: ccpr.Table, name: str) -> None:
    with duckdb.connect() as connection:
        relation = orders.to_duckdb(connection, name, columns=["id"])
        assert relation.aggregate("count(*)").fetchall() == [(2490,)]
        quoted = '"' + name.replace('"', '""') + '"'
        assert connection.sql(f"SELECT count(*) FROM {quoted}").fetchall() == [(2490,)]


def test_what_is_not_a_connection_is_a_typed_error(orders: ccpr.Table) -> None:
    with pytest.raises(ccpr.BadOption, match=r"str is not a connection of DuckDB.*duckdb\.connect\(\)"):
        orders.to_duckdb("memory")  # pyright: ignore[reportArgumentType]


def test_an_error_of_a_file_ends_the_query_with_its_code(orders: ccpr.Table, shop: Shop) -> None:
    with duckdb.connect() as connection:
        orders.to_duckdb(connection)
        for path in (shop.root / "objects").iterdir():
            path.unlink()
        with pytest.raises(duckdb.Error, match=r"MIRROR_DAMAGED: a file of the mirror is missing \[table shop\.orders"):
            connection.sql("SELECT count(*) FROM orders").fetchall()


# ---- Arrow streams


def test_a_table_is_an_arrow_stream_of_its_newest_point(orders: ccpr.Table, shop: Shop) -> None:
    rows = shop.rows(shop.published[-1])
    assert pa.table(orders).sort_by("id").equals(rows)
    assert pl.DataFrame(orders).sort("id").equals(pl.DataFrame(rows))
    with duckdb.connect() as connection:
        assert connection.sql("SELECT count(*) FROM orders").fetchall() == [(2490,)]


# ---- extras


@pytest.mark.parametrize("package", ["duckdb", "polars", "pandas"])
def test_a_package_that_is_missing_is_a_typed_error_that_says_what_to_install(
    orders: ccpr.Table, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    connection = duckdb.connect()
    monkeypatch.setitem(sys.modules, package, None)
    read = {
        "duckdb": lambda: orders.to_duckdb(connection),
        "polars": orders.to_polars,
        "pandas": orders.to_pandas,
    }[package]
    with pytest.raises(ccpr.ExtraMissing, match=f"{package} is not installed") as missing:
        read()
    assert missing.value.remedy == f"pip install 'matrixone-ccpr[{package}]'"
    assert orders.to_arrow().num_rows == 2490, "Arrow needs none of them"
