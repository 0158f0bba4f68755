"""What engines answer to questions that they may answer from statistics and vectors alone: counts, extremes, filters on
rows that are gone. And that DuckDB and Spark read every version."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.lake import publish
from ccpr.lake.deletion_vectors import CommitVectors
from ccpr.lake.lake_options import Mapped, TableRules
from ccpr.mirror.points import Point
from ccpr_emulator.engine.storage import Storage
from tests.support.lake_engines import Query, duckdb_reads, spark_reads
from tests.support.lake_readers import assert_same_rows, changes_of, rows, truth
from tests.support.lakes import Published, VectorsInLog, source

pytestmark = pytest.mark.integration

QUESTIONS = (
    "SELECT count(*) FROM t",
    "SELECT max(id), min(id) FROM t",
    "SELECT count(*) FROM t WHERE id = 7",
    "SELECT count(*) FROM t WHERE id IS NULL",
    "SELECT count(*) FROM t WHERE id > 250",
    "SELECT count(*) FROM t WHERE price = 0",
    "SELECT count(*) FROM t WHERE name = 'n300'",
    "SELECT max(price) FROM t WHERE t.at >= '2026-01-02 03:04:05.678901'",
)
FLOATS = (
    ("SELECT count(*) FROM t WHERE v > 2", "isnan(v) OR v > 2"),
    ("SELECT count(*) FROM t WHERE v = 0", "v = 0"),
    ("SELECT count(*) FROM t WHERE v < -2", "v < -2"),
    ("SELECT count(*) FROM t WHERE v IS NULL", "v IS NULL"),
)
COPY_ON_WRITE = TableRules(copy_on_write=True)
Reads = Callable[[Sequence[Query]], list[pa.Table]]


def delta_rs_reads(queries: Sequence[Query]) -> list[pa.Table]:
    from deltalake import DeltaTable, QueryBuilder

    tables = ((query, DeltaTable(query.uri, version=query.version)) for query in queries)
    return [pa.table(QueryBuilder().register("t", table).execute(query.sql)) for query, table in tables]


EACH_ENGINE = pytest.mark.parametrize(
    "reads",
    [
        pytest.param(delta_rs_reads, id="delta-rs"),
        pytest.param(duckdb_reads, id="duckdb"),
        pytest.param(spark_reads, id="spark", marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)


def answers(rows: pa.Table) -> list[tuple]:
    """To QUESTIONS, by the rows of `shop.keyed`."""
    at = pa.scalar("2026-01-02 03:04:05.678901").cast(pa.timestamp("us"))
    numbers = rows.column("id")
    price = rows.column("price").filter(pc.greater_equal(rows.column("at"), at))
    return [
        (rows.num_rows,),
        (pc.max(numbers).as_py(), pc.min(numbers).as_py()),
        (pc.sum(pc.equal(numbers, 7)).as_py() or 0,),
        (numbers.null_count,),
        (pc.sum(pc.greater(numbers, 250)).as_py() or 0,),
        (pc.sum(pc.equal(rows.column("price"), pa.scalar(Decimal("0.00")))).as_py() or 0,),
        (pc.sum(pc.equal(rows.column("name"), "n300")).as_py() or 0,),
        (pc.max(price).as_py(),),
    ]


@EACH_ENGINE
def test_engines_count_what_exists(published: Published, points: list[Point], reads: Reads) -> None:
    for point in points:
        published.publish(point)
    queries, wanted = [], []
    for point in points[::4]:
        folder, version = published.shown[point.lsn]["shop.keyed"]
        queries += [Query(str(published.folder / folder), version, sql) for sql in QUESTIONS]
        wanted += answers(truth(published.mirror, point, "shop.keyed"))
    found = [tuple(column[0].as_py() for column in answer.columns) for answer in reads(queries)]
    assert dict(enumerate(found)) == dict(enumerate(wanted))


@EACH_ENGINE
def test_engines_find_floats_that_no_statistics_have(tmp_path: Path, reads: Reads) -> None:
    """NaN is greater than all else in each of them, and -0.0 is 0. Minimum and maximum of floats pass over both."""
    storage = Storage()
    with source(tmp_path, "CREATE TABLE shop.floats (id INT PRIMARY KEY, v DOUBLE, w FLOAT)", storage=storage) as found:
        special = [math.nan, -0.0, 0.0, 1.5, -2.5, math.inf, -math.inf, None]
        values = special * 40 + [1.0] * 600
        ids = pa.array(range(len(values)), pa.int32())
        columns = {"id": ids, "v": pa.array(values, pa.float64()), "w": pa.array(values, pa.float32())}
        with storage.begin() as transaction:
            transaction.insert("shop", "floats", pa.table(columns))
        lake = Published(found.mirror, tmp_path / "lake")
        lake.publish(found.point())
        folder, version = next(iter(lake.shown.values()))["shop.floats"]
        rows = pa.table(columns)
    for column in ("v", "w"):
        asked = [Query(str(lake.folder / folder), version, sql.replace("v", column)) for sql, _ in FLOATS]
        answers = [answer.column(0)[0].as_py() for answer in reads(asked)]
        kept = [duckdb.from_arrow(rows).filter(where.replace("v", column)) for _, where in FLOATS]
        assert answers == [relation.shape[0] for relation in kept]


@pytest.mark.parametrize(
    ("reads", "some"),
    [
        pytest.param(duckdb_reads, 1, id="duckdb"),
        pytest.param(spark_reads, 4, id="spark", marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)
def test_other_engines_read_every_version(
    published: Published, points: list[Point], reads: Reads, some: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all kinds of tables, with vectors in files and, as former releases wrote them, in the log; of Spark, which
    takes a second for each, some."""
    queries, wanted = [], []
    kinds = (
        (TableRules(), CommitVectors),
        (TableRules(), VectorsInLog),
        (TableRules(mapped=Mapped.NAME), CommitVectors),
        (COPY_ON_WRITE, CommitVectors),
    )
    for number, (rules, vectors) in enumerate(kinds):
        monkeypatch.setattr(publish, "CommitVectors", vectors)
        lake = replace(published, folder=published.folder / str(number), rules=rules, shown={})
        for point in points:
            lake.publish(point)
            for name, (folder, version) in lake.shown[point.lsn].items():
                queries.append(Query(str(lake.folder / folder), version))
                wanted.append((point, name))
    chosen = slice(None, None, some)
    for table, (point, name), query in zip(reads(queries[chosen]), wanted[chosen], queries[chosen], strict=True):
        assert_same_rows(table, truth(published.mirror, point, name), f"{name} at lsn {point.lsn}: {query}")


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_what_a_version_changed(published: Published, points: list[Point]) -> None:
    """The rows before and the changes are the rows behind; of tables with a key and without."""
    lake = replace(published, rules=TableRules(change_data=True))
    queries, steps = [], []
    for before, point in pairwise(points):
        lake.publish(before)
        lake.publish(point)
        for name in ("shop.keyed", "shop.keyless"):
            (folder, earlier), (_, version) = (lake.shown[one.lsn][name] for one in (before, point))
            if version > earlier:
                queries.append(Query(str(lake.folder / folder), version, changes=True))
                steps.append((name, before, point))
    assert {name for name, _, _ in steps} == {"shop.keyed", "shop.keyless"}
    for (name, *both), feed in zip(steps, spark_reads(queries), strict=True):
        former, now = (Counter(rows(truth(lake.mirror, point, name))) for point in both)
        gone, come = changes_of(feed)
        assert not gone - former
        assert former - gone + come == now, (name, both)
