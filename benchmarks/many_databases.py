"""What an iteration over all databases of an account costs in which one table has changed: 50 databases of 200 tables
each, which are 10,000.

The upstream is a simulated one in another process. When what the first point's flush has written is replicated, a row
is inserted, and an iteration makes a point with it; what that flush has written comes next, and the one after that is
idle. In the end the table's rows are compared. The last line is
`statements=<of the iteration with one change> seconds=… cpu_s=<of this process> memory_mb=<peak> idle_statements=…
idle_s=…`; `--json` prints all figures as one object.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import resource
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pymysql

import ccpr
from benchmarks.shared.simulated import upstream
from ccpr.matrixone.client.endpoint import EVERYTHING, Publication, parse_uri
from ccpr.matrixone.client.upstream_session import Session
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from tests.support.driving import iterate

NAME, DATABASES, TABLES = "everything", 50, 200
_sent = 0


def _counted(method: Any) -> Any:
    def counting(self: Session, *arguments: Any, **options: Any) -> Any:
        global _sent
        _sent += 1
        return method(self, *arguments, **options)

    return counting


Session._run, Session.stream = _counted(Session._run), _counted(Session.stream)  # pyright: ignore


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--databases", type=int, default=DATABASES)
    parser.add_argument("--tables", type=int, default=TABLES, help="of each database")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, upstream(options.databases, options.tables) as port:
        os.environ["CCPR_HOME"] = scratch
        with closing(Workspace()) as workspace, closing(_connect(port)) as connection:
            endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
            publication = Publication(NAME, "sys", 0)
            new = Subscription.new(NAME, endpoint, "111", workspace.vault, publication, EVERYTHING, None, Settings())
            workspace.log.insert(new.to_row(datetime.now(UTC)))
            figures = {"first": _iteration(workspace), "flushed": _iteration(workspace)}
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO d0.t VALUES (1, 'v')")
            figures["one_changed"] = _iteration(workspace)
            _iteration(workspace)
            figures["idle"] = _iteration(workspace)
            rows = ccpr.open_mirror(str(workspace.default_mirror(NAME))).table("d0.t").to_arrow()
            assert sorted(rows.column("n").to_pylist()) == [0, 1]
    changed, idle = figures["one_changed"], figures["idle"]
    changed["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
    if options.json:
        print(json.dumps({**figures, "load": os.getloadavg()[0]}))
        return
    for name, found in figures.items():
        print(f"{name:<12}", " ".join(f"{key}={value}" for key, value in found.items()))
    shown = " ".join(f"{key}={changed[key]}" for key in ("statements", "seconds", "cpu_s", "memory_mb"))
    print(f"{shown} idle_statements={idle['statements']} idle_s={idle['seconds']}")


def _connect(port: int) -> pymysql.Connection:
    return pymysql.connect(host="127.0.0.1", port=port, user="sys#dump", password="111", autocommit=True)


def _iteration(workspace: Workspace) -> dict[str, Any]:
    sent, began, cpu = _sent, time.perf_counter(), time.process_time()
    outcome = iterate(workspace, NAME)
    return {
        "tables": outcome.tables,
        "tables_changed": outcome.tables_changed,
        "statements": _sent - sent,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
    }


if __name__ == "__main__":
    main()
