"""Numbers, time spans and foreign names for people."""

import io
import json
import logging
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from ccpr.base.wording import seconds_text
from ccpr.cli import output
from ccpr.cli.output import Screen, counted, json_text, log_handler, show_table
from ccpr.cli.subscription_commands import report_interval
from ccpr.cli.table_names import full_name
from ccpr.config.errors import SqlSyntax
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.errors import TableMissingInMirror
from ccpr.state.settings import SENSOR_SECONDS


def test_one_is_not_a_plural() -> None:
    assert [counted(count, "object") for count in (0, 1, 2, 1200)] == [
        "0 objects",
        "1 object",
        "2 objects",
        "1,200 objects",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (119.4, "119 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3 * 86400 + 4 * 3600, "3 d 4 h")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


HOSTILE = "a[/b]\x1b[2J\x9b31m\u202e[red]:bomb:\r\x07\ud800"
SHOWN = "a[/b]\\x1b[2J\\x9b31m\\u202e[red]:bomb:"


def test_a_foreign_name_arrives_on_the_terminal_as_text() -> None:
    shown = io.StringIO()
    screen = Screen(file=shown, force_terminal=True, width=300)
    for renderable in (HOSTILE, Text(HOSTILE)):
        screen.print(renderable, style="bold red")
    assert shown.getvalue().count(SHOWN) == 2
    assert "\x1b[2J" not in shown.getvalue()
    assert not set("\x9b\x07\r\u202e\ud800") & set(shown.getvalue())


def test_a_foreign_name_in_a_table_is_one_line_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["table", "id"], [(HOSTILE + "\nremedy: x", 1)], empty="none")
    _, line = capsys.readouterr().out.splitlines()
    assert line == f"{SHOWN}\\r\\x07\\ud800\\nremedy: x   1"


@given(st.text())
def test_what_is_printable_has_no_control_characters_and_stays_if_it_had_none(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    if text.isprintable():
        assert shown == text
    assert printable(shown) == shown


@given(st.text())
def test_json_on_a_terminal_has_no_control_characters_and_means_the_same(text: str) -> None:
    shown = json_text({"name": text})
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    assert json.loads(shown) == {"name": text}


def test_foreign_names_in_the_log_are_escaped() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "table %s", ("a\x1b[2J\nremedy: run this",), None)
    assert log_handler().format(record).endswith("Z WARNING x: table a\\x1b[2J\\nremedy: run this")


def test_a_stack_in_the_log_has_lines_and_no_control_characters() -> None:
    try:
        raise ValueError("a\x1b[2J")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "gone", (), sys.exc_info())
    first, *stack = log_handler().format(record).splitlines()
    assert first.endswith("ERROR x: gone")
    assert (stack[0], stack[-1]) == ("Traceback (most recent call last):", "ValueError: a\\x1b[2J")


ROWS = [("shop", "mysql://sys#dump:***@127.0.0.1:17611", "an error that takes many words", "CONNECTION_LOST")]


def test_the_log_goes_to_the_standard_error_of_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's runner replaces the stream and closes it; a thread that outlives a command logs on."""
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    log = logging.getLogger("a module's")
    log.addHandler(log_handler())
    log.warning("before")
    monkeypatch.setattr("sys.stderr", second)
    first.close()
    log.warning("after")
    assert "after" in second.getvalue()


@pytest.mark.parametrize("width", [20, 60, 80, 120, 300])
def test_no_name_or_code_is_cut_however_narrow_a_terminal_is(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    screen = Screen(file=shown, force_terminal=True, width=width, no_color=True)
    monkeypatch.setattr(output, "out", screen)
    show_table(("name", "upstream", "message", "code"), ROWS, empty="none")
    for word in ("shop", "mysql://sys#dump:***@127.0.0.1:17611", "CONNECTION_LOST", "words"):
        assert word in shown.getvalue()
    lines = shown.getvalue().splitlines()
    assert (len(lines) > 4) == (width <= 60), "one line a value where a table has no room"


@pytest.mark.parametrize(
    ("typed", "found"),
    [("shop.a", "shop.a"), ("a", "shop.a"), ("b", "shop.b"), ("x.y", "shop.x.y"), ("c", "shop.c"), ("q.r", "q.r")],
)
def test_the_database_of_a_table_may_be_left_out_where_it_is_clear(typed: str, found: str) -> None:
    assert full_name(typed, ["shop.a", "shop.b", "old.b", "shop.x.y"], "shop") == found


def test_without_a_database_a_name_in_two_is_not_clear() -> None:
    with pytest.raises(TableMissingInMirror) as raised:
        full_name("b", ["shop.b", "old.b", "shop.c"])
    assert raised.value.remedy == "Say: old.b, shop.b."


def test_an_interval_that_the_sensor_cannot_hold_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    report_interval(SENSOR_SECONDS)
    assert capsys.readouterr().err == ""
    report_interval(1)
    assert "1 s is shorter" in capsys.readouterr().err


def test_an_error_is_no_wider_than_a_terminal_and_whole_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    error = TableMissingInMirror("said " * 30, subject="a table", remedy="Write\x1b " * 20)
    for is_terminal in (True, False):
        shown = io.StringIO()
        screen = Screen(file=shown, force_terminal=is_terminal, width=80, no_color=True)
        monkeypatch.setattr(output, "err", screen)
        output.show_error(error)
        lines = re.sub(r"\x1b\[[0-9]*m", "", shown.getvalue()).splitlines()
        assert lines[0].startswith(f"error {error.code}: said said")
        assert (max(map(len, lines)) <= 80) is is_terminal
        assert (len(lines) == 4) is not is_terminal
        assert "\x1b" not in "".join(lines)


def test_lines_of_a_message_stay_lines_and_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_error(SqlSyntax("no ';' (line 1)\nSELECT\n    ^", subject="line 1"))
    assert capsys.readouterr().err.splitlines()[1:3] == [" " * 10 + "SELECT", " " * 14 + "^"]


def test_a_line_is_folded_between_words_on_a_terminal_only() -> None:
    for is_terminal, count in ((True, 2), (False, 1)):
        shown = io.StringIO()
        Screen(file=shown, force_terminal=is_terminal, width=80, no_color=True).tell("lagging", "bold", "word " * 20)
        assert len(shown.getvalue().rstrip().splitlines()) == count


def test_a_dense_table_has_no_column_that_is_empty_in_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("a", "b", "c"), [("x", "-", 1), ("y", "", 2)], empty="", dense=True)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["a", "c"], ["x", "1"], ["y", "2"]]
