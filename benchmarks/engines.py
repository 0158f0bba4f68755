"""Who copies how fast, from 10 kB to 1 GB: the process itself, a Spark session of its own, one that has to start, and
`ccpr run` as a whole with each engine. `--json` prints the figures as one JSON object.

All copy the same objects from one emulator, which is another process, into an empty folder, and take turns: a busy
machine slows down each of them, so the ratios say more than the seconds. A figure is the median of its rounds. A cold
session is started once for each size, in a process of its own. `ccpr run` is measured from the start of the program to
its end, on 300 MB. The last line is `spark_300mb=<seconds of the process / of Spark> spark_6kb_s=<seconds>
auto=<ccpr run --engine auto / --engine process>`.
"""

import sys

# The repository: in its folder `copy` would be the module of the benchmark, for the standard library, too.
sys.path[0] = __file__.rpartition("/")[0] + "/.."

import argparse
import json
import os
import pickle
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.copy import emulator, job_of, large_objects, objects_of
from benchmarks.shared.common import recordings_with
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy, copy_in_process
from ccpr.pipeline.spark.engine import Copier
from ccpr.state.credentials import KEY_FILE_VARIABLE

_LARGE = (("15 MB", 1), ("60 MB", 4), ("300 MB", 20), ("1 GB", 67))  # objects of 15 MB
_SMALL = (("6 kB", 3), ("100 kB", 50), ("1 MB", 500))  # objects of 2 kB
_ENGINES = ("process", "spark", "cold")
_COMMAND_SIZE = "300 MB"
_ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", default="1 GB", help="skip what is larger, e.g. '300 MB'")
    parser.add_argument("--no-cold", action="store_true", help="leave the cold sessions out")
    parser.add_argument("--cold", nargs=2, metavar=("TASK", "HOME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cold:
        _cold(*map(Path, arguments.cold))
        return
    folder = recordings_with("wide_and_large", "many_tables")
    names = [name for name, _ in (*_SMALL, *_LARGE)]
    names = names[: names.index(arguments.largest) + 1]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:  # on disk like a mirror, not in memory
        work = Path(scratch)
        os.environ[KEY_FILE_VARIABLE] = str(work / "key")
        os.environ["CCPR_HOME"] = str(work)
        recordings = [(folder / "many_tables", [size for size in _SMALL if size[0] in names])]
        if large := [size for size in _LARGE if size[0] in names]:
            made = large_objects(folder / "wide_and_large", work / "large", max(count for _, count in large))
            recordings.append((made, large))
        figures = {}
        for recording, sizes in recordings:
            figures |= _copies(recording, sizes, work, arguments)
        if _COMMAND_SIZE in names:
            figures |= _commands(folder / "wide_and_large", work, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    _show(figures)


def _copies(
    recording: Path, sizes: list[tuple[str, int]], work: Path, arguments: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Seconds of each engine by size."""
    engines: dict[str, Callable] = {"process": copy_in_process, "spark": Copier(work, "spark")}
    found = {}
    with emulator(recording) as port:
        job = job_of(port, recording.name, work)
        for name, count in sizes:
            objects = _table(recording, count)
            times: dict[str, list[float]] = {engine: [] for engine in engines}
            for number in range(arguments.rounds + 1):  # the first is a warm-up
                for engine in list(engines)[:: 1 if number % 2 else -1]:
                    seconds = _timed(partial(copy, job, objects, engines[engine]))
                    _clean_up(work / "mirror")
                    if number:
                        times[engine].append(seconds)
            found[name] = {engine: statistics.median(values) for engine, values in times.items()}
            if not arguments.no_cold:
                found[name]["cold"] = _timed_cold(job, objects, work)
                _clean_up(work / "mirror")
            print(name, {engine: round(value, 3) for engine, value in found[name].items()}, file=sys.stderr, flush=True)
    return found


def _timed_cold(job: CopyJob, objects: pa.Table, work: Path) -> float:
    task, home = work / "task", work / "cold"
    task.write_bytes(pickle.dumps((job, objects)))
    home.mkdir(exist_ok=True)
    shutil.copy(work / "key", home / "key")
    command = [sys.executable, str(Path(__file__).resolve()), "--cold", str(task), str(home)]
    return _timed(lambda: subprocess.run(command, check=True, env={**os.environ, "CCPR_HOME": str(home)}))


def _cold(task: Path, home: Path) -> None:
    job, objects = pickle.loads(task.read_bytes())
    assert copy(job, objects, Copier(home, "spark")).objects_fetched == objects.num_rows


def _commands(source: Path, work: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of a first `ccpr run` of 300 MB, from the start of the program to its end."""
    recording = large_objects(source, work / "command" / source.name, dict(_LARGE)[_COMMAND_SIZE])
    times: dict[str, list[float]] = {}
    with emulator(recording) as port:
        for number in range(rounds + 1):
            for engine in ("auto", "process")[:: 1 if number % 2 else -1]:
                seconds = _first_run(port, recording, work, engine)
                if number:
                    times.setdefault(engine, []).append(seconds)
    return {"ccpr run": {name: statistics.median(values) for name, values in times.items()}}


def _first_run(port: int, recording: Path, work: Path, engine: str) -> float:
    for path in (work / "mirrors", work / "catalog.db", work / "catalog.db-wal", work / "catalog.db-shm"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    database = json.loads((recording / "about.json").read_text())["database"]
    ccpr = [sys.executable, "-m", "ccpr.cli"]
    uri = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{port}"
    options = ["--from", uri, "--database", database, "--publication", f"pub_{recording.name}"]
    quiet = {
        "check": True,
        "env": {**os.environ, "UPSTREAM_PASSWORD": "111"},
        "stdout": subprocess.DEVNULL,
        "cwd": _ROOT,
    }
    subprocess.run([*ccpr, "subscribe", "replica", *options], **quiet)
    os.sync()
    return _timed(lambda: subprocess.run([*ccpr, "run", "replica", "--engine", engine], **quiet))


def _table(recording: Path, count: int) -> pa.Table:
    stats = (
        sorted(objects_of(recording), key=lambda one: one.size)[-count:]
        if count < 20
        else objects_of(recording)[:count]
    )
    columns = [[one.name for one in stats], [one.size for one in stats], [one.raw for one in stats]]
    return pa.table(columns, schema=COPY_INPUT)


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _clean_up(folder: Path) -> None:
    """Remove what was written and wait until the disk has finished, so that it does not slow down the next."""
    shutil.rmtree(folder)
    os.sync()


def _show(figures: dict[str, dict[str, float]]) -> None:
    print(f"{'':>8} {'process':>10} {'spark':>10} {'cold':>10}   process/spark")
    for name, times in figures.items():
        if name != "ccpr run":
            shown = " ".join(f"{times[engine]:>8.2f} s" if engine in times else " " * 10 for engine in _ENGINES)
            print(f"{name:>8} {shown}   {times['process'] / times['spark']:.2f}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    last = {}
    if "300 MB" in figures:
        last["spark_300mb"] = figures["300 MB"]["process"] / figures["300 MB"]["spark"]
    last["spark_6kb_s"] = figures["6 kB"]["spark"]
    if "ccpr run" in figures:
        last["auto"] = figures["ccpr run"]["auto"] / figures["ccpr run"]["process"]
    print(" ".join(f"{name}={value:.2f}" for name, value in last.items()))


if __name__ == "__main__":
    main()
