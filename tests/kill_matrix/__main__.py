"""`python -m tests.kill_matrix`: every step against every fault; the table is written into docs/reliability.md. Exit
status 1 if a cell is not whole.
"""

import logging
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from replication.iteration.steps import Step
from tests.kill_matrix.scene import scene
from tests.kill_matrix.strikes import STRIKES, Strike, database_restarted
from tests.support.mariadb import MariaDb, find_program, running
from tests.support.recordings_location import SAMPLE

RECORDING = SAMPLE / "other_account"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- the table is written by make kill-matrix -->", "<!-- end of the table -->"


def play(strike: Strike, step: Step, recording: Path, database: MariaDb | None) -> str:
    """One cell: the outcome of the struck attempt. Raises AssertionError if a plain re-run leaves anything broken."""
    with (
        tempfile.TemporaryDirectory(prefix="kill-matrix-") as folder,
        scene(recording, Path(folder), database) as at_first_point,
    ):
        outcome = strike(at_first_point, step)
        at_first_point.replica.run()
        at_first_point.assert_whole()
        return outcome


def main() -> int:
    logging.raiseExceptions = False  # a command that ended has left a handler with its closed standard error
    started, failed = time.monotonic(), 0
    cells: dict[tuple[str, Step], str] = {}
    with running(find_program()) as database:
        for strike in STRIKES:
            for step in Step:
                try:
                    cells[strike.__name__, step] = play(
                        strike, step, RECORDING, database if strike is database_restarted else None
                    )
                except Exception:  # noqa: BLE001 - a cell's failure is a result; the others are played all the same
                    traceback.print_exc()
                    cells[strike.__name__, step] = "**not whole**"
                    failed += 1
                print(f"{strike.__name__:20} {step.label:12} {cells[strike.__name__, step]}", flush=True)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, *table(cells), END + after]))
    print(f"{len(cells)} cells, {failed} not whole, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def table(cells: dict[tuple[str, Step], str]) -> Iterator[str]:
    """Markdown: a row a fault, a column a step."""
    yield "| fault | " + " | ".join(f"{step.value} {step.label}" for step in Step) + " |"
    yield "|---" * (len(Step) + 1) + "|"
    for strike in STRIKES:
        shown = [cells[strike.__name__, step] for step in Step]
        yield f"| {strike.__name__.replace('_', ' ')} | " + " | ".join(shown) + " |"


if __name__ == "__main__":
    raise SystemExit(main())
