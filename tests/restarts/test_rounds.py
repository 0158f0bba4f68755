"""`ROUNDS` random events around restarts of an upstream, from the seed `SEED`: all goes on by itself. `make restarts`
plays 200."""

import os
from pathlib import Path

import pytest

from tests.restarts.rounds import Played, Rounds
from tests.restarts.world import world
from tests.support.mariadb import MariaDb
from tests.targets.target_database import new_database

ROUNDS = int(os.environ.get("ROUNDS") or 8)
SEED = int(os.environ.get("SEED") or 1)


@pytest.mark.in_turn
@pytest.mark.kills
@pytest.mark.timeout(0 if "ROUNDS" in os.environ else 1200)
def test_whatever_a_restart_answers_all_is_current_and_equal_by_itself(
    home: Path, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    monkeypatch.setenv("DOWN", "111")
    bad: list[Played] = []
    with new_database(mariadb) as place, world(home, place, SEED) as found:
        rounds = Rounds(found, SEED)
        for number in range(1, ROUNDS + 1):
            played = rounds.play(number)
            print(played, flush=True)
            if played.stops:
                bad.append(played)
        found.assert_nothing_is_left()
        left = [stop.what for stop in found.stops]
    shown = "\n".join(map(str, bad))
    assert not bad, f"seed {SEED}: {len(bad)} of {ROUNDS} rounds did not end well by themselves:\n{shown}"
    assert left == []
