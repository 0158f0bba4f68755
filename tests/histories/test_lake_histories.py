"""Random histories published to a lake: after each point every reader gives the mirror's rows, which are the engine's,
and at random earlier points. `LAKE_HISTORIES` of them (8 if not given), from seed `SEED` on."""

import logging
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from ccpr_emulator.engine.transaction import CreateAt
from tests.histories.lake_histories import publish_history

FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("LAKE_HISTORIES") or 8)
KINDS: tuple[CreateAt, ...] = ("commit", "prepare")
PROCESSES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Future[None]]]:
    """All histories that the session runs, by seed, in a process for each core; a test waits for its own only."""
    name = test_every_reader_gives_the_rows_of_every_point.__name__
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == name]
    seeds: list[int] = [item.callspec.params["seed"] for item in items]  # pyright: ignore[reportAssignmentType]
    folder = tmp_path_factory.mktemp("histories")
    pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), _silence)
    yield {seed: pool.submit(publish_history, seed, folder / str(seed), KINDS[seed % 2]) for seed in seeds}
    pool.shutdown(cancel_futures=True)


def _silence() -> None:
    """A history runs while another test does: its log would be shown under that test's name."""
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_every_reader_gives_the_rows_of_every_point(seed: int, running: dict[int, Future[None]]) -> None:
    running[seed].result()
