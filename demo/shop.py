"""`make demo`: replicates a shop of 100,000 orders while its customers order and cancel.

The upstream is a simulated MatrixOne, which takes ordinary SQL from any client of MySQL; orders are placed and
cancelled in another thread all the while. Five iterations run as a user would type them. After each, the replica is
compared with what the upstream had at that moment: it can still be asked, by `{mo_ts = …}`. If there is a MariaDB on
the machine, the last point goes into it, too. All files are in demo-run/, which is deleted when the demo starts.

`make demo-recorded` (`demo.run`) replays a recording of a real MatrixOne instead, and reads with Spark.
"""

import random
import shutil
import signal
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
import pymysql
from rich.table import Table

import ccpr
from ccpr.cli.output import counted, size_text
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from demo.run import FOLDER, HOME, PASSWORD_VARIABLE, ROOT, emulator, out, pause, prepare_environment
from demo.run import ccpr as command
from tests.support.mariadb import MariaDb, installed, running

NAME = "shop"
MIRROR = HOME / "mirrors" / NAME
ORDERS = 100_000
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.customers (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL, city VARCHAR(20),"
    " since DATE)",
    "CREATE TABLE shop.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, total DECIMAL(10,2) NOT"
    " NULL, status VARCHAR(10) NOT NULL DEFAULT 'new', placed DATETIME(6) DEFAULT now(), KEY (customer))",
    "CREATE TABLE shop.visits (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT, page VARCHAR(40))",
    "INSERT INTO shop.customers (name, city, since) SELECT concat('Customer ', result), CASE result % 3 WHEN 0 THEN"
    " 'Oslo' WHEN 1 THEN 'Lima' ELSE 'Kyoto' END, date_add('2020-01-01', INTERVAL (result % 2000) DAY)"
    " FROM generate_series(1, 1000) g",
    f"INSERT INTO shop.orders (customer, total, status) SELECT result % 1000 + 1, result % 997 + 0.5, 'paid'"
    f" FROM generate_series(1, {ORDERS}) g",
    "INSERT INTO shop.visits (customer, page) SELECT result % 1000 + 1, concat('/item/', result % 50)"
    " FROM generate_series(1, 5000) g",
    "CREATE PUBLICATION shop_pub DATABASE shop ACCOUNT ALL",
)
# What happens besides the orders, before each iteration.
CHANGES = (
    ("100,000 orders at the start", ""),
    ("orders placed and cancelled", ""),
    ("a column added", "ALTER TABLE shop.customers ADD COLUMN email VARCHAR(60) DEFAULT 'unknown'"),
    ("a table renamed", "ALTER TABLE shop.customers RENAME TO shop.clients"),
    ("a table truncated", "TRUNCATE TABLE shop.visits"),
)


@dataclass
class Shop:
    """People who order and cancel, one after the other, until the end of the block."""

    port: int
    placed: int = 0
    cancelled: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)
    _error: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> "Shop":
        self._thread = threading.Thread(target=self._trade, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._error:
            raise self._error[0]

    def _trade(self) -> None:
        choose = random.Random(7)
        try:
            with connect(self.port) as connection, connection.cursor() as cursor:
                while not self._ends.wait(0.1):
                    for _ in range(choose.randint(1, 4)):
                        values = (choose.randint(1, 1000), choose.randint(100, 99_999) / 100)
                        cursor.execute("INSERT INTO shop.orders (customer, total) VALUES (%s, %s)", values)
                        self.placed += 1
                    if choose.random() < 0.2:
                        number = choose.randint(1, ORDERS)
                        cursor.execute("DELETE FROM shop.orders WHERE id = %s", (number,))
                        self.cancelled += cursor.rowcount
                    if choose.random() < 0.1:
                        numbers = (choose.randint(ORDERS, ORDERS + self.placed), 10)
                        cursor.execute(
                            "UPDATE shop.orders SET status = 'paid' WHERE id > %s AND status = 'new' LIMIT %s", numbers
                        )
        except pymysql.MySQLError as error:
            self._error.append(error)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the emulator is stopped, too
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    prepare_environment()
    out.rule("[bold]Replicating a MatrixOne database from the outside")
    with emulator("--living") as port, target() as database:
        fill(port)
        source = f"mysql://sys#root:env:{PASSWORD_VARIABLE}@127.0.0.1:{port}"
        command("subscribe", NAME, "--from", source, "--publication", "shop_pub", "--database", "shop")
        with Shop(port) as shop:
            outcomes = [iterate(number, port, shop) for number in range(1, len(CHANGES) + 1)]
        show(outcomes)
        two_times()
        if database is not None:
            into(database)
    pause(NAME)
    out.print(f"\n[bold green]Done[/] in {time.monotonic() - started:.0f} s. What you can do now:")
    here = f"CCPR_HOME={HOME.relative_to(ROOT)} .venv/bin/ccpr"
    for words, what in (
        ("make ui", "Dagster's UI on http://127.0.0.1:3000 (PORT= for another)"),
        (f"{here} points {NAME}", "list the points that can be read"),
        (f"{here} export {NAME} shop.orders --at 0 --out orders.parquet", "the orders as they were at the start"),
        ("make demo-recorded", "replay a recording of a real MatrixOne; runs in Dagster and reads with Spark"),
    ):
        out.print(f"  [bold]{words}[/]\n      [dim]{what}[/]", soft_wrap=True)


def connect(port: int) -> Any:
    return pymysql.connect(host="127.0.0.1", port=port, user="root", password="any", autocommit=True)


def target() -> Any:
    """A MariaDB that runs until the end of the block, or None if none is installed."""
    program = installed()
    return nullcontext(None) if program is None else running(program)


def fill(port: int) -> None:
    with connect(port) as connection, connection.cursor() as cursor:
        for text in SCHEMA:
            out.print(f"  [dim]mysql>[/] {text};", markup=True, soft_wrap=True)
            cursor.execute(text)


def iterate(number: int, port: int, shop: Shop) -> dict[str, Any]:
    """What happens upstream, one iteration, and the comparison with what the upstream had at its snapshot."""
    happened, text = CHANGES[number - 1]
    out.print(f"\n[bold]{number}. upstream: {happened}[/]")
    with connect(port) as connection, connection.cursor() as cursor:
        if text:
            out.print(f"  [dim]mysql>[/] {text};", soft_wrap=True)
            cursor.execute(text)
        outcome = command("run", NAME)
        copied, whole = outcome["bytes_copied"], outcome["bytes_total"]
        objects = counted(outcome["objects_copied"], "object")
        out.print(f"  copied {size_text(copied)} in {objects}; the replica has {size_text(whole)}")
        every = number in (1, len(CHANGES))
        rows = compare(cursor, every_row=every)
    what = "all" if every else "their number and sums"
    out.print(
        f"  [green]✓[/] {rows:,} rows, {what} equal to the source's at that moment"
        f" ({shop.placed:,} orders placed, {shop.cancelled:,} cancelled so far)"
    )
    return outcome | {"happened": happened, "rows": rows}


def tables(mirror: ccpr.Mirror) -> list[ccpr.TableInfo]:
    """Without the index tables, which are not copied."""
    return [info for info in mirror.tables() if info.kind == "table"]


def compare(cursor: Any, *, every_row: bool) -> int:
    """Each table of the newest point with what the upstream had at the point's snapshot: every row, or the number of
    rows and the sum of the keys. Returns the number of rows."""
    at = Mirror(LocalStore(MIRROR)).point().at.physical
    mirror = ccpr.open_mirror(MIRROR)
    rows = 0
    for info in tables(mirror):
        columns = list(info.columns) if every_row else ["id"]
        mine = mirror.table(info.name).to_arrow(columns=columns)
        if every_row:
            cursor.execute(f"SELECT {', '.join(columns)} FROM {info.name} {{mo_ts = {at}}}")
            equal = sorted(zip(*(column.to_pylist() for column in mine.columns), strict=True)) == sorted(cursor)
        else:
            cursor.execute(f"SELECT count(*), sum(id) FROM {info.name} {{mo_ts = {at}}}")
            count, total = cursor.fetchone()
            equal = (mine.num_rows, pc.sum(mine.column("id")).as_py()) == (count, total and int(total))
        if not equal:
            raise SystemExit(f"{info.name} is not what the upstream had")
        rows += mine.num_rows
    return rows


def show(outcomes: list[dict[str, Any]]) -> None:
    table = Table(
        title="\nWhat each iteration copied", title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    table.add_column("upstream")
    for column in ("copied", "replica", "rows"):
        table.add_column(column, justify="right")
    for one in outcomes:
        table.add_row(
            one["happened"], size_text(one["bytes_copied"]), size_text(one["bytes_total"]), f"{one['rows']:,}"
        )
    out.print(table)


def two_times() -> None:
    """The same table at the first point and at the last."""
    mirror = ccpr.open_mirror(MIRROR)
    orders = mirror.table("shop.orders")
    first, last = mirror.points()[0], mirror.points()[-1]
    out.print("\n[bold]The same table at two times[/]")
    out.print(f'  [dim]ccpr.open_mirror("{MIRROR.relative_to(ROOT)}").table("shop.orders").to_arrow(at=…)[/]')
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("orders by status")
    counts = []
    for point in (first, last):
        table.add_column(f"at point {point.lsn}, {point.time:%H:%M:%S}", justify="right")
        found = orders.to_arrow(at=point, columns=["status"]).column("status").value_counts().to_pylist()
        counts.append({one["values"]: one["counts"] for one in found})
    for status in sorted(counts[0] | counts[1]):
        table.add_row(status, *(f"{count.get(status, 0):,}" for count in counts))
    out.print(table)


def into(database: MariaDb) -> None:
    """The newest point in a MariaDB, compared with the mirror."""
    out.print("\n[bold]Into MariaDB[/]")
    database.create_database("shop_copy")
    (FOLDER / "mariadb-password").touch(mode=0o600)
    (FOLDER / "mariadb-password").write_text(database.password)
    address = f"mysql://{database.user}@{database.host}:{database.port}/shop_copy"
    password = ("--password-file", str((FOLDER / "mariadb-password").relative_to(ROOT)))
    command("target", "add", NAME, "copy", "--to", address, *password)
    command("run", NAME)
    with database.connect("shop_copy") as connection, connection.cursor() as cursor:
        for info in tables(ccpr.open_mirror(MIRROR)):
            mine = ccpr.open_mirror(MIRROR).table(info.name).to_arrow()
            cursor.execute(f"SELECT * FROM {info.name.partition('.')[2]}")
            rows = [row[: mine.num_columns] for row in cursor.fetchall()]
            if sorted(rows) != sorted(zip(*(column.to_pylist() for column in mine.columns), strict=True)):
                raise SystemExit(f"{info.name} differs in MariaDB")
            out.print(f"  [green]✓[/] {info.name}: {len(rows):,} rows, all equal")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
