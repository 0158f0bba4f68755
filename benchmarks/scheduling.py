"""What a tick of the sensor over many subscriptions costs: time, statements, memory.

The rows of `mo_ccpr_log` are in SQLite, then in a private MariaDB. There are three kinds of rounds: no row is due; all
are due for the first time (eight get a run, as many as a tick allows); all are due after an idle iteration, and their
upstream refuses connections, so that each is claimed, tried and logged as failed. Dagster's storage is SQLite and
holds the runs of `--runs` iterations. Times are medians. `--json` prints the figures as one JSON object. The last line
is `round_ms=<none due, the slower of both databases> all_due_ms=… refused_ms=… statements=<none due>
memory_mb=<peak> grown_mb=<by rounds>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import logging
import os
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import sqlalchemy as sa
from dagster._core.test_utils import create_run_for_test

from ccpr.dagster.metadata import ATTEMPT_TAG, ITERATION_TAG, SUBSCRIPTION_TAG
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.service.workspace import CATALOG_VARIABLE, HOME_VARIABLE, Workspace
from ccpr.state.context import Context
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from ccpr.state.tables import mo_ccpr_log
from tests.sensors.driving import Daemon, instance_in
from tests.support.mariadb import find_program, running

_DAY = 86_400  # the interval: no subscription becomes due during the measurement


@dataclass(frozen=True)
class Round:
    """One kind of round: median milliseconds, statements that name mo_ccpr_log, runs requested, rows with a failure
    after it."""

    ms: float
    statements: int
    requests: int
    failures: int


@dataclass(frozen=True)
class Figures:
    database: str
    none_due: Round
    all_due: Round
    refused: Round
    grown_mb: float


def measure(database: str, url: str | None, folder: Path, subscriptions: int, runs: int, rounds: int) -> Figures:
    os.environ[HOME_VARIABLE] = str(folder / "home")
    os.environ.pop(CATALOG_VARIABLE, None)
    if url:
        os.environ[CATALOG_VARIABLE] = url
    (folder / "home").mkdir(parents=True)
    with closing(Workspace()) as workspace, instance_in(folder / "dagster") as instance:
        names = _subscribe(workspace, subscriptions)
        instance.add_dynamic_partitions("ccpr_subscription", names)
        for number in range(runs):
            tags = {SUBSCRIPTION_TAG: names[number % len(names)], ITERATION_TAG: f"{number}:{number}", ATTEMPT_TAG: "0"}
            create_run_for_test(instance, job_name="ccpr_sync_job", tags=tags, status=dg.DagsterRunStatus.SUCCESS)
        daemon = Daemon(instance)
        daemon.tick()  # imports and connections do not count
        before = _resident_mb()
        all_due = _rounds(workspace, daemon, rounds, 0.0)
        none_due = _rounds(workspace, daemon, rounds, time.time())
        refused = _rounds(workspace, daemon, max(1, rounds // 5), time.time() - 2 * _DAY)
        return Figures(database, none_due, all_due, refused, round(_resident_mb() - before, 1))


def _subscribe(workspace: Workspace, count: int) -> list[str]:
    with socket.socket() as probe:  # a port that refuses connections
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint, publication = Endpoint("127.0.0.1", port, "sys", "dump"), Publication("pub", "sys", 0)
    sealed = workspace.vault.seal("111", endpoint)
    names = [f"subscription_{number:04}" for number in range(count)]
    for name in names:
        new = Subscription.new(
            name, endpoint, "", workspace.vault, publication, f"db_{name}", None, Settings(sync_interval=_DAY)
        )
        workspace.log.insert(
            replace(new, sealed_password=sealed).to_row(datetime.fromtimestamp(time.time() - 3.5 * _DAY, UTC))
        )
    return names


def _rounds(workspace: Workspace, daemon: Daemon, rounds: int, last: float) -> Round:
    """Rounds after an iteration that began at `last` (0 = no iteration)."""
    times, statements, requests, failures = [], 0, 0, 0
    for _ in range(rounds):
        _set_back(workspace, last)
        with _counting() as count:
            began = time.perf_counter()
            requests = len(daemon.tick().run_requests or [])
            times.append((time.perf_counter() - began) * 1e3)
        statements = count[0]
        failures = len([row for row in workspace.log.rows() if row.error_message])
    return Round(round(statistics.median(times), 1), statements, requests, failures)


def _set_back(workspace: Workspace, last: float) -> None:
    """Set all rows as an idle iteration that began at `last` would leave them."""
    ref = SnapshotRef("xr_000000000000_7_0", 7, 0, round(last * 1e9), last)
    context = Context(current=ref) if last else Context()
    values = {
        "context": context.to_text(),
        "watermark": round(last * 1e9),
        "error_message": None,
        "lease_expires_at": 0,
        "iteration_lsn": 8,
    }
    with workspace.log.engine.begin() as connection:
        connection.execute(mo_ccpr_log.update().values(state=0, iteration_state=2, **values))


@contextmanager
def _counting() -> Iterator[list[int]]:
    count = [0]

    def add(connection, cursor, statement, parameters, context, many) -> None:
        count[0] += "mo_ccpr_log" in statement

    sa.event.listen(sa.Engine, "before_cursor_execute", add)
    try:
        yield count
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", add)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--subscriptions", type=int, default=200)
    parser.add_argument("--runs", type=int, default=2000, help="runs that Dagster has already")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch, running(find_program()) as server:
        server.create_database("catalog")
        url = f"mysql+pymysql://{server.user}:{server.password}@{server.host}:{server.port}/catalog"
        figures = [
            measure(name, catalog, Path(scratch) / name, options.subscriptions, options.runs, options.rounds)
            for name, catalog in (("sqlite", None), ("mariadb", url))
        ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    if options.json:
        print(json.dumps({"peak_mb": round(peak, 1), "figures": [asdict(figure) for figure in figures]}))
        return
    print(f"{options.subscriptions} subscriptions, {options.runs} runs in Dagster, medians of {options.rounds} rounds")
    for figure in figures:
        for what in ("none_due", "all_due", "refused"):
            one: Round = getattr(figure, what)
            print(
                f"{figure.database:8} {what:9} {one.ms:8.1f} ms  {one.statements:5} statements to mo_ccpr_log  "
                f"{one.requests} runs requested, {one.failures} failures logged"
            )

    def slowest(what: str) -> float:
        return max(getattr(figure, what).ms for figure in figures)

    statements, grown = (
        max(figure.none_due.statements for figure in figures),
        max(figure.grown_mb for figure in figures),
    )
    print(
        f"round_ms={slowest('none_due')} all_due_ms={slowest('all_due')} refused_ms={slowest('refused')} "
        f"statements={statements} memory_mb={peak:.0f} grown_mb={grown}"
    )


if __name__ == "__main__":
    main()
