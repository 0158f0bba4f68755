"""How fast a table of a mirror is loaded into MariaDB, compared with LOAD DATA of a ready CSV by the bare client.
`--json` prints one object.

A mirror holds a million rows of 8 columns as objects. Ours: decode them, write the text, load it into a shadow table,
rename that; then a change of 1 % scattered over the keys (half of it updates, a quarter each deletes and inserts).
Theirs: the `mariadb` client loads the same rows from CSV files written before, over as many connections, into an empty
table of the same definition. Both take turns; a figure is the median of its rounds, in seconds of wall time. The
server is a private one (tests/support/mariadb.py) with buffers of `--buffers` MB: if they are smaller than the table
(for example 32 MB), the disk determines the time of a scattered change. It shares the cores with both sides.

Spark's JDBC writer writes the same rows, which it reads from Parquet, in as many tasks. Its driver is MariaDB's,
fetched by the machine's Maven, or the one given with `--jdbc-jar` or CCPR_JDBC_JAR; without one Spark is not measured.
The last line is `ratio=<bare load's time / ours> change=<change's time / initial load's> rows_s=<ours>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ccpr.base.maven import Jar, NoJar
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.delta.split import run_split
from ccpr.schema.choices import Dialect
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.encoding import FORMAT, encode, load_columns, load_statement
from ccpr.targets.expected_tables import ExpectedTables, target_of
from ccpr.targets.source_rows import LOAD_ROWS
from ccpr_emulator.engine.storage import Storage
from tests.support.mariadb import MariaDb, find_program, running
from tests.support.simulated_mirror import SimulatedMirror
from tests.targets.target_database import Place, new_database

COLUMNS = {
    "id": "bigint not null",
    "customer": "int",
    "amount": "decimal(12,2)",
    "price": "double",
    "created": "datetime(6)",
    "day": "date",
    "note": "varchar(60)",
    "payload": "varbinary(16)",
}
_OBJECTS = 8
_DRIVER = Jar(
    "org.mariadb.jdbc:mariadb-java-client:3.5.3", "85c4ba2f221d0dfd439c26affbb294f784960763544263c65aba9c2c76858706"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=2, help="of both sides")
    parser.add_argument("--buffers", type=int, default=512, help="of the server, MB")
    parser.add_argument(
        "--jdbc-jar", type=Path, default=os.environ.get("CCPR_JDBC_JAR"), help="MariaDB's or MySQL's JDBC driver"
    )
    parser.add_argument("--no-jdbc", action="store_true", help="leave Spark's writer out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, running(find_program()) as server:
        missing = _driver(arguments, Path(scratch) / "driver")
        figures = _measure(server, Path(scratch), arguments)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name in ("bare", "ours", "change", "jdbc"):
        if name in figures:
            rows = arguments.rows * (0.01 if name == "change" else 1)
            print(f"{name:<7} {figures[name]:6.2f} s  {rows / figures[name]:>9,.0f} rows/s")
    if "jdbc" not in figures:
        print(f"jdbc    not measured: {missing} (--jdbc-jar)")
    change, rate = figures["change"] / figures["ours"], arguments.rows / figures["ours"]
    print(f"ratio={figures['ratio']:.2f} change={change:.3f} rows_s={rate:.0f}")


def _driver(arguments: argparse.Namespace, folder: Path) -> str:
    """Fetch a driver if none is given. Returns why there is none."""
    if arguments.no_jdbc:
        return "--no-jdbc"
    if not arguments.jdbc_jar:
        try:
            arguments.jdbc_jar = _DRIVER.fetch(folder)
        except NoJar as error:
            return str(error)
    return ""


def _measure(server: MariaDb, scratch: Path, arguments: argparse.Namespace) -> dict[str, float]:
    mirror = _mirror(scratch / "mirror", arguments.rows)
    first, second = mirror.points
    (ref,) = first.tables.values()
    rows = mirror.rows(first, ref.table_id, mirror.mirror.manifest(ref).table.user_columns)
    source = mirror.mirror.manifest(ref).table
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_buffer_pool_size = %s", [arguments.buffers << 20])
    times: dict[str, list[float]] = {"bare": [], "ours": [], "change": [], "jdbc": []}
    files = _files(source, rows, scratch, arguments.connections)
    parquet = scratch / "rows"
    for _ in range(arguments.rounds):
        with new_database(server) as place:
            times["bare"].append(_bare(place, source, files))
        own = ExpectedTables(lambda: [source])
        with (
            new_database(server) as place,
            DatabaseTarget(
                place.address, server.password, "task", own=own, connections=arguments.connections
            ) as target,
        ):
            table = target_of(source, target.dialect, place.database)
            start = time.monotonic()
            load = table_delta(mirror.mirror, None, TableAt.of(first, ref.table_id), split_rows=LOAD_ROWS)
            parts = [
                LoadPart(str(number), partial(_upserts, mirror, split)) for number, split in enumerate(load.splits())
            ]
            target.create(table, parts, Location(0, first.at.physical))
            times["ours"].append(time.monotonic() - start)
            start = time.monotonic()
            delta = table_delta(mirror.mirror, TableAt.of(first, ref.table_id), TableAt.of(second, ref.table_id))
            done = target.apply(ref.table_id, delta.parts(), Location(1, second.at.physical))
            times["change"].append(time.monotonic() - start)
            assert done.missing == 0
            assert done.upserted + done.deleted > 0
            assert place.query("SELECT COUNT(*) FROM t")[0][0] == arguments.rows
        if arguments.jdbc_jar:
            if not parquet.exists():
                parquet.mkdir()
                for number in range(arguments.connections):
                    pq.write_table(_share(rows, number, arguments.connections), parquet / f"{number}.parquet")
            with new_database(server) as place:
                times["jdbc"].append(_jdbc(place, source, parquet, arguments))
    figures = {name: statistics.median(found) for name, found in times.items() if found}
    return figures | {"ratio": figures["bare"] / figures["ours"], "splits": float(len(parts))}


def _upserts(mirror: SimulatedMirror, split):
    return (part.upserts for part in run_split(mirror.mirror, split))


def _rows(ids: np.ndarray, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    count = len(ids)
    words = pa.array([f"order {number} of a customer, {'x' * (number % 23)}" for number in range(5000)])
    payload = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(draw.bytes(16 * count))])
    cents = pa.array(draw.integers(0, 10**9, count)).cast(pa.decimal128(19, 0))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array(draw.integers(0, 1 << 30, count), pa.int32()),
            "amount": cents.cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
            "price": pa.array(draw.random(count) * 1000),
            "created": pa.array(
                draw.integers(1_500_000_000, 1_800_000_000, count) * 1_000_000 + 123, pa.timestamp("us")
            ),
            "day": pa.array(draw.integers(10_000, 20_000, count), pa.int32()).cast(pa.date32()),
            "note": words.take(pa.array(draw.integers(0, len(words), count))),
            "payload": payload.cast(pa.binary()),
        }
    )


def _mirror(root: Path, count: int) -> SimulatedMirror:
    """The rows as objects of a compute node, and a point before and after the change."""
    storage = Storage()
    storage.create_database("bench")
    storage.create_table("bench", "t", COLUMNS, primary_key=["id"])
    for part in np.array_split(np.arange(count) * 2, _OBJECTS):
        with storage.begin() as transaction:
            transaction.insert("bench", "t", _rows(part, int(part[0])))
    mirror = SimulatedMirror(storage, root)

    def change() -> None:
        step = max(1, count // max(1, count // 100)) * 2
        changed = np.arange(0, count * 2, step)
        updated, moved = changed[::2], changed[1::2]
        deleted = moved[: len(moved) // 2]
        with storage.begin() as transaction:
            touched = pa.array(np.concatenate([updated, deleted]))
            transaction.delete("bench", "t", pa.compute.field("id").isin(touched))
        with storage.begin() as transaction:
            transaction.insert("bench", "t", _rows(np.sort(np.concatenate([updated, deleted + 1])), 7))

    mirror.take_points(change)
    return mirror


def _share(rows: pa.Table, number: int, shares: int) -> pa.Table:
    size = -(-rows.num_rows // shares)
    return rows.slice(number * size, size)


def _files(source, rows: pa.Table, scratch: Path, shares: int) -> list[Path]:
    """Files with the text of the rows that we would write, ready to be loaded."""
    create = parse_create_table(target_of(source, Dialect.MARIADB, "x").create)
    columns = load_columns(source, create.columns, "", "")
    files = []
    for number in range(shares):
        files.append(scratch / f"{number}.csv")
        with files[-1].open("wb") as file:
            for piece in encode([_share(rows, number, shares)], columns, "rows"):
                file.write(piece)
    return files


def _bare(place: Place, source, files: list[Path]) -> float:
    table = target_of(source, Dialect.MARIADB, place.database)
    place.query(table.create)
    columns = load_columns(source, parse_create_table(table.create).columns, "", "")
    server = place.server
    client = ["mariadb", "--no-defaults", f"--host={server.host}", f"--port={server.port}", f"--user={server.user}"]
    client += ["--local-infile=1", "--skip-ssl", place.database, "--execute"]
    statements = [load_statement(str(file), quote_name(table.name), columns) for file in files]
    assert all(FORMAT in statement for statement in statements)
    start = time.monotonic()
    runs = [subprocess.Popen([*client, sql], env={**os.environ, "MYSQL_PWD": server.password}) for sql in statements]
    assert [run.wait() for run in runs] == [0] * len(runs)
    return time.monotonic() - start


def _jdbc(place: Place, source, parquet: Path, arguments: argparse.Namespace) -> float:
    from pyspark.sql import SparkSession

    place.query(target_of(source, Dialect.MARIADB, place.database).create)
    spark = (
        SparkSession.builder.master(f"local[{arguments.connections}]")
        .config("spark.jars", str(arguments.jdbc_jar))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    mariadb = "mariadb" in Path(arguments.jdbc_jar).name
    options = {
        "url": f"jdbc:mysql://{place.server.host}:{place.server.port}/{place.database}"
        "?rewriteBatchedStatements=true&permitMysqlScheme",
        "driver": "org.mariadb.jdbc.Driver" if mariadb else "com.mysql.cj.jdbc.Driver",
        "dbtable": "t",
        "user": place.server.user,
        "password": place.server.password,
        "batchsize": "1000",
    }
    frame = spark.read.parquet(str(parquet))
    start = time.monotonic()
    frame.write.format("jdbc").options(**options).mode("append").save()
    return time.monotonic() - start


if __name__ == "__main__":
    main()
