"""Random histories of an account's database, replicated in logical mode by its administrator: after each iteration the
mirror at its point equals the engine's rows."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.histories.history import Circumstances, History
from tests.histories.replicating import Replica, play

FIRST, COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("HISTORIES") or 12)
ACCOUNT = "acc1"


class LogicalReplica(Replica):
    """Its faults strike what is asked in logical mode."""

    kinds = ("create_snapshot", "select_mo_tables", "select_mo_columns", "select", "data_branch_diff", "drop_snapshot")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_what_an_account_reads_equals_the_upstream_at_every_point(seed: int, tmp_path: Path):
    circumstances = replace(Circumstances.of(seed), account=ACCOUNT, with_indexes=False)
    play(History(seed, circumstances, "prepare", plain_names=True), tmp_path, replica_of=LogicalReplica, logical=True)
