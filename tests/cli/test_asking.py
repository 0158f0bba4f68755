"""What destroys something asks at the terminal, and is not done without one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from ccpr.cli.asking import confirm
from ccpr.cli.defects import NotConfirmed
from ccpr.cli.interrupts import NOT_CONFIRMED
from ccpr.cli.main import app

DESTROYS = [
    ("drop", "nobody", "--purge"),
    ("sql", "DROP SUBSCRIPTION nobody PURGE"),
    ("follower", "remove", "nobody", "b", "--drop-database"),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))


def asked(*, yes: bool = False, as_json: bool = False) -> None:
    confirm("delete it?", subject="the mirror of shop", yes=yes, as_json=as_json)


@pytest.fixture
def terminal() -> Iterator[tuple[int, IO[str]]]:
    """Where a person types, and what a command reads of it."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r") as read:
        yield ours, read
    os.close(ours)


@pytest.mark.parametrize(("answer", "done"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_a_person_at_a_terminal_is_asked(
    answer: bytes, done: bool, terminal: tuple[int, IO[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, read = terminal
    monkeypatch.setattr("sys.stdin", read)
    os.write(ours, answer)
    if done:
        asked()
        return
    with pytest.raises(NotConfirmed, match="the answer was no"):
        asked()


def test_an_output_for_a_program_means_that_nobody_is_asked(
    terminal: tuple[int, IO[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", terminal[1])
    with pytest.raises(NotConfirmed, match="there is no terminal to ask on"):
        asked(as_json=True)
    asked(as_json=True, yes=True)


def test_nobody_answers_at_a_standard_input_that_is_closed_or_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = (tmp_path / "closed").open("w+")
    file.close()
    for stdin in (file, None):
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(NotConfirmed, match="there is no terminal to ask on"):
            asked()
        asked(yes=True)


@pytest.mark.parametrize("words", DESTROYS)
@pytest.mark.parametrize("piped", ["", "n\n", "y\n"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_a_pipe_says_is_no_answer(words: tuple[str, ...], piped: str, options: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(app, [*words, *options], input=piped)
    assert (refused.exit_code, "NOT_CONFIRMED" in refused.output) == (NOT_CONFIRMED, True)
    gone_on = CliRunner().invoke(app, [*words, *options, "--yes"], input=piped)
    assert (gone_on.exit_code, "SUBSCRIPTION_MISSING" in gone_on.output) == (1, True)
