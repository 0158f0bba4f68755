"""Arguments and options that several commands have."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output; errors as well.")]
Name = Annotated[str, typer.Argument(help="The subscription.")]
FollowerName = Annotated[str, typer.Argument(metavar="FOLLOWER", help="The follower's name.")]
