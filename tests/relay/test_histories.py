"""Random histories of an upstream through a relay: the mirror of the mirror is that mirror after each iteration.
`RELAY_HISTORIES` of them, from seed `SEED` on; `make relay-histories` takes 300."""

import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from ccpr_emulator.engine.transaction import CreateAt
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.history import DATABASE, Circumstances, History
from tests.histories.replicating import ITERATIONS, NAME, STEPS, Replica, subscribed
from tests.support.driving import iterate
from tests.support.relayed import assert_same_point, relaying, subscribe_through

pytestmark = pytest.mark.integration

FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("RELAY_HISTORIES", "4"))


@pytest.mark.parametrize("create_at", ["commit", "prepare"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_history_passes_the_relay_unchanged(seed: int, create_at: CreateAt, tmp_path: Path) -> None:
    circumstances = replace(Circumstances.of(seed), faults=False, one_table=False)
    history = History(seed, circumstances, create_at)
    consistency = "isolated" if circumstances.isolated else "together"
    settings = Settings(with_indexes=circumstances.with_indexes, consistency=consistency)
    publisher = (history.account, history.storage.accounts[history.account])
    try:
        with ExitStack() as held:
            source = held.enter_context(SimulatedUpstream(history.storage))
            first = subscribed(source.port, tmp_path / "first", DATABASE, publisher=publisher, settings=settings)
            held.enter_context(closing(first))
            relay = held.enter_context(relaying(first))
            known = Subscription.from_row(first.log.row(NAME))
            second = held.enter_context(closing(subscribe_through(relay.port, tmp_path / "second", known)))
            replica, apart = Replica(history, source, first), False
            for _ in range(ITERATIONS):
                for _ in range(history.rng.randint(0, STEPS)):
                    history.step()
                outcome = replica.iterate()
                assert outcome is not None
                history.done.append(f"iteration {outcome.lsn}: point {outcome.point} at {outcome.at}")
                again = iterate(second, "again")
                if again.point != outcome.point:  # a change of partitions without rows is none behind the relay
                    assert outcome.point
                    assert circumstances.partitioned
                    assert not outcome.objects_copied
                    apart = True
                elif outcome.point:
                    apart = False
                assert_same_point(first.mirror(NAME), second.mirror("again"), same_time=not apart)
    except Exception as error:
        error.add_note("\n  ".join((f"history of seed {seed}, create_at={create_at}, {circumstances}:", *history.done)))
        raise
