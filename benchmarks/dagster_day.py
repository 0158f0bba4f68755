"""A day of `ccpr serve` in fast motion with Dagster's storage in MariaDB: does the storage's size level off?

20 subscriptions at an interval of 60 s; a tenth of their tables get rows each minute. The service and its reporter to
Dagster run in this process, upstream and MariaDB in others. Time in which nothing is due and nothing is reported is
skipped. Each twentieth of the time what `dagster_retention_sensor` does is done, with `--keep-hours` in the place of
its days. Nothing is dropped from the reporter's queue. `--json` prints the figures as one JSON object. The last line is
`rows_quarter=<of Dagster's event tables, when a quarter of the time was over> rows_half=… rows_end=… mb_half=…
mb_end=… iterations=… dropped=… purged=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import logging
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import yaml

from benchmarks import service
from benchmarks.shared.simulated import upstream
from ccpr.dagster.reporter import DagsterReporter
from ccpr.dagster.retention_sensor import purge
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from tests.support.mariadb import MariaDb, program_or_skip, running
from tests.support.services import subscribe

DATABASE, INTERVAL_SECONDS, CHANGED_PART, LOOKS = "dagster", 60, 0.1, 20
EVENTS = ("event_logs", "asset_event_tags", "asset_check_executions")


class Reported(service.FastReplicator):
    """Time is not skipped before all is reported: else the queue would be too short for an hour in a minute."""

    reporter: DagsterReporter

    def rest(self, seconds: float) -> None:
        if not self.unfinished:
            self.reporter.flush(60)
        super().rest(seconds)


@contextmanager
def instance_on(server: MariaDb, folder: Path) -> Iterator[dg.DagsterInstance]:
    server.create_database(DATABASE)
    where = {
        "username": server.user,
        "password": server.password,
        "hostname": server.host,
        "db_name": DATABASE,
        "port": server.port,
    }
    folder.mkdir()
    settings = {"telemetry": {"enabled": False}, "storage": {"mysql": {"mysql_db": where}}}
    (folder / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance


def stored(server: MariaDb) -> tuple[int, float]:
    """Rows of Dagster's tables of events, and MB of all its tables."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {DATABASE}")
        for table in EVENTS:
            cursor.execute(f"ANALYZE TABLE {table}")
        counts = ", ".join(f"(SELECT COUNT(*) FROM {table})" for table in EVENTS)
        size = (
            f"SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = '{DATABASE}'"
        )
        cursor.execute(f"SELECT ({size}), {counts}")
        ((size_bytes, *rows),) = cursor.fetchall()
        return sum(rows), round(float(size_bytes) / 1e6, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--subscriptions", type=int, default=20)
    parser.add_argument("--hours", type=float, default=0.2, help="of the service's clock; a day is 24")
    parser.add_argument("--keep-hours", type=float, help="what is older is deleted; a quarter of the time if not given")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    length, kept = options.hours * 3600, (options.keep_hours or options.hours / 4) * 3600
    chance, clock, watch = random.Random(1), service.FastClock(), service.Watch()
    samples: list[tuple[int, float]] = []
    purged = 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(program_or_skip()) as server,
        instance_on(server, Path(scratch) / "dagster") as instance,
        upstream(options.subscriptions) as port,
        closing(Workspace(Path(scratch) / "home", clock=clock.now)) as workspace,
        closing(service.connect(port)) as connection,
    ):
        os.environ["CCPR_HOME"] = str(workspace.home)
        subscribe(workspace, port, [Settings(sync_interval=INTERVAL_SECONDS, retain=2)] * options.subscriptions)
        reporter = DagsterReporter(workspace, lambda: instance)
        replicator = Reported(workspace, [watch, reporter], steady=clock.steady)
        replicator.clock, replicator.reporter = clock, reporter
        reporter.start()
        replicator.start()
        began, rounds = clock.now(), 0
        marks = [(began, datetime.now(UTC))]  # of the service's clock and of Dagster's, which does not skip
        while (now := clock.now()) < began + length:
            if now >= began + rounds * INTERVAL_SECONDS:
                rounds += 1
                changed = chance.sample(range(options.subscriptions), max(1, int(options.subscriptions * CHANGED_PART)))
                with connection.cursor() as cursor:
                    for one in changed:
                        cursor.execute(f"INSERT INTO d{one}.t VALUES ({rounds}, 'v')")
                marks.append((now, datetime.now(UTC)))
            if now >= began + (len(samples) + 1) * length / LOOKS:
                old = [real for fast, real in marks if fast <= now - kept]
                purged += purge(instance, old[-1]).events if old else 0
                samples.append(stored(server))
                if not options.json:
                    line = f"{(now - began) / 3600:6.2f} h  {watch.ended} iterations  {samples[-1][0]} rows"
                    print(f"{line}  {samples[-1][1]} MB", flush=True)
            time.sleep(0.005)
        replicator.stop()
        reporter.stop()
        samples.append(stored(server))
    rows, sizes = zip(*samples, strict=True)
    figures = {
        "rows_quarter": rows[len(rows) // 4],
        "rows_half": rows[len(rows) // 2],
        "rows_end": rows[-1],
        "mb_half": sizes[len(sizes) // 2],
        "mb_end": sizes[-1],
        "iterations": watch.ended,
        "dropped": reporter.dropped,
        "purged": purged,
    }
    if watch.failed:
        raise SystemExit(f"{watch.failed} iterations failed")
    if options.json:
        print(json.dumps({**figures, "load": os.getloadavg()[0]}))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    print(" ".join(f"{name}={value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
