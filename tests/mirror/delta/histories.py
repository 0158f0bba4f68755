"""Points of a random history, between which changes are computed."""

import os
from pathlib import Path

from tests.histories.history import History
from tests.support.simulated_mirror import SimulatedMirror

FIRST, COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("HISTORIES", "40"))
ROUNDS, STEPS = 4, 14


def points_of(history: History, folder: Path) -> SimulatedMirror:
    """Some steps, some points, some times."""
    simulated = SimulatedMirror(history.storage, folder / "mirror")
    for _ in range(ROUNDS):
        for _ in range(history.rng.randint(0, STEPS)):
            history.step()
        simulated.take_points(*[history._transaction] * history.rng.choice((0, 0, 1, 2)))
        history.done.append(f"points up to {simulated.points[-1].at}")
    return simulated
