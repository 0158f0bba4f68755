"""Every command that an error, a hint or a document names exists, with the options that are named."""

import ast
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ccpr.cli.explain_command import PACKAGE
from ccpr.cli.former import NOW
from ccpr.cli.main import app

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
_IN_BACKQUOTES = re.compile(r"`ccpr ([^`]+)`")
_IN_A_HINT = re.compile(r"(?:^|: |; )ccpr ([a-z][^`;]*)")
_IN_A_LISTING = re.compile(r"^ *(?:\$ )?(?:\.venv/bin/)?ccpr +([a-z](?:[^|#\\\n]|(?<=\S)#)*)", re.M)  # to a comment
COMMAND: Any = typer.main.get_command(app)
GLOBAL = {"--verbose", "-v", "--help"}
GONE = {  # what a former release had, and the changelog names
    *((word,) for word in (*NOW, "spark", "follow", "unfollow", "promote", "init", "apply", "export-config")),
    ("serve", "--spark"),
    ("serve", "--no-spark"),
    ("verify", "--no-repair"),
    ("relay", "approve"),
    ("relay", "user"),
    ("list", "--drop-before"),
}


def texts_of(file: Path) -> list[tuple[int, str]]:
    """The strings of a module; what is put in by a format is `X`."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
            found.append((node.lineno, "".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.lineno, node.value))
    return found


def named_in_code() -> list[tuple[str, str]]:
    files = sorted((*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "packages").rglob("*.py")))
    return [
        (f"{file.relative_to(ROOT)}:{line}", words)
        for file in files
        for line, text in texts_of(file)
        for pattern in (_IN_BACKQUOTES, _IN_A_HINT)
        for words in pattern.findall(text)
    ]


def named_in_documents() -> list[tuple[str, str]]:
    files = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (str(file.relative_to(ROOT)), words)
        for file in files
        for pattern in (_IN_BACKQUOTES, _IN_A_LISTING)
        for words in pattern.findall(file.read_text())
    ]


def fault(words: str, gone: Collection[tuple[str, ...]] = ()) -> str | None:
    """What is wrong with a command line after `ccpr`; None if nothing is. `gone` is right, too."""
    command, rest = COMMAND, words.split()
    while hasattr(command, "commands"):
        while rest and rest[0] in GLOBAL:
            rest.pop(0)
        if not rest or not re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            return None  # the program as a whole, or `ccpr …`
        found = _part(command, rest[0])
        if found is None and (default := getattr(command, "default_command", None)):
            command = command.commands[default]
            continue
        if found is None:
            return None if {(rest[0],), (command.name, rest[0])} & {*gone} else f"there is no command {rest[0]}"
        command, rest = found, rest[1:]
    options = _options(command)
    for word in rest:
        name = re.split(r"[=.,)\]]", word.strip("[("))[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", name) and name not in options and (command.name, name) not in gone:
            return f"{command.name} has no option {name}"
    return None


def _part(group: Any, name: str) -> Any:
    deferred = getattr(group, "deferred", {})
    return deferred[name].load(name) if name in deferred else group.commands.get(name)


def _options(command: Any) -> set[str]:
    return GLOBAL | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_the_check_itself_finds_what_is_wrong() -> None:
    assert fault("drop NAME --force") is None
    assert fault("drop NAME --hurry") == "drop has no option --hurry"
    assert fault("state imprt FILE") == "there is no command imprt"
    assert fault("remove NAME") == "there is no command remove"
    assert fault("points shop --sizes") is None
    assert fault("points shop --hurry") == "list has no option --hurry"
    assert fault(_IN_A_LISTING.findall("ccpr run shop --from 'mysql://sys#root@h' --nothing  # text")[0]) == (
        "run has no option --from"
    )
    assert ("ccpr/state/states.py", "resume X") in [
        (place.partition(":")[0], words) for place, words in named_in_code()
    ]


@pytest.mark.parametrize("named", [named_in_code, named_in_documents], ids=["code", "documents"])
def test_every_command_that_is_named_exists(named) -> None:
    found = named()
    assert len(found) > 30
    wrong = [
        f"{place}: `ccpr {words}`: {text}"
        for place, words in found
        if (text := fault(words, GONE if place in ("CHANGELOG.md", "docs/how-to/upgrade.md") else ()))
    ]
    assert wrong == []
