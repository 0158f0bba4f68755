"""`python -m tests.kill_matrix`: every fault at every place. The outcomes are written into the table of
docs/reliability.md as they come. Exit status 1 if a cell is not whole.

The random choices follow from a seed, which is printed: `SEED=1 make kill-matrix` makes them again.
`ROWS="object corrupted" PLACES=copy` plays what has this in its name, and leaves the other cells as they are;
`MISSING=1` those that were not played, or were not whole.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.kill_matrix.cells import NOT_WHOLE, new_seed, play_in_process, start_process
from tests.kill_matrix.places import PLACES
from tests.kill_matrix.strikes import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- the table is written by make kill-matrix -->", "<!-- end of the table of faults -->"
NOT_PLAYED = "not played"
PROCESSES = int(os.environ.get("PROCESSES") or 2)
Cells = dict[tuple[str, str], str]  # (row's label, place's label) -> outcome


def main() -> int:
    started, seed, failed = time.monotonic(), new_seed(), 0
    wanted, where = os.environ.get("ROWS", ""), os.environ.get("PLACES", "")
    rows = [number for number, row in enumerate(ROWS) if wanted in row.label]
    places = [place for place in PLACES if where in place.label]
    known = read_cells(PAGE.read_text()) if os.environ.get("MISSING") else {}
    print(f"SEED={seed}", flush=True)
    with ProcessPoolExecutor(PROCESSES, get_context("forkserver"), start_process) as pool:
        playing = {
            (ROWS[row].label, place.label): pool.submit(play_in_process, row, place.key, seed)
            for row in rows
            for place in places
            if known.get((ROWS[row].label, place.label), NOT_PLAYED) in (NOT_PLAYED, NOT_WHOLE)
        }
        for (row, place), cell in playing.items():
            outcome = cell.result()
            failed += outcome == NOT_WHOLE
            print(f"{row:30} {place:20} {outcome}", flush=True)
            write({(row, place): outcome})
    print(f"{len(playing)} cells, {failed} not whole, {time.monotonic() - started:.0f} s, SEED={seed}")
    return 1 if failed else 0


def write(outcomes: Mapping[tuple[str, str], str]) -> None:
    """Put outcomes into the page; the others stay."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    cells, after = {**read_cells(text), **outcomes}, rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, *table(cells), END + after]))


def read_cells(text: str) -> Cells:
    """The outcomes in a page."""
    cells: Cells = {}
    for line in text.partition(BEGIN)[2].partition(END)[0].splitlines()[3:]:
        row, most, others = [cell.strip() for cell in line.removesuffix("|").split("|")[1:]]
        cells |= {(row, place.label): most for place in PLACES}
        for other in others.split("; "):
            outcome = other.rpartition("` ")[2]
            cells |= {(row, label): outcome for label in re.findall("`([^`]+)`", other)}
    return cells


def table(cells: Cells) -> Iterator[str]:
    """Markdown: a row a fault, with the outcome of most places, and the places that have another one."""
    yield "| fault | at most places | at the others |"
    yield "|---|---|---|"
    for row in ROWS:
        outcomes = {place.label: cells.get((row.label, place.label), NOT_PLAYED) for place in PLACES}
        (most, _), *others = Counter(outcomes.values()).most_common()
        apart = [
            ", ".join(f"`{label}`" for label in outcomes if outcomes[label] == outcome) + f" {outcome}"
            for outcome, _ in others
        ]
        yield f"| {row.label} | {most} | {'; '.join(apart)} |"


if __name__ == "__main__":
    raise SystemExit(main())
