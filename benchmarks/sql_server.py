"""What `ccpr serve --sql` costs: TPC-H, each query beside DuckDB over Parquet files of the same rows, and beside a
MariaDB where there is one. `--json` prints the figures as one JSON object.

The replica is that of a simulated upstream, served by a process of its own to a client of this one; DuckDB reads in
this process, with the threads and the memory that a statement has there. By turns; a figure is the median of some
rounds, in seconds. `--data FOLDER` takes rows from Parquet files such as DuckDB's `CALL dbgen` makes, else they are
those of `tests/support/tpch.py`. Then rows are looked up by their primary key, and 50 clients stay connected after each
has asked for some. The last line is `sql: median_ratio=<ours / DuckDB's> lookup_p50_ms=… conns50_mb=<the process's
memory>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

from benchmarks.large_object import ccpr_words
from benchmarks.relay import serving
from benchmarks.shared.common import arguments_of
from ccpr.mysql.engines import MEMORY_BYTES
from tests.support.mariadb import MariaDb, NoMariaDb, find_program, running
from tests.support.ports import free_port
from tests.support.tpch import DATABASE, QUERIES, TABLES, arrow_type, generated, load_mysql, published

_SCALE, _ROUNDS, _LOOKUPS, _CONNECTIONS = 0.1, 3, 300, 50
_LOOKUP = "SELECT * FROM orders WHERE o_orderkey = %d"


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, scale=_SCALE, data="", mariadb=1)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), arguments.rounds, arguments.scale, arguments.data, bool(arguments.mariadb))
    if arguments.json:
        print(json.dumps(figures))
        return
    for number, of in figures["queries"].items():
        theirs = f"  MariaDB {of['mariadb_s']:7.3f} s" if "mariadb_s" in of else ""
        ratio = of["ours_s"] / of["duckdb_s"]
        print(f"Q{number:<3} {of['ours_s']:7.3f} s  DuckDB {of['duckdb_s']:7.3f} s  ratio {ratio:5.2f}{theirs}")
    print(f"one-minute load {os.getloadavg()[0]:.1f}")
    print(f"sql: {' '.join(f'{name}={figures[name]:.2f}' for name in ('median_ratio', 'lookup_p50_ms', 'conns50_mb'))}")


def measure(scratch: Path, rounds: int, scale: float, data: str, beside_mariadb: bool) -> dict[str, Any]:
    tables = _read(Path(data)) if data else generated(scale)
    for name, rows in tables.items():
        pq.write_table(rows, scratch / f"{name}.parquet", compression="zstd")
    os.environ |= {"CCPR_HOME": str(scratch / "home"), "UPSTREAM_PASSWORD": "111"}
    with published(scratch, tables) as source:
        source.subscribe()
        _ccpr("run", "s")
        _ccpr("pause", "s")
    password, sql_port = _ccpr("login", "add", "reader", "--role", "reader")["password"], free_port()
    with ExitStack() as stack:
        words = ccpr_words("serve", "--port", "0", "--sql", f"127.0.0.1:{sql_port}", "--no-dagster")
        process, _ = stack.enter_context(serving(words))
        login = {"host": "127.0.0.1", "port": sql_port, "user": "reader", "password": password, "database": DATABASE}

        def connect() -> pymysql.cursors.Cursor:
            return stack.enter_context(pymysql.connect(**login, autocommit=True)).cursor()

        asked = {"ours": _asker(connect()), "duckdb": _parquet(scratch)}
        if beside_mariadb and (server := _mariadb(stack)) is not None:
            asked["mariadb"] = _loaded(stack, server, tables)
        figures: dict[str, Any] = {"queries": _queries(asked, rounds)}
        ratios = [of["ours_s"] / of["duckdb_s"] for of in figures["queries"].values()]
        keys = random.Random(1).choices(tables["orders"]["o_orderkey"].to_pylist(), k=_LOOKUPS)
        seconds = [_timed(partial(asked["ours"], _LOOKUP % key)) for key in keys]
        for key in keys[:_CONNECTIONS]:
            other = _asker(connect())
            other(_LOOKUP % key)
            other(QUERIES[5])
        figures |= {
            "median_ratio": statistics.median(ratios),
            "lookup_p50_ms": statistics.median(seconds) * 1000,
            "conns50_mb": _resident(process) / 1e6,
        }
        return figures


def _ccpr(*words: str) -> Any:
    return json.loads(subprocess.run(ccpr_words(*words, "--json"), check=True, stdout=subprocess.PIPE).stdout)


def _queries(asked: Mapping[str, Callable[[str], list]], rounds: int) -> dict[int, dict[str, float]]:
    figures = {}
    for number, query in enumerate(QUERIES, 1):
        times = defaultdict[str, list[float]](list)
        for _ in range(rounds):
            for name, ask in asked.items():
                if name != "mariadb" or not times[name]:
                    times[name].append(_timed(partial(ask, query)))
        figures[number] = {f"{name}_s": statistics.median(seconds) for name, seconds in times.items()}
    return figures


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _asker(cursor: pymysql.cursors.Cursor) -> Callable[[str], list]:
    def ask(query: str) -> list:
        cursor.execute(query)
        return list(cursor.fetchall())

    return ask


def _parquet(folder: Path) -> Callable[[str], list]:
    connection = duckdb.connect(config={"threads": "2", "memory_limit": f"{MEMORY_BYTES >> 20}MB"})
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}.parquet'")
    return lambda query: connection.execute(query).fetchall()


def _mariadb(stack: ExitStack) -> MariaDb | None:
    try:
        return stack.enter_context(running(find_program()))
    except NoMariaDb as error:
        print(f"without MariaDB: {error}")
        return None


def _loaded(stack: ExitStack, server: MariaDb, tables: Mapping[str, pa.Table]) -> Callable[[str], list]:
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    connection = stack.enter_context(pymysql.connect(**login, charset="utf8mb4"))
    load_mysql(connection, tables)
    return _asker(connection.cursor())


def _read(folder: Path) -> dict[str, pa.Table]:
    """With the types that the tables have here."""
    return {
        name: pa.table(
            {
                column: pq.read_table(folder / f"{name}.parquet", columns=[column])[column].cast(arrow_type(kind))
                for column, kind in columns.items()
            }
        )
        for name, (columns, _) in TABLES.items()
    }


def _resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
