"""What benchmarks share: their command line, the check for the recordings that they need, the middle of some rounds."""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.recordings_location import recordings_folder


def arguments_of(text: str | None, rounds: int, **sizes: float) -> argparse.Namespace:
    """`json`, `rounds`, and numbers by which a benchmark can be made smaller, with their usual values, from the command
    line; `text` is the module's docstring."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=rounds)
    for name, usual in sizes.items():
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    return parser.parse_args()


def recordings_with(*scenarios: str) -> Path:
    """The folder of the recordings. Ends the program if one of these scenarios is missing."""
    folder = recordings_folder()
    missing = [name for name in scenarios if folder is None or not (folder / name).is_dir()]
    if folder is None or missing:
        raise SystemExit(
            f"this needs the full recordings ({', '.join(missing)} not found): set CCPR_RECORDINGS to their folder"
        )
    return folder


def median(action: Callable[[], object], rounds: int) -> float:
    """The seconds that it takes."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def cpu_seconds(process: int) -> float:
    """CPU seconds of all threads of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
