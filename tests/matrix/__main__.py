"""`python -m tests.matrix`: every value and every odd table by every way out; the table is written into
docs/reliability.md. With `PART=1` what `make test` plays, and the table of that is printed. Exit status 1 if a cell is
neither right nor refused as its way may."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.matrix.cells import Cell, Outcome, play, unexpected
from tests.matrix.ways import WAYS
from tests.support.mariadb import find_program, running

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- the table is written by make value-matrix -->", "<!-- end of the table of values -->"


def main() -> int:
    whole = not os.environ.get("PART")
    with tempfile.TemporaryDirectory() as folder, running(find_program()) as server:
        cells = play(Path(folder), server, whole=whole)
    failed = unexpected(cells)
    for line in failed:
        print(line)
    if whole:
        before, rest = PAGE.read_text().partition(BEGIN)[::2]
        PAGE.write_text("\n".join([before + BEGIN, *table(cells), END + rest.partition(END)[2]]))
    else:
        print(*table(cells), sep="\n")
    print(f"{len(cells)} cells, {len(failed)} wrong")
    return 1 if failed else 0


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Markdown: a row for ways that give the same."""
    yield f"\n{len(cells):,} cells, all that there are:\n"
    yield "| ways out | right | refused | what is refused |"
    yield "|---|---|---|---|"
    ways: dict[str, list[str]] = {}
    for way in WAYS:
        mine = [cell for cell in cells if cell.way == way.label]
        count = Counter(cell.outcome for cell in mine)
        refused = dict.fromkeys(cell.table for cell in mine if cell.outcome is Outcome.REFUSED)
        outcome = f"{count[Outcome.RIGHT]:,} | {count[Outcome.REFUSED]:,} | {'; '.join(refused)}"
        ways.setdefault(outcome, []).append(way.label)
    yield from (f"| {'; '.join(labels)} | {outcome} |" for outcome, labels in ways.items())


if __name__ == "__main__":
    raise SystemExit(main())
