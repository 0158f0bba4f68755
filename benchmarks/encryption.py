"""What encryption costs: copying objects of 15 MB and of 2 KB into a mirror, and reading a table to Arrow, whole and
with a filter that keeps a tenth of it, encrypted beside in clear. `--json` prints the figures as one JSON object.

Both sides take turns, on one machine and one disk, and each figure is the median of its rounds. The emulator that
objects are copied from is another process. The last line is `copy_large=<encrypted / clear> copy_small=… read=…
filtered=…`, and the rates in clear text.
"""

import sys

# The repository: in its folder benchmarks/copy.py would be found as a module of the standard library.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import ccpr
from benchmarks.copy import _LARGE_COPIES, _copy, emulator, job_of, large_objects, objects_of
from benchmarks.read import _OBJECT_ROWS, _ROWS, _TYPES, values
from benchmarks.shared.common import arguments_of, recordings_with
from ccpr.matrixone.client.malloc import keep_large_blocks
from ccpr.mirror.encryption_keys import new_key
from ccpr.mirror.layout import HEAD
from ccpr.mirror.open_store import open_store
from ccpr.state.credentials import KEY_FILE_VARIABLE
from tests.api.shop import Shop

_ROUNDS = 7
_REFERENCE = "env:CCPR_BENCHMARK_KEY"
_SIDES = {"clear": "", "encrypted": f"?encrypt={_REFERENCE}"}


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, rows=_ROWS, copies=_LARGE_COPIES)
    os.environ["CCPR_BENCHMARK_KEY"] = new_key()
    folder = recordings_with("wide_and_large", "many_tables")
    keep_large_blocks()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:  # on disk like a mirror, not in memory
        work = Path(scratch)
        os.environ[KEY_FILE_VARIABLE] = str(work / "key")
        recording = large_objects(folder / "wide_and_large", work / "large", arguments.copies)
        large = _copied(recording, work, arguments.rounds)
        small = _copied(folder / "many_tables", work, arguments.rounds)
        read, filtered = _read(work / "read", arguments.rows, arguments.rounds)
    figures = {
        "copy_large": large["encrypted"] / large["clear"],
        "copy_small": small["encrypted"] / small["clear"],
        "read": read["encrypted"] / read["clear"],
        "filtered": filtered["encrypted"] / filtered["clear"],
        "mb_s": large["bytes"] / large["clear"] / 1e6,
        "objects_s": small["objects"] / small["clear"],
        "read_s": read["clear"],
        "filtered_s": filtered["clear"],
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    print(" ".join(f"{name}={value:.3f}" for name, value in figures.items()))


def in_turns(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median seconds of each; a side returns seconds that do not count. The first round is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides) if number % 2 else list(sides)[::-1]:
            started = time.perf_counter()
            started += sides[name]()
            if number:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def _copied(recording: Path, work: Path, rounds: int) -> dict[str, float]:
    objects = objects_of(recording)
    with emulator(recording) as port:
        job = job_of(port, recording.name, work)
        jobs = {name: replace(job, store_url=job.store_url + query) for name, query in _SIDES.items()}
        sides = {name: lambda one=one: _copy(one, objects, work) for name, one in jobs.items()}
        found = in_turns(sides, rounds)
    return {**found, "bytes": sum(stats.size for stats in objects), "objects": len(objects)}


def _read(folder: Path, count: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Whole, and by a filter."""
    shop = Shop(folder / "clear")
    shop.storage.create_table("shop", "orders", dict(_TYPES), primary_key=["id"])
    for start in range(0, count, _OBJECT_ROWS):
        with shop.storage.begin() as transaction:
            transaction.insert("shop", "orders", values(range(start, min(start + _OBJECT_ROWS, count))))
    shop.publish()
    clear, encrypted = (open_store(f"{(folder / name).as_uri()}{query}") for name, query in _SIDES.items())
    for kind in ("objects", "manifests", "points"):
        for name in clear.names(kind):
            encrypted.put(name, [clear.read(name)])
    encrypted.replace(HEAD, clear.read(HEAD).to_pybytes())
    stores = zip(_SIDES, (clear, encrypted), strict=True)
    tables = {name: ccpr.open_mirror(store.url).table("shop.orders") for name, store in stores}
    filters = [("id", ">=", count // 2), ("id", "<", count // 2 + count // 10)]
    assert len({repr(table.to_arrow(filters=filters)) for table in tables.values()}) == 1
    whole = {name: lambda table=table: float(not table.to_arrow()) for name, table in tables.items()}
    part = {name: lambda table=table: float(not table.to_arrow(filters=filters)) for name, table in tables.items()}
    return in_turns(whole, rounds), in_turns(part, rounds)


if __name__ == "__main__":
    main()
