"""Two `ccpr serve`, each with a state folder of its own, share the subscriptions of one state database (MariaDB): are
they in time, is an iteration done twice or left out, and how long do those of one that is killed wait?

In real time. After the first copies `--minutes` with both; then one is killed with SIGKILL and starts again `--down`
seconds later, then the other one. A tenth of the tables get a row in each interval. The database writes down each
iteration that ends. Late is a snapshot that was taken more than 2 s after its due time. In the end the mirrors are
compared with the rows that were committed.

The last line is `subscriptions=… missed=<late ones while both worked> latest_s=… first=<part of the iterations that the
first service did> killed_missed=<late ones after the two kills> killed_latest_s=… twice=<iterations of one due time or
lsn> left_out=<due times without an iteration while both worked> cpu_ms=<of both services, an iteration>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pymysql

from benchmarks.shared.common import cpu_seconds
from benchmarks.shared.simulated import connect, upstream, wait_until_equal
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from tests.support.mariadb import program_or_skip, running
from tests.support.services import (
    Audit,
    EndedIteration,
    Service,
    began_at,
    due_after,
    iterations_of,
    subscribe,
    two_services,
)

LATE_SECONDS, CHANGED_PART, SETTLE_INTERVALS = 2.0, 0.1, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--subscriptions", type=int, default=200)
    parser.add_argument("--interval", type=int, default=12, help="seconds between the iterations of each")
    parser.add_argument("--minutes", type=float, default=2.0, help="with both, before one is killed")
    parser.add_argument("--workers", type=int, default=8, help="of each")
    parser.add_argument("--down", type=float, default=30.0, help="seconds that a killed one is away")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(program_or_skip()) as mariadb,
        upstream(options.subscriptions) as port,
    ):
        mariadb.create_database("catalog")
        url, homes = mariadb.url("catalog"), [Path(scratch, "a"), Path(scratch, "b")]
        with closing(Workspace(homes[0], url)) as workspace, closing(connect(port)) as connection:
            mirrors = [str(Path(scratch, "mirrors", f"s{number}")) for number in range(options.subscriptions)]
            settings = (Settings(sync_interval=options.interval, mirror=mirror) for mirror in mirrors)
            rows = subscribe(workspace, port, settings)
            writer = Writer(connection, options.subscriptions, options.interval)
            with (
                closing(Audit(mariadb, "catalog")) as audit,
                two_services(homes, url, workers=options.workers) as services,
            ):
                while len(iterations_of(audit.ended())) < options.subscriptions:  # the first points
                    time.sleep(1.0)
                writer.write_for(SETTLE_INTERVALS * options.interval)
                both = time.time()
                cpu, counted = cpu_of(services), audit.count()
                writer.write_for(60 * options.minutes)
                cpu_ms = 1000 * (cpu_of(services) - cpu) / max(1, audit.count() - counted)
                kills = time.time()
                for service in services:
                    service.end(signal.SIGKILL)
                    writer.write_for(options.down)
                    service.start()
                    writer.write_for(max(options.down, SETTLE_INTERVALS * options.interval))
                wait_until_equal(connection, mirrors)
                for service in services:
                    service.end(signal.SIGTERM)
                ended = audit.ended()
            figures = evaluated(rows, ended, both, kills, options.interval)
    figures = {"subscriptions": options.subscriptions, **figures, "cpu_ms": round(cpu_ms, 1)}
    if options.json:
        print(json.dumps({**figures, "load": os.getloadavg()[0]}))
        return
    print(f"{options.minutes:g} minutes at {options.interval} s; load {os.getloadavg()[0]:.1f}")
    print(" ".join(f"{name}={value}" for name, value in figures.items()))


def evaluated(
    rows: dict[str, LogRow], ended: list[EndedIteration], both: float, kills: float, interval: int
) -> dict[str, float]:
    """What came too late, twice, or not at all."""
    lates, killed = list[float](), list[float]()
    twice = left_out = 0
    for task_id, iterations in iterations_of(ended).items():
        due = [due_after(rows[task_id], one) for one in iterations]
        twice += len(due) - len(set(due)) + len(iterations) - len({one.lsn for one in iterations})
        for before, one in zip(due, iterations[1:], strict=False):
            late = began_at(one) - before
            if both <= before < kills:
                lates.append(late)
                left_out += int(late // interval)
            elif before >= kills:
                killed.append(late)
    owners = [one.owner for one in ended if both <= began_at(one) < kills]
    return {
        "missed": missed(lates),
        "latest_s": round(max(lates, default=0.0), 2),
        "first": round(owners.count(owners[0]) / len(owners), 2) if owners else 0.0,
        "killed_missed": missed(killed),
        "killed_latest_s": round(max(killed, default=0.0), 2),
        "twice": twice,
        "left_out": left_out,
        "iterations": len(ended),
    }


def missed(lates: Iterable[float]) -> int:
    return sum(late > LATE_SECONDS for late in lates)


class Writer:
    """Gives a tenth of the tables a row, once in each interval."""

    def __init__(self, connection: pymysql.Connection, count: int, interval: int) -> None:
        self._connection, self._count, self._interval = connection, count, interval
        self._chance, self._number, self._next = random.Random(1), 0, time.monotonic()

    def write_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if time.monotonic() >= self._next:
                self._next += self._interval
                self._number += 1
                with self._connection.cursor() as cursor:
                    for one in self._chance.sample(range(self._count), max(1, int(self._count * CHANGED_PART))):
                        cursor.execute(f"INSERT INTO d{one}.t VALUES ({self._number}, 'v')")
            time.sleep(0.1)


def cpu_of(services: Iterable[Service]) -> float:
    return sum(cpu_seconds(service.process.pid) for service in services if service.process is not None)


if __name__ == "__main__":
    main()
