"""Each type's hardest values and each odd table by every way out are right, or refused by name."""

import re
from pathlib import Path

import pytest

from tests.matrix.__main__ import BEGIN, END, PAGE
from tests.matrix.cells import play, unexpected
from tests.matrix.forms import Form, is_right
from tests.matrix.values import KINDS
from tests.matrix.ways import CLIENT, WAYS
from tests.support.mariadb import MariaDb


@pytest.mark.timeout(3600)
@pytest.mark.skipif(CLIENT is None, reason="there is no client of MariaDB")
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_value_is_right_by_every_way_or_refused_by_name(tmp_path: Path, mariadb: MariaDb, whole: bool) -> None:
    """A part of them, and in the long lane all, as `make value-matrix`."""
    cells = play(tmp_path, mariadb, whole=whole)
    assert unexpected(cells) == []
    assert {cell.way for cell in cells} == {way.label for way in WAYS}


def test_every_type_of_the_reference_has_values() -> None:
    page = (PAGE.parent / "reference" / "types.md").read_text()
    firsts = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    names = [name for first in firsts for name in re.findall(r"`([^`(]+)(?:\([^`]*\))?`", first)]
    assert len(names) > 60, "in two tables"
    assert set(names) == {kind.type.partition("(")[0] for kind in KINDS}


def test_the_page_has_every_way() -> None:
    written = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    labels = re.findall(r"^\| (.+?) \| [\d,]+ \|", written, re.MULTILINE)
    assert sorted("; ".join(labels).split("; ")) == sorted(way.label for way in WAYS), "those alike share a line"


OTHERS = (
    ("int", Form.CSV, 5, "53"),
    ("bit", Form.MYSQL, 5, b"5"),
    ("float", Form.ARROW, -0.0, 0.0),
    ("text", Form.MYSQL, b"a\r\nb", b"a\nb"),
    ("text", Form.CSV, b"", None),
    ("text", Form.JSON, None, ""),
    ("text", Form.SCREEN, b"a\nb", "anb"),
    ("time", Form.JSON, -1, "00:00:00.000001"),
    ("moment", Form.CSV, "0001-01-01 00:00:00.000000", "0001-01-02 00:00:00Z"),
    ("date", Form.ARROW, "0001-01-01", -719_163),
)


def test_another_value_is_not_right() -> None:
    assert [other for other in OTHERS if is_right(*other)] == []
