"""How fast Spark reads a table of a mirror, compared with `spark.read.parquet` of the same rows. `--json` prints the
figures as one JSON object.

Five million rows: the recorded objects of `wide_and_large` with their tombstones, and copies of the data object with
other ids. Parquet is what pyarrow writes by default, one file for an object. Both sides feed the same aggregate over
all columns, in turns in one warm session with two cores; a figure is the median of its rounds, in seconds of wall
time. Worker memory is the largest resident size of a Python worker while reading, including pages of the mapped
objects, minus that of the same worker after a job that reads nothing. The small job is a whole
`read_table(…).toArrow()` of 20 rows in one object. The last line is `ratio=<Parquet's time / ours> mb_s=<Arrow bytes a
second> rows_s=<rows a second> worker_mb=<above idle> small_job_s=<seconds>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.shared.common import arguments_of, recordings_with
from ccpr.matrixone.objects.identifiers import object_name
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.layout import MANIFEST_SCHEMA, object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from ccpr.pipeline.spark.session import SparkSettings, spark_session
from tests.support.publishing import publish
from tests.support.recorded_mirror import mirror_of_recording
from tests.support.spark_tables import read_table

_ROWS, _ROUNDS, _WARM_UPS, _SMALL_ROUNDS = 5_000_000, 7, 3, 15
_TASKS = 2
_LZ4 = pa.Codec("lz4_raw")


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, rows=_ROWS)
    folder = recordings_with("wide_and_large", "many_tables")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        large = large_table(folder / "wide_and_large", work / "large", arguments.rows)
        figures = measure(large, session(work), arguments.rounds) | small_job(
            folder / "many_tables", work / "small", session(work)
        )
        session(work).stop()
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{figures['rows']:.0f} rows: objects {figures['ours_s']:.2f} s, Parquet {figures['parquet_s']:.2f} s")
    print(f"a worker: {figures['idle_mb']:.0f} MB idle, {figures['worker_mb']:.0f} MB more while reading")
    shown = (("ratio", 2), ("mb_s", 0), ("rows_s", 0), ("worker_mb", 0), ("small_job_s", 3))
    print(" ".join(f"{name}={figures[name]:.{digits}f}" for name, digits in shown))


@dataclass(frozen=True)
class Large:
    """The table on both sides; `bytes` of it as Arrow."""

    mirror_url: str
    table: str
    parquet: str
    rows: int
    bytes: int


def session(work: Path, config: Mapping[str, str] | None = None) -> SparkSession:
    config = {
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": str(_TASKS),
        **(config or {}),
    }
    return spark_session(SparkSettings(work / "java", f"local[{_TASKS}]", config=config))


def large_table(recording: Path, root: Path, rows: int = _ROWS) -> Large:
    """The mirror of a recording, its one table's largest data object copied until there are `rows` rows; and Parquet
    of the same rows."""
    mirror = mirror_of_recording(recording, root)
    objects = root / "objects"
    recorded = objects.readlink()
    objects.unlink()
    objects.mkdir()
    for path in recorded.iterdir():
        (objects / path.name).symlink_to(path)
    point = mirror.point()
    (ref,) = [ref for ref in point.tables.values() if ref.rows]
    manifest = mirror.manifest(ref)
    entries = manifest.objects.to_pylist()
    largest = max(
        (entry for entry in entries if not entry["is_tombstone"]),
        key=lambda entry: ObjectStats.parse(entry["stats"]).rows,
    )
    stats = ObjectStats.parse(largest["stats"])
    content = mirror.store.read(object_path(stats.name)).to_pybytes()
    for number in range(1, -(-(rows - visible_rows(mirror, ref)) // stats.rows) + 1):
        raw, copied = under_another_id(stats, content, number)
        mirror.store.put(object_path(ObjectStats.parse(raw).name), [copied])
        entries.append({**largest, "stats": raw})
    path = mirror.write_manifest(manifest.table, pa.Table.from_pylist(entries, MANIFEST_SCHEMA), point.lsn + 1, 1)
    ref = replace(ref, lsn=point.lsn + 1, manifest=path)
    publish(mirror, replace(point, lsn=ref.lsn, tables={**point.tables, ref.table_id: ref}), {ref.table_id: ref})
    total, size = _write_parquet(mirror, ref, root / "parquet", files=len(entries))
    return Large(mirror.store.url, ref.qualified_name, str(root / "parquet"), total, size)


def visible_rows(mirror: Mirror, ref: TableRef) -> int:
    return sum(batch.num_rows for batch in mirror.read(mirror.point(), ref.qualified_name, columns=[])[1])


def under_another_id(stats: ObjectStats, content: bytes, number: int) -> tuple[bytes, bytes]:
    """Stats and file of the same object in another segment: the metadata contains the id, and its compressed length
    changes."""
    new_id = stats.object_id[:12] + struct.pack(">I", number) + stats.object_id[16:]
    meta = _LZ4.decompress(
        content[stats.meta.offset : stats.meta.end], decompressed_size=stats.meta.origin, asbytes=True
    )
    stored = _LZ4.compress(meta.replace(stats.object_id, new_id), asbytes=True)
    extent = struct.pack("<BIII", 1, stats.meta.offset, len(stored), stats.meta.origin)
    file = content[:10] + extent + content[23 : stats.meta.offset] + stored + content[stats.meta.end :]
    head = new_id + object_name(new_id).encode() + extent
    return head + stats.raw[len(head) : 145] + struct.pack("<I", len(file)) + stats.raw[149:], file


def _write_parquet(mirror: Mirror, ref: TableRef, folder: Path, files: int) -> tuple[int, int]:
    schema, batches = mirror.read(mirror.point(), ref.qualified_name)
    table = pa.Table.from_batches(batches, schema)
    folder.mkdir()
    share = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * share, share), folder / f"{number:03}.parquet")
    return table.num_rows, table.nbytes


def aggregate(frame: DataFrame) -> tuple[Any, ...]:
    """A cheap aggregate of every value, so that all columns are read and the transfer is measured."""
    by_kind = {"string": lambda name: F.sum(F.length(name)), "binary": lambda name: F.sum(F.length(name))}
    (row,) = frame.agg(*(by_kind.get(kind, F.max)(name) for name, kind in frame.dtypes)).collect()
    return tuple(row)


def measure(large: Large, spark: SparkSession, rounds: int) -> dict[str, float]:
    def ours() -> DataFrame:
        return read_table(spark, large.mirror_url, large.table)

    def parquet() -> DataFrame:
        return spark.read.parquet(large.parquet)

    assert aggregate(ours()) == aggregate(parquet()), "the two sides differ"
    spark.range(_TASKS).repartition(_TASKS).mapInArrow(_nothing, "id long").count()
    idle = max(resident("VmRSS"))
    times: dict[str, list[float]] = {"ours": [], "parquet": []}
    for number in range(_WARM_UPS + rounds):
        for name, frame in (("ours", ours), ("parquet", parquet))[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            aggregate(frame())
            if number >= _WARM_UPS:
                times[name].append(time.perf_counter() - started)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return {
        "ratio": seconds["parquet"] / seconds["ours"],
        "mb_s": large.bytes / seconds["ours"] / 1e6,
        "rows_s": large.rows / seconds["ours"],
        "rows": large.rows,
        "ours_s": seconds["ours"],
        "parquet_s": seconds["parquet"],
        "idle_mb": idle,
        "worker_mb": max(resident("VmHWM")) - idle,
    }


def small_job(recording: Path, root: Path, spark: SparkSession) -> dict[str, float]:
    mirror = mirror_of_recording(recording, root)
    ref = min((ref for ref in mirror.point().tables.values() if ref.objects == 1), key=lambda ref: ref.table_id)
    times = []
    for number in range(_WARM_UPS + _SMALL_ROUNDS):
        started = time.perf_counter()
        rows = read_table(spark, mirror.store.url, ref.qualified_name).toArrow()
        if number >= _WARM_UPS:
            times.append(time.perf_counter() - started)
        assert rows.num_rows == ref.rows
    return {"small_job_s": statistics.median(times)}


def resident(line: str) -> list[float]:
    """A line of /proc/<pid>/status in MB for each Python worker of our JVM: the processes forked by its daemon."""
    parents, sizes = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" not in (folder / "cmdline").read_bytes():
                continue
            status = dict(text.split(":", 1) for text in (folder / "status").read_text().splitlines() if ":" in text)
            parents[int(folder.name)] = int(status["PPid"])
            sizes[int(folder.name)] = int(status[line].split()[0]) * 1024 / 1e6
        except (FileNotFoundError, ProcessLookupError, KeyError):  # the process has ended
            continue
    ours = {pid for pid, parent in parents.items() if _is_below(parent, os.getpid())}
    return [sizes[pid] for pid in ours if parents[pid] in ours]


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return False


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import ccpr.pipeline.spark.read  # noqa: F401 (an idle worker has loaded what every reading worker has)

    yield from batches


if __name__ == "__main__":
    main()
