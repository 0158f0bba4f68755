"""docs/reference/commands.md: every command with its arguments and options, from what `--help` knows."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ccpr.cli.main import Commands
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS
from scripts.reference.tables import code, listed

_HEAD = """# Commands

Generated from the code by `make reference`; do not edit. `ccpr COMMAND --help` shows the same.

Every command but `emulator` has `--json`: one JSON document on standard output, errors too. Exit codes:

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed; the error names a code, its subject and a remedy ([errors](errors.md)) |
| 2 | the command line is wrong; nothing was done |
| 3 | `ccpr run`: the point is made, and tables of a target lag, as the output says |
| 4 | something would be destroyed or copied; nothing was done (`--yes` confirms) |
| 130 | interrupted (Ctrl-C); type it again to go on |

`ccpr --verbose COMMAND …` logs what happens on standard error. The line below a heading has the
arguments, and which of the options that many commands have; `NAME` is the subscription. An option
with `=` takes a value; its default stands in brackets. In many commands:
"""
_AS_JSON = "--json"
_PLAIN = {"The subscription.", "The target's name.", "The follower's name."}  # no more than the argument's own name
_MANY = 4  # commands with the same option: it is described once
_CREATING = ("subscribe", "target add")
_ALTERING = ("alter", "target alter")
_REQUIRED = "required"


def page() -> str:
    """The text of docs/reference/commands.md."""
    commands = [
        (deferred.panel, words, command)
        for name, deferred in Commands.deferred.items()
        for words, command in _commands(name, deferred.load(name))
    ]
    counted = Counter(_option_row(one, command) for _, _, command in commands for one in _options(command))
    shared = {row for row, commands_with_it in counted.items() if commands_with_it >= _MANY}
    lines = [*_HEAD.rstrip().split("\n"), "", *sorted(shared)]
    panel, described = "", dict[str, str]()
    for beginning, words, command in commands:
        if beginning != panel:
            panel = beginning
            lines += ["", f"## {panel}"]
        lines += ["", f"### ccpr {words}", "", *_command(words, command, shared, described)]
    return "\n".join(lines) + "\n"


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or the commands of a group, with the words that call them."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, part in command.commands.items():
        yield from _commands(f"{words} {name}", part)


def _options(command: Any) -> list[Any]:
    """The options of a command that people see, without those of all commands."""
    return [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        and not parameter.hidden
        and not {_AS_JSON, "--help"} & set(parameter.opts)
    ]


def _option_row(parameter: Any, command: Any) -> str:
    return _row(_option(parameter, command.context_class(command)), parameter)


def _command(words: str, command: Any, shared: set[str], described: dict[str, str]) -> list[str]:
    """The lines about a command. Options whose row is in `shared`, and several that an earlier command has, stand
    there with their names only. `described`: of each row the first command; is added to."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    sentences = " ".join(inspect.cleandoc(command.help or "").split())
    elsewhere = _settings(words)
    options = _options(command)
    rows = [_row(_argument(one), one) for one in arguments if _sentence(one.help) not in _PLAIN]
    own = [_option_row(one, command) for one in options if one.opts[0] not in elsewhere]
    firsts = Counter(described.setdefault(row, words) for row in own if row not in shared)
    rows += [row for row in own if row not in shared and (described[row] == words or firsts[described[row]] == 1)]
    for first, many in firsts.items():
        if first != words and many > 1:
            names = [_named(row) for row in own if described.get(row) == first]
            rows.append(f"* As for [ccpr {first}](#ccpr-{first.replace(' ', '-')}): {', '.join(names)}.")
    above = [_named(row) for row in own if row in shared]
    takes = ", ".join(filter(None, (code(" ".join(map(_argument, arguments))), *above)))
    if settings := [one.opts[0] for one in options if one.opts[0] in elsewhere]:
        rows.append(f"* [Settings](configuration.md): {listed(settings)}.")
    lines = [*([takes, ""] if takes else []), sentences]
    return [*lines, "", *rows] if rows else lines


def _settings(words: str) -> set[str]:
    """The options of a command that are settings and mean what the page of settings says."""
    known = TARGET_SETTINGS if words.startswith("target ") else SETTINGS
    if words in _ALTERING:
        return {one.option for one in known.values() if not one.later}
    return {one.option for one in known.values() if not one.at_creation} if words in _CREATING else set()


def _named(row: str) -> str:
    """The option that a row is about."""
    return row.removeprefix("* ").partition(": ")[0]


def _row(name: str, parameter: Any) -> str:
    default = _default(parameter)
    return f"* {code(name)}{' (required)' if default == _REQUIRED and name.startswith('-') else ''}: " + " ".join(
        filter(None, (_sentence(parameter.help), default if default != _REQUIRED else ""))
    )


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = re.sub(r"^\[(\w+)\]\.\.\.$", r"\1 …", name)  # several
    return name if parameter.required else f"[{name.strip('[]')}]"


def _option(parameter: Any, context: Any) -> str:
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return names
    choices = parameter.make_metavar(context).strip("<>") if hasattr(parameter.type, "choices") else ""
    return f"{names}={parameter.metavar or choices}{' …' if parameter.multiple else ''}"


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _default(parameter: Any) -> str:
    if parameter.required:
        return _REQUIRED
    default = getattr(parameter.default, "value", parameter.default)
    if default is None or default is False or default == "" or parameter.multiple:
        return ""
    return f"({code(str(default))})"
