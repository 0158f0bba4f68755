"""Arguments and options that several commands have, and those that come from the entries of settings
(`ccpr.state.setting_entry`)."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from ccpr.base.wording import seconds_of
from ccpr.cli import completion
from ccpr.cli.output import handle_errors
from ccpr.cli.shown_times import AT_HELP
from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.state.patterns import NamePatterns
from ccpr.state.setting_entry import FilePart, Setting
from ccpr.state.setting_kinds import Choice, Flag

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output; errors as well.")]
At = Annotated[
    str | None, typer.Option(help=f"{AT_HELP} The newest one if not given.", autocompletion=completion.points)
]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, t or db.t.", autocompletion=completion.tables)
]
Name = Annotated[str, typer.Argument(help="The subscription.", autocompletion=completion.subscriptions)]
FollowerName = Annotated[str, typer.Argument(metavar="FOLLOWER", help="The follower's name.")]
PasswordFile = Annotated[Path | None, typer.Option(help="A file whose first line is the password.")]
OnlyTables = Annotated[
    list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table; may be repeated.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")]


Database = Annotated[
    str | None,
    typer.Option(help="The database to replicate; or several of an account: 'shop,crm', 'shop_*', '*' for all."),
]
Account = Annotated[
    str | None,
    typer.Option(help="The account whose databases they are; without --database all of them. The same as --publisher."),
]


@dataclass(frozen=True, slots=True)
class Scope:
    """`database` is EVERYTHING if several are meant: those that match `databases`, patterns joined by commas."""

    database: str
    databases: str
    publisher: str | None

    @classmethod
    def of(cls, database: str | None, account: str | None, publisher: str | None) -> "Scope | None":
        """From the options; None if they name neither a database nor an account."""
        if account is not None and publisher not in (None, account):
            raise typer.BadParameter("--account and --publisher are the same, and differ", param_hint="--publisher")
        if database is None and account is None:
            return None
        wanted, owner = EVERYTHING if database is None else database, account or publisher
        if wanted == EVERYTHING:
            return cls(EVERYTHING, "", owner)
        if is_several(wanted):
            return cls(EVERYTHING, wanted, owner)
        return cls(wanted, "", owner)


def is_several(database: str) -> bool:
    """Whether it is patterns, and not a name. A database with such a name needs `ccpr sql`."""
    try:
        return database != "" and NamePatterns.of(database).names != (database.lower(),)
    except ValueError:
        return True  # `check_settings` says what is wrong with it


def seconds_option(text: str, option: str) -> int:
    """The value of an option that is a span of time, in seconds. Raises typer.BadParameter."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


# ---- settings

MORE = "More settings"  # the heading of what few need
_PANELS = {FilePart.TARGET: "Of a database", FilePart.LAKE: "Of a lake"}
_FIRST = ("sync_interval", "tables", "keep", "retain_for", "mirror", "encrypt", "copy_to")
Values: TypeAlias = Mapping[str, Any]  # of settings, by name


def takes_settings(settings: Iterable[Setting], *, later: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command with an option for each setting, in place of its parameter `settings: Values`. `later`: it changes
    what there is, so that what is not given is not among the values; else it has its default, unless that is None."""
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
            options = [_option(one, later=later) for one in chosen] if parameter.name == "settings" else [parameter]
            parameters += [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
        called.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
        return called

    return with_options


def _option(one: Setting, *, later: bool) -> Parameter:
    flag = isinstance(one.kind, Flag)
    kind: Any = bool if flag else list[str] if one.kind.multiple else str
    words = list(map(str, one.kind.values)) if isinstance(one.kind, Choice) else None
    text = one.sentence_later if later else one.sentence
    option = typer.Option(
        f"{one.option}/{one.negative}" if flag and later else one.option,
        help=f"{text} May be repeated." if one.kind.multiple else text,
        metavar=None if flag else one.kind.metavar,
        autocompletion=(lambda: words) if words else None,  # for the shell
        rich_help_panel=_PANELS.get(one.part) or (None if one.name in _FIRST else MORE),
    )
    default = one.default if flag else str(one.default)
    said = None if later or one.kind.multiple or one.default is None else default
    return Parameter(one.name, Parameter.KEYWORD_ONLY, default=said, annotation=Annotated[kind | None, option])
