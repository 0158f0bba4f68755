"""Assets that have replicated tables as inputs: each form of them has the source's rows at the point that the run's
data version says, of the columns and the partition that were asked for."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql
import pytest

import ccpr as api
from ccpr.dagster.mirror_io import MirrorIOManager
from ccpr.mirror.encryption_keys import new_key
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.dagster.test_tables import DATABASE, NAME, ccpr, insert, iterate, storage

pytestmark = pytest.mark.integration

__all__ = ["storage"]
KEY = dg.AssetKey([NAME, DATABASE, "a"])
Rows = set[tuple[Any, ...]]


def source(storage: Storage, table: str = "a") -> Rows:
    with storage.begin() as transaction:
        return {tuple(row.values()) for row in transaction.rows(DATABASE, table).to_pylist()}


def tuples(rows: pa.Table) -> Rows:
    return {tuple(row.values()) for row in rows.to_pylist()}


def asset(form: Any, found: list[Any], *, key: dg.AssetKey = KEY, **options: Any) -> dg.AssetsDefinition:
    """One that keeps what it is given."""
    metadata = options.pop("metadata", {})

    def compute(rows: Any) -> None:
        found.append(rows)

    compute.__annotations__["rows"] = form
    read = dg.AssetIn(key, input_manager_key="mirror", metadata=metadata)
    return dg.asset(name="downstream", ins={"rows": read}, **options)(compute)


def materialize(
    instance: dg.DagsterInstance, one: dg.AssetsDefinition, partition: str | None = None
) -> dg.ExecuteInProcessResult:
    inputs = [dg.AssetSpec(key) for key in one.dependency_keys]
    return dg.materialize(
        [one, *inputs],
        resources={"mirror": MirrorIOManager()},
        instance=instance,
        partition_key=partition,
        raise_on_error=False,
    )


def read(instance: dg.DagsterInstance, form: Any, partition: str | None = None, **options: Any) -> Any:
    """What an asset is given whose input is annotated so."""
    found: list[Any] = []
    result = materialize(instance, asset(form, found, **options), partition)
    assert result.success, failure(result)
    return found[0]


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = result.get_step_failure_events()
    error = event.step_failure_data.error
    assert error is not None
    return error.message + (error.cause.message if error.cause else "")


FORMS: dict[Any, Callable[[Any], pa.Table]] = {
    pl.LazyFrame: lambda frame: frame.collect().to_arrow(),
    pl.DataFrame: lambda frame: frame.to_arrow(),
    pd.DataFrame: lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    pa.Table: lambda rows: rows,
    pa.RecordBatchReader: lambda batches: batches.read_all(),
    duckdb.DuckDBPyRelation: lambda relation: relation.to_arrow_table(),
    api.Scan: lambda scan: scan.to_arrow(),
    Any: lambda scan: scan.to_arrow(),
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.__module__}.{form.__name__}")
def test_each_form_has_the_rows_of_the_source(storage: Storage, instance: dg.DagsterInstance, form: Any) -> None:
    iterate(instance)
    assert tuples(FORMS[form](read(instance, form))) == source(storage)
    assert len(source(storage)) == 100


def test_a_lazy_frame_reads_what_its_query_needs(storage: Storage, instance: dg.DagsterInstance) -> None:
    insert(storage, *range(1000, 21_000))
    iterate(instance)
    frame: pl.LazyFrame = read(instance, pl.LazyFrame)
    assert frame.select(pl.len()).collect().item() == 20_100
    assert frame.filter(pl.col("n") >= 20_990).select("v").collect()["v"].sort().to_list() == [
        f"v{n}" for n in range(20_990, 21_000)
    ]
    assert frame.head(3).collect().height == 3
    assert frame.filter(pl.col("n") < 100).head(200).select(pl.col("n").sum()).collect().item() == sum(range(100))


def test_the_point_is_that_of_the_version_that_the_run_has_seen(storage: Storage, instance: dg.DagsterInstance) -> None:
    """Also where a newer one comes between the run's planning and its reading, and where its point has gone."""
    iterate(instance)
    before = source(storage)
    with storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.field("n") < 30)
    ccpr("run", NAME)  # nobody has told Dagster
    assert tuples(read(instance, pa.Table)) == before
    version = instance.get_latest_data_version_record(KEY)
    assert version is not None
    made = dg.AssetKey("downstream")
    event = instance.get_latest_materialization_event(made)
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags is not None
    assert event.asset_materialization.tags[f"dagster/input_data_version/{KEY.to_user_string()}"] == "0"

    insert(storage, 7)
    ccpr("run", NAME)
    ccpr("points", "drop", NAME, "--before", "2", "--yes")
    result = materialize(instance, asset(pa.Table, []))
    assert not result.success
    assert "POINT_GONE" in failure(result)
    assert "Materialize the asset again" in failure(result)
    iterate(instance)
    assert tuples(read(instance, pa.Table)) == source(storage)


def test_a_point_that_has_gone_is_read_from_the_files_that_it_shares_with_the_newest(
    storage: Storage, instance: dg.DagsterInstance
) -> None:
    iterate(instance)
    insert(storage, 1, 2, table="b")  # and appendable objects of `a` are flushed, which changes no row
    lsn = ccpr("run", NAME)["lsn"]
    ccpr("points", "drop", NAME, "--before", str(lsn), "--yes")
    assert tuples(read(instance, pa.Table)) == source(storage)


def test_columns_and_filters_are_asked_for_by_metadata(storage: Storage, instance: dg.DagsterInstance) -> None:
    iterate(instance)
    rows = read(instance, pa.Table, metadata={"columns": ["v"], "filters": [("n", ">=", 98)]})
    assert rows.column_names == ["v"]
    assert tuples(rows) == {("v98",), ("v99",)}
    result = materialize(instance, asset(pa.Table, [], metadata={"columns": ["w"]}))
    assert "TABLE_NOT_IN_POINT" in failure(result)


@pytest.mark.parametrize("kind", ["date", "datetime", "timestamp"])
def test_a_partition_is_the_rows_of_its_time_or_the_table_at_its_end(
    storage: Storage, instance: dg.DagsterInstance, kind: str
) -> None:
    storage.create_table(DATABASE, "days", {"n": "int not null", "day": kind}, primary_key=["n"])
    times: list[Any] = [datetime(2026, 11, 20, tzinfo=UTC) + timedelta(hours=12 * n) for n in range(6)]
    shown = [time if kind == "timestamp" else time.replace(tzinfo=None) for time in times]
    shown = [time.date() for time in times] if kind == "date" else shown
    with storage.begin() as transaction:
        transaction.insert(DATABASE, "days", {"n": list(range(6)), "day": shown})
    iterate(instance)
    daily = dg.DailyPartitionsDefinition("2026-11-20")
    of_days = {"key": dg.AssetKey([NAME, DATABASE, "days"]), "partitions_def": daily}
    rows = read(instance, pl.LazyFrame, "2026-11-21", metadata={"partition_expr": "day"}, **of_days).collect()
    assert sorted(rows["n"].to_list()) == [2, 3]

    numbered = dg.StaticPartitionsDefinition(["7", "8"])
    rows = read(instance, pl.LazyFrame, "7", partitions_def=numbered, metadata={"partition_expr": "n"}).collect()
    assert rows.rows() == [(7, "v7")]


def test_a_partition_is_a_point_where_that_is_asked_for(storage: Storage, instance: dg.DagsterInstance) -> None:
    iterate(instance)
    first = source(storage)
    insert(storage, 1000)
    iterate(instance)
    points = dg.StaticPartitionsDefinition(["0", "1", "9"])
    at = {"partitions_def": points, "metadata": {"at_partition": True}}
    assert tuples(read(instance, pa.Table, "0", **at)) == first
    assert tuples(read(instance, pa.Table, "1", **at)) == source(storage) != first
    assert "POINT_NOT_REACHED" in failure(materialize(instance, asset(pa.Table, [], **at), "9"))
    daily = dg.DailyPartitionsDefinition(datetime.now(UTC).date().isoformat(), end_offset=1)
    today = datetime.now(UTC).date().isoformat()
    result = materialize(instance, asset(pa.Table, [], partitions_def=daily, metadata=at["metadata"]), today)
    assert "POINT_NOT_REACHED" in failure(result), "the day has not ended"


def test_what_cannot_be_done_says_so(storage: Storage, instance: dg.DagsterInstance) -> None:
    assert "POINT_NOT_REACHED" in failure(materialize(instance, asset(pa.Table, [])))
    iterate(instance)
    said = failure(materialize(instance, asset(str, [])))
    assert "BAD_OPTION" in said
    assert "polars.LazyFrame" in said

    @dg.asset(io_manager_key="mirror")
    def written() -> int:
        return 1

    said = failure(materialize(instance, written))
    assert "BAD_OPTION" in said
    assert "writes nothing" in said


def test_an_encrypted_mirror_in_a_bucket_is_read_as_any_other(
    home: Path, s3_url: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_KEY", new_key())
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    storage.create_table(DATABASE, "a", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    insert(storage, *range(100))
    with SimulatedUpstream(storage) as emulator:
        upstream = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
        scope = ("--database", DATABASE, "--publication", "p", "--publisher", "sys")
        ccpr("subscribe", NAME, "--from", upstream, *scope, "--mirror", s3_url, "--encrypt", "env:MIRROR_KEY")
        iterate(instance)
    assert tuples(read(instance, pl.LazyFrame).collect().to_arrow()) == source(storage)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_it_too(storage: Storage, instance: dg.DagsterInstance) -> None:
    iterate(instance)
    frame: pyspark.sql.DataFrame = read(instance, pyspark.sql.DataFrame, metadata={"columns": ["n"]})
    assert {row.n for row in frame.collect()} == {row[0] for row in source(storage)}
