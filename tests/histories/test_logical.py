"""Random histories of an account's database, replicated in logical mode by its administrator: after each iteration the
mirror at its point equals the engine's rows."""

import os
import random
from dataclasses import replace
from functools import partial
from math import inf, nan
from pathlib import Path

import pytest

from tests.histories.history import Circumstances, History
from tests.histories.replicating import Replica, play
from tests.histories.values import TYPES, Maker

FIRST, COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("HISTORIES") or 12)
ACCOUNT = "acc1"
NO_NUMBERS = (nan, inf, -inf)


class LogicalReplica(Replica):
    """Its faults strike what is asked in logical mode."""

    kinds = ("create_snapshot", "select_mo_tables", "select_mo_columns", "select", "data_branch_diff", "drop_snapshot")


def _or_no_number(made: Maker, rng: random.Random) -> float:
    return rng.choice((*NO_NUMBERS, made(rng)))


def _with_no_number(made: Maker, rng: random.Random) -> list[float]:
    return [rng.choice(NO_NUMBERS) if rng.random() < 0.1 else value for value in made(rng)]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_what_an_account_reads_equals_the_upstream_at_every_point(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for kind in ("float", "double"):
        monkeypatch.setitem(TYPES, kind, partial(_or_no_number, TYPES[kind]))
    for kind in ("vecf32(3)", "vecf64(2)"):
        monkeypatch.setitem(TYPES, kind, partial(_with_no_number, TYPES[kind]))
    circumstances = replace(Circumstances.of(seed), account=ACCOUNT, with_indexes=False)
    play(History(seed, circumstances, "prepare", plain_names=True), tmp_path, replica_of=LogicalReplica, logical=True)
