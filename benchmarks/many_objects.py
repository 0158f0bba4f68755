"""What an iteration over 1,000,000 live objects costs, with ten new ones and with none: seconds without the upstream's
own, memory, what is read and written. `--json` prints the figures as one JSON object.

The upstream is a simulated one in another process. Its lists have, besides what its tables really hold, objects that
are made up; the first iteration takes these for copied, so that no file of theirs has to be there. Ten INSERTs, each
flushed, make ten objects of one table. Each iteration is a process of its own, as by the command line; `seconds` is its
time without that of imports, and `own_seconds` this time without the waiting for bytes of the upstream. `full` reads
the list of all objects, which a new table or a lost base needs. A second round has all objects in one table.

The last line is `own_seconds=<ten are new> memory_mb=<peak> bytes_read=… bytes_written=… idle_own_seconds=…
idle_memory_mb=… full_own_seconds=… full_memory_mb=… one_table_own_seconds=… one_table_memory_mb=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql

from benchmarks.shared.counted_files import count_files, peak_mb
from benchmarks.shared.listed_objects import serve
from benchmarks.shared.simulated import serving
from ccpr.cli.output import start_arrow
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.limits import WatchedReader
from ccpr.matrixone.client.object_answers import object_list
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Session
from ccpr.mirror.layout import object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.pipeline.copying import COPY_OUTPUT, CopyJob, copy_in_process
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from tests.support.driving import iterate

OBJECTS, TABLES, NEW = 1_000_000, 100, 10
_SUMS = 4 * (2 + 6)  # bytes of an object's sums: one block of six columns
NAME, DATABASE, PUBLICATION = "many", "d", Publication("p", "sys", 0)
PASSWORD = "111"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--tables", type=int, default=TABLES, help="over which they are spread in the first round")
    parser.add_argument("--step", choices=["serve", "fill", "iterate", "list"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "serve":
        serve(DATABASE, PUBLICATION.name, options.objects, options.tables)
    elif options.step:
        start_arrow()
        print(json.dumps({"fill": _fill, "iterate": _iterated, "list": _listed}[options.step](options.port)))
    else:
        _compare(options)


def _compare(options: argparse.Namespace) -> None:
    spread, one_table = (_round(options.objects, tables) for tables in (options.tables, 1))
    if options.json:
        print(json.dumps({"spread": spread, "one_table": one_table, "load": os.getloadavg()[0]}))
        return
    for name, figures in (("spread", spread), ("one table", one_table)):
        for step, found in figures.items():
            print(f"{name:<10} {step:<6}", _line(found))
    ten, names = spread["ten"], ("own_seconds", "memory_mb")
    last = {name: ten[name] for name in (*names, "bytes_read", "bytes_written")}
    last |= {f"{step}_{name}": spread[step][name] for step in ("idle", "full") for name in names}
    print(_line(last | {f"one_table_{name}": one_table["ten"][name] for name in names}))


def _line(figures: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in figures.items())


def _round(objects: int, tables: int) -> dict[str, Any]:
    words = ("--step", "serve", "--objects", str(objects), "--tables", str(tables))
    with tempfile.TemporaryDirectory() as home, serving(__file__, *words) as port:
        os.environ["CCPR_HOME"] = home
        _subscribe(port)
        figures: dict[str, Any] = {"first": _step("fill", port)}
        with closing(_connect(port)) as connection, connection.cursor() as cursor:
            for number in range(NEW):
                cursor.execute(f"INSERT INTO {DATABASE}.t0 VALUES ({number})")
                cursor.execute("SELECT mo_ctl('dn','checkpoint','')")
        for name in ("ten", "idle"):
            figures[name] = _step("iterate", port)
        figures["full"] = _step("list", port)
        assert (figures["ten"]["copied"], figures["idle"]["copied"]) == (NEW, 0)
        assert figures["full"].pop("listed") == figures["ten"]["objects"] == objects + NEW
        return figures


def _step(step: str, port: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", step, "--port", str(port)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def _connect(port: int) -> pymysql.Connection:
    return pymysql.connect(host="127.0.0.1", port=port, user="sys#dump", password=PASSWORD, autocommit=True)


def _subscribe(port: int) -> None:
    with closing(Workspace()) as workspace:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
        settings = Settings(retain=1, retain_files=0)
        new = Subscription.new(NAME, endpoint, PASSWORD, workspace.vault, PUBLICATION, DATABASE, None, settings)
        workspace.log.insert(new.to_row(datetime.now(UTC)))


# ---- in processes of their own


def _fill(_port: int) -> dict[str, Any]:
    """The first iteration. What is made up counts as copied and as there."""
    sizes: dict[str, int] = {}
    size_of = LocalStore.size

    def made_up(job: CopyJob, objects: pa.Table) -> Iterator[pa.RecordBatch]:
        names, count = objects.column("name").combine_chunks(), objects.num_rows
        sizes.update(zip(map(object_path, names.to_pylist()), objects.column("size").to_pylist(), strict=True))
        sums = np.random.default_rng(1).bytes(32 * count)
        columns = {
            "name": names,
            "size": objects.column("size").combine_chunks(),
            "sha256": pa.Array.from_buffers(pa.binary(32), count, [None, pa.py_buffer(sums)]),
            "fetched": pa.repeat(True, count),
            "failure": pa.nulls(count, pa.string()),
            "found": pa.nulls(count, pa.string()),
            "direct": pa.repeat(False, count),
            "sums": pa.Array.from_buffers(
                pa.binary(_SUMS), count, [None, pa.py_buffer(np.random.default_rng(2).bytes(_SUMS * count))]
            ).cast(pa.binary()),
        }
        yield pa.RecordBatch.from_pydict(columns, COPY_OUTPUT)

    LocalStore.size = lambda self, name: sizes.get(name) or size_of(self, name)  # pyright: ignore
    started = time.perf_counter()
    with closing(Workspace()) as workspace:
        iterate(workspace, NAME, engine=made_up)
    return {"seconds": round(time.perf_counter() - started, 2), "memory_mb": round(peak_mb())}


def _iterated(_port: int) -> dict[str, Any]:
    waited, files = _count_waiting(), count_files()
    with closing(Workspace()) as workspace:
        started = time.perf_counter()
        outcome = iterate(workspace, NAME, engine=copy_in_process)
        seconds = time.perf_counter() - started
    found = {"objects": outcome.objects_total, "copied": outcome.objects_copied, **files}
    return found | _times(seconds, waited)


def _listed(port: int) -> dict[str, Any]:
    """The full list; only the number of its rows is kept."""
    waited = _count_waiting()
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    with closing(Workspace()) as workspace, workspace.iteration(NAME) as iteration:
        snapshot = iteration.memory.context.current
    assert snapshot is not None
    with Session(endpoint, PASSWORD) as session:
        started = time.perf_counter()
        rows = sum(batch.num_rows for batch in object_list(session, snapshot.name, PUBLICATION, against=None))
        return {"listed": rows, **_times(time.perf_counter() - started, waited)}


def _times(seconds: float, waited: list[float]) -> dict[str, float]:
    own = seconds - sum(waited)
    return {"seconds": round(seconds, 2), "own_seconds": round(own, 2), "memory_mb": round(peak_mb())}


def _count_waiting() -> list[float]:
    """The seconds of each read from the upstream's sockets from now on."""
    waited: list[float] = []
    read = WatchedReader.readinto

    def timed(self: WatchedReader, buffer: Any) -> int | None:
        started = time.perf_counter()
        try:
            return read(self, buffer)
        finally:
            waited.append(time.perf_counter() - started)

    WatchedReader.readinto = timed
    return waited


if __name__ == "__main__":
    main()
