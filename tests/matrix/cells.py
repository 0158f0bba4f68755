"""What became of each cell: right, or refused by name, or neither."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.matrix.forms import Form, is_right
from tests.matrix.scene import (
    DELETED,
    FULL,
    LAKE,
    NAME,
    TARGET,
    Found,
    Kind,
    Passed,
    Refused,
    Tried,
    delete,
    insert,
    upstream,
)
from tests.matrix.ways import WAYS, Way, database_of
from tests.support.mariadb import MariaDb


class Outcome(StrEnum):
    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"


@dataclass(frozen=True)
class Cell:
    """A value of a table by a way out. `of`: the value, shortened, or the oddity."""

    way: str
    table: str
    of: str
    outcome: Outcome
    seen: str = ""


def play(folder: Path, server: MariaDb, *, whole: bool, ways: Sequence[Way] = WAYS) -> list[Cell]:
    """Three points of the upstream, and what each way gives of them."""
    with upstream(folder, server, whole=whole) as scene:
        server.create_database(database_of(scene, TARGET))
        to = f"mysql://{server.user}:env:TARGET_PASSWORD@{server.host}:{server.port}/{database_of(scene, TARGET)}"
        assert scene.ccpr("target", "add", NAME, TARGET, "--to", to, "--ddl-policy", "full")[0] == 0
        assert scene.ccpr("target", "add", NAME, LAKE, "--to", (folder / "lake").as_uri(), "--change-data")[0] == 0
        scene.ccpr("run", NAME)
        insert(scene)
        cells: list[Cell] = []
        for at, change in ((FULL, None), (DELETED, delete)):
            if change is not None:
                change(scene)
            scene.ran = scene.json("run", NAME)
            assert scene.ran[1]["lsn"] == at
            for way in ways:
                if way.at == at:
                    found = way.read(scene)
                    cells += [cell for one in scene.tried for cell in _judge(way, one, found.get(one.table))]
        return cells


def unexpected(cells: Sequence[Cell]) -> list[str]:
    """What is wrong, and what is refused that its way has no leave to refuse."""
    leave = {way.label: way.refuses for way in WAYS}
    return [
        f"{cell.outcome}: {cell.way}: {cell.table}: {cell.of}: {cell.seen[:300]}"
        for cell in cells
        if cell.outcome is Outcome.WRONG or (cell.outcome is Outcome.REFUSED and cell.table not in leave[cell.way])
    ]


def _judge(way: Way, one: Tried, found: Found | None) -> Iterator[Cell]:
    of_values = isinstance(one.of, Kind)
    wanted = {number: row for number, row in one.rows.items() if way.rows(number)}
    whole = "" if of_values else one.label

    def cells(outcome: Outcome, seen: str) -> Iterator[Cell]:
        shown = [repr(row[0])[:60] for row in wanted.values()] if of_values else [whole]
        return (Cell(way.label, one.label, text, outcome, seen) for text in shown)

    if found is None:
        yield from cells(Outcome.WRONG, "not there, and not named")
        return
    if isinstance(found, Passed):
        yield from cells(Outcome.RIGHT, "")
        return
    if isinstance(found, Refused):
        by_name = found.code not in (None, 0, 70) and "DEFECT" not in found.said
        yield from cells(Outcome.REFUSED if by_name else Outcome.WRONG, f"{found.code}: {found.said}")
        return
    names = ["id", *one.columns][: len(found.names) if way.form is Form.SCREEN else None]
    rows = {row[0] if isinstance(row[0], int) else int(row[0]): row[1:] for row in found.rows}
    if found.names != names or rows.keys() != wanted.keys() or len(rows) != len(found.rows):
        yield from cells(Outcome.WRONG, f"columns {found.names[:9]}, rows {sorted(rows)[:30]}")
        return
    wrong = {
        number: repr(cell)[:80]
        for number, truth in wanted.items()
        for family, value, cell in zip(one.families, truth, rows[number], strict=way.form is not Form.SCREEN)
        if not is_right(family, way.form, value, cell)
    }
    for number, row in wanted.items() if of_values else [(min(wrong, default=0), (whole,))]:
        text = repr(row[0])[:60] if of_values else whole
        yield Cell(
            way.label, one.label, text, Outcome.WRONG if number in wrong else Outcome.RIGHT, wrong.get(number, "")
        )
