"""What it costs to read one column of an object of 250 MB in a bucket: bytes fetched, requests, seconds and memory,
beside reading the object whole, as a folder's memory map does not need to. `--json` prints the figures as one JSON
object.

A server in this process has the object (8-byte ids, rows of 8,000 incompressible bytes); another process opens it twice
through the store of mirrors, reads the column of ids, and reports the peak of its memory. The last line is
`fetched_mb=<of 250> requests=… memory_mb=<peak above the loaded modules> whole_memory_mb=<the same, read whole>
again_mb=<fetched by a second reading>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.large_object import LARGE, one_large_object, rows_of
from tests.support.bucket import Bucket, served

_READ = """
import json, re, sys, time
def memory(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.schema import Column, SqlType
from ccpr.mirror.open_store import open_store
from ccpr.mirror import s3_store
url, name, way, rows = sys.argv[1:]
store, before = open_store(url), memory()
print("loaded", flush=True), sys.stdin.readline()
started = time.perf_counter()
file = ObjectFile(getattr(store, way)(name))
column = Column("id", 0, SqlType(23, 64, 0))
total = sum(sum(file.column(block.number, column).to_pylist()) for block in file.blocks)
seconds = time.perf_counter() - started
assert total == int(rows) * (int(rows) - 1) // 2, "other values"
print(json.dumps({"seconds": seconds, "memory_mb": (memory() - before) / 1000}), flush=True), sys.stdin.readline()
file = ObjectFile(getattr(store, way)(name))
sum(len(file.column(block.number, column)) for block in file.blocks)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--mb", type=int, default=LARGE, help="of the object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        size, _ = one_large_object(Path(scratch), arguments.mb)
        (path,) = (Path(scratch) / "objects").iterdir()
        with served(Bucket({f"mirror/objects/{path.name}": path.read_bytes()})) as bucket:
            ranged, whole = (
                _read(bucket, f"objects/{path.name}", way, rows_of(arguments.mb)) for way in ("open", "read")
            )
    figures = {
        "bytes": size,
        "fetched_mb": ranged["fetched_mb"],
        "requests": ranged["requests"],
        "seconds": ranged["seconds"],
        "memory_mb": ranged["memory_mb"],
        "again_mb": ranged["again_mb"],
        "whole_seconds": whole["seconds"],
        "whole_memory_mb": whole["memory_mb"],
        "whole_fetched_mb": whole["fetched_mb"],
        "load": os.getloadavg()[0],
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"one column of an object of {size / 1e6:.0f} MB; one-minute load {figures['load']:.1f}")
    for way, one in (("ranges", ranged), ("whole", whole)):
        print(f"{way:7} {one['fetched_mb']:.1f} MB in {one['requests']:.0f} requests, {one['seconds']:.2f} s")
    shown = ("fetched_mb", "requests", "memory_mb", "whole_memory_mb", "again_mb")
    print(" ".join(f"{name}={figures[name]:.1f}" for name in shown))


def _read(bucket: Bucket, name: str, way: str, rows: int) -> dict[str, float]:
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, "-c", _READ, bucket.url("mirror"), name, way, str(rows)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        bucket.ranges.clear()
        process.stdin.write("\n"), process.stdin.flush()
        figures = json.loads(process.stdout.readline())
        fetched, requests = _fetched(bucket), len(bucket.ranges)
        bucket.ranges.clear()
        process.stdin.write("\n"), process.stdin.flush()
        assert process.wait() == 0
    return figures | {"fetched_mb": fetched, "requests": requests, "again_mb": _fetched(bucket)}


def _fetched(bucket: Bucket) -> float:
    return sum(last - first + 1 for _, first, last in bucket.ranges) / 1e6


if __name__ == "__main__":
    main()
