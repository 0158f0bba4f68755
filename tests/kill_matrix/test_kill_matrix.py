"""One fault for each step, each fault at least once; `make kill-matrix` plays every pair."""

from pathlib import Path

import pytest

from replication.iteration.steps import Step
from replication.mirror.local_store import LocalStore
from replication.mirror.store import Store
from tests.kill_matrix import strikes
from tests.kill_matrix.__main__ import play
from tests.kill_matrix.strikes import NOTHING_TO_STRIKE, STORE_WRITES, STRIKES, Strike
from tests.support.mariadb import MariaDb

STORE_READS = {"read", "size", "names", "sync"}
PAIRS: tuple[tuple[Strike, Step], ...] = (
    (strikes.killed, Step.INIT),
    (strikes.connection_cut, Step.COPY),
    (strikes.upstream_restarted, Step.RELEASE),
    (strikes.store_full, Step.CATALOG),
    (strikes.store_read_only, Step.FILTER),
    (strikes.store_read_only, Step.COPY),
    (strikes.database_restarted, Step.OUTCOME),
    (strikes.clock_forward, Step.OBJECT_LIST),
    (strikes.clock_back, Step.APPLY),
    (strikes.second_executor, Step.INIT),
    (strikes.object_corrupted, Step.COPY),
    (strikes.open_snapshot_gone, Step.OBJECT_LIST),
    (strikes.base_snapshot_gone, Step.CATALOG),
)
pytestmark = pytest.mark.kills


def test_every_step_is_struck_and_every_fault_strikes() -> None:
    assert {step for _, step in PAIRS} == set(Step)
    assert {strike for strike, _ in PAIRS} == set(STRIKES)


def test_a_read_only_store_refuses_every_method_that_writes() -> None:
    methods = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
    assert methods == STORE_READS | set(STORE_WRITES)
    assert set(STORE_WRITES) <= set(vars(LocalStore))


@pytest.mark.parametrize(
    ("strike", "step"), PAIRS, ids=lambda value: value.label if isinstance(value, Step) else value.__name__
)
def test_after_a_fault_a_plain_run_leaves_everything_whole(
    strike: Strike, step: Step, recordings: Path, mariadb: MariaDb
) -> None:
    database = mariadb if strike is strikes.database_restarted else None
    assert play(strike, step, recordings / "other_account", database) != NOTHING_TO_STRIKE
