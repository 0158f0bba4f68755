"""Options of commands from the entries of settings (`ccpr.state.setting_entry`)."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, TypeAlias

import typer

from ccpr.cli.output import handle_errors
from ccpr.state.setting_entry import Setting
from ccpr.state.setting_kinds import Choice, Flag

MORE = "More settings"  # the heading of what few need
_FIRST = ("sync_interval", "tables", "keep", "retain_for", "mirror", "encrypt", "copy_to")
Values: TypeAlias = Mapping[str, Any]  # of settings, by name


def takes_settings(
    settings: Iterable[Setting], *, later: bool, panel: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command with an option for each setting, in place of its parameter `settings: Values`. `later`: it changes
    what there is, so that what is not given is not among the values; else it has its default. Help lists them under
    `panel`, or those that few need under MORE."""
    chosen = [one for one in settings if (one.changeable if later else not one.at_creation)]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            said = {one: given.pop(one.name) for one in chosen}
            with handle_errors(as_json=given["as_json"]):
                values = {one.name: one.parse(text) for one, text in said.items() if text is not None}
            command(settings=values, **given)

        own = inspect.signature(command, eval_str=True)
        parameters: list[Parameter] = []
        for parameter in own.parameters.values():
            options = (
                [_option(one, later=later, panel=panel) for one in chosen]
                if parameter.name == "settings"
                else [parameter]
            )
            parameters += [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
        called.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
        return called

    return with_options


def _option(one: Setting, *, later: bool, panel: str) -> Parameter:
    flag = isinstance(one.kind, Flag)
    kind: Any = bool if flag else list[str] if one.kind.multiple else str
    words = list(map(str, one.kind.values)) if isinstance(one.kind, Choice) else None
    text = one.sentence_later if later else one.sentence
    option = typer.Option(
        f"{one.option}/{one.negative}" if flag and later else one.option,
        help=f"{text} May be repeated." if one.kind.multiple else text,
        metavar=None if flag else one.kind.metavar,
        autocompletion=(lambda: words) if words else None,  # for the shell
        rich_help_panel=panel or (None if one.name in _FIRST else MORE),
    )
    default = one.default if flag else str(one.default)
    said = None if later or one.kind.multiple else default
    return Parameter(one.name, Parameter.KEYWORD_ONLY, default=said, annotation=Annotated[kind | None, option])
