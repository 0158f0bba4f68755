"""LIKE against what a regular expression says, and against patterns that would keep one busy for ever."""

import random
import re
import string

import pytest

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.like import Like
from ccpr.matrixone.server.mo_catalog import _test_of
from ccpr.matrixone.server.statements import Condition, Select, parse
from ccpr.matrixone.server.tokens import MOST_PARTS


def expected(pattern: str, text: str) -> bool:
    parts = re.findall(r"\\.|%+|.", pattern, re.DOTALL)
    words = (".*" if part[0] == "%" else "." if part == "_" else re.escape(part[-1]) for part in parts)
    return re.fullmatch("".join(words), text, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%%", "any\nlines", True),
        ("_", "", False),
        ("_", "é", True),
        ("a%", "abc", True),
        ("%c", "abc", True),
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("%b%", "abc", True),
        ("%ab_ab%", "xabxab", True),
        ("%_b_%", "abc", True),
        (r"50\%", "50%", True),
        (r"50\%", "50x", False),
        (r"a\_b", "axb", False),
        ("a\\", "a\\", True),
        ("A%", "abc", False),
        ("[a]*.", "[a]*.", True),
    ],
)
def test_percent_is_any_text_and_underscore_any_character(pattern: str, text: str, fits: bool) -> None:
    assert Like(pattern).matches(text) is fits
    assert expected(pattern, text) is fits


def test_letter_case_may_be_left_out() -> None:
    assert Like("SQL%ode", ignore_case=True).matches("sql_mODE")


def test_any_pattern_fits_what_the_definition_says() -> None:
    chosen = random.Random(20)
    for _ in range(20_000):
        pattern = "".join(chosen.choices("ab%_\\", (4, 3, 3, 3, 1), k=chosen.randrange(9)))
        text = "".join(chosen.choices("ab%\n", (5, 3, 1, 1), k=chosen.randrange(12)))
        assert Like(pattern).matches(text) is expected(pattern, text), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "%_" * 2000 + "~",
        "%a" * 2000 + "~",
        "%_a" * 2000 + "~",
        "%" * 5000 + "~",
        "%" + "a" * 5000 + "~%",
        "%" + "a_" * 2500 + "~%",
        "_" * 5000 + "%~%~%",
    ],
)
def test_a_hostile_pattern_is_answered(pattern: str) -> None:
    """A regular expression would not come back from most of them."""
    assert not Like(pattern).matches("a" * 50_000)
    assert Like(pattern.replace("~", "")).matches("a" * 50_000)


@pytest.mark.parametrize(("test", "equal"), [("in", True), ("not in", False)])
def test_a_long_list_is_compared_as_a_short_one(test: str, equal: bool) -> None:
    values = (*range(100_000), "77", "x", "1.5", "0007", None) if equal else (*range(100_000), "77", "x", "1.5")
    holds = _test_of(Condition("c", test, values))  # type: ignore[arg-type]
    cells = [5, 77, b"5", b"77", b"x", memoryview(b"x"), "x", b"1.5"]
    assert [holds(cell) for cell in cells] == [equal] * len(cells)
    assert [holds(cell) for cell in (100_000, b"y", b"05")] == [not equal] * 3
    assert not holds(None)


def test_a_statement_has_so_many_parts_and_no_more() -> None:
    many = [*string.ascii_lowercase] * MOST_PARTS
    for joined in (
        "SELECT {} FROM mo_catalog.mo_tables".format(", ".join(many)),
        "SELECT * FROM mo_catalog.mo_tables WHERE {}".format(" AND ".join(f"{one} = 1" for one in many)),
        "SELECT * FROM mo_catalog.mo_tables ORDER BY {}".format(", ".join(many)),
        "SELECT {}".format(", ".join("1" for _ in many)),
    ):
        with pytest.raises(StatementError, match="does not know"):
            parse(joined)
    assert isinstance(parse(f"SELECT {', '.join(many[:MOST_PARTS])} FROM mo_catalog.mo_tables"), Select)
