"""What the start of each command costs, and that of Dagster with the code location, which each of its runs imports: CPU
and wall seconds of a process, and how many times `python -c pass` the CPU seconds are. `--json` prints the figures as
one JSON object, with the load of the machine: wall seconds say something of an idle one only.

The subscription is to a recorded database. All of its recorded states but the last are replicated before; the first of
the runs that are measured brings that one, which is the line `ccpr run …, a change`, and the others are idle. Of
`--repeat` runs the least counts. The last line is `help=<the slowest> status=… run=… query=…`, in CPU seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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
            for _ in range(replica.about.snapshots - 1):
                replica.run()
            table = min(replica.about.expected(1))
            figures = measure(arguments.repeat, arguments.helps, table, with_dagster=not arguments.no_dagster)
    if arguments.json:
        found = {command: {"cpu": round(cpu, 3), "wall": round(wall, 3)} for command, (cpu, wall) in figures.items()}
        print(json.dumps({"load": os.getloadavg()[0], **found}))
        return
    python = figures["python -c pass"][0]
    for command, (cpu, wall) in figures.items():
        print(f"{command:<32}{cpu:6.3f} s {cpu / python:7.1f} x {wall:8.3f} s wall")
    slowest = max(cpu for command, (cpu, _) in figures.items() if command.endswith("--help"))
    status, run, query = (figures[f"ccpr {word}"][0] for word in (f"status {NAME}", f"run {NAME}", f"query {NAME}"))
    print(f"help={slowest:.2f} status={status:.2f} run={run:.2f} query={query:.2f}")


def measure(repeat: int, helps: int | None, table: str, *, with_dagster: bool) -> dict[str, tuple[float, float]]:
    """CPU and wall seconds by command."""
    commands = [(), *((name,) for name in Commands.deferred)]
    words = [(*command, "--help") for command in commands[:helps]]
    words += [("status",), ("status", NAME), ("subscriptions",), ("tables", NAME), ("query", NAME, table)]
    figures = {"python -c pass": least(repeat + 1, "-c", "pass")}
    for one in words:
        figures[" ".join(("ccpr", *one))] = least(repeat, "-m", "ccpr.cli", *one)
    figures[f"ccpr query {NAME}"] = least(repeat, "-m", "ccpr.cli", "query", NAME, f"SELECT count(*) FROM {table}")
    figures[f"ccpr plan {NAME}"] = least(repeat, "-m", "ccpr.cli", "plan", NAME)
    figures[f"ccpr run {NAME}, a change"] = seconds_of("-m", "ccpr.cli", "run", NAME)
    figures[f"ccpr run {NAME}"] = least(repeat, "-m", "ccpr.cli", "run", NAME)
    for module in ("dagster", "ccpr_assets.definitions") if with_dagster else ():
        figures[f"import {module}"] = least(repeat, "-c", f"import {module}")
    return figures


def least(repeat: int, *arguments: str) -> tuple[float, float]:
    """Of some runs, each of the two by itself, after one that compiles what it imports."""
    seconds_of(*arguments)
    found = [seconds_of(*arguments) for _ in range(repeat)]
    return min(cpu for cpu, _ in found), min(wall for _, wall in found)


def seconds_of(*arguments: str) -> tuple[float, float]:
    """CPU and wall seconds of a process."""
    before, began = getrusage(RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    wall, after = time.monotonic() - began, getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


if __name__ == "__main__":
    main()
