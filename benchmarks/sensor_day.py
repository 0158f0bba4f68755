"""A day of the sensor in fast motion, with two outages: how many runs and events does Dagster get, how much does it
store?

There are 20 subscriptions. Five of them feed a database each, of one MariaDB. A tenth of the tables get rows in each
interval.
For a twelfth of the time the upstream is away, later for as long the target. Ticks are skipped while nothing is due.
Runs are executed in this process. In the end each target is compared with its source. `--json` prints the figures as
one JSON object. The last line is `runs=… failed=… upstream_failed=<during that outage> target_failed=…
materializations=… observations=… checks=… mb=<of Dagster's storage>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import logging
import os
import random
import sqlite3
import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import dagster as dg

from ccpr.dagster.failed_runs import RECORDED
from ccpr.dagster.metadata import WHY_TAG
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.dagster.test_tables import ccpr
from tests.sensors.driving import Clock, Daemon, instance_in
from tests.support.mariadb import program_or_skip, running, uri_from
from tests.targets.target_database import new_database

CHANGED_PART, TARGETS = 0.1, 5
EVENTS = {
    "materializations": dg.DagsterEventType.ASSET_MATERIALIZATION,
    "observations": dg.DagsterEventType.ASSET_OBSERVATION,
    "checks": dg.DagsterEventType.ASSET_CHECK_EVALUATION,
}


class Simulation:
    """20 subscriptions `s0` …, each of a database `d0` … with a table, and what drives them."""

    def __init__(self, folder: Path, opened: ExitStack, subscriptions: int, interval: float) -> None:
        self.storage, self.clock, self.interval = Storage(), Clock(), interval
        self.chance, self.numbers = random.Random(1), iter(range(1, 10**9))
        self.sent: Counter[str] = Counter()
        self.databases = [f"d{number}" for number in range(subscriptions)]
        for database in self.databases:
            self.storage.create_database(database)
            self.storage.create_publication(f"p_{database}", database)
            self.storage.create_table(database, "t", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
            self.insert(database)
        self.upstream = opened.enter_context(SimulatedUpstream(self.storage))
        self.server = opened.enter_context(running(program_or_skip()))
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{self.upstream.port}"
        self.places, os.environ["TARGET_PASSWORD"] = {}, self.server.password
        for database in self.databases:
            name = f"s{database[1:]}"
            scope = ("--database", database, "--publication", f"p_{database}", "--interval", str(int(interval)))
            ccpr("subscribe", name, "--from", source, *scope)
            if len(self.places) < TARGETS:
                self.places[database] = opened.enter_context(new_database(self.server))
                ccpr("target", "add", name, "report", "--to", uri_from(self.places[database].uri, "TARGET_PASSWORD"))
        self.instance = opened.enter_context(instance_in(folder / "dagster"))
        self.daemon = Daemon(self.instance, self.clock)

    def insert(self, database: str) -> None:
        with self.storage.begin() as transaction:
            transaction.insert(database, "t", {"n": [next(self.numbers)], "v": ["v"]})
        self.sent[database] += 1

    def go_on(self, until: float, *, changing: bool = True) -> None:
        """Tick until a time, with changes upstream in each interval."""
        while self.clock() < until:
            for database in (
                []
                if not changing
                else self.chance.sample(self.databases, max(1, int(len(self.databases) * CHANGED_PART)))
            ):
                self.insert(database)
            end = min(until, self.clock() + self.interval)
            while self.clock() < end:
                self.daemon.tick_and_run()
                self.clock.go_on_to(self.clock() + self.interval / 10)

    def runs(self) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs())

    def failed(self) -> int:
        return self.instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--subscriptions", type=int, default=20)
    parser.add_argument("--hours", type=float, default=2, help="of the clock; a day is 24")
    parser.add_argument("--interval", type=float, default=600, help="seconds between two iterations")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        folder, length = Path(scratch), options.hours * 3600
        os.environ |= {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": "111"}
        day = Simulation(folder, opened, options.subscriptions, options.interval)
        began, failed = day.clock(), []
        day.go_on(began + length / 4)
        day.upstream.stop()
        day.go_on(began + length / 3)
        day.upstream.restart()
        day.go_on(began + length / 2)
        failed.append(day.failed())
        day.server.kill()
        day.go_on(began + length * 7 / 12)
        day.server.start()
        day.go_on(began + length)
        day.go_on(day.clock() + options.interval, changing=False)
        for database, place in day.places.items():
            assert len(place.rows("t")) == day.sent[database], database
        runs = day.runs()
        figures = {
            "runs": len(runs),
            "failed": day.failed(),
            "upstream_failed": failed[0],
            "target_failed": day.failed() - failed[0],
            "recorded": sum(run.tags.get(WHY_TAG) == RECORDED for run in runs),
            **{name: counted(folder, kind) for name, kind in EVENTS.items()},
            "mb": round(
                sum(file.stat().st_size for file in (folder / "dagster").rglob("*") if file.is_file()) / 1e6, 2
            ),
        }
    if options.json:
        print(json.dumps({**figures, "load": os.getloadavg()[0]}))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    print(" ".join(f"{name}={value}" for name, value in figures.items()))


def counted(folder: Path, kind: dg.DagsterEventType) -> int:
    """Events of a kind in Dagster's storage."""
    (index,) = (folder / "dagster").rglob("index.db")
    with closing(sqlite3.connect(index)) as connection:
        query = "SELECT COUNT(*) FROM event_logs WHERE dagster_event_type = ?"
        return int(connection.execute(query, [kind.value]).fetchone()[0])


if __name__ == "__main__":
    main()
