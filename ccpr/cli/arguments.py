"""Arguments and options that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ccpr.base.wording import seconds_of
from ccpr.cli import completion
from ccpr.cli.shown_times import AT_HELP
from ccpr.matrixone.client.publication import EVERYTHING
from ccpr.state.patterns import NamePatterns

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
