"""How fast objects are decoded to Arrow, compared with pyarrow reading the same rows from Parquet. `--json` prints the
figures as one JSON object.

Both sides read from memory, on one core and one thread, in turns; a figure is the median of its rounds, in seconds of
CPU time. Parquet is LZ4-compressed, without dictionary encoding, in row groups of pyarrow's default size. Our side
checks that text is UTF-8; Parquet's reader does not. The last line is `ratio=<Parquet's time / ours> mb_s=<Arrow bytes
a second> rows_s=<rows a second>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.shared.common import arguments_of, recordings_with
from ccpr.matrixone.client.malloc import keep_large_blocks
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.bytejson import json_text
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.objects.vectors import varlena_array
from ccpr.matrixone.schema import Column
from tests.support.recorded import Snapshot

_ROUNDS, _REPEATS = 11, 3
_BLOCK_ROWS = 8192


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS)
    folder = recordings_with("wide_and_large", "all_types")
    _one_core()

    figures: dict[str, float | dict[str, float]] = {}
    objects, columns = _wide_and_large(folder)
    overall = _compare(objects, columns, arguments.rounds)
    single = {column.name: _compare(objects, (column,), arguments.rounds)["ratio"] for column in columns}
    figures |= overall | {"column_ratio": single} | _json_values(folder, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, ratio in single.items():
        print(f"column {name:<14} ratio={ratio:.2f}")
    recorded, full = figures["json_values_s"], figures["json_block_values_s"]
    print(f"json as recorded values_s={recorded:.0f}, in full blocks values_s={full:.0f}")
    print(f"ratio={overall['ratio']:.2f} mb_s={overall['mb_s']:.0f} rows_s={overall['rows_s']:.0f}")


def _one_core() -> None:
    # Like every process of ours that moves objects; otherwise page faults dominate the time of both sides.
    keep_large_blocks()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _wide_and_large(folder: Path) -> tuple[list[pa.Buffer], tuple[Column, ...]]:
    """The data objects of the last snapshot, in memory, and the user's columns."""
    snapshot = Snapshot(max((folder / "wide_and_large").glob("snapshot-*")))
    (table,) = (name for name, listed in snapshot.objects.items() if listed)
    names = [listed.stats.name for listed in snapshot.objects[table] if not listed.tombstone]
    buffers = [pa.py_buffer((snapshot.folder.parent / "objects" / name).read_bytes()) for name in names]
    return buffers, snapshot.tables[table].user_columns


def _decode(files: Iterable[ObjectFile], columns: tuple[Column, ...]) -> pa.Table:
    blocks = [(file, block.number) for file in files for block in file.blocks]
    decoded = [
        pa.chunked_array([file.column(block, column) for file, block in blocks], arrow_type(column))
        for column in columns
    ]
    return pa.Table.from_arrays(decoded, names=[column.name for column in columns])


def _compare(objects: list[pa.Buffer], columns: tuple[Column, ...], rounds: int) -> dict[str, float]:
    """Several columns: both sides open their files, too. A single column: both have them open already, because the
    metadata is that of all columns."""
    files = [ObjectFile(data) for data in objects]
    table = _decode(files, columns)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", use_dictionary=False)
    parquet = sink.getvalue()
    opened = pq.ParquetFile(pa.BufferReader(parquet))
    if len(columns) > 1:
        ours, theirs = _in_turns(
            lambda: _decode(map(ObjectFile, objects), columns),
            lambda: pq.ParquetFile(pa.BufferReader(parquet)).read(use_threads=False),
            rounds=rounds,
        )
    else:
        ours, theirs = _in_turns(lambda: _decode(files, columns), lambda: opened.read(use_threads=False), rounds=rounds)
    return {
        "ratio": theirs / ours,
        "mb_s": table.nbytes / ours / 1e6,
        "rows_s": table.num_rows / ours,
        "parquet_mb_s": table.nbytes / theirs / 1e6,
    }


def _json_values(folder: Path, rounds: int) -> dict[str, float]:
    """Values a second, without nulls: from the recorded objects (some hundred rows each), and from full blocks of the
    same values."""
    found: list[tuple[ObjectFile, int, Column]] = []
    raw: list[pa.Array] = []
    for snapshot in map(Snapshot, sorted((folder / "all_types").glob("snapshot-*"))[-1:]):
        for table, listed in snapshot.objects.items():
            for column in (column for column in snapshot.tables[table].columns if column.type.oid == types.JSON):
                for file in (snapshot.open_object(entry.stats.name) for entry in listed if not entry.tombstone):
                    for block in file.blocks:
                        found.append((file, block.number, column))
                        raw.append(varlena_array(file._vector(block.number, column.seqnum, types.JSON), "benchmark"))
    values = pa.concat_arrays(raw).drop_null()
    full = pa.concat_arrays([values] * (_BLOCK_ROWS // len(values) + 1)).slice(0, _BLOCK_ROWS)
    recorded, block = _in_turns(
        lambda: [file.column(number, column) for file, number, column in found],
        lambda: json_text(full, subject="benchmark"),
        rounds=rounds,
    )
    return {
        "json_values_s": len(values) / recorded,
        "json_block_values_s": len(full) / block,
        "json_bytes": values.nbytes / len(values),
    }


def _in_turns(first: Callable[[], object], second: Callable[[], object], *, rounds: int) -> tuple[float, float]:
    """Median CPU seconds of both. They alternate, so that a slow moment of the machine affects both; the fastest of
    several repeats counts."""
    repeats = []
    for _ in range(_REPEATS):
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for run, taken in zip((first, second), times, strict=True):
                start = time.process_time()
                run()
                taken.append(time.process_time() - start)
        repeats.append((statistics.median(times[0]), statistics.median(times[1])))
    return min(repeats, key=sum)


if __name__ == "__main__":
    main()
