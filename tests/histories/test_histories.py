"""Random histories of an upstream are replicated over the wire; after each iteration the mirror at its point equals the
engine's rows. `HISTORIES` of them (300 under CI), from seed `SEED` on. The seeds of `seeds.txt`, which failed once, run
first."""

import logging
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import structlog

from replication.mirror.points import Point
from replication.service.workspace import Workspace
from replication.spark.read import read_table
from tests.histories.replicating import NAME, read_mirror, replicate
from tests.support.ci import UNDER_CI

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = [
    int(line.split()[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line and line[0] != "#"
]
FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("HISTORIES") or (300 if UNDER_CI else 40))
SPARK_COUNT = 10
PROCESSES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Future[None]]]:
    """All histories that the session runs, by seed, in a process for each core; a test waits for its own only."""
    name = test_the_mirror_equals_the_upstream_at_every_point.__name__
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == name]
    seeds: list[int] = [item.callspec.params["seed"] for item in items]  # pyright: ignore[reportAssignmentType]
    folder = tmp_path_factory.mktemp("histories")
    pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), _silence)
    yield {seed: pool.submit(replicate, seed, folder / str(seed)) for seed in seeds}
    pool.shutdown(cancel_futures=True)


def _silence() -> None:
    """A history runs while another test does: its log would be shown under that test's name."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("seed", dict.fromkeys([*FOUND, *range(FIRST, FIRST + COUNT)]))
def test_the_mirror_equals_the_upstream_at_every_point(seed: int, running: dict[int, Future[None]]) -> None:
    running[seed].result()


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SPARK_COUNT))
def test_spark_reads_what_the_upstream_had_at_every_point(seed: int, spark: "SparkSession", tmp_path: Path) -> None:
    def read_with_spark(workspace: Workspace, point: Point, name: str) -> pa.Table:
        schema = read_mirror(workspace, point, name).schema
        return read_table(spark, workspace.mirror(NAME).store.url, name, point.lsn).toArrow().cast(schema)

    replicate(seed, tmp_path, (read_with_spark,))
