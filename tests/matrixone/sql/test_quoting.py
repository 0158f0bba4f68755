import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.lexer import tokens
from ccpr.matrixone.sql.quoting import (
    in_backquotes,
    quote_name,
    quote_names,
    quote_qualified,
    quote_string,
    unquote_name,
    unquote_string,
)

TEXTS = st.text(max_size=30) | st.text(st.sampled_from("ab'\"`\\%_\n\0*/#-@"), max_size=30)
NAMES = TEXTS.filter(lambda name: name and "\0" not in name)
QUOTES = st.sampled_from("'\"")


@given(TEXTS, QUOTES, st.booleans())
def test_a_quoted_string_is_read_back(value: str, quote: str, escape_lines: bool):
    quoted = quote_string(value, quote, escape_lines=escape_lines)  # pyright: ignore[reportArgumentType]
    assert unquote_string(quoted) == value
    (token,) = tokens(quoted)
    assert (token.kind, token.value, token.start, token.end) == ("text", value, 0, len(quoted))


@given(TEXTS)
def test_a_quoted_name_is_read_back(name: str):
    quoted = in_backquotes(name)
    assert unquote_name(quoted) == name
    (token,) = tokens(quoted)
    assert (token.kind, token.value, token.start, token.end) == ("name", name, 0, len(quoted))


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_qualified_name_is_read_back(names: list[str]):
    read = list(tokens(quote_qualified(names)))
    assert [token.value for token in read[::2]] == names
    assert all(dot.is_sign(".") for dot in read[1::2])
    assert quote_names(names, ".") == quote_qualified(names)


@given(st.lists(TEXTS, max_size=4), QUOTES)
def test_strings_in_a_row_end_where_they_end(values: list[str], quote: str):
    text = ", ".join(quote_string(value, quote) for value in values)  # pyright: ignore[reportArgumentType]
    assert [token.value for token in tokens(text) if token.kind == "text"] == values


def test_a_string_is_written_on_one_line_unless_that_is_not_wanted():
    assert quote_string("a\nb\r\0") == r"'a\nb\r\0'"
    assert quote_string("a\nb\r\0", escape_lines=False) == "'a\nb\r\0'"


def test_the_quote_of_a_string_is_escaped_and_the_other_one_is_not():
    assert quote_string("""it's "so" \\""") == r"""'it''s "so" \\'"""
    assert quote_string("""it's "so" \\""", '"') == r'''"it's \"so\" \\"'''


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\0", "\0"),
        (r"\'", "'"),
        (r"\"", '"'),
        (r"\b", "\b"),
        (r"\n", "\n"),
        (r"\r", "\r"),
        (r"\t", "\t"),
        (r"\Z", "\x1a"),
        (r"\\", "\\"),
        (r"\%", r"\%"),
        (r"\_", r"\_"),
        (r"\x", "x"),
        (r"\N", "N"),
        ("\\\n", "\n"),
        ("\\`", "`"),
    ],
)
@pytest.mark.parametrize("quote", ["'", '"'])
def test_escapes_mean_what_they_mean_in_mysql(written: str, meant: str, quote: str):
    assert unquote_string(f"{quote}a{written}z{quote}") == f"a{meant}z"


def test_a_doubled_quote_behind_an_escaped_one_is_a_quote_of_its_own():
    assert unquote_string(r"'it\''''") == "it''"
    assert unquote_string(r"'\\'''") == "\\'"
    assert unquote_string("\"it''s\"") == "it''s"


@pytest.mark.parametrize("text", ["", "'", "secret", "'secret", "secret'", "'secret''", "'a' 'secret'", "'secret\\'"])
def test_what_is_not_one_string_is_an_error_that_does_not_show_it(text: str):
    with pytest.raises(ValueError, match="not a string literal") as caught:
        unquote_string(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "`", "secret", "`secret", "secret`", "`secret``", "`a` `secret`"])
def test_what_is_not_one_quoted_name_is_an_error_that_does_not_show_it(text: str):
    with pytest.raises(ValueError, match="not a name in backquotes") as caught:
        unquote_name(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_no_server_takes_are_refused(name: str):
    for build in (lambda: quote_name(name), lambda: quote_names([name]), lambda: quote_qualified(("d", name))):
        with pytest.raises(DdlUnreadable):
            build()
