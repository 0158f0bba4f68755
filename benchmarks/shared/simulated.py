"""A simulated upstream in a process of its own, with a real one's flush times: what is in memory takes half a second a
table to be written. For benchmarks of the service; run by itself it measures nothing.

    python benchmarks/shared/simulated.py --databases 3      prints its port, and serves until its standard input ends

Each database `d0`, `d1` … has a table `t (n int primary key, v varchar(20))`, with `--tables` more like it without
rows, `t1`, `t2` …, and is published as `p0`, `p1` … The whole account is published as `everything`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/../.."  # the repository, not the folder of this file

import argparse
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pymysql

import ccpr
from ccpr.matrixone.server.backing import ServedCatalog, Snapshot
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.stored_table import ALIVE
from ccpr_emulator.simulated_upstream import EngineBacking, SimulatedUpstream

FLUSH_SECONDS = 0.5


class SlowFlush(EngineBacking):
    """No definition changes here, so the catalog is made once: of hundreds of databases that takes the time of an
    iteration, for each statement."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._catalogs: dict[str | None, ServedCatalog | None] = {}

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        return self.catalog_at(account, None) or super().catalog(account, snapshot)

    def catalog_at(self, account: str | None, ts: int | None) -> ServedCatalog | None:
        if account not in self._catalogs:
            self._catalogs[account] = super().catalog_at(account, None)
        return self._catalogs[account]

    def flush(self, table_ids: set[int]) -> None:
        with self.storage.lock:
            waiting = [
                entry
                for entry in self.storage.tables
                if entry.id in table_ids and entry.stored.oldest_in_memory() != ALIVE
            ]
        time.sleep(FLUSH_SECONDS * len(waiting))
        super().flush(table_ids)


@contextmanager
def upstream(databases: int, tables: int = 1) -> Iterator[int]:
    """The port of one that runs until the end of the block."""
    with serving(__file__, "--databases", str(databases), "--tables", str(tables)) as port:
        yield port


def connect(port: int) -> pymysql.Connection:
    return pymysql.connect(host="127.0.0.1", port=port, user="sys#dump", password="111", autocommit=True)


def wait_until_equal(connection: pymysql.Connection, mirrors: Sequence[str]) -> None:
    """The mirror of each `dN` has the rows of its table. Fails if one has not in five minutes."""
    end = time.monotonic() + 300
    for number, mirror in enumerate(mirrors):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT n FROM d{number}.t")
            source = sorted(int(n) for (n,) in cursor.fetchall())
        while sorted(ccpr.open_mirror(mirror).table(f"d{number}.t").to_arrow().column("n").to_pylist()) != source:
            if time.monotonic() > end:
                raise SystemExit(f"the mirror of d{number} differs from its source")
            time.sleep(0.2)


@contextmanager
def serving(program: str, *words: str) -> Iterator[int]:
    """The port that a Python program prints, which runs until the end of the block."""
    command = [sys.executable, program, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--databases", type=int, default=1)
    parser.add_argument("--tables", type=int, default=1, help="of each database")
    options = parser.parse_args()
    storage = Storage(flush_after=60.0)
    storage.create_publication("everything", "*")
    for number in range(options.databases):
        storage.create_database(f"d{number}")
        for table in ("t", *(f"t{other}" for other in range(1, options.tables))):
            storage.create_table(f"d{number}", table, {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
        storage.create_publication(f"p{number}", f"d{number}")
        with storage.begin() as transaction:
            transaction.insert(f"d{number}", "t", {"n": [0], "v": ["first"]})
    server = SimulatedUpstream(storage)
    server._upstream.backing = SlowFlush(storage)
    with server:
        print(server.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
