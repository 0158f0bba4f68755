"""How fast objects are copied, compared with bare PyMySQL writing the same cells to files. `--json` prints the figures
as one JSON object.

Both sides read from the same emulator, which is another process; they take turns, with one session each and the same
malloc setting. A figure is the median of its rounds. Bare PyMySQL writes each cell to a file and fsyncs it; copying
also hashes, checks the object's structure and renames. The last line is `ratio=<bare time / ours> mb_s=<15 MB objects>
objects_s=<2 KB objects> memory_mb=<peak of this process>`.
"""

import sys

# The repository: in its folder this file would be found as the module `copy` of the standard library.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import json
import os
import re
import resource
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pymysql

from benchmarks.shared.common import arguments_of, recordings_with
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.malloc import keep_large_blocks
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy_objects
from ccpr.state.credentials import KEY_FILE_VARIABLE, Vault
from tests.support.recorded import Snapshot

_ROUNDS, _LARGE_COPIES = 7, 8
_EXTENT = struct.Struct("<BIII")


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, copies=_LARGE_COPIES)
    folder = recordings_with("wide_and_large", "many_tables")
    keep_large_blocks()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:  # on disk like a mirror, not in memory
        work = Path(scratch)
        os.environ[KEY_FILE_VARIABLE] = str(work / "key")
        recording = large_objects(folder / "wide_and_large", work / "large", arguments.copies)
        large = _measure(recording, work, arguments.rounds)
        small = _measure(folder / "many_tables", work, arguments.rounds)
    figures = {
        "ratio": large["bare"] / large["ours"],
        "mb_s": large["bytes"] / large["ours"] / 1e6,
        "bare_mb_s": large["bytes"] / large["bare"] / 1e6,
        "objects_s": small["objects"] / small["ours"],
        "bare_objects_s": small["objects"] / small["bare"],
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"15 MB objects: copied at {figures['mb_s']:.0f} MB/s, bare PyMySQL {figures['bare_mb_s']:.0f} MB/s")
    bare = figures["bare_objects_s"]
    print(f"2 KB objects: copied at {figures['objects_s']:.0f} objects/s, bare PyMySQL {bare:.0f} objects/s")
    shown = (("ratio", 2), ("mb_s", 0), ("objects_s", 0), ("memory_mb", 0))
    print(" ".join(f"{name}={figures[name]:.{digits}f}" for name, digits in shown))


def _measure(recording: Path, work: Path, rounds: int) -> dict[str, float]:
    """Median seconds of both sides over all objects of a recording's lists."""
    objects = objects_of(recording)
    with emulator(recording) as port:
        job = job_of(port, recording.name, work)
        times: dict[str, list[float]] = {"ours": [], "bare": []}
        for number in range(rounds + 1):  # the first is a warm-up
            sides = [
                ("ours", lambda: _copy(job, objects, work)),
                ("bare", lambda: _bare(port, recording.name, objects, work)),
            ]
            for name, side in sides if number % 2 else sides[::-1]:
                started = time.perf_counter()
                started += side()
                if number:
                    times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()} | {
        "bytes": sum(stats.size for stats in objects),
        "objects": len(objects),
    }


def objects_of(recording: Path) -> list[ObjectStats]:
    listed = [
        entry.stats
        for folder in recording.glob("snapshot-*")
        for entries in Snapshot(folder).objects.values()
        for entry in entries
    ]
    return list({stats.name: stats for stats in listed}.values())


def large_objects(source: Path, target: Path, copies: int) -> Path:
    """A recording whose only list holds the source's largest object several times, each with another id."""
    shutil.copytree(source, target)
    for folder in sorted(target.glob("snapshot-*"))[1:]:
        shutil.rmtree(folder)
    list_file = target / "snapshot-001" / "object_list.json"
    answer = json.loads(list_file.read_text())
    place = answer["columns"].index("stats")
    row = max(answer["rows"], key=lambda row: ObjectStats.parse(bytes.fromhex(row[place]["hex"])).size)
    stats = ObjectStats.parse(bytes.fromhex(row[place]["hex"]))
    content = (target / "objects" / stats.name).read_bytes()
    answer["rows"] = []
    for number in range(copies):
        file, renamed = _renamed(content, stats, number)
        (target / "objects" / ObjectStats.parse(renamed).name).write_bytes(file)
        answer["rows"].append([{"hex": renamed.hex()} if at == place else cell for at, cell in enumerate(row)])
    list_file.write_text(json.dumps(answer))
    return target


def _renamed(content: bytes, stats: ObjectStats, number: int) -> tuple[bytes, bytes]:
    """The file and its stats with another file number: the metadata, which contains the id, is compressed again."""
    codec, meta = pa.Codec("lz4_raw"), stats.meta
    new_id = stats.object_id[:16] + struct.pack("<H", 100 + number)
    area = codec.decompress(
        content[meta.offset : meta.offset + meta.length], decompressed_size=meta.origin, asbytes=True
    )
    stored = codec.compress(area.replace(stats.object_id, new_id), asbytes=True)
    extent = _EXTENT.pack(1, meta.offset, len(stored), meta.origin)
    file = content[:10] + extent + content[23 : meta.offset] + stored + content[-64:]
    name = stats.name[:-5] + f"{100 + number:05d}"
    sizes = struct.pack("<I", len(file))
    return file, new_id + name.encode() + extent + stats.raw[73:145] + sizes + stats.raw[149:]


def job_of(port: int, name: str, work: Path) -> CopyJob:
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    return CopyJob(
        endpoint,
        Vault(work / "key").seal("111", endpoint),
        Publication(f"pub_{name}", "sys", 0),
        (work / "mirror").as_uri(),
    )


def _copy(job: CopyJob, objects: list[ObjectStats], work: Path) -> float:
    """Copy all objects into an empty store. Returns the seconds of cleaning up, which do not count."""
    columns = [[stats.name for stats in objects], [stats.size for stats in objects], [stats.raw for stats in objects]]
    batch = pa.RecordBatch.from_pydict(dict(zip(COPY_INPUT.names, columns, strict=True)), schema=COPY_INPUT)
    done = sum(result.num_rows for result in copy_objects(job, [batch]))
    assert done == len(objects)
    return _clean_up(work / "mirror")


def _bare(port: int, name: str, objects: list[ObjectStats], work: Path) -> float:
    (work / "bare").mkdir()
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user="sys#dump", password="111", use_unicode=False, conv={}, autocommit=None
    )
    with connection, connection.cursor() as cursor:
        for stats in objects:
            cursor.execute(f"__++__internal_get_object sys pub_{name} {stats.name} 1")
            ((data, *_),) = cursor.fetchall()
            with (work / "bare" / stats.name).open("wb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
    return _clean_up(work / "bare")


def _clean_up(folder: Path) -> float:
    """Remove what was written and wait until the disk has finished, so that it does not slow down the next side.
    Returns the seconds."""
    started = time.perf_counter()
    shutil.rmtree(folder)
    os.sync()
    return time.perf_counter() - started


@contextmanager
def emulator(recording: Path) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ccpr.cli", "emulator", "--recording", str(recording)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found, "the emulator did not start"
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
