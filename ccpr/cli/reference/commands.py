"""docs/reference/commands.md: every command with its arguments and options, from what `--help` knows."""

import inspect
from collections.abc import Iterator
from typing import Any

from ccpr.cli.main import Commands
from ccpr.cli.reference.tables import code, table

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

`ccpr --verbose COMMAND …` logs what happens on standard error.
"""
_AS_JSON = "--json"


def page() -> str:
    """The text of docs/reference/commands.md."""
    lines = [*_HEAD.rstrip().split("\n")]
    panel = ""
    for name, deferred in Commands.deferred.items():
        if deferred.panel != panel:
            panel = deferred.panel
            lines += ["", f"## {panel}"]
        for words, command in _commands(name, deferred.load(name)):
            lines += ["", f"### ccpr {words}", "", *_command(words, command)]
    return "\n".join(lines) + "\n"


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or the commands of a group, with the words that call them."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, part in command.commands.items():
        yield from _commands(f"{words} {name}", part)


def _command(words: str, command: Any) -> list[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not {_AS_JSON, "--help"} & set(parameter.opts)
    ]
    usage = " ".join(["ccpr", words, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    lines = [code(usage), "", " ".join(inspect.cleandoc(command.help or "").split())]
    if arguments:
        rows = [(code(_argument(one)), _sentence(one.help), _default(one)) for one in arguments]
        lines += ["", *table(("argument", "", "default"), rows)]
    if options:
        context = command.context_class(command)
        rows = [(code(_option(one, context)), _sentence(one.help), _default(one)) for one in options]
        lines += ["", *table(("option", "", "default"), rows)]
    return lines


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
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
        return "required"
    default = getattr(parameter.default, "value", parameter.default)
    if default is None or default is False or default == "" or parameter.multiple:
        return ""
    return code(str(default))
