"""What `ccpr query` costs, compared with DuckDB on a Parquet file of the same rows. `--json` prints the figures as one
JSON object.

Five million rows of eight columns, which the emulator's storage engine writes as MatrixOne would: objects of 131,072
rows, sorted by the key. The Parquet file is what `ccpr export` writes of them, sorted alike. Both are queried by DuckDB
in this process, with as many threads; each figure is the median of some rounds in seconds of wall time, the two by
turns; files are in the page cache. The last line is `ratio=<Parquet / ours, over all queries> cpu_ratio=… mirror_s=…
parquet_s=… kept_<share>=<the same of a filter that keeps so many percent of the sorted rows>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.shared.common import arguments_of
from benchmarks.shared.wide_table import wide_table
from ccpr.cli.row_files import write_rows
from ccpr.mirror.sql import PointDatabase
from ccpr.mirror.table_read import plan_read

_ROWS, _ROUNDS = 5_000_000, 3
_QUERIES = {
    "count": "SELECT count(*) FROM {t}",
    "sum": "SELECT kind, sum(amount), round(avg(score), 6) FROM {t} GROUP BY kind ORDER BY kind",
    "key range": "SELECT count(*), max(name) FROM {t} WHERE id BETWEEN 4000000 AND 4100000",
    "condition": 'SELECT count(*), min(t."at") FROM {t} AS t WHERE kind = 7',
    "texts": "SELECT note, count(*) FROM {t} GROUP BY note ORDER BY 2 DESC, 1 LIMIT 5",
    "all columns": 'SELECT bit_xor(hash(id, name, amount, score, kind, born, t."at", note)) FROM {t} AS t',
}
_KEPT = (1, 10, 50)  # percent
_RANGE = 'SELECT count(*), max(name), sum(amount), min(t."at") FROM {t} AS t WHERE id >= %d AND id < %d'


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, rows=_ROWS)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), arguments.rows, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, of in figures.items():
        wall, cpu = (f"{of[f'parquet_{unit}'] / of[f'mirror_{unit}']:.2f}" for unit in ("s", "cpu_s"))
        print(
            f"{name:<12} mirror {of['mirror_s']:7.3f} s  Parquet {of['parquet_s']:7.3f} s  ratio {wall}, of CPU {cpu}"
        )
    names = ("mirror_s", "parquet_s", "mirror_cpu_s", "parquet_cpu_s")
    whole = [figures[name] for name in _QUERIES]
    ours, theirs, our_cpu, their_cpu = (sum(of[name] for of in whole) for name in names)
    kept = {share: figures[f"keeps {share} %"] for share in _KEPT}
    shares = " ".join(f"kept_{share}={of['parquet_s'] / of['mirror_s']:.2f}" for share, of in kept.items())
    print(
        f"ratio={theirs / ours:.2f} cpu_ratio={their_cpu / our_cpu:.2f} mirror_s={ours:.3f} parquet_s={theirs:.3f} "
        f"{shares}"
    )


def measure(scratch: Path, rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """By query: seconds over the mirror and over Parquet."""
    simulated = wide_table(scratch / "mirror", rows, np.random.default_rng(1))
    (point,) = simulated.points
    simulated.mirror.point = lambda at=None: point  # it is not published
    read = plan_read(simulated.mirror, "b.t")
    file = scratch / "t.parquet"
    write_rows(file, read.schema, read.batches(mirror=simulated.mirror))
    figures, first = {}, rows // 3
    ranges = {f"keeps {share} %": _RANGE % (first, first + rows * share // 100) for share in _KEPT}
    with PointDatabase(simulated.mirror, point, "b") as database:
        for name, query in (_QUERIES | ranges).items():
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(rounds):
                answers = []
                for side, table in (("mirror", "b.t"), ("parquet", f"'{file}'")):
                    started, cpu = time.perf_counter(), time.process_time()
                    answers.append(database.query(query.format(t=table)).read_all().to_pylist())
                    times[f"{side}_s"].append(time.perf_counter() - started)
                    times[f"{side}_cpu_s"].append(time.process_time() - cpu)
                assert answers[0] == answers[1], f"{name}: the same rows, the same answer"
            figures[name] = {side: statistics.median(seconds) for side, seconds in times.items()}
    return figures


if __name__ == "__main__":
    main()
