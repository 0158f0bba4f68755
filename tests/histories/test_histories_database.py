"""Random histories with DDL into MariaDB: after each iteration the target equals the engine's rows.
`DATABASE_HISTORIES` of them (8 if not given), from seed `SEED` on; one server, and a database for each."""

import logging
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.histories.target_histories import sync_target
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import MatrixOneServer, matrixone_server

FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("DATABASE_HISTORIES") or 8)
PROCESSES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mariadb: MariaDb
) -> Iterator[dict[int, Future[None]]]:
    """All histories that the session runs, by seed, in a process for each core; a test waits for its own only."""
    name = test_the_target_equals_the_upstream_at_every_point.__name__
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == name]
    seeds: list[int] = [item.callspec.params["seed"] for item in items]  # pyright: ignore[reportAssignmentType]
    folder = tmp_path_factory.mktemp("histories")
    server = replace(mariadb, process=None)  # the server belongs to this process; the others only connect
    pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), _silence)
    yield {seed: pool.submit(sync_target, seed, folder / str(seed), server) for seed in seeds}
    pool.shutdown(cancel_futures=True)


def _silence() -> None:
    """A history runs while another test does: its log would be shown under that test's name."""
    logging.disable(logging.CRITICAL)


@pytest.fixture(scope="module")
def matrixone() -> Iterator[MatrixOneServer]:
    with matrixone_server() as server:
        yield server


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(COUNT // 8, 1)))
def test_a_matrixone_equals_the_upstream_at_every_point(seed: int, matrixone: MatrixOneServer, tmp_path: Path) -> None:
    sync_target(seed, tmp_path, matrixone)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_the_target_equals_the_upstream_at_every_point(seed: int, running: dict[int, Future[None]]) -> None:
    running[seed].result()
