"""`make demo-lake`: the shop of `make demo` as a lake: replicated, published as Delta tables, and asked by other
programs at two points, with what changed between them.

The programs are delta-rs, and DuckDB and Spark where the tests have fetched what they need for it (`make unit
PYTEST_OPTIONS="tests/lake/test_engines.py"`). Each answer is compared with the mirror's rows.
"""

import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.table import Table

import ccpr
from demo.run import FOLDER, HOME, PASSWORD_VARIABLE, emulator, out, prepare_environment
from demo.run import ccpr as command
from demo.shop import connect, fill
from tests.support.lake_engines import NotRead, Query, duckdb_reads, spark_reads

NAME, LAKE = "shop", FOLDER / "lake"
MIRROR = HOME / "mirrors" / NAME
CHANGES = (
    "UPDATE shop.orders SET status = 'sent' WHERE id <= 250",
    "DELETE FROM shop.orders WHERE id > 99000",
    "INSERT INTO shop.orders (customer, total, status) SELECT result, 9.5, 'new' FROM generate_series(1, 120) g",
)
QUESTION = "SELECT status, count(*) AS orders, sum(total) AS total FROM t GROUP BY status ORDER BY status"
Answer = list[tuple[str, int, Any]]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(FOLDER, ignore_errors=True)
    prepare_environment()
    with emulator("--living") as port:
        fill(port)
        uri = f"mysql://sys#root:env:{PASSWORD_VARIABLE}@127.0.0.1:{port}"
        command("subscribe", NAME, "--from", uri, "--database", "shop", "--publication", "shop_pub")
        command("target", "add", NAME, "lake", "--to", LAKE.as_uri(), "--format", "delta", "--change-data")
        command("run", NAME)
        with connect(port) as connection, connection.cursor() as cursor:
            for text in CHANGES:
                out.print(f"  [dim]mysql>[/] {text};", soft_wrap=True)
                cursor.execute(text)
        (synced,) = command("run", NAME)["targets"]
    show_published(synced)
    versions = points()
    ask(versions)
    show_changes(versions)


def points() -> dict[int, tuple[str, int]]:
    """By lsn, where the orders are, and in which version."""
    found = command("points", NAME, "--lake")
    orders = {point["lsn"]: point["lakes"]["lake"]["shop.orders"] for point in found}
    return {lsn: (table["uri"], table["version"]) for lsn, table in orders.items()}


def show_published(synced: dict[str, Any]) -> None:
    table = Table(title="\nWhat the second point wrote", title_justify="left", box=None, pad_edge=False)
    for column in ("table", "version", "files added", "other vectors", "bytes"):
        table.add_column(column)
    for one in synced["tables"]:
        cells = (one["version"], one["files_added"], one["vectors"], f"{one['bytes_written']:,}")
        table.add_row(one["table"], *map(str, cells))
    out.print(table)


def delta_rs_reads(queries: Sequence[Query]) -> list[pa.Table]:
    from deltalake import DeltaTable, QueryBuilder

    tables = ((query, DeltaTable(query.uri, version=query.version)) for query in queries)
    return [pa.table(QueryBuilder().register("t", table).execute(query.sql)) for query, table in tables]


def ask(versions: dict[int, tuple[str, int]]) -> None:
    """The same question at both points, to each program that is here."""
    readers: dict[str, Callable[[Sequence[Query]], list[pa.Table]]] = {
        "delta-rs": delta_rs_reads,
        "DuckDB": duckdb_reads,
        "Spark": spark_reads,
    }
    queries = [Query(uri.removeprefix("file://"), version, QUESTION) for uri, version in versions.values()]
    wanted = [expected(lsn) for lsn in versions]
    for name, reads in readers.items():
        try:
            found = [answer(table) for table in reads(queries)]
        except (pytest.skip.Exception, NotRead) as error:
            out.print(f"  [dim]{name} is not here: {str(error)[:120]}[/]")
            continue
        if found != wanted:
            raise SystemExit(f"{name} does not read what the mirror has: {found} instead of {wanted}")
        for lsn, rows in zip(versions, found, strict=True):
            counts = ", ".join(f"{count:,} {status}" for status, count, _ in rows)
            out.print(f"  [green]✓[/] {name} at point {lsn}: {counts}")


def answer(table: pa.Table) -> Answer:
    rows = zip(*map(pa.ChunkedArray.to_pylist, table.columns), strict=True)
    return [(status, int(count), total) for status, count, total in rows]


def expected(lsn: int) -> Answer:
    """By the mirror's own rows."""
    orders = ccpr.open_mirror(MIRROR).table("shop.orders").to_arrow(at=lsn, columns=["status", "total"])
    statuses = sorted(pc.unique(orders.column("status")).to_pylist())
    chosen = [(status, orders.filter(pc.equal(orders.column("status"), status))) for status in statuses]
    return [(status, rows.num_rows, pc.sum(rows.column("total")).as_py()) for status, rows in chosen]


def show_changes(versions: dict[int, tuple[str, int]]) -> None:
    """Between the two points, as delta-rs reads the change data feed."""
    from deltalake import DeltaTable

    (_, first), (uri, last) = versions.values()
    feed = pa.table(DeltaTable(uri).load_cdf(starting_version=first + 1, ending_version=last))
    kinds = feed.column("_change_type").to_pylist()
    counts = ", ".join(f"{kinds.count(kind):,} {kind}" for kind in sorted(set(kinds)))
    out.print(f"\n[bold]What changed in the orders from version {first} to {last}[/]: {counts}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
