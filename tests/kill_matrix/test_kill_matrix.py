"""One fault for each step, each fault at least once; `make kill-matrix` plays every pair."""

from pathlib import Path

import pytest

from replication.iteration.steps import Step
from tests.kill_matrix.__main__ import play
from tests.kill_matrix.strikes import STRIKES, Strike, database_restarted
from tests.support.mariadb import MariaDb

STEPS = tuple(Step)
PAIRS = [(strike, STEPS[(3 * number) % len(STEPS)]) for number, strike in enumerate(STRIKES)]
pytestmark = pytest.mark.kills


def test_every_step_is_struck() -> None:
    assert {step for _, step in PAIRS} == set(STEPS)


@pytest.mark.parametrize(
    ("strike", "step"), PAIRS, ids=lambda value: value.label if isinstance(value, Step) else value.__name__
)
def test_after_a_fault_a_plain_run_leaves_everything_whole(
    strike: Strike, step: Step, recordings: Path, mariadb: MariaDb
) -> None:
    play(strike, step, recordings / "other_account", mariadb if strike is database_restarted else None)
