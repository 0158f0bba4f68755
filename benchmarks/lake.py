"""What a lake costs: its first publication, an increment, and what Spark reads. `--json` prints the figures as one JSON
object.

Five million rows of eight columns, in objects of 131,072 rows as MatrixOne writes them, published as a Delta table in a
folder. `publish_ratio` compares with reading the same objects and writing the same Parquet files by pyarrow, in as many
threads, and nothing else: its time by ours. Then one row in a thousand changes, spread over the table: `increment_s` is
the commit that shows it, `increment_bytes_ratio` the share of the bytes by the share of the rows: 1 is in proportion.
Spark sums all columns of the lake's table and of plain Parquet files of the same rows, in turns in one warm session of
two cores: `spark_ratio` without deletions, `spark_deleted_ratio` with one row in a hundred deleted, and
`spark_own_deleted_ratio` where Spark itself wrote the Delta table and deleted the rows; `--no-spark` leaves it out.
The lake is published as Iceberg tables, too, `--no-iceberg` leaves it out. `iceberg_commit_ms` is the commit of fifty
tables with changed rows, after their Parquet files; `committer_mb` is the most memory that its JVM takes.
`bytes_ratio` is what the change of one row in a thousand writes into an Iceberg table, by its data files and files of
deletes alone: the rest is metadata. `spark_iceberg_ratio` is Spark's, as `spark_ratio`. Each figure is the median of
its rounds. The last line is `lake: publish_ratio=… increment_s=… increment_bytes_ratio=… iceberg_commit_ms=…
committer_mb=… bytes_ratio=… spark_ratio=… spark_deleted_ratio=… spark_own_deleted_ratio=… spark_iceberg_ratio=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.shared.wide_table import TYPES, times, values, wide_table
from ccpr.lake.commit import Lake, PointToPublish, TablePlace
from ccpr.lake.object_files import THREADS
from ccpr.lake.publish import Published, publish_table
from ccpr.lake.stores import LakeStore
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.points import Point
from ccpr.mirror.table_read import GROUP_ROWS
from ccpr_emulator.engine.storage import Storage
from tests.support.simulated_mirror import SimulatedMirror

_ROWS, _ROUNDS, _SPARK_ROUNDS = 5_000_000, 3, 7
_TABLES, _SMALL_ROWS, _WARM = 50, 2000, 3
_TABLE = "b.t"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--rows", type=int, default=_ROWS)
    parser.add_argument("--tables", type=int, default=_TABLES, help="that an Iceberg commit changes")
    parser.add_argument("--no-spark", dest="spark", action="store_false")
    parser.add_argument("--no-iceberg", dest="iceberg", action="store_false")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tables = arguments.tables if arguments.iceberg else 0
        figures = measure(Path(scratch), arguments.rows, arguments.rounds, tables, spark=arguments.spark)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{figures['rows']:.0f} rows: published in {figures['publish_s']:.2f} s, {figures['bytes'] / 1e6:.1f} MB")
    print(f"read and written by pyarrow alone in {figures['plain_s']:.2f} s")
    print(f"{figures['changed']:.0f} rows changed: {figures['increment_bytes'] / 1e3:.1f} kB written")
    names = ("publish_ratio", "increment_s", "increment_bytes_ratio")
    names += ("iceberg_commit_ms", "committer_mb", "bytes_ratio")
    names += ("spark_ratio", "spark_deleted_ratio", "spark_own_deleted_ratio", "spark_iceberg_ratio")
    print("lake: " + " ".join(f"{name}={figures[name]:.3f}" for name in names if name in figures))


def measure(scratch: Path, rows: int, rounds: int, tables: int, *, spark: bool) -> dict[str, float]:
    rng = np.random.default_rng(1)
    simulated = wide_table(scratch / "mirror", rows, rng)
    (first,) = simulated.points
    plain_s, publish_s = [], []
    for _ in range(rounds):
        plain_s.append(timed(lambda: plain(simulated, first, emptied(scratch / "plain"))))
        publish_s.append(timed(lambda: publish(simulated, first, emptied(scratch / "lake"))))
    published = publish(simulated, first, emptied(scratch / "lake"))
    change(simulated, rows, 0.001, rng)
    simulated.take_points()
    increments, place = [], place_of(simulated, first, published)
    kept = scratch / "kept"
    shutil.copytree(scratch / "lake", kept)
    increment = published
    for _ in range(rounds):
        shutil.copytree(kept, emptied(scratch / "lake"), dirs_exist_ok=True)
        started = time.perf_counter()
        increment = publish(simulated, simulated.points[1], scratch / "lake", place)
        increments.append(time.perf_counter() - started)
    figures = {
        "rows": rows,
        "bytes": published.bytes_written,
        "plain_s": statistics.median(plain_s),
        "publish_s": statistics.median(publish_s),
        "publish_ratio": statistics.median(plain_s) / statistics.median(publish_s),
        "changed": rows // 1000,
        "increment_s": statistics.median(increments),
        "increment_bytes": increment.bytes_written,
        "increment_bytes_ratio": increment.bytes_written / published.bytes_written / 0.001,
    }
    if tables:
        figures |= commit_iceberg(scratch / "small", tables, rounds) | write_iceberg(simulated, scratch / "iceberg")
    return figures | (read_by_spark(scratch, simulated, kept) if spark else {})


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def place_of(simulated: SimulatedMirror, point: Point, published: Published) -> TablePlace:
    (ref,) = point.tables.values()
    return TablePlace(_TABLE, published.version, ref.manifest, point.at.physical)


def publish(simulated: SimulatedMirror, point: Point, folder: Path, place: TablePlace | None = None) -> Published:
    store = LocalStore(folder, shared=True)
    lake = Lake(LakeStore(store, store), simulated.mirror, "benchmark")
    (ref,) = point.tables.values()
    wanted = PointToPublish(point.lsn, point.at, point.snapshot)
    return publish_table(lake, wanted, ref, place or TablePlace(_TABLE))


def plain(simulated: SimulatedMirror, point: Point, folder: Path) -> None:
    """The same files, by nothing but reading and writing."""
    (ref,) = point.tables.values()
    manifest = simulated.mirror.manifest(ref)
    columns = manifest.table.user_columns

    def write(name: str) -> None:
        batches = list(simulated.mirror.rows(manifest, columns, point.at, names=[name]))
        options = {"compression": "zstd", "store_schema": False, "store_decimal_as_integer": True}
        pq.write_table(pa.Table.from_batches(batches), folder / f"{name}.parquet", row_group_size=GROUP_ROWS, **options)

    names = [listed.stats.name for listed in manifest.listed_objects() if not listed.tombstone]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, names))


def change(simulated: SimulatedMirror, rows: int, share: float, rng: np.random.Generator) -> None:
    """Of ten changed rows eight are updated, one is deleted and one is new."""
    chosen = rng.choice(rows, int(rows * share * 0.9), replace=False) * 2
    updated, deleted = np.split(chosen, [len(chosen) * 8 // 9])
    transaction = simulated.storage.begin()
    transaction.update("b", "t", {"kind": 99}, pc.field("id").isin(updated.tolist()))
    transaction.delete("b", "t", pc.field("id").isin(deleted.tolist()))
    transaction.insert("b", "t", values(np.sort(rng.choice(rows, len(deleted), replace=False)) * 2 + 1, rng))
    transaction.commit()


def commit_iceberg(scratch: Path, tables: int, rounds: int) -> dict[str, float]:
    """Many small tables, which all change in each round."""
    from tests.support.iceberg_published import jvm

    rng = np.random.default_rng(2)
    simulated = SimulatedMirror(Storage(now=times()), scratch / "mirror")
    storage, names = simulated.storage, [f"t{number}" for number in range(tables)]
    storage.create_database("b")
    for name in names:
        storage.create_table("b", name, dict(TYPES), primary_key=["id"])
    transaction = storage.begin()
    for name in names:
        transaction.insert("b", name, values(np.arange(_SMALL_ROWS), rng))
    transaction.commit()
    simulated.take_points()
    for turn in range(rounds + _WARM):
        transaction = storage.begin()
        for name in names:
            transaction.update("b", name, {"kind": 99}, pc.field("id").isin(range(5 * turn, 5 * turn + 5)))
        transaction.commit()
        simulated.take_points()
    seconds = publish_iceberg(simulated, scratch / "lake")[1 + _WARM :]
    used = Path(f"/proc/{jvm().pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    return {"iceberg_commit_ms": statistics.median(seconds) * 1000, "committer_mb": int(used) / 1000}


def write_iceberg(simulated: SimulatedMirror, folder: Path) -> dict[str, float]:
    """What an increment writes into an Iceberg table."""

    def size(*kinds: str) -> int:
        return sum(path.stat().st_size for kind in kinds for path in (folder / _TABLE / kind).glob("*"))

    publish_iceberg(simulated, folder, 1)
    before, metadata = size("data", "deletes"), size("metadata")
    publish_iceberg(simulated, folder, 2)
    content, metadata = size("data", "deletes") - before, size("metadata") - metadata
    return {"bytes_ratio": (content + metadata) / content, "iceberg_metadata_kb": metadata / 1000}


def publish_iceberg(simulated: SimulatedMirror, folder: Path, count: int | None = None) -> list[float]:
    """The first points, those that are there left out. Returns seconds of each commit, without files of rows."""
    from ccpr.lake.iceberg import ChangedTable
    from tests.support.iceberg_published import IcebergPublished

    published = IcebergPublished(simulated.mirror, folder)
    lake, found = published.lake(), []
    tables = published.opened(lake)
    for point in simulated.points[:count]:
        wanted, changed = PointToPublish(point.lsn, point.at, point.snapshot), []
        for ref in point.tables.values():
            name = ref.qualified_name
            state = lake.log(name).read()
            if state.mark is None or state.mark.at < point.at.physical:
                publish_table(lake, wanted, ref, TablePlace(name, state.version))
                changed.append(ChangedTable(name, name, name, lake.states[name]))
        started = time.perf_counter()
        assert tables.publish(wanted, changed) == {}
        found.append(time.perf_counter() - started)
    return found


def read_by_spark(scratch: Path, simulated: SimulatedMirror, lake: Path) -> dict[str, float]:
    import os

    from ccpr.lake.iceberg_jvm import find_jars
    from tests.support import lake_spark
    from tests.support.lake_engines import delta_jars

    jars = [*delta_jars(), *find_jars(s3=False)]
    os.environ["LAKE_JARS"] = lake_spark.SETTINGS["spark.jars"] = ",".join(map(str, jars))
    spark = lake_spark.session()
    try:
        figures = {"spark_ratio": _ratio(spark, lake / _TABLE, scratch / "plain")}
        if (scratch / "iceberg").is_dir():
            first = min((scratch / "iceberg" / _TABLE / "metadata").glob("*.metadata.json"))
            figures["spark_iceberg_ratio"] = _ratio(spark, first, scratch / "plain", "iceberg")
        transaction = simulated.storage.begin()
        deleted = _delete_by_spark(spark, scratch / "lake" / _TABLE, scratch / "own")
        transaction.delete("b", "t", pc.field("id").isin(deleted.tolist()))
        transaction.commit()
        simulated.take_points()
        point = simulated.points[-1]
        publish(simulated, point, emptied(scratch / "deleted"))
        plain(simulated, point, emptied(scratch / "plain"))
        figures["spark_deleted_ratio"] = _ratio(spark, scratch / "deleted" / _TABLE, scratch / "plain")
        figures["spark_own_deleted_ratio"] = _ratio(spark, scratch / "own", scratch / "plain")
        return figures
    finally:
        spark.stop()


def _delete_by_spark(spark: Any, lake: Path, own: Path) -> np.ndarray:
    """Make a table of the same rows by Spark alone, and delete one row in a hundred, by its own deletion vectors.
    Returns the ids of those rows."""
    chosen, rows = "pmod(xxhash64(id), 100) = 0", spark.read.format("delta").load(str(lake))
    deleted = [row.id for row in rows.where(chosen).select("id").collect()]
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(own))
    spark.sql(f"DELETE FROM delta.`{own}` WHERE {chosen}")
    assert "deletionVector" in (own / "_delta_log" / f"{1:020}.json").read_text()
    return np.array(deleted)


def _ratio(spark: Any, lake: Path, files: Path, form: str = "delta") -> float:
    """Plain Parquet's time by the lake's, for the same answer."""

    def ask(kind: str, folder: Path) -> tuple:
        frame = spark.read.format(kind).load(str(folder))
        names = ("id", "amount", "score", "kind")
        sums = [f"sum({name})" for name in names]
        longest = [f"sum(length({name}))" for name in ("name", "note")]
        return tuple(frame.selectExpr(*sums, *longest, "max(born)", "max(at)", "count(*)").collect()[0])

    sides = ((form, lake), ("parquet", files))
    times: dict[str, list[float]] = {kind: [] for kind, _ in sides}
    answers = {}
    for turn in range(_SPARK_ROUNDS + 2):
        for kind, folder in sides:
            started = time.perf_counter()
            answers[kind] = ask(kind, folder)
            if turn >= 2:  # the session is warm
                times[kind].append(time.perf_counter() - started)
    same = [round(one, 3) if isinstance(one, float) else one for one in answers[form]]
    assert same == [round(one, 3) if isinstance(one, float) else one for one in answers["parquet"]]
    return statistics.median(times["parquet"]) / statistics.median(times[form])


if __name__ == "__main__":
    main()
