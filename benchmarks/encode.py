"""How fast Arrow rows become objects, beside pyarrow writing the same rows as Parquet. `--json` prints the figures as one JSON object.

Both sides write to memory, on one core and one thread, in turns; a figure is the median of its rounds, in seconds of CPU time. The rows are
those of the recording `wide_and_large`, its hidden key column included, sorted by that key. Objects have commit times beside, a filter over
the key, and zone maps of all columns; Parquet is LZ4-compressed, without dictionary encoding, in row groups of pyarrow's default size. The
last line is `ratio=<Parquet's time / ours> mb_s=<Arrow bytes a second> rows_s=<rows a second>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, and not the modules beside this file

import argparse
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.decode import _in_turns, _one_core
from matrixone.objects.timestamp import TIMESTAMP_DTYPE
from matrixone.objects.types import arrow_schema
from matrixone.objects.visibility import visible_batches
from matrixone.objects.writer import sorted_blocks, write_data
from matrixone.schema import COMPOSITE_KEY, Table
from tests.recorded import Snapshot
from tests.recordings_location import recordings_folder

_ROUNDS = 11
_NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    arguments = parser.parse_args()
    folder = recordings_folder()
    if folder is None:
        raise SystemExit("no recordings: set CCPR_RECORDINGS")
    _one_core()
    snapshot = Snapshot(max((folder / "wide_and_large").glob("snapshot-*")))
    (table,) = (snapshot.tables[name] for name, listed in snapshot.objects.items() if listed)
    batches = visible_batches(snapshot.objects[table.name], snapshot.open_object, table.columns, snapshot.at)
    rows = pa.Table.from_batches(batches, schema=arrow_schema(table.columns))

    (key,) = (column.seqnum for column in table.columns if column.name == COMPOSITE_KEY)

    overall = _compare(table, rows, arguments.rounds, key=key)
    single = {
        column.name: _compare(replace(table, columns=(replace(column, seqnum=0),)), rows.select([column.name]), arguments.rounds)["ratio"]
        for column in table.columns
    }
    if arguments.json:
        print(json.dumps(overall | {"column_ratio": single}))
        return
    for name, ratio in single.items():
        print(f"column {name:<14} ratio={ratio:.2f}")
    print(
        f"object_bytes={overall['object_bytes']:.0f} parquet_bytes={overall['parquet_bytes']:.0f} arrow_bytes={overall['arrow_bytes']:.0f}"
    )
    print(f"ratio={overall['ratio']:.2f} mb_s={overall['mb_s']:.0f} rows_s={overall['rows_s']:.0f}")


def _compare(table: Table, rows: pa.Table, rounds: int, *, key: int | None = None) -> dict[str, float]:
    """With a key its filter and commit times are written, too."""
    blocks = sorted_blocks(table, rows, key)
    sorted_rows = pa.Table.from_batches(blocks).combine_chunks()
    times = [np.zeros(block.num_rows, TIMESTAMP_DTYPE) for block in blocks] if key is not None else None

    def ours() -> bytes:
        return write_data(table, blocks, name=_NAME, appendable=False, by_cn=False, commit_ts=times, primary_key=key).content

    def theirs() -> pa.Buffer:
        sink = pa.BufferOutputStream()
        pq.write_table(sorted_rows, sink, compression="lz4", use_dictionary=False)
        return sink.getvalue()

    our_time, their_time = _in_turns(ours, theirs, rounds=rounds)
    return {
        "ratio": their_time / our_time,
        "mb_s": rows.nbytes / our_time / 1e6,
        "rows_s": rows.num_rows / our_time,
        "parquet_mb_s": rows.nbytes / their_time / 1e6,
        "object_bytes": len(ours()),
        "parquet_bytes": theirs().size,
        "arrow_bytes": rows.nbytes,
    }


if __name__ == "__main__":
    main()
