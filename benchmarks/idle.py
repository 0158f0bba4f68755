"""What an idle iteration of `ccpr serve` costs: CPU of the service's process, transactions of the state database,
statements that go upstream.

Subscriptions of one small table each, in which nothing changes; the service runs in this process, its upstream in
another. The time in which nothing is due is skipped. The last line is `cpu_ms=<an iteration> transactions=… upstream=…
iterations=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import logging
import os
import tempfile
import time
from collections import Counter
from contextlib import closing

from benchmarks.service import FastClock, FastReplicator, Watch
from benchmarks.shared.simulated import upstream
from ccpr.matrixone.client.upstream_session import Session
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from tests.support.services import subscribe


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a line")
    parser.add_argument("--subscriptions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10, help="idle iterations of each")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    clock, watch, counted = FastClock(), Watch(), Counter()
    query = Session.query
    Session.query = lambda self, sql, **more: (counted.update(["upstream"]), query(self, sql, **more))[1]
    with tempfile.TemporaryDirectory() as scratch, upstream(options.subscriptions) as port:
        os.environ["CCPR_HOME"] = scratch
        with closing(Workspace(clock=clock.now)) as workspace:
            subscribe(workspace, port, [Settings(sync_interval=10, retain=2)] * options.subscriptions)
            dialect = workspace.log.engine.dialect  # a listener of the engine's would make each statement dearer
            begin = dialect.do_begin
            dialect.do_begin = lambda dbapi_connection: (counted.update(["transactions"]), begin(dbapi_connection))[1]
            replicator = FastReplicator(workspace, [watch], steady=clock.steady)
            replicator.clock = clock
            replicator.start()
            while watch.points < options.subscriptions and not watch.failed:
                time.sleep(0.01)
            wait_for(watch, watch.ended + 2 * options.subscriptions)  # what an iteration does once only
            began, cpu, before = watch.ended, time.process_time(), counted.copy()
            points = watch.points
            wait_for(watch, began + options.rounds * options.subscriptions)
            ended, cpu, after = watch.ended - began, time.process_time() - cpu, counted - before
            replicator.stop()
    if watch.points != points or watch.failed:
        raise SystemExit("an iteration was not idle, or failed")
    figures = {
        "cpu_ms": round(cpu / ended * 1000, 1),
        "transactions": round(after["transactions"] / ended, 1),
        "upstream": round(after["upstream"] / ended, 1),
        "iterations": ended,
    }
    if options.json:
        print(json.dumps({**figures, "load": os.getloadavg()[0]}))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    print(" ".join(f"{name}={value}" for name, value in figures.items()))


def wait_for(watch: Watch, iterations: int) -> None:
    while watch.ended < iterations and not watch.failed:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
