"""Many subscriptions on one `ccpr serve`, in fast motion: does it miss due times, does its memory grow?

200 subscriptions at an interval of 10 s; in each round a tenth of their upstreams' tables get rows. What two cores can
do bounds both: with `--subscriptions 1000` choose `--interval 60`. The service runs in
this process, its upstream in another. The clock runs as fast as the work allows: when nothing is due it skips the time
until something is, so that an hour takes as long as its work does; while something runs the clock runs like the real
one. An iteration is late by the time from its due time to its beginning; what fell due during the first copies is
caught up before that is measured (`settled=1`). In the end every mirror is compared with the rows that were committed;
that takes this process' time while iterations go on, and they are not measured any more.
The last line is `settled=… missed=<due times missed by more than 2 s> latest_s=… p99_s=… iterations=…
failures=… memory_mb=<after a tenth of the time> grown_mb=<from there to the end> descriptors=<most open> sessions=<most
connections to the upstream> cpu_ms=<of this process, an iteration>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import logging
import os
import random
import resource
import statistics
import tempfile
import threading
import time
from array import array
from contextlib import closing
from pathlib import Path

from benchmarks.shared.simulated import connect, upstream, wait_until_equal
from ccpr.serve.listening import Descriptors, Listener, raise_limit
from ccpr.serve.replicator import Replicator
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from tests.support.services import subscribe

MISSED_SECONDS, CHANGED_PART = 2.0, 0.1
SETTLE_INTERVALS = 12.0


class FastClock:
    """Real time, but for what was skipped. Seconds since 1970 and steady seconds move together."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        return time.time() + self._skipped

    def steady(self) -> float:
        return time.monotonic() + self._skipped

    def skip(self, seconds: float) -> None:
        self._skipped += seconds


class FastReplicator(Replicator):
    """Skips the time in which nothing is due and nothing runs."""

    clock: FastClock

    def rest(self, seconds: float) -> None:
        if self.unfinished or self._wake.is_set():
            super().rest(seconds)
        else:
            self.clock.skip(seconds)


class Watch(Listener):
    def __init__(self) -> None:
        self.lates = array("d")  # of an hour there are some 70,000
        self.ended = self.points = self.failed = 0
        self.lock = threading.Lock()

    def iteration_began(self, row, late_seconds: float) -> None:
        if row.watermark:
            self.lates.append(late_seconds)

    def iteration_ended(self, record, mirror, seconds: float) -> None:
        with self.lock:
            self.ended += 1
            self.points += record.outcome.point

    def iteration_failed(self, row, failure, seconds: float) -> None:
        with self.lock:
            self.failed += 1
        print(row.subscription_name, failure, file=sys.stderr)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def connections_to(port: int) -> int:
    """How many connections of this machine are open to a loopback port; 0 where the system does not show them."""
    file = Path("/proc/net/tcp")
    if not file.is_file():
        return 0
    remote = f"0100007F:{port:04X}"
    found = (line.split() for line in file.read_text().splitlines()[1:])
    return sum(columns[2] == remote and columns[3] == "01" for columns in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--subscriptions", type=int, default=200)
    parser.add_argument("--interval", type=int, default=10, help="seconds between the iterations of each")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the service's clock")
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    chance, clock, watch = random.Random(1), FastClock(), Watch()
    samples: list[float] = []
    descriptors = sessions = 0
    raise_limit()
    with tempfile.TemporaryDirectory() as scratch, upstream(options.subscriptions) as port:
        os.environ["CCPR_HOME"] = scratch
        with closing(Workspace(clock=clock.now)) as workspace, closing(connect(port)) as connection:
            subscribe(workspace, port, [Settings(sync_interval=options.interval, retain=2)] * options.subscriptions)
            replicator = FastReplicator(workspace, [watch], workers=options.workers, steady=clock.steady)
            replicator.clock = clock
            replicator.start()
            while watch.ended < options.subscriptions:  # the first points
                time.sleep(0.05)
            settled = settle(watch, options.subscriptions, clock, SETTLE_INTERVALS * options.interval)
            del watch.lates[:]
            began, number, real = clock.now(), 0, time.monotonic()
            cpu, before = time.process_time(), watch.ended
            next_round = began
            while clock.now() < began + options.minutes * 60:
                if clock.now() >= next_round:
                    next_round += options.interval
                    number += 1
                    changed = chance.sample(range(options.subscriptions), int(options.subscriptions * CHANGED_PART))
                    with connection.cursor() as cursor:
                        for one in changed:
                            cursor.execute(f"INSERT INTO d{one}.t VALUES ({number}, 'v')")
                    descriptors = max(descriptors, Descriptors.now().open)
                    sessions = max(sessions, connections_to(port) - 1)  # one is this benchmark's
                    samples.append(resident_mb())
                    if number % max(1, 60 // options.interval) == 0 and not options.json:
                        print(
                            f"{(clock.now() - began) / 60:5.1f} min  {watch.ended} iterations  "
                            f"{samples[-1]:.0f} MB  latest {max(watch.lates, default=0.0):.2f} s",
                            flush=True,
                        )
                time.sleep(0.01)
            seconds = time.monotonic() - real
            ended, lates = watch.ended, watch.lates[:]
            cpu_ms = (time.process_time() - cpu) / max(1, ended - before) * 1000
            mirrors = [str(workspace.default_mirror(f"s{number}")) for number in range(options.subscriptions)]
            wait_until_equal(connection, mirrors)
            replicator.stop()
    warm = samples[len(samples) // 10]
    figures = {
        "settled": int(settled),
        "missed": sum(late > MISSED_SECONDS for late in lates),
        "latest_s": round(max(lates), 2),
        "p99_s": round(statistics.quantiles(lates, n=100)[98], 2),
        "iterations": ended,
        "points": watch.points,
        "failures": watch.failed,
        "memory_mb": round(warm),
        "grown_mb": round(samples[-1] - warm, 1),
        "descriptors": descriptors,
        "sessions": sessions,
        "cpu_ms": round(cpu_ms, 1),
    }
    if options.json:
        print(json.dumps({**figures, "seconds": round(seconds), "load": os.getloadavg()[0]}))
        return
    print(f"{options.minutes:g} minutes took {seconds:.0f} s; load {os.getloadavg()[0]:.1f}")
    print(" ".join(f"{name}={value}" for name, value in figures.items()))


def settle(watch: Watch, count: int, clock: FastClock, seconds: float) -> bool:
    """Wait until each subscription has begun once without being late: what fell due while the first points were made is
    caught up. False if that takes longer, by the service's clock."""
    end = clock.now() + seconds
    while clock.now() < end:
        if len(watch.lates) >= count and max(watch.lates[-count:]) <= MISSED_SECONDS:
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    main()
