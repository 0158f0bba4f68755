"""How long the logical way in takes: all rows of a new table by its account's administrator, beside `mysql --quick >
/dev/null` at the same server and beside the physical way; and a change of one row in a thousand. `--json` prints one
object.

A table of so many rows of 8 columns. The upstream is a simulated one, or those that CCPR_ACCOUNT (an account's
administrator) and CCPR_SYS (a login of account sys of the same cluster) name as URIs. Times are seconds of wall time of
the commands that an operator types, in this process; bytes are those that came over the socket. The last line is
`logical: full_ratio=… delta_s=… delta_bytes_ratio=…`: of the whole read to the client's, and of the bytes of the change
to those of the table.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pymysql

from benchmarks.shared.common import arguments_of
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.limits import WatchedReader
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command

DATABASE, _ROWS, _STEP = "ccpr_bench", 5_000_000, 1000
_TABLE = (
    "create table wide (id bigint primary key, a int, b decimal(12,2), c varchar(50), d datetime, e double, f tinyint, "
    "g char(10))"
)
_FILL = (
    "insert into wide select result, result * 7 % 1000, result / 100, concat('text of row ', result), "
    "'2026-01-01 10:00:00', result / 3, result % 100, 'abc' from generate_series(1, {rows}) g"
)


def main() -> None:
    arguments = arguments_of(__doc__, 1, rows=_ROWS)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch, upstream() as (account, sys_login):
        os.environ["CCPR_HOME"] = scratch
        figures = measure(account, sys_login, arguments.rows)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(" ".join(f"{name}={value:.3f}" for name, value in figures.items()))
    print(
        "logical: " + " ".join(f"{name}={figures[name]:.3f}" for name in ("full_ratio", "delta_s", "delta_bytes_ratio"))
    )


@contextmanager
def upstream() -> Iterator[tuple[str, str]]:
    """The URIs of an account's administrator and of a login of account sys."""
    if uri := os.environ.get("CCPR_ACCOUNT"):
        yield uri, os.environ["CCPR_SYS"]
        return
    with SimulatedUpstream() as emulator:
        sys_login = f"mysql://sys#dump:111@127.0.0.1:{emulator.port}"
        run(sys_login, "create account acc1 admin_name 'admin' identified by '111'")
        emulator.upgrade("4.2")
        yield f"mysql://acc1#admin:111@127.0.0.1:{emulator.port}", sys_login


def measure(account: str, sys_login: str, rows: int) -> dict[str, float]:
    endpoint, password = parse_uri(account)
    run(account, f"drop database if exists {DATABASE}", f"create database {DATABASE}", f"use {DATABASE}")
    run(account, _TABLE, _FILL.format(rows=rows), database=DATABASE)
    login = [f"-h{endpoint.host}", f"-P{endpoint.port}", f"-u{endpoint.login}", f"-p{password}"]
    program = shutil.which("mysql") or shutil.which("mariadb")
    assert program, "the client `mysql` is not installed"
    client = [program, *login, "--quick", "-e", f"select * from {DATABASE}.wide"]
    mysql_s, _ = timed(lambda: subprocess.run(client, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    command("subscribe", "logical", "--from", account, "--database", DATABASE)
    full_s, whole = timed(lambda: command("run", "logical"))
    run(account, f"update wide set a = a + 1 where id % {_STEP} = 0", database=DATABASE)
    delta_s, changed = timed(lambda: command("run", "logical"))
    run(account, f"create publication ccpr_bench database {DATABASE} account sys")
    try:
        names = ("--database", DATABASE, "--account", endpoint.account, "--publication", "ccpr_bench")
        command("subscribe", "physical", "--from", sys_login, *names, "--allow-overlap")
        physical_s, _ = timed(lambda: command("run", "physical"))
        command("drop", "physical", "--yes")
        command("drop", "logical", "--yes")
    finally:
        run(account, "drop publication ccpr_bench", f"drop database {DATABASE}")
    return {
        "rows": float(rows),
        "mysql_s": mysql_s,
        "full_s": full_s,
        "physical_s": physical_s,
        "full_ratio": full_s / mysql_s,
        "delta_s": delta_s,
        "delta_bytes_ratio": changed / whole,
    }


def timed(action: Callable[[], Any]) -> tuple[float, int]:
    """Seconds, and bytes that this process's sessions with the upstream read."""
    read, came = WatchedReader.readinto, 0

    def counted(reader: WatchedReader, buffer: Any) -> int | None:
        nonlocal came
        size = read(reader, buffer)
        came += size or 0
        return size

    began = time.perf_counter()
    with mock.patch.object(WatchedReader, "readinto", counted):
        action()
    return time.perf_counter() - began, came


def run(uri: str, *statements: str, database: str | None = None) -> None:
    endpoint, password = parse_uri(uri)
    login: dict[str, Any] = {"user": endpoint.login, "password": password or "", "database": database}
    with (
        closing(pymysql.connect(host=endpoint.host, port=endpoint.port, autocommit=True, **login)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)


if __name__ == "__main__":
    main()
