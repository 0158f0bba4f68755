"""Inputs that once did what none may do, each with a sentence that says what. `python -m tests.hostile.corpus` replays
them and prints the outcome of each.

It runs in its own process, because some of them ended the process.
"""

import json
import signal
from pathlib import Path

from tests.hostile.engine import CASE_SECONDS, chance_of, outcome, outcome_in_bounds
from tests.hostile.targets import make_target

FOLDER = Path(__file__).parent / "corpus"


def sentences() -> dict[str, str]:
    """`<target>/<file>` → what it once did."""
    return json.loads((FOLDER / "sentences.json").read_text())


def main() -> None:
    for entry in sentences():
        target = make_target(entry.partition("/")[0])
        signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS)
        data = (FOLDER / entry).read_bytes()
        for number in range(5):  # imports and caches do not count
            outcome(target, target.make(chance_of(target.name, 0, number)))
        print(f"{entry}\t{outcome_in_bounds(target, data)}", flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        target.close()


if __name__ == "__main__":
    main()
