"""What the start of each command costs, and that of Dagster with the code location, which each of its runs imports: CPU
seconds of a process, as many times `python -c pass`. `--json` prints the figures as one JSON object.

The subscription is to a recorded database and idle: all recorded states are replicated before. Of `--repeat` runs the
least counts. The last line is `help=<the slowest> status=… run=…`, in CPU seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

sys.path[0] = __file__.rpartition("/")[0] + "/.."

from ccpr.cli.main import Commands
from tests.support.recordings_location import SAMPLE
from tests.support.replica import NAME, replaying

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--helps", type=int, help="how many commands' help; of all if not given")
    parser.add_argument("--no-dagster", action="store_true", help="leave Dagster out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"CCPR_HOME": f"{scratch}/home", "UPSTREAM_PASSWORD": "any", "PYTHONPATH": str(ROOT)}
        # Compiled modules, as an installation has them.
        os.environ["PYTHONPYCACHEPREFIX"] = f"{scratch}/compiled"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        with replaying(SAMPLE / "dml", Path(scratch)) as replica:
            replica.subscribe()
            for _ in range(replica.about.snapshots):
                replica.run()
            figures = measure(arguments.repeat, arguments.helps, with_dagster=not arguments.no_dagster)
    if arguments.json:
        print(json.dumps(figures))
        return
    python = figures["python -c pass"]
    for command, seconds in figures.items():
        print(f"{command:<28}{seconds:6.3f} s {seconds / python:7.1f} x")
    slowest = max(seconds for command, seconds in figures.items() if command.endswith("--help"))
    print(f"help={slowest:.2f} status={figures[f'ccpr status {NAME}']:.2f} run={figures[f'ccpr run {NAME}']:.2f}")


def measure(repeat: int, helps: int | None, *, with_dagster: bool) -> dict[str, float]:
    """CPU seconds by command."""
    commands = [(), *((name,) for name in Commands.deferred)]
    words = [(*command, "--help") for command in commands[:helps]]
    words += [("status",), ("status", NAME), ("subscriptions",), ("plan", NAME), ("run", NAME)]
    figures = {"python -c pass": min(cpu_seconds("-c", "pass") for _ in range(repeat + 1))}
    for one in words:
        cpu_seconds("-m", "ccpr.cli", *one)  # compiles what it imports
        figures[" ".join(("ccpr", *one))] = min(cpu_seconds("-m", "ccpr.cli", *one) for _ in range(repeat))
    for module in ("dagster", "ccpr_assets.definitions") if with_dagster else ():
        cpu_seconds("-c", f"import {module}")
        figures[f"import {module}"] = min(cpu_seconds("-c", f"import {module}") for _ in range(repeat))
    return figures


def cpu_seconds(*arguments: str) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
