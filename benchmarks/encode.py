"""How fast Arrow rows are written as objects, compared with pyarrow writing the same rows as Parquet. `--json` prints
the figures as one JSON object.

Both sides write to memory, on one core and one thread, in turns; a figure is the median of its rounds, in seconds of
CPU time. The rows are those of the recording `wide_and_large`, with its hidden key column, sorted by that key. Each
row has a commit time, for Parquet as a column of 12 bytes. Objects have blocks of 8,192 rows, each with zone maps of
all columns and a filter over the keys, and their writer checks values and order. Parquet is LZ4-compressed, without
dictionary encoding, in row groups and pages of pyarrow's default size with their statistics. `filtered_ratio` compares
with Parquet in row groups of 8,192 rows, each with a Bloom filter over the key (0.4 % false positives, like ours): a
reader can then skip the same. Single columns have neither filters nor commit times. The last line is `ratio=<Parquet's
time / ours> mb_s=<Arrow bytes a second> rows_s=<rows a second>`; commit times are not counted.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.decode import _in_turns, _one_core
from benchmarks.shared.common import arguments_of, recordings_with
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.writing.writer import BLOCK_ROWS, sorted_blocks, write_data
from ccpr.matrixone.schema import COMPOSITE_KEY, Table
from tests.support.recorded import Snapshot, visible_batches

_ROUNDS = 11
_FALSE_POSITIVES = 1 / 256
_NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000"


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS)
    folder = recordings_with("wide_and_large")
    _one_core()
    snapshot = Snapshot(max((folder / "wide_and_large").glob("snapshot-*")))
    (table,) = (snapshot.tables[name] for name, listed in snapshot.objects.items() if listed)
    batches = visible_batches(snapshot.objects[table.name], snapshot.open_object, table.columns, snapshot.at)
    rows = pa.Table.from_batches(batches, schema=arrow_schema(table.columns))

    (key,) = (column.seqnum for column in table.columns if column.name == COMPOSITE_KEY)

    overall = _compare(table, rows, arguments.rounds, key=key)
    single = {
        column.name: _compare(
            replace(table, columns=(replace(column, seqnum=0),)), rows.select([column.name]), arguments.rounds
        )["ratio"]
        for column in table.columns
    }
    if arguments.json:
        print(json.dumps(overall | {"column_ratio": single}))
        return
    for name, ratio in single.items():
        print(f"column {name:<14} ratio={ratio:.2f}")
    print(f"filtered_ratio={overall['filtered_ratio']:.2f}")
    print(" ".join(f"{name}={overall[name]:.0f}" for name in ("object_bytes", "parquet_bytes", "arrow_bytes")))
    print(f"ratio={overall['ratio']:.2f} mb_s={overall['mb_s']:.0f} rows_s={overall['rows_s']:.0f}")


def _compare(table: Table, rows: pa.Table, rounds: int, *, key: int | None = None) -> dict[str, float]:
    """With a key, its filter and the commit times are written, too."""
    blocks = sorted_blocks(table, rows, key)
    sorted_rows = pa.Table.from_batches(blocks).combine_chunks()
    times: list[np.ndarray] | None = None
    if key is not None:
        times = [np.zeros(block.num_rows, TIMESTAMP_DTYPE) for block in blocks]
        raw = [None, pa.py_buffer(np.concatenate(times))]
        kind = pa.binary(TIMESTAMP_DTYPE.itemsize)
        sorted_rows = sorted_rows.append_column("commit_ts", pa.Array.from_buffers(kind, sorted_rows.num_rows, raw))

    def ours() -> bytes:
        return write_data(
            table, blocks, name=_NAME, appendable=False, by_cn=False, commit_ts=times, primary_key=key
        ).content

    def theirs(**options: Any) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        pq.write_table(sorted_rows, sink, compression="lz4", use_dictionary=False, **options)
        return sink.getvalue()

    our_time, their_time = _in_turns(ours, theirs, rounds=rounds)
    figures = {
        "ratio": their_time / our_time,
        "mb_s": rows.nbytes / our_time / 1e6,
        "rows_s": rows.num_rows / our_time,
        "parquet_mb_s": rows.nbytes / their_time / 1e6,
        "object_bytes": len(ours()),
        "parquet_bytes": theirs().size,
        "arrow_bytes": rows.nbytes,
    }
    if key is not None:
        filters = {COMPOSITE_KEY: {"ndv": BLOCK_ROWS, "fpp": _FALSE_POSITIVES}}
        filtered = partial(theirs, row_group_size=BLOCK_ROWS, bloom_filter_options=filters)
        our_time, their_time = _in_turns(ours, filtered, rounds=rounds)
        figures |= {"filtered_ratio": their_time / our_time, "filtered_parquet_bytes": filtered().size}
    return figures


if __name__ == "__main__":
    main()
