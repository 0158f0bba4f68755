"""Random histories of an upstream are replicated over the wire; after each iteration the mirror at its point equals the
engine's rows. `HISTORIES` of them (40 if not given), from seed `SEED` on. The seeds of `seeds.txt`, which failed once,
run first.

As many are of a MatrixOne 4.2, which creates objects before their rows are committed; `CREATE_AT` (commit, prepare)
chooses one kind."""

import logging
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ccpr.mirror.points import Point
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.transaction import CreateAt
from tests.histories.replicating import NAME, read_mirror, replicate
from tests.support.spark_tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = [
    (int(seed), kind)
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line and line[0] != "#"
    for seed, kind in (line.split()[:2],)
]
FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("HISTORIES") or 40)
KINDS: tuple[CreateAt, ...] = ("commit", "prepare")
CHOSEN = [kind for kind in KINDS if kind == os.environ.get("CREATE_AT", kind)]
SPARK_COUNT = 3 if "HISTORIES" not in os.environ else 10
PROCESSES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[int, CreateAt], Future[None]]]:
    """All histories that the session runs, in a process for each core; a test waits for its own only."""
    name = test_the_mirror_equals_the_upstream_at_every_point.__name__
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == name]
    wanted: list[tuple[int, CreateAt]] = [
        (item.callspec.params["seed"], item.callspec.params["create_at"])  # pyright: ignore[reportAssignmentType]
        for item in items
    ]
    folder = tmp_path_factory.mktemp("histories")
    pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), _silence)
    yield {
        (seed, kind): pool.submit(replicate, seed, folder / f"{seed}-{kind}", create_at=kind) for seed, kind in wanted
    }
    pool.shutdown(cancel_futures=True)


def _silence() -> None:
    """A history runs while another test does: its log would be shown under that test's name."""
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize(
    ("seed", "create_at"),
    dict.fromkeys([*FOUND, *((seed, kind) for kind in CHOSEN for seed in range(FIRST, FIRST + COUNT))]),
)
def test_the_mirror_equals_the_upstream_at_every_point(
    seed: int, create_at: CreateAt, running: dict[tuple[int, CreateAt], Future[None]]
) -> None:
    running[seed, create_at].result()


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SPARK_COUNT))
def test_spark_reads_what_the_upstream_had_at_every_point(seed: int, spark: "SparkSession", tmp_path: Path) -> None:
    def read_with_spark(workspace: Workspace, point: Point, name: str) -> pa.Table:
        schema = read_mirror(workspace, point, name).schema
        return read_table(spark, workspace.mirror(NAME).store.url, name, point.lsn).toArrow().cast(schema)

    replicate(seed, tmp_path, (read_with_spark,))
