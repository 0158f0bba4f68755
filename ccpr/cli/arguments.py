"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from ccpr.cli import completion
from ccpr.cli.shown_times import AT_HELP

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
