"""How fast `import ccpr` reads a table into Arrow, whole and with a filter that keeps a tenth of it. `--json` prints
the figures as one JSON object.

A million rows of six columns, which the emulator's storage engine writes as MatrixOne would: objects of 131,072 rows,
sorted by the key; the filter needs one or two of them. The same rows are in one Parquet file (zstd), which pyarrow
reads with the same filter, with one thread as ours and with all. Each figure is the median of some rounds in one
process, in seconds of wall time; the files are in the page cache. The last line is `ratio=<whole / filtered>
whole_s=… filtered_s=… parquet_s=… parquet_filtered_s=… parquet_threads_s=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ccpr
from benchmarks.shared.common import arguments_of, median
from tests.api.shop import Shop

_ROWS, _ROUNDS = 1_000_000, 7
_OBJECT_ROWS = 16 * 8192
_TYPES = {
    "id": "bigint",
    "kind": "int",
    "score": "double",
    "placed": "datetime(6)",
    "name": "varchar(40)",
    "note": "text",
}


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, rows=_ROWS)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), arguments.rows, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(
        f"{arguments.rows} rows: {figures['whole_s']:.3f} s; a tenth of them by a filter: {figures['filtered_s']:.3f} s"
    )
    print(f"Parquet, one thread: {figures['parquet_s']:.3f} s and {figures['parquet_filtered_s']:.3f} s")
    print(" ".join(f"{name}={value:.3f}" for name, value in figures.items()))


def measure(folder: Path, count: int, rounds: int) -> dict[str, float]:
    shop = Shop(folder / "mirror")
    shop.storage.create_table("shop", "orders", dict(_TYPES), primary_key=["id"])
    for start in range(0, count, _OBJECT_ROWS):
        with shop.storage.begin() as transaction:
            transaction.insert("shop", "orders", values(range(start, min(start + _OBJECT_ROWS, count))))
    shop.publish()
    orders = ccpr.open_mirror(shop.root).table("shop.orders")
    rows, parquet = orders.to_arrow(), folder / "orders.parquet"
    pq.write_table(rows.sort_by("id"), parquet, compression="zstd", row_group_size=_OBJECT_ROWS)
    filters = [("id", ">=", count // 2), ("id", "<", count // 2 + count // 10)]
    assert orders.to_arrow(filters=filters).num_rows == pq.read_table(parquet, filters=filters).num_rows == count // 10
    seconds = {
        "whole_s": median(orders.to_arrow, rounds),
        "filtered_s": median(lambda: orders.to_arrow(filters=filters), rounds),
        "parquet_s": median(lambda: pq.read_table(parquet, use_threads=False), rounds),
        "parquet_filtered_s": median(lambda: pq.read_table(parquet, filters=filters, use_threads=False), rounds),
        "parquet_threads_s": median(lambda: pq.read_table(parquet), rounds),
    }
    return {"ratio": seconds["whole_s"] / seconds["filtered_s"], **seconds}


def values(ids: range) -> pa.Table:
    keys = pa.array(ids, pa.int64())
    return pa.table(
        {
            "id": keys,
            "kind": pa.array([number % 50 for number in ids], pa.int32()),
            "score": pa.array([number * 0.5 for number in ids]),
            "placed": pa.array(ids, pa.int64()).cast(pa.timestamp("us")),
            "name": [f"customer {number % 10_000}" for number in ids],
            "note": [f"note {number} of a length that does not fit in a slot" for number in ids],
        }
    )


if __name__ == "__main__":
    main()
