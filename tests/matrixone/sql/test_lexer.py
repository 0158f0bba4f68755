import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpr.matrixone.sql import lexer
from ccpr.matrixone.sql.errors import SqlUnclosed
from ccpr.matrixone.sql.lexer import Token, complete_tokens, excerpt, line_and_column, scan, tokens
from tests.support.regex_steps import Matcher

PIECES = [
    "a",
    "$x",
    "1",
    "1.5",
    "1e-3",
    "@a",
    "@@b.c",
    "'",
    '"',
    "`",
    "``",
    "''",
    "\\",
    "--",
    "#",
    "é",
    "\0",
    " ",
    "\n",
]
PIECES += ["/*", "*/", "/*!", "/*!80023", "/*M!", "*", "/", "<=", "<>", "!=", ".", ",", "(", ")", "="]
TEXTS = st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join)


def _short(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in tokens(text)]


@given(TEXTS, st.booleans())
@example("(" * 50_000, True)
@example("''" * 50_000 + "'", False)
def test_tokens_tile_the_text(text: str, executable_comments: bool):
    found = list(scan(text, executable_comments=executable_comments))
    assert [token.start for token in found] == [0, *(token.end for token in found)][: len(found)]
    assert all(token.start < token.end for token in found)
    assert (found[-1].end if found else 0) == len(text)
    assert all(token.kind != "broken" for token in found[:-1]), "what has no end reaches to the end"


@given(TEXTS)
def test_every_text_is_read_or_gives_the_typed_error(text: str):
    found = list(tokens(text))
    if found and found[-1].kind == "broken":
        with pytest.raises(SqlUnclosed) as caught:
            complete_tokens(text)
        assert (caught.value.opening, caught.value.start) == (found[-1].value, found[-1].start)
    else:
        assert complete_tokens(text) == found


@given(TEXTS, st.data())
def test_reading_may_start_at_any_token(text: str, data: st.DataObject):
    found = list(scan(text))
    number = data.draw(st.integers(0, len(found)))
    start = found[number].start if number < len(found) else len(text)
    assert list(scan(text, start)) == found[number:]


@given(TEXTS)
def test_values_are_the_text_but_for_names_and_strings(text: str):
    for token in scan(text):
        raw = text[token.start : token.end]
        if token.kind == "broken":
            assert raw.startswith(token.value)
        elif token.kind not in ("name", "text"):
            assert token.value == raw


def test_each_kind_is_distinguished_from_the_others():
    assert _short("select `a``b`, 'it''s', \"q\" -1.5e-3 @@session.x @u $ é_1$ <>!=<=>=<*/* c */;") == [
        ("word", "select"),
        ("name", "a`b"),
        ("sign", ","),
        ("text", "it's"),
        ("sign", ","),
        ("text", "q"),
        ("sign", "-"),
        ("number", "1.5e-3"),
        ("variable", "@@session.x"),
        ("variable", "@u"),
        ("sign", "$"),
        ("word", "é_1$"),
        ("sign", "<>"),
        ("sign", "!="),
        ("sign", "<="),
        ("sign", ">="),
        ("sign", "<"),
        ("sign", "*"),
        ("sign", ";"),
    ]


@pytest.mark.parametrize(
    "text",
    ["a/* b '*/c", "a# b '\nc", "a-- b '\nc", "a--\tb '\nc", "a--\nc", "a/**/c", "a c-- '", "a c--", "a c#", "a/*!*/c"],
)
def test_comments_are_space(text: str):
    assert _short(text) == [("word", "a"), ("word", "c")]


def test_two_minuses_are_a_comment_only_before_white_space():
    assert _short("5--3") == [("number", "5"), ("sign", "-"), ("sign", "-"), ("number", "3")]


@pytest.mark.parametrize(
    "text", ["a /*!80023 INVISIBLE */ c", "a /*! INVISIBLE */ c", "a /*M!100100 INVISIBLE */ c", "a /*!INVISIBLE*/ c"]
)
def test_what_is_in_an_executable_comment_counts(text: str):
    assert [token.value for token in tokens(text)] == ["a", "INVISIBLE", "c"]
    plain = [token.value for token in scan(text, executable_comments=False) if token.kind == "word"]
    assert plain == ["a", "c"], "where the grammar has none they are comments"


@pytest.mark.parametrize("text", ["a /*!999999 ( */ c", "a /*M!999999\\- ' */ c", "a /*!200000 (*/ c"])
def test_an_executable_comment_for_a_version_that_no_server_has_is_a_comment(text: str):
    assert [token.value for token in tokens(text)] == ["a", "c"]
    assert "".join(text[token.start : token.end] for token in scan(text)) == text


def test_a_name_in_quotes_is_never_a_keyword():
    plain, quoted = tokens("Table `TABLE`")
    assert plain.is_word("CREATE", "TABLE")
    assert not quoted.is_word("TABLE")
    assert not Token("text", "=", 0, 3).is_sign("=")


@pytest.mark.parametrize(
    ("text", "opening", "start", "message"),
    [
        ("a 'secret", "'", 2, "a string has no end, at character 2 in line 1"),
        ('a\n "secret\\"', '"', 3, "a string has no end, at character 3 in line 2"),
        ("`secret``", "`", 0, "a quoted name has no end, at character 0 in line 1"),
        ("a /* secret *", "/*", 2, "a comment has no end, at character 2 in line 1"),
    ],
)
def test_what_has_no_end_is_an_error_with_its_place_and_without_its_content(
    text: str, opening: str, start: int, message: str
):
    with pytest.raises(SqlUnclosed) as caught:
        complete_tokens(text)
    assert (caught.value.opening, caught.value.start, str(caught.value)) == (opening, start, message)
    assert "secret" not in repr(list(tokens(text)))


@given(TEXTS, st.sampled_from(["'{}'", '"{}"', "/*{}*/", "# {}", "'{}", "/*{}"]), st.integers(0, 60))
def test_an_excerpt_shows_no_string_and_no_comment(before: str, form: str, width: int):
    secret = "Zx9"
    text = before + form.format(f"{secret} {secret}")
    start = len(before)
    assert secret not in excerpt(text, start, width)
    assert len(excerpt(text, start, width)) <= width


def test_an_excerpt_is_the_text_otherwise():
    assert excerpt("create table `t` (a int)", 7, 9) == "table `t`"
    assert excerpt("identified by 'secret' -- secret\n as \"secret\"", 0, 80) == "identified by '***'  \n as \"***\""


@pytest.mark.parametrize(
    "text", ["by 'a'secret'", "by 'a' secret 'b", "by `a' secret", "by `a` secret 'b", "by /*secret"]
)
def test_an_excerpt_shows_nothing_from_the_first_quote_on_where_one_is_missing(text: str):
    shown = excerpt(text, 0, 80)
    assert shown.startswith("by ")
    assert shown.endswith("***")
    assert "secret" not in shown
    assert excerpt(text, text.index("secret"), 80) == "***"


def test_a_place_is_a_line_and_a_column_from_one():
    text = "ab\ncd\n"
    assert [line_and_column(text, place) for place in range(7)] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
        (3, 1),
    ]


UNITS = ["'", '"', "`", "''", "'a", "\\'", "/*", "/* ", "/*!", "*/", "--", "#", "(", "1.", "1e", "@", "a ", "'\\", "<"]


@pytest.mark.parametrize("executable_comments", [True, False])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("before", ["", "'", "/*", "`"])
def test_long_texts_take_no_more_work_than_their_length(unit: str, before: str, executable_comments: bool):
    def steps(repeats: int) -> int:
        text = before + unit * repeats
        matcher = Matcher(lexer._PATTERNS[executable_comments], text)
        found = scan(text, executable_comments=executable_comments)
        assert list(matcher.ends()) == [token.end for token in found]
        return matcher.steps

    assert steps(320) < 5 * steps(80) + 500
