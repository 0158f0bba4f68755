"""Engines attached in one line, as docs/how-to/attach-engines.md has it: what they read now and at a point."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import polars as pl
import pytest

from tests.support.iceberg_lake import DATABASE, IcebergLake, attached, served
from tests.support.lake_engines import DUCKDB_ICEBERG, duckdb_packages

pytestmark = pytest.mark.integration


@pytest.fixture
def uri(lake: IcebergLake) -> Iterator[str]:
    lake.create("a", "b")
    for point in (1, 2, 3):
        lake.publish(point, {"a": [point], "b": [point, -point]})
    with served(lake.workspace) as port:
        yield f"http://{port.address}"


def test_duckdb_reads_tables_of_now_and_of_a_point(uri: str) -> None:
    def ask(warehouse: str, *queries: str) -> list[list[list[int]]]:
        words = [sys.executable, "-m", "tests.support.attached_duckdb", uri, warehouse, *queries]
        environment = {**os.environ, "LAKE_DUCKDB": str(duckdb_packages(DUCKDB_ICEBERG))}
        found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert found.returncode == 0, found.stderr[-2000:]
        return json.loads(found.stdout)

    now, then = "SELECT sum(id) FROM lake.shop.a", 'SELECT count(*) FROM lake."shop@1".b'
    assert ask("shop.lake", now, "SELECT count(*) FROM lake.shop.b", then) == [[[6]], [[6]], [[2]]]
    assert ask("shop.lake@2", now) == [[[3]]]


def test_polars_reads_tables_of_now_and_of_a_point(uri: str) -> None:
    class Port:
        address = uri.removeprefix("http://")

    for warehouse, total in (("shop.lake", 6), ("shop.lake@2", 3)):
        table = attached(Port, warehouse).load_table((DATABASE, "a"))  # type: ignore[arg-type]
        assert pl.scan_iceberg(table).select(pl.col("id").sum()).collect().item() == total
