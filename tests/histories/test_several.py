"""Random histories of several databases of an account, replicated at one time. `SEVERAL_HISTORIES` of them, of each
kind of upstream (see `test_histories`), from seed `SEED` on; `make several-histories` takes 300."""

import os
from pathlib import Path

import pytest

from ccpr_emulator.engine.transaction import CreateAt
from tests.histories.several import replicate_several

FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("SEVERAL_HISTORIES", "8"))


@pytest.mark.parametrize("create_at", ["commit", "prepare"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_the_mirror_equals_all_databases_at_every_point(seed: int, create_at: CreateAt, tmp_path: Path) -> None:
    replicate_several(seed, tmp_path, create_at)
