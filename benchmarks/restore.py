"""How long it takes to get a point back: a drill into Parquet and into MariaDB, `ccpr restore` by rows, `ccpr export`
as SQL and of all tables; and how fast `ccpr copy` writes a second copy, in clear and encrypted. `--json` prints
one object.

A mirror holds a table of so many rows of 6 columns. The commands are those that an operator types, in this process; a
figure is the median of its rounds, in seconds of wall time. The MariaDB is a private one (tests/support/mariadb.py)
with a buffer pool of 1 GB, on the same cores and disk. The last line is `rows=… mirror_mb=… drill_parquet_s=…
drill_mariadb_s=… restore_s=… dump_s=… export_s=… copy_mb_s=… copy_encrypted_mb_s=…`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.read import _OBJECT_ROWS, _TYPES, values
from benchmarks.shared.common import arguments_of
from ccpr.mirror.encryption_keys import new_key
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.mariadb import MariaDb, find_program, running
from tests.support.replica import command
from tests.support.simulated import SimulatedSource

_ROWS, _ROUNDS = 5_000_000, 1
_BUFFERS = 1 << 30


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, rows=_ROWS)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:  # on disk like a mirror, not in memory
        folder = Path(scratch)
        os.environ |= {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": "111", "COPY_KEY": new_key()}
        mirrored(folder, arguments.rows)
        with running(find_program()) as server:
            figures = measure(folder, server, arguments.rows, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(" ".join(f"{name}={value:.1f}" for name, value in figures.items()))


def mirrored(folder: Path, rows: int) -> None:
    """A subscription, with a point that has the table."""
    storage = Storage()
    storage.create_database("shop")
    storage.create_publication("p", "shop")
    storage.create_table("shop", "orders", dict(_TYPES), primary_key=["id"])
    for start in range(0, rows, _OBJECT_ROWS):
        with storage.begin() as transaction:
            transaction.insert("shop", "orders", values(range(start, min(start + _OBJECT_ROWS, rows))))
    with SimulatedUpstream(storage) as emulator:
        SimulatedSource(storage, emulator, folder, "shop").subscribe()
        command("run", "s")


def measure(folder: Path, server: MariaDb, rows: int, rounds: int) -> dict[str, float]:
    os.environ["RESTORE_PASSWORD"] = server.password
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL innodb_buffer_pool_size = {_BUFFERS}")
    address = f"mysql://{server.user}:env:RESTORE_PASSWORD@{server.host}:{server.port}"
    size = command("points", "s")[-1]["bytes_copied"]

    def fresh(name: str) -> str:
        place = folder / name
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        return str(place)

    def restore() -> Any:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP DATABASE IF EXISTS restored")
        return command("restore", "s", "--into", f"{address}/restored")

    def seconds(action: Callable[[], Any]) -> float:
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            done = action()
            times.append(time.perf_counter() - began)
            assert "error" not in done
        return statistics.median(times)

    copied = seconds(lambda: command("copy", "s", "--to", fresh("copy")))
    encrypted = seconds(lambda: command("copy", "s", "--to", fresh("sealed"), "--encrypt", "env:COPY_KEY"))
    return {
        "rows": rows,
        "mirror_mb": size / 1e6,
        "drill_parquet_s": seconds(lambda: command("drill", "s", "--into", str(folder / "scratch"))),
        "drill_mariadb_s": seconds(lambda: command("drill", "s", "--into", address)),
        "restore_s": seconds(restore),
        "dump_s": seconds(lambda: command("export", "s", "--format", "sql", "--out", fresh("shop.sql"))),
        "export_s": seconds(lambda: command("export", "s", "--all", "--out", fresh("export"))),
        "copy_mb_s": size / 1e6 / copied,
        "copy_encrypted_mb_s": size / 1e6 / encrypted,
    }


if __name__ == "__main__":
    main()
