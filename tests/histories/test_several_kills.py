"""kill -9 of an iteration over several databases before any of its effects: the next run goes on, what it makes is what
was upstream, and no snapshot of ours is left over there. Meanwhile the upstream may go on.

KILLS=all takes every place (`make several-kills`), otherwise a sample of them is taken."""

import multiprocessing
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from ccpr.state.settings import Settings
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.history import PLAIN
from tests.histories.replicating import subscribed
from tests.histories.several import SeveralHistory, SeveralReplica
from tests.histories.several_killed import iterate_and_die

pytestmark = pytest.mark.kills
ALL = os.environ.get("KILLS") == "all"
SEEDS, STEP = ((1, 2), 1) if ALL else ((1,), 9)
ENDS = 3  # so many iterations in a row that end before their place was reached: there are no more places


@pytest.mark.parametrize("seed", SEEDS)
def test_an_iteration_that_is_killed_anywhere_is_gone_on_with(seed: int, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.histories.several_killed"])
    history = SeveralHistory(seed, PLAIN)
    publisher = (history.account, history.storage.accounts[history.account])
    with (
        SimulatedUpstream(history.storage) as emulator,
        closing(
            subscribed(emulator.port, tmp_path, "*", publisher=publisher, settings=Settings(retain=3))
        ) as workspace,
    ):
        replica = SeveralReplica(history, emulator, workspace)
        place, ended, killed = seed, 0, 0
        while ended < ENDS:
            for _ in range(history.rng.randint(2, 6)):
                history.step()
            if not history.live():
                history.step()  # creates one
            process = context.Process(target=iterate_and_die, args=(tmp_path / "home", place))
            process.start()
            process.join(60)
            assert process.exitcode in (0, -signal.SIGKILL)
            for _ in range(history.rng.choice((0, 0, 1, 3))):
                history.strike()
            outcome = replica.iterate_in_peace()
            if outcome is not None:
                replica.assert_equal(outcome.lsn, outcome.at)
            killed += process.exitcode != 0
            place, ended = place + STEP, ended + 1 if process.exitcode == 0 else 0
        assert killed * STEP > 60
