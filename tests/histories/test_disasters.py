"""Random sequences of disasters: `DISASTERS` of them (6 if not given)."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.histories.disasters import Disasters, DisastersOfSeveral, DisastersWithTarget
from tests.histories.disasters_of_kept import DisastersOfKept
from tests.support.mariadb import MariaDb

COUNT = int(os.environ.get("DISASTERS") or 6)


@pytest.mark.timeout(0 if "DISASTERS" in os.environ else 1200)
def test_each_read_equals_the_source_or_an_error_says_what_to_do(mariadb: MariaDb) -> None:
    class WithTarget(DisastersWithTarget):
        server = mariadb

    play(WithTarget, COUNT)


@pytest.mark.timeout(0 if "DISASTERS" in os.environ else 1200)
def test_several_databases_are_read_likewise() -> None:
    play(DisastersOfSeveral, max(COUNT // 4, 5))


@pytest.mark.in_turn
@pytest.mark.timeout(0 if "DISASTERS" in os.environ else 1200)
def test_what_anything_needs_stays_and_nothing_else_does() -> None:
    play(DisastersOfKept, max(COUNT // 2, 10))


def play(machine: type[Disasters], count: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
