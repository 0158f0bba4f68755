"""A text that may stand in a script is one statement to MatrixOne's scanner, too."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpr.matrixone.definitions import MODES, Mode, insides, runnable
from tests.support.matrixone_reading import NotRead, statements

HIDDEN = "; drop database prod; "
PIECES = ["select", "a", "A", "x", "X", "b", "$", "$x", "$$", "1", "0x", "0b", "0x1f", "1.5", "1e", "@", "@@", "@a.b"]
PIECES += ["'", '"', "`", "``", "''", "'a'", "x'4f'", "b'01'", "\\", "\\'", "_utf8mb4", "_latin1", "é", "\xa0", "\v"]
PIECES += ["--", "-- ", "--\n", "#", "//", "/*", "*/", "/*!", "/*!80023", "/*M!", "/*+", "*", "/", ":=", "::", ":"]
PIECES += [";", " ", "\n", "\r", "\t", ".", ",", "(", ")", "<=", "!=", "->", "[", "\x01", "+", "|", HIDDEN]
# Rarely is anything of the pieces runnable; these are more often, and end in what may open something.
WHOLE = st.sampled_from(
    ["'it''s'", "'a\\\\'", '"a"', '""', "`n``m`", "-- c\n", "/* c ' */", "#'\n", "'//'", '"$$"', "x"]
)
TEXTS = st.lists(st.one_of(WHOLE, st.sampled_from(PIECES), st.text(max_size=2)), max_size=14).map(" ".join) | st.lists(
    st.one_of(WHOLE, st.sampled_from(PIECES), st.text(max_size=2)), max_size=14
).map("".join)
INJECTED = [
    f"select 1 a // '\n{HIDDEN}//'",
    f"select $$'$$ a {HIDDEN} select $$'$$ b",
    f"select $t$'$t$ a {HIDDEN} select '",
    f"select 1 --\xa0'\n{HIDDEN} -- '",
    f"select 1 --\v'\n{HIDDEN} -- '",
    f"select @a' {HIDDEN}'",
    f"select @ a' {HIDDEN}'",
    f"select 0x' {HIDDEN}'",
    f"select 0b' {HIDDEN}'",
    f'select _utf8mb4" {HIDDEN}"',
    f"select _utf8mb4` {HIDDEN}`",
    f"select /*! ' {HIDDEN} */ 1",
    f"select /*!50000 '{HIDDEN}' */ 1",
    f"select 'a\\'' , '{HIDDEN}' -- '",
    f"select '\\' , '{HIDDEN}', '",
    f'select "\\" , \'{HIDDEN}\', "',
    f"select 1 *// '\n{HIDDEN}",
    f"select 1 /* */* '*/ {HIDDEN}",
]


def assert_is_one(text: str) -> None:
    """To MatrixOne in each mode, and so that what follows in the script is what it is without it."""
    for mode in MODES:
        try:
            after = statements(f"CREATE VIEW `v` AS {text}\n;\nselect 'it''s', `x` -- y\n;", mode)
        except NotRead:
            continue  # nothing of it is run
        assert len(after) == 2, mode
        assert after[1] == b"select 'it''s' , `x`"


@given(TEXTS)
@example("select 'a' -- \n, \"b\" /* ; */ from `t`")
def test_what_may_stand_in_a_script_is_one_statement_to_matrixone(text: str) -> None:
    if runnable(text):
        assert_is_one(text)


@pytest.mark.parametrize("text", INJECTED)
def test_what_hides_a_statement_from_a_client_is_left_out(text: str) -> None:
    assert not runnable(text)
    assert {_count(text, mode) for mode in MODES} != {1}, "which is why"


def _count(text: str, mode: Mode) -> int | None:
    try:
        return len(statements(f"CREATE VIEW `v` AS {text}\n;", mode))
    except NotRead:
        return None


@pytest.mark.parametrize(
    "text",
    [
        "select a, `b c`, 'it''s', \"x\", 1.5e-3, .5, 0x1F, x'4f', b'01', a->>'$.k', c::int from t -- why\n where 1",
        "select /* first */ 'https://a' as url, '$$', `//`, `$$`, '--\xa0', '# no' # yes\n from `é` where n = 'ü'",
        "select _utf8mb4'x', _latin1 'y', @@version, a$b, a % 2, a || b, (a * /* all */ b) / 2",
        "select 'a\\\\b\\n\\%' like '%\\_'",
        "",
    ],
)
def test_ordinary_texts_may_stand_in_a_script(text: str) -> None:
    assert runnable(text)
    assert_is_one(text)


def test_what_is_inside_is_told_by_its_place() -> None:
    assert insides("a 'b' /*c*/ `d` // e", MODES[0]) == [(2, 5), (6, 11), (12, 15), (16, 20)]
    assert insides("'a\\'", MODES[0]) is None
    assert insides("'a\\'", MODES[1]) == [(0, 4)]
