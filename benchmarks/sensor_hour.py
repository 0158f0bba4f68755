"""An hour of the sensor in simulated time: does its schedule drift, what does it leave over, how much does it store?

A recorded database of eleven states is replicated every 60 s; from the twelfth iteration on nothing changes. Ticks
come every 10 s of a clock that skips the waiting in between and otherwise runs like the real one. Runs are executed in
this process, one after another, and copy without Spark: otherwise eleven JVMs would be measured. In the end every
point is compared with the source. `--json` prints the figures as one JSON object. The last line is `drift_s=<delay
that grew over the hour> orphans=<snapshots left upstream> runs=… idle=… dagster_mb=… mirror_mb=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import dagster as dg

from ccpr.pipeline.due import due_at
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.log_rows import LogRow
from tests.sensors.driving import Clock, Daemon, instance_in
from tests.support.recordings_location import recordings_folder
from tests.support.replica import NAME, Replica, replaying

APPLIED = dg.AssetKey("applied_tables")
INTERVAL_SECONDS, TICK_SECONDS = 60, 10


@dataclass(frozen=True)
class Storage:
    """Bytes on disk."""

    dagster: int
    catalog: int
    mirror: int


@dataclass(frozen=True)
class Figures:
    """The result of the simulation.

    Attributes
    ----------
    drift_s : by how much the time from the second iteration to the last exceeds the intervals in between.
    latest_s : the longest time by which an iteration began after it was due.
    orphans : snapshots upstream other than the current and the previous one, the most after any tick.
    leftovers : files of unfinished work, and locks that are held, at the end.
    tick_s, run_s : processor time of a tick with an idle iteration, and of a run with the tick that requested it
        (means).
    before, changed, after : storage at the start, after the last change was replicated, and at the end.
    """

    minutes: int
    iterations: int
    ticks: int
    runs: int
    idle: int
    drift_s: float
    latest_s: float
    orphans: int
    leftovers: int
    points_compared: int
    tick_s: float
    run_s: float
    before: Storage
    changed: Storage
    after: Storage


def _ended(events: Sequence[object]) -> int:
    """How many iterations the tick itself has ended, as idle."""
    return sum(isinstance(event, dg.AssetMaterialization) and event.asset_key == APPLIED for event in events)


def simulate(recording: Path, folder: Path, minutes: int, say: Callable[[str], None] = lambda line: None) -> Figures:
    """Simulate that many minutes. Fails if a run fails or a row differs from the source. CCPR_HOME has to be
    `folder`/home."""
    clock, begins, lates, orphans = Clock(), [], [], 0
    ticks = runs = idle = 0
    busy: dict[bool, list[float]] = {True: [], False: []}
    with replaying(recording, folder) as replica, instance_in(folder / "dagster") as instance:
        daemon = Daemon(instance, clock)
        replica.subscribe("--interval", str(INTERVAL_SECONDS))
        before = changed = _storage(folder)
        start = clock()
        while (at := start + ticks * TICK_SECONDS) < start + minutes * 60:
            clock.go_on_to(at)
            ticks += 1
            row, began, worked = _row(), clock(), time.process_time()
            data, results = daemon.tick_and_run()
            ended = _ended(data.asset_events)
            if not results and not ended:
                continue
            busy[bool(results)].append(time.process_time() - worked)
            assert all(result.success for result in results)
            runs, idle = runs + len(results), idle + ended
            begins.append(began)
            if row.watermark:
                lates.append(began - due_at(row))
            left = set(replica.emulator.status().snapshots) - _kept(_row())
            orphans = max(orphans, len(left))
            if results:
                changed = _storage(folder)
            what = "run" if results else "idle"
            late = lates[-1] if lates else 0.0
            say(f"{began - start:6.0f} s  lsn {row.iteration_lsn:3}  {what:4}  late {late:4.1f} s")
        compared = _compare(replica, runs)
        after = _storage(folder)
    return Figures(
        minutes=minutes,
        iterations=len(begins),
        ticks=ticks,
        runs=runs,
        idle=idle,
        drift_s=round(begins[-1] - begins[1] - (len(begins) - 2) * INTERVAL_SECONDS, 3),
        latest_s=round(max(lates), 3),
        orphans=orphans,
        leftovers=_leftovers(folder),
        points_compared=compared,
        tick_s=_mean(busy[False]),
        run_s=_mean(busy[True]),
        before=before,
        changed=changed,
        after=after,
    )


def _compare(replica: Replica, runs: int) -> int:
    """Compare every point with the source's rows, and the present state with the newest. Returns how many points."""
    points = replica.command("points", NAME)
    assert len(points) == runs == replica.about.snapshots
    for snapshot, lsn in enumerate(sorted(point["lsn"] for point in points), 1):
        replica.assert_equal_to_source(snapshot, at=lsn)
    replica.assert_equal_to_source(replica.about.snapshots)
    return len(points)


def _row() -> LogRow:
    with closing(Workspace()) as workspace:
        return workspace.log.row(NAME)


def _kept(row: LogRow) -> set[str]:
    context = Context.from_text(row.context)
    return {ref.name for ref in (context.current, context.previous) if ref is not None}


def _storage(folder: Path) -> Storage:
    home = folder / "home"
    catalog = sum(file.stat().st_size for file in home.glob("catalog.db*"))
    return Storage(_bytes(folder / "dagster"), catalog, _bytes(home / "mirrors"))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _leftovers(folder: Path) -> int:
    home = folder / "home"
    return sum(file.is_file() for file in home.glob("mirrors/*/work/**/*")) + sum(
        _is_held(file) for file in home.glob("executors/*")
    )


def _is_held(lock: Path) -> bool:
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--recording", default="dml", help="its states are replicated in as many minutes at least")
    arguments = parser.parse_args()
    recordings = recordings_folder()
    if recordings is None:
        raise SystemExit("no recordings: set CCPR_RECORDINGS")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ |= {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": "111"}
        quiet = (lambda line: None) if arguments.json else print
        figures = simulate(recordings / arguments.recording, folder, arguments.minutes, quiet)
    if arguments.json:
        print(json.dumps(asdict(figures)))
        return
    before, changed, after = figures.before, figures.changed, figures.after
    idle = max(1, figures.idle)
    print(
        f"{figures.minutes} min: {figures.ticks} ticks, {figures.iterations} iterations, "
        f"at most {figures.latest_s:.1f} s late; "
        f"{figures.points_compared} points equal to the source; {figures.leftovers} files left over"
    )
    print(f"processor time: {figures.tick_s:.2f} s an idle iteration, {figures.run_s:.2f} s a run")
    for name in ("dagster", "catalog", "mirror"):
        steps = " -> ".join(f"{getattr(storage, name) / 1e6:.2f}" for storage in (before, changed, after))
        growth = (getattr(after, name) - getattr(changed, name)) / idle / 1e3
        print(f"storage of {name:7}: {steps} MB (start, last change, end); {growth:.2f} kB an idle iteration")
    print(
        f"drift_s={figures.drift_s:.1f} orphans={figures.orphans} runs={figures.runs} "
        f"idle={figures.idle} "
        f"dagster_mb={after.dagster / 1e6:.2f} mirror_mb={after.mirror / 1e6:.2f}"
    )


if __name__ == "__main__":
    main()
