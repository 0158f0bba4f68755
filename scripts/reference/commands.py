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
| 4 | something would be destroyed or copied, and was not confirmed; nothing was done (`--yes` confirms) |
| 130 | interrupted (Ctrl-C); type it again to go on |

`ccpr --verbose COMMAND …` logs what happens on standard error. `NAME` is the subscription. What an
option is without being given stands in brackets. In many commands:
"""
_AS_JSON = "--json"
_PLAIN = {"The subscription.", "The target's name.", "The follower's name."}  # no more than the argument's own name
_MANY = 4  # commands with the same option: it is described once
_CREATING = ("subscribe", "target add")
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
    panel = ""
    for beginning, words, command in commands:
        if beginning != panel:
            panel = beginning
            lines += ["", f"## {panel}"]
        lines += ["", f"### ccpr {words}", "", *_command(words, command, shared)]
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


def _command(words: str, command: Any, shared: set[str]) -> list[str]:
    """The lines about a command; options whose row is in `shared` stand there with their names only."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    lines = [code(" ".join(["ccpr", words, *map(_argument, arguments)])), ""] if arguments else []
    lines.append(" ".join(inspect.cleandoc(command.help or "").split()))
    elsewhere = _settings(words)
    options = _options(command)
    rows = [_row(_argument(one), one) for one in arguments if _sentence(one.help) not in _PLAIN]
    own = [_option_row(one, command) for one in options if one.opts[0] not in elsewhere]
    rows += [row for row in own if row not in shared]
    if above := [row.removeprefix("* ").partition(": ")[0] for row in own if row in shared]:
        rows.append(f"* As above: {', '.join(above)}.")
    if settings := [one.opts[0] for one in options if one.opts[0] in elsewhere]:
        rows.append(f"* Settings, as in [configuration](configuration.md): {listed(settings)}.")
    return [*lines, "", *rows] if rows else lines


def _settings(words: str) -> set[str]:
    """The options of a command that are settings and mean what the page of settings says."""
    known = TARGET_SETTINGS if words.startswith("target ") else SETTINGS
    if words.endswith("alter"):
        return {one.option for one in known.values() if not one.later}
    return {one.option for one in known.values() if not one.at_creation} if words in _CREATING else set()


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
    kind = parameter.make_metavar(context).strip("<>") if hasattr(parameter.type, "choices") else parameter.type.name
    value = parameter.metavar or kind.removesuffix(" range")
    return f"{names} {value}{' …' if parameter.multiple else ''}"


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _default(parameter: Any) -> str:
    if parameter.required:
        return _REQUIRED
    default = getattr(parameter.default, "value", parameter.default)
    if default is None or default is False or default == "" or parameter.multiple:
        return ""
    return f"({code(str(default))})"
