"""What a row delta costs, compared with reading the table at both points. `--json` prints the figures as one JSON
object.

A million rows of eight columns, which the emulator's storage engine writes as MatrixOne would: objects of 131,072
rows, sorted by the key. Then one row in a hundred changes, spread over all blocks (updates of one column, some
deletes, some new rows), which leaves tombstones and a small object; then all objects are merged. Each figure is the
median of some rounds in one process, in seconds of wall time; the files are in the page cache. "twice" reads all rows
at both points, as a comparison of whole tables has to before it compares anything. The last line is `ratio=<twice /
the change's delta> changed_s=… merged_s=… twice_s=… rows=<changed>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from benchmarks.shared.common import arguments_of, median
from benchmarks.shared.wide_table import values, wide_table
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr_emulator.engine.storage import Storage

_ROWS, _CHANGED, _ROUNDS = 1_000_000, 0.01, 7


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, rows=_ROWS)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), arguments.rows, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    rows, objects, twice = figures["table_rows"], figures["objects"], figures["twice_s"]
    print(f"{rows:.0f} rows in {objects:.0f} objects, read at both points in {twice:.3f} s")
    changed, took, planned = figures["rows"], figures["changed_s"], figures["plan_s"] * 1e3
    print(f"{changed:.0f} rows changed: {took:.3f} s, {planned:.1f} ms")
    merged, same = figures["merged_s"], figures["same_s"] * 1e3
    print(f"all merged, nothing changed: {merged:.3f} s; two points of one state: {same:.2f} ms")
    names = ("changed_s", "merged_s", "twice_s")
    shown = " ".join(f"{name}={figures[name]:.3f}" for name in names)
    print(f"ratio={figures['twice_s'] / figures['changed_s']:.1f} {shown} rows={figures['rows']:.0f}")


def measure(scratch: Path, rows: int, rounds: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    simulated = wide_table(scratch / "mirror", rows, rng)
    storage = simulated.storage
    change(storage, rows, rng)
    simulated.take_points()
    storage.merge("b", "t")
    simulated.take_points()
    first, changed, merged = simulated.points
    (table_id,) = first.tables
    found = sum(part.rows for part in delta(simulated.mirror, first, changed, table_id))
    assert found, "something changed"
    assert not delta(simulated.mirror, changed, merged, table_id), "a merge changes nothing"
    return {
        "table_rows": rows,
        "objects": first.tables[table_id].objects,
        "rows": found,
        "plan_s": median(lambda: table_delta(simulated.mirror, at(first, table_id), at(changed, table_id)), rounds),
        "changed_s": median(lambda: delta(simulated.mirror, first, changed, table_id), rounds),
        "merged_s": median(lambda: delta(simulated.mirror, changed, merged, table_id), rounds),
        "same_s": median(lambda: delta(simulated.mirror, changed, changed, table_id), rounds),
        "twice_s": median(lambda: [read(simulated.mirror, point) for point in (first, changed)], rounds),
    }


def change(storage: Storage, rows: int, rng: np.random.Generator) -> None:
    """Of ten changed rows eight are updated, one is deleted and one is new."""
    chosen = rng.choice(rows, int(rows * _CHANGED * 0.9), replace=False) * 2
    updated, deleted = np.split(chosen, [len(chosen) * 8 // 9])
    transaction = storage.begin()
    transaction.update("b", "t", {"kind": 99}, pc.field("id").isin(updated.tolist()))
    transaction.delete("b", "t", pc.field("id").isin(deleted.tolist()))
    transaction.insert("b", "t", values(np.sort(rng.choice(rows, len(deleted), replace=False)) * 2 + 1, rng))
    transaction.commit()


def at(point: Point, table_id: int) -> TableAt:
    return TableAt.of(point, table_id)


def delta(mirror: Mirror, former: Point, later: Point, table_id: int) -> list:
    return list(table_delta(mirror, at(former, table_id), at(later, table_id)).parts())


def read(mirror: Mirror, point: Point) -> int:
    return sum(batch.num_rows for batch in mirror.read(point, "b.t")[1])


if __name__ == "__main__":
    main()
